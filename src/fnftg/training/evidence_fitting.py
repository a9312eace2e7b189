"""The fit of a model's evidence weights on the val split of a graph."""

from __future__ import annotations

import numpy as np
import torch

from fnftg.ego.context import GraphContext
from fnftg.evidence.fitting import FitResult, FittingProblem, fit_weights
from fnftg.evidence.table import EvidenceTable
from fnftg.evidence.weights import EvidenceWeights
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.embedding import candidate_table, triple_vectors
from fnftg.ranking.evaluation import MEMORY, answer_filter, chosen_triples
from fnftg.ranking.evidence_scores import EvidenceScores
from fnftg.ranking.processes import Processes
from fnftg.ranking.protocols import Protocol
from fnftg.ranking.queries import Queries
from fnftg.ranking.search import pair_scores, top_answers
from fnftg.text.text_transformer import GraphTexts

MAX_TRIPLES = 5_000  # maximum number of val triples
RIVALS = 64  # number of best candidates without evidence that each answer is compared with


def can_fit_evidence(model: LinkPredictor, graph: KnowledgeGraph) -> bool:
    """Return whether the model has evidence to fit and val has at least two triples of training relations."""
    evidence = evidence_of(model)
    if evidence is None or not evidence.config.fit:
        return False
    return int(np.isin(graph.triples("val")[:, 1], graph.triples("train")[:, 1]).sum()) > 1


def fit_evidence(
    model: LinkPredictor, graph: KnowledgeGraph, texts: GraphTexts, rules: Protocol, scale: float
) -> FitResult:
    """Fit the evidence weights of a model in place, by early stopping; `scale` multiplies the scores in the loss."""
    assert isinstance(model, EvidenceModel)
    problem, table, queries = fitting_problem(model.eval(), graph, texts, rules)
    weights = [weight for part in model.modules() if isinstance(part, EvidenceWeights) for weight in part.parameters()]
    needed = [weight.requires_grad for weight in model.parameters()]
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_()
    try:
        return fit_weights(problem, lambda: model.evidence_scores(texts, queries.labels, table), weights, scale)
    finally:
        for weight, was in zip(model.parameters(), needed, strict=True):
            weight.requires_grad_(was)


@torch.no_grad()
def fitting_problem(
    model: EvidenceModel, graph: KnowledgeGraph, texts: GraphTexts, rules: Protocol
) -> tuple[FittingProblem, EvidenceTable, Queries]:
    """Return the queries of val triples with training relations, and the evidence for their candidates."""
    triples = chosen_triples(graph, "val", MAX_TRIPLES, np.unique(graph.triples("train")[:, 1]).tolist())
    context = GraphContext.of(texts, rules.visible_triples(graph, "val"), model.ego.directions)
    candidates, queries = rules.candidate_entities(graph, "val"), Queries.of(triples, len(graph.relations))
    filter = answer_filter(model, graph, candidates)
    vectors = candidate_table(model, context, candidates, MEMORY, Processes())
    embeddings, answer_embeddings = triple_vectors(model, context, triples, rules.hidden, MEMORY // 8)
    assert model.evidence is not None
    table = model.evidence.table(context, queries.centres, queries.labels, rules.hidden, queries.answers)
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
