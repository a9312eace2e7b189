"""The expected calibration error of probabilities, over the top-k candidates of all queries of a split.

Calibrated probabilities are compared with an uncalibrated baseline, the softmax over the scores of the k candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.arrays import AnyArray, BoolArray, Float32Array, Float64Array, Int32Array
from fnftg.console import progress
from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.files import sha256
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.calibration import FILE, Calibration, load, margins, rivals
from fnftg.ranking.embedding import candidate_table, triple_vectors
from fnftg.ranking.evaluation import MEMORY, ROUND, chosen_triples
from fnftg.ranking.evidence_scores import best_with, evidence_scores
from fnftg.ranking.processes import Processes
from fnftg.ranking.protocols import Protocol
from fnftg.ranking.queries import Filter, Queries
from fnftg.ranking.search import pair_scores, top_answers
from fnftg.ranking.val_parts import Part
from fnftg.text.text_transformer import GraphTexts

BINS = 15  # of equal width, on [0, 1]


@dataclass(frozen=True)
class Predictions:
    """The k best candidates of each query, best first; missing ones have the score −∞.

    As in prediction, other known answers and the query entity itself are left out.
    """

    scores: Float32Array  # (q, k)
    margins: Float64Array  # (q, k): score minus the best score of the query's other candidates
    hits: BoolArray  # (q, k): whether a candidate is the true answer
    labels: Int32Array  # (q,): relation labels in [0, 2R)


@torch.inference_mode()
def predictions(
    model: LinkPredictor,
    graph: KnowledgeGraph,
    texts: GraphTexts,
    split: str,
    protocol: Protocol,
    k: int = 10,
    sample: int | None = None,
    relations: Sequence[int] | None = None,
    memory: int = MEMORY,
    part: Part | None = None,
) -> Predictions:
    """Return the top-k candidates of the queries of a split; the true answer is scored with the target hidden.

    Nothing is known of the splits after it.
    """
    triples, graph = chosen_triples(graph, split, sample, relations, part), graph.up_to(split)
    entities, count = len(graph.entities), len(graph.relations)
    context = GraphContext.of(texts, protocol.visible_triples(graph, split), model.ego.directions)
    candidates = protocol.candidate_entities(graph, split)
    filter = Filter.of(KnownAnswers.of(graph.all_triples(), entities, count), candidates, no_self_answers=True)
    table = candidate_table(model.eval(), context, candidates, memory, Processes())
    rounds = []
    with progress("Ranking", len(triples), "triples") as advance:
        for start in range(0, len(triples), ROUND):
            some = triples[start : start + ROUND]
            query_embeddings, answer_embeddings = triple_vectors(model, context, some, protocol.hidden, memory // 8)
            queries = Queries.of(some, count)
            asked = queries.centres, queries.labels, protocol.hidden, queries.answers
            evidence = evidence_scores(model, context, *asked).among(filter.row_of)
            search = partial(top_answers, model, query_embeddings, table, k=k + 1, memory=memory // 4)
            others, _ = best_with(evidence, model, query_embeddings, table, *filter(queries), search)
            rows = np.arange(len(query_embeddings))
            true = pair_scores(model, query_embeddings, answer_embeddings, rows, rows)
            true += evidence.of_rows(filter.row_of[queries.answers])
            rounds.append(with_answer(others, true, queries.labels))
            advance(len(some))
    return Predictions(
        *(
            np.concatenate([getattr(found, name) for found in rounds])
            for name in ("scores", "margins", "hits", "labels")
        )
    )


def with_answer(others: Float32Array, own: Float32Array, labels: Int32Array) -> Predictions:
    """Merge the score of the true answer (q,) into the k + 1 best other scores; it comes after equal scores."""
    k = others.shape[1] - 1
    scores = np.nan_to_num(np.column_stack([others, own]), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : k + 1]  # k + 1, so that there is a rival even if k is 1
    scores = np.take_along_axis(scores, order, axis=1)
    over = margins(scores, rivals(scores[:, :2], np.arange(k + 1)[None] == 0))
    return Predictions(scores[:, :k], over[:, :k], order[:, :k] == k + 1, labels)


def softmax(scores: AnyArray) -> Float64Array:
    """Return the softmax over the scores of each query's candidates: (q, k), 0 for missing candidates."""
    shifted = scores.astype(np.float64) - np.maximum(scores.max(axis=1, keepdims=True), -1e38)
    powers = np.exp(shifted)
    return np.asarray(powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-300))


def reliability_of(
    folder: Path,
    model: LinkPredictor,
    graph: KnowledgeGraph,
    texts: GraphTexts,
    split: str,
    protocol: Protocol,
    sample: int | None = None,
    relations: Sequence[int] | None = None,
    memory: int = MEMORY,
    earlier: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Measure the calibration of a checkpoint on a split; None if it was not calibrated.

    The result `earlier` is returned unchanged if it belongs to the same curves.
    """
    calibration = load(folder)
    if calibration is None:
        return None
    curves = sha256(folder / FILE)
    if earlier is not None and earlier.get("curves") == curves:
        return earlier
    found = predictions(model, graph, texts, split, protocol, calibration.k, sample, relations, memory)
    ids = graph.relations.ids.slice(0, len(graph.relations))
    return {"curves": curves, **measured(found, calibration.bound(ids))}


def measured(found: Predictions, calibration: Calibration) -> dict[str, Any]:
    """Return the expected calibration error of the curves and of the softmax, over all k answers and first answers."""
    there = np.isfinite(found.scores)
    values: dict[str, Any] = {"method": calibration.method, "k": found.scores.shape[1], "predictions": int(there.sum())}
    sources = {"calibrated": calibration.probabilities(found.margins, found.labels), "softmax": softmax(found.scores)}
    for name, said in sources.items():
        error, bins = reliability(said[there], found.hits[there])
        of_first, _ = reliability(said[there[:, 0], 0], found.hits[there[:, 0], 0])
        values[name] = {"expected_calibration_error": error, "of_first_answers": of_first, "bins": bins}
    return values


def reliability(probabilities: Float64Array, hits: BoolArray) -> tuple[float, list[dict[str, Any]]]:
    """Return the expected calibration error of predictions (n,) and their bins."""
    place = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    said, came = np.bincount(place, probabilities, BINS), np.bincount(place, hits, BINS)
    bins = [
        {"predictions": int(counts[b]), "said": float(said[b] / counts[b]), "came_true": float(came[b] / counts[b])}
        for b in np.flatnonzero(counts)
    ]
    return float(np.abs(said - came).sum() / max(len(hits), 1)), bins
