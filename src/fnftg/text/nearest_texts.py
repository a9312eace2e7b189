"""Lookalikes: the entities whose texts are most alike, by the features of a frozen encoder."""

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

MOST = 250_000  # entities that are all compared with each other
BLOCK = 1 << 25  # similarities that are held at a time
DIGITS = 4  # of similarities: what differs by less is equal, however the products were summed up
NOBODY = -1
FILES = "rows.npy", "cosines.npy"


@dataclass(frozen=True)
class TextKNN:
    """Of an entity the most similar others, the nearest first; of equal ones the lower row."""

    units: tuple[
        Float32Array, ...
    ]  # (n, hidden) together: the features of all entities' texts, each of length 1, in parts
    k: int
    kept: tuple[Int32Array, Float32Array] | None = None  # (n, k) each, once they were computed for all entities

    @classmethod
    def of(cls, features: Float32Array, k: int) -> TextKNN:
        """By the features (n, hidden) of all entities' texts."""
        if len(features) > MOST:
            raise FnftgError(
                f"{len(features):,} entities are too many to compare all of them, {MOST:,} being the most: "
                "train without votes, by --model.votes.lookalikes 0."
            )
        return cls((unit(features),), k)

    def extended(self, features: Float32Array) -> TextKNN:
        """With more entities, by the features of their texts (m, hidden); nothing is copied."""
        return TextKNN((*self.units, unit(features)), self.k)

    def whole(self, cache: Path | None = None) -> TextKNN:
        """The same, computed for all entities at once, or found in the cache."""
        if self.kept is not None:
            return self
        if cache is None:
            return replace(self, kept=self._everyone())

        def make(folder: Path) -> None:
            for name, array in zip(FILES, self._everyone(), strict=True):
                write_array(folder / name, array)

        return self._read(cached_folder(cache, self._name(), make))

    def recalled(self, cache: Path) -> TextKNN:
        """The same, with those of all entities if the cache has them."""
        folder = cache / self._name()
        return self._read(folder) if folder.is_dir() else self

    def _name(self) -> str:
        key = content_key(self.k, DIGITS, *(np.ascontiguousarray(part).data for part in self.units))
        return f"lookalikes-{key}"

    def _read(self, folder: Path) -> TextKNN:
        rows, cosines = (cached_array(folder, name) for name in FILES)
        return replace(self, kept=(rows, cosines))

    def _everyone(self) -> tuple[Int32Array, Float32Array]:
        everyone = np.arange(self.size, dtype=np.int32)
        with progress("Comparing texts", len(everyone), "entities") as advance:
            return self._all(everyone, advance)

    def nearest(self, k: int) -> TextKNN:
        """Fewer of those that were computed for all entities; nothing is copied."""
        assert self.kept is not None and k <= self.k
        return replace(self, k=k, kept=(self.kept[0][:, :k], self.kept[1][:, :k]))

    def __call__(self, entities: Int32Array) -> tuple[Int32Array, Float32Array]:
        """Rows and cosines of the lookalikes of entities (q,): (q, k) each; -1 where there are fewer than k others."""
        if self.kept is not None:
            return self.kept[0][entities], self.kept[1][entities]
        distinct, place = np.unique(entities, return_inverse=True)
        rows, cosines = self._all(distinct, lambda amount: None)
        return rows[place], cosines[place]

    @property
    def size(self) -> int:
        """How many entities there are."""
        return sum(map(len, self.units))

    def _all(self, entities: Int32Array, advance: Callable[[int], None]) -> tuple[Int32Array, Float32Array]:
        """As many of the entities (q,) at a time as memory may hold the similarities of."""
        shape = (len(entities), self.k)
        rows, cosines = np.full(shape, NOBODY, np.int32), np.zeros(shape, np.float32)
        step = max(BLOCK // max(self.size, 1), 1)
        for start in range(0, len(entities) if self.size > 1 else 0, step):
            part = slice(start, start + step)
            self._compare(entities[part], rows[part], cosines[part])
            advance(len(entities[part]))
        return rows, cosines

    def _compare(self, entities: Int32Array, rows: Int32Array, cosines: Float32Array) -> None:
        """Fills in rows and cosines, (b, k) each, of some entities (b,)."""
        count = min(self.k, self.size - 1)
        asked = torch.from_numpy(self._taken(entities))
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

    def _taken(self, entities: Int32Array) -> Float32Array:
        """The rows of the parts as if they were one array."""
        starts = np.cumsum([0, *map(len, self.units)])
        taken = np.empty((len(entities), self.units[0].shape[1]), np.float32)
        for first, stop, table in zip(starts, starts[1:], self.units, strict=False):
            here = (entities >= first) & (entities < stop)
            taken[here] = table[entities[here] - first]
        return taken


def unit(features: Float32Array) -> Float32Array:
    """Each row with the length 1."""
    found: Float32Array = torch.nn.functional.normalize(torch.from_numpy(features), dim=1).numpy()
    return found
