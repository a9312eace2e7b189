"""Common neighbours of two entities, by the resource-allocation index: the sum of 1 / degree of each.

A common neighbour with few edges says more than one with many. The degree of a neighbour is the number of its distinct
neighbours, so a second edge between the same two entities changes nothing.
"""

from __future__ import annotations

import numba
import numpy as np

from fnftg.arrays import Float32Array, Int32Array, Int64Array
from fnftg.ego.neighbours import Neighbours
from fnftg.kernels.threads import in_parallel

COST = 20  # operations per edge, an estimate for the choice of threads


def resource_allocation(
    around: Neighbours, centres: Int32Array, offsets: Int64Array, neighbours: Int32Array, limit: int
) -> tuple[Int64Array, Int32Array, Float32Array]:
    """Return up to `limit` entities per centre with common neighbours, and their index, greatest first, ties by row.

    Args:
        around: rows with all edges of the given neighbours.
        centres: (q,).
        offsets: (q + 1,): centre i has the neighbours neighbours[offsets[i] : offsets[i + 1]].
        neighbours: distinct, ascending, without the centre.
        limit: maximum number of entities per centre.

    Returns:
        Offsets (q + 1,), entities and index of each.
    """
    found = np.empty((len(centres), limit), np.int32)
    masses = np.empty((len(centres), limit), np.float32)
    counts = np.empty(len(centres), np.int64)

    def some(start: int, stop: int) -> None:
        add_shares(
            around.offsets, around.entities, centres, offsets, neighbours, found, masses, counts, start, stop
        )  # fmt: skip

    in_parallel(some, len(centres), COST * (1 + len(neighbours) // max(len(centres), 1)) ** 2)
    there = np.arange(limit) < counts[:, None]
    return np.concatenate([[0], np.cumsum(counts)]), found[there], masses[there]


@numba.njit(nogil=True, cache=True)
def add_shares(  # type: ignore[no-untyped-def]
    row_offsets, row_entities, centres, offsets, neighbours, found, masses, counts, start, stop
):  # fmt: skip
    size = len(row_offsets) - 1
    sums, touched = np.zeros(size, np.float64), np.empty(size, np.int32)
    for query in range(start, stop):
        count = 0
        for place in range(offsets[query], offsets[query + 1]):
            between = neighbours[place]
            degree, previous = 0, -1
            for edge in range(row_offsets[between], row_offsets[between + 1]):
                degree += row_entities[edge] != previous
                previous = row_entities[edge]
            previous = -1
            for edge in range(row_offsets[between], row_offsets[between + 1]):
                other = row_entities[edge]
                if other != previous and other != centres[query] and other != between:
                    if sums[other] == 0:
                        touched[count] = other
                        count += 1
                    sums[other] += 1 / degree
                previous = other
        rows = np.sort(touched[:count])
        order = np.argsort(-sums[rows], kind="mergesort")[: found.shape[1]]  # ties by row
        counts[query] = len(order)
        for place in range(len(order)):
            found[query, place], masses[query, place] = rows[order[place]], sums[rows[order[place]]]
        sums[rows] = 0
