"""Lookalikes: the entities whose texts are most alike, and what they answer.

What entities like h have for tails of r speaks for the same tails of h, also where h itself is new and has no edges.
Votes for an answer never rest on an edge of the asked entity, so nothing that is hidden from its ego-graph can show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fnftg.ego.answers import KnownAnswers, Numbers, Rows
from fnftg.errors import FnftgError

Floats = npt.NDArray[np.float32]

MOST = 250_000  # entities that are all compared with each other
BLOCK = 1 << 25  # similarities that are held at a time
DIGITS = 4  # of similarities: what differs by less is equal, however the products were summed up
NOBODY = -1
NEAR, NEARER = 4, 16  # powers of the similarity: a lookalike's weight, among many and among the nearest


@dataclass(frozen=True)
class Lookalikes:
    """Of every entity the most similar others, the nearest first; of equal ones the lower row."""

    entities: Rows  # (n, k): -1 where there are fewer than k others
    similarities: Floats  # (n, k): cosines of the texts' features

    @classmethod
    def of(cls, features: Floats, k: int) -> Lookalikes:
        """By the features (n, hidden) of all entities' texts."""
        if len(features) > MOST:
            raise FnftgError(
                f"{len(features):,} entities are too many to compare all of them: up to {MOST:,} have lookalikes."
            )
        return cls(*nearest(features, features, k, np.arange(len(features))))


def nearest(asked: Floats, features: Floats, k: int, itself: Numbers) -> tuple[Rows, Floats]:
    """The k rows of `features` (n, hidden) most like each of `asked` (q, hidden), without the row `itself` (q,)."""
    table = torch.nn.functional.normalize(torch.from_numpy(features), dim=1)  # (n, hidden)
    kept = min(k, len(table))
    rows, similarities = np.full((len(asked), k), NOBODY, np.int32), np.zeros((len(asked), k), np.float32)
    step = max(BLOCK // max(len(table), 1), 1)
    for start in range(0, len(asked), step):
        part = slice(start, min(start + step, len(asked)))
        block = torch.nn.functional.normalize(torch.from_numpy(asked[part]), dim=1)
        found = (block @ table.T).numpy().round(DIGITS)  # (b, n)
        own = itself[part]
        found[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
        # one whole number for similarity and row: the higher the better, and no two are equal
        places = np.round(np.maximum(found, -2) * 10**DIGITS).astype(np.int64) * len(table) - np.arange(len(table))
        best = -np.sort(np.partition(-places, kept - 1, axis=1)[:, :kept], axis=1) if kept else places[:, :0]
        row = (-best) % max(len(table), 1)
        value = np.take_along_axis(found, row, axis=1)
        there = np.isfinite(value)
        rows[part, :kept], similarities[part, :kept] = np.where(there, row, NOBODY), np.where(there, value, 0)
    return rows, similarities


@dataclass(frozen=True)
class Votes:
    """What the lookalikes of asked entities answer: to query i at offsets[i] to offsets[i + 1], most votes first."""

    offsets: Numbers  # (q + 1,)
    entities: Rows  # (e,)
    near: Floats  # (e,): the sum of similarity⁴ over the lookalikes that have this answer
    nearer: Floats  # (e,): of similarity¹⁶, which few of them count for

    @classmethod
    def of(
        cls, lookalikes: Rows, similarities: Floats, answers: KnownAnswers, centres: Rows, labels: Rows, limit: int
    ) -> Votes:
        """By the lookalikes (q, k) of the asked entities (q,) and what is known of them; up to `limit` for a query."""
        query, place = np.nonzero((lookalikes != NOBODY) & (lookalikes != centres[:, None]))
        offsets, entities = answers(lookalikes[query, place], labels[query])
        counts = np.diff(offsets)
        query, weight = np.repeat(query, counts), np.repeat(np.maximum(similarities[query, place], 0), counts)
        other = entities != centres[query]
        query, entities, weight = query[other], entities[other].astype(np.int64), weight[other].astype(np.float64)
        keys, which = np.unique(query * answers.entities + entities, return_inverse=True)
        near, nearer = (np.bincount(which, weight**power, len(keys)) for power in (NEAR, NEARER))
        query, entities = keys // answers.entities, keys % answers.entities
        order = np.lexsort((entities, -near * nearer, query))
        first = np.searchsorted(query, np.arange(len(centres)))
        order = order[np.arange(len(order)) - first[query] < limit]  # sorting left each query where it was
        offsets = np.searchsorted(query[order], np.arange(len(centres) + 1))
        return cls(
            offsets,
            entities[order].astype(np.int32),
            near[order].astype(np.float32),
            nearer[order].astype(np.float32),
        )
