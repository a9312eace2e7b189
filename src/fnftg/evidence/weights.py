"""The evidence weights: learned for training relations, fixed for unseen ones.

The weight of a feature is a common weight plus a shift that depends on the relation's text. The shift is learned from
few relations and does not generalise to others. Therefore the checkpoint stores a fingerprint of each training
relation's text, and all other relations use the fixed weights `Feature.unseen`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fnftg.arrays import BoolArray, Int64Array, IntArray
from fnftg.evidence.base import EvidenceSource
from fnftg.evidence.table import EvidenceTable


class EvidenceWeights(nn.Module):
    """The weight of each feature as a function of the relation.

    Args:
        width: size of the relation vectors.
        relations: number of relations of the training graph.
        sources: the sources, whose features are weighted.
        initial_weight: scale of the initial and of the fixed weights.
    """

    seen: Tensor  # (R,): fingerprints of the texts of the training relations; 0 for others
    unseen_weights: Tensor  # (F,)

    def __init__(self, width: int, relations: int, sources: Sequence[EvidenceSource], initial_weight: float):
        super().__init__()
        features = [feature for source in sources for feature in source.features]
        self.learned = [column for column, feature in enumerate(features) if feature.initial is not None]
        initial = [initial_weight * (feature.initial or 0.0) for feature in features]
        self.register_buffer("seen", torch.zeros(relations, dtype=torch.int64))
        self.seen_in_memory = np.zeros(relations, np.int64)  # copy of `seen` in main memory, for the sources
        self.register_load_state_dict_post_hook(lambda module, keys: module._remember_seen())  # type: ignore[no-untyped-call]
        unseen = initial_weight * torch.tensor([feature.unseen for feature in features])
        self.register_buffer("unseen_weights", unseen, persistent=False)
        self.norm = nn.LayerNorm(width)
        self.common = nn.Parameter(torch.tensor(initial)[self.learned])  # (L,): for the features with learned weights
        self.by_relation = nn.Parameter(torch.zeros(len(self.learned), width))

    def register_seen(self, relations: IntArray, fingerprints: Int64Array) -> None:
        """Store the fingerprints of the training relations (n,), given the fingerprints of all relations (R,)."""
        self.seen_in_memory[relations] = fingerprints[relations]
        self.seen.copy_(torch.from_numpy(self.seen_in_memory))

    def _remember_seen(self) -> None:
        self.seen_in_memory = self.seen.cpu().numpy().copy()

    def unseen(self, fingerprints: Int64Array) -> BoolArray:
        """Return whether the relations with these fingerprints (n,) are not among the training relations."""
        return ~np.isin(fingerprints, self.seen_in_memory)

    def forward(self, relations: Tensor, of_query: Tensor, table: EvidenceTable) -> Tensor:
        """Compute what evidence adds to the score of each candidate: (e,).

        Args:
            relations: vectors of the distinct relations of the queries, (p, d).
            of_query: row in `relations` of each query, (q,).
            table: the candidates of the queries and their features.
        """
        device = relations.device
        learned = self.common + self.norm(relations) @ self.by_relation.T  # (p, L)
        weights = learned.new_zeros(len(relations), len(self.unseen_weights))
        weights[:, self.learned] = learned
        unseen = torch.from_numpy(table.unseen).to(device)
        weights = torch.where(unseen[:, None], self.unseen_weights, weights[of_query])  # (q, F)
        query = torch.from_numpy(table.queries).to(device)
        scores: Tensor = (torch.from_numpy(table.features).to(device) * weights[query]).sum(1)
        return scores
