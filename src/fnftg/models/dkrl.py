"""DKRL (Xie et al., 2016) as in the BLP paper: a convolutional network over the words of a description."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import Int64Array
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.link_predictor import needs_ego_graphs
from fnftg.models.relations import RelationsFrom
from fnftg.models.scoring import ScoreName
from fnftg.models.text_inputs import to_device, to_index
from fnftg.models.text_only import TextOnly, check_choices
from fnftg.models.words import WordEmbeddings
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts

WIDTH = 128  # as in the BLP paper


@dataclass(frozen=True)
class DKRLConfig:
    """DKRL: two convolutions with kernel size 2, max pooling after the first, mean pooling after the second.

    Args:
        text: source of the word embeddings. text.encoder is glove, glove:FILE or any encoder, whose input embeddings
            are used. text.training finetune (as published) trains them further. text.width is the size of both layers
            (128 as published).
        pool: window size of the max pooling, in words.
        relations: table learns one vector per relation of the training graph; text encodes the relation's text.
        score: score function: transe (L1), distmult, complex or simple.
        normalise: scale entity vectors to length 1; if null, only for transe, as published.
    """

    text: TextConfig = field(default_factory=lambda: TextConfig(width=WIDTH))
    pool: int = 4
    relations: RelationsFrom = "table"
    score: ScoreName = "transe"
    normalise: bool | None = None

    def __post_init__(self) -> None:
        check_choices(self.score, self.relations)
        needs_ego_graphs(self.text)
        if self.pool < 1:
            raise FnftgError(f"model.pool is {self.pool}: it must be at least 1.")


class DKRL(TextOnly):
    """The DKRL model."""

    system = "dkrl"

    def __init__(self, config: DKRLConfig, encoder: Encoder, relations: int):
        tt = WordEmbeddings(config.text, encoder)
        super().__init__(config.text.width or tt.width, relations, config.relations, config.score, config.normalise)
        self.config, self.tt = config, tt
        self.first, self.second = WidthTwo(tt.width, self.width), WidthTwo(self.width, self.width)

    def encode(self, texts: GraphTexts, rows: Tensor) -> Tensor:
        words, counts = self.tt.words(texts, rows)
        distinct, which = np.unique(words, return_inverse=True)
        tokens = to_index(distinct, self.tt.vectors.device)
        x = self.first(functional.embedding(tokens, self.tt.vectors), which, counts)  # (words, d)
        x, counts = pooled(x, counts, self.config.pool)  # (windows, d)
        x = self.second(x.tanh(), np.arange(len(x)), counts)
        text = to_index(np.repeat(np.arange(len(counts)), counts), x.device)
        sums = x.new_zeros(len(counts), self.width).index_add(0, text, x)
        means: Tensor = sums / to_index(np.maximum(counts, 1), x.device)[:, None]
        return means.tanh()  # (n, d)

    def texts(self, graph: KnowledgeGraph, cache: Path | None = None) -> GraphTexts:
        return self.tt.texts(graph, cache)  # type: ignore[no-any-return]


class WidthTwo(nn.Module):
    """A convolution with kernel size 2: y_i = W x_i + V x_{i+1} + b, with a zero after the last word of a text."""

    def __init__(self, width: int, new_width: int):
        super().__init__()
        self.own, self.next = nn.Linear(width, new_width), nn.Linear(width, new_width, bias=False)

    def forward(self, x: Tensor, which: Int64Array, counts: Int64Array) -> Tensor:
        """Convolve each text.

        Args:
            x: distinct word vectors, (m, width).
            which: row in `x` of each word, (total,).
            counts: number of words of each text, (n,).

        Returns:
            The vector of each word, (total, d).
        """
        is_last = np.zeros(len(which) + 1, bool)
        is_last[np.cumsum(counts)] = True  # shifted by one place
        here = to_index(which, x.device)
        following = self.next(x)[here.roll(-1)].masked_fill(to_device(is_last[1:, None], x.device), 0)
        convolved: Tensor = self.own(x)[here] + following
        return convolved


def pooled(x: Tensor, counts: Int64Array, size: int) -> tuple[Tensor, Int64Array]:
    """Max-pool windows of `size` rows within each text; return the maxima (total, d) and their number per text (n,)."""
    windows = (counts + size - 1) // size
    place = np.arange(len(x)) - np.repeat(np.cumsum(counts) - counts, counts)  # position in the text
    window = np.repeat(np.cumsum(windows) - windows, counts) + place // size
    out = x.new_full((int(windows.sum()), size, x.shape[1]), -torch.inf)
    index = to_index(window, x.device), to_index(place % size, x.device)
    return out.index_put(index, x).amax(1), windows
