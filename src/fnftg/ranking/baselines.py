"""Baselines without a model: random order, degree of the candidate, and frequency of the candidate for the relation.

Degree and frequency use the same information as a model under the protocol: the visible edges, and for the true answer
its edges without the hidden ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int32Array, Int64Array, IntArray
from fnftg.kg.graph import Triples
from fnftg.ranking.metrics import KS, harmonic_numbers
from fnftg.ranking.queries import Filter, Queries


def random_values(others: Int64Array) -> Float64Array:
    """Return the expected metrics (…, 4) of an answer ranked at random among `others` (…) other candidates.

    As in the paper, MRR = (1 + 1/2 + … + 1/n) / n for n candidates.
    """
    places = others + 1
    sums = harmonic_numbers(int(places.max(initial=1)))
    return np.stack([sums[places] / places, *(np.minimum(k / places, 1.0) for k in KS)], axis=-1)


@dataclass(frozen=True)
class Tally:
    """Counts of (label, candidate) pairs; pairs that are not listed have the count 0."""

    keys: Int64Array  # (p,): label · n + row, ascending
    counts: Int64Array  # (p,)
    size: int  # n, the number of candidates

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
        """Return the number of candidates with a higher count than the true answer, and with the same count.

        Args:
            labels: label of each query, (q,).
            true: count of each true answer, (q,).
            offsets: offsets of each query's known answers, (q + 1,).
            known: rows of the known answers, which are left out.
        """
        base = int(self.counts.max(initial=0)) + 1
        ordered = np.sort(self.keys // self.size * base + self.counts)  # by label, then by count
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
    """Return the better and equal candidates of the queries (2m,), ranked by their number of visible edges."""
    edges = np.unique(context, axis=0).astype(np.int64)
    ends = filter.row_of[edges[:, [0, 2]]].ravel()
    tally = Tally.of(np.zeros_like(ends), ends, len(candidates))
    queries = Queries.of(triples, relations)
    true = tally.count(np.zeros(len(queries.answers), np.int64), filter.row_of[queries.answers])
    lost = _edges_of_pair(triples, edges) if hidden == "pair" else _is_among(triples, edges).astype(np.int64)
    lost = lost * (1 + (triples[:, 0] == triples[:, 2]))  # a self-loop counts twice in the degree
    return tally.standing(np.zeros_like(true), true - np.concatenate([lost, lost]), *filter(queries))


def frequency_counts(
    triples: Triples, context: Triples, filter: Filter, candidates: Int32Array, relations: int
) -> tuple[Int64Array, Int64Array]:
    """Return the same counts, ranked by how often a candidate is a visible tail (or head) of the query's relation."""
    edges = np.unique(context, axis=0)
    asked = Queries.of(edges, relations)
    tally = Tally.of(asked.labels.astype(np.int64), filter.row_of[asked.answers], len(candidates))
    queries = Queries.of(triples, relations)
    labels = queries.labels.astype(np.int64)
    true = tally.count(labels, filter.row_of[queries.answers])
    lost = np.concatenate(2 * [_is_among(triples, edges)])
    return tally.standing(labels, true - lost, *filter(queries))


def _edges_of_pair(triples: Triples, edges: Int64Array) -> Int64Array:
    """Return the number of edges between the two entities of each triple."""
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
