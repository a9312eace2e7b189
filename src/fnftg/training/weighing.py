"""The weights of votes, fitted once more after training.

In training, votes stand beside scores that know the training triples already, and seem to be worth less than they are
for entities that are new. So their few weights are fitted on the val split, which nothing else learns from; on the
relations that train has, as others must stay unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fnftg.arrays import Int32Array
from fnftg.console import progress
from fnftg.ego.votes import Votes
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.link_predictor import GraphContext, LinkPredictor
from fnftg.models.voting import Voting
from fnftg.ranking.embedding import candidate_table, triple_vectors
from fnftg.ranking.evaluation import MEMORY, answer_filter, chosen_triples
from fnftg.ranking.evidence_scores import Extras
from fnftg.ranking.processes import Processes
from fnftg.ranking.protocols import Protocol
from fnftg.ranking.queries import Queries
from fnftg.ranking.search import pair_scores, top_answers
from fnftg.text.transformer import GraphTexts

TRIPLES = 5_000  # of val that are asked for at most
RIVALS = 64  # best candidates without votes that each answer is compared with
STEPS, EVERY, RATE = 200, 10, 5e-4


@dataclass(frozen=True)
class Weighed:
    """The mean reciprocal rank on one half of the triples, before and with weights fitted on the other half."""

    before: float
    after: float
    steps: int  # of the optimiser; 0: the weights stayed as they were


def can_be_weighed(graph: KnowledgeGraph) -> bool:
    """Val has two triples of relations that train has, one for each half."""
    return int(np.isin(graph.triples("val")[:, 1], graph.triples("train")[:, 1]).sum()) > 1


def weigh(model: LinkPredictor, graph: KnowledgeGraph, texts: GraphTexts, rules: Protocol, scale: float) -> Weighed:
    """Fits the votes' weights of the model, as far as that helps; scores are multiplied by `scale` in the loss.

    How many steps help is found with one half of the triples, on the other; then all are fitted.
    """
    case = Case.of(model.eval(), graph, texts, rules)
    weights = [weight for module in model.modules() if isinstance(module, Voting) for weight in module.parameters()]
    needed = [weight.requires_grad for weight in model.parameters()]
    model.requires_grad_(False)
    first = torch.from_numpy(np.arange(len(case.labels)) % (len(case.labels) // 2) % 2 == 0)  # of whole triples
    tried: dict[int, float] = {}

    def look(step: int) -> None:
        with torch.no_grad():
            tried[step] = float(case.reciprocal_ranks(model)[~first].mean())

    begun = [weight.clone() for weight in weights]
    fit(case, model, weights, first, scale, STEPS, look)
    best = max(tried, key=lambda step: (tried[step], -step))
    restore(weights, begun)
    fit(case, model, weights, torch.ones_like(first), scale, best, lambda step: None)
    for weight, was in zip(model.parameters(), needed, strict=True):
        weight.requires_grad_(was)
    return Weighed(tried[0], tried[best], best)


def restore(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for weight, value in zip(weights, values, strict=True):
            weight.copy_(value)


def fit(
    case: Case,
    model: LinkPredictor,
    weights: list[Any],
    chosen: Tensor,
    scale: float,
    steps: int,
    look: Callable[[int], None],
) -> None:
    """So many steps on the chosen queries (q,), looked at now and then."""
    optimiser = torch.optim.Adam([weight.requires_grad_() for weight in weights], RATE)
    look(0)
    with progress("Weighing votes", steps, "steps") as advance:
        for step in range(1, steps + 1):
            scores = case.scores(model)[chosen] * scale
            loss = functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            advance(1)
            if step % EVERY == 0:
                look(step)


@dataclass(frozen=True)
class Case:
    """Queries with the scores that do not change: of the answer, of its best rivals, and of those that have votes."""

    texts: GraphTexts
    labels: Int32Array  # (q,)
    votes: Votes
    true: Tensor  # (q,)
    rivals: Tensor  # (q, RIVALS): of candidates without votes
    voted: Tensor  # (v,): of candidates with votes, known answers left out
    place: tuple[Tensor, Tensor, Tensor]  # (v,) each: the candidate's query, its place there, and among the votes
    own: tuple[Tensor, Tensor]  # queries whose answer has votes, and its place among these

    @classmethod
    @torch.no_grad()
    def of(cls, model: LinkPredictor, graph: KnowledgeGraph, texts: GraphTexts, rules: Protocol) -> Case:
        triples = chosen_triples(graph, "val", TRIPLES, np.unique(graph.triples("train")[:, 1]).tolist())
        context = GraphContext.of(model, texts, rules.visible_triples(graph, "val"))
        candidates, queries = rules.candidate_entities(graph, "val"), Queries.of(triples, len(graph.relations))
        filter = answer_filter(model, graph, candidates)
        table = candidate_table(model, context, candidates, MEMORY, Processes())
        query_embeddings, answer_embeddings = triple_vectors(model, context, triples, rules.hidden, MEMORY // 8)
        votes = context.votes(model.votes, queries.centres, queries.labels, rules.hidden, queries.answers)
        assert votes is not None
        rows = filter.row_of[votes.entities]
        listed = Extras(votes.offsets, np.where(rows < 0, len(table), rows), np.zeros(len(rows), np.float32))
        spared, outside, left_out = listed.apart_from(*filter(queries), len(table) + 1)
        spared &= rows >= 0
        there = left_out < len(table)
        outside, left_out = np.concatenate([[0], np.cumsum(there)])[outside], left_out[there]
        rivals, _ = top_answers(model, query_embeddings, table, outside, left_out, RIVALS, MEMORY // 4)
        query = listed.queries
        voted = pair_scores(model, query_embeddings, table, query[spared], rows[spared])
        everyone = np.arange(len(query_embeddings))
        own = np.flatnonzero(rows == filter.row_of[queries.answers][query])
        first = np.searchsorted(query[spared], query[spared])
        place = query[spared], np.arange(len(first)) - first, np.flatnonzero(spared)
        return cls(
            texts,
            queries.labels,
            votes,
            torch.from_numpy(pair_scores(model, query_embeddings, answer_embeddings, everyone, everyone)),
            torch.from_numpy(rivals),
            torch.from_numpy(voted),
            tuple(map(torch.from_numpy, place)),  # type: ignore[arg-type]
            (torch.from_numpy(query[own]), torch.from_numpy(own)),
        )

    def scores(self, model: LinkPredictor) -> Tensor:
        """Of the answer, then of all that it is compared with, by the weights as they are: (q, 1 + …)."""
        added = model.added(self.texts, self.labels, self.votes).cpu()  # (e,)
        true = self.true.index_add(0, self.own[0], added[self.own[1]])
        query, column, entry = self.place
        voted = torch.full((len(true), int(column.max()) + 1 if len(column) else 0), -torch.inf)
        voted = voted.index_put((query, column), self.voted + added[entry])
        return torch.cat([true[:, None], voted, self.rivals], dim=1)

    def reciprocal_ranks(self, model: LinkPredictor) -> Tensor:
        """(q,), as far as the rivals tell."""
        scores = self.scores(model)
        others, true = scores[:, 1:], scores[:, :1]
        return 1 / (1 + (~(others <= true)).sum(1) + (others == true).sum(1) / 2)  # a NaN is the worst rank
