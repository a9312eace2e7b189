"""Mention evidence: the text of one entity names the other.

How much that says depends on the relation: texts of films name directors, not viewers. So it is estimated by a mention
prior, the share of the relation's visible triples in which one text names the other entity. No triple of the query
entity counts, so what is hidden cannot show. Texts are no edges: a mention counts under every protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.ego.known_answers import AnswerLookup
from fnftg.evidence.base import (
    Candidates,
    EvidenceSource,
    Feature,
    Finding,
    QueryBatch,
    log_mass,
    log_share,
    query_of_each,
)
from fnftg.kg.graph import Triples
from fnftg.text.mentions import NAMED, NAMES, Mentions


class MentionEvidence(EvidenceSource):
    name: ClassVar[str] = "mentions"
    title: ClassVar[str] = "names in the texts"
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("mention_prior", 1.0, 2.5),
        Feature("mention_prior_share", 0.0, 0.0),
    )

    def count(self, context: VisibleGraph, unseen: BoolArray) -> MentionPrior:
        assert isinstance(context, GraphContext)
        nothing = MentionPrior(np.zeros(0, np.int64), np.zeros((2, 0), np.int64))
        return nothing.extended(context.mentions, context.neighbours.triples(), context.relations)

    def extend(self, counts: MentionPrior, context: VisibleGraph, unseen: BoolArray) -> MentionPrior:
        return counts.extended(context.mentions, context.added, context.relations)

    def candidates(self, counts: MentionPrior, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        offsets, entities, mass = counts.lookup(context.mentions, context.known, queries.centres, queries.labels)
        return Candidates(offsets, entities, np.stack([log_mass(mass), log_share(mass, offsets)], axis=1))

    def explain(self, counts: MentionPrior, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding:
        """Which of the two texts names the other entity."""
        kind = int(context.mentions.between(query.centres.astype(np.int64), np.array([answer]))[0])
        said = ["the text of {query} names {answer}"] * bool(kind & NAMES)
        said += ["the text of {answer} names {query}"] * bool(kind & NAMED)
        return Finding(" and ".join(said))


@dataclass(frozen=True)
class MentionPrior:
    """How many triples each relation has, and how many of them have a mention."""

    frequencies: Int64Array  # (R,): triples
    mentioning: Int64Array  # (2, R): of these, the head's text names the tail; the tail's names the head

    def extended(self, mentions: Mentions, triples: Triples, relations: int) -> MentionPrior:
        """With more triples (n, 3), none of which was there, perhaps of more entities and relations."""
        heads, relation, tails = triples.astype(np.int64).T
        kinds = mentions.between(heads, tails)
        more = relations - len(self.frequencies)
        mentioning = np.pad(self.mentioning, ((0, 0), (0, more)))
        for direction, kind in enumerate((NAMES, NAMED)):
            mentioning[direction] += np.bincount(relation[kinds & kind > 0], minlength=relations)
        frequencies = np.pad(self.frequencies, (0, more)) + np.bincount(relation, minlength=relations)
        return MentionPrior(frequencies, mentioning)

    def lookup(
        self, mentions: Mentions, known: AnswerLookup, centres: Int32Array, labels: Int32Array
    ) -> tuple[Int64Array, Int32Array, Float32Array]:
        """Of the queries (centre, label, ·), (q,), all entities that the centre names or is named by, with their mass.

        It is the share of the relation's triples in which the same end's text names the other, of those that do not
        touch the centre plus one; where both texts name each other, the sum of both shares. `known` are the answers of
        the same visible graph.
        """
        relations, queries = len(self.frequencies), len(centres)
        own = np.zeros((3, queries), np.int64)  # triples of the centre: all, first end names second, the reverse
        for inverse in (False, True):
            asked = (labels + inverse * relations) % (2 * relations)
            offsets, others = known(centres, asked.astype(np.int32))
            query = query_of_each(offsets)
            if inverse:  # a self-loop is no other triple from its other end
                query, others = query[others != centres[query]], others[others != centres[query]]
            kinds = mentions.between(centres[query].astype(np.int64), others.astype(np.int64))
            first, second = (NAMED, NAMES) if inverse else (NAMES, NAMED)
            for row, kind in enumerate((None, first, second)):
                chosen = query if kind is None else query[kinds & kind > 0]
                own[row] += np.bincount(chosen, minlength=queries)
        whole = self.frequencies[labels % relations] - own[0] + 1
        mentioning = self.mentioning.ravel()
        names = (mentioning[labels] - own[1]) / whole
        named = (mentioning[(labels + relations) % (2 * relations)] - own[2]) / whole
        offsets, entities, kinds = mentions.around(centres)
        query = query_of_each(offsets)
        mass = names[query] * (kinds & NAMES > 0) + named[query] * (kinds & NAMED > 0)
        some = mass > 0
        offsets = np.concatenate([[0], np.cumsum(some)])[offsets]
        return offsets, entities[some].astype(np.int32), mass[some].astype(np.float32)
