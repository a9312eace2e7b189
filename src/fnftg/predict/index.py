"""Approximate nearest-neighbour index over the candidate embeddings, for graphs with millions of entities.

The index is faiss's HNSW (Malkov and Yashunin, 2018). Its recall of the ten best answers is measured when it is built,
and the search effort is raised until the recall is high enough. The index is append-only: a changed vector is added
again, and the old copy is ignored.

hnsw/index.faiss      vectors and graph
hnsw/rows.npy         table row of each vector, or -1 if the vector is out of date
hnsw/about.json       recall, effort, number of queries that they were measured on
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fnftg.array_files import load_array, write_array
from fnftg.arrays import Float32Array, Int64Array
from fnftg.checksums import verify_folder
from fnftg.console import log, progress
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_folder
from fnftg.json_files import read_json, write_json
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.search import pair_scores, top_answers

HNSW, FILE, ROWS, ABOUT, KIND = "hnsw", "index.faiss", "rows.npy", "about.json", "index"
LINKS, BUILDING = 16, 40  # HNSW's M and efConstruction
EFFORTS = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # efSearch values to try, in order
ENOUGH, MEASURED, BEST = 0.97, 200, 10  # recall to reach, queries to measure it on, answers per query
STALE = 0.2  # share of outdated vectors above which the index is rebuilt
BLOCK = 20_000  # vectors added at a time


def faiss() -> Any:
    try:
        import faiss as library
    except ImportError as error:
        raise FnftgError("An index needs faiss: pip install 'fnftg[ann]', or search without --index.") from error
    return library


@dataclass(frozen=True)
class NearestIndex:
    """An HNSW index with its measured recall. Find candidates with `search`."""

    index: Any  # faiss.IndexHNSWFlat
    rows: Int64Array  # (vectors,)
    effort: int
    recall: float  # of the ten best answers to `queries` queries
    queries: int

    @classmethod
    def built(cls, model: LinkPredictor, table: Float32Array, query_embeddings: Float32Array) -> NearestIndex:
        """Build an index over the table (n, d) and measure its recall on query embeddings (q, d)."""
        index = faiss().IndexHNSWFlat(table.shape[1], LINKS, metric(model))
        index.hnsw.efConstruction = BUILDING
        add_vectors(index, table)
        return cls(index, np.arange(len(table)), EFFORTS[0], 0.0, 0).measured(model, table, query_embeddings)

    def measured(self, model: LinkPredictor, table: Float32Array, query_embeddings: Float32Array) -> NearestIndex:
        """Return the index with the lowest effort that reaches the required recall."""
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
        """Search approximately, as a replacement of `top_answers`: score candidates from the index exactly."""
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
        _, places = self.index.search(asked, most, params=parameters)  # (q, most), -1 if there are fewer
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
        add_vectors(self.index, table[changed])
        return replace(self, rows=rows).measured(model, table, query_embeddings)

    def save(self, folder: Path) -> None:
        with new_folder(folder, KIND, owned=True) as partial:
            faiss().write_index(self.index, str(partial / FILE))
            write_array(partial / ROWS, self.rows)
            about = {"effort": self.effort, "recall": self.recall, "queries": self.queries}
            write_json(partial / ABOUT, about)

    @classmethod
    def open(cls, folder: Path, entities: int) -> NearestIndex | None:
        """Open the index of a table with this many entities; log a line and return None if it is damaged."""
        library = faiss()
        try:
            verify_folder(folder, KIND)
            about = read_json(folder / ABOUT)
            rows = load_array(folder / ROWS, np.int64, bounds=(-1, entities))
            index = library.read_index(str(folder / FILE))
            if index.ntotal != len(rows):
                raise DamagedError(f"{folder} is damaged: its files do not match.")
            return cls(index, np.array(rows), int(about["effort"]), float(about["recall"]), int(about["queries"]))
        except (FnftgError, ValueError, KeyError, TypeError, RuntimeError) as error:
            reason = str(error) if isinstance(error, FnftgError) else f"{folder} is damaged."
            log(f"{reason} The index is built again.")
            return None


def metric(model: LinkPredictor) -> int:
    """Return faiss's metric for the model's score: L1 distance or inner product. No other scores are supported."""
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
            index.add(np.nan_to_num(part))  # NaN would corrupt the graph; such a candidate is never returned
            advance(len(part))
