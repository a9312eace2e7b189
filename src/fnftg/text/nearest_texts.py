"""Nearest texts: the entities with the most similar texts, by the features of a frozen encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fnftg.array_files import load_array, write_array
from fnftg.arrays import Float32Array, Int32Array, IntArray
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.text.cache import cached, read_cached
from fnftg.text.rows import content_key

MAX_ENTITIES = 250_000  # as all pairs are compared
BLOCK = 1 << 25  # similarities in memory at a time
PAIRS = 1 << 15  # pairs of texts in memory at a time
DIGITS = 4  # of the rounded similarities, which makes them independent of the order of summation
NO_NEIGHBOUR = -1
ROWS, COSINES = "rows.npy", "cosines.npy"


@dataclass(frozen=True)
class TextKNN:
    """The k entities with the most similar texts of each entity, the nearest first, ties by row."""

    units: tuple[Float32Array, ...]  # normalised features of the texts, in parts of together (n, hidden)
    k: int
    precomputed: tuple[Int32Array, Float32Array] | None = None  # rows and cosines, (n, k) each

    @classmethod
    def of(cls, features: Float32Array, k: int) -> TextKNN:
        """Build the index from the features (n, hidden) of all entities' texts."""
        if len(features) > MAX_ENTITIES:
            raise FnftgError(
                f"Nearest texts are limited to {MAX_ENTITIES:,} entities, but the graph has {len(features):,}: "
                "remove text_knn from --model.evidence.sources."
            )
        return cls((unit(features),), k)

    def extended(self, features: Float32Array) -> TextKNN:
        """Return the index with more entities, given the features of their texts (m, hidden). Nothing is copied."""
        return TextKNN((*self.units, unit(features)), self.k)

    def precomputed_for_all(self, cache: Path | None = None) -> TextKNN:
        """Return the index with the nearest texts of all entities, computed or loaded from the cache."""
        if self.precomputed is not None:
            return self
        if cache is None:
            return replace(self, precomputed=self._compute_all())

        def make(folder: Path) -> None:
            rows, cosines = self._compute_all()
            write_array(folder / ROWS, rows)
            write_array(folder / COSINES, cosines)

        return replace(self, precomputed=cached(cache, self._name(), make, self._read))

    def loaded(self, cache: Path) -> TextKNN:
        """Return the index with the nearest texts of all entities if they are in the cache."""
        return replace(self, precomputed=read_cached(cache, self._name(), self._read))

    def _name(self) -> str:
        key = content_key(self.k, DIGITS, *(np.ascontiguousarray(part).data for part in self.units))
        return f"nearest-texts-{key}"

    def _read(self, folder: Path) -> tuple[Int32Array, Float32Array]:
        shape = (self.size, self.k)
        rows = load_array(folder / ROWS, np.int32, shape, bounds=(NO_NEIGHBOUR, self.size))
        return rows, load_array(folder / COSINES, np.float32, shape)

    def _compute_all(self) -> tuple[Int32Array, Float32Array]:
        everyone = np.arange(self.size, dtype=np.int32)
        with progress("Comparing texts", len(everyone), "entities") as advance:
            return self._nearest(everyone, advance)

    def truncated(self, k: int) -> TextKNN:
        """Return the index with a smaller k, from the precomputed neighbours. Nothing is copied."""
        assert self.precomputed is not None and k <= self.k
        return replace(self, k=k, precomputed=(self.precomputed[0][:, :k], self.precomputed[1][:, :k]))

    def __call__(self, entities: Int32Array) -> tuple[Int32Array, Float32Array]:
        """Return the rows and cosines of the nearest texts of entities (q,): (q, k) each, padded with NO_NEIGHBOUR."""
        if self.precomputed is not None:
            return self.precomputed[0][entities], self.precomputed[1][entities]
        distinct, place = np.unique(entities, return_inverse=True)
        rows, cosines = self._nearest(distinct, lambda amount: None)
        return rows[place], cosines[place]

    def similarities(self, features: Float32Array) -> Float32Array:
        """Return the rounded cosines of feature vectors (m, hidden) with the texts of all entities: (m, n)."""
        asked = unit(features)
        return np.concatenate([rounded(asked @ part.T) for part in self.units], axis=1)

    def similarities_of(self, ones: IntArray, others: IntArray) -> Float32Array:
        """Return the rounded cosines of the texts of pairs of entities (m,)."""
        found = np.empty(len(ones), np.float32)
        for start in range(0, len(ones), PAIRS):
            part = slice(start, start + PAIRS)
            found[part] = np.einsum("md,md->m", self._gather(ones[part]), self._gather(others[part]))
        return rounded(found)

    @property
    def size(self) -> int:
        """Number of entities."""
        return sum(map(len, self.units))

    def _nearest(self, entities: Int32Array, advance: Callable[[int], None]) -> tuple[Int32Array, Float32Array]:
        """Find the nearest texts in blocks of the entities (q,), with at most BLOCK similarities in memory."""
        shape = (len(entities), self.k)
        rows, cosines = np.full(shape, NO_NEIGHBOUR, np.int32), np.zeros(shape, np.float32)
        step = max(BLOCK // max(self.size, 1), 1)
        for start in range(0, len(entities) if self.size > 1 else 0, step):
            part = slice(start, start + step)
            self._compare(entities[part], rows[part], cosines[part])
            advance(len(entities[part]))
        return rows, cosines

    def _compare(self, entities: Int32Array, rows: Int32Array, cosines: Float32Array) -> None:
        """Fill in the rows and cosines, (b, k) each, of a block of entities (b,)."""
        count = min(self.k, self.size - 1)
        asked = torch.from_numpy(self._gather(entities))
        parts = [asked @ torch.from_numpy(table).T for table in self.units]
        found = (torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]).mul_(10**DIGITS).round_()  # (b, n)
        found[torch.arange(len(entities)), torch.from_numpy(entities).long()] = -torch.inf
        last = found.topk(count, dim=1, sorted=True).values[:, -1:]
        near = (found >= last).nonzero(as_tuple=True)  # more than k if the last ones tie
        query, row, value = near[0].numpy(), near[1].numpy(), found[near].numpy()
        order = np.lexsort((-value, query))  # rows are already ascending
        query, row, value = query[order], row[order], value[order]
        place = np.arange(len(query)) - np.searchsorted(query, query)
        best = place < count
        rows[query[best], place[best]] = row[best]
        cosines[query[best], place[best]] = value[best] / 10**DIGITS

    def _gather(self, entities: IntArray) -> Float32Array:
        """Gather rows of the concatenated parts."""
        starts = np.cumsum([0, *map(len, self.units)])
        gathered = np.empty((len(entities), self.units[0].shape[1]), np.float32)
        for first, stop, table in zip(starts, starts[1:], self.units, strict=False):
            here = (entities >= first) & (entities < stop)
            gathered[here] = table[entities[here] - first]
        return gathered


def rounded(cosines: Float32Array) -> Float32Array:
    """Round cosines to DIGITS."""
    found: Float32Array = np.round(cosines, DIGITS)
    return found


def unit(features: Float32Array) -> Float32Array:
    """Normalise each row to length 1."""
    found: Float32Array = torch.nn.functional.normalize(torch.from_numpy(features), dim=1).numpy()
    return found
