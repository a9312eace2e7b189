"""Compiled loops over L1 distances, written with eight-lane vectors.

All loops compute distances with `distance` or `eight_distances`, which sum |q - c| in the same order: lane l sums the
dimensions l, l + 8, l + 16, …, then the lanes are summed as ((0+4)+(2+6)) + ((1+5)+(3+7)). So a distance is
bit-identical in all loops, blocks and threads.

All of this is in one file because numba's cache only detects changes in the file of a compiled function. Arrays are
C-contiguous float32, and their width is a multiple of the lanes (see `rows_of_lanes` in l1.py).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

from fnftg.arrays import Float32Array, Int64Array

LANES = 8  # of one AVX register, or of two NEON registers
QUERIES = 128  # rows that stay in the L2 cache while looping over candidates
CANDIDATES = 512  # slices of eight lanes that stay in the L1 cache, with their gradients
NO_KEY = np.iinfo(np.int64).max

# Vectors: numba has none, so each operation below emits one or two portable vector instructions of LLVM.

get_item_pointer: Any = cgutils.get_item_pointer
get_or_insert_function: Any = cgutils.get_or_insert_function
REAL = ir.VectorType(ir.FloatType(), LANES)
WHOLE = ir.VectorType(ir.IntType(32), LANES)


class Vector(types.Type):
    """Eight float32 lanes in a register."""

    def __init__(self) -> None:
        super().__init__(name="Float32x8")


VECTOR = Vector()


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, REAL)  # type: ignore[no-untyped-call]


def operation(definition: Any) -> Any:
    """Turn a code generator for LLVM into a function that compiled code can call."""
    return intrinsic(definition)


def _address(context: Any, builder: Any, array_type: Any, array: Any, row: Any, column: Any) -> Any:
    struct = context.make_array(array_type)(context, builder, array)
    item = get_item_pointer(context, builder, array_type, struct, [row, column], wraparound=False)
    return builder.bitcast(item, REAL.as_pointer())


def _call(builder: Any, name: str, *arguments: Any) -> Any:
    """Call the LLVM intrinsic `name`, whose arguments and result are vectors."""
    signature = ir.FunctionType(REAL, [REAL] * len(arguments))
    return builder.call(get_or_insert_function(builder.module, signature, f"llvm.{name}.v8f32"), arguments)


def _chosen(builder: Any, left: Any, right: Any, lanes: list[int]) -> Any:
    """Select lanes by number: 0 to 7 of `left`, 8 to 15 of `right`."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(left, right, mask)


def _folded(builder: Any, left: Any, right: Any, width: int) -> Any:
    """Add the upper half to the lower half of each group of `width` lanes, of `left` and then of `right`."""
    starts = range(0, 2 * LANES, width)
    lower = [start + lane for start in starts for lane in range(width // 2)]
    return builder.fadd(
        _chosen(builder, left, right, lower), _chosen(builder, left, right, [lane + width // 2 for lane in lower])
    )


@operation
def splat(typing: Any, value: Any) -> Any:
    """Return `value` in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.insert_element(ir.Constant(REAL, ir.Undefined), arguments[0], ir.IntType(32)(0))
        return _chosen(builder, first, first, [0] * LANES)

    return VECTOR(types.float32), generate


@operation
def load(typing: Any, array: Any, row: Any, column: Any) -> Any:
    """Return array[row, column : column + 8]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=4)

    return VECTOR(array, types.intp, types.intp), generate


@operation
def store(typing: Any, array: Any, row: Any, column: Any, vector: Any) -> Any:
    """Set array[row, column : column + 8] = vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[3], _address(context, builder, signature.args[0], *arguments[:3]), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, VECTOR), generate


@operation
def add_gap(typing: Any, total: Any, left: Any, right: Any) -> Any:
    """Return total + |left - right|."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, left, right = arguments
        return builder.fadd(total, _call(builder, "fabs", builder.fsub(left, right)))

    return VECTOR(VECTOR, VECTOR, VECTOR), generate


@operation
def sign_of_gap(typing: Any, left: Any, right: Any) -> Any:
    """Return 1 where left > right, -1 where left < right, and 0 where they are equal."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        more, less = (builder.sext(builder.fcmp_ordered(sign, *arguments), WHOLE) for sign in "><")  # 0 or -1
        return builder.sitofp(builder.sub(less, more), REAL)

    return VECTOR(VECTOR, VECTOR), generate


@operation
def add_product(typing: Any, total: Any, left: Any, right: Any) -> Any:
    """Return total + left * right, fused if the CPU supports it. The result is the same: one factor is -1, 0 or 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, left, right = arguments
        return _call(builder, "fmuladd", left, right, total)

    return VECTOR(VECTOR, VECTOR, VECTOR), generate


@operation
def subtract_product(typing: Any, total: Any, left: Any, right: Any) -> Any:
    """Return total - left * right, as above."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, left, right = arguments
        return _call(builder, "fmuladd", builder.fneg(left), right, total)

    return VECTOR(VECTOR, VECTOR, VECTOR), generate


@operation
def sum_of_lanes(typing: Any, vector: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = arguments[0]
        for width in (8, 4, 2):
            vector = _folded(builder, vector, vector, width)
        return builder.extract_element(vector, ir.IntType(32)(0))

    return types.float32(VECTOR), generate


@operation
def sums_of_lanes(typing: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Return the sums of the lanes of eight vectors, in the order of `sum_of_lanes`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = list(arguments)
        for width in (8, 4, 2):
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [_folded(builder, left, right, width) for left, right in pairs]
        return vectors[0]

    return VECTOR(*[VECTOR] * LANES), generate


def _lanes_that(compare: Any) -> Any:
    """Return an operation that counts the lanes of a vector for which the comparison with a number holds."""

    @operation
    def lanes(typing: Any, vector: Any, bound: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            flags = builder.bitcast(compare(builder, *arguments), ir.IntType(LANES))
            return builder.zext(builder.ctpop(flags), ir.IntType(64))

        return types.int64(VECTOR, VECTOR), generate

    return lanes


lanes_below = _lanes_that(lambda builder, vector, bound: builder.fcmp_ordered("<", vector, bound))
lanes_equal = _lanes_that(lambda builder, vector, bound: builder.fcmp_ordered("==", vector, bound))
lanes_in_doubt = _lanes_that(lambda builder, vector, bound: builder.fcmp_unordered("<", vector, bound))  # or a NaN

# Distances


@numba.njit(nogil=True, cache=True)
def distance(queries: Float32Array, query: int, candidates: Float32Array, candidate: int) -> np.float32:
    total = splat(np.float32(0))
    for k in range(0, queries.shape[1], LANES):
        total = add_gap(total, load(queries, query, k), load(candidates, candidate, k))
    return sum_of_lanes(total)  # type: ignore[no-any-return]


@numba.njit(nogil=True, cache=True)
def eight_distances(queries: Float32Array, query: int, candidates: Float32Array, first: int) -> Any:
    """Return the distances of a query to candidates first … first + 7, with eight sums in registers."""
    a = b = c = d = e = f = g = h = splat(np.float32(0))
    for k in range(0, queries.shape[1], LANES):
        q = load(queries, query, k)
        a = add_gap(a, q, load(candidates, first, k))
        b = add_gap(b, q, load(candidates, first + 1, k))
        c = add_gap(c, q, load(candidates, first + 2, k))
        d = add_gap(d, q, load(candidates, first + 3, k))
        e = add_gap(e, q, load(candidates, first + 4, k))
        f = add_gap(f, q, load(candidates, first + 5, k))
        g = add_gap(g, q, load(candidates, first + 6, k))
        h = add_gap(h, q, load(candidates, first + 7, k))
    return sums_of_lanes(a, b, c, d, e, f, g, h)


@numba.njit(nogil=True, cache=True)
def fill_distances(
    queries: Float32Array,
    candidates: Float32Array,
    distances: Float32Array,
    first: int,
    last: int,
    start: int,
    stop: int,
) -> None:
    """Fill in distances[first:last, start:stop] of (q, n)."""
    eights = start + (stop - start) // LANES * LANES
    for block in range(first, last, QUERIES):
        end = min(block + QUERIES, last)
        for j in range(start, eights, LANES):
            for i in range(block, end):
                store(distances, i, j, eight_distances(queries, i, candidates, j))
        for j in range(eights, stop):
            for i in range(block, end):
                distances[i, j] = distance(queries, i, candidates, j)


@numba.njit(nogil=True, cache=True)
def fill_pairs(
    queries: Float32Array,
    candidates: Float32Array,
    rows: Int64Array,
    others: Int64Array,
    distances: Float32Array,
    start: int,
    stop: int,
) -> None:
    """Fill in distances[start:stop]. Pair p is queries[rows[p]] and candidates[others[p]]."""
    for pair in range(start, stop):
        distances[pair] = distance(queries, rows[pair], candidates, others[pair])


@numba.njit(nogil=True, cache=True)
def count_distances(
    queries: Float32Array,
    candidates: Float32Array,
    bounds: Float32Array,
    below: Int64Array,
    equal: Int64Array,
    start: int,
    stop: int,
) -> None:
    """Add to below[i] and equal[i] the numbers of candidates[start:stop] whose distance to query i is less than, or
    equal to, bounds[i]. NaN is neither."""
    eights = start + (stop - start) // LANES * LANES
    for block in range(0, len(queries), QUERIES):
        end = min(block + QUERIES, len(queries))
        for j in range(start, eights, LANES):
            for i in range(block, end):
                eight, bound = eight_distances(queries, i, candidates, j), splat(bounds[i])
                below[i] += lanes_below(eight, bound)
                equal[i] += lanes_equal(eight, bound)
        for j in range(eights, stop):
            for i in range(block, end):
                one = distance(queries, i, candidates, j)
                below[i] += one < bounds[i]
                equal[i] += one == bounds[i]


@numba.njit(nogil=True, cache=True)
def keep_nearest(
    queries: Float32Array, candidates: Float32Array, heaps: Int64Array, row: int, start: int, stop: int
) -> None:
    """Keep the k smallest keys of query i in heaps[i], with the largest of them at the root.

    The key of a candidate has the bits of its distance, then its row (that in `candidates` plus `row`). Keys sort by
    distance, then by row, with NaN last. Call this with ascending rows: later candidates do not replace ties.
    """
    scratch = np.empty((1, LANES), np.float32)
    bits = scratch.view(np.int32)
    for block in range(0, len(queries), QUERIES):
        end = min(block + QUERIES, len(queries))
        for j in range(start, stop, LANES):
            lanes = min(LANES, stop - j)
            for i in range(block, end):
                heap = heaps[i]
                if lanes == LANES:
                    eight, worst = eight_distances(queries, i, candidates, j), np.int32(heap[0] >> 32)
                    if lanes_in_doubt(eight, splat(worst.view(np.float32))) == 0:
                        continue
                    store(scratch, 0, 0, eight)
                else:
                    for lane in range(lanes):
                        scratch[0, lane] = distance(queries, i, candidates, j + lane)
                for lane in range(lanes):
                    key = (np.int64(bits[0, lane] & 0x7FFFFFFF) << 32) | (row + j + lane)
                    if key < heap[0]:
                        replace_root(heap, key)


@numba.njit(nogil=True, cache=True)
def replace_root(heap: Int64Array, key: np.int64) -> None:
    place = 0
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = key


# Gradients


@numba.njit(nogil=True, cache=True)
def add_gradients(
    queries: Float32Array,
    candidates: Float32Array,
    upstream: Float32Array,
    of_queries: Float32Array,
    of_candidates: Float32Array,
    start: int,
    stop: int,
) -> None:
    """Add the gradients of slices start … stop - 1 of the dimensions. Arrays are (d / 8, rows, 8), `upstream` (q, n).

    Both gradients are computed in one pass. A thread computes whole slices, so the order of every sum is fixed.
    """
    rows, columns = upstream.shape
    fours = rows // 4 * 4
    for first in range(0, columns, CANDIDATES):
        last = min(first + CANDIDATES, columns)
        for k in range(start, stop):
            for i in range(0, fours, 4):
                add_four_rows(queries[k], candidates[k], upstream, of_queries[k], of_candidates[k], i, first, last)
            for i in range(fours, rows):
                add_one_row(queries[k], candidates[k], upstream, of_queries[k], of_candidates[k], i, first, last)


@numba.njit(nogil=True, cache=True)
def add_four_rows(
    queries: Float32Array,
    candidates: Float32Array,
    upstream: Float32Array,
    of_q: Float32Array,
    of_c: Float32Array,
    i: int,
    first: int,
    last: int,
) -> None:
    q0, q1, q2, q3 = load(queries, i, 0), load(queries, i + 1, 0), load(queries, i + 2, 0), load(queries, i + 3, 0)
    t0, t1, t2, t3 = load(of_q, i, 0), load(of_q, i + 1, 0), load(of_q, i + 2, 0), load(of_q, i + 3, 0)
    for j in range(first, last):
        c, total = load(candidates, j, 0), load(of_c, j, 0)
        g0, g1 = splat(upstream[i, j]), splat(upstream[i + 1, j])
        g2, g3 = splat(upstream[i + 2, j]), splat(upstream[i + 3, j])
        s0, s1, s2, s3 = sign_of_gap(q0, c), sign_of_gap(q1, c), sign_of_gap(q2, c), sign_of_gap(q3, c)
        t0, total = add_product(t0, g0, s0), subtract_product(total, g0, s0)
        t1, total = add_product(t1, g1, s1), subtract_product(total, g1, s1)
        t2, total = add_product(t2, g2, s2), subtract_product(total, g2, s2)
        t3, total = add_product(t3, g3, s3), subtract_product(total, g3, s3)
        store(of_c, j, 0, total)
    store(of_q, i, 0, t0)
    store(of_q, i + 1, 0, t1)
    store(of_q, i + 2, 0, t2)
    store(of_q, i + 3, 0, t3)


@numba.njit(nogil=True, cache=True)
def add_one_row(
    queries: Float32Array,
    candidates: Float32Array,
    upstream: Float32Array,
    of_q: Float32Array,
    of_c: Float32Array,
    i: int,
    first: int,
    last: int,
) -> None:
    q, total_q = load(queries, i, 0), load(of_q, i, 0)
    for j in range(first, last):
        g, sign = splat(upstream[i, j]), sign_of_gap(q, load(candidates, j, 0))
        total_q = add_product(total_q, g, sign)
        store(of_c, j, 0, subtract_product(load(of_c, j, 0), g, sign))
    store(of_q, i, 0, total_q)
