"""kNN evidence: the answers of entities with similar texts to the same query.

The known tails of entities whose texts are similar to that of h are likely tails of h too, even if h is new and has no
edges. The source never uses an edge of the query entity, so it cannot leak a hidden edge. A similar entity with more
than `MAX_ANSWERS` answers to the query says little about each of them, and is left out.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int64Array
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.evidence.base import (
    Candidates,
    EvidenceSource,
    Feature,
    Finding,
    Item,
    QueryBatch,
    Requirement,
    log_share,
)
from fnftg.kernels.tally import tally
from fnftg.text.nearest_texts import NO_NEIGHBOUR

MAX_ANSWERS = 1_000
POWERS = 4, 16  # exponents of the similarity; the higher one favours the nearest neighbours


class TextKNNEvidence(EvidenceSource):
    """The answers of the nearest texts, weighted by powers of their cosine similarity."""

    name: ClassVar[str] = "text_knn"
    title: ClassVar[str] = "entities with similar texts that have the same answer"
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("log_sum_sim4", 1.0, 2.5),
        Feature("log_sum_sim16", 1.0, 0.0),
        Feature("share_sim4", 1.0, 2.5),
        Feature("share_sim16", 1.0, 0.0),
        Feature("has_neighbours", 0.0, 0.0),
    )
    in_training: ClassVar[bool] = True
    requires: ClassVar[tuple[Requirement, ...]] = ("frozen text",)

    def count(self, context: VisibleGraph, unseen: BoolArray) -> None:
        """Load the nearest texts; compute those of all entities in advance unless the context is interactive."""
        assert isinstance(context, GraphContext)
        k = max(self.config.num_nearest, self.config.num_nearest_at_evaluation)
        if context.interactive:
            context.texts.load_nearest_texts(k)
        else:
            context.texts.precompute_nearest_texts(k)

    def extend(self, counts: None, context: VisibleGraph, unseen: BoolArray) -> None:
        pass

    def candidates(self, counts: None, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        k = self.config.num_nearest if queries.training else self.config.num_nearest_at_evaluation
        rows, cosines = context.nearest_texts(k)(queries.centres)  # (q, k) each
        query, place = np.nonzero(rows != NO_NEIGHBOUR)
        offsets, entities = context.known(rows[query, place], queries.labels[query], MAX_ANSWERS)
        sizes = np.diff(offsets)
        query, weight = np.repeat(query, sizes), np.repeat(np.maximum(cosines[query, place], 0), sizes)
        other = entities != queries.centres[query]
        offsets = np.searchsorted(query[other], np.arange(len(queries) + 1))
        offsets, entities, sum_sim4, sum_sim16 = tally(
            offsets, entities[other], weight[other], POWERS, context.entities, self.config.num_candidates
        )
        return Candidates(offsets, entities, knn_features(sum_sim4, sum_sim16, offsets))

    def explain(self, counts: None, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding:
        """Return the nearest texts that have the same answer, most similar first."""
        nearest = context.nearest_texts(self.config.num_nearest_at_evaluation)
        rows, cosines = (found[0] for found in nearest(query.centres))  # (k,) each
        rows, cosines = rows[rows != NO_NEIGHBOUR], cosines[rows != NO_NEIGHBOUR]
        offsets, answers = context.known(rows, np.repeat(query.labels, len(rows)), MAX_ANSWERS)
        have = np.unique(np.repeat(np.arange(len(rows)), np.diff(offsets))[answers == answer])
        items = tuple(Item(int(rows[place]), value=float(cosines[place])) for place in have)
        return Finding(items=items, value_name="similarity")


def knn_features(sum_sim4: Float32Array, sum_sim16: Float32Array, offsets: Int64Array) -> Float32Array:
    """Return the features (e, 5): the logarithms of both sums and of their shares in the query's totals, and 1."""
    logs = np.log1p(5 * sum_sim4), np.log1p(50 * sum_sim16) / 2
    shares = (log_share(mass, offsets) for mass in (sum_sim4, sum_sim16))
    return np.stack([*logs, *shares, sum_sim4 > 0], axis=1).astype(np.float32)
