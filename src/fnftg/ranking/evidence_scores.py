"""Exact ranking with evidence.

Evidence changes the scores of only a few candidates per query. These are left out of the search over all candidates,
scored one by one and merged into the result, so that ranking with evidence costs little more than without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
import torch

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.context import GraphContext
from fnftg.evidence.table import EvidenceTable
from fnftg.kernels.ranges import ranges
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.rank_counts import Counts, filtered_counts
from fnftg.ranking.search import pair_scores
from fnftg.text.text_transformer import GraphTexts

Search = Callable[
    [Int64Array, Int64Array], tuple[Float32Array, Int64Array]
]  # offsets and rows to leave out → scores and rows (q, k)


@dataclass(frozen=True)
class EvidenceScores:
    """Evidence scores as ragged arrays: query i has the entries offsets[i] to offsets[i + 1]."""

    offsets: Int64Array  # (q + 1,)
    rows: Int64Array  # (e,): rows of the candidates, distinct within a query
    values: Float32Array  # (e,): what is added to their scores

    @classmethod
    def nothing(cls, queries: int) -> EvidenceScores:
        return cls(np.zeros(queries + 1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))

    @classmethod
    @torch.inference_mode()
    def of(cls, model: EvidenceModel, texts: GraphTexts, labels: Int32Array, table: EvidenceTable) -> EvidenceScores:
        """Compute the evidence scores of a table's candidates; the rows are entity rows."""
        values = model.evidence_scores(texts, labels, table).float().cpu().numpy()
        return cls(table.offsets, table.entities.astype(np.int64), values)

    def among(self, row_of: Int64Array) -> EvidenceScores:
        """Renumber the rows by row_of (rows,), and drop those whose new row is -1."""
        rows = row_of[self.rows]
        there = rows >= 0
        return EvidenceScores(np.concatenate([[0], np.cumsum(there)])[self.offsets], rows[there], self.values[there])

    @property
    def queries(self) -> Int64Array:
        """The query of each entry: (e,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def of_rows(self, rows: Int64Array) -> Float32Array:
        """Return the evidence score of one row per query (q,), 0 if the row has none."""
        found = np.zeros(len(rows), np.float32)
        own = self.rows == rows[self.queries]
        found[self.queries[own]] = self.values[own]
        return found

    def apart_from(self, offsets: Int64Array, known: Int64Array, size: int) -> tuple[BoolArray, Int64Array, Int64Array]:
        """Separate the rows with evidence from known answers, in a table of `size` rows.

        Returns:
            Whether each row with evidence (e,) is not a known answer, and the offsets and rows of the known answers,
            each query's followed by its other rows with evidence.
        """
        spared = np.empty(len(self.rows), np.bool_)
        mark_spared(offsets, known, self.offsets, self.rows, size, spared)
        taken, others = np.diff(offsets), np.diff(np.concatenate([[0], np.cumsum(spared)])[self.offsets])
        outside = np.concatenate([[0], np.cumsum(taken + others)])
        rows = np.empty(outside[-1], np.int64)
        rows[ranges(outside[:-1], taken)] = known
        rows[ranges(outside[:-1] + taken, others)] = self.rows[spared]
        return spared, outside, rows


@numba.njit(nogil=True, cache=True)
def mark_spared(
    offsets: Int64Array, known: Int64Array, own_offsets: Int64Array, rows: Int64Array, size: int, spared: BoolArray
) -> None:
    """Fill in whether each row of a query, all below `size`, is not among the query's known answers."""
    last = np.full(size, -1, np.int64)  # the last query that each row is a known answer of
    for query in range(len(offsets) - 1):
        for place in range(offsets[query], offsets[query + 1]):
            last[known[place]] = query
        for place in range(own_offsets[query], own_offsets[query + 1]):
            spared[place] = last[rows[place]] != query


def evidence_scores(
    model: LinkPredictor,
    context: GraphContext,
    centres: Int32Array,
    labels: Int32Array,
    hidden: Literal["target", "pair"] = "target",
    targets: Int32Array | None = None,
) -> EvidenceScores:
    """Compute the evidence scores of queries (q,), with the targets (q,), if any, hidden; empty without evidence."""
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
    """Count better and equal candidates like `filtered_counts`, with evidence added to the scores.

    `true_rows` (q,), the rows of the true answers, must be among the known answers of each query.
    """
    spared, _, _ = evidence.apart_from(offsets, known, len(table))
    plain = filtered_counts(
        model,
        query_embeddings,
        answer_embeddings,
        table,
        offsets,
        known,
        memory,
        answer_evidence=evidence.of_rows(true_rows),
    )
    # count the rows with evidence again, with their evidence
    query, row = evidence.queries[spared], evidence.rows[spared]
    scores, true = pair_scores(model, query_embeddings, table, query, row), plain.scores[query]
    raised = scores + evidence.values[spared]
    last = np.isnan(true)  # after all candidates
    better, equal = plain.better.copy(), plain.equal.copy()
    for sign, found in ((-1, scores), (1, raised)):
        better += sign * np.bincount(query[(found > true) | last], minlength=len(better))
        equal += sign * np.bincount(query[found == true], minlength=len(equal))
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
    """Search the rows that are not known answers, with evidence added to the scores: scores and rows, (q, k) each."""
    spared, outside, rows = evidence.apart_from(offsets, known, len(table))
    scores, found = search(outside, rows)
    query, row = evidence.queries[spared], evidence.rows[spared]
    return merged(
        scores, found, query, pair_scores(model, query_embeddings, table, query, row) + evidence.values[spared], row
    )


def merged(
    scores: Float32Array, found: Int64Array, query: Int64Array, more: Float32Array, rows: Int64Array
) -> tuple[Float32Array, Int64Array]:
    """Merge further candidates (p,), with their queries and scores, into the k best per query: (q, k)."""
    if not len(query):
        return scores, found
    queries, k = scores.shape
    query = np.concatenate([np.repeat(np.arange(queries), k), query])
    score, row = np.concatenate([scores.ravel(), more]), np.concatenate([found.ravel(), rows])
    there = (row >= 0) & ~np.isnan(score)
    query, score, row = query[there], score[there], row[there]
    order = np.lexsort((row, -score, query))
    query, score, row = query[order], score[order], row[order]
    place = np.arange(len(query)) - np.searchsorted(query, query)  # rank within the query
    best = place < k
    scores, found = np.full_like(scores, -np.inf), np.full_like(found, -1)
    scores[query[best], place[best]], found[query[best], place[best]] = score[best], row[best]
    return scores, found
