"""The config of a model's evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fnftg.errors import FnftgError


@dataclass(frozen=True)
class EvidenceConfig:
    """Evidence sources, whose scores are added to the embedding score; none by default.

    Args:
        sources: names of the sources: text_knn, relation_cooccurrence, mentions, few_shot_prior, relation_text.
        num_nearest: number of nearest texts that text_knn, few_shot_prior and relation_text use per entity.
        evaluation_num_nearest: number of nearest texts for text_knn in evaluation and prediction; if null, num_nearest.
        num_candidates: maximum number of candidates per query and source.
        mention_words: number of words of each text in which mentions are found; if null, text.words, as the encoder
            reads; 0 for the whole text.
        initial_weight: scale of the initial weights, and of the fixed weights for unseen relations.
        fit: fit the weights after training, on two of three parts of the val split.
    """

    sources: list[str] = field(default_factory=list)
    num_nearest: int = 100
    evaluation_num_nearest: int | None = None
    num_candidates: int = 64
    mention_words: int | None = None
    initial_weight: float = 0.1
    fit: bool = True

    def __post_init__(self) -> None:
        for name in ("num_nearest", "evaluation_num_nearest", "num_candidates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FnftgError(f"evidence.{name} is {value}: it must be at least 1.")
        if self.mention_words is not None and self.mention_words < 0:
            raise FnftgError(f"evidence.mention_words is {self.mention_words}: it must not be negative.")
        if not 0 <= self.initial_weight < math.inf:
            raise FnftgError(f"evidence.initial_weight is {self.initial_weight}: it must be finite and not negative.")
        if len(set(self.sources)) < len(self.sources):
            raise FnftgError(f"evidence.sources names a source twice: {', '.join(self.sources)}.")

    @property
    def num_nearest_at_evaluation(self) -> int:
        return self.num_nearest if self.evaluation_num_nearest is None else self.evaluation_num_nearest
