"""An index of millions of candidates that finds nearly the best ones without looking at all of them.

A graph of small worlds (HNSW; Malkov and Yashunin, 2018), by faiss. How many of the ten best it finds is measured when
it is built; it looks as far as that takes. It can only grow: a vector that changed is added again, and its old place is
skipped.

hnsw/index.faiss      the vectors and the graph
hnsw/rows.npy         the row of the table that each of its vectors is, -1 where that changed since
hnsw/about.json       recall, effort, and how both were measured
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fnftg.arrays import Float32Array, Int64Array
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.files import new_folder
from fnftg.kg.store import write_array
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.search import pair_scores, top_answers

HNSW, FILE, ROWS, ABOUT = "hnsw", "index.faiss", "rows.npy", "about.json"
LINKS, BUILDING = 16, 40  # of each vector, and how many are looked at while it is built
EFFORTS = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # vectors looked at in a search
ENOUGH, MEASURED, BEST = 0.97, 200, 10  # recall to reach, queries that it is measured with, answers of each
STALE = 0.2  # share of skipped places from which on it is built anew
BLOCK = 20_000  # vectors added at a time


def faiss() -> Any:
    try:
        import faiss as library
    except ImportError as error:
        raise FnftgError("An index needs faiss: pip install 'fnftg[ann]', or search without --index.") from error
    return library


@dataclass(frozen=True)
class NearestIndex:
    index: Any  # faiss.IndexHNSWFlat
    rows: Int64Array  # (vectors,)
    effort: int
    recall: float  # of the ten best of `queries`
    queries: int

    @classmethod
    def built(cls, model: LinkPredictor, table: Float32Array, query_embeddings: Float32Array) -> NearestIndex:
        """Over all rows of the table (n, d); recall is measured on query embeddings (q, d)."""
        index = faiss().IndexHNSWFlat(table.shape[1], LINKS, metric(model))
        index.hnsw.efConstruction = BUILDING
        add_vectors(index, table)
        return cls(index, np.arange(len(table)), EFFORTS[0], 0.0, 0).measured(model, table, query_embeddings)

    def measured(self, model: LinkPredictor, table: Float32Array, query_embeddings: Float32Array) -> NearestIndex:
        """With the least effort that finds enough of the ten best."""
        nobody, nothing = np.zeros(len(query_embeddings) + 1, np.int64), np.zeros(0, np.int64)
        _, best = top_answers(model, query_embeddings, table, nobody, nothing, BEST)
        tried = self
        for effort in EFFORTS:
            tried = replace(self, effort=effort, queries=len(query_embeddings))
            _, found = tried.search(model, table, query_embeddings, nobody, nothing, BEST)
            shared = (best[:, :, None] == found[:, None, :]).any(2)[best >= 0]
            tried = NearestIndex(
                self.index, self.rows, effort, float(shared.mean()) if len(shared) else 1.0, len(query_embeddings)
            )
            if tried.recall >= ENOUGH:
                break
        return tried

    def search(
        self,
        model: LinkPredictor,
        table: Float32Array,
        query_embeddings: Float32Array,
        offsets: Int64Array,
        left_out: Int64Array,
        k: int,
    ) -> tuple[Float32Array, Int64Array]:
        """As `top_answers`, but a few of the best may be missing: finds candidates, then scores them exactly."""
        stale = int((self.rows < 0).sum())
        most = min(k + int(np.diff(offsets).max(initial=0)) + min(stale, k), len(self.rows))
        scores, rows = (
            np.full((len(query_embeddings), k), -np.inf, np.float32),
            np.full((len(query_embeddings), k), -1, np.int64),
        )
        if not len(query_embeddings) or not most:
            return scores, rows
        parameters = faiss().SearchParametersHNSW(efSearch=max(self.effort, most))
        asked = np.ascontiguousarray(query_embeddings, np.float32)
        _, places = self.index.search(asked, most, params=parameters)  # (q, most), -1 where there are fewer
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
        """In step with a table of which some rows changed or are new; built anew when too much of it is skipped."""
        stale = np.isin(self.rows, changed) | (self.rows < 0)
        if stale.sum() > STALE * len(table):
            return NearestIndex.built(model, table, query_embeddings)
        rows = np.concatenate([np.where(stale, -1, self.rows), changed])
        add_vectors(self.index, table[changed])
        return replace(self, rows=rows).measured(model, table, query_embeddings)

    def save(self, folder: Path, force: bool = False) -> None:
        with new_folder(folder, force) as partial:
            faiss().write_index(self.index, str(partial / FILE))
            write_array(partial / ROWS, self.rows)
            about = {"effort": self.effort, "recall": self.recall, "queries": self.queries}
            (partial / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> NearestIndex:
        library = faiss()
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            rows = np.load(folder / ROWS, allow_pickle=False)
            index = library.read_index(str(folder / FILE))
            if index.ntotal != len(rows):
                raise ValueError("sizes")
            return cls(index, rows, int(about["effort"]), float(about["recall"]), int(about["queries"]))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise FnftgError(f"The index in {folder} is damaged: delete this folder, and it is built anew.") from error


def metric(model: LinkPredictor) -> int:
    """Distances, or inner products: of other scores no index is known."""
    import torch

    if model.by_distance:
        return int(faiss().METRIC_L1)
    generator = torch.Generator().manual_seed(0)
    query_embeddings, vectors = (torch.randn(2, model.width, generator=generator) for _ in range(2))
    with torch.inference_mode():
        if torch.allclose(model.similarity(query_embeddings, vectors), query_embeddings @ vectors.T, atol=1e-4):
            return int(faiss().METRIC_INNER_PRODUCT)
    raise FnftgError("This model's scores are neither distances nor inner products: search without --index.")


def add_vectors(index: Any, vectors: Float32Array) -> None:
    with progress("Building the index", len(vectors), "entities") as advance:
        for start in range(0, len(vectors), BLOCK):
            part = np.array(vectors[start : start + BLOCK], np.float32)
            index.add(np.nan_to_num(part))  # a NaN would spoil the graph; its candidate is never an answer
            advance(len(part))
