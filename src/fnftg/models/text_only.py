"""Base class of BOW, DKRL, BLP and KEPLER, which embed an entity by its text alone."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fnftg.arrays import Int32Array
from fnftg.ego.ego_config import NO_EGO_GRAPHS
from fnftg.ego.sampling import EgoGraphs
from fnftg.errors import FnftgError
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.relations import RelationEmbedding, RelationsFrom
from fnftg.models.scoring import SCORES, ScoreName, compose_queries, similarity
from fnftg.models.text_inputs import entity_vectors, to_device
from fnftg.text.text_transformer import GraphTexts


class TextOnly(LinkPredictor):
    """A system without ego-graphs; subclasses implement `encode`.

    Args:
        width: size of the vectors.
        relations: number of relations of the training graph.
        source: whether relation vectors come from a table or from texts.
        score: the score function.
        normalise: scale entity vectors to length 1; if None, only for transe.
    """

    def __init__(self, width: int, relations: int, source: RelationsFrom, score: ScoreName, normalise: bool | None):
        super().__init__()
        if score in ("complex", "simple") and width % 2:
            raise FnftgError(f"The score {score} needs an even width, not {width}: change model.text.width.")
        self.width, self.relations, self.score = width, relations, score
        self.normalise = score == "transe" if normalise is None else normalise  # as published
        self.ego, self.by_distance = NO_EGO_GRAPHS, score == "transe"
        self.by_product = not self.by_distance
        self.relation = RelationEmbedding(source, relations, width, self.system)

    def encode(self, texts: GraphTexts, rows: Tensor) -> Tensor:
        """Return the vectors of the texts of entities or relations, rows (n,), before normalisation: (n, d)."""
        raise NotImplementedError

    def forward(
        self,
        texts: GraphTexts,
        centres: Int32Array,
        egos: EgoGraphs,
        labels: Int32Array | None = None,
        candidates: bool = True,
    ) -> tuple[Tensor | None, Tensor | None]:
        entities = entity_vectors(self.encode, texts, centres)  # (n, d)
        if self.normalise:
            entities = functional.normalize(entities, dim=-1)
        query_embeddings = None
        if labels is not None:
            relations = self.relation(self.encode, texts, labels)  # (n, d)
            inverse = to_device(labels >= texts.relations, entities.device)
            query_embeddings = compose_queries(self.score, entities, relations, inverse)
        return entities if candidates else None, query_embeddings

    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        return similarity(self.score, query_embeddings, candidates)


def check_choices(score: str, relations: str) -> None:
    """Raise FnftgError if a config names an unknown score or source of relation vectors."""
    if score not in SCORES:
        raise FnftgError(f"There is no score {score!r}: choose one of {', '.join(SCORES)}.")
    if relations not in ("table", "text"):
        raise FnftgError(f"model.relations is {relations!r}: it must be table or text.")
