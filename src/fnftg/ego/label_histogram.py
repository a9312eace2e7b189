"""The label histogram of an ego-graph: the number of edges by label.

Attention computes a mean, which does not depend on the number of edges and cannot represent missing labels. The label
histogram adds this information.
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
    """The number of edges of each pair (centre, label) that has any."""

    centres: Tensor  # (pairs,)
    labels: Tensor  # (pairs,): rows of the distinct labels' vectors
    numbers: Tensor  # (pairs,)
    size: int  # number of centres


def count_labels(offsets: Int64Array, labels: IntArray) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Count ragged edges by centre and label (edges,). Returns the centres, labels and numbers of `LabelCounts`."""
    size = int(labels.max()) + 1 if len(labels) else 1
    centre_of_edge = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs, numbers = np.unique(centre_of_edge * size + labels, return_counts=True)
    return pairs // size, pairs % size, numbers


class LabelHistogram(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.feed_forward = SwiGLU(width, width)

    def forward(self, labels: Tensor, counts: LabelCounts) -> Tensor:
        """Return SwiGLU(LN(Σ log(1 + count) · label)) over the labels of each centre, (n, d), from labels (p, d)."""
        weighted = labels[counts.labels] * torch.log1p(counts.numbers.to(labels.dtype))[:, None]
        sums = labels.new_zeros(counts.size, labels.shape[1]).index_add(0, counts.centres, weighted)
        histogram: Tensor = self.feed_forward(self.norm(sums))
        return histogram
