"""The search for missing links: asks only queries that may have a missing answer, and keeps likely triples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Float64Array, Int32Array, Int64Array, IntArray
from fnftg.predict.query_features import QueryFeatures
from fnftg.predict.questions import GraphDelta, ResolvedQuery
from fnftg.predict.request_batch import RequestBatch
from fnftg.predict.scored_queries import ScoredQueries
from fnftg.predict.state import PredictorState
from fnftg.predict.triple_inputs import TripleInputs, features_of, implied_by, inverse_labels, inverse_margins
from fnftg.predict.triple_probability import QueryModel, screen_features

ROUND = 512  # queries searched at a time


@dataclass(frozen=True)
class FoundLinks:
    """Candidate triples (n,): answers to queries, with what is known before the inverse query is searched."""

    query: Int64Array  # place of the query among those that were asked
    heads: Int64Array
    relations: Int64Array
    tails: Int64Array
    scores: Float32Array
    margin: Float64Array
    for_heads: BoolArray  # whether the query asked for heads
    asked: QueryFeatures
    inverse: QueryFeatures

    def take(self, rows: IntArray | BoolArray) -> FoundLinks:
        columns: list[Any] = [
            value.take(rows) if isinstance(value, QueryFeatures) else value[rows] for value in vars(self).values()
        ]
        return FoundLinks(*columns)

    @classmethod
    def combined(cls, parts: list[FoundLinks]) -> FoundLinks:
        columns: list[Any] = [
            QueryFeatures.combined(column) if isinstance(column[0], QueryFeatures) else np.concatenate(column)
            for column in zip(*(vars(part).values() for part in parts), strict=True)
        ]
        return cls(*columns)

    def screen(self, query: QueryModel) -> tuple[Float64Array, Int64Array, BoolArray]:
        """Return the features (n, 4) of the screening model, slots, and which triples have an end without edges."""
        asked, inverse = query.of_queries(self.asked), query.of_queries(self.inverse)
        isolated = self.asked.isolated | self.inverse.isolated
        return screen_features(asked, inverse, self.margin), self.asked.slots, isolated


class LinkSearch:
    """Searches the visible graph of a predictor for missing links."""

    def __init__(self, predictor: PredictorState, k: int):
        self.predictor, self.k = predictor, k
        self.batch = RequestBatch.of(predictor, [ResolvedQuery(-1, -1, -1, GraphDelta())])

    def candidates(
        self, centres: Int32Array, labels: Int32Array, features: QueryFeatures, first: int = 0
    ) -> FoundLinks:
        """Return the k best new answers of up to ROUND queries; `first` is the place of the first query."""
        nothing = np.zeros(len(centres), np.int64)
        queries = ScoredQueries.of(self.batch, nothing, centres, labels)
        scores, rows = queries.best(max(self.k, 2))
        query, place = np.nonzero((rows >= 0) & (np.arange(rows.shape[1]) < self.k))
        answers, score = rows[query, place], scores[query, place]
        relations, label = self.batch.relations_of(0), queries.labels[query]
        for_heads, asked = label >= relations, queries.centres[query]
        return FoundLinks(
            first + query,
            np.where(for_heads, answers, asked),
            label % relations,
            np.where(for_heads, asked, answers),
            score,
            queries.margins(query, answers, score),
            for_heads,
            features.take(query),
            self.inverse_features(answers, label),
        )

    def inverse_features(self, answers: Int64Array, labels: Int64Array) -> QueryFeatures:
        """Return the features of the queries that ask for the other end, each distinct query counted once."""
        labels = inverse_labels(self.batch, np.zeros_like(labels), labels)
        size = 2 * self.batch.relations_of(0)
        distinct, place = np.unique(answers * size + labels, return_inverse=True)
        return features_of(self.batch, np.zeros_like(distinct), distinct // size, distinct % size).take(place)

    def inputs(self, found: FoundLinks) -> TripleInputs:
        """Search the inverse queries of triples, and return the inputs of P(triple)."""
        count = self.batch.relations_of(0)
        asked = np.where(found.for_heads, found.tails, found.heads)
        answers = np.where(found.for_heads, found.heads, found.tails)
        labels = np.where(found.for_heads, found.relations, found.relations + count)
        other = inverse_margins(self.batch, np.zeros_like(labels), answers, labels, asked)
        implied = implied_by(self.batch, np.zeros_like(labels), answers, labels, asked)
        return TripleInputs.ordered(found.for_heads, found.asked, found.inverse, found.margin, other, implied)
