"""Counts of better and equal candidates, computed in blocks, so that the full score matrix is never in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fnftg.arrays import Float32Array, Int64Array
from fnftg.kernels.products import count_greater, count_known_greater, product_pairs
from fnftg.kernels.ranks import count_known, count_ranks, l1_pairs
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.exact_similarity import exact_similarity, has_product_kernel

QUERIES = 512  # queries per block, if the score is not a distance


@dataclass(frozen=True)
class Counts:
    """The counts of each query, without known answers."""

    better: Int64Array  # (q,): candidates with a higher score than the true answer
    equal: Int64Array  # (q,): candidates with the same score
    scores: Float32Array  # (q,): scores of the true answers


def filtered_counts(
    model: LinkPredictor,
    query_embeddings: Float32Array,
    answer_embeddings: Float32Array,
    table: Float32Array,
    offsets: Int64Array,
    known: Int64Array,
    memory: int,
    answer_evidence: Float32Array | float = 0.0,
) -> Counts:
    """Count the candidates that score better than, or the same as, the true answers.

    Args:
        model: the model.
        query_embeddings: (q, d).
        answer_embeddings: embeddings of the true answers, (q, d).
        table: embeddings of the candidates, (n, d).
        offsets: query i leaves out the rows known[offsets[i] : offsets[i + 1]].
        known: rows of the known answers, including the true one.
        memory: bytes for a block.
        answer_evidence: evidence added to the scores of the true answers, (q,).
    """
    answer_evidence = np.broadcast_to(np.asarray(answer_evidence, np.float32), len(query_embeddings))
    if not model.by_distance and not has_product_kernel(model):
        return by_similarity(model, query_embeddings, answer_embeddings, table, offsets, known, memory, answer_evidence)
    # count the known answers separately and subtract them
    rows = np.arange(len(query_embeddings))
    own = query_embeddings, answer_embeddings, rows, rows
    if model.by_distance:
        distances = l1_pairs(*own) - answer_evidence
        better, equal = count_ranks(query_embeddings, table, distances, memory)
        known_better, known_equal = count_known(query_embeddings, table, distances, offsets, known, memory)
        scores = -distances
    else:
        scores = product_pairs(*own) + answer_evidence
        better, equal = count_greater(query_embeddings, table, scores, memory)
        known_better, known_equal = count_known_greater(query_embeddings, table, scores, offsets, known, memory)
    return Counts(better - known_better, equal - known_equal, scores)


def by_similarity(
    model: LinkPredictor,
    query_embeddings: Float32Array,
    answer_embeddings: Float32Array,
    table: Float32Array,
    offsets: Int64Array,
    known: Int64Array,
    memory: int,
    answer_evidence: Float32Array,
) -> Counts:
    """Count with any similarity; NaN is worse than every other score."""
    better, equal = np.zeros(len(query_embeddings), np.int64), np.zeros(len(query_embeddings), np.int64)
    scores = np.empty(len(query_embeddings), np.float32)
    step = max(memory // (QUERIES * 32), 1)  # up to 32 bytes per score: double, single and booleans
    for start in range(0, len(query_embeddings), QUERIES):
        part = slice(start, min(start + QUERIES, len(query_embeddings)))
        asked = query_embeddings[part]
        true = exact_similarity(model, asked, answer_embeddings[part]).diagonal()  # (b,)
        true = true + torch.from_numpy(answer_evidence[part].copy())
        scores[part] = true.numpy()
        query = np.repeat(np.arange(part.stop - start), np.diff(offsets[start : part.stop + 1]))
        rows = known[offsets[start] : offsets[part.stop]]
        for first in range(0, len(table), step):
            found = exact_similarity(model, asked, np.array(table[first : first + step]))  # (b, step)
            counted = torch.ones(found.shape, dtype=torch.bool)
            here = (rows >= first) & (rows < first + step)
            counted[torch.from_numpy(query[here]), torch.from_numpy(rows[here] - first)] = False
            better[part] += (((found > true[:, None]) | true.isnan()[:, None]) & counted).sum(1).numpy()
            equal[part] += ((found == true[:, None]) & counted).sum(1).numpy()
    return Counts(better, equal, scores)
