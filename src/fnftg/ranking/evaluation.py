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
from fnftg.ranking.val_parts import Part, part_triples
from fnftg.text.text_transformer import GraphTexts

MEMORY = 1 << 30  # bytes for ranking, in addition to the model, the graph and its texts
ROUND = 1_024  # triples that are embedded and ranked together


@dataclass(frozen=True)
class Ranking:
    """The ranks of triples: row 0 of each array has the tail queries, row 1 the head queries."""

    triples: Triples  # (m, 3)
    better: Int64Array  # (2, m): candidates with a higher score than the true answer, without known answers
    equal: Int64Array  # (2, m): candidates with the same score, without known answers
    known: Int64Array  # (2, m): candidates that the filter removed, mostly known answers
    scores: Float32Array  # (2, m): scores of the true answers
    candidates: Int32Array  # (n,)
    split: str
    protocol: Protocol
    seconds: float

    @property
    def ranks(self) -> Float64Array:
        """The mean ranks of the true answers: (2, m)."""
        return mean_ranks(self.better, self.equal)

    @property
    def others(self) -> Int64Array:
        """The number of candidates that each answer was compared with: (2, m)."""
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
    """Rank a split and return MRR and Hits@1, 3, 10 over all queries, over tail queries and over head queries."""
    ranking = rank_split(model, graph, texts, split, protocol, sample, relations)
    values = metric_values(ranking.better, ranking.equal)  # (2, m, 4)
    return {
        **named(values),
        "tails": named(values[0]),
        "heads": named(values[1]),
        "queries": ranking.ranks.size,
        "candidates": len(ranking.candidates),
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
    """Rank the triples of a split. Nothing is known of the splits after it.

    `sample` and `relations` choose the triples that are ranked. They do not change the visible edges, the candidates or
    the known answers.

    Args:
        model: the model.
        graph: the graph.
        texts: the texts of the graph as the model reads them.
        split: the split to rank.
        protocol: the protocol.
        sample: rank a fixed random sample of this many triples; None for all.
        relations: rank only triples of these relations (rows); None for all.
        memory: bytes for ranking, in addition to the model, the graph and its texts.
        processes: the processes that share the work; None for this one only.
    """
    started = time.perf_counter()
    triples, graph = chosen_triples(graph, split, sample, relations), graph.up_to(split)
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
        (np.diff(offsets) - 1).reshape(shape),  # the target is a known answer itself
        counts.scores.reshape(shape),
        candidates,
        split,
        protocol,
        time.perf_counter() - started,
    )


def answer_filter(model: LinkPredictor, graph: KnowledgeGraph, candidates: Int32Array) -> Filter:
    """Return the filter of the known answers of a graph, and of self-answers if the model does not allow them."""
    known = KnownAnswers.of(graph.all_triples(), len(graph.entities), len(graph.relations))
    return Filter.of(known, candidates, False if model.allow_self_answers else no_self_answers(graph))


def chosen_triples(
    graph: KnowledgeGraph,
    split: str,
    sample: int | None = None,
    relations: Sequence[int] | None = None,
    part: Part | None = None,
) -> Triples:
    """Return the triples of a split to rank: all, a part, those of some relations (rows), or a fixed random sample."""
    triples = graph.triples(split)
    if not len(triples):
        raise FnftgError(f"The graph has no triples in {split}: choose another split.")
    if part is not None:
        triples = part_triples(graph, triples, part)
        if not len(triples):
            raise FnftgError(f"{split} is too small to have a part {part}: choose another split.")
    if relations is not None:
        triples = triples[np.isin(triples[:, 1], np.asarray(relations, np.int64))]
        if not len(triples):
            raise FnftgError(f"No triple of {split} has one of the chosen relations: choose others.")
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
    table: Float32Array | None = None,
) -> Counts:
    """Return the counts of the queries (2m,) of triples (m, 3), all tail queries before all head queries.

    The candidates are embedded first, unless `table` has their embeddings.
    """
    if memory < 1 << 24:
        raise FnftgError(f"{memory:,} bytes of memory are too few for ranking: give at least 16 MB.")
    was_training = model.training
    model.eval()
    table = candidate_table(model, context, candidates, memory, processes) if table is None else table
    own = triples[processes.share(len(triples))]
    in_memory = not isinstance(table, np.memmap)
    step = ROUND if in_memory else max(memory // 8 // (16 * model.width), 1)  # each round reads the whole table
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
