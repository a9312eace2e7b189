"""What the votes of lookalikes add to scores: few weights, which the relation asked for may change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fnftg.ego.votes import Votes
from fnftg.errors import FnftgError

RAREST = 0.01  # a share of the votes below which an answer counts as if it had none
FEATURES = 5  # of an answer: see `Voting.features`


@dataclass(frozen=True)
class VotesConfig:
    """Who votes, and for how many.

    Args:
        lookalikes: how many of the most similar entities vote; 0: none.
        answers: answers of a query that votes may raise.
        weight: of the votes at the start, in units of the score.
        weighed: after training the weights are fitted once more, on the val split (see training/weighing.py).
    """

    lookalikes: int = 0
    answers: int = 64
    weight: float = 0.1
    weighed: bool = True

    def __post_init__(self) -> None:
        if self.lookalikes < 0 or self.answers < 1:
            raise FnftgError("Votes need lookalikes of 0 or more, and answers of at least 1.")


NO_VOTES = VotesConfig()


class Voting(nn.Module):
    def __init__(self, width: int, config: VotesConfig):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.of_relation = nn.Linear(width, FEATURES, bias=False)
        nn.init.zeros_(self.of_relation.weight)
        self.common = nn.Parameter(torch.tensor([config.weight] * (FEATURES - 1) + [0.0]))

    def forward(self, relations: Tensor, votes: Votes) -> Tensor:
        """Relations' vectors (q, d) of the queries → what is added to the score of each answer, (e,)."""
        query = torch.from_numpy(np.repeat(np.arange(len(relations)), np.diff(votes.offsets))).to(relations.device)
        weights = self.common + self.of_relation(self.norm(relations))  # (q, FEATURES)
        added: Tensor = (self.features(votes, query, len(relations)) * weights[query]).sum(1)
        return added

    def features(self, votes: Votes, query: Tensor, queries: int) -> Tensor:
        """The votes, near and nearer, and their shares of the query's, all as logarithms; and one: (e, 5)."""
        masses = [torch.from_numpy(mass).to(query.device) for mass in (votes.near, votes.nearer)]  # (e,) each
        logs = [torch.log1p(5 * masses[0]), torch.log1p(50 * masses[1]) / 2]
        for mass in masses:
            whole = mass.new_zeros(queries).index_add(0, query, mass)[query]
            logs.append(torch.log(mass / whole.clamp(min=1e-12) / RAREST + 1))
        return torch.stack([*logs, torch.ones_like(masses[0])], dim=1)
