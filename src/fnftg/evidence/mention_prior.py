"""Mention evidence: the text of one entity names the other.

What a mention is worth depends on the relation: the text of a film often names its director but not its viewers. The
mention prior estimates this as the share of the relation's visible triples in which one text names the other entity.
Triples of the query entity are not counted, so a hidden edge cannot leak. Mentions are part of the texts, not of the
edges, so they count under every protocol.
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
    """Entities that the query entity's text names, or whose texts name the query entity."""

    name: ClassVar[str] = "mentions"
    title: ClassVar[str] = "names in the texts"
    features: ClassVar[tuple[Feature, ...]] = (
        Feature("mention_prior", 1.0, 2.5),
        Feature("mention_prior_share", 0.0, 0.0),
    )

    def mentions(self, context: VisibleGraph) -> Mentions:
        """Return the mentions in the words that the config says."""
        return context.mentions(self.config.mention_words)

    def count(self, context: VisibleGraph, unseen: BoolArray) -> MentionPrior:
        assert isinstance(context, GraphContext)
        nothing = MentionPrior(np.zeros(0, np.int64), np.zeros((2, 0), np.int64))
        return nothing.extended(self.mentions(context), context.neighbours.triples(), context.relations)

    def extend(self, counts: MentionPrior, context: VisibleGraph, unseen: BoolArray) -> MentionPrior:
        return counts.extended(self.mentions(context), context.added, context.relations)

    def candidates(self, counts: MentionPrior, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        offsets, entities, mass = counts.lookup(self.mentions(context), context.known, queries.centres, queries.labels)
        return Candidates(offsets, entities, np.stack([log_mass(mass), log_share(mass, offsets)], axis=1))

    def explain(self, counts: MentionPrior, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding:
        """Say which of the two texts names the other entity."""
        kind = int(self.mentions(context).between(query.centres.astype(np.int64), np.array([answer]))[0])
        said = ["the text of {query} names {answer}"] * bool(kind & NAMES)
        said += ["the text of {answer} names {query}"] * bool(kind & NAMED)
        return Finding(" and ".join(said))


@dataclass(frozen=True)
class MentionPrior:
    """The number of triples of each relation, and of those with a mention."""

    frequencies: Int64Array  # (R,): triples
    mentioning: Int64Array  # (2, R): triples whose head's text names the tail; whose tail's text names the head

    def extended(self, mentions: Mentions, triples: Triples, relations: int) -> MentionPrior:
        """Add new triples (n, 3), which may have new entities and relations."""
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
        """Return all entities that each centre names or is named by, with their mass, as ragged arrays.

        The mass is the share of the relation's triples with a mention in the same direction. Triples of the centre are
        not counted, and one is added to the denominator. If both texts name each other, the mass is the sum of both
        shares.

        Args:
            mentions: the mentions in the texts of the graph.
            known: the answers in the same visible graph.
            centres: the query entities, (q,).
            labels: the labels of the queries, (q,).
        """
        relations, queries = len(self.frequencies), len(centres)
        own = np.zeros((3, queries), np.int64)  # triples of the centre: all, centre names other, other names centre
        for inverse in (False, True):
            asked = (labels + inverse * relations) % (2 * relations)
            offsets, others = known(centres, asked.astype(np.int32))
            query = query_of_each(offsets)
            if inverse:  # do not count a self-loop twice
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
