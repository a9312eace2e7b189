"""Vectors of the texts of entities, relations and queries; each distinct text is encoded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import AnyArray, Int32Array
from fnftg.text.text_transformer import GraphTexts, TextEncoder

Reader = Callable[[GraphTexts, Tensor], Tensor]  # text rows (n,) in main memory → vectors (n, d) on the device


def to_index(integers: AnyArray, device: torch.device) -> Tensor:
    """Convert row numbers to an index tensor on a device."""
    return to_device(integers.astype(np.int64), device)


def to_device(array: AnyArray, device: torch.device) -> Tensor:
    """Copy an array to a device, from pinned memory for CUDA, so that the copy does not wait for the GPU."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def text_rows(integers: AnyArray) -> Tensor:
    """Convert text rows to a tensor in main memory, where the texts are."""
    return torch.from_numpy(integers.astype(np.int64))


def entity_vectors(read: Reader, texts: GraphTexts, entities: Int32Array) -> Tensor:
    """Return the vectors of entities (n,), which may repeat: (n, d)."""
    distinct, inverse = np.unique(entities, return_inverse=True)
    vectors = read(texts, text_rows(distinct))
    return vectors[to_index(inverse, vectors.device)]


def label_vectors(read: Reader, texts: GraphTexts, labels: Int32Array) -> Tensor:
    """Return the text vectors of relation labels (n,), which may repeat: (n, d)."""
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
    """Return the vectors of query centres, conditioned on the relation: (n, d).

    Without `join`, encode the texts [h‖r] and [t‖r⁻¹]. With `join`, combine the centres' vectors `own` (n, d) with the
    relations' vectors.
    """
    if join is None:
        encoded: Tensor = tt(texts, text_rows(centres), texts.relation_row(text_rows(labels)))
        return encoded
    assert own is not None
    joined: Tensor = join(own, label_vectors(tt, texts, labels))
    return joined


class Join(nn.Module):
    """A small layer that adds the relation to the centre's vector, so that no query text needs to be encoded."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Linear(2 * width, width, bias=False)
        self.outer = nn.Linear(width, width, bias=False)

    def forward(self, centre: Tensor, relation: Tensor) -> Tensor:
        """Combine the vectors of centres (n, d) and relations (n, d): (n, d)."""
        joined: Tensor = self.outer(functional.silu(self.inner(torch.cat([centre, relation], dim=-1))))
        return centre + joined
