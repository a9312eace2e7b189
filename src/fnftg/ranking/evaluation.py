"""Filtered ranks of the true answers.

Every candidate is embedded once, every query once, and the true answer once more with the target hidden."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fnftg.console import progress
from fnftg.ego.answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import Hidden
from fnftg.errors import FnftgError
from fnftg.kernels.ranks import count_known, count_ranks, l1_pairs
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.models.predictor import LinkPredictor, Visible
from fnftg.ranking.protocols import Protocol
from fnftg.text.transformer import GraphTexts

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]
CENTRES, QUERIES = 2_048, 256  # embedded at a time, and scored against all candidates at a time


@dataclass(frozen=True)
class Queries:
    """Both questions of each triple: first all tails, then all heads."""

    centres: Integers  # (q,): h, then t
    labels: Integers  # (q,): r, then R + r
    answers: Integers  # (q,): t, then h

    @classmethod
    def of(cls, triples: Triples, relations: int) -> Queries:
        heads, relation, tails = triples.T
        return cls(
            np.concatenate([heads, tails]),
            np.concatenate([relation, relation + relations]),
            np.concatenate([tails, heads]),
        )


def evaluate(
    model: LinkPredictor,
    graph: KnowledgeGraph,
    texts: GraphTexts,
    split: str,
    protocol: Protocol,
    sample: int | None = None,
) -> dict[str, Any]:
    """MRR and Hits@1, 3, 10 over both directions; of a `sample` of the triples where one is asked for."""
    triples = graph.triples(split)
    if not len(triples):
        raise FnftgError(f"The graph has no triples in {split}: nothing to rank.")
    if sample is not None and sample < len(triples):
        triples = triples[np.sort(np.random.default_rng(0).choice(len(triples), sample, replace=False))]
    entities, relations = len(graph.entities), len(graph.relations)
    neighbours = Neighbours.of(protocol.visible_triples(graph, split), entities, relations, model.ego.directions)
    known = KnownAnswers.of(graph.all_triples(), entities, relations)
    queries = Queries.of(triples, relations)
    ranks = filtered_ranks(
        model, Visible(texts, neighbours), queries, protocol.candidate_entities(graph, split), known, protocol.hidden
    )
    half = len(triples)
    return {**metrics(ranks), "tails": metrics(ranks[:half]), "heads": metrics(ranks[half:]), "queries": len(ranks)}


def metrics(ranks: npt.NDArray[np.float64]) -> dict[str, float]:
    hits = {f"hits@{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}
    return {"mrr": float((1 / ranks).mean()), **hits}


@torch.inference_mode()
def filtered_ranks(
    model: LinkPredictor,
    visible: Visible,
    queries: Queries,
    candidates: Integers,
    known: KnownAnswers,
    hidden: str,
) -> npt.NDArray[np.float64]:
    """The rank of each query's answer (q,) among the candidates that are no other known answers; ties take the mean."""
    was_training = model.training
    model.eval()
    vectors = candidate_vectors(model, visible, candidates)  # (n, d)
    points, true_vectors = query_vectors(model, visible, queries, hidden)  # (q, d) each
    model.train(was_training)
    row_of = np.full(known.entities, -1)
    row_of[candidates] = np.arange(len(candidates))
    offsets, entities = known(queries.centres, queries.labels)
    answers = row_of[entities]
    listed = answers >= 0  # known answers are candidates only as far as the protocol goes
    offsets, answers = np.concatenate([[0], np.cumsum(listed)])[offsets], answers[listed]
    count = counts_by_distance if model.by_distance else counts_by_similarity
    better, equal = count(model, points, true_vectors, vectors, offsets, answers)
    return 1.0 + better + equal / 2


Counts = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int64]
]  # how many candidates are better, how many equal: (q,) each
Numbers = npt.NDArray[np.int64]


def counts_by_distance(
    model: LinkPredictor, points: Floats, true_vectors: Floats, vectors: Floats, offsets: Numbers, answers: Numbers
) -> Counts:
    """By L1 distances, counted in blocks; the known answers (ragged rows of candidates) do not count."""
    rows = np.arange(len(points))
    true_distances = l1_pairs(points, true_vectors, rows, rows)
    better, equal = count_ranks(points, vectors, true_distances)
    known_better, known_equal = count_known(points, vectors, true_distances, offsets, answers)
    return better - known_better, equal - known_equal


def counts_by_similarity(
    model: LinkPredictor, points: Floats, true_vectors: Floats, vectors: Floats, offsets: Numbers, answers: Numbers
) -> Counts:
    """The same by any similarity, some queries against all candidates at a time; a NaN is worse than all else."""
    better, equal = np.zeros(len(points), np.int64), np.zeros(len(points), np.int64)
    everyone = torch.from_numpy(vectors)
    for part in parts(len(points), QUERIES):
        asked, own = torch.from_numpy(points[part]), torch.from_numpy(true_vectors[part])
        true = model.similarity(asked, own).diagonal()[:, None]  # (b, 1)
        scores = model.similarity(asked, everyone)  # (b, n)
        known = torch.zeros(scores.shape, dtype=torch.bool)
        counts = np.diff(offsets[part.start : part.stop + 1])
        of_part = answers[offsets[part.start] : offsets[part.stop]]
        known[torch.from_numpy(np.repeat(np.arange(len(counts)), counts)), torch.from_numpy(of_part)] = True
        better[part] = (((scores > true) | true.isnan()) & ~known).sum(1).numpy()
        equal[part] = ((scores == true) & ~known).sum(1).numpy()
    return better, equal


def candidate_vectors(model: LinkPredictor, visible: Visible, candidates: Integers) -> Floats:
    vectors = np.empty((len(candidates), model.width), np.float32)
    with progress("Embedding candidates", len(candidates), "entities") as advance:
        for part in parts(len(candidates)):
            egos = visible.ego_graphs(model.ego, candidates[part], None)
            found, _ = model(visible.texts, candidates[part], egos, None, True)
            vectors[part] = found.float().cpu().numpy()
            advance(part.stop - part.start)
    return vectors


def query_vectors(model: LinkPredictor, visible: Visible, queries: Queries, hidden: Any) -> tuple[Floats, Floats]:
    """The points of the queries, and their true answers, both with the target hidden."""
    points = np.empty((len(queries.centres), model.width), np.float32)
    true_vectors = np.empty_like(points)
    relations = visible.texts.relations
    with progress("Embedding queries", len(points), "queries") as advance:
        for part in parts(len(points)):
            centres, labels, answers = queries.centres[part], queries.labels[part], queries.answers[part]
            egos = visible.ego_graphs(model.ego, centres, Hidden(answers, labels, hidden))
            _, found = model(visible.texts, centres, egos, labels, False)
            points[part] = found.float().cpu().numpy()
            inverse = np.where(labels < relations, labels + relations, labels - relations).astype(np.int32)
            egos = visible.ego_graphs(model.ego, answers, Hidden(centres, inverse, hidden))
            found, _ = model(visible.texts, answers, egos, None, True)
            true_vectors[part] = found.float().cpu().numpy()
            advance(part.stop - part.start)
    return points, true_vectors


def parts(count: int, size: int = CENTRES) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
