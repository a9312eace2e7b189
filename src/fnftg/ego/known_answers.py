"""`KnownAnswers`: which entities are true answers of a query, for filtering ranks and for sparing negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.errors import FnftgError
from fnftg.kernels.ranges import ranges
from fnftg.kg.graph import Triples


class AnswerLookup(Protocol):
    """Which entities are known answers of queries."""

    @property
    def entities(self) -> int: ...

    def __call__(self, centres: Int32Array, labels: Int32Array) -> tuple[Int64Array, Int32Array]:
        """The answers of each query, ragged: those of query i stand at offsets[i] to offsets[i + 1], ascending."""


@dataclass(frozen=True)
class KnownAnswers:
    """One sorted array of (centre, label, answer), each packed into an integer; a label R + r asks for heads of r."""

    packed: Int64Array  # (2 · triples,): distinct, ascending
    entities: int
    relations: int

    @classmethod
    def of(cls, triples: Triples, entities: int, relations: int) -> KnownAnswers:
        if entities * entities * 2 * relations >= 2**63:
            raise FnftgError(f"{entities:,} entities and {relations:,} relations are more than can be packed here.")
        heads, relation, tails = triples.astype(np.int64).T
        asked = np.concatenate([heads * 2 * relations + relation, tails * 2 * relations + relations + relation])
        return cls(np.unique(asked * entities + np.concatenate([tails, heads])), entities, relations)

    def __call__(self, centres: Int32Array, labels: Int32Array) -> tuple[Int64Array, Int32Array]:
        """The answers of each query, ragged: those of query i stand at offsets[i] to offsets[i + 1]."""
        first = (centres.astype(np.int64) * 2 * self.relations + labels) * self.entities  # (q,)
        starts, stops = np.searchsorted(self.packed, first), np.searchsorted(self.packed, first + self.entities)
        counts = stops - starts
        answers = self.packed[ranges(starts, counts)] - np.repeat(first, counts)
        return np.concatenate([[0], np.cumsum(counts)]), answers.astype(np.int32)

    def with_itself(
        self, centres: Int32Array, labels: Int32Array, where: BoolArray | None = None
    ) -> tuple[Int64Array, Int32Array]:
        """The same and, at the end of each query's, the entity that is asked about; of all queries, or of some (q,)."""
        offsets, answers = self(centres, labels)
        query = np.repeat(np.arange(len(centres)), np.diff(offsets))
        where = np.ones(len(centres), bool) if where is None else where.copy()
        where[query[answers == centres[query]]] = False  # there already
        more = np.concatenate([[0], np.cumsum(where)])
        return offsets + more, np.insert(answers, offsets[1:][where], centres[where])

    def among(self, centres: Int32Array, labels: Int32Array, columns: Int32Array) -> BoolArray:
        """Whether the entity of each column (n,) is an answer of each query (q,): (q, n)."""
        distinct, of_column = np.unique(columns, return_inverse=True)
        offsets, answers = self(centres, labels)
        place = np.searchsorted(distinct, answers)
        found = distinct[np.minimum(place, len(distinct) - 1)] == answers if len(distinct) else place < 0
        table = np.zeros((len(centres), len(distinct)), bool)
        table[np.repeat(np.arange(len(centres)), np.diff(offsets))[found], place[found]] = True
        return table[:, of_column]

    def extended(self, triples: Triples, entities: int, relations: int) -> KnownAnswers:
        """With more triples, entities and relations: equal to `of` all triples, but sorts only the new ones."""
        new = KnownAnswers.of(triples, entities, relations).packed  # checks that all can be packed
        asked, answers = np.divmod(self.packed, self.entities)
        centres, labels = np.divmod(asked, 2 * self.relations)
        labels += (labels >= self.relations) * (relations - self.relations)  # inverses move behind the new relations
        old = (centres * 2 * relations + labels) * entities + answers  # in the same order
        new = new[_absent(old, new)]
        return KnownAnswers(np.insert(old, np.searchsorted(old, new), new), entities, relations)


@dataclass(frozen=True)
class ExtendedAnswers:
    """Known answers and those of a few more triples, of a graph with more entities and relations: nothing is copied."""

    base: KnownAnswers
    added: KnownAnswers  # with the numbers of the extended graph

    @classmethod
    def of(cls, base: KnownAnswers, triples: Triples, entities: int, relations: int) -> ExtendedAnswers:
        return cls(base, KnownAnswers.of(triples, entities, relations))

    @property
    def entities(self) -> int:
        return self.added.entities

    def __call__(self, centres: Int32Array, labels: Int32Array) -> tuple[Int64Array, Int32Array]:
        """As of the extended graph: the answers of query i stand at offsets[i] to offsets[i + 1], ascending."""
        new = self.added.relations - self.base.relations
        old = labels - (labels >= self.added.relations) * new  # inverses stand behind the new relations
        inside = np.flatnonzero((centres < self.base.entities) & (labels % self.added.relations < self.base.relations))
        keys = []
        for queries, (offsets, found) in (
            (inside, self.base(centres[inside], old[inside])),
            (np.arange(len(centres)), self.added(centres, labels)),
        ):
            keys.append(np.repeat(queries, np.diff(offsets)) * self.entities + found)
        both = np.unique(np.concatenate(keys))
        offsets = np.searchsorted(both, np.arange(len(centres) + 1) * self.entities)
        return offsets, (both % self.entities).astype(np.int32)


def new_triples(known: KnownAnswers, triples: Triples) -> Triples:
    """Those of the triples (n, 3) that are not known, each once."""
    triples = np.unique(triples.reshape(-1, 3), axis=0)
    heads, relations, tails = triples.astype(np.int64).T
    new = np.maximum(heads, tails) >= known.entities
    new |= relations >= known.relations
    packed = (heads * 2 * known.relations + relations) * known.entities + tails
    return np.asarray(triples[new | _absent(known.packed, packed)])


def _absent(old: Int64Array, new: Int64Array) -> BoolArray:
    """Whether each of the new numbers is missing among the sorted old ones."""
    if not len(old):
        return np.ones(len(new), bool)
    place = np.minimum(np.searchsorted(old, new), len(old) - 1)
    return np.asarray(old[place] != new)
