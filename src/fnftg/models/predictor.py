"""`LinkPredictor`: what every system of the paper is to training, ranking and prediction."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import EgoGraphs, Hidden, sample
from fnftg.errors import FnftgError
from fnftg.text.transformer import GraphTexts

Integers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class EgoConfig:
    """Which neighbours a centre sees.

    Args:
        limit: neighbours at most, in training.
        evaluation_limit: neighbours at most, in evaluation and prediction; as in training if none is given.
        directions: both, incoming edges having the inverse relation's text, or out.
        method: uniform, or rare: prefers edges of rare relations.
        hops: 1, or 2: also the neighbours' neighbours.
        second_limit: neighbours' neighbours at most, for each neighbour.
    """

    limit: int = 10
    evaluation_limit: int | None = None
    directions: Literal["both", "out"] = "both"
    method: Literal["uniform", "rare"] = "uniform"
    hops: Literal[1, 2] = 1
    second_limit: int = 5

    def __post_init__(self) -> None:
        if self.limit < 0 or self.second_limit < 0 or (self.evaluation_limit or 0) < 0:
            raise FnftgError("The limits of ego-graphs must not be negative.")
        if self.hops not in (1, 2) or self.directions not in ("both", "out") or self.method not in ("uniform", "rare"):
            raise FnftgError("Ego-graphs have hops 1 or 2, directions both or out, method uniform or rare.")


@dataclass(frozen=True)
class Visible:
    """What a model may look at: the texts of a graph and the edges that are not held back."""

    texts: GraphTexts
    neighbours: Neighbours

    def ego_graphs(
        self,
        config: EgoConfig,
        centres: Integers,
        hidden: Hidden | None,
        key: tuple[int, int, int] = (0, 0, 0),
        streams: npt.NDArray[np.int64] | None = None,
        training: bool = False,
    ) -> EgoGraphs:
        """The sampled ego-graphs; outside training they depend on the centre alone, not on the batch."""
        limit = config.limit if training or config.evaluation_limit is None else config.evaluation_limit
        streams = centres.astype(np.int64) if streams is None else streams
        return sample(
            self.neighbours, centres, limit, key, hidden, streams, config.method, config.hops, config.second_limit
        )


class LinkPredictor(nn.Module):
    """Embeds candidates and queries so that `similarity` of the two is the score of the triple."""

    ego: EgoConfig
    width: int
    by_distance: bool  # the similarity is minus the L1 distance, for which there are faster ways to rank

    @abstractmethod
    def forward(
        self, texts: GraphTexts, centres: Integers, egos: EgoGraphs, labels: Integers | None, candidates: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Candidate vectors (n, d) of the centres, if asked for, and, given the labels of queries (a relation r, or
        R + r for the inverse of r), the points (n, d) of these queries."""

    @staticmethod
    def from_pretrained(name: str | os.PathLike[str]) -> LinkPredictor:
        """A model from its folder, from the folder of the run that trained it, or by its name on the hub."""
        from fnftg.models.pretrained import from_pretrained

        return from_pretrained(name)

    @abstractmethod
    def save_pretrained(
        self, folder: str | os.PathLike[str], metrics: dict[str, Any] | None = None, force: bool = False
    ) -> None:
        """Writes the model as a folder, in one step."""

    @abstractmethod
    def similarity(self, points: Tensor, candidates: Tensor) -> Tensor:
        """(q, d) against (n, d) → scores (q, n)."""
