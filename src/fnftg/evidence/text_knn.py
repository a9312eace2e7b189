"""kNN evidence: what entities with similar texts answer to the same query.

What entities like h have for tails of r speaks for the same tails of h, also where h itself is new and has no edges. It
never rests on an edge of the query entity, so nothing that is hidden from its ego-graph can show.
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

POWERS = 4, 16  # of the similarity: the weight of a neighbour among many, and among the nearest


class TextKNNEvidence(EvidenceSource):
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
        """The nearest texts of all entities, where most of them will be asked about, are looked up at once."""
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
        offsets, entities = context.known(rows[query, place], queries.labels[query])
        sizes = np.diff(offsets)
        query, weight = np.repeat(query, sizes), np.repeat(np.maximum(cosines[query, place], 0), sizes)
        other = entities != queries.centres[query]
        offsets = np.searchsorted(query[other], np.arange(len(queries) + 1))
        offsets, entities, sum_sim4, sum_sim16 = tally(
            offsets, entities[other], weight[other], POWERS, context.entities, self.config.num_candidates
        )
        return Candidates(offsets, entities, knn_features(sum_sim4, sum_sim16, offsets))

    def explain(self, counts: None, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding:
        """The neighbours that have the answer too, the nearest first."""
        nearest = context.nearest_texts(self.config.num_nearest_at_evaluation)
        rows, cosines = (found[0] for found in nearest(query.centres))  # (k,) each
        rows, cosines = rows[rows != NO_NEIGHBOUR], cosines[rows != NO_NEIGHBOUR]
        offsets, answers = context.known(rows, np.repeat(query.labels, len(rows)))
        have = np.unique(np.repeat(np.arange(len(rows)), np.diff(offsets))[answers == answer])
        items = tuple(Item(int(rows[place]), value=float(cosines[place])) for place in have)
        return Finding(items=items, value_name="similarity")


def knn_features(sum_sim4: Float32Array, sum_sim16: Float32Array, offsets: Int64Array) -> Float32Array:
    """Both sums and their shares of the query's, as logarithms, and 1 for having any: (e, 5)."""
    logs = np.log1p(5 * sum_sim4), np.log1p(50 * sum_sim16) / 2
    shares = (log_share(mass, offsets) for mass in (sum_sim4, sum_sim16))
    return np.stack([*logs, *shares, sum_sim4 > 0], axis=1).astype(np.float32)
