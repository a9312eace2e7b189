"""`KnownAnswers`: the true answers of queries, for filtered ranks and for avoiding false negatives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from fnftg.array_files import is_ascending, load_array
from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.errors import DamagedError, FnftgError
from fnftg.kernels.ranges import find_ranges, ranges
from fnftg.kg.graph import Triples


class AnswerLookup(Protocol):
    """The known answers of queries."""

    @property
    def entities(self) -> int: ...

    def __call__(
        self, centres: Int32Array, labels: Int32Array, most: int | None = None
    ) -> tuple[Int64Array, Int32Array]:
        """Return ragged answers: those of query i are answers[offsets[i] : offsets[i + 1]], in ascending order.

        A query with more than `most` answers has none.
        """

    def counts(self, centres: Int32Array, labels: Int32Array) -> Int64Array:
        """Return the number of answers of each query, (q,)."""


@dataclass(frozen=True)
class KnownAnswers:
    """A sorted array of (centre, label, answer), each packed into an integer. A label R + r asks for heads of r."""

    packed: Int64Array  # (2 · triples,): distinct, ascending
    entities: int
    relations: int

    @classmethod
    def of(cls, triples: Triples, entities: int, relations: int) -> KnownAnswers:
        if entities * entities * 2 * relations >= 2**63:
            raise FnftgError(f"{entities:,} entities and {relations:,} relations are too many: use a smaller graph.")
        heads, relation, tails = triples.astype(np.int64).T
        asked = np.concatenate([heads * 2 * relations + relation, tails * 2 * relations + relations + relation])
        return cls(np.unique(asked * entities + np.concatenate([tails, heads])), entities, relations)

    @classmethod
    def open(cls, file: Path, entities: int, relations: int) -> KnownAnswers:
        """Map the array `packed` of a graph with this number of entities and relations."""
        packed = load_array(file, np.int64, bounds=(0, 2 * relations * entities**2), mode="c")
        if not is_ascending(packed, strictly=True):
            raise DamagedError(f"{file} is damaged: its values are not in ascending order.")
        return cls(packed, entities, relations)

    def __call__(
        self, centres: Int32Array, labels: Int32Array, most: int | None = None
    ) -> tuple[Int64Array, Int32Array]:
        """Return ragged answers, as `AnswerLookup` defines them."""
        first, starts, counts = self._places(centres, labels)
        if most is not None:
            counts[counts > most] = 0
        answers = self.packed[ranges(starts, counts)] - np.repeat(first, counts)
        return np.concatenate([[0], np.cumsum(counts)]), answers.astype(np.int32)

    def counts(self, centres: Int32Array, labels: Int32Array) -> Int64Array:
        return self._places(centres, labels)[2]

    def _places(self, centres: Int32Array, labels: Int32Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the least packed value of each query, where its answers start, and their number, (q,) each."""
        first = (centres.astype(np.int64) * 2 * self.relations + labels) * self.entities
        return first, *find_ranges(self.packed, first, self.entities)

    def with_itself(
        self, centres: Int32Array, labels: Int32Array, where: BoolArray | None = None
    ) -> tuple[Int64Array, Int32Array]:
        """Return the answers with the query's own entity appended, for all queries or those selected by a mask (q,)."""
        offsets, answers = self(centres, labels)
        query = np.repeat(np.arange(len(centres)), np.diff(offsets))
        where = np.ones(len(centres), bool) if where is None else where.copy()
        where[query[answers == centres[query]]] = False  # already an answer
        more = np.concatenate([[0], np.cumsum(where)])
        return offsets + more, np.insert(answers, offsets[1:][where], centres[where])

    def among(self, centres: Int32Array, labels: Int32Array, columns: Int32Array) -> BoolArray:
        """Return whether each of the entities `columns` (n,) is an answer of each query (q,): (q, n)."""
        distinct, of_column = np.unique(columns, return_inverse=True)
        offsets, answers = self(centres, labels)
        place = np.searchsorted(distinct, answers)
        found = distinct[np.minimum(place, len(distinct) - 1)] == answers if len(distinct) else place < 0
        table = np.zeros((len(centres), len(distinct)), bool)
        table[np.repeat(np.arange(len(centres)), np.diff(offsets))[found], place[found]] = True
        return table[:, of_column]

    def extended(self, triples: Triples, entities: int, relations: int) -> KnownAnswers:
        """Return the answers with more triples, entities and relations. Only the new triples are sorted."""
        new = KnownAnswers.of(triples, entities, relations).packed  # checks that all can be packed
        asked, answers = np.divmod(self.packed, self.entities)
        centres, labels = np.divmod(asked, 2 * self.relations)
        labels += (labels >= self.relations) * (relations - self.relations)  # inverses come after the new relations
        old = (centres * 2 * relations + labels) * entities + answers  # in the same order
        new = new[_absent(old, new)]
        return KnownAnswers(np.insert(old, np.searchsorted(old, new), new), entities, relations)


@dataclass(frozen=True)
class ExtendedAnswers:
    """Known answers of a graph and those of additional triples, entities and relations. Nothing is copied."""

    base: KnownAnswers
    added: KnownAnswers  # those that the base lacks, in rows of the extended graph

    @classmethod
    def of(cls, base: KnownAnswers, triples: Triples, entities: int, relations: int) -> ExtendedAnswers:
        return cls(base, KnownAnswers.of(new_triples(base, triples), entities, relations))

    @property
    def entities(self) -> int:
        return self.added.entities

    def __call__(
        self, centres: Int32Array, labels: Int32Array, most: int | None = None
    ) -> tuple[Int64Array, Int32Array]:
        """Return ragged answers in the extended graph, as `AnswerLookup` defines them."""
        if most is not None:
            few = np.flatnonzero(self.counts(centres, labels) <= most)
            counts = np.zeros(len(centres), np.int64)
            offsets, answers = self(centres[few], labels[few])
            counts[few] = np.diff(offsets)
            return np.concatenate([[0], np.cumsum(counts)]), answers
        inside, old = self._inside(centres, labels)
        keys = []
        for queries, (offsets, found) in (
            (inside, self.base(centres[inside], old)),
            (np.arange(len(centres)), self.added(centres, labels)),
        ):
            keys.append(np.repeat(queries, np.diff(offsets)) * self.entities + found)
        both = np.sort(np.concatenate(keys))
        offsets = np.searchsorted(both, np.arange(len(centres) + 1) * self.entities)
        return offsets, (both % self.entities).astype(np.int32)

    def counts(self, centres: Int32Array, labels: Int32Array) -> Int64Array:
        inside, old = self._inside(centres, labels)
        counts = self.added.counts(centres, labels)
        counts[inside] += self.base.counts(centres[inside], old)
        return counts

    def _inside(self, centres: Int32Array, labels: Int32Array) -> tuple[Int64Array, Int32Array]:
        """Return the queries whose centre and relation are in the base graph, and their labels there."""
        known = (centres < self.base.entities) & (labels % self.added.relations < self.base.relations)
        inside = np.flatnonzero(known)
        new = self.added.relations - self.base.relations
        return inside, (labels - (labels >= self.added.relations) * new)[inside]  # inverses come after new relations


def new_triples(known: KnownAnswers, triples: Triples) -> Triples:
    """Return the distinct triples (n, 3) that are not known."""
    triples = np.unique(triples.reshape(-1, 3), axis=0)
    heads, relations, tails = triples.astype(np.int64).T
    new = np.maximum(heads, tails) >= known.entities
    new |= relations >= known.relations
    packed = (heads * 2 * known.relations + relations) * known.entities + tails
    return np.asarray(triples[new | _absent(known.packed, packed)])


def _absent(old: Int64Array, new: Int64Array) -> BoolArray:
    """Return whether each new value is missing from the sorted old values."""
    if not len(old):
        return np.ones(len(new), bool)
    place = np.minimum(np.searchsorted(old, new), len(old) - 1)
    return np.asarray(old[place] != new)
