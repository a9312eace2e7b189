"""The queries of triples, and the filter of their known answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.ego.known_answers import KnownAnswers
from fnftg.kg.graph import KnowledgeGraph, Triples


@dataclass(frozen=True)
class Queries:
    """The two queries of each triple: all tail queries, then all head queries."""

    centres: Int32Array  # (q,): h, then t
    labels: Int32Array  # (q,): r, then R + r
    answers: Int32Array  # (q,): t, then h

    @classmethod
    def of(cls, triples: Triples, relations: int) -> Queries:
        heads, relation, tails = triples.T
        return cls(
            np.concatenate([heads, tails]),
            np.concatenate([relation, relation + relations]),
            np.concatenate([tails, heads]),
        )


@dataclass(frozen=True)
class Filter:
    """The candidates left out of a ranking: known answers, and the query entity if self-answers are excluded."""

    known: KnownAnswers
    row_of: Int64Array  # (entities,): row of each entity among the candidates, -1 if it is not a candidate
    no_self_answers: BoolArray  # (2R,): labels for which an entity is never its own answer

    @classmethod
    def of(cls, known: KnownAnswers, candidates: Int32Array, no_self_answers: BoolArray | bool = False) -> Filter:
        row_of = np.full(known.entities, -1)
        row_of[candidates] = np.arange(len(candidates))
        return cls(known, row_of, np.broadcast_to(no_self_answers, 2 * known.relations))

    def __call__(self, queries: Queries) -> tuple[Int64Array, Int64Array]:
        """Return offsets and rows of the filtered candidates, including the target.

        Query i has the rows offsets[i] to offsets[i + 1].
        """
        offsets, entities = self.known.with_itself(
            queries.centres, queries.labels, self.no_self_answers[queries.labels]
        )
        rows = self.row_of[entities]
        listed = rows >= 0
        return np.concatenate([[0], np.cumsum(listed)])[offsets], rows[listed]


def no_self_answers(graph: KnowledgeGraph) -> BoolArray:
    """Return the labels (2R,) of relations without a self-loop in train."""
    heads, relations, tails = graph.triples("train").T
    allow_self_answers = np.bincount(relations[heads == tails], minlength=len(graph.relations))
    return np.tile(allow_self_answers == 0, 2)
