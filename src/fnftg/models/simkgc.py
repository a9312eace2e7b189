"""SimKGC (Wang et al., 2022): one encoder for queries, one for candidates, and contrastive learning.

The negatives are the other entities of the batch, the query's own entity, and the candidates of earlier batches.
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
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts, TextProjection


@dataclass(frozen=True)
class SimKGCConfig:
    """SimKGC; relations are always encoded from their texts.

    The published system uses training.loss.name infonce with temperature 0.05.

    Args:
        text: the encoder that both sides start from, each with its own projection. text.query text (as published)
            encodes [h‖r] as one text, vector combines two vectors. text.pooling is mean as published.
        margin: margin subtracted from the cosine of the true answer in training.
        pre_batch: number of candidates of earlier batches kept as negatives.
        pre_batch_weight: factor of the scores of these candidates.
        self_negatives: use the query's own entity as a negative.
        both_ways: also rank the queries for each answer, not only the answers for each query.
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
            raise FnftgError("model.margin, model.pre_batch and model.pre_batch_weight must not be negative.")


class SimKGC(LinkPredictor):
    """The SimKGC model."""

    system = "simkgc"
    queue: Tensor
    queued: Tensor

    def __init__(self, config: SimKGCConfig, encoder: Encoder, relations: int):
        super().__init__()
        self.config, self.relations = config, relations
        self.ego, self.by_distance, self.by_product = NO_EGO_GRAPHS, False, True
        frozen = config.text.training == "frozen"
        self.tt = TextProjection(config.text, encoder)
        other = encoder if frozen else encoder.copied()
        self.query = TextProjection(config.text, other)
        self.width = self.tt.width
        self.join = Join(self.width) if config.text.query == "vector" else None
        self.register_buffer("queue", torch.zeros(config.pre_batch, self.width))  # latest candidates first
        self.register_buffer("queued", torch.full((config.pre_batch,), -1))  # their entities; -1 if empty
        self._queue_ids: Int32Array | None = np.zeros(0, np.int32)  # copy in main memory; None if not read yet

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
        """Embed candidates with one encoder and queries with the other, scaled to length 1."""
        vectors = functional.normalize(entity_vectors(self.tt, texts, centres), dim=-1) if candidates else None
        if labels is None:
            return vectors, None
        own = entity_vectors(self.query, texts, centres) if self.join is not None else None
        asked = conditioned(self.query, self.join, texts, centres, labels, own)
        return vectors, functional.normalize(asked, dim=-1)

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        """Return the cosine similarity of each pair."""
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
        """Return InfoNCE with an additive margin over the batch and the queue, then add the batch to the queue."""
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
            told_apart = negatives[:, compared.answers].T  # (answers, queries): true if the two are not a known triple
            logits = scores[:, compared.answers].T * ranking.log_scale.exp()
            loss = loss + info_nce(logits, torch.arange(len(scores), device=scores.device), told_apart)
        if self.training:
            self.keep(compared.candidates.detach(), compared.candidate_ids)
        return loss

    def keep(self, candidates: Tensor, entities: Int32Array) -> None:
        """Put the batch's candidates at the front of the queue and drop the oldest."""
        size, now = self.config.pre_batch, to_index(entities, self.queued.device)
        self._queue_ids = np.concatenate([entities, self.queue_ids()])[:size]
        self.queue = torch.cat([candidates.to(self.queue.dtype), self.queue])[:size]
        self.queued = torch.cat([now, self.queued])[:size]
