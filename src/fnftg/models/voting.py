"""What votes of lookalikes, parallel edges, mentions and precedents add to scores: few weights, which the relation may
change.

How it changes them is learned from few relations, and does not hold for others. So whoever trains says which relations
those are, by their texts. For all others, of which the score knows little, the weights are written down here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fnftg.arrays import Float32Array
from fnftg.ego.votes import Votes
from fnftg.errors import FnftgError

FEATURES, BOND_FEATURES = 5, 2  # of an answer: see `Voting.features` and `Voting.bond_features`
BONDS = {"kinship": 3.0, "mentioned": 1.0}  # what binds two entities, its weight at the start, in units of a vote's
# Weights of all features for relations that were never trained on, in the same units.
UNMET = {"votes": (2.5, 0, 2.5, 0, 0), "kinship": (2.5, 2.5), "mentioned": (2.5, 0)}
PRECEDENTS = {"alike": 2.5, "usual": 2.5}  # of these relations alone
RAREST = 0.01  # a share of the votes, or a bond, below which an answer counts as if it had none


@dataclass(frozen=True)
class VotesConfig:
    """Who votes, and for how many.

    Args:
        lookalikes: how many of the most similar entities vote; 0: none.
        evaluation_lookalikes: how many do in evaluation and prediction; as in training if none is given.
        answers: answers of a query that votes, parallels and precedents may raise, so many of each.
        weight: of the votes at the start, in units of the score.
        parallels: edges that lead from the asked entity to an answer already count too (see ego/parallels.py). Not in
            training, where hardly a negative has any: their weights are the first ones until they are fitted on val.
        mentions: entities that name the asked one in their texts, or are named in its text, count too (see
            ego/naming.py). Not in training either.
        precedents: of relations that were never trained on, what is like another answer of the asked entity and what
            many entities have counts too, where there are lookalikes (see ego/precedents.py).
        weighed: after training the weights are fitted once more, on the val split (see training/weighing.py).
    """

    lookalikes: int = 0
    evaluation_lookalikes: int | None = None
    answers: int = 64
    weight: float = 0.1
    parallels: bool = False
    mentions: bool = False
    precedents: bool = False
    weighed: bool = True

    def __post_init__(self) -> None:
        if self.lookalikes < 0 or self.answers < 1:
            raise FnftgError("Votes need lookalikes of 0 or more, and answers of at least 1.")
        if self.evaluation_lookalikes is not None and (self.evaluation_lookalikes < 1 or not self.lookalikes):
            raise FnftgError("Votes need evaluation_lookalikes of at least 1, and lookalikes in training too.")

    @property
    def lookalikes_at_evaluation(self) -> int:
        return self.lookalikes if self.evaluation_lookalikes is None else self.evaluation_lookalikes

    @property
    def most_lookalikes(self) -> int:
        return max(self.lookalikes, self.lookalikes_at_evaluation)

    @property
    def has_precedents(self) -> bool:
        return self.precedents and self.lookalikes > 0

    @property
    def counted(self) -> bool:
        """Whether there is anything to add to scores."""
        return self.lookalikes > 0 or self.parallels or self.mentions


NO_VOTES = VotesConfig()


class Voting(nn.Module):
    met: Tensor  # (R,): prints of the texts of the relations that were trained on; 0 for others
    unmet: Tensor  # (FEATURES,): the weights for others
    bond_unmet: Tensor  # (2 · bonds,)

    def __init__(self, width: int, config: VotesConfig, relations: int):
        super().__init__()
        self.register_buffer("met", torch.zeros(relations, dtype=torch.int64))
        self.norm = nn.LayerNorm(width)
        self.of_relation = nn.Linear(width, FEATURES, bias=False)
        nn.init.zeros_(self.of_relation.weight)
        self.common = nn.Parameter(torch.tensor([config.weight] * (FEATURES - 1) + [0.0]))
        self.register_buffer("unmet", config.weight * torch.tensor(UNMET["votes"]), persistent=False)
        counted = {"kinship": config.parallels, "mentioned": config.mentions}
        self.bonds = [name for name in BONDS if counted[name]]
        if self.bonds:  # no lots are drawn: the rest of the model starts as it would without them
            starts = [weight for name in self.bonds for weight in (BONDS[name] * config.weight, 0.0)]
            self.bond_of_relation = nn.Parameter(torch.zeros(BOND_FEATURES * len(self.bonds), width))
            self.bond_common = nn.Parameter(torch.tensor(starts))
            unmet = [weight for name in self.bonds for weight in UNMET[name]]
            self.register_buffer("bond_unmet", config.weight * torch.tensor(unmet), persistent=False)
        of_precedents = PRECEDENTS if config.has_precedents else {}
        self.precedents = {name: config.weight * weight for name, weight in of_precedents.items()}

    def knows(self, prints: Tensor) -> Tensor:
        """Whether the relations with these prints (n,) were trained on."""
        return torch.isin(prints, self.met)

    def forward(self, relations: Tensor, prints: Tensor, votes: Votes) -> Tensor:
        """Vectors (q, d) and prints (q,) of relations asked for → what is added to the score of each answer, (e,)."""
        query = torch.from_numpy(votes.queries).to(relations.device)
        met, relations = self.knows(prints)[:, None], self.norm(relations)
        weights = self.common + self.of_relation(relations)  # (q, FEATURES)
        weights = torch.where(met, weights, self.unmet)
        added: Tensor = (self.features(votes, query, len(relations)) * weights[query]).sum(1)
        if self.bonds:
            weights = self.bond_common + relations @ self.bond_of_relation.T  # (q, 2 · bonds)
            weights = torch.where(met, weights, self.bond_unmet)
            bonds = [self.bond_features(getattr(votes, name), query, len(relations)) for name in self.bonds]
            added = added + (torch.cat(bonds, dim=1) * weights[query]).sum(1)
        for name, weight in self.precedents.items():  # none is counted for relations that were trained on
            added = added + weight * log_mass(torch.from_numpy(getattr(votes, name)).to(query.device))
        return added

    def features(self, votes: Votes, query: Tensor, queries: int) -> Tensor:
        """Votes, near and nearer, their shares of the query's, all as logarithms, and one for having any: (e, 5)."""
        near, nearer = (torch.from_numpy(mass).to(query.device) for mass in (votes.near, votes.nearer))  # (e,) each
        logs = [torch.log1p(5 * near), torch.log1p(50 * nearer) / 2]
        shares = [log_share(mass, query, queries) for mass in (near, nearer)]
        return torch.stack([*logs, *shares, (near > 0).float()], dim=1)

    def bond_features(self, bond: Float32Array, query: Tensor, queries: int) -> Tensor:
        """A bond (e,) and its share of the query's, as logarithms: (e, 2)."""
        mass = torch.from_numpy(bond).to(query.device)
        return torch.stack([log_mass(mass), log_share(mass, query, queries)], dim=1)


def log_mass(mass: Tensor) -> Tensor:
    """What a mass of evidence (e,) counts for: its logarithm, 0 where there is none."""
    return torch.log(mass / RAREST + 1)


def log_share(mass: Tensor, query: Tensor, queries: int) -> Tensor:
    """How much of its query's whole mass each answer has, as a logarithm: (e,)."""
    whole = mass.new_zeros(queries).index_add(0, query, mass)[query]
    return log_mass(mass / whole.clamp(min=1e-12))
