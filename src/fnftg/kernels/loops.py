"""Compiled loops over L1 distances and inner products, written with eight-lane vectors.

All loops compute distances with `distance` or `eight_distances`, which sum |q - c| in the same order: lane l sums the
dimensions l, l + 8, l + 16, …, then the lanes are summed as ((0+4)+(2+6)) + ((1+5)+(3+7)). So a distance is
bit-identical in all loops, blocks and threads. So is an inner product, which is summed in the same order in double
precision, where the product of two float32 numbers is exact, and then rounded to float32.

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

from fnftg.arrays import BoolArray, Float32Array, Float64Array, Int64Array

LANES = 8  # of one AVX register, or of two NEON registers
QUERIES = 128  # rows that stay in the L2 cache while looping over candidates
CANDIDATES = 512  # slices of eight lanes that stay in the L1 cache, with their gradients
SHARE = 16  # a query with more doubtful estimates than one in this number has all its products computed
NO_KEY = np.iinfo(np.int64).max

# Vectors: numba has none, so each operation below emits one or two portable vector instructions of LLVM.

get_item_pointer: Any = cgutils.get_item_pointer
get_or_insert_function: Any = cgutils.get_or_insert_function
REAL = ir.VectorType(ir.FloatType(), LANES)
DOUBLE = ir.VectorType(ir.DoubleType(), LANES)
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


class DoubleVector(types.Type):
    """Eight float64 lanes in registers."""

    def __init__(self) -> None:
        super().__init__(name="Float64x8")


DOUBLE_VECTOR = DoubleVector()


@register_model(DoubleVector)
class DoubleVectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, DOUBLE)  # type: ignore[no-untyped-call]


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


lanes_above = _lanes_that(lambda builder, vector, bound: builder.fcmp_ordered(">", vector, bound))
lanes_below = _lanes_that(lambda builder, vector, bound: builder.fcmp_ordered("<", vector, bound))
lanes_equal = _lanes_that(lambda builder, vector, bound: builder.fcmp_ordered("==", vector, bound))
lanes_in_doubt = _lanes_that(lambda builder, vector, bound: builder.fcmp_unordered("<", vector, bound))  # or a NaN


@operation
def no_sum(typing: Any) -> Any:
    """Return eight sums in double precision, all 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(DOUBLE, [0.0] * LANES)

    return DOUBLE_VECTOR(), generate


@operation
def as_doubles(typing: Any, vector: Any) -> Any:
    """Return the lanes in double precision."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(arguments[0], DOUBLE)

    return DOUBLE_VECTOR(VECTOR), generate


@operation
def add_exact_product(typing: Any, total: Any, left: Any, right: Any) -> Any:
    """Return total + left · right. The product of single-precision numbers is exact, so a fused step rounds alike."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, left, right = arguments
        function_type = ir.FunctionType(DOUBLE, [DOUBLE] * 3)
        function = get_or_insert_function(builder.module, function_type, "llvm.fmuladd.v8f64")
        return builder.call(function, [left, right, total])

    return DOUBLE_VECTOR(DOUBLE_VECTOR, DOUBLE_VECTOR, DOUBLE_VECTOR), generate


@operation
def sum_of_doubles(typing: Any, vector: Any) -> Any:
    """Return the sum of the lanes, in the order of `sum_of_lanes`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = arguments[0]
        for width in (8, 4, 2):
            vector = _folded(builder, vector, vector, width)
        return builder.extract_element(vector, ir.IntType(32)(0))

    return types.float64(DOUBLE_VECTOR), generate


@operation
def store_four_sums(typing: Any, array: Any, column: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Set array[0, column : column + 4] to the sums of the lanes of four vectors, rounded to single precision."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, place, a, b, c, d = arguments
        sums = _folded(builder, _folded(builder, a, b, 8), _folded(builder, c, d, 8), 4)
        sums = builder.fptrunc(_folded(builder, sums, sums, 2), REAL)
        four = _chosen(builder, sums, sums, [0, 1, 2, 3])
        address = _address(context, builder, signature.args[0], target, ir.IntType(64)(0), place)
        builder.store(four, builder.bitcast(address, ir.VectorType(ir.FloatType(), 4).as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, *[DOUBLE_VECTOR] * 4), generate


@operation
def load_doubles(typing: Any, array: Any, row: Any, column: Any) -> Any:
    """Return array[row, column : column + 8] of an array in double precision."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, DOUBLE.as_pointer()), align=8)

    return DOUBLE_VECTOR(array, types.intp, types.intp), generate


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


# Inner products


@numba.njit(nogil=True, cache=True)
def product(queries: Float32Array, query: int, candidates: Float32Array, candidate: int) -> np.float64:
    total = no_sum()
    for k in range(0, queries.shape[1], LANES):
        q, c = as_doubles(load(queries, query, k)), as_doubles(load(candidates, candidate, k))
        total = add_exact_product(total, q, c)
    return sum_of_doubles(total)  # type: ignore[no-any-return]


@numba.njit(nogil=True, cache=True)
def fill_eight_products(
    queries: Float32Array, query: int, candidates: Float32Array, first: int, products: Float32Array
) -> None:
    """Fill in products[0] of a query and candidates first … first + 7."""
    for four in range(0, LANES, 4):
        j = first + four
        a = b = c = d = no_sum()
        for k in range(0, queries.shape[1], LANES):
            q = as_doubles(load(queries, query, k))
            a = add_exact_product(a, q, as_doubles(load(candidates, j, k)))
            b = add_exact_product(b, q, as_doubles(load(candidates, j + 1, k)))
            c = add_exact_product(c, q, as_doubles(load(candidates, j + 2, k)))
            d = add_exact_product(d, q, as_doubles(load(candidates, j + 3, k)))
        store_four_sums(products, four, a, b, c, d)


@numba.njit(nogil=True, cache=True)
def fill_eight_products_of_doubles(
    queries: Float64Array, query: int, candidates: Float64Array, products: Float32Array
) -> None:
    """Fill in products[0] of a query and the first eight candidates, as above."""
    for four in range(0, LANES, 4):
        a = b = c = d = no_sum()
        for k in range(0, queries.shape[1], LANES):
            q = load_doubles(queries, query, k)
            a = add_exact_product(a, q, load_doubles(candidates, four, k))
            b = add_exact_product(b, q, load_doubles(candidates, four + 1, k))
            c = add_exact_product(c, q, load_doubles(candidates, four + 2, k))
            d = add_exact_product(d, q, load_doubles(candidates, four + 3, k))
        store_four_sums(products, four, a, b, c, d)


@numba.njit(nogil=True, cache=True)
def fill_norms(rows: Float32Array, norms: Float64Array) -> None:
    """Fill in the Euclidean norm of each row."""
    for row in range(len(rows)):
        norms[row] = np.sqrt(product(rows, row, rows, row))


@numba.njit(nogil=True, cache=True)
def fill_pair_products(
    queries: Float32Array,
    candidates: Float32Array,
    rows: Int64Array,
    others: Int64Array,
    products: Float32Array,
    start: int,
    stop: int,
) -> None:
    """Fill in products[start:stop]. Pair p is queries[rows[p]] and candidates[others[p]]."""
    for pair in range(start, stop):
        products[pair] = np.float32(product(queries, rows[pair], candidates, others[pair]))


@numba.njit(nogil=True, cache=True)
def count_estimates(
    estimates: Float32Array,
    queries: Float32Array,
    candidates: Float32Array,
    bounds: Float32Array,
    low: Float32Array,
    high: Float32Array,
    greater: Int64Array,
    equal: Int64Array,
    unsure: BoolArray,
    start: int,
    stop: int,
) -> None:
    """Count as `count_products` does, for queries start … stop - 1, given estimates (q, n) of the products.

    An estimate below low[i] or above high[i] is on the same side of bounds[i] as the product. Where this leaves a
    doubt, the product is computed. A query with too many doubts is not counted, but marked in `unsure` (q,).
    """
    scratch = np.empty((1, LANES), np.float32)
    size = len(candidates)
    eights = size // LANES * LANES
    for i in range(start, stop):
        bound, least, most = splat(bounds[i]), splat(low[i]), splat(high[i])
        larger, same, doubts = 0, 0, 0
        for j in range(0, eights, LANES):
            eight = load(estimates, i, j)
            clear = lanes_above(eight, most)
            if clear + lanes_below(eight, least) == LANES:
                larger += clear
                continue
            doubts += LANES
            if SHARE * doubts > size:
                break
            fill_eight_products(queries, i, candidates, j, scratch)
            exact = load(scratch, 0, 0)
            larger += lanes_above(exact, bound)
            same += lanes_equal(exact, bound)
        unsure[i] = SHARE * doubts > size
        if unsure[i]:
            continue
        for j in range(eights, size):
            one = np.float32(product(queries, i, candidates, j))
            larger += one > bounds[i]
            same += one == bounds[i]
        greater[i] += larger
        equal[i] += same


@numba.njit(nogil=True, cache=True)
def count_products(
    queries: Float32Array,
    candidates: Float32Array,
    bounds: Float32Array,
    chosen: Int64Array,
    greater: Int64Array,
    equal: Int64Array,
    start: int,
    stop: int,
) -> None:
    """Add to greater[i] and equal[i] the numbers of candidates whose product with query i is greater than, or equal to,
    bounds[i], for the queries i in chosen[start:stop]. NaN is neither."""
    scratch = np.empty((1, LANES), np.float32)
    asked, eight = np.empty((stop - start, queries.shape[1])), np.empty((LANES, queries.shape[1]))
    for place in range(start, stop):
        asked[place - start] = queries[chosen[place]]
    eights = len(candidates) // LANES * LANES
    for j in range(0, eights, LANES):
        eight[:] = candidates[j : j + LANES]
        for place in range(start, stop):
            i = chosen[place]
            fill_eight_products_of_doubles(asked, place - start, eight, scratch)
            exact, bound = load(scratch, 0, 0), splat(bounds[i])
            greater[i] += lanes_above(exact, bound)
            equal[i] += lanes_equal(exact, bound)
    for j in range(eights, len(candidates)):
        for place in range(start, stop):
            i = chosen[place]
            one = np.float32(product(queries, i, candidates, j))
            greater[i] += one > bounds[i]
            equal[i] += one == bounds[i]


@numba.njit(nogil=True, cache=True)
def keep_greatest(
    estimates: Float32Array,
    queries: Float32Array,
    candidates: Float32Array,
    errors: Float64Array,
    offsets: Int64Array,
    left_out: Int64Array,
    heaps: Int64Array,
    row: int,
    start: int,
    stop: int,
) -> None:
    """Keep the k smallest keys of query i among candidates[start:stop] in heaps[i], with the largest at the root.

    Keys sort by descending product, then by row (that in `candidates` plus `row`). Products that are NaN and the rows
    left_out[offsets[i] : offsets[i + 1]], which ascend, have no key. Call this with ascending rows.

    `estimates` (q, n) of the products differ by less than errors[i] from them. If `estimates` has no columns, all
    products are computed.
    """
    scratch = np.empty((1, LANES), np.float32)
    bits = scratch.view(np.int32)
    estimated = estimates.shape[1] > 0
    for i in range(len(queries)):
        heap = heaps[i]
        least = least_estimate(heap[0], errors[i])
        for j in range(start, stop, LANES):
            lanes = min(LANES, stop - j)
            if lanes == LANES:
                if estimated and lanes_below(load(estimates, i, j), splat(least)) == LANES:
                    continue
                fill_eight_products(queries, i, candidates, j, scratch)
            else:
                for lane in range(lanes):
                    scratch[0, lane] = product(queries, i, candidates, j + lane)
            for lane in range(lanes):
                if np.isnan(scratch[0, lane]):
                    continue
                scratch[0, lane] += np.float32(0)  # no -0.0
                key = key_of_product(bits[0, lane], row + j + lane)
                if key < heap[0] and not listed(left_out, offsets[i], offsets[i + 1], row + j + lane):
                    replace_root(heap, key)
                    least = least_estimate(heap[0], errors[i])


@numba.njit(nogil=True, cache=True)
def key_of_product(bits: np.int32, row: int) -> np.int64:
    """Return the key of a row and the bits of its product, which are not those of NaN or -0.0."""
    rising = np.int64(bits)
    if rising < 0:
        rising = -(rising & 0x7FFFFFFF)
    return np.int64((-rising << 32) + row)


@numba.njit(nogil=True, cache=True)
def least_estimate(root: np.int64, error: np.float64) -> np.float32:
    """Return a number below which no estimate belongs to a product whose key is smaller than the root of a heap."""
    if root == NO_KEY:
        return np.float32(-np.inf)
    scratch = np.empty(1, np.int32)
    rising = -(root >> 32)
    scratch[0] = rising if rising >= 0 else -rising - (1 << 31)
    least = np.float32(np.float64(scratch.view(np.float32)[0]) - error)
    return np.float32(np.nextafter(least, np.float32(-np.inf)))


@numba.njit(nogil=True, cache=True)
def listed(rows: Int64Array, start: int, stop: int, row: int) -> bool:
    """Return whether a row is among rows[start:stop], which ascend."""
    while start < stop:
        middle = (start + stop) // 2
        if rows[middle] < row:
            start = middle + 1
        elif rows[middle] > row:
            stop = middle
        else:
            return True
    return False
