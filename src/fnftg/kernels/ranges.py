"""Ranges of integers without a Python loop."""

from __future__ import annotations

import numba
import numpy as np

from fnftg.arrays import Int64Array
from fnftg.kernels.threads import in_parallel

COST = 200  # operations to find a value


def ranges(starts: Int64Array, counts: Int64Array) -> Int64Array:
    """Return the concatenated ranges starts[i], …, starts[i] + counts[i] - 1."""
    ends = np.cumsum(counts)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts))


def find_ranges(ascending: Int64Array, first: Int64Array, span: int) -> tuple[Int64Array, Int64Array]:
    """Return where the values from first[i] to first[i] + span - 1 start in an ascending array, and their number."""
    starts, counts = np.empty(len(first), np.int64), np.empty(len(first), np.int64)
    plain = ascending.view(np.ndarray)  # one type for arrays in memory and memory maps

    def some(start: int, stop: int) -> None:
        _find_ranges(plain, first, span, starts, counts, start, stop)

    in_parallel(some, len(first), COST)
    return starts, counts


@numba.njit(nogil=True, cache=True)
def _find_ranges(ascending, first, span, starts, counts, start, stop):  # type: ignore[no-untyped-def]
    size = len(ascending)
    for i in range(start, stop):
        low = _lower_bound(ascending, first[i], 0, size)
        step = 1
        while low + step < size and ascending[low + step] < first[i] + span:
            step *= 2
        starts[i] = low
        counts[i] = _lower_bound(ascending, first[i] + span, low + step // 2, min(low + step, size)) - low


@numba.njit(nogil=True, cache=True)
def _lower_bound(ascending, value, low, high):  # type: ignore[no-untyped-def]
    """Return the first place in [low, high] whose value is not below `value`."""
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
