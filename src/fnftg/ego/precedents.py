"""Precedents: what a relation was answered with before, by the asked entity and by others.

Of a relation that training never saw the model's score knows little, but a few edges may be visible. So what looks like
another answer of the same entity is likely to be one too, and so is what many others have. For relations that were
trained on neither is counted: beside what their scores know it is worth little.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Float64Array, Int32Array, Int64Array, IntArray
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.votes import NEAR, Answers, More, Votes
from fnftg.kernels.ranges import ranges
from fnftg.kg.graph import Triples
from fnftg.text.nearest_texts import NO_NEIGHBOUR, TextKNN

Ragged = tuple[Int64Array, Int32Array, Float32Array]  # how many entities each query has, the entities, their mass

OWN = 100  # answers of an entity whose lookalikes are looked up, the first by row: what it takes has to end
BLOCK = 256  # queries whose precedents are looked up at a time


@dataclass(frozen=True)
class Precedents:
    """The answers of the labels that were never trained on: those of label l at offsets[l] to offsets[l + 1]."""

    unmet: BoolArray  # (2R,): which labels these are
    offsets: Int64Array  # (2R + 1,)
    entities: Int32Array  # (p,): the most frequent first, of equal ones the lower row
    counts: Int64Array  # (p,): how many entities they are an answer of

    @classmethod
    def of(cls, neighbours: Neighbours, unmet: BoolArray) -> Precedents:
        """In these neighbours, which have the edges of both directions."""
        there = unmet[neighbours.labels]
        return cls.counted(unmet, neighbours.labels[there], neighbours.entities[there], np.ones(there.sum(), np.int64))

    @classmethod
    def counted(cls, unmet: BoolArray, labels: Int32Array, entities: Int32Array, counts: Int64Array) -> Precedents:
        """Each label (n,) was answered with an entity so many times, perhaps again and again."""
        size = int(entities.max(initial=0)) + 1
        keys, place = np.unique(labels.astype(np.int64) * size + entities, return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, place, counts)
        label, entity = np.divmod(keys, size)
        order = np.lexsort((entity, -sums, label))
        offsets = np.searchsorted(label, np.arange(len(unmet) + 1))
        return cls(unmet, offsets, entity[order].astype(np.int32), sums[order])

    def grown(self, triples: Triples, unmet: BoolArray) -> Precedents:
        """Once there are more triples (n, 3), none of which was there, perhaps of more relations."""
        heads, relation, tails = triples.T
        relations, before = len(unmet) // 2, len(self.unmet) // 2
        old = np.repeat(np.arange(2 * before), np.diff(self.offsets))
        old += (relations - before) * (old >= before)  # inverses stand behind the new relations
        labels, entities = np.concatenate([relation, relation + relations]), np.concatenate([tails, heads])
        there = unmet[labels]
        return Precedents.counted(
            unmet,
            np.concatenate([old, labels[there]]),
            np.concatenate([self.entities, entities[there]]),
            np.concatenate([self.counts, np.ones(there.sum(), np.int64)]),
        )

    def beside(
        self,
        votes: Votes,
        lookalikes: TextKNN,
        answers: Answers,
        centres: Int32Array,
        labels: Int32Array,
        targets: Int32Array | None,
        limit: int,
    ) -> Votes:
        """The votes of queries (centre, label, ·), (q,), with precedents: up to `limit` of either kind for each.

        `answers` are those of the same visible graph. Targets (q,) are hidden while they are asked for, and other known
        answers, which are no candidates then, have no precedents. Where there are no targets, every known answer has
        those that it would have as one.
        """
        asked = np.flatnonzero(self.unmet[labels])
        if not len(asked):
            return votes
        usual_ones, alike_ones = [], []
        for start in range(0, len(asked), BLOCK):
            some = asked[start : start + BLOCK]
            own = Own.of(answers, centres[some], labels[some], None if targets is None else targets[some])
            usual_ones.append(self.usual(own, labels[some], limit))
            alike_ones.append(alike(lookalikes, own, limit))
        kinds: dict[More, list[Ragged]] = {"usual": usual_ones, "alike": alike_ones}
        for column, parts in kinds.items():
            sizes, entities, mass = map(np.concatenate, zip(*parts, strict=True))
            counts = np.zeros(len(votes.offsets), np.int64)
            counts[asked + 1] = sizes
            votes = votes.beside(column, np.cumsum(counts), entities, mass)
        return votes

    def usual(self, own: Own, labels: Int32Array, limit: int) -> Ragged:
        """What answers the labels (q,) most often: in which share of their triples, of those without the centre, of
        which there shall be one more."""
        starts, own_answers = self.offsets[labels], np.diff(own.offsets)
        # enough to know the best and what comes next, once own answers and the centre are gone and the target has sunk
        counts = np.minimum(self.offsets[labels + 1] - starts, limit + own_answers + 3)
        query, place = np.repeat(np.arange(len(labels)), counts), ranges(starts, counts)
        entities = self.entities[place]
        is_own = own.have(query, entities)
        times = self.counts[place] - is_own - (entities == own.hidden[query])
        others = self.triples[labels] - own_answers - (own.hidden != NO_NEIGHBOUR)
        return own.best(query, entities, times / (others + 1)[query], is_own, limit)

    @cached_property
    def triples(self) -> Int64Array:
        """How many each label has: (2R,)."""
        sums = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(np.diff(sums[self.offsets]))


def alike(lookalikes: TextKNN, own: Own, limit: int) -> Ragged:
    """What looks like the answers that the centres have: the mean of similarity⁴ over these."""
    counts = np.minimum(np.diff(own.offsets), OWN)
    query, answers = np.repeat(np.arange(len(counts)), counts), own.answers[ranges(own.offsets[:-1], counts)]
    rows, cosines = lookalikes(answers)  # (a, k) each
    answer, place = np.nonzero(rows != NO_NEIGHBOUR)
    keys, of_key = np.unique(query[answer] * own.size + rows[answer, place], return_inverse=True)
    weights = np.maximum(cosines[answer, place].astype(np.float64), 0) ** NEAR
    itself = np.isin(keys, query * own.size + answers)  # no entity is a lookalike of itself
    query, entities = np.divmod(keys, own.size)
    mass = np.bincount(of_key, weights, len(keys)) / np.maximum(counts[query] - itself, 1)
    return own.best(query, entities.astype(np.int32), mass, own.have(query, entities), limit)


@dataclass(frozen=True)
class Own:
    """The known answers of queries: those of query i at offsets[i] to offsets[i + 1], without its target."""

    offsets: Int64Array  # (q + 1,)
    answers: Int32Array  # (a,)
    hidden: Int32Array  # (q,): the target, where a visible edge leads to it, or else nobody
    centres: Int32Array  # (q,)
    size: int  # how many entities the graph has
    listed: bool  # the known answers are candidates too

    @classmethod
    def of(cls, answers: Answers, centres: Int32Array, labels: Int32Array, targets: Int32Array | None) -> Own:
        offsets, known = answers(centres, labels)
        asked = np.full(len(centres), NO_NEIGHBOUR, np.int32) if targets is None else targets
        query = np.repeat(np.arange(len(centres)), np.diff(offsets))
        other = known != asked[query]
        hidden = np.full(len(centres), NO_NEIGHBOUR, np.int32)
        hidden[query[~other]] = known[~other]
        kept = np.concatenate([[0], np.cumsum(other)])[offsets]
        return cls(kept, known[other], hidden, centres, answers.entities, targets is None)

    def have(self, query: Int64Array, entities: IntArray) -> BoolArray:
        """Whether entities (n,) are answers of these queries (n,)."""
        of_answer = np.repeat(np.arange(len(self.centres)), np.diff(self.offsets))
        return np.isin(query * self.size + entities, of_answer * self.size + self.answers)

    def best(
        self, query: Int64Array, entities: Int32Array, mass: Float64Array, is_own: BoolArray, limit: int
    ) -> Ragged:
        """Of candidates (n,), each with a mass, the heaviest of each query: no more than `limit` that are no known
        answers. Where they are more, those go that weigh the same as the next, whatever their rows."""
        there = (mass > 0) & (entities != self.centres[query]) & (self.listed | ~is_own)
        query, entities, mass, is_own = query[there], entities[there], mass[there], is_own[there]
        order = np.lexsort((entities, -mass, query))
        query, entities, mass, is_own = query[order], entities[order], mass[order], is_own[order]
        before: Int64Array = np.cumsum(~is_own) - ~is_own  # how many new ones
        next_ones = ~is_own & (before - before[np.searchsorted(query, query)] == limit)
        least = np.zeros(len(self.centres))
        least[query[next_ones]] = mass[next_ones]
        heavy = mass > least[query]
        sizes = np.bincount(query[heavy], minlength=len(self.centres))
        return sizes, entities[heavy], mass[heavy].astype(np.float32)
