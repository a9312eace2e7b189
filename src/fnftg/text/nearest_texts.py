"""Nearest texts: the entities with the most similar texts, by the features of a frozen encoder.

Up to `EXACT` entities all texts are compared, in advance if most of them will be asked about. Beyond, an approximate
index finds some hundred texts when they are asked for, whose similarities are then computed exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from fnftg.array_files import load_array, write_array
from fnftg.arrays import Float32Array, Int32Array, Int64Array, IntArray
from fnftg.console import log, progress
from fnftg.kernels.vector_index import VectorIndex, best_rows, sample
from fnftg.text.cache import cached, read_cached
from fnftg.text.features import FeatureStore
from fnftg.text.rows import content_key

EXACT = 250_000  # entities whose texts are all compared with each other
BLOCK = 1 << 25  # similarities in memory at a time
PAIRS = 1 << 15  # pairs of texts in memory at a time
DIGITS = 4  # of the rounded similarities, which makes them independent of the order of summation
NO_NEIGHBOUR = -1
NOBODY = np.zeros(0, np.int64)
WANTED, RECALL, MEASURED = 100, 0.95, 200  # nearest texts to find; the share to reach, and of how many texts
RETURNED = 4  # texts that the index returns and that are compared exactly, for each that is wanted
ROWS, COSINES = "rows.npy", "cosines.npy"


class Vectors(Protocol):
    """Vectors of length 1 by row."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: IntArray) -> Float32Array: ...


@dataclass(frozen=True)
class StoredVectors:
    """The normalised features of a graph's entities, which stay on disk."""

    store: FeatureStore
    entities: int

    def __len__(self) -> int:
        return self.entities

    def __getitem__(self, rows: IntArray) -> Float32Array:
        return unit(self.store.take(rows.astype(np.int64)))


@dataclass(frozen=True)
class TextKNN:
    """The k entities with the most similar texts of each entity, the nearest first, ties by row."""

    units: tuple[Vectors, ...]  # normalised features of the texts, in parts of together (n, hidden)
    k: int
    precomputed: tuple[Int32Array, Float32Array] | None = None  # rows and cosines, (n, k) each
    index: VectorIndex | None = None  # of the first part, if it is too large to compare all texts

    @classmethod
    def of(cls, features: Float32Array, k: int) -> TextKNN:
        """Compare all texts, given the features (n, hidden) of all entities."""
        return cls((unit(features),), k)

    @classmethod
    def of_many(cls, store: FeatureStore, entities: int, k: int, cache: Path | None = None) -> TextKNN:
        """Build an approximate index of the entities' texts, or load it from the cache."""
        vectors = StoredVectors(store, entities)

        def built() -> VectorIndex:
            asked = vectors[sample(entities, MEASURED)]
            best = best_rows(vectors.__getitem__, entities, asked, WANTED)
            index = VectorIndex.built(vectors.__getitem__, entities)
            index = index.measured(asked, best, RETURNED * WANTED, RECALL)
            log(f"The index of texts finds {index.recall:.1%} of the {WANTED} nearest.")
            return index

        if cache is None:
            return cls((vectors,), k, index=built())
        index = cached(
            cache,
            f"text-index-{content_key(store.key, RECALL)}",
            lambda folder: built().save(folder),
            lambda folder: VectorIndex.read(folder, entities),
        )
        return cls((vectors,), k, index=index)

    def extended(self, features: Float32Array) -> TextKNN:
        """Return the index with more entities, given the features of their texts (m, hidden). Nothing is copied."""
        return TextKNN((*self.units, unit(features)), self.k, index=self.index)

    def precomputed_for_all(self, cache: Path | None = None) -> TextKNN:
        """Return the index with the nearest texts of all entities, computed or loaded from the cache.

        Of very many entities they are only computed when they are asked for.
        """
        if self.precomputed is not None or self.index is not None:
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
        if self.index is not None:
            return self
        return replace(self, precomputed=read_cached(cache, self._name(), self._read))

    def _name(self) -> str:
        key = content_key(self.k, DIGITS, *(np.ascontiguousarray(part).data for part in self._arrays))
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

    def nearest_to(self, features: Float32Array, count: int) -> Int64Array:
        """Return the `count` entities whose texts are most similar to a feature vector (hidden,), the nearest first."""
        asked = unit(features[None])
        if self.index is None:
            rows = np.arange(self.size)
            cosines = rounded(np.concatenate([(asked @ part.T)[0] for part in self._arrays]))
        else:
            rows = self._candidates(asked, count)[0]
            rows = np.unique(rows[rows != NO_NEIGHBOUR])
            cosines = self.similarities_to(features, rows)
        return rows[np.argsort(-cosines, kind="stable")[:count]]

    def similarities_to(self, features: Float32Array, entities: IntArray) -> Float32Array:
        """Return the rounded cosines of a feature vector (hidden,) and the texts of entities (n,): (n,)."""
        found = np.empty(len(entities), np.float32)
        for start in range(0, len(entities), PAIRS):
            part = slice(start, start + PAIRS)
            found[part] = self._gather(entities[part]) @ unit(features[None])[0]
        return rounded(found)

    def similarities_of(self, ones: IntArray, others: IntArray) -> Float32Array:
        """Return the rounded cosines of the texts of pairs of entities (m,)."""
        found = np.empty(len(ones), np.float32)
        for start in range(0, len(ones), PAIRS):
            part = slice(start, start + PAIRS)
            found[part] = np.einsum("md,md->m", self._gather(ones[part]), self._gather(others[part]))
        return rounded(found)

    @property
    def _arrays(self) -> list[Float32Array]:
        """The vectors in memory, of which all are compared."""
        return [part for part in self.units if isinstance(part, np.ndarray)]

    @property
    def size(self) -> int:
        """Number of entities."""
        return sum(map(len, self.units))

    def _nearest(self, entities: Int32Array, advance: Callable[[int], None]) -> tuple[Int32Array, Float32Array]:
        """Find the nearest texts in blocks of the entities (q,), with at most BLOCK similarities in memory."""
        if self.index is not None:
            return self._nearest_by_index(entities, advance)
        shape = (len(entities), self.k)
        rows, cosines = np.full(shape, NO_NEIGHBOUR, np.int32), np.zeros(shape, np.float32)
        step = max(BLOCK // max(self.size, 1), 1)
        for start in range(0, len(entities) if self.size > 1 else 0, step):
            part = slice(start, start + step)
            self._compare(entities[part], rows[part], cosines[part])
            advance(len(entities[part]))
        return rows, cosines

    def _nearest_by_index(
        self, entities: Int32Array, advance: Callable[[int], None]
    ) -> tuple[Int32Array, Float32Array]:
        """Find the nearest texts of entities (q,) among the candidates of the index and the entities added to it."""
        shape = (len(entities), self.k)
        rows, cosines = np.full(shape, NO_NEIGHBOUR, np.int32), np.zeros(shape, np.float32)
        step = max(PAIRS // (RETURNED * (self.k + 1)), 1)
        for start in range(0, len(entities), step):
            part = slice(start, start + step)
            asked = self._gather(entities[part])
            found = self._candidates(asked, self.k + 1)  # (b, c), and one more, as a text is the nearest to itself
            found.sort(axis=1)
            found[:, 1:][found[:, 1:] == found[:, :-1]] = NO_NEIGHBOUR
            found[found == entities[part, None]] = NO_NEIGHBOUR
            vectors = self._gather(np.maximum(found.ravel(), 0)).reshape(*found.shape, -1)
            cosine = rounded(np.einsum("bd,bcd->bc", asked, vectors))
            cosine[found == NO_NEIGHBOUR] = -np.inf
            order = np.lexsort((found, -cosine), axis=1)[:, : self.k]
            best, values = np.take_along_axis(found, order, 1), np.take_along_axis(cosine, order, 1)
            rows[part, : best.shape[1]] = best
            cosines[part, : best.shape[1]] = np.where(best == NO_NEIGHBOUR, 0, values)
            advance(len(asked))
        return rows, cosines

    def _candidates(self, asked: Float32Array, count: int) -> Int64Array:
        """Return rows (b, c) among which are about the `count` nearest texts of vectors (b, hidden)."""
        assert self.index is not None
        found = self.index.search(asked, min(RETURNED * count, len(self.units[0])))
        added = np.arange(len(self.units[0]), self.size)
        return np.concatenate([found, np.broadcast_to(added, (len(asked), len(added)))], axis=1)

    def _compare(self, entities: Int32Array, rows: Int32Array, cosines: Float32Array) -> None:
        """Fill in the rows and cosines, (b, k) each, of a block of entities (b,)."""
        count = min(self.k, self.size - 1)
        asked = torch.from_numpy(self._gather(entities))
        parts = [asked @ torch.from_numpy(table).T for table in self._arrays]
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
        if len(self.units) == 1:
            return self.units[0][entities]
        starts = np.cumsum([0, *map(len, self.units)])
        gathered = np.empty((len(entities), self.units[0][NOBODY].shape[1]), np.float32)
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
