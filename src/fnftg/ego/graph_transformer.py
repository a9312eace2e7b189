"""The Graph Transformer Encoder (GT): from a centre's vector and its ego-graph to the entity's embedding.

The paper's layer is quadratic in the ego-graph, but only the centre is read out of it. So only the centre's row of the
attention is computed: exactly the paper's result at a cost linear in the neighbours, ragged, never padded.
Keys, values and the relations' modulation run over distinct nodes and labels; per edge only elementwise work remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fnftg.ego.label_histogram import LabelCounts, LabelHistogram
from fnftg.ego.swiglu import SwiGLU
from fnftg.errors import FnftgError
from fnftg.kernels.segments import attend, attention_weights


@dataclass(frozen=True)
class GraphTransformerConfig:
    """The paper's layer is the default; the switches are its ablations and what goes beyond it.

    Args:
        heads: attention heads; the paper's formula has one.
        relations: r_ij: edges modulate the attention by their label's text.
        segments: s[CENTRE] and s[NEIGHBOUR] are added to the inputs.
        modulated_values: beyond the paper: values are modulated by 1 + LN(r_ij) W as keys are.
        label_histogram: beyond the paper: the number of edges of each label is added to the centre's input.
        feed_forward: width of the SwiGLU layer as a multiple of d.
        dropout: after the attention and after the feed-forward layer.
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
            raise FnftgError(f"A graph transformer needs at least one head, not {self.heads}.")
        if not 0 <= self.dropout < 1 or self.feed_forward <= 0:
            raise FnftgError(f"dropout {self.dropout} must be in [0, 1) and feed_forward {self.feed_forward} above 0.")


@dataclass(frozen=True)
class EgoEdges:
    """Ego-graphs over distinct nodes and labels: the edges of centre i stand at offsets[i] to offsets[i + 1]."""

    offsets: Tensor  # (centres + 1,)
    nodes: Tensor  # (edges,): rows of the distinct neighbours' vectors
    labels: Tensor  # (edges,): rows of the distinct labels' vectors
    counts: LabelCounts | None = None  # of the same edges, for a GT with a label histogram

    def repeated(self, times: int) -> EgoEdges:
        """The same ego-graphs for further centres: once more for each."""
        starts = [self.offsets[:-1] + len(self.nodes) * turn for turn in range(times)]
        return EgoEdges(
            torch.cat([*starts, self.offsets[-1:] * times]),
            self.nodes.repeat(times),
            self.labels.repeat(times),
            None if self.counts is None else self.counts.repeated(times, len(self.offsets) - 1),
        )


class GraphTransformer(nn.Module):
    """Pre-LayerNorm attention over the ego-graph, then SwiGLU."""

    def __init__(self, width: int, config: GraphTransformerConfig):
        super().__init__()
        if width % config.heads:
            raise FnftgError(f"A width of {width} cannot be shared by {config.heads} heads: choose a divisor of it.")
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
        """centres (n, d), distinct neighbours (m, d), distinct labels (p, d) → (n, d)."""
        read: Tensor = self.layer(*self.inputs(centres, nodes, labels, edges), labels, edges)
        return read

    def attention(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> tuple[Tensor, Tensor]:
        """The weights that `forward` reads the nodes with: offsets (n + 1,), and (n + edges, heads) of which each
        centre's own comes before those of its neighbours."""
        return self.layer.attention(*self.inputs(centres, nodes, labels, edges), labels, edges)

    def inputs(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> tuple[Tensor, Tensor]:
        """What the layer reads: centres (n, d), distinct neighbours (m, d)."""
        centres, nodes = centres + self.centre, nodes + self.neighbour
        if self.label_histogram is not None:
            assert edges.counts is not None
            centres = centres + self.label_histogram(labels, edges.counts, len(centres))
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
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> Tensor:
        """The centres' rows of the layer: (n, d)."""
        own, others = self.before_attention(centres), self.before_attention(nodes)  # (n, d), (m, d)
        key_factors, value_factors = self.modulation(labels)  # (p, d) or None
        places = CentreFirst.of(edges.offsets, len(edges.nodes))
        query, keys = self.queries_and_keys(own, others, key_factors, edges, places)
        values = self.split(places.rows(self.value(own), modulated(self.value(others), value_factors, edges)))
        attended = attend(query, keys, values, places.offsets).flatten(1)
        return self.after_attention(centres, attended)

    def attention(self, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges) -> tuple[Tensor, Tensor]:
        """The weights of the centres' rows: offsets (n + 1,), and (n + edges, heads), the centre first."""
        own, others = self.before_attention(centres), self.before_attention(nodes)
        places = CentreFirst.of(edges.offsets, len(edges.nodes))
        query, keys = self.queries_and_keys(own, others, self.modulation(labels)[0], edges, places)
        return places.offsets, attention_weights(query, keys, places.offsets)

    def queries_and_keys(
        self, own: Tensor, others: Tensor, factors: Tensor | None, edges: EgoEdges, places: CentreFirst
    ) -> tuple[Tensor, Tensor]:
        """What the attention compares: (n, heads, d / heads) with (n + edges, heads, d / heads), the centre first."""
        keys = modulated(self.key(others), factors, edges)  # (edges, d)
        keys = places.rows(self.key(own), keys)
        return self.split(self.query(own)), self.split(keys)

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(self.output(attended))
        fed: Tensor = self.dropout(self.feed_forward(self.before_feed_forward(x)))
        return x + fed

    def modulation(self, labels: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """1 + LN(r) W_R for the keys and, beyond the paper, likewise for the values: (p, d) each."""
        if not self.config.relations:
            return None, None
        normed = self.relation_norm(labels)
        values = 1 + self.relation_value(normed) if self.config.modulated_values else None
        return 1 + self.relation_key(normed), values

    def split(self, x: Tensor) -> Tensor:
        """(…, d) → (…, heads, d / heads)"""
        return x.view(*x.shape[:-1], self.heads, x.shape[-1] // self.heads)


def modulated(rows: Tensor, factors: Tensor | None, edges: EgoEdges) -> Tensor:
    """The rows of each edge's neighbour, times the factors of its label: (edges, d)."""
    gathered = rows.index_select(0, edges.nodes)
    return gathered if factors is None else gathered * factors.index_select(0, edges.labels)


@dataclass(frozen=True)
class CentreFirst:
    """Where ragged rows stand once each centre's own row comes before those of its neighbours."""

    offsets: Tensor  # (n + 1,)
    others: Tensor  # (edges,): the new places of the neighbours' rows

    @classmethod
    def of(cls, offsets: Tensor, edges: int) -> CentreFirst:
        numbers = torch.arange(len(offsets), device=offsets.device)
        centre_of_edge = torch.repeat_interleave(numbers[1:], offsets.diff(), output_size=edges)  # counted from 1
        return cls(offsets + numbers, torch.arange(edges, device=offsets.device) + centre_of_edge)

    def rows(self, own: Tensor, others: Tensor) -> Tensor:
        """(n, d), (edges, d) → (n + edges, d)"""
        rows = own.new_empty(len(own) + len(others), own.shape[1])
        return rows.index_copy(0, self.offsets[:-1], own).index_copy(0, self.others, others)
