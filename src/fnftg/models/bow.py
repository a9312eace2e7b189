"""BOW (Daza et al., 2021): the mean of the word embeddings of an entity's description."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.link_predictor import needs_ego_graphs
from fnftg.models.relations import RelationsFrom
from fnftg.models.scoring import ScoreName
from fnftg.models.text_inputs import to_index
from fnftg.models.text_only import TextOnly, check_choices
from fnftg.models.words import WordEmbeddings
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts


@dataclass(frozen=True)
class BOWConfig:
    """BOW as in the BLP paper.

    Args:
        text: source of the word embeddings. text.encoder is glove, glove:FILE or any encoder, whose input embeddings
            are used. text.training finetune (as published) trains them further. text.width adds a linear projection.
        relations: table learns one vector per relation of the training graph; text encodes the relation's text.
        score: score function: transe (L1), distmult, complex or simple.
        normalise: scale entity vectors to length 1; if null, only for transe, as published.
    """

    text: TextConfig = field(default_factory=TextConfig)
    relations: RelationsFrom = "table"
    score: ScoreName = "transe"
    normalise: bool | None = None

    def __post_init__(self) -> None:
        check_choices(self.score, self.relations)
        needs_ego_graphs(self.text)


class BOW(TextOnly):
    """The BOW model."""

    system = "bow"

    def __init__(self, config: BOWConfig, encoder: Encoder, relations: int):
        tt = WordEmbeddings(config.text, encoder)
        super().__init__(config.text.width or tt.width, relations, config.relations, config.score, config.normalise)
        self.config, self.tt = config, tt
        self.projection = nn.Linear(tt.width, self.width, bias=False) if config.text.width else nn.Identity()

    def encode(self, texts: GraphTexts, rows: Tensor) -> Tensor:
        words, counts = self.tt.words(texts, rows)
        tokens, starts = (to_index(column, self.tt.vectors.device) for column in (words, np.cumsum(counts) - counts))
        means = functional.embedding_bag(tokens, self.tt.vectors, starts, mode="mean")
        projected: Tensor = self.projection(means)
        return projected  # (n, d)

    def texts(self, graph: KnowledgeGraph, cache: Path | None = None) -> GraphTexts:
        return self.tt.texts(graph, cache)  # type: ignore[no-any-return]
