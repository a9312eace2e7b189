"""Score functions f(h, r, t) as a similarity of two vectors: the query embedding and the candidate embedding.

The query embedding combines h and r for a tail query (h, r, ·), and t and r for a head query (·, r, t). Candidate
embeddings do not depend on the relation, so each candidate is embedded once.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fnftg.kernels.l1 import l1_distances

ScoreName = Literal["transe", "distmult", "complex", "simple"]
SCORES: tuple[ScoreName, ...] = ("transe", "distmult", "complex", "simple")


def compose_queries(score: ScoreName, entity: Tensor, relation: Tensor, inverse: Tensor) -> Tensor:
    """Combine entity and relation vectors (n, d) into query embeddings (n, d); `inverse` (n,) marks head queries."""
    head_query = inverse[:, None]
    if score == "transe":  # -‖h + r − t‖₁: h + r is compared with t, and t − r with h
        return entity + torch.where(head_query, -relation, relation)
    if score == "distmult":  # ⟨h, r, t⟩
        return entity * relation
    a, b = entity.chunk(2, dim=-1)
    u, v = relation.chunk(2, dim=-1)
    if score == "complex":  # Re ⟨h, r, t̄⟩: h r is compared with t, and t r̄ with h
        v = torch.where(head_query, -v, v)
        return torch.cat([a * u - b * v, a * v + b * u], dim=-1)
    # SimplE: (⟨h₁, r₁, t₂⟩ + ⟨h₂, r₂, t₁⟩) / 2
    return torch.where(head_query, torch.cat([u * b, v * a], -1), torch.cat([v * b, u * a], -1)) / 2


def similarity(score: ScoreName | Literal["cosine"], query_embeddings: Tensor, candidates: Tensor) -> Tensor:
    """Score query embeddings (q, d) against candidates (n, d): (q, n), higher is more likely."""
    if score == "transe":
        return -l1_distances(query_embeddings, candidates)
    return query_embeddings @ candidates.T
