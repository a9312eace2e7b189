"""Lookalikes: the entities whose texts are most alike, and what they answer.

What entities like h have for tails of r speaks for the same tails of h, also where h itself is new and has no edges.
Votes for an answer never rest on an edge of the asked entity, so nothing that is hidden from its ego-graph can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from fnftg.ego.answers import Numbers, Rows
from fnftg.errors import FnftgError
from fnftg.kernels.tally import tally

Floats = npt.NDArray[np.float32]

MOST = 250_000  # entities that are all compared with each other
BLOCK = 1 << 25  # similarities that are held at a time
DIGITS = 4  # of similarities: what differs by less is equal, however the products were summed up
NOBODY = -1
NEAR, NEARER = 4, 16  # powers of the similarity: a lookalike's weight, among many and among the nearest


class Answers(Protocol):
    """Which entities are known answers of queries, as `KnownAnswers` says it."""

    @property
    def entities(self) -> int: ...

    def __call__(self, centres: Rows, labels: Rows) -> tuple[Numbers, Rows]: ...


@dataclass(frozen=True)
class Lookalikes:
    """Of an entity the most similar others, the nearest first; of equal ones the lower row."""

    units: tuple[Floats, ...]  # (n, hidden) together: the features of all entities' texts, each of length 1, in parts
    k: int
    kept: tuple[Rows, Floats] | None = None  # (n, k) each, once they were computed for all entities

    @classmethod
    def of(cls, features: Floats, k: int) -> Lookalikes:
        """By the features (n, hidden) of all entities' texts."""
        if len(features) > MOST:
            raise FnftgError(
                f"{len(features):,} entities are too many to compare all of them, {MOST:,} being the most: "
                "train without votes, by --model.votes.lookalikes 0."
            )
        return cls((unit(features),), k)

    def extended(self, features: Floats) -> Lookalikes:
        """With more entities, by the features of their texts (m, hidden); nothing is copied."""
        return Lookalikes((*self.units, unit(features)), self.k)

    def whole(self) -> Lookalikes:
        """The same, computed for all entities at once."""
        if self.kept is not None:
            return self
        return replace(self, kept=self(np.arange(sum(map(len, self.units)), dtype=np.int32)))

    def __call__(self, entities: Rows) -> tuple[Rows, Floats]:
        """Rows and cosines of the lookalikes of entities (q,): (q, k) each; -1 where there are fewer than k others."""
        if self.kept is not None:
            return self.kept[0][entities], self.kept[1][entities]
        distinct, place = np.unique(entities, return_inverse=True)
        rows, cosines = self._compared(distinct)
        return rows[place], cosines[place]

    def _compared(self, entities: Rows) -> tuple[Rows, Floats]:
        size = sum(map(len, self.units))
        rows, cosines = (
            np.full((len(entities), self.k), NOBODY, np.int32),
            np.zeros((len(entities), self.k), np.float32),
        )
        step = max(BLOCK // max(size, 1), 1)
        for start in range(0, len(entities), step):
            part = slice(start, min(start + step, len(entities)))
            asked = torch.from_numpy(self._taken(entities[part]))
            found = np.concatenate([(asked @ torch.from_numpy(table).T).numpy() for table in self.units], axis=1)
            found[np.arange(len(found)), entities[part]] = -2  # below every cosine
            # one whole number for cosine and row: the higher the better, and no two are equal
            places = np.rint(found * 10**DIGITS).astype(np.int64) * size - np.arange(size)  # (b, n)
            count = min(self.k, size - 1)
            best = -np.sort(np.partition(-places, count, axis=1)[:, :count], axis=1)
            rows[part, :count] = -best % size
            cosines[part, :count] = (best + rows[part, :count]) // size / 10**DIGITS
        return rows, cosines

    def _taken(self, entities: Rows) -> Floats:
        """The rows of the parts as if they were one array."""
        starts = np.cumsum([0, *map(len, self.units)])
        taken = np.empty((len(entities), self.units[0].shape[1]), np.float32)
        for first, stop, table in zip(starts, starts[1:], self.units, strict=False):
            here = (entities >= first) & (entities < stop)
            taken[here] = table[entities[here] - first]
        return taken


def unit(features: Floats) -> Floats:
    """Each row with the length 1."""
    found: Floats = torch.nn.functional.normalize(torch.from_numpy(features), dim=1).numpy()
    return found


@dataclass(frozen=True)
class Votes:
    """What the lookalikes of asked entities answer: to query i at offsets[i] to offsets[i + 1], most votes first."""

    offsets: Numbers  # (q + 1,)
    entities: Rows  # (e,)
    near: Floats  # (e,): the sum of similarity⁴ over the lookalikes that have this answer
    nearer: Floats  # (e,): of similarity¹⁶, which few of them count for

    @classmethod
    def of(cls, lookalikes: Lookalikes, answers: Answers, centres: Rows, labels: Rows, limit: int) -> Votes:
        """Of the queries (centre, label, ·), (q,), by what is known of others; up to `limit` answers for each."""
        rows, cosines = lookalikes(centres)  # (q, k) each
        query, place = np.nonzero(rows != NOBODY)
        offsets, entities = answers(rows[query, place], labels[query])
        counts = np.diff(offsets)
        query, weight = np.repeat(query, counts), np.repeat(np.maximum(cosines[query, place], 0), counts)
        other = entities != centres[query]
        offsets = np.searchsorted(query[other], np.arange(len(centres) + 1))
        return cls(*tally(offsets, entities[other], weight[other], (NEAR, NEARER), answers.entities, limit))

    @classmethod
    def joined(cls, parts: Sequence[Votes]) -> Votes:
        """Of the queries of several parts, one after the other."""
        starts = np.cumsum([0, *(len(part.entities) for part in parts)])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        return cls(
            np.concatenate([*offsets, starts[-1:]]),
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("entities", "near", "nearer")),
        )
