"""The configuration of ego-graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fnftg.errors import FnftgError


@dataclass(frozen=True)
class EgoConfig:
    """How ego-graphs are sampled.

    Args:
        num_neighbours: maximum number of neighbours in training.
        evaluation_num_neighbours: maximum number of neighbours in evaluation and prediction (default: num_neighbours).
        directions: out for outgoing edges, or both; incoming edges have the text of the inverse relation.
    """

    num_neighbours: int = 10
    evaluation_num_neighbours: int | None = None
    directions: Literal["both", "out"] = "both"

    def __post_init__(self) -> None:
        if self.num_neighbours < 0 or (self.evaluation_num_neighbours or 0) < 0:
            raise FnftgError("ego.num_neighbours and ego.evaluation_num_neighbours must not be negative.")
        if self.directions not in ("both", "out"):
            raise FnftgError(f"ego.directions is {self.directions!r}: it must be both or out.")

    @property
    def num_neighbours_at_evaluation(self) -> int:
        return self.num_neighbours if self.evaluation_num_neighbours is None else self.evaluation_num_neighbours


NO_EGO_GRAPHS = EgoConfig(num_neighbours=0)
