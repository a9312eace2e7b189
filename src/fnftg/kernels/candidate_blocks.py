"""Candidates in blocks that fit into memory; they may be in a mapped file, whose pages are released again."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnftg.arrays import AnyArray, Float32Array, Int64Array, IntArray
from fnftg.kernels.l1 import rows_of_lanes
from fnftg.kernels.loops import LANES
from fnftg.kernels.threads import in_parallel

Rows = AnyArray | Tensor
MEMORY = 1 << 28  # bytes of candidates in memory at a time


def ready(queries: Rows, candidates: Rows) -> tuple[Float32Array, AnyArray]:
    """Return the queries as the compiled loops need them, and the candidates unchanged, as they are read in blocks."""
    asked, found = array(queries), array(candidates)
    if asked.ndim != 2 or found.ndim != 2 or asked.shape[1] != found.shape[1]:
        raise ValueError(f"Pairs require (q, d) queries and (n, d) candidates, not {asked.shape} and {found.shape}.")
    return rows_of_lanes(asked), found


def values_of_pairs(
    fill_pairs: Callable[..., None],
    queries: Rows,
    candidates: Rows,
    query_rows: IntArray,
    candidate_rows: IntArray,
    memory: int,
) -> Float32Array:
    """Return the value of each pair of queries[query_rows[p]] and candidates[candidate_rows[p]], (pairs,).

    fill_pairs(queries, candidates, query rows, candidate rows, values, start, stop) fills in the values of some pairs.
    """
    asked, found = ready(queries, candidates)
    rows, others = row_numbers(query_rows, len(asked)), row_numbers(candidate_rows, len(found))
    if len(rows) != len(others):
        raise ValueError(f"There are {len(rows):,} query rows but {len(others):,} candidate rows.")
    values = np.empty(len(rows), np.float32)

    def fill(block: Float32Array, own: Int64Array, other: Int64Array, result: Float32Array) -> None:
        in_parallel(
            lambda start, stop: fill_pairs(asked, block, own, other, result, start, stop), len(own), 4 * asked.shape[1]
        )

    if found.dtype != np.float32 or not found.flags.c_contiguous or found.shape[1] % LANES:
        step = rows_within(memory, found)
        for first in range(0, len(rows), step):  # only the requested rows are converted
            part = slice(first, first + step)
            some = rows_of_lanes(found[others[part]])
            fill(some, rows[part], row_numbers(np.arange(len(some)), len(some)), values[part])
            _forget(found)
    elif _mapping(found) is None:
        fill(rows_of_lanes(found), rows, others, values)
    else:  # reading one row of a mapped file loads up to megabytes around it, so the file is read part by part
        order = np.argsort(others, kind="stable")
        step = rows_within(memory, found)
        bounds = np.searchsorted(others[order], np.arange(0, len(found) + step, step))
        for start, stop in itertools.pairwise(bounds.tolist()):
            part_of_file = order[start:stop]
            result = np.empty(stop - start, np.float32)
            own, other = (
                row_numbers(numbers[part_of_file], size) for numbers, size in ((rows, len(asked)), (others, len(found)))
            )
            fill(rows_of_lanes(found), own, other, result)
            values[part_of_file] = result
            _forget(found)
    return values


def array(rows: Rows) -> AnyArray:
    if not isinstance(rows, Tensor):
        return rows
    return rows.detach().to("cpu", torch.promote_types(rows.dtype, torch.float32)).numpy()


def row_numbers(rows: IntArray, size: int) -> Int64Array:
    """Return the rows as int64 after checking that all are below `size`, which the compiled loops do not check."""
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < size:
        raise IndexError(f"Rows {int(rows.min()):,} to {int(rows.max()):,} are out of range: there are {size:,} rows.")
    numbers = np.array(rows, np.int64)
    numbers.flags.writeable = False
    return numbers


def in_blocks(visit: Callable[[int, Float32Array], None], candidates: AnyArray, memory: int) -> None:
    """Call visit(first row, block) on consecutive blocks of candidates of at most `memory` bytes."""
    step = rows_within(memory, candidates)
    for first in range(0, len(candidates), step):
        block = candidates[first : first + step]
        visit(first, rows_of_lanes(block))
        _forget(block)


def rows_within(memory: int, candidates: AnyArray) -> int:
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
