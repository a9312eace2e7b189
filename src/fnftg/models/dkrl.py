"""DKRL (Xie et al., 2016) as in BLP's comparison: a convolutional network over the words of a description."""

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
from fnftg.text.encoders import Encoder, TextConfig
from fnftg.text.text_transformer import GraphTexts

WIDTH = 128  # of BLP's comparison


@dataclass(frozen=True)
class DKRLConfig:
    """DKRL: two layers with kernels two words wide, max pooling after the first, mean pooling after the second.

    Args:
        text: text.encoder gives its word embeddings (glove, glove:FILE, or the input embeddings of any encoder);
            training finetune, as published, learns them further; text.width is that of both layers, 128 as published.
        pool: positions whose maximum goes on to the second layer.
        relations: table, one learned vector for each relation of the training graph, or text, from their descriptions.
        score: transe (L1), distmult, complex or simple.
        normalise: entity vectors have length 1; as published, for transe alone, if not given.
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
            raise FnftgError(f"DKRL pools over at least one position, not {self.pool}.")


class DKRL(TextOnly):
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
    """A convolution two positions wide: y_i = W x_i + V x_{i+1} + b, where zeros follow the last of a text."""

    def __init__(self, width: int, new_width: int):
        super().__init__()
        self.own, self.next = nn.Linear(width, new_width), nn.Linear(width, new_width, bias=False)

    def forward(self, x: Tensor, which: Int64Array, counts: Int64Array) -> Tensor:
        """Distinct vectors (m, width), which of them stands where (total,), so many in each text (n,): (total, d)."""
        is_last = np.zeros(len(which) + 1, bool)
        is_last[np.cumsum(counts)] = True  # of the place before
        here = to_index(which, x.device)
        following = self.next(x)[here.roll(-1)].masked_fill(to_device(is_last[1:, None], x.device), 0)
        convolved: Tensor = self.own(x)[here] + following
        return convolved


def pooled(x: Tensor, counts: Int64Array, size: int) -> tuple[Tensor, Int64Array]:
    """The maximum over each `size` rows of a text, as (total, d), and how many maxima each text has (n,)."""
    windows = (counts + size - 1) // size
    place = np.arange(len(x)) - np.repeat(np.cumsum(counts) - counts, counts)  # in the text
    window = np.repeat(np.cumsum(windows) - windows, counts) + place // size
    out = x.new_full((int(windows.sum()), size, x.shape[1]), -torch.inf)
    index = to_index(window, x.device), to_index(place % size, x.device)
    return out.index_put(index, x).amax(1), windows
