"""Ranks and nearest candidates, without a matrix of distances between all queries and candidates.

A candidate with distance NaN ranks after all others, and a true answer with distance NaN ranks after all candidates. So
NaN never counts as a hit, and a model that returns only NaN gets the worst ranks.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnftg.arrays import AnyArray, Float32Array, Int64Array, IntArray
from fnftg.kernels.l1 import rows_of_lanes
from fnftg.kernels.loops import LANES, NO_KEY, count_distances, fill_pairs, keep_nearest
from fnftg.kernels.threads import LEAST_WORK, in_parallel

Rows = AnyArray | Tensor
MEMORY = 1 << 28  # bytes of candidates in memory at a time


def count_ranks(
    queries: Rows, candidates: Rows, true_distances: Rows, memory: int = MEMORY
) -> tuple[Int64Array, Int64Array]:
    """Count the candidates that are nearer than each query's true answer, and those at the same distance: (q,) each.

    All candidates count, including the true answer. Subtract `count_known` for filtered ranks.
    """
    asked, found = _ready(queries, candidates)
    bounds = _bounds(true_distances, len(asked))  # (q,)
    better, equal = np.zeros(len(asked), np.int64), np.zeros(len(asked), np.int64)
    adding = Lock()

    def count(first: int, block: Float32Array) -> None:
        def some_candidates(start: int, stop: int) -> None:
            below, same = np.zeros_like(better), np.zeros_like(equal)
            count_distances(asked, block, bounds, below, same, start, stop)
            with adding:
                np.add(better, below, out=better)
                np.add(equal, same, out=equal)

        in_parallel(some_candidates, len(block), asked.size)

    _in_blocks(count, found, memory)
    better[np.isnan(bounds)] = len(found)
    return better, equal


def count_known(
    queries: Rows,
    candidates: Rows,
    true_distances: Rows,
    offsets: Int64Array,
    known: IntArray,
    memory: int = MEMORY,
) -> tuple[Int64Array, Int64Array]:
    """Count as `count_ranks` does, but only the known answers: known[offsets[i] : offsets[i + 1]] for query i."""
    bounds = _bounds(true_distances, len(queries))  # (q,)
    rows = np.repeat(np.arange(len(bounds)), np.diff(offsets))  # (pairs,)
    distances, bound = l1_pairs(queries, candidates, rows, known, memory), bounds[rows]
    better, equal = (distances < bound) | np.isnan(bound), distances == bound
    return np.bincount(rows[better], minlength=len(bounds)), np.bincount(rows[equal], minlength=len(bounds))


def l1_pairs(
    queries: Rows,
    candidates: Rows,
    query_rows: IntArray,
    candidate_rows: IntArray,
    memory: int = MEMORY,
) -> Float32Array:
    """Return ‖queries[query_rows[p]] - candidates[candidate_rows[p]]‖₁ as (pairs,).

    Distances are bit-identical to those of the other functions.
    """
    asked, found = _ready(queries, candidates)
    rows, others = _row_numbers(query_rows, len(asked)), _row_numbers(candidate_rows, len(found))
    if len(rows) != len(others):
        raise ValueError(f"There are {len(rows):,} query rows but {len(others):,} candidate rows.")
    distances = np.empty(len(rows), np.float32)

    def fill(block: Float32Array, own: Int64Array, other: Int64Array, result: Float32Array) -> None:
        in_parallel(
            lambda start, stop: fill_pairs(asked, block, own, other, result, start, stop), len(own), 4 * asked.shape[1]
        )

    if found.dtype != np.float32 or not found.flags.c_contiguous or found.shape[1] % LANES:
        step = _rows_within(memory, found)
        for first in range(0, len(rows), step):  # only the requested rows are converted
            part = slice(first, first + step)
            ready = rows_of_lanes(found[others[part]])
            fill(ready, rows[part], _row_numbers(np.arange(len(ready)), len(ready)), distances[part])
            _forget(found)
    elif _mapping(found) is None:
        fill(rows_of_lanes(found), rows, others, distances)
    else:  # reading one row of a mapped file loads up to megabytes around it, so the file is read part by part
        order = np.argsort(others, kind="stable")
        step = _rows_within(memory, found)
        bounds = np.searchsorted(others[order], np.arange(0, len(found) + step, step))
        for start, stop in itertools.pairwise(bounds.tolist()):
            part_of_file = order[start:stop]
            result = np.empty(stop - start, np.float32)
            own, other = (
                _row_numbers(numbers[part_of_file], size)
                for numbers, size in ((rows, len(asked)), (others, len(found)))
            )
            fill(rows_of_lanes(found), own, other, result)
            distances[part_of_file] = result
            _forget(found)
    return distances


def top_k(queries: Rows, candidates: Rows, k: int, memory: int = MEMORY) -> tuple[Float32Array, Int64Array]:
    """Return the distances and rows of the k nearest candidates of each query, (q, k) each.

    They are sorted by distance, then by row; NaN comes last. If there are fewer than k candidates, all are returned.
    """
    asked, found = _ready(queries, candidates)
    if k < 0:
        raise ValueError(f"k is {k}: it must not be negative.")
    if len(found) >= 1 << 31:
        raise ValueError(f"{len(found):,} candidates are too many: there must be less than 2³¹.")
    k = min(k, len(found))
    if k == 0 or len(asked) == 0:
        return np.empty((len(asked), k), np.float32), np.empty((len(asked), k), np.int64)
    work = asked.size * len(found)
    parts = max(1, min(torch.get_num_threads(), -(-work // LEAST_WORK), len(found)))
    heaps = np.full((parts, len(asked), k), NO_KEY, np.int64)  # one heap for each part of a block

    def keep(first: int, block: Float32Array) -> None:
        edges = np.arange(parts + 1) * len(block) // parts

        def some_parts(start: int, stop: int) -> None:
            for part in range(start, stop):
                keep_nearest(asked, block, heaps[part], first, edges[part], edges[part + 1])

        in_parallel(some_parts, parts, LEAST_WORK)

    _in_blocks(keep, found, memory)
    keys = np.sort(heaps.swapaxes(0, 1).reshape(len(asked), parts * k), axis=1)[:, :k]  # (q, k)
    return (keys >> 32).astype(np.int32).view(np.float32), keys & 0xFFFFFFFF


def _ready(queries: Rows, candidates: Rows) -> tuple[Float32Array, AnyArray]:
    """Return the queries as the compiled loops need them, and the candidates unchanged, as they are read in blocks."""
    asked, found = _array(queries), _array(candidates)
    if asked.ndim != 2 or found.ndim != 2 or asked.shape[1] != found.shape[1]:
        raise ValueError(
            f"L1 distances require (q, d) queries and (n, d) candidates, not {asked.shape} and {found.shape}."
        )
    return rows_of_lanes(asked), found


def _array(rows: Rows) -> AnyArray:
    if not isinstance(rows, Tensor):
        return rows
    return rows.detach().to("cpu", torch.promote_types(rows.dtype, torch.float32)).numpy()


def _bounds(true_distances: Rows, queries: int) -> Float32Array:
    bounds = np.array(_array(true_distances), np.float32)
    if bounds.shape != (queries,):
        raise ValueError(f"There must be one true distance for each of {queries:,} queries, not {bounds.shape}.")
    bounds.flags.writeable = False
    return bounds


def _row_numbers(rows: IntArray, size: int) -> Int64Array:
    """Return the rows as int64 after checking that all are below `size`, which the compiled loops do not check."""
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < size:
        raise IndexError(f"Rows {int(rows.min()):,} to {int(rows.max()):,} are out of range: there are {size:,} rows.")
    numbers = np.array(rows, np.int64)
    numbers.flags.writeable = False
    return numbers


def _in_blocks(visit: Callable[[int, Float32Array], None], candidates: AnyArray, memory: int) -> None:
    """Call visit(first row, block) on consecutive blocks of candidates of at most `memory` bytes."""
    step = _rows_within(memory, candidates)
    for first in range(0, len(candidates), step):
        block = candidates[first : first + step]
        visit(first, rows_of_lanes(block))
        _forget(block)


def _rows_within(memory: int, candidates: AnyArray) -> int:
    """Return the number of padded candidates that fit into `memory` bytes; at least one."""
    width: int = -(-candidates.shape[1] // LANES) * LANES
    return max(memory // (4 * max(width, 1)), 1)


def _forget(block: AnyArray) -> None:
    """Release the pages of a read-only memory map, which would otherwise exceed the memory limit."""
    pages = _mapping(block)
    if pages is None:
        return
    start = block.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first, last = (place // mmap.PAGESIZE * mmap.PAGESIZE for place in (start, start + block.nbytes))
    if first < last:
        pages.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping(block: AnyArray) -> mmap.mmap | None:
    """Return the read-only memory map of an array, or None if it has none or the system cannot release pages."""
    mapped: Any = block
    while isinstance(mapped, np.ndarray) and not isinstance(mapped, np.memmap):
        mapped = mapped.base
    if not isinstance(mapped, np.memmap) or mapped.mode != "r" or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    pages: mmap.mmap = getattr(mapped, "_mmap")  # noqa: B009 (numpy's stubs do not know it)
    return pages
