"""Relation vectors: learned, one per relation, as in earlier systems, or encoded from texts, as in the paper."""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import Tensor, nn

from fnftg.arrays import Int32Array
from fnftg.errors import FnftgError
from fnftg.models.text_inputs import Reader, label_vectors, to_index
from fnftg.text.text_transformer import GraphTexts

RelationsFrom = Literal["table", "text"]


class RelationEmbedding(nn.Module):
    """Relation vectors from a learned table or from the relations' texts.

    Args:
        source: table, or text or projection, which differ in what reads the texts. A table covers only the relations of
            the training graph.
        count: number of relations of the training graph.
        width: size of the vectors.
        system: name of the system, for error messages.
    """

    def __init__(self, source: RelationsFrom | Literal["projection"], count: int, width: int, system: str):
        super().__init__()
        self.count, self.system = count, system
        self.table = nn.Embedding(count, width) if source == "table" else None
        if self.table is not None and count:
            nn.init.xavier_uniform_(self.table.weight)

    def forward(self, read: Reader, texts: GraphTexts, labels: Int32Array) -> Tensor:
        """Return the relation vector of each label: (n, d). A label r and its inverse R + r have the same vector."""
        relations = labels % texts.relations
        if self.table is None:
            return label_vectors(read, texts, relations)
        if len(relations) and int(np.max(relations)) >= self.count:
            raise FnftgError(
                f"This {self.system} model has vectors only for the {self.count} relations of its training graph: for "
                "new relations, train it with --model.relations text."
            )
        found: Tensor = self.table(to_index(relations, self.table.weight.device))
        return found
