"""Naming: how much it says for an answer that its text names the asked entity, or is named by that one's text.

It depends on the relation: texts of films name directors, not viewers. So it is counted, how many of the relation's
visible edges join two entities of which one names the other; none that touches the asked entity, so that what is hidden
cannot show. Texts are no edges: a mention counts under every protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import Float32Array, Int32Array, Int64Array
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.votes import Answers
from fnftg.kg.graph import Triples
from fnftg.text.mentions import NAMED, NAMES, Mentions


@dataclass(frozen=True)
class Naming:
    """Mentions, and how many triples of each relation they stand beside."""

    mentions: Mentions
    frequencies: Int64Array  # (R,): how many triples each relation has
    naming: Int64Array  # (2R,): of how many the head's text names the tail, then: the tail's the head

    @classmethod
    def of(cls, mentions: Mentions, neighbours: Neighbours) -> Naming:
        """In the triples that these neighbours were made of."""
        nothing = np.zeros(neighbours.relations, np.int64)
        heads = np.repeat(np.arange(len(neighbours)), np.diff(neighbours.offsets))
        forward = neighbours.labels < neighbours.relations
        edges = heads[forward], neighbours.labels[forward], neighbours.entities[forward]
        return cls(mentions, nothing, np.concatenate([nothing, nothing])).grown(
            mentions, np.stack(edges, axis=1).astype(np.int32), neighbours.relations
        )

    def grown(self, mentions: Mentions, triples: Triples, relations: int) -> Naming:
        """Once there are more triples (n, 3), none of which was there, perhaps of more entities and relations."""
        heads, relation, tails = triples.astype(np.int64).T
        kinds = mentions.between(heads, tails)
        more = relations - len(self.frequencies)
        naming = np.pad(self.naming.reshape(2, -1), ((0, 0), (0, more)))
        for direction, kind in enumerate((NAMES, NAMED)):
            naming[direction] += np.bincount(relation[kinds & kind > 0], minlength=relations)
        frequencies = np.pad(self.frequencies, (0, more)) + np.bincount(relation, minlength=relations)
        return Naming(mentions, frequencies, naming.ravel())

    def __call__(
        self, answers: Answers, centres: Int32Array, labels: Int32Array
    ) -> tuple[Int64Array, Int32Array, Float32Array]:
        """Of the queries (centre, label, ·), (q,), all entities that the centre names or is named by, with their mass.

        It is the share of the relation's triples in which the same end's text names the other, of those that do not
        touch the centre, of which there shall be one more; where both texts name each other, the sum of both shares.
        `answers` are those of the same visible graph.
        """
        relations, queries = len(self.frequencies), len(centres)
        own = np.zeros(
            (3, queries), np.int64
        )  # triples that touch the centre: how many, and in how many who names whom
        for inverse in (False, True):
            asked = (labels + inverse * relations) % (2 * relations)
            offsets, others = answers(centres, asked.astype(np.int32))
            query = np.repeat(np.arange(queries), np.diff(offsets))
            if inverse:  # a loop is no other triple from its other end
                query, others = query[others != centres[query]], others[others != centres[query]]
            kinds = self.mentions.between(centres[query].astype(np.int64), others.astype(np.int64))
            first, second = (NAMED, NAMES) if inverse else (NAMES, NAMED)
            for row, kind in enumerate((NAMES | NAMED, first, second)):
                chosen = query if row == 0 else query[kinds & kind > 0]
                own[row] += np.bincount(chosen, minlength=queries)
        whole = self.frequencies[labels % relations] - own[0] + 1
        names = (self.naming[labels] - own[1]) / whole
        named = (self.naming[(labels + relations) % (2 * relations)] - own[2]) / whole
        offsets, entities, kinds = self.mentions.around(centres)
        query = np.repeat(np.arange(queries), np.diff(offsets))
        mass = names[query] * (kinds & NAMES > 0) + named[query] * (kinds & NAMED > 0)
        some = mass > 0
        offsets = np.concatenate([[0], np.cumsum(some)])[offsets]
        return offsets, entities[some].astype(np.int32), mass[some].astype(np.float32)
