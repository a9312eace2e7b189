"""Ranking a split of a graph under a protocol."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from fnftg.arrays import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array
from fnftg.console import progress
from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.embedding import candidate_table, triple_vectors
from fnftg.ranking.evidence_scores import counts_with, evidence_scores
from fnftg.ranking.metrics import mean_ranks, metric_values, named
from fnftg.ranking.processes import Processes
from fnftg.ranking.protocols import Protocol
from fnftg.ranking.queries import Filter, Queries, no_self_answers
from fnftg.ranking.rank_counts import Counts
from fnftg.text.text_transformer import GraphTexts

MEMORY = 1 << 30  # bytes that ranking may use beside the model, the graph and its texts
ROUND = 1_024  # triples embedded and ranked before the next ones


@dataclass(frozen=True)
class Ranking:
    """The outcome for each triple: row 0 asks for its tail, row 1 for its head."""

    triples: Triples  # (m, 3)
    better: Int64Array  # (2, m): candidates that are no known answers and score better than the true one
    equal: Int64Array  # (2, m): and those that score exactly as well
    known: Int64Array  # (2, m): other candidates that the filter took out, known answers above all
    scores: Float32Array  # (2, m): of the true answers
    candidates: Int32Array  # (n,)
    split: str
    protocol: Protocol
    seconds: float

    @property
    def ranks(self) -> Float64Array:  # (2, m)
        return mean_ranks(self.better, self.equal)

    @property
    def others(self) -> Int64Array:
        """How many candidates each answer (2, m) was compared with."""
        return len(self.candidates) - 1 - self.known


def split_metrics(
    model: LinkPredictor,
    graph: KnowledgeGraph,
    texts: GraphTexts,
    split: str,
    protocol: Protocol,
    sample: int | None = None,
    relations: Sequence[int] | None = None,
) -> dict[str, Any]:
    """MRR and Hits@1, 3, 10 over both directions, and of each."""
    ranking = rank_split(model, graph, texts, split, protocol, sample, relations)
    values = metric_values(ranking.better, ranking.equal)  # (2, m, 4)
    return {
        **named(values),
        "tails": named(values[0]),
        "heads": named(values[1]),
        "queries": ranking.ranks.size,
    }


def rank_split(
    model: LinkPredictor,
    graph: KnowledgeGraph,
    texts: GraphTexts,
    split: str,
    protocol: Protocol,
    sample: int | None = None,
    relations: Sequence[int] | None = None,
    memory: int = MEMORY,
    processes: Processes | None = None,
) -> Ranking:
    """Ranks the triples of a split: all, a `sample`, or those with one of some `relations` (rows). What is visible, who
    the candidates are and which answers are known does not depend on that choice."""
    started = time.perf_counter()
    triples = chosen_triples(graph, split, sample, relations)
    context = GraphContext.of(texts, protocol.visible_triples(graph, split), model.ego.directions)
    candidates = protocol.candidate_entities(graph, split)
    filter = answer_filter(model, graph, candidates)
    counts = rank_triples(
        model, context, triples, candidates, filter, protocol.hidden, memory, processes or Processes()
    )
    offsets, _ = filter(Queries.of(triples, len(graph.relations)))
    shape = (2, len(triples))
    return Ranking(
        triples,
        counts.better.reshape(shape),
        counts.equal.reshape(shape),
        (np.diff(offsets) - 1).reshape(shape),  # the target is a known answer too
        counts.scores.reshape(shape),
        candidates,
        split,
        protocol,
        time.perf_counter() - started,
    )


def answer_filter(model: LinkPredictor, graph: KnowledgeGraph, candidates: Int32Array) -> Filter:
    """The answers of all splits, and what is none to this model."""
    known = KnownAnswers.of(graph.all_triples(), len(graph.entities), len(graph.relations))
    return Filter.of(known, candidates, False if model.allow_self_answers else no_self_answers(graph))


def chosen_triples(
    graph: KnowledgeGraph, split: str, sample: int | None = None, relations: Sequence[int] | None = None
) -> Triples:
    triples = graph.triples(split)
    if not len(triples):
        raise FnftgError(f"The graph has no triples in {split}: nothing to rank.")
    if relations is not None:
        triples = triples[np.isin(triples[:, 1], np.asarray(relations, np.int64))]
        if not len(triples):
            raise FnftgError(f"No triple of {split} has one of the chosen relations: nothing to rank.")
    if sample is not None and sample < len(triples):
        triples = triples[np.sort(np.random.default_rng(0).choice(len(triples), sample, replace=False))]
    return triples


@torch.inference_mode()
def rank_triples(
    model: LinkPredictor,
    context: GraphContext,
    triples: Triples,
    candidates: Int32Array,
    filter: Filter,
    hidden: Literal["target", "pair"],
    memory: int = MEMORY,
    processes: Processes = Processes(),  # noqa: B008 (immutable)
) -> Counts:
    """The counts of the queries (2m,) of triples (m, 3): first all tails, then all heads."""
    if memory < 1 << 24:
        raise FnftgError(f"A memory of {memory:,} bytes is too little to rank in: give at least 16 MB.")
    was_training = model.training
    model.eval()
    table = candidate_table(model, context, candidates, memory, processes)
    own = triples[processes.share(len(triples))]
    in_memory = not isinstance(table, np.memmap)
    step = ROUND if in_memory else max(memory // 8 // (16 * model.width), 1)  # rounds read the table, from disk or not
    rounds = []
    with progress("Ranking", len(own), "triples") as advance:
        for start in range(0, len(own), step):
            part = own[start : start + step]
            query_embeddings, answer_embeddings = triple_vectors(model, context, part, hidden, memory // 8)
            queries = Queries.of(part, filter.known.relations)
            asked = queries.centres, queries.labels, hidden, queries.answers
            evidence = evidence_scores(model, context, *asked).among(filter.row_of)
            compared = (model, query_embeddings, answer_embeddings, filter.row_of[queries.answers], table)
            offsets, known = filter(queries)
            counts = counts_with(evidence, *compared, offsets, known, memory // 4)
            refused = filter.no_self_answers[queries.labels] & (queries.centres == queries.answers)
            others = len(candidates) - np.diff(offsets)
            rounds.append(
                Counts(
                    np.where(refused, others, counts.better),
                    np.where(refused, 0, counts.equal),
                    np.where(refused, np.float32(-np.inf), counts.scores),
                )
            )
            advance(len(part))
    model.train(was_training)

    def whole(name: str) -> AnyArray:
        halves = [getattr(counts, name).reshape(2, -1) for counts in rounds]
        share = np.concatenate(halves, axis=1) if halves else np.zeros((2, 0), np.int64)
        return processes.gathered(np.ascontiguousarray(share.T), len(triples)).T.ravel()

    return Counts(whole("better"), whole("equal"), whole("scores").astype(np.float32))
