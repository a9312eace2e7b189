"""StATIK (Markowitz et al., 2022): the encoder's output for a text plus messages from its neighbours, then TransE.

Messages are computed from cached features of the neighbours, the centre and the relations, without gradients through
the encoder.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.kernels.dropout import Dropout
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.relations import RelationEmbedding, RelationsFrom
from fnftg.models.scoring import compose_queries, similarity
from fnftg.models.text_inputs import Join, conditioned, entity_vectors, text_rows, to_device, to_index
from fnftg.models.text_only import check_choices
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts, TextProjection


@dataclass(frozen=True)
class StATIKConfig:
    """StATIK: the encoded text plus messages from neighbours.

    The published system uses text.training finetune-centre, text.query text and features that are never refreshed.

    Args:
        text: the encoder. text.training finetune-centre trains it on the texts of queries and candidates and refreshes
            the neighbours' features every training.refresh_every epochs; frozen does not train it.
        ego: the ego-graphs.
        layers: number of message-passing layers.
        dropout: dropout of the input features and after each layer.
        relations: table learns one vector per relation of the training graph; text encodes the relation's text.
    """

    text: TextConfig = field(default_factory=TextConfig)
    ego: EgoConfig = field(default_factory=EgoConfig)
    layers: int = 2
    dropout: float = 0.0
    relations: RelationsFrom = "table"

    def __post_init__(self) -> None:
        check_choices("transe", self.relations)
        if self.text.training == "finetune":
            raise FnftgError("StATIK caches its neighbours' features: set text.training to finetune-centre or frozen.")
        if self.layers < 1 or not 0 <= self.dropout < 1:
            raise FnftgError("StATIK needs model.layers ≥ 1 and model.dropout in [0, 1).")


class StATIK(LinkPredictor):
    """The StATIK model."""

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
        self.updates = nn.ModuleList(EdgeUpdate(d) for _ in range(config.layers - 1))  # not needed after the last layer
        self.text_norm, self.graph_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout = Dropout(config.dropout)
        self.relation = RelationEmbedding(config.relations, relations, d, self.system)

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
        """Embed candidates and queries; both use the same messages, as a centre has the same neighbours in both."""
        graph = self.graph_norm(self.messages(texts, centres, egos))  # (n, d)
        own = entity_vectors(self.tt, texts, centres) if candidates or self.join is not None else None
        query_embeddings = None
        if labels is not None:
            query = self.text_norm(conditioned(self.tt, self.join, texts, centres, labels, own)) + graph
            relations = self.relation(self.tt, texts, labels)
            inverse = to_device(labels >= texts.relations, query.device)
            query_embeddings = compose_queries("transe", query, relations, inverse)
        return self.text_norm(own) + graph if candidates else None, query_embeddings

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        return similarity("transe", query_embeddings, candidates)

    def messages(self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs) -> Tensor:
        """Return the centres after all message-passing layers: (n, d)."""
        distinct, place = np.unique(np.concatenate([centres, egos.neighbours]), return_inverse=True)
        features = self.tt.features(texts, text_rows(distinct), cached=True)  # (m, hidden)
        device = features.device
        nodes = self.entity_norm(self.entity_input(self.dropout(features)))[to_index(place, device)]
        relation, place = np.unique(egos.labels % texts.relations, return_inverse=True)
        kinds = self.tt.features(texts, texts.relation_row(text_rows(relation)), cached=True)  # (p, hidden)
        kinds = self.relation_norm(functional.leaky_relu(self.relation_input(kinds)))
        incoming = egos.labels >= texts.relations  # the neighbour is the head, the centre the tail
        x: Tensor = nodes[: len(centres)]  # (n, d)
        neighbours: Tensor = nodes[len(centres) :]  # (edges, d)
        labels, label_of_edge = np.unique(place * 2 + incoming, return_inverse=True)
        edges = kinds[to_index(labels // 2, device)] + self.direction(to_index(labels % 2, device))  # (labels, d)
        of_edge, directions = to_index(label_of_edge, device), EdgeDirections.of(egos, incoming, device)
        for number, layer in enumerate(self.layers):
            last = number == len(self.updates)
            x, neighbours = layer(x, neighbours, edges, of_edge, directions, last)
            if not last:
                edges = self.updates[number](x, neighbours, edges, of_edge, directions)  # (edges, d)
                of_edge = torch.arange(len(edges), device=device)
        return x


@dataclass(frozen=True)
class DirectedEdges:
    """The incoming or the outgoing edges of ego-graphs."""

    edges: Tensor  # (k,): indices into all edges
    centres: Tensor  # (k,): the centre of each edge
    degrees: Tensor  # (n,): number of these edges per centre

    @classmethod
    def of(cls, chosen: BoolArray, centre_of_edge: Int64Array, count: int, device: torch.device) -> DirectedEdges:
        centres = centre_of_edge[chosen]
        columns = np.flatnonzero(chosen), centres, np.bincount(centres, minlength=count)
        return cls(*(to_index(column, device) for column in columns))


@dataclass(frozen=True)
class EdgeDirections:
    """The edges of ego-graphs by direction."""

    incoming: DirectedEdges  # the neighbour is the head, the centre the tail
    outgoing: DirectedEdges
    degrees: Tensor  # (n,): number of edges of both directions, at least 1

    @classmethod
    def of(cls, egos: EgoGraphs, incoming: BoolArray, device: torch.device) -> EdgeDirections:
        degrees = np.diff(egos.offsets)
        centre_of_edge = np.repeat(np.arange(len(degrees)), degrees)
        return cls(
            DirectedEdges.of(incoming, centre_of_edge, len(degrees), device),
            DirectedEdges.of(~incoming, centre_of_edge, len(degrees), device),
            to_index(np.maximum(degrees, 1), device),
        )


class MessagePassing(nn.Module):
    """A message-passing layer with one linear transform per edge direction; a node receives the mean of its messages.

    A message is linear in [x; e; x + e; x × e], where x is the sender and e the edge. Therefore the inputs of a
    centre's messages are summed before the transform, and terms of a sender or an edge alone are computed only once.
    """

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.along, self.against = nn.Linear(4 * width, width), nn.Linear(4 * width, width)
        self.norm, self.dropout = nn.LayerNorm(width), Dropout(dropout)

    def forward(
        self,
        centres: Tensor,
        neighbours: Tensor,
        edges: Tensor,
        of_edge: Tensor,
        directions: EdgeDirections,
        last: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Update centres and neighbours.

        Args:
            centres: (n, d).
            neighbours: (edges, d).
            edges: distinct edge vectors, (m, d).
            of_edge: row in `edges` of each edge, (edges,).
            directions: the edges by direction.
            last: whether this is the last layer, whose neighbours are not needed and stay unchanged.
        """
        means = torch.zeros_like(centres)
        sent = torch.zeros_like(neighbours)
        for transform, some in ((self.along, directions.incoming), (self.against, directions.outgoing)):
            x, e = neighbours[some.edges], edges[of_edge[some.edges]]
            sums = [torch.zeros_like(centres).index_add(0, some.centres, rows) for rows in (x, e, x * e)]
            weight = functional.linear(torch.cat([*sums[:2], sums[0] + sums[1], sums[2]], dim=-1), transform.weight)
            biases = some.degrees.to(centres.dtype)[:, None] * transform.bias
            means = means + (weight + biases) / directions.degrees[:, None]
        if last:
            return self.updated(centres, means), neighbours
        for transform, some in ((self.along, directions.outgoing), (self.against, directions.incoming)):
            of_x, of_e, of_sum, of_product = transform.weight.chunk(4, dim=1)
            by_centre, by_edge = centres @ (of_x + of_sum).T, edges @ (of_e + of_sum).T
            edge = of_edge[some.edges]
            products = (centres[some.centres] * edges[edge]) @ of_product.T
            messages = by_centre[some.centres] + by_edge[edge] + products + transform.bias
            sent = sent.index_copy(0, some.edges, messages.to(sent.dtype))
        return self.updated(centres, means), self.updated(neighbours, sent)

    def updated(self, nodes: Tensor, messages: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.norm(functional.leaky_relu(messages) + nodes))
        return out


class EdgeUpdate(nn.Module):
    """Updates the vector of an edge from its two ends: LN(σ([h; e; t] W) + e)."""

    def __init__(self, width: int):
        super().__init__()
        self.transform, self.norm = nn.Linear(3 * width, width), nn.LayerNorm(width)

    def forward(
        self, centres: Tensor, neighbours: Tensor, edges: Tensor, of_edge: Tensor, directions: EdgeDirections
    ) -> Tensor:
        """Return one vector per edge, (edges, d); the arguments are those of `MessagePassing.forward`."""
        of_head, of_edges, of_tail = self.transform.weight.chunk(3, dim=1)
        update = (edges @ of_edges.T)[of_edge] + self.transform.bias
        ends_of = (directions.incoming, of_head, of_tail), (directions.outgoing, of_tail, of_head)
        for some, of_neighbour, of_centre in ends_of:
            ends = neighbours[some.edges] @ of_neighbour.T + (centres @ of_centre.T)[some.centres]
            update = update.index_add(0, some.edges, ends.to(update.dtype))
        out: Tensor = self.norm(functional.leaky_relu(update) + edges[of_edge])
        return out
