"""The fit of the evidence weights on validation queries, after training.

The embedding scores have been trained on the training triples, so weights learned there underestimate what evidence is
worth for new entities. Therefore the few evidence weights are fitted again on the val split, which nothing else is
trained on. Only the relations of the training split are used, so that all others stay unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.console import progress

STEPS, EVERY, RATE = 200, 10, 5e-4  # maximum number of steps, steps between measurements, learning rate
ScoreEvidence = Callable[[], Tensor]  # returns what evidence adds to its candidates (e,) with the current weights


@dataclass(frozen=True)
class FittingProblem:
    """The fixed embedding scores of queries, and the places where evidence is added to them."""

    answer: Tensor  # (q,): scores of the true answers
    rivals: Tensor  # (q, n): scores of the best candidates without evidence
    listed: Tensor  # (l,): scores of the candidates with evidence, without known answers
    place: tuple[Tensor, Tensor, Tensor]  # (l,) each: their query, their column, their row of the evidence table
    own: tuple[Tensor, Tensor]  # queries whose true answer has evidence, and its row of the evidence table

    def scores(self, evidence_scores: Tensor) -> Tensor:
        """Return the scores of the true answer (column 0) and of its rivals, with evidence (e,) added: (q, 1 + …)."""
        answer = self.answer.index_add(0, self.own[0], evidence_scores[self.own[1]])
        query, column, entry = self.place
        listed = torch.full((len(answer), int(column.max()) + 1 if len(column) else 0), -torch.inf)
        listed = listed.index_put((query, column), self.listed + evidence_scores[entry])
        return torch.cat([answer[:, None], listed, self.rivals], dim=1)

    def reciprocal_ranks(self, evidence_scores: Tensor) -> Tensor:
        """Return the reciprocal rank (q,) of each true answer among its rivals."""
        scores = self.scores(evidence_scores)
        others, answer = scores[:, 1:], scores[:, :1]
        return 1 / (1 + (~(others <= answer)).sum(1) + (others == answer).sum(1) / 2)  # a NaN is the worst rank


def fit_weights(
    problem: FittingProblem,
    first: Tensor,
    evidence_scores: ScoreEvidence,
    weights: Sequence[nn.Parameter],
    scale: float,
) -> int:
    """Fit the evidence weights by early stopping and return the number of steps; 0 if no step helped.

    The number of steps is chosen by fitting the first part of the queries and measuring the MRR of the others. Then the
    weights are fitted on all queries with this number of steps.

    Args:
        problem: the validation queries.
        first: which queries (q,) are in the first part.
        evidence_scores: returns the evidence scores for the current weights.
        weights: the parameters to fit, changed in place.
        scale: factor of the scores in the loss.
    """
    tried: dict[int, float] = {}

    def look(step: int) -> None:
        with torch.no_grad():
            tried[step] = float(problem.reciprocal_ranks(evidence_scores().cpu())[~first].mean())

    begun = [weight.detach().clone() for weight in weights]
    descend(problem, evidence_scores, weights, first, scale, STEPS, look)
    best = max(tried, key=lambda step: (tried[step], -step))
    with torch.no_grad():
        for weight, value in zip(weights, begun, strict=True):
            weight.copy_(value)
    descend(problem, evidence_scores, weights, torch.ones_like(first), scale, best, lambda step: None)
    return best


def descend(
    problem: FittingProblem,
    evidence_scores: ScoreEvidence,
    weights: Sequence[nn.Parameter],
    chosen: Tensor,
    scale: float,
    steps: int,
    look: Callable[[int], None],
) -> None:
    """Take `steps` optimiser steps on the chosen queries (q,), and call `look` every `EVERY` steps."""
    optimiser = torch.optim.Adam(weights, RATE)
    look(0)
    with progress("Fitting evidence weights", steps, "steps") as advance:
        for step in range(1, steps + 1):
            scores = problem.scores(evidence_scores().cpu())[chosen] * scale
            loss = functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            advance(1)
            if step % EVERY == 0:
                look(step)
