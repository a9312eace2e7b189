"""What evidence adds to the scores of a few candidates, ranked exactly at the cost of the embedding scores.

The table is searched or counted without the listed candidates, which are then scored one by one and take their places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.context import GraphContext
from fnftg.evidence.table import EvidenceTable
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.rank_counts import Counts, filtered_counts
from fnftg.ranking.search import pair_scores
from fnftg.text.text_transformer import GraphTexts

Search = Callable[
    [Int64Array, Int64Array], tuple[Float32Array, Int64Array]
]  # offsets and rows to leave out → scores, rows (q, k)


@dataclass(frozen=True)
class EvidenceScores:
    """What is added to scores of query i: values[j] to that of the row rows[j], j from offsets[i] to offsets[i + 1]."""

    offsets: Int64Array  # (q + 1,)
    rows: Int64Array  # (e,): of a table, each once for a query
    values: Float32Array  # (e,)

    @classmethod
    def nothing(cls, queries: int) -> EvidenceScores:
        return cls(np.zeros(queries + 1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))

    @classmethod
    @torch.inference_mode()
    def of(cls, model: EvidenceModel, texts: GraphTexts, labels: Int32Array, table: EvidenceTable) -> EvidenceScores:
        """What evidence adds to scores of queries with these labels (q,); rows are those of the entities."""
        values = model.evidence_scores(texts, labels, table).float().cpu().numpy()
        return cls(table.offsets, table.entities.astype(np.int64), values)

    def among(self, row_of: Int64Array) -> EvidenceScores:
        """The same for a table of other rows: row_of (rows,) names the new ones, -1 for those that are not in it."""
        rows = row_of[self.rows]
        there = rows >= 0
        return EvidenceScores(np.concatenate([[0], np.cumsum(there)])[self.offsets], rows[there], self.values[there])

    @property
    def queries(self) -> Int64Array:
        """(e,)"""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def of_rows(self, rows: Int64Array) -> Float32Array:
        """What is added to the score of one row for each query (q,): 0 where it is not listed."""
        found = np.zeros(len(rows), np.float32)
        own = self.rows == rows[self.queries]
        found[self.queries[own]] = self.values[own]
        return found

    def apart_from(self, offsets: Int64Array, known: Int64Array, size: int) -> tuple[BoolArray, Int64Array, Int64Array]:
        """Which of the listed rows (e,) are not known, and offsets and rows of what is either; of `size` rows."""
        taken = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * size + known
        listed = self.queries * size + self.rows
        either = np.unique(np.concatenate([taken, listed]))
        return ~np.isin(listed, taken), np.searchsorted(either, np.arange(len(offsets)) * size), either % size


def evidence_scores(
    model: LinkPredictor,
    context: GraphContext,
    centres: Int32Array,
    labels: Int32Array,
    hidden: Literal["target", "pair"] = "target",
    targets: Int32Array | None = None,
) -> EvidenceScores:
    """What evidence adds to the scores of the queries (q,), if the model uses any, while the targets (q,), if any, are
    hidden."""
    evidence = evidence_of(model)
    if evidence is None:
        return EvidenceScores.nothing(len(centres))
    assert isinstance(model, EvidenceModel)
    table = evidence.table(context, centres, labels, hidden, targets)
    return EvidenceScores.of(model, context.texts, labels, table)


def counts_with(
    evidence: EvidenceScores,
    model: LinkPredictor,
    query_embeddings: Float32Array,
    answer_embeddings: Float32Array,
    true_rows: Int64Array,
    table: Float32Array,
    offsets: Int64Array,
    known: Int64Array,
    memory: int,
) -> Counts:
    """As `filtered_counts`, of scores with their evidence; `true_rows` (q,) are among the known ones of each query."""
    spared, outside, rows = evidence.apart_from(offsets, known, len(table))
    plain = filtered_counts(
        model,
        query_embeddings,
        answer_embeddings,
        table,
        outside,
        rows,
        memory,
        answer_evidence=evidence.of_rows(true_rows),
    )
    query, row = evidence.queries[spared], evidence.rows[spared]
    scores = pair_scores(model, query_embeddings, table, query, row) + evidence.values[spared]
    true = plain.scores[query]
    better = plain.better + np.bincount(query[(scores > true) | np.isnan(true)], minlength=len(query_embeddings))
    equal = plain.equal + np.bincount(query[scores == true], minlength=len(query_embeddings))
    return Counts(better, equal, plain.scores)


def best_with(
    evidence: EvidenceScores,
    model: LinkPredictor,
    query_embeddings: Float32Array,
    table: Float32Array,
    offsets: Int64Array,
    known: Int64Array,
    search: Search,
) -> tuple[Float32Array, Int64Array]:
    """As `search` among the rows of the table that are not known, of scores with their evidence: (q, k) each."""
    spared, outside, rows = evidence.apart_from(offsets, known, len(table))
    scores, found = search(outside, rows)
    query, row = evidence.queries[spared], evidence.rows[spared]
    return merged(
        scores, found, query, pair_scores(model, query_embeddings, table, query, row) + evidence.values[spared], row
    )


def merged(
    scores: Float32Array, found: Int64Array, query: Int64Array, more: Float32Array, rows: Int64Array
) -> tuple[Float32Array, Int64Array]:
    """The best of what was found (q, k) and of further candidates (p,), each of one query: (q, k)."""
    if not len(query):
        return scores, found
    queries, k = scores.shape
    query = np.concatenate([np.repeat(np.arange(queries), k), query])
    score, row = np.concatenate([scores.ravel(), more]), np.concatenate([found.ravel(), rows])
    there = (row >= 0) & ~np.isnan(score)
    query, score, row = query[there], score[there], row[there]
    order = np.lexsort((row, -score, query))
    query, score, row = query[order], score[order], row[order]
    place = np.arange(len(query)) - np.searchsorted(query, query)  # among those of the same query
    best = place < k
    scores, found = np.full_like(scores, -np.inf), np.full_like(found, -1)
    scores[query[best], place[best]], found[query[best], place[best]] = score[best], row[best]
    return scores, found
