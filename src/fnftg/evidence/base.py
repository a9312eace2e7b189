"""The interface of an evidence source.

A source

- computes its statistics once over the visible graph (`count`),
- returns a few candidates with a few features each for a batch of queries, as ragged arrays (`candidates`),
- updates its statistics with the triples of a request, without another pass over the graph (`extend`),
- explains why it supports an answer, in a record that callers can show without knowing the source (`explain`).

Leak rule: the features of a query must not depend on its own target. Adding, removing or relabelling the target must
leave all features unchanged (tests/test_evidence.py checks this for every source).

To add a source, write a subclass in a new file and add one line to `evidence/sources.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.context import VisibleGraph
from fnftg.evidence.evidence_config import EvidenceConfig

SMALLEST = 0.01  # unit of a mass or a share inside the logarithm: smaller values count for almost nothing
Requirement = Literal["frozen text", "both directions"]


@dataclass(frozen=True)
class Feature:
    """A feature of a candidate and its initial weights, in units of `evidence.initial_weight`."""

    name: str
    initial: float | None  # initial weight for training relations; None if the feature is not used for them
    unseen: float  # fixed weight for relations that are not in the training split


@dataclass(frozen=True)
class QueryBatch:
    """A batch of queries (centre, label, ·)."""

    centres: Int32Array  # (q,)
    labels: Int32Array  # (q,): r for tail queries, R + r for head queries
    unseen: BoolArray  # (q,): whether the relation is not in the training split
    targets: Int32Array | None = None  # (q,): the hidden answers, if the queries come from triples
    hidden: Literal["target", "pair"] = "target"  # pair hides every edge between centre and target
    training: bool = False

    def __len__(self) -> int:
        return len(self.centres)


@dataclass(frozen=True)
class Candidates:
    """Candidates and their features as ragged arrays: query i has the distinct entries offsets[i] to offsets[i + 1]."""

    offsets: Int64Array  # (q + 1,)
    entities: Int32Array  # (e,)
    features: Float32Array  # (e, F)

    @classmethod
    def none(cls, queries: int, features: int) -> Candidates:
        """Return no candidates for each query."""
        return cls(np.zeros(queries + 1, np.int64), np.zeros(0, np.int32), np.zeros((0, features), np.float32))

    @property
    def queries(self) -> Int64Array:
        """The query of each candidate: (e,)."""
        return query_of_each(self.offsets)


@dataclass(frozen=True)
class Item:
    """One piece of evidence for an answer: an entity, an edge between query entity and answer, or both."""

    entity: int | None = None  # row
    label: int | None = None  # label of the edge, seen from the query entity
    value: float | None = None  # what `Finding.value_name` says


@dataclass(frozen=True)
class Finding:
    """The explanation of a source for an answer; false if it is empty, that is if the source does not support it."""

    sentence: str = ""  # may contain the placeholders {query}, {answer} and {items}
    items: tuple[Item, ...] = ()
    value_name: str | None = None  # meaning of the items' values, such as similarity

    def __bool__(self) -> bool:
        return bool(self.sentence or self.items)


class EvidenceSource(ABC):
    """Base class of evidence sources. It holds only the config; callers keep the result of `count`."""

    name: ClassVar[str]
    title: ClassVar[str]  # heading of its explanations in reports and on the web page
    features: ClassVar[tuple[Feature, ...]]
    in_training: ClassVar[bool] = False  # whether it is used in training, or only from the fit of the weights on
    requires: ClassVar[tuple[Requirement, ...]] = ()

    def __init__(self, config: EvidenceConfig):
        self.config = config

    @abstractmethod
    def count(self, context: VisibleGraph, unseen: BoolArray) -> Any:
        """Compute the statistics of the visible graph; `unseen` (2R,) marks labels without training triples."""

    @abstractmethod
    def extend(self, counts: Any, context: VisibleGraph, unseen: BoolArray) -> Any:
        """Return what `count` would return for an extended context, given the `counts` of `context.base`."""

    @abstractmethod
    def candidates(self, counts: Any, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        """Return the candidates that the source supports, with their features."""

    @abstractmethod
    def explain(self, counts: Any, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding | None:
        """Explain the support for one answer to a single query; None if the source does not apply to the query."""


def query_of_each(offsets: Int64Array) -> Int64Array:
    """Return the row that each entry of a ragged array belongs to: (e,)."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def log_mass(mass: Float32Array) -> Float32Array:
    """Return log(1 + mass / SMALLEST) of each mass (e,)."""
    found: Float32Array = np.log(mass / np.float32(SMALLEST) + np.float32(1))
    return found


def log_share(mass: Float32Array, offsets: Int64Array) -> Float32Array:
    """Return `log_mass` of each candidate's share (e,) in the total mass of its query."""
    query = query_of_each(offsets)
    whole = np.maximum(np.bincount(query, mass, len(offsets) - 1), 1e-12).astype(np.float32)  # (q,)
    return log_mass(mass / whole[query])
