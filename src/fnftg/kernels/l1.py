"""Differentiable L1 distances between all queries and all candidates, the scores of TransE."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fnftg.arrays import AnyArray, Float32Array
from fnftg.kernels.loops import LANES, add_gradients, fill_distances
from fnftg.kernels.threads import in_parallel

CHUNK = 1 << 24  # differences in memory at a time in plain torch: 64 MB


def l1_distances(queries: Tensor, candidates: Tensor) -> Tensor:
    """Return ‖queries[i] - candidates[j]‖₁ as (q, n), from (q, d) and (n, d), with gradients to both.

    float32 tensors on the CPU use compiled loops, whose results and gradients are bit-identical for any number of
    threads. Half precision is computed in float32; other tensors use torch.cdist. NaN, infinity and the gradient of |x|
    at 0, which is 0, are handled as in torch.cdist.
    """
    if queries.dim() != 2 or candidates.dim() != 2 or queries.shape[1] != candidates.shape[1]:
        shapes = f"{tuple(queries.shape)} and {tuple(candidates.shape)}"
        raise ValueError(f"L1 distances require (q, d) queries and (n, d) candidates, not {shapes}.")
    dtype = torch.promote_types(torch.promote_types(queries.dtype, candidates.dtype), torch.float32)
    return L1Distances.apply(queries.to(dtype), candidates.to(dtype))  # type: ignore[no-untyped-call, no-any-return]


class L1Distances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor) -> Tensor:
        ctx.save_for_backward(queries, candidates)
        if not compiled(queries, candidates):
            return torch.cdist(queries, candidates, p=1)
        return torch.from_numpy(distances(queries.detach().numpy(), candidates.detach().numpy()))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        queries, candidates = ctx.saved_tensors
        # With NaN, use torch: the sign of NaN is NaN in torch.cdist.
        finite = compiled(queries, candidates) and bool(torch.isfinite(queries.sum() + candidates.sum()))
        both = (gradients if finite else torch_gradients)(queries.detach(), candidates.detach(), upstream)
        return both[0] if ctx.needs_input_grad[0] else None, both[1] if ctx.needs_input_grad[1] else None


def compiled(queries: Tensor, candidates: Tensor) -> bool:
    """Return whether the compiled loops support these tensors."""
    return all(x.device.type == "cpu" and x.dtype == torch.float32 for x in (queries, candidates))


def rows_of_lanes(rows: AnyArray) -> Float32Array:
    """Return the rows as the loops need them: C-contiguous float32, padded with zeros to a multiple of the lanes.

    Rows are copied only if necessary. All are read-only, because numba compiles a loop again for each mixture of types.
    """
    width = rows.shape[1]
    if width % LANES:
        ready = np.zeros((len(rows), -(-width // LANES) * LANES), np.float32)
        ready[:, :width] = rows
    else:
        ready = np.asarray(rows, np.float32, order="C").view()
    ready.flags.writeable = False
    return ready


def distances(queries: AnyArray, candidates: AnyArray) -> Float32Array:
    """Return the distances as (q, n). The longer of the two sides is divided among the threads."""
    left, right = rows_of_lanes(queries), rows_of_lanes(candidates)
    result = np.empty((len(left), len(right)), np.float32)

    def some_candidates(start: int, stop: int) -> None:
        fill_distances(left, right, result, 0, len(left), start, stop)

    def some_queries(start: int, stop: int) -> None:
        fill_distances(left, right, result, start, stop, 0, len(right))

    if len(left) > len(right):
        in_parallel(some_queries, len(left), right.size)
    else:
        in_parallel(some_candidates, len(right), left.size)
    return result


def gradients(queries: Tensor, candidates: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_j g_ij s_ij (q, d) and -Σ_i g_ij s_ij (n, d), where g is `upstream` and s_ij the sign of q_i - c_j."""
    left, right = _slices(queries), _slices(candidates)  # (d / 8, q, 8), (d / 8, n, 8)
    weights = upstream.detach().contiguous().numpy()  # (q, n)
    weights.flags.writeable = False
    of_left, of_right = np.zeros_like(left), np.zeros_like(right)

    def some_slices(start: int, stop: int) -> None:
        add_gradients(left, right, weights, of_left, of_right, start, stop)

    in_parallel(some_slices, len(left), LANES * weights.size)
    return _rows(of_left, queries), _rows(of_right, candidates)


def _slices(rows: Tensor) -> Float32Array:
    """Group the dimensions by eight: (rows, d) → (d / 8, rows, 8)."""
    ready = rows_of_lanes(rows.numpy())
    slices = np.ascontiguousarray(ready.reshape(len(ready), ready.shape[1] // LANES, LANES).swapaxes(0, 1))
    slices.flags.writeable = False
    return slices


def _rows(slices: Float32Array, like: Tensor) -> Tensor:
    """Invert `_slices`."""
    rows = slices.swapaxes(0, 1).reshape(like.shape[0], len(slices) * LANES)
    return torch.from_numpy(np.ascontiguousarray(rows[:, : like.shape[1]]))


def torch_gradients(queries: Tensor, candidates: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `gradients` in plain torch, a few queries at a time. On CUDA, torch.cdist would need q·n·d values."""
    of_queries, of_candidates = torch.zeros_like(queries), torch.zeros_like(candidates)
    step = max(CHUNK // max(candidates.numel(), 1), 1)
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        gaps = queries[part, None] - candidates  # (step, n, d)
        signs = torch.where(gaps.isnan(), gaps, gaps.sign())
        of_queries[part] = torch.einsum("qn,qnd->qd", upstream[part], signs)
        of_candidates -= torch.einsum("qn,qnd->nd", upstream[part], signs)
    return of_queries, of_candidates
