"""`LinkPredictor`: what every system of the paper is to training, ranking and prediction."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fnftg.arrays import Int32Array, IntArray
from fnftg.ego.context import GraphContext
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.losses import RankingLoss
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts


@dataclass(frozen=True)
class ScoredBatch:
    """A step's queries and what they are compared with, as a loss sees them.

    Columns are the candidates of all processes, then the entities of `LinkPredictor.queue_ids`, if there are any.
    """

    context: GraphContext
    centres: Int32Array  # (q,): the entities of this process, each a candidate and the centre of a query
    labels: Int32Array  # (q,): of the queries
    query_embeddings: Tensor  # (q, d)
    candidates: Tensor  # (n, d)
    candidate_ids: Int32Array  # (n,): the candidates' entities
    answers: Tensor  # (q,): the column of each query's answer
    negatives: Tensor  # (q, n + queue) of truth values: which columns count against a query

    @property
    def texts(self) -> GraphTexts:
        return self.context.texts


class LinkPredictor(nn.Module):
    """Embeds candidates and queries so that `similarity` of the two is the score of the triple.

    A system is made as `System(config, encoder, relations)`: R, of the graph that it is trained on, is the number of
    rows of a relation table, where a system has one.
    """

    system: ClassVar[str]  # its name in `SYSTEMS`
    config: Any  # its config, of which all have `text`
    relations: int  # R
    tt: Any  # what reads the texts; it has the `encoder`
    ego: EgoConfig
    width: int
    by_distance: bool  # the similarity is minus the L1 distance, for which there are faster ways to rank
    allow_self_answers: bool = True  # an entity may be its own answer, also where no triple of train says so

    @property
    def device(self) -> torch.device:
        """Of its weights."""
        return next((weight.device for weight in self.parameters()), torch.device("cpu"))

    @abstractmethod
    def forward(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array | None, candidates: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Candidate embeddings (n, d) of the centres, if asked for, and, given the labels of queries (a relation r, or
        R + r for the inverse of r), the embeddings (n, d) of these queries."""

    @abstractmethod
    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        """(q, d) against (n, d) → scores (q, n)."""

    def attention(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array
    ) -> list[tuple[Tensor, Tensor]] | None:
        """What the centres pay to themselves and to their neighbours, as candidates and then as queries: offsets
        (2n + 1,) and weights (…, heads), the centre's own first; one such pair for each member of an ensemble. None
        for systems without attention over edges."""
        return None

    # What training asks for

    def register_seen(self, context: GraphContext, relations: IntArray) -> None:
        """Is told which relations, rows of the graph, will be trained on; most systems need not know."""

    @property
    def reads_query_texts(self) -> bool:
        """Whether [h‖r] is read as a text, whose features a frozen encoder computes in advance."""
        return False

    def loss(self, batch: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """The ranking loss of the scores, unless a system has more to learn."""
        scores = self.similarity(batch.query_embeddings, batch.candidates).float()  # (q, n)
        return ranking(scores, batch.answers, batch.negatives)  # type: ignore[no-any-return]

    def queue_ids(self) -> Int32Array:
        """Entities of earlier batches that a system keeps as further negatives."""
        return np.zeros(0, np.int32)

    def texts(self, graph: KnowledgeGraph, cache: Path | None = None) -> GraphTexts:
        """The texts of a graph as this system reads them, with all features that it needs, by its present weights."""
        texts = GraphTexts.of(graph, self.tt.encoder, self.config.text, cache)
        if self.config.text.training == "finetune-centre":
            self.tt.refresh(texts)
        return texts


def needs_ego_graphs(text: TextConfig) -> None:
    """Refuses what makes sense with neighbours only."""
    if text.training == "finetune-centre":
        raise FnftgError("text.training finetune-centre is for ego-graphs: without them choose finetune or frozen.")
