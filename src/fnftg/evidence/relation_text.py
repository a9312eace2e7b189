"""Relation text: what the words of a relation say about its answers, if no edge of the relation is visible.

All other sources count visible edges of the relation, so they have nothing to say about a relation without any. Then
its text is all there is, besides the texts and the other edges of the entities. Four observations make an entity a
likely answer:

- its text is similar to the words of the relation that name the answer: the last words of "country official language"
  for tails, the first words for heads;
- its text is similar to that of the query entity;
- another edge connects it with the query entity;
- its text names the query entity, or the other way round; two mentions say more than one.

Edges with the label of the query are not used, so a hidden edge cannot leak. If the protocol hides every edge of a
pair, no edge of the query entity is used.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.evidence.base import (
    Candidates,
    EvidenceSource,
    Feature,
    Finding,
    QueryBatch,
    Requirement,
    query_of_each,
)
from fnftg.kernels.ranges import ranges
from fnftg.text.mentions import NAMED, NAMES
from fnftg.text.nearest_texts import NO_NEIGHBOUR

WEIGHT_DIGITS = 3  # of rounded weights, which do not depend on the order of summation
MAX_EDGES = 1_000  # the edges of a query entity with more edges than this say little about its answers


class RelationText(EvidenceSource):
    """Likely answers of a relation without visible edges, according to its text."""

    name: ClassVar[str] = "relation_text"
    title: ClassVar[str] = "what the text of a relation without edges says about its answers"
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("answer_words", None, 8.0),
        Feature("query_similarity", None, 3.5),
        Feature("other_edge", None, 2.0),
        Feature("mentions", None, 6.0),
    )
    requires: ClassVar[tuple[Requirement, ...]] = ("frozen text", "both directions")

    def count(self, context: VisibleGraph, unseen: BoolArray) -> Int64Array:
        """Return the number of triples of each relation: (R,)."""
        assert isinstance(context, GraphContext)
        return context.neighbours.frequencies

    def extend(self, counts: Int64Array, context: VisibleGraph, unseen: BoolArray) -> Int64Array:
        added = np.bincount(context.added[:, 1], minlength=context.relations)
        return np.asarray(np.pad(counts, (0, context.relations - len(counts))) + added)

    def candidates(self, counts: Int64Array, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        asked = np.flatnonzero(queries.unseen)
        if len(asked):
            asked = asked[without_other_edges(counts, context, queries.centres[asked], queries.labels[asked])]
        if not len(asked):
            return Candidates.none(len(queries), len(self.features))
        labels, of_query = np.unique(queries.labels[asked], return_inverse=True)
        parts = [
            self.of_label(context, queries, asked[of_query == place], int(label)) for place, label in enumerate(labels)
        ]
        query, entity, features = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(query, kind="stable")
        offsets = np.searchsorted(query[order], np.arange(len(queries) + 1))
        return Candidates(offsets, entity[order].astype(np.int32), features[order])

    def of_label(
        self, context: VisibleGraph, queries: QueryBatch, some: Int64Array, label: int
    ) -> tuple[Int64Array, Int64Array, Float32Array]:
        """Return query, entity and features (n, 4) of the candidates of `some` queries, which all have this label."""
        centres, size, limit = queries.centres[some], context.entities, self.config.num_candidates
        everyone = np.arange(len(some))
        knn = context.nearest_texts(self.config.num_nearest)
        words = np.maximum(knn.similarities(context.encode(context.answer_words(np.array([label]))))[0], 0)  # (N,)
        best = np.argsort(-words, kind="stable")[: limit + 1]  # and one more, as no entity is its own answer
        mentions = context.mentions(self.config.mention_words)
        offsets, named, _ = mentions.around(centres)
        near, _ = knn(centres)  # (n, k)
        connected = other_edges(context, centres, label) if queries.hidden == "target" else np.zeros(0, np.int64)

        keys = [
            np.add.outer(everyone * size, best).reshape(-1),
            query_of_each(offsets) * size + named,
            (everyone[:, None] * size + near)[near != NO_NEIGHBOUR],
            connected,
        ]
        query, entity = np.divmod(np.unique(np.concatenate(keys)), size)
        query, entity = query[entity != centres[query]], entity[entity != centres[query]]
        kinds = mentions.between(centres[query].astype(np.int64), entity)
        features = np.stack(
            [
                words[entity],
                np.maximum(knn.similarities_of(centres[query], entity), 0),
                np.isin(query * size + entity, connected),
                (kinds & NAMES > 0) + (kinds & NAMED > 0).astype(np.float32),
            ],
            axis=1,
        ).astype(np.float32)
        weight = features @ np.array([feature.unseen for feature in self.features], np.float32)
        order = np.lexsort((entity, -np.round(weight, WEIGHT_DIGITS), query))
        kept = order[np.arange(len(order)) - np.searchsorted(query[order], query[order]) < limit]
        return some[query[kept]], entity[kept], features[kept]

    def explain(self, counts: Int64Array, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding | None:
        """Name the observations that hold for the answer."""
        found = self.candidates(counts, context, query)
        if not len(found.entities):
            return None
        [features] = found.features[found.entities == answer].tolist() or [[0.0] * len(self.features)]
        words = context.answer_words(query.labels)[0].replace("{", "(").replace("}", ")")
        sentences = (
            f"the text of {{answer}} is similar to “{words}”, words of the relation ({features[0]:.2f})",
            f"the text of {{answer}} is similar to that of {{query}} ({features[1]:.2f})",
            "another edge connects {query} and {answer}",
            f"{'both texts name' if features[3] > 1 else 'one of the two texts names'} the other entity",
        )
        return Finding(", ".join(sentence for sentence, value in zip(sentences, features, strict=True) if value))


def without_other_edges(
    triples: Int64Array, context: VisibleGraph, centres: Int32Array, labels: Int32Array
) -> BoolArray:
    """Return for each query (q,) whether its relation has edges of the query entity only, if any; `triples` is (R,)."""
    relation = labels % context.relations
    as_head, tails = context.known(centres, relation)
    as_tail, _ = context.known(centres, relation + np.int32(context.relations))
    query = query_of_each(as_head)
    loops = np.bincount(query[tails == centres[query]], minlength=len(centres))  # counted in both directions
    return np.asarray(triples[relation] == np.diff(as_head) + np.diff(as_tail) - loops)


def other_edges(context: VisibleGraph, centres: Int32Array, label: int) -> Int64Array:
    """Return the keys query · N + entity of the edges of centres (q,) with other labels; none if it has very many."""
    graph = context.subgraph(centres)
    rows = graph.inside(centres)
    starts = graph.neighbours.offsets[rows]
    counts = graph.neighbours.offsets[rows + 1] - starts
    own = np.diff(context.known(centres, np.full(len(centres), label, np.int32))[0])  # may contain the target
    counts[counts - own > MAX_EDGES] = 0
    places = ranges(starts, counts)
    others = graph.outside(graph.neighbours.entities[places])
    keys = np.repeat(np.arange(len(centres)), counts) * context.entities + others
    return np.asarray(keys[graph.neighbours.labels[places] != label])
