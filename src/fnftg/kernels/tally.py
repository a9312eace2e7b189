"""Sums of weights by query and candidate."""

from __future__ import annotations

import numba
import numpy as np

from fnftg.arrays import Float32Array, Int32Array, Int64Array
from fnftg.kernels.threads import in_parallel

COST = 20  # operations per weight


def tally(
    offsets: Int64Array, named: Int32Array, weights: Float32Array, powers: tuple[int, int], size: int, limit: int
) -> tuple[Int64Array, Int32Array, Float32Array, Float32Array]:
    """Sum two powers of the weights of each query's candidates, and return those with the largest sums.

    Args:
        offsets: (q + 1,); query i has the candidates named[offsets[i] : offsets[i + 1]].
        named: the candidates (e,), below `size`.
        weights: the weight of each (e,).
        powers: the two powers.
        size: number of possible candidates.
        limit: maximum number of candidates per query.

    Returns:
        Offsets (q + 1,), the candidates, and both sums of each. They are sorted by the product of the sums in
        descending order, then by candidate.
    """
    queries = len(offsets) - 1
    rows = np.empty((queries, limit), np.int32)
    sums = np.empty((2, queries, limit), np.float32)
    counts = np.empty(queries, np.int64)

    def some(start: int, stop: int) -> None:
        _tally(offsets, named, weights, powers[0], powers[1], size, rows, sums, counts, start, stop)

    in_parallel(some, queries, COST * (len(named) // max(queries, 1) + 1))
    there = np.arange(limit) < counts[:, None]
    return np.concatenate([[0], np.cumsum(counts)]), rows[there], sums[0][there], sums[1][there]


@numba.njit(nogil=True, cache=True)
def _tally(offsets, named, weights, first, second, size, rows, sums, counts, start, stop):  # type: ignore[no-untyped-def]
    place = np.full(size, -1, np.int64)  # of each candidate among those of the query
    limit = rows.shape[1]
    for query in range(start, stop):
        begin, end = offsets[query], offsets[query + 1]
        found = np.empty(end - begin, np.int64)
        near, nearer = np.zeros(end - begin), np.zeros(end - begin)
        count = 0
        for edge in range(begin, end):
            row = named[edge]
            if place[row] < 0:
                place[row], found[count] = count, row
                count += 1
            weight = np.float64(weights[edge])
            near[place[row]] += weight**first
            nearer[place[row]] += weight**second
        place[found[:count]] = -1
        by_row = np.argsort(found[:count])
        order = by_row[np.argsort((-near[:count] * nearer[:count])[by_row], kind="mergesort")][:limit]
        counts[query] = len(order)
        for i in range(len(order)):
            rows[query, i] = found[order[i]]
            sums[0, query, i], sums[1, query, i] = near[order[i]], nearer[order[i]]
