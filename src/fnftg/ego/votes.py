"""Votes: what the lookalikes of an entity answer to the same question.

What entities like h have for tails of r speaks for the same tails of h, also where h itself is new and has no edges.
Votes for an answer never rest on an edge of the asked entity, so nothing that is hidden from its ego-graph can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from fnftg.arrays import Float32Array, Int32Array, Int64Array
from fnftg.kernels.tally import tally
from fnftg.text.nearest_texts import NO_NEIGHBOUR, TextKNN

COLUMNS = ("entities", "near", "nearer", "kinship", "mentioned", "alike", "usual")
More = Literal["kinship", "mentioned", "alike", "usual"]  # what other things than votes say
NEAR, NEARER = 4, 16  # powers of the similarity: a lookalike's weight, among many and among the nearest


class Answers(Protocol):
    """Which entities are known answers of queries, as `KnownAnswers` says it."""

    @property
    def entities(self) -> int: ...

    def __call__(self, centres: Int32Array, labels: Int32Array) -> tuple[Int64Array, Int32Array]: ...


@dataclass(frozen=True)
class Votes:
    """What the lookalikes of asked entities answer: to query i at offsets[i] to offsets[i + 1], most votes first."""

    offsets: Int64Array  # (q + 1,)
    entities: Int32Array  # (e,)
    near: Float32Array  # (e,): the sum of similarity⁴ over the lookalikes that have this answer
    nearer: Float32Array  # (e,): of similarity¹⁶, which few of them count for
    kinship: Float32Array  # (e,): of the edges that lead to it already (see parallels.py)
    mentioned: Float32Array  # (e,): how much it says that one of the two texts names the other entity (see naming.py)
    alike: Float32Array  # (e,): how much it looks like other answers of the asked entity (see precedents.py)
    usual: Float32Array  # (e,): how often others answer with it

    @classmethod
    def of(cls, lookalikes: TextKNN, answers: Answers, centres: Int32Array, labels: Int32Array, limit: int) -> Votes:
        """Of the queries (centre, label, ·), (q,), by what is known of others; up to `limit` answers for each."""
        rows, cosines = lookalikes(centres)  # (q, k) each
        query, place = np.nonzero(rows != NO_NEIGHBOUR)
        offsets, entities = answers(rows[query, place], labels[query])
        counts = np.diff(offsets)
        query, weight = np.repeat(query, counts), np.repeat(np.maximum(cosines[query, place], 0), counts)
        other = entities != centres[query]
        offsets = np.searchsorted(query[other], np.arange(len(centres) + 1))
        found = tally(offsets, entities[other], weight[other], (NEAR, NEARER), answers.entities, limit)
        return cls(*found, *4 * [np.zeros_like(found[2])])

    @classmethod
    def none(cls, queries: int) -> Votes:
        nothing = np.zeros(0, np.float32)
        return cls(np.zeros(queries + 1, np.int64), np.zeros(0, np.int32), *6 * [nothing])

    def beside(self, column: More, offsets: Int64Array, entities: Int32Array, mass: Float32Array) -> Votes:
        """With what else speaks for some entities, ragged like the votes; those without votes are last."""
        size = int(max(self.entities.max(initial=0), entities.max(initial=0))) + 1
        query, other_query = self.queries, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        voted, others = query * size + self.entities, other_query * size + entities
        _, of_voted, of_others = np.intersect1d(voted, others, assume_unique=True, return_indices=True)
        more = np.setdiff1d(np.arange(len(others)), of_others)
        query = np.concatenate([query, other_query[more]])
        order = np.argsort(query, kind="stable")
        columns = {name: np.pad(getattr(self, name), (0, len(more))) for name in COLUMNS}
        columns["entities"][len(voted) :] = entities[more]
        columns[column][len(voted) :] = mass[more]
        columns[column][of_voted] = mass[of_others]
        starts = np.searchsorted(query[order], np.arange(len(offsets)))
        return Votes(starts, *(columns[name][order] for name in COLUMNS))

    def without(self, *columns: str) -> Votes:
        """As if nothing stood in some of the columns."""
        nothing: dict[str, Any] = {column: np.zeros_like(self.near) for column in columns}
        return replace(self, **nothing)

    @property
    def queries(self) -> Int64Array:
        """(e,)"""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @classmethod
    def joined(cls, parts: Sequence[Votes]) -> Votes:
        """Of the queries of several parts, one after the other."""
        starts = np.cumsum([0, *(len(part.entities) for part in parts)])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        return cls(
            np.concatenate([*offsets, starts[-1:]]),
            *(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS),
        )
