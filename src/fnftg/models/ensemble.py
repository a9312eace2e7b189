"""Several FnF models side by side: trained on the same batches, each for itself; the score is the mean of theirs.

A cosine is an inner product, so the mean of several is one of longer vectors: whatever works with one model works with
an ensemble.
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
from fnftg.text.encoders import Encoder
from fnftg.text.text_transformer import GraphTexts


@dataclass(frozen=True)
class EnsembleConfig(FnFConfig):
    """FnF several times.

    Args:
        members: how many.
    """

    members: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 1:
            raise FnftgError(f"An ensemble of {self.members} has nobody to ask: set members to 1 or more.")
        if self.score != "cosine" or self.text.training != "frozen":
            raise FnftgError("An ensemble needs the score cosine and a frozen encoder, which its members share.")


class Ensemble(EvidenceModel):
    system = "ensemble"
    by_distance = False

    def __init__(self, config: EnsembleConfig, encoder: Encoder, relations: int = 0):
        super().__init__()
        self.config, self.relations = config, relations
        self.members = nn.ModuleList(FnF(config, encoder, relations) for _ in range(config.members))
        first = self.first
        self.ego, self.allow_self_answers = first.ego, first.allow_self_answers
        self.width = config.members * first.width

    def each(self) -> list[FnF]:
        return list(self.members)  # type: ignore[arg-type]

    @property
    def first(self) -> FnF:
        return self.each()[0]

    @property
    def tt(self) -> Any:
        """Of the first member: all read the same features."""
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
        """The members' vectors one after the other, of length 1 together."""
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
        """Of the first member: all have the same sources and relations."""
        return self.first.evidence

    def evidence_scores(self, texts: GraphTexts, labels: Int32Array, table: EvidenceTable) -> Tensor:
        return torch.stack([member.evidence_scores(texts, labels, table) for member in self.each()]).mean(0)

    def register_seen(self, context: GraphContext, relations: IntArray) -> None:
        for member in self.each():
            member.register_seen(context, relations)

    def loss(self, batch: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """The mean of the members' own losses: none of them knows of the others."""
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
