"""Softmax and sum over ragged segments, e.g. the neighbours of each centre, without padding.

Segment s has the edges offsets[s] … offsets[s + 1] - 1 and may be empty. Offsets are int64, (segments + 1,), and ascend
from 0 to the number of edges. One thread sums a segment, edge by edge, so results are bit-identical for any number of
threads. float32 tensors on the CPU use compiled loops, half precision is computed in float32, and other tensors use
plain torch.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fnftg.arrays import AnyArray, Float32Array, Int64Array
from fnftg.kernels.threads import in_parallel

EXP_COST = 30  # operations per exponential
ANY_ORDER = {"reassoc", "contract"}  # allows vectorised dot products, with correct NaN and infinity


def segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """Sum the values (edges, …) of each segment: (segments, …). Empty segments give 0."""
    check_offsets(offsets, values)
    return SegmentSum.apply(widened(values), offsets)  # type: ignore[no-untyped-call, no-any-return]


def segment_softmax(scores: Tensor, offsets: Tensor) -> Tensor:
    """Compute the softmax of the scores, (edges,) or (edges, heads), within each segment."""
    check_offsets(offsets, scores)
    return SegmentSoftmax.apply(widened(scores), offsets)  # type: ignore[no-untyped-call, no-any-return]


def attention_weights(query: Tensor, keys: Tensor, offsets: Tensor) -> Tensor:
    """Return softmax_e(query · keys[e] / √dh) over the edges e of each segment, for each head: (edges, h).

    There is one query per segment, (segments, h, dh); keys are (edges, h, dh).
    """
    spread = Spread.apply(widened(query), offsets, len(keys))  # type: ignore[no-untyped-call]
    return segment_softmax((spread * widened(keys)).sum(-1) / math.sqrt(keys.shape[2]), offsets)


class SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.edges = len(values)
        return _sums(values, offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (offsets,) = ctx.saved_tensors
        return _spread(upstream, offsets, ctx.edges), None


class Spread(torch.autograd.Function):
    """Repeats the row of each segment for its edges. The gradient is deterministic, unlike torch's on CUDA."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, offsets: Tensor, edges: int) -> Tensor:
        ctx.save_for_backward(offsets)
        return _spread(rows, offsets, edges)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (offsets,) = ctx.saved_tensors
        return _sums(upstream, offsets), None, None


class SegmentSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, offsets: Tensor) -> Tensor:
        if is_compiled(scores):
            weights = torch.empty_like(scores, memory_format=torch.contiguous_format)
            source, target, edges = _matrix(scores), _matrix(weights), array(offsets)

            def some_segments(start: int, stop: int) -> None:
                fill_softmax(source, edges, target, start, stop)

            in_parallel(some_segments, len(edges) - 1, EXP_COST * _share(scores, edges))
        else:
            highest = torch.segment_reduce(scores, "max", offsets=offsets, axis=0)
            powers = torch.exp(scores - _spread(highest, offsets, len(scores)))
            weights = powers / _spread(_sums(powers, offsets), offsets, len(scores))
        ctx.save_for_backward(weights, offsets)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        weights, offsets = ctx.saved_tensors
        weighted = weights * upstream
        return weighted - weights * _spread(_sums(weighted, offsets), offsets, len(weights)), None


def _sums(values: Tensor, offsets: Tensor) -> Tensor:
    if not is_compiled(values):
        return torch.segment_reduce(values, "sum", offsets=offsets, axis=0, initial=0)
    result = torch.zeros((len(offsets) - 1, *values.shape[1:]))
    source, target, edges = _matrix(values), _matrix(result), array(offsets)

    def some_segments(start: int, stop: int) -> None:
        fill_sums(source, edges, target, start, stop)

    in_parallel(some_segments, len(edges) - 1, _share(values, edges))
    return result


def _spread(rows: Tensor, offsets: Tensor, edges: int) -> Tensor:
    """Repeat the row of each segment for its edges: (segments, …) → (edges, …)."""
    return rows.repeat_interleave(offsets.diff(), 0, output_size=edges)


def widened(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def is_compiled(*tensors: Tensor) -> bool:
    return all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors)


def array(tensor: Tensor) -> AnyArray:
    return tensor.detach().contiguous().numpy()


def _matrix(tensor: Tensor) -> Float32Array:
    return array(tensor).reshape(len(tensor), math.prod(tensor.shape[1:]))


def _share(tensor: Tensor, offsets: Int64Array | Tensor) -> int:
    """Return the mean number of values per segment of a tensor over the edges."""
    return -(-tensor.numel() // max(len(offsets) - 1, 1))


def check_offsets(offsets: Tensor, values: Tensor) -> None:
    """Check the offsets, as the compiled loops do not. Offsets on a GPU are not read, which would synchronise it."""
    if offsets.dim() != 1 or offsets.dtype != torch.int64 or len(offsets) == 0:
        raise ValueError(f"Offsets must be int64 (segments + 1,), not {offsets.dtype} {tuple(offsets.shape)}.")
    if offsets.device.type == "cpu":
        steps = offsets.diff()
        if offsets[0] != 0 or offsets[-1] != len(values) or (len(steps) and steps.min() < 0):
            raise ValueError(f"Offsets must ascend from 0 to the number of edges, {len(values):,}.")


@numba.njit(nogil=True, cache=True)
def fill_sums(values: Float32Array, offsets: Int64Array, sums: Float32Array, start: int, stop: int) -> None:
    """Add the values (edges, d) of segments start … stop - 1 to their sums (segments, d)."""
    for segment in range(start, stop):
        total = sums[segment]
        for edge in range(offsets[segment], offsets[segment + 1]):
            row = values[edge]
            for k in range(len(row)):
                total[k] += row[k]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill_softmax(scores: Float32Array, offsets: Int64Array, weights: Float32Array, start: int, stop: int) -> None:
    """Fill in the weights (edges, heads) of segments start … stop - 1. `weights` may be `scores`."""
    for segment in range(start, stop):
        first, last = offsets[segment], offsets[segment + 1]
        for head in range(scores.shape[1]):
            highest = np.float32(-np.inf)
            for edge in range(first, last):
                highest = max(highest, scores[edge, head])
            total = np.float32(0)
            for edge in range(first, last):
                power = np.float32(math.exp(scores[edge, head] - highest))
                weights[edge, head] = power
                total += power
            for edge in range(first, last):
                weights[edge, head] /= total
