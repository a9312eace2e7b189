"""Features of a query (entity, label, ·) that show whether it has a missing answer. All are counts; no model is needed.

- How many answers the query has already, and how many entities with that many answers have one more.
- How many of the nearest texts have an answer to the same label.
- Whether a neighbour of the entity, which is not an answer yet, is linked by a label that often occurs together with
  the label of the query: the reverse edge of a symmetric relation, for example.

A posted entity has the features of the same entity imported: the counts are extended, not approximated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int32Array, Int64Array, IntArray
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.ego.neighbours import Neighbours
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.relation_cooccurrence import CooccurrenceCounts, RelationCooccurrence
from fnftg.kernels.ranges import ranges
from fnftg.text.nearest_texts import NO_NEIGHBOUR

MOST_ANSWERS = 30  # larger numbers of answers are counted as this one
NEAREST = 100  # nearest texts per entity
SHARPNESS = 4  # a nearest text counts with this power of its cosine similarity
SMALLEST_SHARE = 1e-3  # added to shares before the logarithm
SMOOTHING = 3.0  # added to the number of triples of a rare relation, whose rates are uncertain
LIKELY_RATE = 0.05  # a label is asked for if an edge implies it at least this often
FEATURES = (
    "answers",
    "has_answers",
    "log_continuation",
    "log_nearest_share",
    "implied",
    "degree",
    "has_answers:log_continuation",
    "has_answers:log_nearest_share",
)


@dataclass(frozen=True)
class QueryCounts:
    """Statistics of the visible graph that the features of all queries share."""

    entities: int
    at_least: Int64Array  # (2R, MOST_ANSWERS + 2): number of entities with at least j answers to a label
    cooccurrence: CooccurrenceCounts

    @classmethod
    def of(cls, context: VisibleGraph) -> QueryCounts:
        """Return the statistics of a context, computed once and then reused."""

        def count() -> QueryCounts:
            if context.base is None:
                assert isinstance(context, GraphContext)
                return counted(context)
            return extended(QueryCounts.of(context.base), context)

        found: QueryCounts = context.counted("query counts", count)
        return found

    @cached_property
    def continuation(self) -> Float64Array:
        """The share of the entities with at least j answers that have at least one more: (2R, MOST_ANSWERS + 1)."""
        return (self.at_least[:, 1:] + 0.5) / (self.at_least[:, :-1] + 1.0)

    @cached_property
    def implied_labels(self) -> tuple[Int64Array, Int64Array]:
        """Offsets (2R + 1,) and labels (p,): an edge with label a often comes with the labels of its entry."""
        size = 2 * len(self.cooccurrence.frequencies)
        implied, by = np.divmod(self.cooccurrence.keys, max(size, 1))
        rates = self.cooccurrence.pairs / (np.tile(self.cooccurrence.frequencies, 2)[by] + 1)
        often = (rates >= LIKELY_RATE) & (implied != by)
        order = np.argsort(by[often], kind="stable")
        return np.searchsorted(by[often][order], np.arange(size + 1)), implied[often][order]


SOURCE = RelationCooccurrence(EvidenceConfig())


def counted(context: GraphContext) -> QueryCounts:
    size = 2 * context.relations
    pairs, answers = np.unique(context.known.packed // max(context.entities, 1), return_counts=True)
    at_least = np.zeros((size, MOST_ANSWERS + 2), np.int64)
    np.add.at(at_least, (pairs % max(size, 1), np.minimum(answers, MOST_ANSWERS + 1)), 1)
    at_least = np.cumsum(at_least[:, ::-1], axis=1)[:, ::-1].copy()
    at_least[:, 0] = context.entities
    return QueryCounts(context.entities, at_least, CooccurrenceCounts.of(context.neighbours))


def extended(counts: QueryCounts, context: VisibleGraph) -> QueryCounts:
    """Return the statistics of a graph with more triples; only queries with new answers are counted again."""
    assert context.base is not None
    before, after = context.base.relations, context.relations
    at_least = np.zeros((2 * after, MOST_ANSWERS + 2), np.int64)
    at_least[:before], at_least[after : after + before] = counts.at_least[:before], counts.at_least[before:]
    at_least[:, 0] = context.entities
    heads, relations, tails = context.added.astype(np.int64).T
    queries = np.concatenate([heads * 2 * after + relations, tails * 2 * after + after + relations])
    pairs, more = np.unique(queries, return_counts=True)
    centres, labels = (pairs // (2 * after)).astype(np.int32), (pairs % (2 * after)).astype(np.int32)
    whole = np.diff(context.known(centres, labels)[0])
    steps = ranges(whole - more + 1, more)
    np.add.at(at_least, (np.repeat(labels, more), np.minimum(steps, MOST_ANSWERS + 1)), steps <= MOST_ANSWERS + 1)
    none = np.zeros(2 * after, bool)
    return QueryCounts(context.entities, at_least, SOURCE.extend(counts.cooccurrence, context, none))


@dataclass(frozen=True)
class QueryFeatures:
    """What was counted for queries (q,)."""

    slots: Int64Array  # 2 · relation for tail queries, 2 · relation + 1 for head queries; the same in extended graphs
    answers: Int64Array  # number of known answers
    continuation: Float64Array  # share of the entities with as many answers that have one more
    nearest_share: Float64Array  # share of the nearest texts that have an answer, weighted by similarity
    implied: Float64Array  # how often an edge like the best one of the entity comes with the label of the query
    degree: Int64Array  # number of edges of the entity
    holders: Int64Array  # number of entities that have an answer to the label
    triples: Int64Array  # number of triples of the relation

    @property
    def isolated(self) -> BoolArray:
        """Whether the entity has no edges."""
        return np.asarray(self.degree == 0)

    def matrix(self) -> Float64Array:
        """Return the features (q, F) in the order of FEATURES."""
        has = (self.answers > 0).astype(np.float64)
        continuation, share = np.log(self.continuation), np.log(self.nearest_share + SMALLEST_SHARE)
        columns = (np.log1p(self.answers), has, continuation, share, self.implied, np.log1p(self.degree))
        return np.stack([*columns, has * continuation, has * share], axis=1)

    def take(self, rows: IntArray | BoolArray) -> QueryFeatures:
        return QueryFeatures(*(value[rows] for value in vars(self).values()))

    def where(self, chosen: BoolArray, other: QueryFeatures) -> QueryFeatures:
        """Return the features of these queries where `chosen` (q,), else those of the other queries."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return QueryFeatures(*(np.where(chosen, own, others) for own, others in pairs))

    @classmethod
    def combined(cls, parts: Sequence[QueryFeatures]) -> QueryFeatures:
        """Concatenate the features of several batches of queries."""
        none = np.zeros(0, np.int64)
        nothing = cls(none, none, np.zeros(0), np.zeros(0), np.zeros(0), none, none, none)
        columns = zip(*(vars(part).values() for part in (nothing, *parts)), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def query_features(context: VisibleGraph, centres: Int32Array, labels: Int32Array) -> QueryFeatures:
    """Count the features of queries (centre, label, ·), (q,)."""
    counts = QueryCounts.of(context)
    answers = context.known.counts(centres, labels)
    graph = context.subgraph(centres)
    inside = graph.inside(centres)
    return QueryFeatures(
        slots_of(labels, context.relations),
        answers,
        counts.continuation[labels, np.minimum(answers, MOST_ANSWERS)],
        nearest_shares(context, centres, labels),
        implied(counts.cooccurrence, graph.neighbours, inside, labels),
        np.diff(graph.neighbours.offsets)[inside],
        counts.at_least[labels, 1],
        counts.cooccurrence.frequencies[labels % max(context.relations, 1)],
    )


def slots_of(labels: Int32Array, relations: int) -> Int64Array:
    """Return the slots of labels (q,) in a graph with this number of relations."""
    return 2 * (labels.astype(np.int64) % max(relations, 1)) + (labels >= relations)


def has_nearest_texts(context: VisibleGraph) -> bool:
    base = context if isinstance(context, GraphContext) else context.base
    return base is not None and base.texts.features is not None and context.entities > 1


def nearest_shares(context: VisibleGraph, centres: Int32Array, labels: Int32Array) -> Float64Array:
    """Return the share (q,) of the nearest texts whose entities have an answer to the label."""
    if not has_nearest_texts(context) or not len(centres):
        return np.zeros(len(centres))
    rows, cosines = context.nearest_texts(NEAREST)(centres)  # (q, k)
    there = rows != NO_NEIGHBOUR
    weights = np.where(there, np.maximum(cosines, 0).astype(np.float64) ** SHARPNESS, 0)
    found = np.zeros(rows.shape, bool)
    query = np.nonzero(there)[0]
    found[there] = context.known.counts(rows[there], labels[query]) > 0
    return np.asarray((weights * found).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-12))


def implied(
    counts: CooccurrenceCounts, neighbours: Neighbours, centres: Int32Array, labels: Int32Array
) -> Float64Array:
    """Return how often (q,) an edge comes with the label of the query, for the centre's best edge to a non-answer."""
    found = np.zeros(len(centres))
    rows = neighbours.offsets, neighbours.entities, neighbours.labels
    best_implied(*counts.by_label, counts.pairs, counts.frequencies, *rows, centres, labels, found)
    return found


@numba.njit(nogil=True, cache=True)
def best_implied(  # type: ignore[no-untyped-def]
    table_offsets, table_labels, table_pairs, frequencies, offsets, entities, edge_labels, centres, labels, found
):  # fmt: skip
    relations = len(frequencies)
    rates = np.zeros(2 * relations)
    for query in range(len(centres)):
        centre, label = centres[query], labels[query]
        for entry in range(table_offsets[label], table_offsets[label + 1]):
            other = table_labels[entry]
            rates[other] = table_pairs[entry] / (frequencies[other % relations] + 1)
        first, end = offsets[centre], offsets[centre + 1]
        while first < end:  # one neighbour at a time
            after, best, known = first, 0.0, entities[first] == centre
            while after < end and entities[after] == entities[first]:
                known |= edge_labels[after] == label
                best = max(best, rates[edge_labels[after]])
                after += 1
            if not known:
                found[query] = max(found[query], best)
            first = after
        for entry in range(table_offsets[label], table_offsets[label + 1]):
            rates[table_labels[entry]] = 0.0


def implied_pairs(context: VisibleGraph, centres: Int32Array, labels: Int32Array, answers: Int32Array) -> Float64Array:
    """Return how often (n,) the best edge between centre and answer comes with the label; 0 without such an edge."""
    counts, graph = QueryCounts.of(context).cooccurrence, context.subgraph(centres)
    inside, others = graph.inside(centres), graph.inside(answers)
    if graph.entities is not None:  # answers without an edge to a centre may be outside
        others = np.minimum(others, len(graph.entities) - 1)
        others = np.where(graph.entities[others] == answers, others, -1).astype(np.int32)
    found = np.zeros(len(centres))
    rows = graph.neighbours.offsets, graph.neighbours.entities, graph.neighbours.labels
    best_implied_pairs(*counts.by_label, counts.pairs, counts.frequencies, *rows, inside, labels, others, found)
    return found


@numba.njit(nogil=True, cache=True)
def best_implied_pairs(  # type: ignore[no-untyped-def]
    table_offsets, table_labels, table_pairs, frequencies, offsets, entities, edge_labels, centres, labels, others,
    found,
):  # fmt: skip
    relations = len(frequencies)
    for pair in range(len(centres)):
        label, other = labels[pair], others[pair]
        first, end = offsets[centres[pair]], offsets[centres[pair] + 1]
        edge = first + np.searchsorted(entities[first:end], other)
        while other >= 0 and edge < end and entities[edge] == other:
            start, stop = table_offsets[label], table_offsets[label + 1]
            entry = start + np.searchsorted(table_labels[start:stop], edge_labels[edge])
            if entry < stop and table_labels[entry] == edge_labels[edge] and edge_labels[edge] != label:
                rate = table_pairs[entry] / (frequencies[edge_labels[edge] % relations] + SMOOTHING)
                found[pair] = max(found[pair], rate)
            edge += 1


# All queries of a graph


@dataclass(frozen=True)
class LabelSets:
    """The distinct labels of the edges of each entity: entity e has the entries offsets[e] to offsets[e + 1]."""

    offsets: Int64Array
    labels: Int64Array

    @classmethod
    def of(cls, context: GraphContext) -> LabelSets:
        def count() -> LabelSets:
            size = max(2 * context.relations, 1)
            pairs = np.unique(context.known.packed // max(context.entities, 1))
            return cls(np.searchsorted(pairs, np.arange(context.entities + 1) * size), pairs % size)

        found: LabelSets = context.counted("label sets", count)
        return found

    def __call__(self, entities: IntArray) -> tuple[Int64Array, Int64Array]:
        """Return the place among `entities` (n,) and the label of each of their entries."""
        starts = self.offsets[entities]
        sizes = self.offsets[entities + 1] - starts
        return np.repeat(np.arange(len(entities)), sizes), self.labels[ranges(starts, sizes)]


def likely_queries(context: GraphContext, entities: Int32Array) -> tuple[Int32Array, Int32Array, QueryFeatures]:
    """Return centres, labels and features of the queries of entities (n,) that may have a missing answer.

    These are the labels of the entity, of its nearest texts, and those that its edges imply. No other query has
    evidence for a missing answer. The cost is that of these queries, not of entities × relations.
    """
    counts, sets, size = QueryCounts.of(context), LabelSets.of(context), 2 * context.relations
    own, own_labels = sets(entities)
    offsets, implied_labels = counts.implied_labels
    sizes = offsets[own_labels + 1] - offsets[own_labels]
    keys = [own * size + own_labels, np.repeat(own, sizes) * size + implied_labels[ranges(offsets[own_labels], sizes)]]
    near_keys, near_shares = np.zeros(0, np.int64), np.zeros(0)
    if has_nearest_texts(context):
        rows, cosines = context.nearest_texts(NEAREST)(entities)
        query, place = np.nonzero(rows != NO_NEIGHBOUR)
        weights = np.maximum(cosines[query, place], 0).astype(np.float64) ** SHARPNESS
        entry, near_labels = sets(rows[query, place])
        near_keys, which = np.unique(query[entry] * size + near_labels, return_inverse=True)
        whole = np.bincount(query, weights, len(entities))
        near_shares = np.bincount(which, weights[entry], len(near_keys)) / np.maximum(whole[near_keys // size], 1e-12)
    pairs = np.unique(np.concatenate([*keys, near_keys]))
    shares = np.zeros(len(pairs))
    shares[np.searchsorted(pairs, near_keys)] = near_shares
    centres, labels = entities[pairs // size], (pairs % size).astype(np.int32)
    answers = context.known.counts(centres, labels)
    found = QueryFeatures(
        slots_of(labels, context.relations),
        answers,
        counts.continuation[labels, np.minimum(answers, MOST_ANSWERS)],
        shares,
        implied(counts.cooccurrence, context.neighbours, centres, labels),
        np.diff(context.neighbours.offsets)[centres],
        counts.at_least[labels, 1],
        counts.cooccurrence.frequencies[labels % max(context.relations, 1)],
    )
    return centres, labels, found
