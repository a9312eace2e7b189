"""What answering needs: a trained model, a graph and the embeddings of all its entities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from fnftg.arrays import Float32Array, Int64Array
from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.link_predictor import LinkPredictor
from fnftg.predict.index import MEASURED, NearestIndex
from fnftg.predict.name_index import NameIndex
from fnftg.ranking.calibration import Calibration
from fnftg.ranking.queries import Queries
from fnftg.ranking.search import top_answers


@dataclass(frozen=True, eq=False)
class PredictorState:
    """Everything known is visible, nothing is hidden, and every entity of the graph is a candidate."""

    run: Path
    model: LinkPredictor
    graph: KnowledgeGraph  # maybe a view
    context: GraphContext  # the texts, and the edges of all splits
    table: Float32Array  # (N, d): the candidates' embeddings
    calibration: Calibration | None
    entity_names: NameIndex
    relation_names: NameIndex
    folder: Path | None = None  # where all of this is kept
    index: NearestIndex | None = None  # searched instead of the table, if given

    @property
    def known(self) -> KnownAnswers:
        return self.context.known

    @cached_property
    def relation_ids(self) -> list[str]:
        """In the order of their rows."""
        return self.graph.relations.ids.slice(0, len(self.graph.relations))

    def search(
        self, query_embeddings: Float32Array, offsets: Int64Array, left_out: Int64Array, k: int
    ) -> tuple[Float32Array, Int64Array]:
        """The k best candidates of each point (q, d) in the table, without the rows left_out[offsets[i] : …]."""
        if self.index is not None:
            return self.index.search(self.model, self.table, query_embeddings, offsets, left_out, k)
        return top_answers(self.model, query_embeddings, self.table, offsets, left_out, k)

    @torch.inference_mode()
    def sample_query_embeddings(self, count: int = MEASURED) -> Float32Array:
        """Points of questions like those that the graph answers, always the same ones: (count, d)."""
        triples = self.graph.all_triples()
        chosen = np.random.default_rng(0).integers(0, max(len(triples), 1), count if len(triples) else 0)
        queries = Queries.of(triples[chosen[: len(chosen) // 2]], len(self.graph.relations))
        egos = self.context.ego_graphs(self.model.ego, queries.centres, None)
        _, query_embeddings = self.model(self.context.texts, queries.centres, egos, queries.labels, False)
        found: Float32Array = query_embeddings.float().cpu().numpy()
        return found
