"""DKRL (Xie et al., 2016) as in BLP's comparison: a convolutional network over the words of a description."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.predictor import needs_ego_graphs
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
        normalise = config.score == "transe" if config.normalise is None else config.normalise
        super().__init__(config.text.width or tt.width, relations, config.relations, config.score, normalise)
        self.config, self.tt = config, tt
        self.first = nn.Conv1d(tt.width, self.width, kernel_size=2)
        self.second = nn.Conv1d(self.width, self.width, kernel_size=2)

    def encode(self, texts: GraphTexts, rows: Tensor) -> Tensor:
        words, counts = self.tt.words(texts, rows)
        x = padded(functional.embedding(words, self.tt.vectors), counts).transpose(1, 2)  # (n, width, longest)
        x = self.first(functional.pad(x, (0, 1)))  # (n, d, longest): the last word stands before nothing
        longest = x.shape[-1]
        there = torch.arange(longest, device=x.device) < counts[:, None]
        x = x.masked_fill(~there[:, None], -torch.inf)
        pool = self.config.pool
        x = functional.pad(x, (0, -longest % pool), value=-torch.inf)
        x = x.view(*x.shape[:2], -1, pool).amax(-1)
        counts = (counts + pool - 1) // pool
        there = torch.arange(x.shape[-1], device=x.device) < counts[:, None]  # (n, longest / pool)
        x = torch.where(there[:, None], x, 0).tanh()
        x = self.second(functional.pad(x, (0, 1))) * there[:, None]
        means: Tensor = x.sum(-1) / counts.clamp(min=1)[:, None]
        return means.tanh()  # (n, d)

    def texts(self, graph: KnowledgeGraph, cache: Path | None = None) -> GraphTexts:
        return self.tt.texts(graph, cache)  # type: ignore[no-any-return]


def padded(flat: Tensor, counts: Tensor) -> Tensor:
    """Ragged rows (total, d) of so many to each text (n,), as one array with zeros behind: (n, longest, d)."""
    longest = max(int(counts.max()), 1) if len(counts) else 1
    text = torch.repeat_interleave(torch.arange(len(counts), device=flat.device), counts)
    place = torch.arange(len(flat), device=flat.device) - (counts.cumsum(0) - counts)[text]
    out = flat.new_zeros(len(counts), longest, flat.shape[1])
    return out.index_put((text, place), flat)
