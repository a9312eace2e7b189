"""Approximate search of the candidate embeddings, for graphs with millions of entities.

A compressed index finds some hundred candidates, whose scores are then computed exactly. Its recall of the ten best
answers is measured when it is built. The index is append-only: a changed vector is added again, and the old copy is
ignored.

index/index.faiss      compressed vectors
index/about.json       recall, effort
index/rows.npy         table row of each vector, or -1 if the vector is out of date
index/queries.json     number of queries that the recall was measured on
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fnftg.array_files import load_array, write_array
from fnftg.arrays import Float32Array, Int64Array
from fnftg.checksums import verify_folder
from fnftg.console import log
from fnftg.errors import FnftgError
from fnftg.files import new_folder
from fnftg.json_files import read_json, write_json
from fnftg.kernels.vector_index import Gather, VectorIndex, faiss
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.search import pair_scores, top_answers

INDEX, ROWS, MEASURED_ON, KIND = "index", "rows.npy", "queries.json", "index"
RETURNED = 400  # candidates whose scores are computed exactly, besides those that are left out
ENOUGH, MEASURED, BEST = 0.97, 200, 10  # recall to reach, queries to measure it on, answers per query
STALE = 0.2  # share of outdated vectors above which the index is rebuilt


@dataclass(frozen=True)
class NearestIndex:
    """An index with its measured recall. Find candidates with `search`."""

    vectors: VectorIndex
    rows: Int64Array  # (vectors,)
    queries: int  # that the recall of the ten best answers was measured on

    @property
    def recall(self) -> float:
        return self.vectors.recall

    @classmethod
    def built(cls, model: LinkPredictor, table: Float32Array, query_embeddings: Float32Array) -> NearestIndex:
        """Build an index over the table (n, d) and measure its recall on query embeddings (q, d)."""
        if not model.by_distance and not model.by_product:
            raise FnftgError("This model's scores are neither distances nor inner products: search without --index.")
        index = VectorIndex.built(gather(table), len(table), model.by_distance)
        return cls(index, np.arange(len(table)), 0).measured(model, table, query_embeddings)

    def measured(self, model: LinkPredictor, table: Float32Array, query_embeddings: Float32Array) -> NearestIndex:
        """Return the index with the lowest effort that reaches the required recall."""
        nobody, nothing = np.zeros(len(query_embeddings) + 1, np.int64), np.zeros(0, np.int64)
        _, best = top_answers(model, query_embeddings, table, nobody, nothing, BEST)
        current = np.flatnonzero(self.rows >= 0)
        place = np.full(len(table) + 1, -1)  # of each row's vector in the index; the last is for row -1
        place[self.rows[current]] = current
        asked = np.ascontiguousarray(query_embeddings, np.float32)
        vectors = self.vectors.measured(asked, place[best], min(RETURNED, len(self.rows)), ENOUGH)
        return replace(self, vectors=vectors, queries=len(query_embeddings))

    def search(
        self,
        model: LinkPredictor,
        table: Float32Array,
        query_embeddings: Float32Array,
        offsets: Int64Array,
        left_out: Int64Array,
        k: int,
    ) -> tuple[Float32Array, Int64Array]:
        """Search approximately, as a replacement of `top_answers`: score candidates from the index exactly."""
        stale = int((self.rows < 0).sum())
        most = min(max(RETURNED, k) + int(np.diff(offsets).max(initial=0)) + min(stale, k), len(self.rows))
        scores, rows = (
            np.full((len(query_embeddings), k), -np.inf, np.float32),
            np.full((len(query_embeddings), k), -1, np.int64),
        )
        if not len(query_embeddings) or not most:
            return scores, rows
        asked = np.ascontiguousarray(query_embeddings, np.float32)
        places = self.vectors.search(asked, most)  # (q, most), -1 if there are fewer
        found = np.where(places >= 0, self.rows[places], -1)
        query = np.repeat(np.arange(len(query_embeddings)), most)
        size = len(table)
        listed = np.repeat(np.arange(len(query_embeddings)), np.diff(offsets)) * size + left_out
        usable = (found.ravel() >= 0) & ~np.isin(query * size + found.ravel(), listed)
        query, row = query[usable], found.ravel()[usable]
        score = pair_scores(model, asked, table, query, row)
        query, row, score = query[~np.isnan(score)], row[~np.isnan(score)], score[~np.isnan(score)]
        order = np.lexsort((row, -score, query))
        query, row, score = query[order], row[order], score[order]
        place = np.arange(len(query)) - np.searchsorted(query, query)
        best = place < k
        scores[query[best], place[best]], rows[query[best], place[best]] = score[best], row[best]
        return scores, rows

    def extended(
        self, model: LinkPredictor, table: Float32Array, changed: Int64Array, query_embeddings: Float32Array
    ) -> NearestIndex:
        """Add changed and new rows of the table; rebuild the index if too many of its vectors are out of date."""
        stale = np.isin(self.rows, changed) | (self.rows < 0)
        if stale.sum() > STALE * len(table):
            return NearestIndex.built(model, table, query_embeddings)
        rows = np.concatenate([np.where(stale, -1, self.rows), changed])
        self.vectors.add(gather(table), changed)
        return replace(self, rows=rows).measured(model, table, query_embeddings)

    def save(self, folder: Path) -> None:
        with new_folder(folder, KIND, owned=True) as partial:
            self.vectors.save(partial)
            write_array(partial / ROWS, self.rows)
            write_json(partial / MEASURED_ON, {"queries": self.queries})

    @classmethod
    def open(cls, folder: Path, entities: int) -> NearestIndex | None:
        """Open the index of a table with this many entities; log a line and return None if it is damaged."""
        faiss()  # a missing library is not damage
        try:
            verify_folder(folder, KIND)
            rows = load_array(folder / ROWS, np.int64, bounds=(-1, entities))
            queries = int(read_json(folder / MEASURED_ON)["queries"])
            return cls(VectorIndex.read(folder, len(rows)), np.array(rows), queries)
        except (FnftgError, ValueError, KeyError, TypeError) as error:
            reason = str(error) if isinstance(error, FnftgError) else f"{folder} is damaged."
            log(f"{reason} The index is built again.")
            return None


def gather(table: Float32Array) -> Gather:
    """Return the function that returns rows of the table. NaN would spoil an index; such candidates are never found."""
    return lambda rows: np.nan_to_num(np.array(table[rows], np.float32))
