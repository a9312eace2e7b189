"""Few-shot prior for unseen relations, from the few visible edges of the relation.

The embedding score says little about a relation that is not in the training split. Two kinds of entities are likely
answers nevertheless: those whose texts are similar to another answer of the query entity, and those that are the answer
for many other entities. The source is not used for training relations, where it adds little to the embedding score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int32Array, Int64Array, IntArray
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.ego.known_answers import AnswerLookup
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
    query_of_each,
)
from fnftg.kernels.ranges import ranges
from fnftg.text.nearest_texts import NO_NEIGHBOUR, TextKNN

MAX_ANSWERS = 100  # maximum number of answers of an entity whose nearest texts are looked up, lowest rows first
BLOCK = 256  # queries per block
NO_ENTITY = -1
POWER = 4  # exponent of the similarity
Mass = tuple[Int64Array, Int32Array, Float64Array]  # query, entity and mass of candidates: (n,) each


class FewShotPrior(EvidenceSource):
    """Answers of an unseen relation: similar to the query entity's other answers, or frequent among other entities."""

    name: ClassVar[str] = "few_shot_prior"
    title: ClassVar[str] = "known answers of a relation that the model was not trained on"
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("answer_similarity", None, 2.5),
        Feature("answer_frequency", None, 2.5),
    )
    requires: ClassVar[tuple[Requirement, ...]] = ("frozen text", "both directions")

    def count(self, context: VisibleGraph, unseen: BoolArray) -> AnswerCounts:
        assert isinstance(context, GraphContext)
        return AnswerCounts.of(context.neighbours, unseen)

    def extend(self, counts: AnswerCounts, context: VisibleGraph, unseen: BoolArray) -> AnswerCounts:
        return counts.extended(context, unseen)

    def candidates(self, counts: AnswerCounts, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        asked = np.flatnonzero(queries.unseen)
        if not len(asked):
            return Candidates.none(len(queries), len(self.features))
        nearest, limit = context.nearest_texts(self.config.num_nearest), self.config.num_candidates
        keys, masses = [], []  # query · N + entity, and the mass of both features
        for start in range(0, len(asked), BLOCK):
            some = asked[start : start + BLOCK]
            targets = None if queries.targets is None else queries.targets[some]
            asked_about = queries.centres[some], queries.labels[some], targets, queries.hidden == "pair"
            own = QueryAnswers.of(context.known, *asked_about)
            found = answer_similarity(nearest, own, limit), counts.answer_frequency(own, queries.labels[some], limit)
            for column, (query, entities, mass) in enumerate(found):
                keys.append(some[query] * context.entities + entities)
                masses.append(np.zeros((len(mass), 2)))
                masses[-1][:, column] = mass
        distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
        mass = np.zeros((len(distinct), 2))
        np.add.at(mass, place.reshape(-1), np.concatenate(masses))
        offsets = np.searchsorted(distinct, np.arange(len(queries) + 1) * context.entities)
        return Candidates(offsets, (distinct % context.entities).astype(np.int32), log_mass(mass.astype(np.float32)))

    def explain(self, counts: AnswerCounts, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding | None:
        """Name the query entity's answers that are similar to this one, and count the other entities that have it.

        A feature that is 0, because other candidates have a greater mass, is not mentioned.
        """
        if not query.unseen[0]:
            return None
        found = self.candidates(counts, context, query)
        similar, frequent = (
            found.features[found.entities == answer].any(axis=0) if len(found.entities) else (False, False)
        )
        items: tuple[Item, ...] = ()
        said = []
        if similar:
            own = context.known(query.centres, query.labels)[1]
            own = own[own != answer][:MAX_ANSWERS]
            rows, cosines = context.nearest_texts(self.config.num_nearest)(own)  # (a, k) each
            places = sorted(zip(*np.nonzero(rows == answer), strict=True), key=lambda place: -cosines[place])
            items = tuple(Item(int(own[place[0]]), value=float(cosines[place])) for place in places)
            if items:
                said.append("{answer} is similar to {items}, which {query} is already linked to")
        if frequent:
            inverse = (query.labels + context.relations) % (2 * context.relations)
            others = context.known(np.array([answer], np.int32), inverse.astype(np.int32))[1]
            count = int((others != query.centres[0]).sum())
            said.append(
                ("1 other entity has" if count == 1 else f"{count:,} other entities have") + " the answer {answer}"
            )
        return Finding(", and ".join(said), items, "similarity")


@dataclass(frozen=True)
class AnswerCounts:
    """The answers of each unseen label and their frequencies: label l has the entries offsets[l] to offsets[l + 1].

    The triples of a request are stored separately, so that nothing needs to be sorted again.
    """

    unseen: BoolArray  # (2R,): whether a label is unseen
    offsets: Int64Array  # (2R' + 1,), for the R' relations of the base graph
    entities: Int32Array  # (p,): most frequent first, ties by row
    counts: Int64Array  # (p,): number of entities that have this answer
    added_labels: Int64Array  # (a,): labels of the added triples, in both directions
    added_answers: Int64Array  # (a,)
    context: VisibleGraph | None = None  # the extended graph, in which added answers are counted

    @classmethod
    def of(cls, neighbours: Neighbours, unseen: BoolArray) -> AnswerCounts:
        """Count the answers in these neighbours, which must have edges of both directions."""
        there = unseen[neighbours.labels]
        labels, size = neighbours.labels[there].astype(np.int64), max(len(neighbours), 1)
        keys, counts = np.unique(labels * size + neighbours.entities[there], return_counts=True)
        label, entity = np.divmod(keys, size)
        order = np.lexsort((entity, -counts, label))
        offsets = np.searchsorted(label, np.arange(len(unseen) + 1))
        nothing = np.zeros(0, np.int64)
        return cls(unseen, offsets, entity[order].astype(np.int32), counts[order], nothing, nothing)

    def extended(self, context: VisibleGraph, unseen: BoolArray) -> AnswerCounts:
        """Add the triples of an extended context, which may have new relations, to those added before."""
        relations = len(self.unseen) // 2
        before = self.added_labels + (context.relations - relations) * (self.added_labels >= relations)
        heads, relation, tails = context.added.astype(np.int64).T
        labels = np.concatenate([before, relation, relation + context.relations])
        answers = np.concatenate([self.added_answers, tails, heads])
        there = unseen[labels]
        return replace(self, unseen=unseen, added_labels=labels[there], added_answers=answers[there], context=context)

    def old_labels(self, labels: IntArray) -> tuple[BoolArray, Int64Array]:
        """Return which labels (q,) are in the base graph, and their numbers there.

        New relations are numbered before all inverses, so they shift the labels of inverses.
        """
        relations, before = len(self.unseen) // 2, (len(self.offsets) - 1) // 2
        old = labels % relations < before
        return old, np.where(old, labels - (relations - before) * (labels >= relations), 0)

    @cached_property
    def triples(self) -> Int64Array:
        """The number of triples of each label: (2R,)."""
        sums = np.concatenate([[0], np.cumsum(self.counts)])
        old, before = self.old_labels(np.arange(len(self.unseen)))
        counted = np.diff(sums[self.offsets])[before] * old if len(self.offsets) > 1 else np.zeros(len(old), np.int64)
        return np.asarray(counted + np.bincount(self.added_labels, minlength=len(self.unseen)))

    def answer_frequency(self, own: QueryAnswers, labels: Int32Array, limit: int) -> Mass:
        """Return the most frequent answers of labels (q,).

        The mass of an answer is its count divided by one plus the number of triples, both without those of the centre.
        """
        old, before = self.old_labels(labels)
        own_answers, more = np.diff(own.offsets), np.bincount(self.added_labels, minlength=len(self.unseen))[labels]
        starts = self.offsets[before]
        # enough for the best `limit` and the next one, after own answers, the centre and added answers are removed and
        # the target has lost its hidden triple
        wanted = limit + own_answers + more + 3
        counts = np.where(
            old, np.minimum(self.offsets[np.minimum(before + 1, len(self.offsets) - 1)] - starts, wanted), 0
        )
        query, place = np.repeat(np.arange(len(labels)), counts), ranges(starts, counts)
        entities, times = self.entities[place], self.counts[place]
        if more.any():
            query, entities, times = self.with_added(query, entities, times, labels)
        is_own = own.have(query, entities)
        times = times - is_own - (entities == own.hidden[query])
        others = self.triples[labels] - own_answers - own.hidden_triples
        return own.best(query, entities, times / (others + 1)[query], is_own, limit)

    def with_added(
        self, query: Int64Array, entities: Int32Array, times: Int64Array, labels: Int32Array
    ) -> tuple[Int64Array, Int32Array, Int64Array]:
        """Merge in the answers of added triples, with their counts in the extended graph."""
        assert self.context is not None
        asked, which = np.nonzero(labels[:, None] == self.added_labels)
        size = self.context.entities
        keys = np.unique(asked * size + self.added_answers[which])
        asked, answers = np.divmod(keys, size)
        relations = self.context.relations
        inverse = ((labels[asked] + relations) % (2 * relations)).astype(np.int32)
        counted = np.diff(self.context.known(answers.astype(np.int32), inverse)[0])
        other = ~np.isin(query * size + entities, keys)
        return (
            np.concatenate([query[other], asked]),
            np.concatenate([entities[other], answers.astype(np.int32)]),
            np.concatenate([times[other], counted]),
        )


def answer_similarity(nearest: TextKNN, own: QueryAnswers, limit: int) -> Mass:
    """Return the entities most similar to the centres' known answers; the mass is the mean of similarity⁴ over them."""
    counts = np.minimum(np.diff(own.offsets), MAX_ANSWERS)
    query, answers = np.repeat(np.arange(len(counts)), counts), own.answers[ranges(own.offsets[:-1], counts)]
    rows, cosines = nearest(answers)  # (a, k) each
    answer, place = np.nonzero(rows != NO_NEIGHBOUR)
    keys, of_key = np.unique(query[answer] * own.size + rows[answer, place], return_inverse=True)
    weights = np.maximum(cosines[answer, place].astype(np.float64), 0) ** POWER
    itself = np.isin(keys, query * own.size + answers)  # no entity is a neighbour of itself
    query, entities = np.divmod(keys, own.size)
    mass = np.bincount(of_key, weights, len(keys)) / np.maximum(counts[query] - itself, 1)
    return own.best(query, entities.astype(np.int32), mass, own.have(query, entities), limit)


@dataclass(frozen=True)
class QueryAnswers:
    """The known answers of queries without the targets: query i has the entries offsets[i] to offsets[i + 1].

    If queries have targets, these are hidden, and the other known answers are not candidates. Without targets, every
    known answer is a candidate too.
    """

    offsets: Int64Array  # (q + 1,)
    answers: Int32Array  # (a,)
    hidden: Int32Array  # (q,): the target if a visible edge leads to it, else NO_ENTITY
    hidden_triples: Int64Array  # (q,): number of hidden triples with the query's label
    centres: Int32Array  # (q,)
    size: int  # number of entities in the graph
    listed: bool  # whether known answers are candidates too

    @classmethod
    def of(
        cls,
        known: AnswerLookup,
        centres: Int32Array,
        labels: Int32Array,
        targets: Int32Array | None,
        pair: bool = False,
    ) -> QueryAnswers:
        """Look up the known answers; with `pair`, an edge from the target back to the centre is hidden too."""
        offsets, answers = known(centres, labels)
        asked = np.full(len(centres), NO_ENTITY, np.int32) if targets is None else targets
        query = query_of_each(offsets)
        other = answers != asked[query]
        hidden = np.full(len(centres), NO_ENTITY, np.int32)
        hidden[query[~other]] = answers[~other]
        hidden_triples = (hidden != NO_ENTITY).astype(np.int64)
        if pair and targets is not None:
            offsets_back, answers_back = known(targets, labels)
            back = query_of_each(offsets_back)
            hidden_triples[back[(answers_back == centres[back]) & (targets != centres)[back]]] += 1
        kept = np.concatenate([[0], np.cumsum(other)])[offsets]
        return cls(kept, answers[other], hidden, hidden_triples, centres, known.entities, targets is None)

    def have(self, query: Int64Array, entities: IntArray) -> BoolArray:
        """Return whether entities (n,) are known answers of the queries (n,)."""
        of_answer = query_of_each(self.offsets)
        return np.isin(query * self.size + entities, of_answer * self.size + self.answers)

    def best(self, query: Int64Array, entities: Int32Array, mass: Float64Array, is_own: BoolArray, limit: int) -> Mass:
        """Return the candidates (n,) with the greatest mass, at most `limit` per query that are not known answers.

        If there are more, all candidates whose mass equals that of the first one left out are left out too, so that
        the choice does not depend on row numbers.
        """
        there = (mass > 0) & (entities != self.centres[query]) & (self.listed | ~is_own)
        query, entities, mass, is_own = query[there], entities[there], mass[there], is_own[there]
        order = np.lexsort((entities, -mass, query))
        query, entities, mass, is_own = query[order], entities[order], mass[order], is_own[order]
        before: Int64Array = np.cumsum(~is_own) - ~is_own  # number of new answers before each candidate
        next_ones = ~is_own & (before - before[np.searchsorted(query, query)] == limit)
        least = np.zeros(len(self.centres))
        least[query[next_ones]] = mass[next_ones]
        heavy = mass > least[query]
        return query[heavy], entities[heavy], mass[heavy]
