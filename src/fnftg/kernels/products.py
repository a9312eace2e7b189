"""Ranks and best candidates by inner product, without a matrix of products between all queries and candidates.

The score of a pair is its inner product, summed in double precision in a fixed order and rounded to single precision.
Most scores are not computed: a matrix product in single precision estimates them block by block, and the error of an
estimate has a bound. Only where an estimate is too close to the score that it is compared with is the score computed.
So all results are those of the scores, and do not depend on blocks and threads.

A candidate with the score NaN ranks after all others, and a true answer with the score NaN ranks after all candidates.
"""

from __future__ import annotations

import numpy as np
import torch

from fnftg.arrays import Float32Array, Float64Array, Int64Array, IntArray
from fnftg.kernels.candidate_blocks import MEMORY, Rows, in_blocks, ready, values_of_pairs
from fnftg.kernels.loops import NO_KEY, count_estimates, count_products, fill_norms, fill_pair_products, keep_greatest
from fnftg.kernels.threads import LEAST_WORK, in_parallel

QUERIES, CANDIDATES = 512, 1024  # rows of a block of estimates, which stays in the cache
FEW = 4  # with fewer queries, computing the scores is as fast as reading the candidates
ROUNDING = 2.0**-24  # largest relative error of a step in single precision
SMALLEST = 2.0**-125  # of normal numbers, times two; smaller ones may be rounded to 0


def product_pairs(
    queries: Rows, candidates: Rows, query_rows: IntArray, candidate_rows: IntArray, memory: int = MEMORY
) -> Float32Array:
    """Return the scores of the pairs of queries[query_rows[p]] and candidates[candidate_rows[p]], (pairs,)."""
    found = values_of_pairs(fill_pair_products, queries, candidates, query_rows, candidate_rows, memory)
    return found + np.float32(0)  # no -0.0


def count_greater(
    queries: Rows, candidates: Rows, true_scores: Float32Array, memory: int = MEMORY
) -> tuple[Int64Array, Int64Array]:
    """Count the candidates with a greater score than each query's true answer, and with the same score: (q,) each.

    All candidates count, including the true answer. Subtract `count_known_greater` for filtered ranks.
    """
    asked, found = ready(queries, candidates)
    bounds = np.ascontiguousarray(true_scores, np.float32)
    greater, equal = np.zeros(len(asked), np.int64), np.zeros(len(asked), np.int64)
    estimates = Estimates(asked)
    with np.errstate(over="ignore"):
        above, below = (np.nextafter(bounds, np.float32(side)).astype(np.float64) for side in (np.inf, -np.inf))

    def count(_: int, block: Float32Array) -> None:
        for first in range(0, len(block), CANDIDATES):
            part = block[first : first + CANDIDATES]
            errors = estimates.errors(part)
            with np.errstate(invalid="ignore", over="ignore"):  # ∞ - ∞ is NaN, which leaves all in doubt
                low = np.nextafter((below - errors).astype(np.float32), np.float32(-np.inf))
                high = np.nextafter((above + errors).astype(np.float32), np.float32(np.inf))
            for start in range(0, len(asked), QUERIES):
                some = slice(start, min(start + QUERIES, len(asked)))
                sides = bounds[some], low[some], high[some]
                _count(estimates.of(some, part), asked[some], part, *sides, greater[some], equal[some])

    in_blocks(count, found, memory)
    greater[np.isnan(bounds)] = len(found)
    return greater, equal


def _count(
    estimates: Float32Array,
    queries: Float32Array,
    candidates: Float32Array,
    bounds: Float32Array,
    low: Float32Array,
    high: Float32Array,
    greater: Int64Array,
    equal: Int64Array,
) -> None:
    """Add the counts of a block of estimates."""
    unsure = np.empty(len(queries), np.bool_)

    def estimated(start: int, stop: int) -> None:
        count_estimates(estimates, queries, candidates, bounds, low, high, greater, equal, unsure, start, stop)

    in_parallel(estimated, len(queries), len(candidates))
    chosen = np.flatnonzero(unsure & ~np.isnan(bounds))

    def computed(start: int, stop: int) -> None:
        count_products(queries, candidates, bounds, chosen, greater, equal, start, stop)

    in_parallel(computed, len(chosen), candidates.size)


def count_known_greater(
    queries: Rows,
    candidates: Rows,
    true_scores: Float32Array,
    offsets: Int64Array,
    known: IntArray,
    memory: int = MEMORY,
) -> tuple[Int64Array, Int64Array]:
    """Count as `count_greater` does, but only the known answers: known[offsets[i] : offsets[i + 1]] for query i."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))  # (pairs,)
    scores, bound = product_pairs(queries, candidates, rows, known, memory), true_scores[rows]
    greater, equal = (scores > bound) | np.isnan(bound), scores == bound
    return (
        np.bincount(rows[greater], minlength=len(true_scores)),
        np.bincount(rows[equal], minlength=len(true_scores)),
    )


def top_products(
    queries: Rows, candidates: Rows, k: int, offsets: Int64Array, left_out: Int64Array, memory: int = MEMORY
) -> tuple[Float32Array, Int64Array]:
    """Return the scores and rows of the k best candidates of each query, (q, k) each.

    Query i leaves out the rows left_out[offsets[i] : offsets[i + 1]]. Candidates are sorted by score, then by row; the
    score NaN is left out. If a query has fewer than k candidates, the rest has the score -∞ and the row -1.
    """
    asked, found = ready(queries, candidates)
    if len(found) >= 1 << 31:
        raise ValueError(f"{len(found):,} candidates are too many: there must be less than 2³¹.")
    work = asked.size * len(found)
    parts = max(1, min(torch.get_num_threads(), -(-work // LEAST_WORK), len(found)))
    heaps = np.full((parts, len(asked), k), NO_KEY, np.int64)  # one heap for each part of a block
    ascending = _ascending(offsets, left_out, len(found))
    estimates = Estimates(asked) if len(asked) >= FEW else None

    def keep(first: int, block: Float32Array, some: slice, estimated: Float32Array, errors: Float64Array) -> None:
        edges = np.arange(parts + 1) * len(block) // parts

        def some_parts(start: int, stop: int) -> None:
            for part in range(start, stop):
                own = asked[some], block, errors, offsets[some.start : some.stop + 1], ascending
                keep_greatest(estimated, *own, heaps[part, some], first, edges[part], edges[part + 1])

        in_parallel(some_parts, parts, LEAST_WORK)

    def visit(row: int, block: Float32Array) -> None:
        if estimates is None:
            nothing = np.empty((len(asked), 0), np.float32)
            keep(row, block, slice(0, len(asked)), nothing, np.zeros(len(asked)))
            return
        for first in range(0, len(block), CANDIDATES):
            part = block[first : first + CANDIDATES]
            errors = estimates.errors(part)
            for start in range(0, len(asked), QUERIES):
                some = slice(start, min(start + QUERIES, len(asked)))
                keep(row + first, part, some, estimates.of(some, part), errors[some])

    if k and len(asked) and len(found):
        in_blocks(visit, found, memory)
    keys = np.sort(heaps.swapaxes(0, 1).reshape(len(asked), parts * k), axis=1)[:, :k]  # (q, k)
    there = keys != NO_KEY
    return np.where(there, _scores(keys), np.float32(-np.inf)), np.where(there, keys & 0xFFFFFFFF, -1)


class Estimates:
    """Estimates of the products of queries (q, d) with blocks of candidates, in single precision."""

    def __init__(self, queries: Float32Array):
        self.width = queries.shape[1]
        self.queries = torch.from_numpy(queries.copy())  # torch warns of read-only arrays
        self.norms = _norms(queries)  # (q,)
        self.block = torch.empty((CANDIDATES, self.width))
        self.found = torch.empty(QUERIES * CANDIDATES)
        fast = torch.get_float32_matmul_precision() == "highest"
        self.unit = ROUNDING * self.width / (1 - ROUNDING * self.width) if fast and self.width < 1 << 20 else np.inf

    def errors(self, block: Float32Array) -> Float64Array:
        """Return a bound on the error of each query's estimates, (q,): ∞ if a number may be infinite or NaN.

        A sum of d products has a relative error of at most d u / (1 - d u) in any order, with the rounding error u of a
        step, and the sum of the absolute products is at most the product of the norms. A factor covers the rounding of
        the scores themselves.
        """
        largest = _norms(block).max(initial=0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            size = self.norms * largest
            bound = self.unit * size * (1 + 2.0**-16) + SMALLEST * self.width * (1 + self.norms + largest)
        return np.where((size < 1e38) & (bound < np.inf), bound, np.inf)  # also if a size is NaN

    def of(self, some: slice, block: Float32Array) -> Float32Array:
        """Return the estimates (b, n) of some of the queries; they are valid until the next call."""
        queries, vectors = self.queries[some], self.block[: len(block)]
        vectors.numpy()[:] = block
        found = self.found[: len(queries) * len(block)].view(len(queries), len(block))
        torch.mm(queries, vectors.T, out=found)
        return found.numpy()


def _norms(rows: Float32Array) -> Float64Array:
    """Return the Euclidean norms (n,), rounded up."""
    norms = np.empty(len(rows))
    fill_norms(rows, norms)
    return norms * (1 + 2.0**-40)


def _ascending(offsets: Int64Array, rows: IntArray, size: int) -> Int64Array:
    """Return the rows of each query in ascending order."""
    keys = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * size + rows
    if (np.diff(keys) < 0).any():
        keys.sort()
    return np.asarray(keys % max(size, 1), np.int64)


def _scores(keys: Int64Array) -> Float32Array:
    """Return the scores of keys."""
    rising = -(keys >> 32)
    return np.where(rising < 0, -rising | 0x80000000, rising).astype(np.uint32).view(np.float32)
