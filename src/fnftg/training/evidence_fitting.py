"""The fit of a model's evidence weights on two parts of the val split, and its measurement on the third."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fnftg.arrays import Float32Array, Int32Array
from fnftg.ego.context import GraphContext
from fnftg.evidence.fitting import FittingProblem, fit_weights
from fnftg.evidence.table import EvidenceTable
from fnftg.evidence.weights import EvidenceWeights
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.embedding import candidate_table, triple_vectors
from fnftg.ranking.evaluation import MEMORY, answer_filter, chosen_triples, rank_triples
from fnftg.ranking.evidence_scores import EvidenceScores
from fnftg.ranking.metrics import mean_ranks
from fnftg.ranking.processes import Processes
from fnftg.ranking.protocols import Protocol
from fnftg.ranking.queries import Filter, Queries
from fnftg.ranking.search import pair_scores, top_answers
from fnftg.ranking.val_parts import PARTS, part_numbers
from fnftg.text.text_transformer import GraphTexts

MAX_TRIPLES = 2_500  # maximum number of triples of each part
RIVALS = 64  # number of best candidates without evidence that each answer is compared with


@dataclass(frozen=True)
class FitResult:
    """The MRR on the held-out part of val, before and after fitting the weights on the other two parts."""

    before: float
    after: float
    steps: int  # optimiser steps; 0 if fitting did not help and the weights are unchanged
    fitted: int  # number of triples that the weights are fitted on
    held_out: int  # number of triples of the MRR


@dataclass(frozen=True)
class ValQueries:
    """What the queries of val triples are ranked with: the model, the visible edges and the embedded candidates."""

    model: EvidenceModel
    context: GraphContext
    rules: Protocol
    candidates: Int32Array  # (n,)
    filter: Filter
    vectors: Float32Array  # (n, d): candidate embeddings

    @classmethod
    @torch.no_grad()
    def of(cls, model: EvidenceModel, graph: KnowledgeGraph, texts: GraphTexts, rules: Protocol) -> ValQueries:
        """Embed the candidates. Nothing is known of the splits after val."""
        graph = graph.up_to("val")
        context = GraphContext.of(texts, rules.visible_triples(graph, "val"), model.ego.directions)
        candidates = rules.candidate_entities(graph, "val")
        filter = answer_filter(model, graph, candidates)
        vectors = candidate_table(model.eval(), context, candidates, MEMORY, Processes())
        return cls(model, context, rules, candidates, filter, vectors)

    def mrr(self, triples: Triples) -> float:
        """Rank triples (m, 3) with the current weights."""
        asked = (triples, self.candidates, self.filter, self.rules.hidden)
        counts = rank_triples(self.model, self.context, *asked, table=self.vectors)
        return float((1 / mean_ranks(counts.better, counts.equal)).mean())

    @torch.no_grad()
    def fitting_problem(self, triples: Triples) -> tuple[FittingProblem, EvidenceTable, Queries]:
        """Return the queries of triples (m, 3), and the evidence for their candidates."""
        model, vectors, filter, hidden = self.model, self.vectors, self.filter, self.rules.hidden
        queries = Queries.of(triples, filter.known.relations)
        embeddings, answer_embeddings = triple_vectors(model, self.context, triples, hidden, MEMORY // 8)
        assert model.evidence is not None
        table = model.evidence.table(self.context, queries.centres, queries.labels, hidden, queries.answers)
        rows = filter.row_of[table.entities]
        listed = EvidenceScores(table.offsets, np.where(rows < 0, len(vectors), rows), np.zeros(len(rows), np.float32))
        spared, outside, left_out = listed.apart_from(*filter(queries), len(vectors) + 1)
        spared &= rows >= 0
        there = left_out < len(vectors)
        outside, left_out = np.concatenate([[0], np.cumsum(there)])[outside], left_out[there]
        rivals, _ = top_answers(model, embeddings, vectors, outside, left_out, RIVALS, MEMORY // 4)
        query, everyone = listed.queries, np.arange(len(embeddings))
        own = np.flatnonzero(rows == filter.row_of[queries.answers][query])
        first = np.searchsorted(query[spared], query[spared])
        place = query[spared], np.arange(len(first)) - first, np.flatnonzero(spared)
        problem = FittingProblem(
            torch.from_numpy(pair_scores(model, embeddings, answer_embeddings, everyone, everyone)),
            torch.from_numpy(rivals),
            torch.from_numpy(pair_scores(model, embeddings, vectors, query[spared], rows[spared])),
            tuple(map(torch.from_numpy, place)),  # type: ignore[arg-type]
            (torch.from_numpy(query[own]), torch.from_numpy(own)),
        )
        return problem, table, queries


def fits_evidence(model: LinkPredictor) -> bool:
    """Return whether the model has evidence whose weights shall be fitted."""
    evidence = evidence_of(model)
    return evidence is not None and evidence.config.fit


def has_parts_to_fit_on(graph: KnowledgeGraph) -> bool:
    """Return whether each part of val has a triple of a training relation."""
    val = graph.triples("val")
    seen = val[np.isin(val[:, 1], graph.triples("train")[:, 1])]
    return len(np.unique(part_numbers(graph, seen))) == len(PARTS)


def fit_evidence(
    model: LinkPredictor, graph: KnowledgeGraph, texts: GraphTexts, rules: Protocol, scale: float
) -> FitResult:
    """Fit the evidence weights of a model in place, by early stopping; `scale` multiplies the scores in the loss.

    Only val triples of training relations are used, in the parts of `ranking/val_parts.py`.
    """
    assert isinstance(model, EvidenceModel)
    relations = np.unique(graph.triples("train")[:, 1]).tolist()
    first, second, held_out = (chosen_triples(graph, "val", MAX_TRIPLES, relations, part) for part in PARTS)
    val = ValQueries.of(model, graph, texts, rules)
    before = val.mrr(held_out)
    problem, table, queries = val.fitting_problem(np.concatenate([first, second]))
    in_first = torch.arange(len(first) + len(second)).repeat(2) < len(first)  # tail queries come before head queries
    weights = [weight for part in model.modules() if isinstance(part, EvidenceWeights) for weight in part.parameters()]
    needed = [weight.requires_grad for weight in model.parameters()]
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_()
    try:
        steps = fit_weights(
            problem, in_first, lambda: model.evidence_scores(texts, queries.labels, table), weights, scale
        )
    finally:
        for weight, was in zip(model.parameters(), needed, strict=True):
            weight.requires_grad_(was)
    return FitResult(before, val.mrr(held_out), steps, len(first) + len(second), len(held_out))
