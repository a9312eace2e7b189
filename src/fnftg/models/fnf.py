"""FnF-TG and FnF-T, the paper's systems: a Text Transformer, a Graph Transformer over the ego-graph, and TransE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fnftg.arrays import Int32Array, IntArray
from fnftg.ego.ego_config import NO_EGO_GRAPHS, EgoConfig
from fnftg.ego.graph_transformer import EgoEdges, GraphTransformer, GraphTransformerConfig
from fnftg.ego.label_histogram import LabelCounts, count_labels
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.evidence.evidence import Evidence
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.sources import check_requirements
from fnftg.evidence.table import EvidenceTable
from fnftg.models.evidence_model import EvidenceModel
from fnftg.models.link_predictor import needs_ego_graphs
from fnftg.models.relations import RelationEmbedding, RelationsFrom
from fnftg.models.scoring import SCORES, ScoreName, compose_queries, similarity
from fnftg.models.text_inputs import (
    Join,
    conditioned,
    entity_vectors,
    label_vectors,
    text_rows,
    to_device,
    to_index,
)
from fnftg.models.text_only import check_choices
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts, TextProjection, TextTransformer


@dataclass(frozen=True)
class FnFConfig:
    """The model: FnF-TG by default, FnF-T without ego-graphs and relation conditioning.

    Args:
        text: the Text Transformer (TT).
        graph: the Graph Transformer (GT).
        ego: the ego-graphs.
        ego_graphs: read the ego-graphs of head and tail; if false, entities are represented by their texts only.
        relation_conditioning: encode queries as [h‖r] and [t‖r⁻¹]; if false, encode h and t without the relation.
        relations: relation vectors of the score: text encodes the relation's text with the TT (the paper's), projection
            with a linear layer of its own, for a frozen encoder, table learns one per relation of the training graph
            (BLP's).
        score: score function: transe (L1, the paper's), distmult, complex, simple, or cosine, which trains faster.
        normalise: scale entity vectors to length 1; always on with cosine.
        allow_self_answers: allow an entity as its own answer; if false, only for relations with a self-loop in train.
        evidence: evidence sources, added to the embedding score (beyond the paper).
    """

    text: TextConfig = field(default_factory=TextConfig)
    graph: GraphTransformerConfig = field(default_factory=GraphTransformerConfig)
    ego: EgoConfig = field(default_factory=EgoConfig)
    ego_graphs: bool = True
    relation_conditioning: bool = True
    relations: RelationsFrom | Literal["projection"] = "text"
    score: ScoreName | Literal["cosine"] = "transe"
    normalise: bool = False
    allow_self_answers: bool = True
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)

    def __post_init__(self) -> None:
        if self.score not in (*SCORES, "cosine"):
            raise FnftgError(f"There is no score {self.score!r}: choose one of {', '.join(SCORES)}, cosine.")
        if self.score == "cosine" and not self.relation_conditioning:
            raise FnftgError("The score cosine needs relation_conditioning: set model.relation_conditioning to true.")
        if self.relations != "projection":
            check_choices("transe", self.relations)
        elif self.text.training != "frozen":
            raise FnftgError("model.relations projection needs a frozen encoder: set model.relations to text.")
        if self.score == "cosine" and self.relations != "text":
            raise FnftgError("The score cosine has no relation vectors: set model.relations to text.")
        check_requirements(
            self.evidence,
            frozen_text=self.text.training == "frozen",
            both_directions=self.ego.directions == "both",
        )
        if not self.ego_graphs:
            needs_ego_graphs(self.text)


class FnF(EvidenceModel):
    """The FnF-TG or FnF-T model."""

    system = "fnf"

    def __init__(self, config: FnFConfig, encoder: Encoder, relations: int = 0):
        super().__init__()
        self.config, self.relations = config, relations
        self.ego, self.by_distance = config.ego if config.ego_graphs else NO_EGO_GRAPHS, config.score == "transe"
        self.by_product = not self.by_distance
        self.normalise = config.normalise or config.score == "cosine"
        self.tt = TextTransformer(config.text, encoder)
        self.width = self.tt.width
        if config.score in ("complex", "simple") and self.width % 2:
            raise FnftgError(
                f"The score {config.score} needs an even width, not {self.width}: change model.text.width."
            )
        self.gt = GraphTransformer(self.width, config.graph) if config.ego_graphs else None
        joined = config.relation_conditioning and config.text.query == "vector"
        self.join = Join(self.width) if joined else None
        self.relation = RelationEmbedding(config.relations, relations, self.width, self.system)
        projected = config.relations == "projection"
        self.relation_tt = TextProjection(config.text, encoder, self.width) if projected else None
        if self.relation_tt is not None:  # starts at 0, so that texts unlike those of training translate by little
            torch.nn.init.zeros_(self.relation_tt.w.weight)
        self.allow_self_answers = config.allow_self_answers
        self.evidence = Evidence(config.evidence, self.width, relations) if config.evidence.sources else None

    def forward(
        self,
        texts: GraphTexts,
        centres: Int32Array,
        egos: EgoGraphs,
        labels: Int32Array | None = None,
        candidates: bool = True,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Embed candidates and queries; each distinct text is encoded once, as centre, as neighbour or as both."""
        x, around = self.graph_inputs(texts, centres, egos, labels, candidates)
        if self.gt is not None and around is not None:
            x = self.gt(x, *around)
        if self.normalise:
            x = functional.normalize(x, dim=-1)
        query_embeddings = None
        if labels is not None:
            query_embeddings = self.query_embeddings(texts, x[-len(centres) :], labels)
        return x[: len(centres)] if candidates else None, query_embeddings

    def attention(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array
    ) -> list[tuple[Tensor, Tensor]] | None:
        """Return the attention weights of the Graph Transformer for all centres as candidates, then as queries.

        The list has one item, the result of `GraphTransformer.attention`. Without ego-graphs, return None.
        """
        if self.gt is None:
            return None
        x, around = self.graph_inputs(texts, centres, egos, labels, True)
        assert around is not None
        return [self.gt.attention(x, *around)]

    def graph_inputs(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array | None, candidates: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor, EgoEdges] | None]:
        """Compute the inputs of the Graph Transformer.

        Returns:
            The centres as candidates, then as queries (n or 2n, d), and a tuple of the distinct neighbours (m, d), the
            distinct labels (p, d) and the edges; None in place of the tuple if the model has no ego-graphs.
        """
        own, nodes, node_of_edge = self.node_vectors(texts, centres, egos)
        centre_vectors = [own] if candidates else []
        if labels is not None:
            known = self.config.relation_conditioning
            centre_vectors.append(conditioned(self.tt, self.join, texts, centres, labels, own) if known else own)
        x = torch.cat(centre_vectors)
        if self.gt is None:
            return x, None
        distinct, label_of_edge = np.unique(egos.labels, return_inverse=True)
        around = label_vectors(self.tt, texts, distinct)
        counts = None
        if self.config.graph.label_histogram:
            rows, own_labels, numbers = (
                to_index(column, x.device) for column in count_labels(egos.offsets, label_of_edge)
            )
            counts = LabelCounts(rows, own_labels, numbers, len(egos))
        offsets, *ends = (to_index(column, x.device) for column in (egos.offsets, node_of_edge, label_of_edge))
        edges = EgoEdges(offsets, ends[0], ends[1], counts)
        return x, (nodes, around, edges.repeated(len(centre_vectors)))

    @property
    def reads_query_texts(self) -> bool:
        return self.config.relation_conditioning and self.join is None

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        return similarity(self.config.score, query_embeddings, candidates)

    def evidence_scores(self, texts: GraphTexts, labels: Int32Array, table: EvidenceTable) -> Tensor:
        assert self.evidence is not None
        distinct, of_query = np.unique(labels, return_inverse=True)
        vectors = label_vectors(self.tt, texts, distinct)  # (p, d)
        scores: Tensor = self.evidence.weights(vectors, to_index(of_query, vectors.device), table)
        return scores

    def node_vectors(self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs) -> tuple[Tensor, Tensor, IntArray]:
        """Return x_TT of the centres (n, d) and of the distinct neighbours (m, d), and the neighbour of each edge."""
        neighbours, of_edge = np.unique(
            egos.neighbours if self.gt is not None else egos.neighbours[:0], return_inverse=True
        )
        if self.config.text.training == "finetune-centre":
            own = entity_vectors(self.tt, texts, centres)
            return own, self.tt(texts, text_rows(neighbours), cached=True), of_edge
        distinct, of_all = np.unique(np.concatenate([centres, neighbours]), return_inverse=True)
        vectors = self.tt(texts, text_rows(distinct))
        index = to_index(of_all, vectors.device)
        return vectors[index[: len(centres)]], vectors[index[len(centres) :]], of_edge

    def query_embeddings(self, texts: GraphTexts, entity: Tensor, labels: Int32Array) -> Tensor:
        if self.config.score == "cosine":  # the centre's vector already depends on the relation
            return entity
        relation = self.relation(self.relation_tt or self.tt, texts, labels)  # the same r for tails and heads
        return compose_queries(self.config.score, entity, relation, to_device(labels >= texts.relations, entity.device))
