"""The inputs of P(triple): what is known of the two queries of a triple, and the margins of the triple in both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Float64Array, Int64Array, IntArray
from fnftg.predict.logistic import sigmoid
from fnftg.predict.query_features import QueryFeatures, implied_pairs, query_features
from fnftg.predict.request_batch import RequestBatch
from fnftg.predict.scored_queries import ScoredQueries
from fnftg.predict.triple_probability import QueryModel, TripleProbability, triple_features

ROUND = 512  # inverse queries searched at a time
SMALLEST_RATE = 0.003  # added to rates before the logarithm


@dataclass(frozen=True)
class TripleInputs:
    """The inputs of n triples.

    The first query of a triple asks for its tail, the second for its head. If only the tail has no edges, it is the
    other way round, so that the first query is that of the entity without edges.
    """

    first: QueryFeatures  # (n,)
    second: QueryFeatures
    first_margin: Float64Array  # (n,)
    second_margin: Float64Array
    implied: Float64Array  # how often the best other edge between the two ends comes with the relation

    @classmethod
    def ordered(
        cls,
        for_heads: BoolArray,
        asked: QueryFeatures,
        inverse: QueryFeatures,
        margin: Float64Array,
        other: Float64Array,
        implied: Float64Array,
    ) -> TripleInputs:
        """Order the two queries of each triple; `for_heads` says which triples were found by asking for heads."""
        one_isolated = asked.isolated != inverse.isolated
        swapped = np.where(one_isolated, inverse.isolated, for_heads)
        return cls(
            asked.where(~swapped, inverse),
            inverse.where(~swapped, asked),
            np.where(swapped, other, margin),
            np.where(swapped, margin, other),
            implied,
        )

    @property
    def isolated(self) -> BoolArray:
        """Whether one end of the triple has no edges."""
        return self.first.isolated

    def features(self, query: QueryModel) -> Float64Array:
        """Return the features of the triples in the order of TRIPLE_FEATURES (n, F), given the model of queries."""
        first, second = (query.of_queries(one) for one in (self.first, self.second))
        triples = self.first.triples.astype(np.float64)
        holders = [one.holders.astype(np.float64) for one in (self.first, self.second)]
        more = [np.log1p(triples), *map(np.log1p, holders)]
        more += [np.log((triples + 1) / (one + 1)) for one in holders]
        more += [np.log(self.implied + SMALLEST_RATE), self.implied]
        given = triple_features(first, second, self.first_margin, self.second_margin)
        return np.concatenate([given, np.stack(more, axis=1)], axis=1)

    def probabilities(self, probability: TripleProbability) -> Float64Array:
        """Return P(triple) of each triple, (n,). It does not depend on which end was asked for."""
        return sigmoid(probability.triple.logits(self.features(probability.query), self.isolated))


def features_of(batch: RequestBatch, requests: Int64Array, centres: Int64Array, labels: Int64Array) -> QueryFeatures:
    """Count the features of queries of requests, (q,)."""
    groups = batch.groups(requests)
    order = np.argsort(np.concatenate([np.zeros(0, np.int64), *(members for _, members in groups)]))
    small = centres.astype(np.int32), labels.astype(np.int32)
    parts = [query_features(batch.contexts[request], small[0][some], small[1][some]) for request, some in groups]
    return QueryFeatures.combined(parts).take(order)


def implied_by(
    batch: RequestBatch, requests: Int64Array, centres: Int64Array, labels: Int64Array, answers: Int64Array
) -> Float64Array:
    """Return how often the best other edge between centre and answer comes with the label, (n,)."""
    found = np.zeros(len(centres))
    for request, some in batch.groups(requests):
        columns = (column[some].astype(np.int32) for column in (centres, labels, answers))
        found[some] = implied_pairs(batch.contexts[request], *columns)
    return found


def inverse_labels(batch: RequestBatch, requests: Int64Array, labels: Int64Array) -> Int64Array:
    """Return the labels of the same relations seen from the other end, in each request's own numbers."""
    counts = np.array([batch.relations_of(request) for request in range(len(batch.asked))], np.int64)[requests]
    return np.asarray((labels + counts) % (2 * counts))


def inverse_margins(
    batch: RequestBatch, requests: Int64Array, centres: Int64Array, labels: Int64Array, answers: Int64Array
) -> Float64Array:
    """Return the margins (n,) of answers to the queries (centre, label, ·), each query searched once."""
    found = np.empty(len(centres))
    distinct, which = np.unique(np.stack([requests, centres, labels]), axis=1, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    which = which.ravel()[order]
    for start in range(0, distinct.shape[1], ROUND):
        queries = ScoredQueries.of(batch, *distinct[:, start : start + ROUND])
        part = order[slice(*np.searchsorted(which, [start, start + ROUND]))]
        query = which[slice(*np.searchsorted(which, [start, start + ROUND]))] - start
        scores = queries.score(query, answers[part])
        found[part] = queries.margins(query, answers[part], scores)
    return found


def triple_inputs(queries: ScoredQueries, query: IntArray, rows: IntArray, scores: Float32Array) -> TripleInputs:
    """Return the inputs of triples: candidates (n,) with these scores, which are no known answers, of queries (n,)."""
    batch, answers = queries.batch, rows.astype(np.int64)
    requests, centres = queries.requests[query], queries.centres[query]
    labels = inverse_labels(batch, requests, queries.labels[query])
    asked, place = np.unique(query, return_inverse=True)
    return TripleInputs.ordered(
        labels < queries.labels[query],
        features_of(batch, queries.requests[asked], queries.centres[asked], queries.labels[asked]).take(place),
        features_of(batch, requests, answers, labels),
        queries.margins(query, answers, scores),
        inverse_margins(batch, requests, answers, labels, centres),
        implied_by(batch, requests, answers, labels, centres),
    )
