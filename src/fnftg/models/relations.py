"""Relations as previous systems have them, one learned vector each, or as the paper has them, from their texts."""

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
    """Vectors of relations; for a table the number of relations of the training graph is what it will ever know."""

    def __init__(self, source: RelationsFrom, count: int, width: int, system: str):
        super().__init__()
        self.count, self.system = count, system
        self.table = nn.Embedding(count, width) if source == "table" else None
        if self.table is not None and count:
            nn.init.xavier_uniform_(self.table.weight)

    def forward(self, read: Reader, texts: GraphTexts, labels: Int32Array) -> Tensor:
        """(n, d): the same for a label r and its inverse R + r."""
        relations = labels % texts.relations
        if self.table is None:
            return label_vectors(read, texts, relations)
        if len(relations) and int(np.max(relations)) >= self.count:
            raise FnftgError(
                f"This {self.system} knows only the {self.count} relations that it was trained on: for others train it "
                "with --model.relations text."
            )
        found: Tensor = self.table(to_index(relations, self.table.weight.device))
        return found
