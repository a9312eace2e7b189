"""Dropout whose mask is a hash of the position, several times as fast on a CPU as torch's.

The mask depends on one random number of torch's generator and on the position of each value, and is computed again in
the backward pass instead of being stored. float32 tensors on the CPU use the compiled loop, other tensors use torch.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fnftg.arrays import Float32Array
from fnftg.kernels.segments import array, is_compiled
from fnftg.kernels.threads import in_parallel

COST = 4  # operations per value
# The finaliser of MurmurHash3 (Appleby): every bit of the input changes half of the bits of the output.
STEP, FACTOR_1, FACTOR_2 = (np.uint32(number) for number in (0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35))
SHIFT_1, SHIFT_2 = np.uint32(16), np.uint32(13)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set values to 0 with probability p in training, and scale the others by 1 / (1 - p)."""
    if not training or p == 0:
        return x
    if not is_compiled(x):
        return functional.dropout(x, p, training)
    return HashedDropout.apply(x, p, int(torch.randint(1 << 32, ())))  # type: ignore[no-untyped-call, no-any-return]


class Dropout(nn.Dropout):
    """`dropout` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)


class HashedDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed = p, seed
        return _masked(x, p, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        return _masked(upstream, ctx.p, ctx.seed), None, None


def _masked(x: Tensor, p: float, seed: int) -> Tensor:
    result = torch.empty(x.shape)
    source, target = array(x).reshape(-1), array(result).reshape(-1)
    threshold, scale = np.uint32(round(p * 2**32)), np.float32(1 / (1 - p))

    def some_values(start: int, stop: int) -> None:
        fill_masked(source, target, threshold, scale, np.uint32(seed), start, stop)

    in_parallel(some_values, len(source), COST)
    return result


@numba.njit(nogil=True, cache=True)
def fill_masked(
    values: Float32Array,
    result: Float32Array,
    threshold: np.uint32,
    scale: np.float32,
    seed: np.uint32,
    start: int,
    stop: int,
) -> None:
    """Fill in the results of the values start … stop - 1."""
    for place in range(start, stop):
        bits = np.uint32(np.uint32(place) * STEP + seed)  # products of numba have 64 bits
        bits = np.uint32((bits ^ (bits >> SHIFT_1)) * FACTOR_1)
        bits = np.uint32((bits ^ (bits >> SHIFT_2)) * FACTOR_2)
        bits = bits ^ (bits >> SHIFT_1)
        result[place] = values[place] * scale if bits >= threshold else np.float32(0)
