"""The Graph Transformer encoder (GT), which computes an entity's embedding from its text's vector and its ego-graph.

The cost of the paper's layer is quadratic in the size of the ego-graph, but only the centre's output is used. Computing
only the centre's row of the attention gives the same result at a cost linear in the number of neighbours. Edges are
ragged, without padding. Keys, values and the modulation by relations are computed once per distinct node and label.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fnftg.ego.label_histogram import LabelCounts, LabelHistogram
from fnftg.ego.swiglu import SwiGLU
from fnftg.errors import FnftgError
from fnftg.kernels.dropout import Dropout
from fnftg.kernels.ego_attention import EgoInputs, ego_attention, ego_attention_weights


@dataclass(frozen=True)
class GraphTransformerConfig:
    """The configuration of the Graph Transformer. The default is the paper's layer.

    Args:
        heads: number of attention heads; the paper's formula has one.
        relations: whether the texts of the edges' labels (r_ij) modulate the attention.
        segments: whether segment embeddings s[CENTRE] and s[NEIGHBOUR] are added to the inputs.
        modulated_values: beyond the paper: whether values are modulated by 1 + LN(r_ij) W, as keys are.
        label_histogram: beyond the paper: whether the counts of edges by label are added to the centre's input.
        feed_forward: width of the SwiGLU layer as a multiple of d.
        dropout: dropout after the attention and after the feed-forward layer.
    """

    heads: int = 1
    relations: bool = True
    segments: bool = True
    modulated_values: bool = False
    label_histogram: bool = False
    feed_forward: float = 8 / 3
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise FnftgError(f"heads is {self.heads}: it must be at least 1.")
        if not 0 <= self.dropout < 1 or self.feed_forward <= 0:
            raise FnftgError(f"dropout {self.dropout} must be in [0, 1) and feed_forward {self.feed_forward} above 0.")


@dataclass(frozen=True)
class EgoEdges:
    """Ego-graphs over distinct nodes and labels. The edges of centre i are at offsets[i] to offsets[i + 1] - 1."""

    offsets: Tensor  # (centres + 1,)
    nodes: Tensor  # (edges,): rows of the distinct neighbours' vectors
    labels: Tensor  # (edges,): rows of the distinct labels' vectors
    counts: LabelCounts | None = None  # of these edges before they were repeated, for a GT with a label histogram

    def repeated(self, times: int) -> EgoEdges:
        """Return the ego-graphs repeated `times` times, for further centres."""
        starts = [self.offsets[:-1] + len(self.nodes) * turn for turn in range(times)]
        return EgoEdges(
            torch.cat([*starts, self.offsets[-1:] * times]),
            self.nodes.repeat(times),
            self.labels.repeat(times),
            self.counts,
        )


class GraphTransformer(nn.Module):
    """Pre-LayerNorm attention over the ego-graph, followed by SwiGLU."""

    def __init__(self, width: int, config: GraphTransformerConfig):
        super().__init__()
        if width % config.heads:
            raise FnftgError(
                f"The width {width} is not divisible by {config.heads} heads: choose another number of heads."
            )
        self.config = config
        self.centre = nn.Parameter(torch.zeros(width))  # s[CENTRE]
        self.neighbour = nn.Parameter(torch.zeros(width))  # s[NEIGHBOUR]
        if config.segments:
            nn.init.normal_(self.centre, std=0.02)
            nn.init.normal_(self.neighbour, std=0.02)
        else:
            self.centre.requires_grad_(False)
            self.neighbour.requires_grad_(False)
        self.label_histogram = LabelHistogram(width) if config.label_histogram else None
        self.layer = GraphLayer(width, config)

    def forward(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> Tensor:
        """Encode centres (n, d) with distinct neighbours (m, d) and distinct labels (p, d): (n, d)."""
        read: Tensor = self.layer(*self.inputs(centres, nodes, labels, edges), labels, edges)
        return read

    def attention(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> tuple[Tensor, Tensor]:
        """Return the attention weights of `forward`: offsets (n + 1,) and weights (n + edges, heads).

        The weight of each centre comes before those of its neighbours.
        """
        return self.layer.attention(*self.inputs(centres, nodes, labels, edges), labels, edges)

    def inputs(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> tuple[Tensor, Tensor]:
        """Return the inputs of the layer: centres (n, d), distinct neighbours (m, d)."""
        centres, nodes = centres + self.centre, nodes + self.neighbour
        if self.label_histogram is not None:
            assert edges.counts is not None
            histogram = self.label_histogram(labels, edges.counts)
            centres = centres + histogram.repeat(len(centres) // max(len(histogram), 1), 1)
        return centres, nodes


class GraphLayer(nn.Module):
    def __init__(self, width: int, config: GraphTransformerConfig):
        super().__init__()
        self.heads, self.config = config.heads, config
        self.before_attention = nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)  # W_Q
        self.key = nn.Linear(width, width, bias=False)  # W_K
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        if config.relations:
            self.relation_norm = nn.LayerNorm(width)
            self.relation_key = nn.Linear(width, width, bias=False)  # W_R
            nn.init.normal_(self.relation_key.weight, std=0.02)
            if config.modulated_values:
                self.relation_value = nn.Linear(width, width, bias=False)
                nn.init.normal_(self.relation_value.weight, std=0.02)
        self.before_feed_forward = nn.LayerNorm(width)
        self.feed_forward = SwiGLU(width, round(width * config.feed_forward))
        self.dropout = Dropout(config.dropout)

    def forward(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> Tensor:
        """Compute the layer's output for the centres, (n, d)."""
        attended = ego_attention(self.attention_inputs(centres, nodes, labels, edges), self.heads)
        return self.after_attention(centres, attended)

    def attention(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> tuple[Tensor, Tensor]:
        """Return the weights of the centres' attention: offsets (n + 1,), weights (n + edges, heads), centre first."""
        return ego_attention_weights(self.attention_inputs(centres, nodes, labels, edges), self.heads)

    def attention_inputs(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> EgoInputs:
        """Compute queries, keys and values, once per distinct node and label."""
        own, others = self.before_attention(centres), self.before_attention(nodes)  # (n, d), (m, d)
        return EgoInputs(
            self.query(own),
            self.key(own),
            self.value(own),
            self.key(others),
            self.value(others),
            *self.modulation(labels),
            edges.offsets,
            edges.nodes,
            edges.labels,
        )

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(self.output(attended))
        fed: Tensor = self.dropout(self.feed_forward(self.before_feed_forward(x)))
        return x + fed

    def modulation(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors 1 + LN(r) W_R of the keys and, beyond the paper, those of the values, (p, d) each."""
        ones = torch.ones_like(labels)
        if not self.config.relations:
            return ones, ones
        normed = self.relation_norm(labels)
        values = 1 + self.relation_value(normed) if self.config.modulated_values else ones
        return 1 + self.relation_key(normed), values
