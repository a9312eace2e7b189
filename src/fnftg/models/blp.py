"""BLP (Daza et al., 2021): the encoder's output for an entity's description, projected by a linear layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from fnftg.models.link_predictor import needs_ego_graphs
from fnftg.models.relations import RelationsFrom
from fnftg.models.scoring import ScoreName
from fnftg.models.text_only import TextOnly, check_choices
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts, TextProjection

WIDTH = 128  # as published


@dataclass(frozen=True)
class BLPConfig:
    """BLP as published, with any encoder.

    Args:
        text: the encoder; text.width is the output size of the projection (128 as published); text.query is not used.
        relations: table learns one vector per relation of the training graph; text encodes the relation's text.
        score: score function: transe (L1), distmult, complex or simple.
        normalise: scale entity vectors to length 1; if null, only for transe, as published.
    """

    text: TextConfig = field(default_factory=lambda: TextConfig(width=WIDTH))
    relations: RelationsFrom = "table"
    score: ScoreName = "transe"
    normalise: bool | None = None

    def __post_init__(self) -> None:
        check_choices(self.score, self.relations)
        needs_ego_graphs(self.text)


class BLP(TextOnly):
    """The BLP model."""

    system = "blp"

    def __init__(self, config: BLPConfig, encoder: Encoder, relations: int):
        tt = TextProjection(config.text, encoder)
        super().__init__(tt.width, relations, config.relations, config.score, config.normalise)
        self.config, self.tt = config, tt

    def encode(self, texts: GraphTexts, rows: Tensor) -> Tensor:
        encoded: Tensor = self.tt(texts, rows)
        return encoded
