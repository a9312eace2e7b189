"""Ranks and nearest candidates, without a matrix of distances between all queries and candidates.

A candidate with distance NaN ranks after all others, and a true answer with distance NaN ranks after all candidates. So
NaN never counts as a hit, and a model that returns only NaN gets the worst ranks.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import torch

from fnftg.arrays import Float32Array, Int64Array, IntArray
from fnftg.kernels.candidate_blocks import MEMORY, Rows, array, in_blocks, ready, values_of_pairs
from fnftg.kernels.loops import NO_KEY, count_distances, fill_pairs, keep_nearest
from fnftg.kernels.threads import LEAST_WORK, in_parallel


def count_ranks(
    queries: Rows, candidates: Rows, true_distances: Rows, memory: int = MEMORY
) -> tuple[Int64Array, Int64Array]:
    """Count the candidates that are nearer than each query's true answer, and those at the same distance: (q,) each.

    All candidates count, including the true answer. Subtract `count_known` for filtered ranks.
    """
    asked, found = ready(queries, candidates)
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

    in_blocks(count, found, memory)
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
    return values_of_pairs(fill_pairs, queries, candidates, query_rows, candidate_rows, memory)


def top_k(queries: Rows, candidates: Rows, k: int, memory: int = MEMORY) -> tuple[Float32Array, Int64Array]:
    """Return the distances and rows of the k nearest candidates of each query, (q, k) each.

    They are sorted by distance, then by row; NaN comes last. If there are fewer than k candidates, all are returned.
    """
    asked, found = ready(queries, candidates)
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

    in_blocks(keep, found, memory)
    keys = np.sort(heaps.swapaxes(0, 1).reshape(len(asked), parts * k), axis=1)[:, :k]  # (q, k)
    return (keys >> 32).astype(np.int32).view(np.float32), keys & 0xFFFFFFFF


def _bounds(true_distances: Rows, queries: int) -> Float32Array:
    bounds = np.array(array(true_distances), np.float32)
    if bounds.shape != (queries,):
        raise ValueError(f"There must be one true distance for each of {queries:,} queries, not {bounds.shape}.")
    bounds.flags.writeable = False
    return bounds
