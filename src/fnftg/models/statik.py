"""StATIK (Markowitz et al., 2022): the encoder's output for a text plus messages from its neighbours, then TransE.

Messages are made of frozen features: of the neighbours, of the centre itself and of the relations between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import Int32Array
from fnftg.ego.config import EgoConfig
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.relations import Relations, RelationsFrom
from fnftg.models.scoring import compose_queries, similarity
from fnftg.models.text_inputs import Join, conditioned, entity_vectors, to_index
from fnftg.models.text_only import check_choices
from fnftg.text.encoders import Encoder, TextConfig
from fnftg.text.transformer import GraphTexts, TextProjection


@dataclass(frozen=True)
class StATIKConfig:
    """StATIK; as published with text.training finetune-centre, text.query text and features that are never refreshed.

    Args:
        text: the encoder; centre trains it on queries and candidates, frozen not at all; the neighbours' features
            are not trained, but with centre refreshed as training.refresh_every says.
        ego: the ego-graphs.
        layers: of message passing.
        dropout: of the features that messages start from, and after each layer.
        relations: table, one learned vector for each relation of the training graph, or text, from their descriptions.
    """

    text: TextConfig = field(default_factory=TextConfig)
    ego: EgoConfig = field(default_factory=EgoConfig)
    layers: int = 2
    dropout: float = 0.0
    relations: RelationsFrom = "table"

    def __post_init__(self) -> None:
        check_choices("transe", self.relations)
        if self.text.training == "finetune":
            raise FnftgError("StATIK's neighbours have frozen features: set text.training finetune-centre or frozen.")
        if self.layers < 1 or not 0 <= self.dropout < 1:
            raise FnftgError("StATIK needs at least one layer and dropout in [0, 1).")


class StATIK(LinkPredictor):
    system = "statik"

    def __init__(self, config: StATIKConfig, encoder: Encoder, relations: int):
        super().__init__()
        self.config, self.relations = config, relations
        self.ego, self.by_distance = config.ego, True
        self.tt = TextProjection(config.text, encoder)
        self.width = d = self.tt.width
        self.join = Join(d) if config.text.query == "vector" else None
        self.entity_input, self.relation_input = nn.Linear(encoder.hidden, d), nn.Linear(encoder.hidden, d)
        self.entity_norm, self.relation_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.direction = nn.Embedding(2, d)
        self.layers = nn.ModuleList(MessagePassing(d, config.dropout) for _ in range(config.layers))
        self.updates = nn.ModuleList(EdgeUpdate(d) for _ in range(config.layers - 1))  # after the last none is read
        self.text_norm, self.graph_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout = nn.Dropout(config.dropout)
        self.relation = Relations(config.relations, relations, d, self.system)

    @property
    def reads_query_texts(self) -> bool:
        return self.join is None

    def forward(
        self,
        texts: GraphTexts,
        centres: Int32Array,
        egos: EgoGraphs,
        labels: Int32Array | None = None,
        candidates: bool = True,
    ) -> tuple[Tensor | None, Tensor | None]:
        """A centre as a candidate and as a query has the same neighbours and so the same messages."""
        graph = self.graph_norm(self.messages(texts, centres, egos))  # (n, d)
        own = entity_vectors(self.tt, texts, centres) if candidates or self.join is not None else torch.empty(0)
        query_embeddings = None
        if labels is not None:
            query = self.text_norm(conditioned(self.tt, self.join, texts, centres, labels, own)) + graph
            relations = self.relation(self.tt, texts, labels)
            query_embeddings = compose_queries("transe", query, relations, torch.from_numpy(labels >= texts.relations))
        return self.text_norm(own) + graph if candidates else None, query_embeddings

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        return similarity("transe", query_embeddings, candidates)

    def messages(self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs) -> Tensor:
        """The centres after all layers: (n, d)."""
        distinct, place = np.unique(np.concatenate([centres, egos.neighbours]), return_inverse=True)
        nodes = self.tt.features(texts, to_index(distinct), cached=True)  # (m, hidden)
        nodes = self.entity_norm(self.entity_input(self.dropout(nodes)))[to_index(place)]
        relation, place = np.unique(egos.labels % texts.relations, return_inverse=True)
        kinds = self.tt.features(texts, texts.relation_row(to_index(relation)), cached=True)  # (p, hidden)
        kinds = self.relation_norm(functional.leaky_relu(self.relation_input(kinds)))
        incoming = torch.from_numpy(egos.labels >= texts.relations)  # the neighbour is the head, the centre the tail
        centre = torch.repeat_interleave(torch.from_numpy(np.diff(egos.offsets)))  # (edges,): of each edge
        x: Tensor = nodes[: len(centres)]  # (n, d)
        neighbours: Tensor = nodes[len(centres) :]  # (edges, d)
        label, of_edge = torch.unique(to_index(place) * 2 + incoming, return_inverse=True)
        edges = kinds[label // 2] + self.direction((label % 2).to(x.device))  # (distinct labels, d)
        for number, layer in enumerate(self.layers):
            last = number == len(self.updates)
            x, neighbours = layer(x, neighbours, edges, of_edge, centre, incoming, last)
            if not last:
                edges = self.updates[number](x, neighbours, edges, of_edge, centre, incoming)  # (edges, d)
                of_edge = torch.arange(len(edges))
        return x


class MessagePassing(nn.Module):
    """Messages along edges and against them, each direction with a transform of its own; their mean is taken in.

    A message is linear in [x; e; x + e; x × e], of its sender x and its edge e. So those to a centre are added up
    before they are transformed, and what depends on a sender or an edge alone is transformed once for all messages.
    """

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.along, self.against = nn.Linear(4 * width, width), nn.Linear(4 * width, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(
        self,
        centres: Tensor,
        neighbours: Tensor,
        edges: Tensor,
        of_edge: Tensor,
        centre: Tensor,
        incoming: Tensor,
        last: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """centres (n, d), neighbours (edges, d), vectors of edges (m, d) and which of them an edge has → both kinds of
        nodes after the messages have come; the neighbours of the last layer are not read."""
        means = torch.zeros_like(centres)
        counts = torch.bincount(centre, minlength=len(centres)).clamp(min=1).to(centres.device)
        sent = torch.zeros_like(neighbours)
        for transform, place in self.directions(incoming):
            own, x, e = centre[place].to(centres.device), neighbours[place], edges[of_edge[place]]
            sums = [torch.zeros_like(centres).index_add(0, own, rows_) for rows_ in (x, e, x * e)]
            number = torch.bincount(centre[place], minlength=len(centres)).to(centres)[:, None]
            weight = functional.linear(torch.cat([*sums[:2], sums[0] + sums[1], sums[2]], dim=-1), transform.weight)
            means = means + (weight + number * transform.bias) / counts[:, None]
        if last:
            return self.taken_in(centres, means), neighbours
        for transform, place in self.directions(~incoming):
            of_x, of_e, of_sum, of_product = transform.weight.chunk(4, dim=1)
            by_centre, by_edge = centres @ (of_x + of_sum).T, edges @ (of_e + of_sum).T
            products = (centres[centre[place]] * edges[of_edge[place]]) @ of_product.T
            messages = by_centre[centre[place]] + by_edge[of_edge[place]] + products + transform.bias
            sent = sent.index_copy(0, place.to(sent.device), messages.to(sent.dtype))
        return self.taken_in(centres, means), self.taken_in(neighbours, sent)

    def directions(self, along: Tensor) -> list[tuple[nn.Linear, Tensor]]:
        """The edges whose messages go along them, and those whose messages go against them."""
        return [(self.along, along.nonzero().squeeze(1)), (self.against, (~along).nonzero().squeeze(1))]

    def taken_in(self, nodes: Tensor, messages: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.norm(functional.leaky_relu(messages) + nodes))
        return out


class EdgeUpdate(nn.Module):
    """An edge learns what its two ends have become: LN(σ([h; e; t] W) + e)."""

    def __init__(self, width: int):
        super().__init__()
        self.transform, self.norm = nn.Linear(3 * width, width), nn.LayerNorm(width)

    def forward(
        self, centres: Tensor, neighbours: Tensor, edges: Tensor, of_edge: Tensor, centre: Tensor, incoming: Tensor
    ) -> Tensor:
        """As for messages; each edge has a vector of its own from here on: (edges, d)."""
        of_head, of_edges, of_tail = self.transform.weight.chunk(3, dim=1)
        update = (edges @ of_edges.T)[of_edge] + self.transform.bias
        for heads, place in ((True, incoming.nonzero().squeeze(1)), (False, (~incoming).nonzero().squeeze(1))):
            of_neighbour, of_centre = (of_head, of_tail) if heads else (of_tail, of_head)
            ends = neighbours[place] @ of_neighbour.T + (centres @ of_centre.T)[centre[place]]
            update = update.index_add(0, place.to(update.device), ends.to(update.dtype))
        out: Tensor = self.norm(functional.leaky_relu(update) + edges[of_edge])
        return out
