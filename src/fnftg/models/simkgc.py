"""SimKGC (Wang et al., 2022): an encoder for queries, another for candidates, and as many negatives as can be had.

Its negatives are the other entities of the batch, the query's own entity, and the candidates of earlier batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fnftg.arrays import Int32Array
from fnftg.ego.ego_config import NO_EGO_GRAPHS
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.models.link_predictor import LinkPredictor, ScoredBatch, needs_ego_graphs
from fnftg.models.losses import RankingLoss, info_nce
from fnftg.models.text_inputs import Join, conditioned, entity_vectors, to_device, to_index
from fnftg.text.encoders import Encoder, TextConfig
from fnftg.text.text_transformer import GraphTexts, TextProjection


@dataclass(frozen=True)
class SimKGCConfig:
    """SimKGC: relations are always read as texts; published with the loss infonce of temperature 0.05.

    Args:
        text: the encoder that both sides start from, each with a projection of its own; text.query text, as published,
            reads [h‖r] as one text, vector joins two; published with pooling mean.
        margin: what is taken off the cosine of the true answer in training.
        pre_batch: how many candidates of earlier batches stay as negatives.
        pre_batch_weight: of their scores.
        self_negatives: the query's own entity is a negative.
        both_ways: queries are told apart for each answer too, not only answers for each query.
    """

    text: TextConfig = field(default_factory=lambda: TextConfig(pooling="mean"))
    margin: float = 0.02
    pre_batch: int = 1024
    pre_batch_weight: float = 0.5
    self_negatives: bool = True
    both_ways: bool = True

    def __post_init__(self) -> None:
        needs_ego_graphs(self.text)
        if self.pre_batch < 0 or self.pre_batch_weight < 0 or self.margin < 0:
            raise FnftgError("SimKGC's margin, pre_batch and pre_batch_weight must not be negative.")


class SimKGC(LinkPredictor):
    system = "simkgc"
    queue: Tensor
    queued: Tensor

    def __init__(self, config: SimKGCConfig, encoder: Encoder, relations: int):
        super().__init__()
        self.config, self.relations = config, relations
        self.ego, self.by_distance = NO_EGO_GRAPHS, False
        frozen = config.text.training == "frozen"
        self.tt = TextProjection(config.text, encoder)
        other = encoder if frozen else encoder.copied()
        self.query = TextProjection(config.text, other)
        self.width = self.tt.width
        self.join = Join(self.width) if config.text.query == "vector" else None
        self.register_buffer("queue", torch.zeros(config.pre_batch, self.width))  # the latest candidates come first
        self.register_buffer("queued", torch.full((config.pre_batch,), -1))  # their entities; -1: none yet
        self._queue_ids: Int32Array | None = np.zeros(0, np.int32)  # the same in main memory; None: not read yet

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
        """Vectors of length 1: of candidates by one encoder, of queries by the other."""
        vectors = functional.normalize(entity_vectors(self.tt, texts, centres), dim=-1) if candidates else None
        if labels is None:
            return vectors, None
        own = entity_vectors(self.query, texts, centres) if self.join is not None else None
        asked = conditioned(self.query, self.join, texts, centres, labels, own)
        return vectors, functional.normalize(asked, dim=-1)

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        """Cosines."""
        return query_embeddings @ candidates.T

    def queue_ids(self) -> Int32Array:
        if self._queue_ids is None:
            queued = self.queued.cpu().numpy()
            self._queue_ids = queued[queued >= 0].astype(np.int32)
        return self._queue_ids

    def _load_from_state_dict(self, *arguments: Any, **more: Any) -> None:
        super()._load_from_state_dict(*arguments, **more)
        self._queue_ids = None

    def loss(self, compared: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """InfoNCE with an additive margin over the batch and the queue, which then takes in the batch's candidates."""
        queue = self.queue[: len(self.queue_ids())]  # (k, d)
        scores = self.similarity(compared.query_embeddings, compared.candidates).float()  # (q, n)
        scores = scores.scatter_add(
            1, compared.answers[:, None], scores.new_full((len(scores), 1), -self.config.margin)
        )
        older = (
            self.similarity(compared.query_embeddings, queue.to(compared.query_embeddings.dtype)).float()
            * self.config.pre_batch_weight
        )
        negatives = compared.negatives
        if not self.config.self_negatives:
            own = to_device(compared.centres[:, None] == compared.candidate_ids, negatives.device)
            negatives = torch.cat([negatives[:, : own.shape[1]] & ~own, negatives[:, own.shape[1] :]], dim=1)
        loss: Tensor = ranking(torch.cat([scores, older], dim=1), compared.answers, negatives)
        if self.config.both_ways:
            told_apart = negatives[:, compared.answers].T  # (answers, queries): whether the two are no triple
            logits = scores[:, compared.answers].T * ranking.log_scale.exp()
            loss = loss + info_nce(logits, torch.arange(len(scores), device=scores.device), told_apart)
        if self.training:
            self.keep(compared.candidates.detach(), compared.candidate_ids)
        return loss

    def keep(self, candidates: Tensor, entities: Int32Array) -> None:
        """The batch's candidates come first in the queue, whose last ones leave."""
        size, now = self.config.pre_batch, to_index(entities, self.queued.device)
        self._queue_ids = np.concatenate([entities, self.queue_ids()])[:size]
        self.queue = torch.cat([candidates.to(self.queue.dtype), self.queue])[:size]
        self.queued = torch.cat([now, self.queued])[:size]
