"""The label histogram of an ego-graph: how many edges of each label there are.

Attention is a mean: it cannot tell one edge from ten, nor that a label is missing. The label histogram can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fnftg.arrays import Int64Array, IntArray
from fnftg.ego.swiglu import SwiGLU


@dataclass(frozen=True)
class LabelCounts:
    """How many edges of each label each centre has, for the pairs (centre, label) that have any."""

    centres: Tensor  # (pairs,)
    labels: Tensor  # (pairs,): rows of the distinct labels' vectors
    numbers: Tensor  # (pairs,)

    def repeated(self, times: int, centres: int) -> LabelCounts:
        """The same ego-graphs for further centres: once more for each of the `centres`."""
        rows = torch.cat([self.centres + centres * turn for turn in range(times)])
        return LabelCounts(rows, self.labels.repeat(times), self.numbers.repeat(times))


def count_labels(offsets: Int64Array, labels: IntArray) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The centres, labels and numbers of `LabelCounts`, of ragged edges whose labels (edges,) are rows."""
    size = int(labels.max()) + 1 if len(labels) else 1
    centre_of_edge = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs, numbers = np.unique(centre_of_edge * size + labels, return_counts=True)
    return pairs // size, pairs % size, numbers


class LabelHistogram(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.feed_forward = SwiGLU(width, width)

    def forward(self, labels: Tensor, counts: LabelCounts, centres: int) -> Tensor:
        """Distinct labels (p, d), counts of n centres → (n, d): SwiGLU of the sum of log(1 + count) · label."""
        weighted = labels[counts.labels] * torch.log1p(counts.numbers.to(labels.dtype))[:, None]
        sums = labels.new_zeros(centres, labels.shape[1]).index_add(0, counts.centres, weighted)
        histogram: Tensor = self.feed_forward(self.norm(sums))
        return histogram
