"""What a source of evidence is.

A source

- is counted once over the visible graph (`count`),
- gives for a batch of queries a few candidates with a few features each, ragged (`candidates`),
- is extended by what a request adds, without counting the graph again (`extend`),
- says why it speaks for an answer, in a record that can be shown without knowing the source (`explain`).

The leak rule: nothing that a source counts for a query may depend on the query's own target. Adding, removing or
relabelling the target must change none of its features (tests/test_evidence.py checks every source).

A new source is one file with a subclass and one line in `evidence/sources.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.context import VisibleGraph
from fnftg.evidence.evidence_config import EvidenceConfig

SMALLEST = 0.01  # a mass, or a share of it, below which a candidate counts as if it had none
Requirement = Literal["frozen text", "both directions"]


@dataclass(frozen=True)
class Feature:
    """A number that a source gives to a candidate, and its first weights in units of `evidence.initial_weight`."""

    name: str
    initial: float | None  # for the relations of training, before the weights are learned; None: it has no weight there
    unseen: float  # for relations that were never trained on, whose weights are not learned


@dataclass(frozen=True)
class QueryBatch:
    """Queries (centre, label, ·): what is asked, and what is known about the asking."""

    centres: Int32Array  # (q,)
    labels: Int32Array  # (q,): r for tails, R + r for heads
    unseen: BoolArray  # (q,): the relation was never trained on
    targets: Int32Array | None = None  # (q,): the answers that are hidden, where queries come from triples
    hidden: Literal["target", "pair"] = "target"  # pair: every edge between centre and target is hidden
    training: bool = False

    def __len__(self) -> int:
        return len(self.centres)


@dataclass(frozen=True)
class Candidates:
    """The candidates of query i, each once, stand at offsets[i] to offsets[i + 1]."""

    offsets: Int64Array  # (q + 1,)
    entities: Int32Array  # (e,)
    features: Float32Array  # (e, F)

    @classmethod
    def none(cls, queries: int, features: int) -> Candidates:
        return cls(np.zeros(queries + 1, np.int64), np.zeros(0, np.int32), np.zeros((0, features), np.float32))

    @property
    def queries(self) -> Int64Array:
        """The query of each candidate: (e,)."""
        return query_of_each(self.offsets)


@dataclass(frozen=True)
class Item:
    """One thing that speaks for an answer: an entity, an edge between query entity and answer, or both."""

    entity: int | None = None  # row
    label: int | None = None  # of the edge, as seen from the query entity
    value: float | None = None


@dataclass(frozen=True)
class Finding:
    """Why a source speaks for an answer. False without sentence and items: then it does not."""

    sentence: str = ""  # may name {query}, {answer} and {items}
    items: tuple[Item, ...] = ()
    value_name: str | None = None  # what the values of the items are

    def __bool__(self) -> bool:
        return bool(self.sentence or self.items)


class EvidenceSource(ABC):
    """Made from the config; holds nothing that was counted."""

    name: ClassVar[str]
    title: ClassVar[str]  # of its reasons, for people
    features: ClassVar[tuple[Feature, ...]]
    in_training: ClassVar[bool] = False  # whether it takes part in training, or joins when the weights are fitted
    requires: ClassVar[tuple[Requirement, ...]] = ()

    def __init__(self, config: EvidenceConfig):
        self.config = config

    @abstractmethod
    def count(self, context: VisibleGraph, unseen: BoolArray) -> Any:
        """What is counted once over the visible graph; `unseen` (2R,) tells the labels that were never trained on."""

    @abstractmethod
    def extend(self, counts: Any, context: VisibleGraph, unseen: BoolArray) -> Any:
        """What `count` would give for a context that extends another (`context.base`), from what that one gave."""

    @abstractmethod
    def candidates(self, counts: Any, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        """The candidates that it speaks for, with their features."""

    @abstractmethod
    def explain(self, counts: Any, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding | None:
        """Why it speaks for an answer to a single query; None where it has no say."""


def query_of_each(offsets: Int64Array) -> Int64Array:
    """The row that each entry of a ragged array belongs to: (e,)."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def log_mass(mass: Float32Array) -> Float32Array:
    """What a mass of evidence (e,) counts for: its logarithm, 0 where there is none."""
    found: Float32Array = np.log(mass / np.float32(SMALLEST) + np.float32(1))
    return found


def log_share(mass: Float32Array, offsets: Int64Array) -> Float32Array:
    """The share of its query's whole mass that each candidate (e,) has, as a logarithm."""
    query = query_of_each(offsets)
    whole = np.maximum(np.bincount(query, mass, len(offsets) - 1), 1e-12).astype(np.float32)  # (q,)
    return log_mass(mass / whole[query])
