"""Attention of centres over their ego-graphs, whose keys and values are modulated by the labels of the edges.

Centre i attends to itself and to its edges offsets[i] … offsets[i + 1] - 1. Edge e leads to the node nodes[e] and has
the label labels[e]; its key is keys[nodes[e]] ∘ key_factors[labels[e]], and its value is made in the same way. Edges
share nodes and labels, so the compiled loops never store a row per edge, forward or backward.

Gradients of nodes and labels are summed edge by edge, in blocks of columns. So results are bit-identical for any number
of threads. float32 tensors on the CPU use the compiled loops, half precision is computed in float32, and other tensors
use plain torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fnftg.arrays import Float32Array
from fnftg.kernels.segments import (
    ANY_ORDER,
    array,
    attention_weights,
    check_offsets,
    is_compiled,
    segment_sum,
    widened,
)
from fnftg.kernels.threads import in_parallel

COLUMNS = 64  # per block in which gradients are summed
COST = 8  # operations per value of an edge


@dataclass(frozen=True)
class EgoInputs:
    """The inputs of the attention."""

    query: Tensor  # (n, d): of the centres, as are the next two
    own_keys: Tensor  # (n, d)
    own_values: Tensor  # (n, d)
    keys: Tensor  # (m, d): of the nodes
    values: Tensor  # (m, d)
    key_factors: Tensor  # (p, d): of the labels
    value_factors: Tensor  # (p, d)
    offsets: Tensor  # (n + 1,)
    nodes: Tensor  # (edges,)
    labels: Tensor  # (edges,)

    def __post_init__(self) -> None:
        check_offsets(self.offsets, self.nodes)
        width = self.query.shape[1]
        floats = (self.own_keys, self.own_values, self.keys, self.values, self.key_factors, self.value_factors)
        if any(x.dim() != 2 or x.shape[1] != width for x in floats):
            raise ValueError(f"All rows must have the width {width}, as the queries have.")
        if not len(self.query) == len(self.own_keys) == len(self.own_values) == len(self.offsets) - 1:
            raise ValueError("Queries, own keys, own values and segments must be equally many.")
        if len(self.nodes) != len(self.labels):
            raise ValueError(f"There are {len(self.nodes):,} nodes but {len(self.labels):,} labels of edges.")
        for rows, size in ((self.nodes, len(self.keys)), (self.labels, len(self.key_factors))):
            if rows.device.type == "cpu" and len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < size:
                raise IndexError(f"Edges refer to rows out of range: there are {size:,} rows.")


def ego_attention(inputs: EgoInputs, heads: int) -> Tensor:
    """Return Σ softmax(query · key / √dh) value over each centre and its edges, for each head: (n, d)."""
    given = [x if x.dtype == torch.int64 else widened(x) for x in _tensors(inputs)]
    if is_compiled(*given[:7]):
        return EgoAttention.apply(*given, heads)  # type: ignore[no-untyped-call, no-any-return]
    wide = EgoInputs(*given)
    offsets, weights = ego_attention_weights(wide, heads)
    values = _centre_first(wide.own_values, _modulated(wide.values, wide.value_factors, wide), wide.offsets)
    return segment_sum(weights.unsqueeze(-1) * _split(values, heads), offsets).flatten(1)


def ego_attention_weights(inputs: EgoInputs, heads: int) -> tuple[Tensor, Tensor]:
    """Return the weights of `ego_attention`: offsets (n + 1,), weights (n + edges, heads), each centre first."""
    keys = _centre_first(inputs.own_keys, _modulated(inputs.keys, inputs.key_factors, inputs), inputs.offsets)
    offsets = inputs.offsets + torch.arange(len(inputs.offsets), device=inputs.offsets.device)
    return offsets, attention_weights(_split(inputs.query, heads), _split(keys, heads), offsets)


class EgoAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, heads = given
        arrays: Any = [array(x) for x in tensors]
        weights = np.empty((len(tensors[8]), heads), np.float32)  # (edges, h)
        own_weights = np.empty((len(tensors[0]), heads), np.float32)  # (n, h)
        result = torch.empty(tensors[0].shape)
        target, fill = array(result), cast(Any, fill_attention)

        def some_centres(start: int, stop: int) -> None:
            fill(*arrays, own_weights, weights, target, start, stop)

        in_parallel(some_centres, len(own_weights), _cost(tensors))
        ctx.save_for_backward(*tensors, torch.from_numpy(own_weights), torch.from_numpy(weights))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, own_weights, weights = ctx.saved_tensors
        gradients = [torch.zeros(x.shape) for x in tensors[:7]]
        given: Any = [array(x) for x in tensors]
        above, own_weights, weights = (array(x) for x in (upstream, own_weights, weights))
        of: Any = [array(x) for x in gradients]
        fill_own, fill_shared = cast(Any, fill_centre_gradients), cast(Any, fill_shared_gradients)
        pulls = np.empty(weights.shape, np.float32)  # (edges, h): gradients of the scores
        *_, offsets, nodes, labels = given
        centres, order = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), np.argsort(nodes, kind="stable")

        def some_centres(start: int, stop: int) -> None:
            fill_own(*given, own_weights, weights, above, pulls, *of[:3], start, stop)

        def some_columns(start: int, stop: int) -> None:
            for first in range(start * COLUMNS, stop * COLUMNS, COLUMNS):
                columns = first, min(first + COLUMNS, above.shape[1])
                edges = centres, nodes, labels, order
                fill_shared(given[0], *given[3:7], *edges, weights, above, pulls, *of[3:], *columns)

        in_parallel(some_centres, len(own_weights), _cost(tensors))
        in_parallel(some_columns, -(-upstream.shape[1] // COLUMNS), COST * COLUMNS * len(weights))
        return *gradients, None, None, None, None


def _tensors(inputs: EgoInputs) -> list[Tensor]:
    return [getattr(inputs, name) for name in inputs.__dataclass_fields__]


def _cost(tensors: list[Tensor]) -> int:
    """Return the mean number of operations per centre."""
    centres, edges = max(len(tensors[0]), 1), len(tensors[8])
    return COST * tensors[0].shape[1] * (edges // centres + 1)


def _modulated(rows: Tensor, factors: Tensor, inputs: EgoInputs) -> Tensor:
    """Return the modulated row of each edge: (edges, d)."""
    return rows.index_select(0, inputs.nodes) * factors.index_select(0, inputs.labels)


def _centre_first(own: Tensor, others: Tensor, offsets: Tensor) -> Tensor:
    """Interleave the rows of centres (n, d) and edges (edges, d), so that each centre precedes its edges."""
    numbers = torch.arange(len(offsets), device=offsets.device)
    centre_of_edge = torch.repeat_interleave(numbers[1:], offsets.diff(), output_size=len(others))  # counted from 1
    rows = own.new_empty(len(own) + len(others), own.shape[1])
    places = torch.arange(len(others), device=offsets.device) + centre_of_edge
    return rows.index_copy(0, (offsets + numbers)[:-1], own).index_copy(0, places, others)


def _split(x: Tensor, heads: int) -> Tensor:
    """Split into heads: (n, d) → (n, heads, d / heads)."""
    return x.view(len(x), heads, x.shape[1] // heads)


@numba.njit(nogil=True, cache=True, fastmath=ANY_ORDER)
def dot(left: Float32Array, right: Float32Array) -> np.float32:
    total = np.float32(0)
    for k in range(len(left)):
        total += left[k] * right[k]
    return total


@numba.njit(nogil=True, cache=True, fastmath=ANY_ORDER)
def dot_of_three(left: Float32Array, middle: Float32Array, right: Float32Array) -> np.float32:
    total = np.float32(0)
    for k in range(len(left)):
        total += left[k] * middle[k] * right[k]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill_attention(  # type: ignore[no-untyped-def]
    query, own_keys, own_values, keys, values, key_factors, value_factors, offsets, nodes, labels,
    own_weights, weights, result, start, stop,
):  # fmt: skip
    """Fill in the weights and results of the centres start … stop - 1."""
    heads, width = weights.shape[1], query.shape[1] // weights.shape[1]
    scale = np.float32(1 / math.sqrt(width))
    for centre in range(start, stop):
        first, last = offsets[centre], offsets[centre + 1]
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            asked = query[centre, part]
            own = dot(asked, own_keys[centre, part]) * scale
            highest = own
            for edge in range(first, last):
                score = dot_of_three(asked, keys[nodes[edge], part], key_factors[labels[edge], part]) * scale
                weights[edge, head] = score
                highest = max(highest, score)
            own = np.float32(math.exp(own - highest))
            total = own
            for edge in range(first, last):
                power = np.float32(math.exp(weights[edge, head] - highest))
                weights[edge, head] = power
                total += power
            own_weights[centre, head] = own / total
            for edge in range(first, last):
                weights[edge, head] /= total
            target, value, weight = result[centre, part], own_values[centre, part], own_weights[centre, head]
            for k in range(width):
                target[k] = weight * value[k]
            for edge in range(first, last):
                weight, value, factor = (
                    weights[edge, head],
                    values[nodes[edge], part],
                    value_factors[labels[edge], part],
                )
                for k in range(width):
                    target[k] += weight * value[k] * factor[k]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill_centre_gradients(  # type: ignore[no-untyped-def]
    query, own_keys, own_values, keys, values, key_factors, value_factors, offsets, nodes, labels,
    own_weights, weights, upstream, pulls, of_query, of_own_keys, of_own_values, start, stop,
):  # fmt: skip
    """Fill in the gradients of the scores of edges, and of the centres start … stop - 1."""
    heads, width = weights.shape[1], query.shape[1] // weights.shape[1]
    scale = np.float32(1 / math.sqrt(width))
    for centre in range(start, stop):
        first, last = offsets[centre], offsets[centre + 1]
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            above, own_weight = upstream[centre, part], own_weights[centre, head]
            own = dot(above, own_values[centre, part])
            mean = own_weight * own
            for edge in range(first, last):
                pull = dot_of_three(above, values[nodes[edge], part], value_factors[labels[edge], part])
                pulls[edge, head] = pull
                mean += weights[edge, head] * pull
            own = own_weight * (own - mean) * scale
            asked, key = query[centre, part], own_keys[centre, part]
            of_asked, of_key, of_value = of_query[centre, part], of_own_keys[centre, part], of_own_values[centre, part]
            for k in range(width):
                of_asked[k] = own * key[k]
            for k in range(width):
                of_key[k] = own * asked[k]
            for k in range(width):
                of_value[k] = own_weight * above[k]
            for edge in range(first, last):
                pull = weights[edge, head] * (pulls[edge, head] - mean) * scale
                pulls[edge, head] = pull
                key, factor = keys[nodes[edge], part], key_factors[labels[edge], part]
                for k in range(width):
                    of_asked[k] += pull * key[k] * factor[k]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill_shared_gradients(  # type: ignore[no-untyped-def]
    query, keys, values, key_factors, value_factors, centres, nodes, labels, order,
    weights, upstream, pulls, of_keys, of_values, of_key_factors, of_value_factors, first_column, last_column,
):  # fmt: skip
    """Add to the gradients of nodes and labels, in the columns from `first_column` on; `order` sorts edges by node."""
    heads = weights.shape[1]
    width = query.shape[1] // heads
    for head in range(heads):
        begin, end = max(first_column, head * width), min(last_column, (head + 1) * width)
        if begin >= end:
            continue
        part = slice(begin, end)
        for edge in order:
            centre, node, label = centres[edge], nodes[edge], labels[edge]
            pull, weight = pulls[edge, head], weights[edge, head]
            asked, key, key_factor = query[centre, part], keys[node, part], key_factors[label, part]
            of_key, of_key_factor = of_keys[node, part], of_key_factors[label, part]
            for k in range(end - begin):
                pulled = pull * asked[k]
                of_key[k] += pulled * key_factor[k]
                of_key_factor[k] += pulled * key[k]
            above, value, value_factor = upstream[centre, part], values[node, part], value_factors[label, part]
            of_value, of_value_factor = of_values[node, part], of_value_factors[label, part]
            for k in range(end - begin):  # a loop of its own, as LLVM vectorises none with so many arrays
                carried = weight * above[k]
                of_value[k] += carried * value_factor[k]
                of_value_factor[k] += carried * value[k]
