"""What of the evidence a model uses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fnftg.errors import FnftgError


@dataclass(frozen=True)
class EvidenceConfig:
    """Sources of evidence that add to the embedding score; none by default.

    Args:
        sources: names of sources, such as text_knn, relation_cooccurrence, mentions, few_shot_prior.
        num_nearest: nearest texts of an entity that text_knn and few_shot_prior look at.
        evaluation_num_nearest: those that text_knn looks at in evaluation and prediction; as in training if not given.
        num_candidates: candidates of a query that one source may speak for.
        initial_weight: unit of the weights before they are learned, and of the fixed weights for unseen relations.
        fit: fit the weights on the val split after training.
    """

    sources: list[str] = field(default_factory=list)
    num_nearest: int = 100
    evaluation_num_nearest: int | None = None
    num_candidates: int = 64
    initial_weight: float = 0.1
    fit: bool = True

    def __post_init__(self) -> None:
        for name in ("num_nearest", "evaluation_num_nearest", "num_candidates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FnftgError(f"evidence.{name} is {value}: it must be at least 1.")
        if not 0 <= self.initial_weight < math.inf:
            raise FnftgError(f"evidence.initial_weight is {self.initial_weight}: it must be a number from 0 on.")
        if len(set(self.sources)) < len(self.sources):
            raise FnftgError(f"evidence.sources names a source twice: {', '.join(self.sources)}.")

    @property
    def num_nearest_at_evaluation(self) -> int:
        return self.num_nearest if self.evaluation_num_nearest is None else self.evaluation_num_nearest
