"""What needs no model: chance, the degree of a candidate, and how often it is the answer of the relation.

A figure means little without these beside it. Degree and frequency see exactly what a model sees under the protocol:
the visible edges, and for the true answer its edges without those that are hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int32Array, Int64Array, IntArray
from fnftg.kg.graph import Triples
from fnftg.ranking.metrics import KS, harmonic_numbers
from fnftg.ranking.queries import Filter, Queries


def random_values(others: Int64Array) -> Float64Array:
    """The expected share in each metric of an answer that takes each place among itself and `others` (…) candidates
    with the same chance, as in the paper: MRR = (1 + 1/2 + … + 1/n) / n → (…, 4)."""
    places = others + 1
    sums = harmonic_numbers(int(places.max(initial=1)))
    return np.stack([sums[places] / places, *(np.minimum(k / places, 1.0) for k in KS)], axis=-1)


@dataclass(frozen=True)
class Tally:
    """How often each (label, candidate) was counted; what is not listed was never."""

    keys: Int64Array  # (p,): label · n + row, ascending
    counts: Int64Array  # (p,)
    size: int  # n candidates

    @classmethod
    def of(cls, labels: Int64Array, rows: Int64Array, size: int) -> Tally:
        keys, counts = np.unique(labels[rows >= 0] * size + rows[rows >= 0], return_counts=True)
        return cls(keys, counts, size)

    def count(self, labels: Int64Array, rows: Int64Array) -> Int64Array:
        wanted = labels * self.size + rows
        place = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
        return np.where(self.keys[place] == wanted, self.counts[place], 0) if len(self.keys) else 0 * wanted

    def standing(
        self, labels: Int64Array, true: Int64Array, offsets: Int64Array, known: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """How many candidates other than known answers were counted more often than the true one, how many as often."""
        base = int(self.counts.max(initial=0)) + 1
        ordered = np.sort(self.keys // self.size * base + self.counts)  # of each label, ascending in the counts
        begin, end = np.searchsorted(ordered, labels * base), np.searchsorted(ordered, (labels + 1) * base)
        least, most = (np.searchsorted(ordered, labels * base + true, side) for side in ("left", "right"))
        above, same = end - most, np.where(true == 0, self.size - (end - begin), most - least)
        query = np.repeat(np.arange(len(labels)), np.diff(offsets))
        counts = self.count(labels[query], known)
        return (
            above - np.bincount(query[counts > true[query]], minlength=len(labels)),
            same - np.bincount(query[counts == true[query]], minlength=len(labels)),
        )


def degree_counts(
    triples: Triples, context: Triples, filter: Filter, candidates: Int32Array, hidden: str, relations: int
) -> tuple[Int64Array, Int64Array]:
    """Better and equal candidates of the queries (2m,) when candidates are ranked by their number of visible edges."""
    edges = np.unique(context, axis=0).astype(np.int64)
    ends = filter.row_of[edges[:, [0, 2]]].ravel()
    tally = Tally.of(np.zeros_like(ends), ends, len(candidates))
    queries = Queries.of(triples, relations)
    true = tally.count(np.zeros(len(queries.answers), np.int64), filter.row_of[queries.answers])
    lost = _edges_of_pair(triples, edges) if hidden == "pair" else _is_among(triples, edges).astype(np.int64)
    lost = lost * (1 + (triples[:, 0] == triples[:, 2]))  # a self-loop ends twice at its entity
    return tally.standing(np.zeros_like(true), true - np.concatenate([lost, lost]), *filter(queries))


def frequency_counts(
    triples: Triples, context: Triples, filter: Filter, candidates: Int32Array, relations: int
) -> tuple[Int64Array, Int64Array]:
    """The same when candidates are ranked by how often they are a visible tail, or head, of the relation asked for."""
    edges = np.unique(context, axis=0)
    asked = Queries.of(edges, relations)
    tally = Tally.of(asked.labels.astype(np.int64), filter.row_of[asked.answers], len(candidates))
    queries = Queries.of(triples, relations)
    labels = queries.labels.astype(np.int64)
    true = tally.count(labels, filter.row_of[queries.answers])
    lost = np.concatenate(2 * [_is_among(triples, edges)])
    return tally.standing(labels, true - lost, *filter(queries))


def _edges_of_pair(triples: Triples, edges: Int64Array) -> Int64Array:
    """How many of the edges run between the two entities of each triple."""
    most = int(max(edges.max(initial=0), triples.max(initial=0))) + 1
    pairs, counts = np.unique(_pairs(edges, most), return_counts=True)
    wanted = _pairs(triples.astype(np.int64), most)
    place = np.minimum(np.searchsorted(pairs, wanted), max(len(pairs) - 1, 0))
    return np.where(pairs[place] == wanted, counts[place], 0) if len(pairs) else 0 * wanted


def _pairs(triples: Int64Array, base: int) -> Int64Array:
    low, high = triples[:, [0, 2]].min(axis=1), triples[:, [0, 2]].max(axis=1)
    return np.asarray(low * base + high)


def _is_among(triples: Triples, edges: IntArray) -> BoolArray:
    kinds = [("", np.int64)] * 3
    rows, others = (np.ascontiguousarray(part, np.int64).view(kinds).ravel() for part in (triples, edges))
    return np.isin(rows, others)
