"""How systems read the texts of entities, relations and queries: each distinct text once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import AnyArray, Int32Array
from fnftg.text.transformer import GraphTexts, TextEncoder

Reader = Callable[[GraphTexts, Tensor], Tensor]  # rows of texts (n,) → vectors (n, d)


def to_index(integers: AnyArray) -> Tensor:
    return torch.from_numpy(integers.astype(np.int64))


def entity_vectors(read: Reader, texts: GraphTexts, entities: Int32Array) -> Tensor:
    """Vectors of entities (n,) with repetitions: (n, d)."""
    distinct, inverse = np.unique(entities, return_inverse=True)
    return read(texts, to_index(distinct))[to_index(inverse)]


def label_vectors(read: Reader, texts: GraphTexts, labels: Int32Array) -> Tensor:
    """Vectors of relation labels (n,) with repetitions, by their texts: (n, d)."""
    distinct, inverse = np.unique(labels, return_inverse=True)
    return read(texts, texts.relation_row(to_index(distinct)))[to_index(inverse)]


def conditioned(
    tt: TextEncoder, join: Join | None, texts: GraphTexts, centres: Int32Array, labels: Int32Array, own: Tensor
) -> Tensor:
    """The centres of queries, which know the relation asked for: [h‖r] or [t‖r⁻¹] as a text, or of two vectors."""
    if join is None:
        encoded: Tensor = tt(texts, to_index(centres), texts.relation_row(to_index(labels)))
        return encoded
    joined: Tensor = join(own, label_vectors(tt, texts, labels))
    return joined


class Join(nn.Module):
    """The frugal query: a small layer lets the relation's vector into the centre's, so no query text is encoded."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Linear(2 * width, width, bias=False)
        self.outer = nn.Linear(width, width, bias=False)

    def forward(self, centre: Tensor, relation: Tensor) -> Tensor:
        """(n, d), (n, d) → (n, d)"""
        joined: Tensor = self.outer(functional.silu(self.inner(torch.cat([centre, relation], dim=-1))))
        return centre + joined
