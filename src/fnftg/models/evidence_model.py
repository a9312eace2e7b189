"""`EvidenceModel`: a system that adds evidence to the scores of a few candidates per query."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from torch import Tensor

from fnftg.arrays import AnyArray, Int32Array, IntArray
from fnftg.ego.context import GraphContext
from fnftg.evidence.evidence import Evidence
from fnftg.evidence.table import EvidenceTable
from fnftg.models.link_predictor import LinkPredictor, ScoredBatch
from fnftg.models.losses import RankingLoss
from fnftg.models.text_inputs import to_device
from fnftg.text.text_transformer import GraphTexts


class EvidenceModel(LinkPredictor):
    """A link predictor with evidence."""

    evidence: Evidence | None  # None if the config names no sources

    @abstractmethod
    def evidence_scores(self, texts: GraphTexts, labels: Int32Array, table: EvidenceTable) -> Tensor:
        """Return what evidence adds to the scores of the table's candidates (e,), given the queries' labels (q,)."""

    def register_seen(self, context: GraphContext, relations: IntArray) -> None:
        if self.evidence is not None:
            self.evidence.register_seen(context, relations)

    def training_table(self, batch: ScoredBatch) -> EvidenceTable | None:
        """Return the evidence for a training batch; None if the model uses none."""
        if self.evidence is None:
            return None
        return self.evidence.table(batch.context, batch.centres, batch.labels, training=True)

    def loss(self, batch: ScoredBatch, ranking: RankingLoss) -> Tensor:
        return self.loss_with(self.training_table(batch), batch, ranking)

    def loss_with(self, table: EvidenceTable | None, batch: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """Return the ranking loss of the embedding scores plus the evidence in `table`."""
        scores = self.similarity(batch.query_embeddings, batch.candidates).float()  # (q, n)
        if table is not None:
            scores = scores + self.batch_scores(table, batch)
        return ranking(scores, batch.answers, batch.negatives)  # type: ignore[no-any-return]

    def batch_scores(self, table: EvidenceTable, batch: ScoredBatch) -> Tensor:
        """Return what evidence adds to each score of a batch: (q, n)."""
        scores = self.evidence_scores(batch.texts, batch.labels, table)  # (e,)

        def moved(rows: AnyArray) -> Tensor:
            return to_device(rows, scores.device)

        distinct, of_column = np.unique(batch.candidate_ids, return_inverse=True)
        place = np.minimum(np.searchsorted(distinct, table.entities), len(distinct) - 1)
        here = np.flatnonzero(distinct[place] == table.entities)
        of_entity = scores.new_zeros(len(batch.centres), len(distinct)).index_put(
            (moved(table.queries[here]), moved(place[here])), scores[moved(here)]
        )
        return of_entity.index_select(1, moved(of_column.reshape(-1)))


def evidence_of(model: LinkPredictor) -> Evidence | None:
    """Return the evidence of a model; None if it uses none."""
    return model.evidence if isinstance(model, EvidenceModel) else None
