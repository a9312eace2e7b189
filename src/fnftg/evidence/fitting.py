"""The fit of the evidence weights on validation queries, after training.

In training, evidence stands beside scores that know the training triples already, and seems to be worth less than it is
for entities that are new. So its few weights are fitted once more, on the val split, which nothing else learns from;
on the relations that train has, as others must stay unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.console import progress

STEPS, EVERY, RATE = 200, 10, 5e-4
ScoreEvidence = Callable[[], Tensor]  # what evidence adds to its candidates (e,), by the weights as they are


@dataclass(frozen=True)
class FitResult:
    """The mean reciprocal rank on one half of the triples, before and with weights fitted on the other half."""

    before: float
    after: float
    steps: int  # of the optimiser; 0: the weights stayed as they were


@dataclass(frozen=True)
class FittingProblem:
    """Queries with the scores that do not change, and where evidence adds to them."""

    answer: Tensor  # (q,): scores of the true answers
    rivals: Tensor  # (q, n): of the best candidates without evidence
    listed: Tensor  # (l,): of candidates with evidence, known answers left out
    place: tuple[Tensor, Tensor, Tensor]  # (l,) each: their queries, places there, and rows of the evidence table
    own: tuple[Tensor, Tensor]  # the queries whose answer has evidence, and its row in the evidence table

    def scores(self, evidence_scores: Tensor) -> Tensor:
        """Of the answer, then of all that it is compared with, given what evidence adds (e,): (q, 1 + …)."""
        answer = self.answer.index_add(0, self.own[0], evidence_scores[self.own[1]])
        query, column, entry = self.place
        listed = torch.full((len(answer), int(column.max()) + 1 if len(column) else 0), -torch.inf)
        listed = listed.index_put((query, column), self.listed + evidence_scores[entry])
        return torch.cat([answer[:, None], listed, self.rivals], dim=1)

    def reciprocal_ranks(self, evidence_scores: Tensor) -> Tensor:
        """(q,), as far as the rivals tell."""
        scores = self.scores(evidence_scores)
        others, answer = scores[:, 1:], scores[:, :1]
        return 1 / (1 + (~(others <= answer)).sum(1) + (others == answer).sum(1) / 2)  # a NaN is the worst rank


def fit_weights(
    problem: FittingProblem, evidence_scores: ScoreEvidence, weights: Sequence[nn.Parameter], scale: float
) -> FitResult:
    """Fits the weights, as far as that helps; scores are multiplied by `scale` in the loss.

    How many steps help is found with one half of the triples, on the other; then all triples are fitted.
    """
    queries = len(problem.answer)
    first = torch.arange(queries) % (queries // 2) % 2 == 0  # of whole triples: tails stand before heads
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
    return FitResult(tried[0], tried[best], best)


def descend(
    problem: FittingProblem,
    evidence_scores: ScoreEvidence,
    weights: Sequence[nn.Parameter],
    chosen: Tensor,
    scale: float,
    steps: int,
    look: Callable[[int], None],
) -> None:
    """So many steps on the chosen queries (q,), looked at every `EVERY` steps."""
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
