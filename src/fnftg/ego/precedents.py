"""Precedents: what a relation was answered with before, by the asked entity and by others.

Of a relation that training never saw the model's score knows little, but a few edges may be visible. So what looks like
another answer of the same entity is likely to be one too, and so is what many others have. For relations that were
trained on neither is counted: their scores know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fnftg.ego.neighbours import Neighbours
from fnftg.ego.votes import NEAR, NEARER, Answers, More, Votes
from fnftg.kernels.ranges import ranges
from fnftg.kernels.tally import tally
from fnftg.kg.graph import Triples
from fnftg.text.lookalikes import NOBODY, Lookalikes

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]
Ragged = tuple[Numbers, Rows, Floats]  # of query i the entities and their mass at offsets[i] to offsets[i + 1]

OWN = 100  # answers of an entity whose lookalikes are looked up, the first by row: what it takes has to end
BLOCK = 256  # queries whose lookalikes are held at a time


@dataclass(frozen=True)
class Precedents:
    """The answers of the labels that were never trained on: those of label l at offsets[l] to offsets[l + 1]."""

    unmet: Truths  # (2R,): which labels these are
    offsets: Numbers  # (2R + 1,)
    entities: Rows  # (p,): the most frequent first, of equal ones the lower row
    counts: Numbers  # (p,): how many entities they are an answer of

    @classmethod
    def of(cls, neighbours: Neighbours, unmet: Truths) -> Precedents:
        """In these neighbours, which have the edges of both directions."""
        there = unmet[neighbours.labels]
        return cls.counted(unmet, neighbours.labels[there], neighbours.entities[there], np.ones(there.sum(), np.int64))

    @classmethod
    def counted(cls, unmet: Truths, labels: Rows, entities: Rows, counts: Numbers) -> Precedents:
        """Each label (n,) was answered with an entity so many times, perhaps again and again."""
        size = int(entities.max(initial=0)) + 1
        keys, place = np.unique(labels.astype(np.int64) * size + entities, return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, place, counts)
        label, entity = np.divmod(keys, size)
        order = np.lexsort((entity, -sums, label))
        offsets = np.searchsorted(label, np.arange(len(unmet) + 1))
        return cls(unmet, offsets, entity[order].astype(np.int32), sums[order])

    def grown(self, triples: Triples, unmet: Truths) -> Precedents:
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
        lookalikes: Lookalikes,
        answers: Answers,
        centres: Rows,
        labels: Rows,
        targets: Rows | None,
        limit: int,
    ) -> Votes:
        """The votes of queries (centre, label, ·), (q,), with up to `limit` precedents each of either kind.

        `answers` are those of the same visible graph. A target (q,) is asked for, and is no answer while it is; other
        known answers have no need of precedents.
        """
        asked = np.flatnonzero(self.unmet[labels])
        if not len(asked):
            return votes
        centres, labels = centres[asked], labels[asked]
        targets = np.full(len(asked), NOBODY, np.int32) if targets is None else targets[asked]
        offsets, known = answers(centres, labels)
        other = known != np.repeat(targets, np.diff(offsets))
        own = Own(np.concatenate([[0], np.cumsum(other)])[offsets], known[other], centres, answers.entities)
        hidden = np.diff(offsets) > np.diff(own.offsets)
        kinds: dict[More, Ragged] = {
            "usual": self.usual(own, labels, targets, hidden, limit),
            "alike": alike(lookalikes, own, limit),
        }
        for column, (starts, entities, mass) in kinds.items():
            counts = np.zeros(len(votes.offsets), np.int64)
            counts[asked + 1] = np.diff(starts)
            votes = votes.beside(column, np.cumsum(counts), entities, mass)
        return votes

    def usual(self, own: Own, labels: Rows, targets: Rows, hidden: Truths, limit: int) -> Ragged:
        """What answers the labels (q,) most often: in which share of their triples, of those without the centre, of
        which there shall be one more. A hidden target (q,) has one triple less."""
        sizes = np.diff(own.offsets)
        starts = self.offsets[labels]
        # up to `limit` are left once own answers and the centre are gone and the target has sunk
        counts = np.minimum(self.offsets[labels + 1] - starts, limit + sizes + 2)
        query, place = np.repeat(np.arange(len(labels)), counts), ranges(starts, counts)
        entities, times = self.entities[place], self.counts[place]
        times = times - (hidden[query] & (entities == targets[query]))
        listed = (times > 0) & ~own.have(query, entities)
        query, entities, times = query[listed], entities[listed], times[listed]
        order = np.lexsort((entities, -times, query))
        order = order[np.arange(len(order)) - np.searchsorted(query, query) < limit]  # places within each query
        mass = times / (self.triples[labels] - sizes - hidden + 1)[query]
        offsets = np.searchsorted(query[order], np.arange(len(labels) + 1))
        return offsets, entities[order], mass[order].astype(np.float32)

    @cached_property
    def triples(self) -> Numbers:
        """How many each label has: (2R,)."""
        sums = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(np.diff(sums[self.offsets]))


@dataclass(frozen=True)
class Own:
    """The known answers of queries, but for the targets: those of query i at offsets[i] to offsets[i + 1]."""

    offsets: Numbers  # (q + 1,)
    answers: Rows  # (a,)
    centres: Rows  # (q,): which are no answers of their own
    size: int  # of the graph: how many entities there are

    def have(self, query: Numbers, entities: Rows) -> Truths:
        """Whether entities (n,) are answers of these queries (n,), or their centres."""
        of_answer = np.repeat(np.arange(len(self.centres)), np.diff(self.offsets))
        found = np.isin(query * self.size + entities, of_answer * self.size + self.answers)
        return np.asarray(found | (entities == self.centres[query]))

    def part(self, start: int, stop: int) -> Own:
        """Of some of the queries."""
        offsets = self.offsets[start : stop + 1]
        answers = self.answers[offsets[0] : offsets[-1]]
        return Own(offsets - offsets[0], answers, self.centres[start:stop], self.size)


def alike(lookalikes: Lookalikes, own: Own, limit: int) -> Ragged:
    """What looks like the answers that the centres have: the mean of similarity⁴ over the answers."""
    parts = []
    for start in range(0, len(own.centres), BLOCK):
        some = own.part(start, start + BLOCK)
        counts = np.minimum(np.diff(some.offsets), OWN)
        of_answer = np.repeat(np.arange(len(counts)), counts)
        rows, cosines = lookalikes(some.answers[ranges(some.offsets[:-1], counts)])  # (a, k) each
        answer, place = np.nonzero(rows != NOBODY)
        query, named, weight = of_answer[answer], rows[answer, place], np.maximum(cosines[answer, place], 0)
        new = ~some.have(query, named)
        offsets = np.searchsorted(query[new], np.arange(len(counts) + 1))
        offsets, entities, near, _ = tally(offsets, named[new], weight[new], (NEAR, NEARER), own.size, limit)
        parts.append((np.diff(offsets), entities, near / np.repeat(counts, np.diff(offsets)).astype(np.float32)))
    counts, entities, mass = map(np.concatenate, zip(*parts, strict=True))
    return np.concatenate([[0], np.cumsum(counts)]), entities, mass
