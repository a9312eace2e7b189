"""The feed-forward layer of the Graph Transformer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class SwiGLU(nn.Module):
    """(SiLU(x W) ∘ x V) W₂ (Shazeer, 2020)."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate_and_value = nn.Linear(width, 2 * inner, bias=False)
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.gate_and_value(x).chunk(2, dim=-1)
        out: Tensor = self.output(functional.silu(gate) * value)
        return out
