"""Exact search for the candidates with the highest scores, without known links.

Queries and candidates are processed in blocks, so that the full score matrix is never in memory. Candidates with the
score NaN are left out, and equal scores are ordered by row.
"""

from __future__ import annotations

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int64Array, IntArray
from fnftg.kernels.products import product_pairs, top_products
from fnftg.kernels.ranges import ranges
from fnftg.kernels.ranks import l1_pairs, top_k
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.exact_similarity import exact_similarity, has_product_kernel

MEMORY = 1 << 28  # bytes for a search, in addition to the candidates' table
QUERIES = 256  # queries per block, if the score is not a distance
PAIRS = 256  # pairs per block, if the score is not a distance
NO_ROW, NO_KEY = -1, np.iinfo(np.int64).max


def top_answers(
    model: LinkPredictor,
    query_embeddings: Float32Array,
    table: Float32Array,
    offsets: Int64Array,
    known: IntArray,
    k: int,
    memory: int = MEMORY,
) -> tuple[Float32Array, Int64Array]:
    """Return the k best candidates of each query: scores and rows, (q, k) each, best first.

    If a query has fewer than k candidates, the rest has the score -inf and the row -1.

    Args:
        model: the model.
        query_embeddings: (q, d).
        table: embeddings of the candidates, (n, d).
        offsets: query i leaves out the rows known[offsets[i] : offsets[i + 1]].
        known: rows to leave out.
        k: number of candidates per query.
        memory: bytes for the search.
    """
    scores, rows = (
        np.full((len(query_embeddings), k), -np.inf, np.float32),
        np.full((len(query_embeddings), k), NO_ROW, np.int64),
    )
    if len(query_embeddings) and len(table) and k:
        search = _by_distance if model.by_distance else _by_product if has_product_kernel(model) else _by_similarity
        search(model, query_embeddings, table, np.asarray(offsets, np.int64), known, scores, rows, memory)
    return scores, rows


def pair_scores(
    model: LinkPredictor,
    query_embeddings: Float32Array,
    vectors: Float32Array,
    query_rows: IntArray,
    vector_rows: IntArray,
) -> Float32Array:
    """Return the scores of chosen pairs (p,), identical to those of `top_answers`."""
    if model.by_distance:
        return np.subtract(np.float32(0), l1_pairs(query_embeddings, vectors, query_rows, vector_rows))
    if has_product_kernel(model):
        return product_pairs(query_embeddings, vectors, query_rows, vector_rows)
    scores = np.empty(len(query_rows), np.float32)
    for start in range(0, len(scores), PAIRS):
        part = slice(start, start + PAIRS)
        pairs = np.array(query_embeddings[query_rows[part]]), np.array(vectors[vector_rows[part]])
        scores[part] = exact_similarity(model, *pairs).diagonal().numpy()
    return scores + np.float32(0)  # no -0.0


def _by_distance(
    model: LinkPredictor,
    query_embeddings: Float32Array,
    table: Float32Array,
    offsets: Int64Array,
    known: IntArray,
    scores: Float32Array,
    rows: Int64Array,
    memory: int,
) -> None:
    """Search with the L1 kernel for k plus the number of known rows, then drop the known ones.

    Queries with similar numbers of known rows are searched together.
    """
    k = scores.shape[1]
    most = np.minimum(k + np.diff(offsets), len(table))  # (q,)
    size = np.frexp(most.astype(np.float64))[1]
    for group in np.unique(size):
        queries = np.flatnonzero(size == group)
        wanted = int(most[queries].max())
        step = max(memory // (64 * wanted), 1)  # a few 8-byte keys per thread
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            distances, found = top_k(query_embeddings[part], table, wanted, memory)  # (b, wanted)
            out = np.isnan(distances) | _listed(found, len(table), *_chosen(offsets, known, part))
            order = np.argsort(out, axis=1, kind="stable")[:, :k]
            out, found = np.take_along_axis(out, order, axis=1), np.take_along_axis(found, order, axis=1)
            distances = np.take_along_axis(distances, order, axis=1)
            scores[part, : order.shape[1]] = np.where(out, np.float32(-np.inf), np.float32(0) - distances)
            rows[part, : order.shape[1]] = np.where(out, NO_ROW, found)


def _by_product(
    model: LinkPredictor,
    query_embeddings: Float32Array,
    table: Float32Array,
    offsets: Int64Array,
    known: IntArray,
    scores: Float32Array,
    rows: Int64Array,
    memory: int,
) -> None:
    """Search with the kernel for inner products."""
    step = max(memory // (64 * scores.shape[1]), 1)  # a few 8-byte keys per thread
    for start in range(0, len(query_embeddings), step):
        part = slice(start, start + step)
        own_offsets, own_known = _chosen(offsets, known, np.arange(len(query_embeddings))[part])
        best = top_products(query_embeddings[part], table, scores.shape[1], own_offsets, own_known, memory)
        scores[part], rows[part] = best


def _by_similarity(
    model: LinkPredictor,
    query_embeddings: Float32Array,
    table: Float32Array,
    offsets: Int64Array,
    known: IntArray,
    scores: Float32Array,
    rows: Int64Array,
    memory: int,
) -> None:
    """Search with any similarity."""
    k = scores.shape[1]
    for start in range(0, len(query_embeddings), QUERIES):
        part = np.arange(start, min(start + QUERIES, len(query_embeddings)))
        bytes_a_row = 48 * len(part) + 16 * query_embeddings.shape[1]  # scores and keys, and vectors
        step = max(memory // bytes_a_row, 1)
        best = np.full((len(part), k), NO_KEY, np.int64)
        own_offsets, own_known = _chosen(offsets, known, part)
        query = np.repeat(np.arange(len(part)), np.diff(own_offsets))
        for first in range(0, len(table), step):
            block = np.array(table[first : first + step])
            found = exact_similarity(model, query_embeddings[part], block).numpy() + np.float32(0)  # (b, step); no -0.0
            keys = _keys(found, first)
            here = (own_known >= first) & (own_known < first + len(block))
            keys[query[here], own_known[here] - first] = NO_KEY
            keys[np.isnan(found)] = NO_KEY
            if keys.shape[1] > k:
                keys = np.partition(keys, k - 1, axis=1)[:, :k]
            best = np.sort(np.concatenate([best, keys], axis=1), axis=1)[:, :k]
        there = best != NO_KEY
        scores[part] = np.where(there, _scores(best), np.float32(-np.inf))
        rows[part] = np.where(there, best & 0xFFFFFFFF, NO_ROW)


def _keys(scores: Float32Array, first: int) -> Int64Array:
    """Return integer keys (b, n) that sort by descending score, then by row, for the rows first, first + 1, …"""
    bits = scores.view(np.int32).astype(np.int64)
    rising = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # in the order of the scores
    return (-rising << 32) + (first + np.arange(scores.shape[1]))


def _scores(keys: Int64Array) -> Float32Array:
    """Return the scores of keys from `_keys`."""
    rising = -(keys >> 32)
    return np.where(rising < 0, -rising | 0x80000000, rising).astype(np.uint32).view(np.float32)


def _chosen(offsets: Int64Array, known: IntArray, queries: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the offsets and known rows of some of the queries."""
    counts = offsets[queries + 1] - offsets[queries]
    own = np.concatenate([[0], np.cumsum(counts)])
    return own, known[ranges(offsets[queries], counts)].astype(np.int64)


def _listed(found: Int64Array, size: int, offsets: Int64Array, known: Int64Array) -> BoolArray:
    """Return whether each row found (q, m) is a known row of its query."""
    queries = np.arange(len(found))
    listed = np.repeat(queries, np.diff(offsets)) * size + known
    return np.isin(queries[:, None] * size + found, listed)
