"""StAR (Wang et al., 2021): encodes [h‖r] and t, and learns a classifier of the pair and their distance.

The classifier is linear in [u; v; u − v; u × v], as published. Therefore its logit is an inner product of a query
vector and a candidate vector, and ranking does not need one pass per pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from fnftg.arrays import Int32Array
from fnftg.ego.ego_config import NO_EGO_GRAPHS
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.models.link_predictor import LinkPredictor, ScoredBatch, needs_ego_graphs
from fnftg.models.losses import RankingLoss, nll_loss
from fnftg.models.text_inputs import Join, conditioned, entity_vectors
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts, TextProjection


@dataclass(frozen=True)
class StARConfig:
    """StAR; relations are always encoded from their texts.

    Args:
        text: the encoder; text.query text (as published) encodes [h‖r] as one text, vector combines two vectors.
        classifier_weight: weight of the classifier's loss relative to the distance's loss, training.loss.
        rank_by: rank candidates by the classifier or by distance; both are trained.
    """

    text: TextConfig = field(default_factory=TextConfig)
    classifier_weight: float = 1.0
    rank_by: Literal["classifier", "distance"] = "classifier"

    def __post_init__(self) -> None:
        needs_ego_graphs(self.text)
        if self.rank_by not in ("classifier", "distance"):
            raise FnftgError(f"model.rank_by is {self.rank_by!r}: it must be classifier or distance.")
        if self.classifier_weight <= 0:
            raise FnftgError(f"model.classifier_weight is {self.classifier_weight}: it must be above 0.")


class StAR(LinkPredictor):
    """The StAR model."""

    system = "star"

    def __init__(self, config: StARConfig, encoder: Encoder, relations: int):
        super().__init__()
        self.config, self.relations = config, relations
        self.ego, self.by_distance = NO_EGO_GRAPHS, False
        self.tt = TextProjection(config.text, encoder)
        self.width = self.tt.width
        self.join = Join(self.width) if config.text.query == "vector" else None
        self.classifier = nn.Linear(4 * self.width, 1)

    @property
    def reads_query_texts(self) -> bool:
        return self.join is None

    def forward(
        self,
        texts: GraphTexts,
        centres: Int32Array,
        egos: EgoGraphs,
        labels: Int32Array | None = None,
        candidates: bool = True,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return v of the candidates and u of the queries [h‖r] and [t‖r⁻¹]."""
        v = entity_vectors(self.tt, texts, centres) if candidates or self.join is not None else None
        u = None if labels is None else conditioned(self.tt, self.join, texts, centres, labels, v)
        return v if candidates else None, u

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        if self.config.rank_by == "distance":
            return -torch.cdist(query_embeddings, candidates)
        return self.logits(query_embeddings, candidates)

    def logits(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        """Return the classifier's logit of every pair: w · [u; v; u − v; u × v] + b."""
        of_u, of_v, of_difference, of_product = self.classifier.weight[0].to(query_embeddings.dtype).chunk(4)
        own: Tensor = query_embeddings @ (of_u + of_difference) + self.classifier.bias.to(
            query_embeddings.dtype
        )  # (q,)
        of_pairs: Tensor = (query_embeddings * of_product + of_v - of_difference) @ candidates.T  # (q, n)
        return of_pairs + own[:, None]

    def loss(self, compared: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """Return the ranking loss of the negative distances plus the weighted loss of the classifier."""
        u, v = compared.query_embeddings, compared.candidates
        classified = nll_loss(self.logits(u, v).float(), compared.answers, compared.negatives)
        distances = torch.cdist(u.float(), v.float())
        both: Tensor = ranking(-distances, compared.answers, compared.negatives)
        both = both + self.config.classifier_weight * classified
        return both
