"""Nearest texts: for each entity, the entities with the most similar texts, by the features of a frozen encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fnftg.arrays import Float32Array, Int32Array
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.kg.store import write_array
from fnftg.text.cache import cached_array, cached_folder
from fnftg.text.rows import content_key

MAX_ENTITIES = 250_000  # that are all compared with each other
BLOCK = 1 << 25  # similarities that are held at a time
DIGITS = 4  # similarities are rounded to these, so that the order of summation does not matter
NO_NEIGHBOUR = -1
FILES = "rows.npy", "cosines.npy"


@dataclass(frozen=True)
class TextKNN:
    """The k nearest entities of each entity, the nearest first; ties go to the lower row."""

    units: tuple[Float32Array, ...]  # (n, hidden) together: the normalised features of all entities' texts, in parts
    k: int
    precomputed: tuple[Int32Array, Float32Array] | None = None  # rows and cosines of all entities, (n, k) each

    @classmethod
    def of(cls, features: Float32Array, k: int) -> TextKNN:
        """By the features (n, hidden) of all entities' texts."""
        if len(features) > MAX_ENTITIES:
            raise FnftgError(
                f"{len(features):,} entities are too many to compare all their texts, {MAX_ENTITIES:,} being the most: "
                "remove text_knn from --model.evidence.sources."
            )
        return cls((unit(features),), k)

    def extended(self, features: Float32Array) -> TextKNN:
        """With more entities, by the features of their texts (m, hidden); nothing is copied."""
        return TextKNN((*self.units, unit(features)), self.k)

    def precomputed_for_all(self, cache: Path | None = None) -> TextKNN:
        """The same, with the neighbours of all entities computed at once, or read from the cache."""
        if self.precomputed is not None:
            return self
        if cache is None:
            return replace(self, precomputed=self._compute_all())

        def make(folder: Path) -> None:
            for name, array in zip(FILES, self._compute_all(), strict=True):
                write_array(folder / name, array)

        return self._read(cached_folder(cache, self._name(), make))

    def loaded(self, cache: Path) -> TextKNN:
        """The same, with the neighbours of all entities if the cache has them."""
        folder = cache / self._name()
        return self._read(folder) if folder.is_dir() else self

    def _name(self) -> str:
        key = content_key(self.k, DIGITS, *(np.ascontiguousarray(part).data for part in self.units))
        return f"nearest-texts-{key}"

    def _read(self, folder: Path) -> TextKNN:
        rows, cosines = (cached_array(folder, name) for name in FILES)
        return replace(self, precomputed=(rows, cosines))

    def _compute_all(self) -> tuple[Int32Array, Float32Array]:
        everyone = np.arange(self.size, dtype=np.int32)
        with progress("Comparing texts", len(everyone), "entities") as advance:
            return self._nearest(everyone, advance)

    def truncated(self, k: int) -> TextKNN:
        """The same with a smaller k, from the precomputed neighbours; nothing is copied."""
        assert self.precomputed is not None and k <= self.k
        return replace(self, k=k, precomputed=(self.precomputed[0][:, :k], self.precomputed[1][:, :k]))

    def __call__(self, entities: Int32Array) -> tuple[Int32Array, Float32Array]:
        """Rows and cosines of the nearest of entities (q,): (q, k) each; NO_NEIGHBOUR where there are fewer than k."""
        if self.precomputed is not None:
            return self.precomputed[0][entities], self.precomputed[1][entities]
        distinct, place = np.unique(entities, return_inverse=True)
        rows, cosines = self._nearest(distinct, lambda amount: None)
        return rows[place], cosines[place]

    @property
    def size(self) -> int:
        """How many entities there are."""
        return sum(map(len, self.units))

    def _nearest(self, entities: Int32Array, advance: Callable[[int], None]) -> tuple[Int32Array, Float32Array]:
        """In blocks of the entities (q,), so that at most BLOCK similarities are held at a time."""
        shape = (len(entities), self.k)
        rows, cosines = np.full(shape, NO_NEIGHBOUR, np.int32), np.zeros(shape, np.float32)
        step = max(BLOCK // max(self.size, 1), 1)
        for start in range(0, len(entities) if self.size > 1 else 0, step):
            part = slice(start, start + step)
            self._compare(entities[part], rows[part], cosines[part])
            advance(len(entities[part]))
        return rows, cosines

    def _compare(self, entities: Int32Array, rows: Int32Array, cosines: Float32Array) -> None:
        """Fills in rows and cosines, (b, k) each, of some entities (b,)."""
        count = min(self.k, self.size - 1)
        asked = torch.from_numpy(self._gather(entities))
        parts = [asked @ torch.from_numpy(table).T for table in self.units]
        found = (torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]).mul_(10**DIGITS).round_()  # (b, n)
        found[torch.arange(len(entities)), torch.from_numpy(entities).long()] = -torch.inf
        last = found.topk(count, dim=1, sorted=True).values[:, -1:]
        near = (found >= last).nonzero(as_tuple=True)  # a few more than k, where equal ones are the last
        query, row, value = near[0].numpy(), near[1].numpy(), found[near].numpy()
        order = np.lexsort((-value, query))  # rows ascend already
        query, row, value = query[order], row[order], value[order]
        place = np.arange(len(query)) - np.searchsorted(query, query)
        best = place < count
        rows[query[best], place[best]] = row[best]
        cosines[query[best], place[best]] = value[best] / 10**DIGITS

    def _gather(self, entities: Int32Array) -> Float32Array:
        """The rows of the parts as if they were one array."""
        starts = np.cumsum([0, *map(len, self.units)])
        gathered = np.empty((len(entities), self.units[0].shape[1]), np.float32)
        for first, stop, table in zip(starts, starts[1:], self.units, strict=False):
            here = (entities >= first) & (entities < stop)
            gathered[here] = table[entities[here] - first]
        return gathered


def unit(features: Float32Array) -> Float32Array:
    """Each row with the length 1."""
    found: Float32Array = torch.nn.functional.normalize(torch.from_numpy(features), dim=1).numpy()
    return found
