"""The label_histogram of an ego-graph: how many edges of each label there are.

Attention is a mean: it cannot tell one edge from ten, nor that a label is missing. The label_histogram can.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fnftg.ego.swiglu import SwiGLU


class LabelHistogram(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.feed_forward = SwiGLU(width, width)

    def forward(self, labels: Tensor, offsets: Tensor, label_of_edge: Tensor) -> Tensor:
        """Distinct labels (p, d), ragged edges of n centres → (n, d): SwiGLU of the sum of log(1 + count) · label."""
        count = len(offsets) - 1
        centre_of_edge = torch.repeat_interleave(
            torch.arange(count, device=offsets.device), offsets.diff(), output_size=len(label_of_edge)
        )
        pairs, counts = torch.unique(centre_of_edge * len(labels) + label_of_edge, return_counts=True)
        weighted = labels[pairs % len(labels)] * torch.log1p(counts.to(labels.dtype))[:, None]
        sums = labels.new_zeros(count, labels.shape[1]).index_add(0, pairs // len(labels), weighted)
        label_histogram: Tensor = self.feed_forward(self.norm(sums))
        return label_histogram
