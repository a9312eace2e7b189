"""`LinkPredictor`: the interface of all systems, used by training, ranking and prediction."""

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
    """The embedded queries and candidates of a training step, from which a model computes its loss.

    The columns of the score matrix are the candidates of all processes, then the entities of
    `LinkPredictor.queue_ids`.
    """

    context: GraphContext
    centres: Int32Array  # (q,): the entities of this process, each a candidate and the centre of a query
    labels: Int32Array  # (q,): the labels of the queries
    query_embeddings: Tensor  # (q, d)
    candidates: Tensor  # (n, d)
    candidate_ids: Int32Array  # (n,): the candidates' entities
    answers: Tensor  # (q,): the column of each query's answer
    negatives: Tensor  # (q, n + queue), boolean: which columns are negatives of a query

    @property
    def texts(self) -> GraphTexts:
        return self.context.texts


class LinkPredictor(nn.Module):
    """Base class of all systems: it embeds candidates and queries, and `similarity` of the two scores the triple.

    Subclasses are created as `Subclass(config, encoder, relations)`, where `relations` is the number of relations of
    the training graph, which sets the size of a relation table.
    """

    system: ClassVar[str]  # its name in `SYSTEMS`
    config: Any  # the config; all configs have `text`
    relations: int  # R
    tt: Any  # the text module, which has the `encoder`
    ego: EgoConfig
    width: int  # d, the size of the vectors
    by_distance: bool  # whether the similarity is the negative L1 distance, for which ranking has a faster path
    by_product: bool = False  # whether it is the inner product, for which ranking has a faster path too
    allow_self_answers: bool = True  # if false, only relations with a self-loop in train have self-answers

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next((weight.device for weight in self.parameters()), torch.device("cpu"))

    @abstractmethod
    def forward(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array | None, candidates: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Embed the centres as candidates and as queries.

        Args:
            texts: the texts of the graph.
            centres: the entities, (n,).
            egos: their ego-graphs.
            labels: the labels of the queries (n,), r for tail queries and R + r for head queries; None for no queries.
            candidates: whether to compute the candidate embeddings.

        Returns:
            The candidate embeddings and the query embeddings, (n, d) each; None for those not requested.
        """

    @abstractmethod
    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        """Score queries (q, d) against candidates (n, d): (q, n), higher is more likely."""

    def attention(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array
    ) -> list[tuple[Tensor, Tensor]] | None:
        """Return the attention weights of the centres as candidates, then as queries.

        Returns:
            One pair per ensemble member: offsets (2n + 1,) and weights (…, heads), the centre's weight on itself first,
            then those on its neighbours. None for systems without attention over edges.
        """
        return None

    # Used by training

    def register_seen(self, context: GraphContext, relations: IntArray) -> None:
        """Register the relations (rows of the graph) that the model will be trained on; does nothing by default."""

    @property
    def reads_query_texts(self) -> bool:
        """Whether the system encodes [h‖r] as one text, whose features a frozen encoder computes in advance."""
        return False

    def loss(self, batch: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """Return the ranking loss of the scores; systems with further losses override this."""
        scores = self.similarity(batch.query_embeddings, batch.candidates).float()  # (q, n)
        return ranking(scores, batch.answers, batch.negatives)  # type: ignore[no-any-return]

    def queue_ids(self) -> Int32Array:
        """Return the entities of earlier batches that serve as additional negatives."""
        return np.zeros(0, np.int32)

    def texts(self, graph: KnowledgeGraph, cache: Path | None = None) -> GraphTexts:
        """Return the texts of a graph with the features that this system needs, computed with its current weights."""
        texts = GraphTexts.of(graph, self.tt.encoder, self.config.text, cache)
        if self.config.text.training == "finetune-centre":
            self.tt.refresh(texts)
        return texts


def needs_ego_graphs(text: TextConfig) -> None:
    """Raise FnftgError if a text config makes sense only with ego-graphs."""
    if text.training == "finetune-centre":
        raise FnftgError("text.training finetune-centre needs ego-graphs: set it to finetune or frozen.")
