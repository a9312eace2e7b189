"""Relation co-occurrence: other edges between the query entity and a candidate.

A player who was drafted by a team is likely to play for it. The source estimates this from co-occurrence, that is how
often two labels connect the same pair of entities, so it also works for unseen relations. Edges of the query entity are
not counted, and edges with the label of the query are not used, so a hidden edge cannot leak. If the protocol hides
every edge of a pair, the source returns nothing, because no edge to the true answer is visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numba
import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.ego.local_subgraph import EdgeList
from fnftg.ego.neighbours import Neighbours
from fnftg.evidence.base import (
    Candidates,
    EvidenceSource,
    Feature,
    Finding,
    Item,
    QueryBatch,
    Requirement,
    log_mass,
    log_share,
)
from fnftg.kernels.threads import in_parallel

COST = 20  # operations per edge, an estimate for the choice of threads


class RelationCooccurrence(EvidenceSource):
    """Neighbours of the query entity, weighted by how often their labels co-occur with the label of the query."""

    name: ClassVar[str] = "relation_cooccurrence"
    title: ClassVar[str] = "other edges between the two entities"
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("cooccurrence", 3.0, 2.5),
        Feature("cooccurrence_share", 0.0, 2.5),
    )
    requires: ClassVar[tuple[Requirement, ...]] = ("both directions",)

    def count(self, context: VisibleGraph, unseen: BoolArray) -> CooccurrenceCounts:
        assert isinstance(context, GraphContext)
        return CooccurrenceCounts.of(context.neighbours)

    def extend(self, counts: CooccurrenceCounts, context: VisibleGraph, unseen: BoolArray) -> CooccurrenceCounts:
        """Update the counts; only pairs of entities that new edges connect are counted again."""
        assert context.base is not None
        base, relations = context.base.neighbours, context.relations
        added = EdgeList.of(context.added, relations, base.directions)
        touched = np.unique(added.centres)
        old = EdgeList.around(base, touched, relations)
        before = old[
            np.isin(old.centres * context.entities + old.others, added.centres * context.entities + added.others)
        ]
        rows = [
            EdgeList(np.searchsorted(touched, edges.centres), edges.others, edges.labels).neighbours(
                len(touched), relations
            )
            for edges in (before, before.combined(added))
        ]
        return counts.changed(*rows)

    def candidates(self, counts: CooccurrenceCounts, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        if queries.hidden == "pair":
            return Candidates.none(len(queries), len(self.features))
        graph = context.subgraph(queries.centres)
        offsets, found, mass = counts.cooccurring(
            graph.neighbours, graph.inside(queries.centres), queries.labels, self.config.num_candidates
        )
        features = np.stack([log_mass(mass), log_share(mass, offsets)], axis=1)
        return Candidates(offsets, graph.outside(found), features)

    def explain(self, counts: CooccurrenceCounts, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding:
        """Return the other edges between the query entity and the answer."""
        centre, label = int(query.centres[0]), int(query.labels[0])
        graph = context.subgraph(query.centres)
        row = int(graph.inside(query.centres)[0])
        edges = slice(graph.neighbours.offsets[row], graph.neighbours.offsets[row + 1])
        labels = graph.neighbours.labels[edges][graph.outside(graph.neighbours.entities[edges]) == answer]
        return Finding(items=tuple(Item(label=int(other)) for other in labels if other != label and centre != answer))


@dataclass(frozen=True)
class CooccurrenceCounts:
    """The number of entity pairs that two labels both connect, and the number of triples of each relation."""

    keys: Int64Array  # (p,): l · 2R + a for labels l and a that both connect at least one pair, ascending
    pairs: Int64Array  # (p,): number of pairs that l and a both connect
    frequencies: Int64Array  # (R,): number of triples of each relation

    @classmethod
    def of(cls, neighbours: Neighbours) -> CooccurrenceCounts:
        """Count co-occurrences in these neighbours, which must have edges of both directions."""
        return cls(*np.unique(label_pairs(neighbours), return_counts=True), neighbours.frequencies)

    def changed(self, before: Neighbours, after: Neighbours) -> CooccurrenceCounts:
        """Replace the counted edges `before` of some entity pairs by `after`, which may have new relations."""
        relations, more = len(self.frequencies), after.relations - len(self.frequencies)
        one, other = (label + more * (label >= relations) for label in np.divmod(self.keys, max(2 * relations, 1)))
        more_pairs, fewer_pairs = label_pairs(after), label_pairs(before)
        keys, place = np.unique(
            np.concatenate([one * 2 * after.relations + other, more_pairs, fewer_pairs]), return_inverse=True
        )
        amounts = [self.pairs, np.ones(len(more_pairs), np.int64), np.full(len(fewer_pairs), -1)]
        pairs = np.zeros(len(keys), np.int64)
        np.add.at(pairs, place, np.concatenate(amounts))
        frequencies = np.pad(self.frequencies, (0, more)) + after.frequencies - before.frequencies
        return CooccurrenceCounts(keys[pairs > 0], pairs[pairs > 0], frequencies)

    @cached_property
    def by_label(self) -> tuple[Int64Array, Int64Array]:
        """Offsets (2R + 1,) and co-occurring labels (p,): label l has the entries offsets[l] to offsets[l + 1]."""
        size = 2 * len(self.frequencies)
        offsets = np.searchsorted(self.keys, size * np.arange(size + 1))
        return offsets, self.keys - size * np.repeat(np.arange(size), np.diff(offsets))

    def cooccurring(
        self, around: Neighbours, centres: Int32Array, labels: Int32Array, limit: int
    ) -> tuple[Int64Array, Int32Array, Float32Array]:
        """Return up to `limit` neighbours per query (centre, label, ·), (q,), with their mass, greatest first.

        The mass of a neighbour is the sum of N(l, a) / √(N(l) N(a)) over the labels a that lead to it, without the
        label l of the query. N(l, a) is the number of entity pairs that both labels connect, N(l) the number of triples
        of l plus one. Pairs with the centre are not counted.
        """
        found = np.empty((len(centres), limit), np.int32)
        masses = np.empty((len(centres), limit), np.float32)
        counts = np.empty(len(centres), np.int64)
        table = *self.by_label, self.pairs, self.frequencies
        rows = around.offsets, around.entities, around.labels

        def some(start: int, stop: int) -> None:
            find_cooccurring(*table, *rows, centres, labels, found, masses, counts, start, stop)

        in_parallel(some, len(centres), COST * (len(around.entities) // max(len(around), 1) + 1))
        there = np.arange(limit) < counts[:, None]
        return np.concatenate([[0], np.cumsum(counts)]), found[there], masses[there]


def label_pairs(neighbours: Neighbours) -> Int64Array:
    """Return each ordered pair of labels (l, a) that connect the same two entities, as l · 2R + a."""
    rows = neighbours.offsets, neighbours.entities, neighbours.labels, 2 * neighbours.relations
    found = np.empty(place_pairs(*rows, np.empty(0, np.int64)), np.int64)
    place_pairs(*rows, found)
    return found


@numba.njit(nogil=True, cache=True)
def place_pairs(offsets: Int64Array, entities: Int32Array, labels: Int32Array, size: int, keys: Int64Array) -> int:
    """Write each pair (l, a) as l · size + a into `keys` while there is room, and return the number of pairs."""
    place = 0
    for centre in range(len(offsets) - 1):
        first = offsets[centre]
        for edge in range(offsets[centre], offsets[centre + 1]):
            if entities[edge] != entities[first]:
                first = edge
            for other in range(first, edge):
                if place < len(keys):
                    keys[place] = np.int64(labels[edge]) * size + labels[other]
                    keys[place + 1] = np.int64(labels[other]) * size + labels[edge]
                place += 2
    return place


@numba.njit(nogil=True, cache=True)
def find_cooccurring(  # type: ignore[no-untyped-def]
    table_offsets, table_labels, table_pairs, frequencies, offsets, entities, edge_labels,
    centres, labels, found, masses, counts, start, stop,
):  # fmt: skip
    relations = len(frequencies)
    size = 2 * relations
    joined, degrees = np.zeros(size, np.int64), np.zeros(relations, np.int64)  # N(l, a) for l of the query; own edges
    for query in range(start, stop):
        centre, label = centres[query], labels[query]
        begin, end = offsets[centre], offsets[centre + 1]
        for entry in range(table_offsets[label], table_offsets[label + 1]):
            joined[table_labels[entry]] = table_pairs[entry]

        # Subtract the edges of the centre.
        inverse = (label + relations) % size
        first = begin
        while first < end:
            itself = entities[first] == centre
            after, has, has_inverse = first, False, False
            while after < end and entities[after] == entities[first]:
                has |= edge_labels[after] == label
                has_inverse |= edge_labels[after] == inverse
                after += 1
            for edge in range(first, after):
                other = edge_labels[edge]
                if not itself or other < relations:  # a self-loop is listed in both directions
                    degrees[other % relations] += 1
                if has:
                    joined[other] -= 1
                if has_inverse and not itself:  # the same pair, seen from the other end
                    joined[(other + relations) % size] -= 1
            first = after

        # Sum over the labels that lead to each neighbour.
        neighbours, sums = np.empty(end - begin, np.int32), np.empty(end - begin, np.float64)
        count = 0
        of_label = frequencies[label % relations] - degrees[label % relations] + 1
        for edge in range(begin, end):
            other = edge_labels[edge]
            if other == label or entities[edge] == centre or joined[other] <= 0:
                continue
            of_other = frequencies[other % relations] - degrees[other % relations] + 1
            mass = joined[other] / np.sqrt(of_label * of_other)
            if count and neighbours[count - 1] == entities[edge]:
                sums[count - 1] += mass
            else:
                neighbours[count], sums[count] = entities[edge], mass
                count += 1
        order = np.argsort(-sums[:count], kind="mergesort")[: found.shape[1]]  # ties by row
        counts[query] = len(order)
        for place in range(len(order)):
            found[query, place], masses[query, place] = neighbours[order[place]], sums[order[place]]

        for entry in range(table_offsets[label], table_offsets[label + 1]):
            joined[table_labels[entry]] = 0
        for edge in range(begin, end):
            joined[edge_labels[edge]], joined[(edge_labels[edge] + relations) % size] = 0, 0
            degrees[edge_labels[edge] % relations] = 0
