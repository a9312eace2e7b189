"""Texts that were encoded before, for other graphs, by the same encoder: their features are copied, not computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fnftg.array_files import load_array
from fnftg.arrays import Float32Array, Int64Array, UInt64Array
from fnftg.console import log
from fnftg.text.cache import read_cached

PART = 8192  # texts per file of an unfinished computation, which an interruption can lose
FEATURES, HASHES = "features.npy", "hashes.npy"

HashedTable = tuple[Float32Array, UInt64Array]  # features of texts, (m, hidden), and their hashes, (m, 2)


@dataclass(frozen=True)
class EncodedBefore:
    """Which texts other tables have. They come first in the new table."""

    order: Int64Array  # (n,): texts that are known, by table, then all others
    sources: list[tuple[Float32Array, Int64Array]]  # features of a table, and the rows to take from it

    @classmethod
    def of(cls, tables: Iterable[HashedTable], hashes: UInt64Array) -> EncodedBefore:
        """Find texts, given their hashes (n, 2), in the tables. No table is read once all are found."""
        missing, order, sources = np.arange(len(hashes)), [], []
        for features, known in tables:
            if len(known):
                by_hash = np.argsort(known[:, 0], kind="stable")
                place = np.searchsorted(known[by_hash, 0], hashes[missing, 0])
                row = by_hash[np.minimum(place, len(known) - 1)]
                found = (known[row] == hashes[missing]).all(axis=1)
                order.append(missing[found])
                sources.append((features, row[found]))
                missing = missing[~found]
            if not len(missing):
                break
        if len(missing) < len(hashes):
            log(f"{len(hashes) - len(missing):,} of {len(hashes):,} texts were encoded before, for other graphs.")
        return cls(np.concatenate([*order, missing]), sources)

    @property
    def count(self) -> int:
        """The number of texts that are known."""
        return sum(len(rows) for _, rows in self.sources)

    @property
    def place(self) -> Int64Array:
        """The place of each text in the order, (n,)."""
        return inverse(self.order)

    def parts(self) -> Iterator[Float32Array]:
        """Yield the features of the known texts in parts."""
        for features, rows in self.sources:
            for start in range(0, len(rows), PART):
                yield features[rows[start : start + PART]]


def tables_like(cache: Path, prefix: str, name: str, hidden: int) -> Iterator[HashedTable]:
    """Yield the tables of a cache whose names start with a prefix, but not the one with this name."""

    def read(folder: Path) -> HashedTable:
        features = load_array(folder / FEATURES, np.float32, (None, hidden))
        return features, load_array(folder / HASHES, np.uint64, (len(features), 2))

    for folder in sorted(cache.glob(f"{prefix}-*")):
        table = None if folder.name == name else read_cached(cache, folder.name, read)
        if table is not None:
            yield table


def inverse(order: Int64Array) -> Int64Array:
    """Return the place of each number in a permutation."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place
