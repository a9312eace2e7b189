"""DKRL (Xie et al., 2016) as in BLP's comparison: a convolutional network over the words of a description."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.link_predictor import needs_ego_graphs
from fnftg.models.relations import RelationsFrom
from fnftg.models.scoring import ScoreName
from fnftg.models.text_only import TextOnly, check_choices
from fnftg.models.words import WordEmbeddings
from fnftg.text.encoders import Encoder, TextConfig
from fnftg.text.transformer import GraphTexts

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
        distinct, which = torch.unique(words, return_inverse=True)
        x = self.first(functional.embedding(distinct, self.tt.vectors), which, counts)  # (words, d)
        x, counts = pooled(x, counts, self.config.pool)  # (windows, d)
        x = self.second(x.tanh(), torch.arange(len(x), device=x.device), counts)
        text = torch.repeat_interleave(torch.arange(len(counts), device=x.device), counts)
        sums = x.new_zeros(len(counts), self.width).index_add(0, text, x)
        means: Tensor = sums / counts.clamp(min=1)[:, None]
        return means.tanh()  # (n, d)

    def texts(self, graph: KnowledgeGraph, cache: Path | None = None) -> GraphTexts:
        return self.tt.texts(graph, cache)  # type: ignore[no-any-return]


class WidthTwo(nn.Module):
    """A convolution two positions wide: y_i = W x_i + V x_{i+1} + b, where zeros follow the last of a text."""

    def __init__(self, width: int, new_width: int):
        super().__init__()
        self.own, self.next = nn.Linear(width, new_width), nn.Linear(width, new_width, bias=False)

    def forward(self, x: Tensor, which: Tensor, counts: Tensor) -> Tensor:
        """Distinct vectors (m, width), which of them stands where (total,), so many in each text (n,): (total, d)."""
        is_last = torch.zeros(len(which) + 1, dtype=torch.bool, device=x.device)
        is_last[counts.cumsum(0)] = True  # of the place before
        following = self.next(x)[which.roll(-1)].masked_fill(is_last[1:, None], 0)
        convolved: Tensor = self.own(x)[which] + following
        return convolved


def pooled(x: Tensor, counts: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The maximum over each so many rows of a text: (total, d), and how many of each text (n,) these are."""
    windows = (counts + size - 1) // size
    text = torch.repeat_interleave(torch.arange(len(counts), device=x.device), counts)
    place = torch.arange(len(x), device=x.device) - (counts.cumsum(0) - counts)[text]
    window = (windows.cumsum(0) - windows)[text] + place // size
    out = x.new_full((int(windows.sum()), size, x.shape[1]), -torch.inf)
    return out.index_put((window, place % size), x).amax(1), windows
