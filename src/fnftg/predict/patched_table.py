"""A table of candidate embeddings with some rows replaced or added, without copying the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int64Array, IntArray
from fnftg.kernels.ranks import l1_pairs
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.evidence_scores import EvidenceScores
from fnftg.ranking.rank_counts import Counts, filtered_counts
from fnftg.ranking.search import pair_scores, top_answers


@dataclass(frozen=True)
class PatchedTable:
    """Candidate embeddings (n, d) with replaced and added rows."""

    table: Float32Array  # (n, d)
    rows: Int64Array  # (m,): sorted; entities whose vectors changed or are not in the table
    vectors: Float32Array  # (m, d): vectors of `rows`

    def copied(self, size: int) -> Float32Array:
        """Return one table of `size` entities that includes the patches."""
        table = np.empty((size, self.table.shape[1]), np.float32)
        table[: len(self.table)] = self.table
        table[self.rows] = self.vectors
        return table

    def counts(
        self,
        model: LinkPredictor,
        query_embeddings: Float32Array,
        true: Float32Array,
        answer: int,
        taken: Int64Array,
        evidence: EvidenceScores,
        memory: int,
    ) -> Counts:
        """Count better and equal candidates as `counts_with` does, for variants of one query.

        All variants share the answer, the excluded rows `taken` and the evidence.
        """
        queries = len(query_embeddings)
        answer_evidence, rows, values = float(evidence.of_rows(np.array([answer]))[0]), *self._raised(evidence, taken)
        found = [
            filtered_counts(
                model,
                query_embeddings,
                true,
                table,
                np.arange(queries + 1) * len(out),
                np.tile(out, queries),
                memory,
                answer_evidence,
            )
            for table, out in self._without(np.union1d(taken, rows))
        ]
        scores = self._scores(model, query_embeddings, rows) + values  # (q, v)
        asked = found[0].scores[:, None]
        better = sum(one.better for one in found) + ((scores > asked) | np.isnan(asked)).sum(1)
        equal = sum(one.equal for one in found) + (scores == asked).sum(1)
        return Counts(np.asarray(better), np.asarray(equal), found[0].scores)

    def best(
        self, model: LinkPredictor, query: Float32Array, taken: Int64Array, evidence: EvidenceScores
    ) -> Float32Array:
        """Return the best score (1, 1) of one query (1, d) over all rows except `taken`, or −∞ if none is left."""
        rows, values = self._raised(evidence, taken)
        parts = self._without(np.union1d(taken, rows))
        scores = [top_answers(model, query, table, np.array([0, len(out)]), out, 1)[0] for table, out in parts]
        raised = (self._scores(model, query, rows) + values).max(axis=1, keepdims=True, initial=-np.inf)
        best: Float32Array = np.maximum.reduce([*scores, raised])
        return best

    def _raised(self, evidence: EvidenceScores, taken: Int64Array) -> tuple[Int64Array, Float32Array]:
        """Return the rows and values (v,) of the query's evidence, except the rows `taken`."""
        spared = ~np.isin(evidence.rows, taken)
        return evidence.rows[spared], evidence.values[spared]

    def _scores(self, model: LinkPredictor, query_embeddings: Float32Array, rows: Int64Array) -> Float32Array:
        """Score query embeddings (q, d) against rows (v,): (q, v)."""
        place, patched = self._places(rows)
        vectors = np.empty((len(rows), self.table.shape[1]), np.float32)
        vectors[patched], vectors[~patched] = self.vectors[place[patched]], self.table[rows[~patched]]
        query, row = (part.ravel() for part in np.indices((len(query_embeddings), len(rows))))
        return pair_scores(model, query_embeddings, vectors, query, row).reshape(len(query_embeddings), len(rows))

    def _places(self, rows: IntArray) -> tuple[Int64Array, BoolArray]:
        """Return the positions of rows (p,) among the patched rows, and whether each row is patched."""
        place = np.minimum(np.searchsorted(self.rows, rows), max(len(self.rows) - 1, 0))
        return place, self.rows[place] == rows if len(self.rows) else np.zeros(len(rows), bool)

    def distances(self, query: Float32Array, rows: IntArray) -> Float32Array:
        """Return the L1 distances of one query (1, d) to rows (p,)."""
        place, patched = self._places(rows)
        found = np.empty(len(rows), np.float32)
        for mask, table, places in ((patched, self.vectors, place), (~patched, self.table, rows)):
            found[mask] = l1_pairs(query, table, np.zeros(int(mask.sum()), np.int64), places[mask])
        return found

    def _without(self, taken: Int64Array) -> Iterator[tuple[Float32Array, Int64Array]]:
        """Yield both tables, each with the rows to leave out."""
        changed = np.union1d(taken, self.rows)
        yield self.table, changed[changed < len(self.table)]
        if len(self.rows):
            yield self.vectors, np.flatnonzero(np.isin(self.rows, taken))
