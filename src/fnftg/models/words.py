"""Word embeddings for BOW and DKRL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from fnftg.arrays import Int64Array
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.stopwords import ContentWords
from fnftg.text.text_transformer import GraphTexts


class WordEmbeddings(nn.Module):
    """The input embeddings of an encoder, and the content words of each text."""

    frozen: Tensor

    def __init__(self, config: TextConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self.content = ContentWords(encoder.tokenizer)
        self.encoder = encoder
        table = encoder.model.get_input_embeddings()  # type: ignore[operator]
        if not isinstance(table, nn.Embedding):
            raise FnftgError(f"The encoder {encoder.name} has no word embeddings: choose another encoder.")
        encoder.model.requires_grad_(False)
        self.table = table.requires_grad_(True) if config.training == "finetune" else None
        self.register_buffer("frozen", table.weight if self.table is None else None, persistent=False)
        self.width = table.embedding_dim

    @property
    def vectors(self) -> Tensor:
        """The word embeddings: (vocabulary, width)."""
        return self.frozen if self.table is None else self.table.weight

    def words(self, texts: GraphTexts, rows: Tensor) -> tuple[Int64Array, Int64Array]:
        """Return the tokens of the content words of all texts, concatenated, and their number per text (n,)."""
        ragged, numbers = texts.tokens.ragged, rows.cpu().numpy()
        lengths = ragged.lengths(numbers)
        tokens = ragged.flat(numbers, lengths)
        kept = self.content.keep(tokens, lengths)
        counts = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[kept], minlength=len(lengths))
        return tokens[kept].astype(np.int64), counts.astype(np.int64)

    def texts(self, graph: KnowledgeGraph, cache: Path | None) -> GraphTexts:
        """Tokenise the texts of a graph; the encoder's features are not needed."""
        return GraphTexts.of(graph, self.encoder, replace(self.config, training="finetune"), cache)
