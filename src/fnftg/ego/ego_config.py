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
    """

    num_neighbours: int = 10
    evaluation_num_neighbours: int | None = None
    directions: Literal["both", "out"] = "both"

    def __post_init__(self) -> None:
        if self.num_neighbours < 0 or (self.evaluation_num_neighbours or 0) < 0:
            raise FnftgError("The limits of ego-graphs must not be negative.")
        if self.directions not in ("both", "out"):
            raise FnftgError(f"Ego-graphs have directions both or out, not {self.directions!r}.")

    @property
    def num_neighbours_at_evaluation(self) -> int:
        return self.num_neighbours if self.evaluation_num_neighbours is None else self.evaluation_num_neighbours


NO_EGO_GRAPHS = EgoConfig(num_neighbours=0)
