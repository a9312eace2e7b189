"""Which neighbours a centre sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fnftg.errors import FnftgError


@dataclass(frozen=True)
class EgoConfig:
    """Which neighbours a centre sees.

    Args:
        num_neighbours: neighbours at most, in training.
        evaluation_num_neighbours: neighbours at most, in evaluation and prediction; as in training if none is given.
        directions: both, incoming edges having the inverse relation's text, or out.
        method: uniform, or rare: prefers edges of rare relations.
        hops: 1, or 2: also the neighbours' neighbours.
        second_limit: neighbours' neighbours at most, for each neighbour.
    """

    num_neighbours: int = 10
    evaluation_num_neighbours: int | None = None
    directions: Literal["both", "out"] = "both"
    method: Literal["uniform", "rare"] = "uniform"
    hops: Literal[1, 2] = 1
    second_limit: int = 5

    def __post_init__(self) -> None:
        if self.num_neighbours < 0 or self.second_limit < 0 or (self.evaluation_num_neighbours or 0) < 0:
            raise FnftgError("The limits of ego-graphs must not be negative.")
        if self.hops not in (1, 2) or self.directions not in ("both", "out") or self.method not in ("uniform", "rare"):
            raise FnftgError("Ego-graphs have hops 1 or 2, directions both or out, method uniform or rare.")

    @property
    def num_neighbours_at_evaluation(self) -> int:
        return self.num_neighbours if self.evaluation_num_neighbours is None else self.evaluation_num_neighbours


NO_EGO_GRAPHS = EgoConfig(num_neighbours=0)
