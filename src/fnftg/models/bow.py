"""BOW (Daza et al., 2021): an entity is the mean of the word embeddings of its description."""

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
from fnftg.text.encoders import Encoder, TextConfig
from fnftg.text.text_transformer import GraphTexts


@dataclass(frozen=True)
class BOWConfig:
    """BOW as in BLP's comparison.

    Args:
        text: text.encoder gives its word embeddings (glove, glove:FILE, or the input embeddings of any encoder);
            training finetune, as published, learns them further; where a width is given a linear layer leads to it.
        relations: table, one learned vector for each relation of the training graph, or text, from their descriptions.
        score: transe (L1), distmult, complex or simple.
        normalise: entity vectors have length 1; as published, for transe alone, if not given.
    """

    text: TextConfig = field(default_factory=TextConfig)
    relations: RelationsFrom = "table"
    score: ScoreName = "transe"
    normalise: bool | None = None

    def __post_init__(self) -> None:
        check_choices(self.score, self.relations)
        needs_ego_graphs(self.text)


class BOW(TextOnly):
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
