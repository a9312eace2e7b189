"""How systems read the texts of entities, relations and queries: each distinct text once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import AnyArray, Int32Array
from fnftg.text.text_transformer import GraphTexts, TextEncoder

Reader = Callable[[GraphTexts, Tensor], Tensor]  # numbers of texts (n,), in main memory → vectors (n, d), on a device


def to_index(integers: AnyArray, device: torch.device) -> Tensor:
    """Row numbers as a tensor on the device of the rows."""
    return to_device(integers.astype(np.int64), device)


def to_device(array: AnyArray, device: torch.device) -> Tensor:
    """An array as a tensor on a device. From pinned memory, so that the copy to a GPU does not wait for its work."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def text_rows(integers: AnyArray) -> Tensor:
    """The numbers of texts as a tensor in main memory, where the texts are."""
    return torch.from_numpy(integers.astype(np.int64))


def entity_vectors(read: Reader, texts: GraphTexts, entities: Int32Array) -> Tensor:
    """Vectors of entities (n,) with repetitions: (n, d)."""
    distinct, inverse = np.unique(entities, return_inverse=True)
    vectors = read(texts, text_rows(distinct))
    return vectors[to_index(inverse, vectors.device)]


def label_vectors(read: Reader, texts: GraphTexts, labels: Int32Array) -> Tensor:
    """Vectors of relation labels (n,) with repetitions, by their texts: (n, d)."""
    distinct, inverse = np.unique(labels, return_inverse=True)
    vectors = read(texts, texts.relation_row(text_rows(distinct)))
    return vectors[to_index(inverse, vectors.device)]


def conditioned(
    tt: TextEncoder,
    join: Join | None,
    texts: GraphTexts,
    centres: Int32Array,
    labels: Int32Array,
    own: Tensor | None,
) -> Tensor:
    """The vectors of query centres, which depend on the relation asked for: (n, d).

    Without `join` they are those of the texts [h‖r] and [t‖r⁻¹]; with it, those of the vectors `own` (n, d) and of r.
    """
    if join is None:
        encoded: Tensor = tt(texts, text_rows(centres), texts.relation_row(text_rows(labels)))
        return encoded
    assert own is not None
    joined: Tensor = join(own, label_vectors(tt, texts, labels))
    return joined


class Join(nn.Module):
    """The query as a vector: a small layer adds the relation to the centre, so that no query text is encoded."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Linear(2 * width, width, bias=False)
        self.outer = nn.Linear(width, width, bias=False)

    def forward(self, centre: Tensor, relation: Tensor) -> Tensor:
        """(n, d), (n, d) → (n, d)"""
        joined: Tensor = self.outer(functional.silu(self.inner(torch.cat([centre, relation], dim=-1))))
        return centre + joined
