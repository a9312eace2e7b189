"""An ensemble of FnF models, trained independently on the same batches; its score is the mean of their scores.

A cosine is an inner product, and the mean of several inner products is an inner product of the concatenated vectors.
An ensemble can therefore be ranked, indexed and served like a single model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fnftg.arrays import Int32Array, IntArray
from fnftg.ego.context import GraphContext
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.evidence.evidence import Evidence
from fnftg.evidence.table import EvidenceTable
from fnftg.models.evidence_model import EvidenceModel
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.link_predictor import ScoredBatch
from fnftg.models.losses import RankingLoss
from fnftg.text.encoder import Encoder
from fnftg.text.text_transformer import GraphTexts


@dataclass(frozen=True)
class EnsembleConfig(FnFConfig):
    """An ensemble of FnF models with different initial weights, which share one frozen encoder.

    Args:
        members: number of models.
    """

    members: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 1:
            raise FnftgError(f"model.members is {self.members}: it must be at least 1.")
        if self.score != "cosine" or self.text.training != "frozen":
            raise FnftgError("An ensemble needs model.score cosine and model.text.training frozen.")


class Ensemble(EvidenceModel):
    """Several FnF models whose scores are averaged."""

    system = "ensemble"
    by_distance, by_product = False, True

    def __init__(self, config: EnsembleConfig, encoder: Encoder, relations: int = 0):
        super().__init__()
        self.config, self.relations = config, relations
        self.members = nn.ModuleList(FnF(config, encoder, relations) for _ in range(config.members))
        first = self.first
        self.ego, self.allow_self_answers = first.ego, first.allow_self_answers
        self.width = config.members * first.width

    def each(self) -> list[FnF]:
        """Return the members."""
        return list(self.members)  # type: ignore[arg-type]

    @property
    def first(self) -> FnF:
        return self.each()[0]

    @property
    def tt(self) -> Any:
        """The text module of the first member; all members read the same features."""
        return self.first.tt

    @property
    def reads_query_texts(self) -> bool:
        return self.first.reads_query_texts

    def forward(
        self,
        texts: GraphTexts,
        centres: Int32Array,
        egos: EgoGraphs,
        labels: Int32Array | None = None,
        candidates: bool = True,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Concatenate the members' vectors and scale them to length 1."""
        found = [member(texts, centres, egos, labels, candidates) for member in self.members]
        vectors, query_embeddings = zip(*found, strict=True)
        scale = 1 / math.sqrt(len(found))
        return (
            torch.cat(vectors, dim=-1) * scale if candidates else None,
            torch.cat(query_embeddings, dim=-1) * scale if labels is not None else None,
        )

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        return query_embeddings @ candidates.T

    def attention(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array
    ) -> list[tuple[Tensor, Tensor]] | None:
        found = [member.attention(texts, centres, egos, labels) for member in self.each()]
        return [pair for pairs in found if pairs is not None for pair in pairs] or None

    @property
    def evidence(self) -> Evidence | None:  # type: ignore[override]
        """The evidence of the first member; all members have the same sources and relations."""
        return self.first.evidence

    def evidence_scores(self, texts: GraphTexts, labels: Int32Array, table: EvidenceTable) -> Tensor:
        return torch.stack([member.evidence_scores(texts, labels, table) for member in self.each()]).mean(0)

    def register_seen(self, context: GraphContext, relations: IntArray) -> None:
        for member in self.each():
            member.register_seen(context, relations)

    def loss(self, batch: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """Return the mean of the members' losses."""
        scale, table = math.sqrt(len(self.members)), self.training_table(batch)
        queries, candidates = (
            vectors.chunk(len(self.members), dim=-1) for vectors in (batch.query_embeddings, batch.candidates)
        )
        losses = [
            member.loss_with(
                table, replace(batch, query_embeddings=own_queries * scale, candidates=own_candidates * scale), ranking
            )
            for member, own_queries, own_candidates in zip(self.each(), queries, candidates, strict=True)
        ]
        return torch.stack(losses).mean()
