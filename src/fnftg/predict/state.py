"""The data of a predictor: a trained model, a graph and the embeddings of all its entities."""

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
from fnftg.predict.triple_probability import TripleProbability
from fnftg.ranking.calibration import Calibration
from fnftg.ranking.queries import Queries
from fnftg.ranking.search import top_answers


@dataclass(frozen=True, eq=False)
class PredictorState:
    """The data of a predictor. All triples are visible, and every entity of the graph is a candidate."""

    run: Path
    model: LinkPredictor
    graph: KnowledgeGraph  # may be a view
    context: GraphContext  # texts, and edges of all splits
    table: Float32Array  # (N, d): candidate embeddings
    calibration: Calibration | None
    probability: TripleProbability | None  # P(triple), if it was fitted
    entity_names: NameIndex
    relation_names: NameIndex
    folder: Path | None = None  # the cache folder, if any
    index: NearestIndex | None = None  # searched instead of the table if given

    @property
    def known(self) -> KnownAnswers:
        return self.context.known

    @cached_property
    def relation_ids(self) -> list[str]:
        """The ids of the relations, by row."""
        return self.graph.relations.ids.slice(0, len(self.graph.relations))

    def search(
        self, query_embeddings: Float32Array, offsets: Int64Array, left_out: Int64Array, k: int
    ) -> tuple[Float32Array, Int64Array]:
        """Return scores and rows (q, k) of the best candidates.

        Query i leaves out the rows left_out[offsets[i] : offsets[i + 1]].
        """
        if self.index is not None:
            return self.index.search(self.model, self.table, query_embeddings, offsets, left_out, k)
        return top_answers(self.model, query_embeddings, self.table, offsets, left_out, k)

    @torch.inference_mode()
    def sample_query_embeddings(self, count: int = MEASURED) -> Float32Array:
        """Embed a fixed random sample of queries that the graph answers: (count, d)."""
        triples = self.graph.all_triples()
        chosen = np.random.default_rng(0).integers(0, max(len(triples), 1), count if len(triples) else 0)
        queries = Queries.of(triples[chosen[: len(chosen) // 2]], len(self.graph.relations))
        egos = self.context.ego_graphs(self.model.ego, queries.centres, None)
        _, query_embeddings = self.model(self.context.texts, queries.centres, egos, queries.labels, False)
        found: Float32Array = query_embeddings.float().cpu().numpy()
        return found
