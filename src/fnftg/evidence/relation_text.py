"""Relation text: what the words of a relation say about its answers, if no edge of the relation is visible.

All other sources count visible edges of the relation, so they have nothing to say about a relation without any. Then
its text is all there is, besides the texts and the other edges of the entities. Seven observations make an entity a
likely answer:

- its text is similar to the words of the relation that name the answer: the last words of "country official language"
  for tails, the first words for heads;
- its text is similar to that of the query entity;
- an edge of a relation with similar words connects it with the query entity;
- its text names the query entity, or the other way round; two mentions say more than one;
- it has common neighbours with the query entity;
- it has the same name as the query entity;
- it is an answer of other entities to relations with similar words.

Edges of the relation of the query are not used, so a hidden edge cannot leak. If the protocol hides every edge of a
pair, no edge of the query entity is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fnftg.arrays import AnyArray, BoolArray, Float32Array, Float64Array, Int32Array, Int64Array
from fnftg.ego.common_neighbours import resource_allocation
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.ego.label_sums import label_sums
from fnftg.evidence.base import (
    Candidates,
    EvidenceSource,
    Feature,
    Finding,
    QueryBatch,
    Requirement,
    log_mass,
    query_of_each,
)
from fnftg.kernels.ranges import ranges
from fnftg.text.mentions import NAMED, NAMES
from fnftg.text.nearest_texts import NO_NEIGHBOUR, rounded, unit

WEIGHT_DIGITS = 3  # of rounded weights, which do not depend on the order of summation
MAX_EDGES = 1_000  # the edges of an entity with more edges than this say little about its answers
NO_ROWS = np.zeros(0, np.int64)
UNIT = 10**6  # of similarities⁴ as integers, whose sums do not depend on the order


class RelationText(EvidenceSource):
    """Likely answers of a relation without visible edges, according to its text."""

    name: ClassVar[str] = "relation_text"
    title: ClassVar[str] = "what the text of a relation without edges says about its answers"
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("answer_words", None, 10.0),
        Feature("query_similarity", None, 5.0),
        Feature("similar_edge", None, 7.0),
        Feature("mentions", None, 6.0),
        Feature("common_neighbours", None, 0.5),
        Feature("same_name", None, 8.0),
        Feature("answer_type", None, 9.0),
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
        """Return query, entity and features (n, 7) of the candidates of `some` queries, which all have this label."""
        centres, size, limit = queries.centres[some], context.entities, self.config.num_candidates
        everyone = np.arange(len(some))
        knn = context.nearest_texts(self.config.num_nearest)
        vectors = label_vectors(context)  # (2R, hidden)
        similar = np.maximum(rounded(vectors @ vectors[label]), 0)  # (2R,): of labels, by the words for their answers
        best = knn.nearest_to(vectors[label], limit + 1)  # and one more, as no entity is its own answer
        mentions = context.mentions(self.config.mention_words)
        offsets, named, _ = mentions.around(centres)
        near, _ = knn(centres)  # (n, k)
        twin, namesake = context.same_names.of_entities(centres)
        types = AnswerTypes.of(context, label, similar)
        edges = OtherEdges.of(context, centres, label)
        asker, used = edges.of_queries() if queries.hidden == "target" else (NO_ROWS, NO_ROWS)
        connected, inverse = np.unique(asker * size + edges.others[used], return_inverse=True)
        similarity = np.zeros(len(connected), np.float32)
        np.maximum.at(similarity, inverse, similar[edges.labels[used]])
        common, index = self.common_neighbours(context, centres, connected, types.edges)

        keys = [
            np.add.outer(everyone * size, best).reshape(-1),
            query_of_each(offsets) * size + named,
            (everyone[:, None] * size + near)[near != NO_NEIGHBOUR],
            connected,
            common,
            twin * size + namesake,
        ]
        query, entity = np.divmod(np.unique(np.concatenate(keys)), size)
        query, entity = query[entity != centres[query]], entity[entity != centres[query]]
        kinds = mentions.between(centres[query].astype(np.int64), entity)
        features = np.stack(
            [
                np.maximum(knn.similarities_to(vectors[label], entity), 0),
                np.maximum(knn.similarities_of(centres[query], entity), 0),
                values_at(query * size + entity, connected, similarity),
                (kinds & NAMES > 0) + (kinds & NAMED > 0).astype(np.float32),
                log_mass(values_at(query * size + entity, common, index)),
                np.isin(query * size + entity, twin * size + namesake),
                types.of_pairs(edges, query, entity),
            ],
            axis=1,
        ).astype(np.float32)
        weight = features @ np.array([feature.unseen for feature in self.features], np.float32)
        order = np.lexsort((entity, -np.round(weight, WEIGHT_DIGITS), query))
        kept = order[np.arange(len(order)) - np.searchsorted(query[order], query[order]) < limit]
        return some[query[kept]], entity[kept], features[kept]

    def common_neighbours(
        self, context: VisibleGraph, centres: Int32Array, connected: Int64Array, edges: Int64Array
    ) -> tuple[Int64Array, Float32Array]:
        """Return ascending keys query · N + entity of entities with common neighbours, and their index, (m,) each.

        Args:
            context: the graph.
            centres: the query entities, (q,).
            connected: the keys of their neighbours, ascending.
            edges: the number of edges of each entity, (N,). Neighbours with very many are left out.
        """
        query, other = np.divmod(connected, context.entities)
        query, other = query[edges[other] <= MAX_EDGES], other[edges[other] <= MAX_EDGES]
        graph = context.subgraph(np.unique(np.concatenate([centres, other])))
        offsets, found, index = resource_allocation(
            graph.neighbours,
            graph.inside(centres),
            np.searchsorted(query, np.arange(len(centres) + 1)),
            graph.inside(other),
            self.config.num_candidates,
        )
        keys = query_of_each(offsets) * context.entities + graph.outside(found)
        order = np.argsort(keys)
        return keys[order], index[order]

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
            f"an edge of a relation with similar words connects {{query}} and {{answer}} ({features[2]:.2f})",
            f"{'both texts name' if features[3] > 1 else 'one of the two texts names'} the other entity",
            "{query} and {answer} have common neighbours",
            "{query} and {answer} have the same name",
            f"relations that lead to {{answer}} have similar words ({features[6]:.3f})",
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


def label_vectors(context: VisibleGraph) -> Float32Array:
    """Return the normalised features of the words for the answers of all labels, (2R, hidden)."""

    def encoded() -> Float32Array:
        first = 0 if context.base is None else context.base.relations
        new = np.arange(first, context.relations)
        words = context.answer_words(np.concatenate([new, new + context.relations]))
        vectors = {text: context.encode([text])[0] for text in set(words)}  # one by one, so that no other text matters
        parts = [] if context.base is None else [label_vectors(context.base).reshape(2, first, -1)]
        if words:
            parts.append(unit(np.stack([vectors[text] for text in words])).reshape(2, len(new), -1))
        found = np.concatenate(parts, axis=1)
        return found.reshape(-1, found.shape[-1])

    vectors: Float32Array = context.counted("vectors of answer words", encoded)
    return vectors


@dataclass(frozen=True)
class OtherEdges:
    """The edges of distinct query entities, without self-loops and edges of the relation of the query."""

    place: Int64Array  # (q,): of each query's entity among the distinct ones
    offsets: Int64Array  # (c + 1,): the edges of distinct entity i are offsets[i] to offsets[i + 1]
    others: Int64Array  # (e,): their other ends
    labels: Int64Array  # (e,): their labels, as seen from the query entity

    @classmethod
    def of(cls, context: VisibleGraph, centres: Int32Array, label: int) -> OtherEdges:
        distinct, place = np.unique(centres, return_inverse=True)
        graph = context.subgraph(distinct)
        rows = graph.inside(distinct)
        starts = graph.neighbours.offsets[rows]
        counts = graph.neighbours.offsets[rows + 1] - starts
        places, centre = ranges(starts, counts), np.repeat(np.arange(len(distinct)), counts)
        others = graph.outside(graph.neighbours.entities[places]).astype(np.int64)
        labels = graph.neighbours.labels[places].astype(np.int64)
        used = (labels % context.relations != label % context.relations) & (others != distinct[centre])
        offsets = np.searchsorted(centre[used], np.arange(len(distinct) + 1))
        return cls(place, offsets, others[used], labels[used])

    def of_queries(self) -> tuple[Int64Array, Int64Array]:
        """Return query and edge (m,) of the queries whose entity has at most `MAX_EDGES` edges."""
        counts = np.diff(self.offsets)[self.place]
        counts[counts > MAX_EDGES] = 0
        return np.repeat(np.arange(len(self.place)), counts), ranges(self.offsets[:-1][self.place], counts)


@dataclass(frozen=True)
class AnswerTypes:
    """How similar the relations of which an entity is an answer are to the relation of the query.

    It is the mean similarity⁴ over the edges that lead to the entity from others than the query entity, and one more
    edge, which has the mean of all labels.
    """

    values: Int64Array  # (2R, 2): similarity⁴ of each label and 1; 0 for the relation of the query
    sums: Int64Array  # (N, 2): of the labels of which an entity is an answer

    @classmethod
    def of(cls, context: VisibleGraph, label: int, similar: Float32Array) -> AnswerTypes:
        """Sum up the similarities (2R,) of labels."""
        squares = similar.astype(np.float64) ** 2
        values = np.stack([np.rint(UNIT * squares * squares), np.ones(len(similar))], axis=1).astype(np.int64)
        values[[label % context.relations, label % context.relations + context.relations]] = 0
        return cls(values, label_sums(context, np.roll(values, context.relations, axis=0)))  # seen from the answer

    @property
    def edges(self) -> Int64Array:
        """The number of edges of each entity, (N,), without those of the relation of the query."""
        return self.sums[:, 1]

    def of_pairs(self, edges: OtherEdges, query: Int64Array, entity: Int64Array) -> Float64Array:
        """Return the value of entities for queries, (m,) each, without edges between the two."""
        size = len(self.sums)
        keys, inverse = np.unique(query_of_each(edges.offsets) * size + edges.others, return_inverse=True)
        between = np.zeros((len(keys), 2), np.int64)
        np.add.at(between, inverse, self.values[edges.labels])
        wanted = edges.place[query] * size + entity
        mass, count = (self.sums[entity, i] - values_at(wanted, keys, between[:, i]) for i in (0, 1))
        prior = self.values[:, 0].sum() / max(len(self.values) - 2, 1)
        return np.asarray((mass + prior) / (count + 1) / UNIT)


def values_at(wanted: Int64Array, keys: Int64Array, values: AnyArray) -> AnyArray:
    """Return the values (n,) of the wanted keys (m,) among ascending keys (n,), 0 for those that are not there."""
    place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    found = np.zeros(len(wanted), values.dtype)
    there = np.full(len(wanted), len(keys) > 0)
    there[there] = keys[place[there]] == wanted[there]
    found[there] = values[place[there]]
    return found
