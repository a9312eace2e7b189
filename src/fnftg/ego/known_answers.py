"""`KnownAnswers`: which entities are true answers of a query, for filtering ranks and for sparing negatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.errors import FnftgError
from fnftg.kernels.ranges import ranges
from fnftg.kg.graph import Triples


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
