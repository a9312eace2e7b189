"""`ScoredQueries`: queries of requests with the scores of all candidates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fnftg.arrays import AnyArray, BoolArray, Float32Array, Float64Array, Int32Array, Int64Array, IntArray
from fnftg.predict.request_batch import RequestBatch
from fnftg.ranking.calibration import margins, rivals
from fnftg.ranking.evidence_scores import merged
from fnftg.ranking.search import pair_scores


@dataclass(frozen=True)
class ScoredQueries:
    """Queries (centre, label, ·) of the requests of a batch, with all entities as candidates.

    Most candidates are scored from the table. New and changed entities, and those with evidence, have their scores
    stored here. Centres, labels and rows have the numbers of the request that a query belongs to.
    """

    batch: RequestBatch
    requests: Int64Array  # (q,): the request of each query
    centres: Int64Array  # (q,)
    labels: Int64Array  # (q,)
    view_labels: Int32Array  # (q,): the labels in the numbers of the batch's common view
    query_embeddings: Float32Array  # (q, d)
    size: int  # larger than every row
    links: Int64Array  # known answers as query · size + row, ascending
    listed: Int64Array  # (p,): separately scored candidates as query · size + row, ascending
    scores: Float32Array  # (p,)

    @classmethod
    def of(cls, batch: RequestBatch, requests: IntArray, centres: IntArray, labels: IntArray) -> ScoredQueries:
        """Embed the queries, and score new and changed candidates and those with evidence."""
        requests, centres, labels = (np.asarray(part, np.int64) for part in (requests, centres, labels))
        predictor, model = batch.predictor, batch.predictor.model
        groups = batch.groups(requests)
        order = np.concatenate([np.zeros(0, np.int64), *(members for _, members in groups)])
        size = len(predictor.graph.entities) + max((len(one.delta.entities) for one in batch.asked), default=0)
        embeddings, view_labels = np.empty((len(order), model.width), np.float32), np.empty(len(order), np.int32)
        if groups:
            view_labels[order] = np.concatenate([batch.labels(labels[some], request) for request, some in groups])
            embeddings[order] = batch.embedded(
                [batch.entities(centres[some], request) for request, some in groups],
                [batch.ego_graphs(request, centres[some]) for request, some in groups],
                view_labels[order],
            )
        own_keys, own_scores, links = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)], [np.zeros(0, np.int64)]
        for request, some in groups:
            offsets, answers = batch.contexts[request].known(
                centres[some].astype(np.int32), labels[some].astype(np.int32)
            )
            links.append(np.repeat(some, np.diff(offsets)) * size + answers)
            if request in batch.changed_vectors:
                rows, vectors = batch.changed_vectors[request]
                query, which = (part.ravel() for part in np.indices((len(some), len(rows))))
                own_keys.append(some[query] * size + rows[which])
                own_scores.append(pair_scores(model, embeddings, vectors, some[query], which))
        own, scores = np.concatenate(own_keys), np.concatenate(own_scores)
        sorting = np.argsort(own)
        own, scores = own[sorting], scores[sorting]

        evidence = batch.evidence(
            [(request, centres[some], labels[some]) for request, some in groups], view_labels[order]
        )
        query = order[evidence.queries]
        keys, values = query * size + evidence.rows, evidence.values
        changed, place = np.isin(keys, own), np.searchsorted(own, keys)
        scores[place[changed]] += values[changed]
        keys, values = keys[~changed], values[~changed]
        raised = pair_scores(model, embeddings, predictor.table, keys // size, keys % size) + values
        keys, scores = np.concatenate([own, keys]), np.concatenate([scores, raised])
        sorting = np.argsort(keys)
        return cls(
            batch,
            requests,
            centres,
            labels,
            view_labels,
            embeddings,
            size,
            np.unique(np.concatenate(links)),
            keys[sorting],
            scores[sorting],
        )

    @cached_property
    def itself(self) -> Int64Array:
        """The query entities, which are no candidates, as query · size + row."""
        return np.arange(len(self.centres)) * self.size + self.centres

    def keys(self, rows: AnyArray) -> Int64Array:
        """Return query · size + row of rows (q, k)."""
        return np.asarray(np.arange(len(self.centres))[:, None] * self.size + rows)

    def best(self, k: int, known: bool = False) -> tuple[Float32Array, Int64Array]:
        """Return scores and rows (q, k) of the best candidates, without known answers unless `known`.

        The query entity is left out, except as a known answer.
        """
        left_out = np.setdiff1d(self.itself, self.links) if known else np.union1d(self.itself, self.links)
        predictor = self.batch.predictor
        not_in_table = np.union1d(left_out, self.listed)
        not_in_table = not_in_table[not_in_table % self.size < len(predictor.graph.entities)]
        offsets = np.searchsorted(not_in_table, np.arange(len(self.centres) + 1) * self.size)
        scores, found = predictor.search(self.query_embeddings, offsets, not_in_table % self.size, k)
        spared = ~np.isin(self.listed, left_out)
        listed = self.listed[spared]
        best = merged(scores, found, listed // self.size, self.scores[spared], listed % self.size)
        if not known and k >= 2:
            vars(self).setdefault("two_best", (best[0][:, :2], best[1][:, :2]))  # saves another search
        return best

    @cached_property
    def two_best(self) -> tuple[Float32Array, Int64Array]:
        """Scores and rows (q, 2) of the two best candidates that are not known answers."""
        return self.best(2)

    def score(self, query: IntArray, rows: IntArray) -> Float32Array:
        """Return the scores of chosen candidates (p,) of queries (p,)."""
        keys = np.asarray(query, np.int64) * self.size + rows
        place = np.minimum(np.searchsorted(self.listed, keys), max(len(self.listed) - 1, 0))
        there = self.listed[place] == keys if len(self.listed) else np.zeros(len(keys), bool)
        found = np.empty(len(keys), np.float32)
        found[there] = self.scores[place[there]]
        predictor, rest = self.batch.predictor, ~there
        found[rest] = pair_scores(
            predictor.model, self.query_embeddings, predictor.table, np.asarray(query)[rest], np.asarray(rows)[rest]
        )
        return found

    def margins(self, query: IntArray, rows: IntArray, scores: Float32Array) -> Float64Array:
        """Return scores (p,) minus the best score of the other candidates that are not known answers."""
        best, best_rows = self.two_best
        rival = rivals(best[query], (best_rows[query, 0] == rows)[:, None])[:, 0]
        return margins(scores, rival)

    def is_known(self, rows: AnyArray) -> BoolArray:
        """Return which of the candidates (q, k) are known answers."""
        return np.isin(self.keys(rows), self.links) & (rows >= 0)
