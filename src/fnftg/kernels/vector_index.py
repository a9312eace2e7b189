"""An approximate index of vectors, for millions of them: faiss's IVF with product quantisation.

The vectors are sorted into lists around centroids, and each is compressed to half a byte per `SUBSPACE` dimensions
(Jégou et al., 2011; André et al., 2015). A search reads some of the lists and returns more rows than are wanted, whose
scores the caller can then compute exactly. How many lists are read is chosen when the index is built: as few as reach
a recall, which is measured, unless more would hardly raise it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fnftg.arrays import Float32Array, Int64Array
from fnftg.console import progress
from fnftg.errors import DamagedError, FnftgError
from fnftg.json_files import read_json, write_json

FILE, ABOUT = "index.faiss", "about.json"
SUBSPACE = 2  # dimensions that are compressed together, if they divide the width
SAMPLE = 40  # training vectors per list
PROBES = (16, 32, 64, 128, 256, 512)  # numbers of lists to read, in the order in which they are tried
LEAST_GAIN = 0.02  # of recall, for which twice as many lists are read
COMPRESSED = 10_000  # vectors; fewer are kept as they are
BLOCK = 1 << 16  # vectors in memory at a time
SEED = 73

Gather = Callable[[Int64Array], Float32Array]  # rows (n,) → their vectors (n, d)


def faiss() -> Any:
    try:
        import faiss as library
    except ImportError as error:
        raise FnftgError("An index needs faiss: pip install 'fnftg[ann]'.") from error
    return library


@dataclass(frozen=True)
class VectorIndex:
    """An index with its measured recall."""

    index: Any  # of faiss, with inverted lists
    probes: int = PROBES[0]
    recall: float = 0.0

    @classmethod
    def built(cls, gather: Gather, size: int, by_distance: bool = False) -> VectorIndex:
        """Build an index over `size` vectors, of which `gather` returns some, by inner product or L2 distance."""
        width = gather(np.zeros(1, np.int64)).shape[1]
        lists, codes = 1 << round(np.log2(2 * np.sqrt(size))), f"PQ{subspaces(width)}x4fs"
        if size < COMPRESSED:
            lists, codes = PROBES[0], "Flat"  # so few that all are compared
        metric = faiss().METRIC_L2 if by_distance else faiss().METRIC_INNER_PRODUCT
        index = faiss().index_factory(width, f"IVF{lists},{codes}", metric)
        index.cp.seed, index.cp.min_points_per_centroid = SEED, 1
        index.train(gather(sample(size, SAMPLE * lists)))
        found = cls(index)
        found.add(gather, np.arange(size))
        return found

    def add(self, gather: Gather, rows: Int64Array) -> None:
        """Add vectors, which are numbered from the size of the index on."""
        with progress("Indexing vectors", len(rows), "vectors") as advance:
            for start in range(0, len(rows), BLOCK):
                part = rows[start : start + BLOCK]
                self.index.add(gather(part))
                advance(len(part))

    def measured(self, asked: Float32Array, best: Int64Array, returned: int, recall: float) -> VectorIndex:
        """Return the index with the fewest lists to read that reaches a recall.

        Args:
            asked: vectors to search with, (q, d).
            best: the numbers of the vectors that should be found for each, (q, k); −1 for none.
            returned: how many are returned for each.
            recall: the share of the best that should be among them.
        """
        last, tried = -1.0, self
        for probes in PROBES:
            tried = replace(self, probes=min(probes, self.index.nlist))
            rows = tried.search(asked, returned)
            among = [np.isin(row[row >= 0], some) for row, some in zip(best, rows, strict=True)]
            found = float(np.concatenate(among).mean()) if (best >= 0).any() else 1.0
            tried = replace(tried, recall=found)
            if found >= recall or found - last < LEAST_GAIN or probes >= self.index.nlist:
                break
            last = found
        return tried

    def search(self, asked: Float32Array, count: int) -> Int64Array:
        """Return about the best rows for each vector (q, d): (q, count), in no particular order, padded with −1."""
        parameters = faiss().SearchParametersIVF(nprobe=self.probes)
        _, rows = self.index.search(np.ascontiguousarray(asked, np.float32), count, params=parameters)
        found: Int64Array = rows
        return found

    def save(self, folder: Path) -> None:
        faiss().write_index(self.index, str(folder / FILE))
        write_json(folder / ABOUT, {"probes": self.probes, "recall": self.recall})

    @classmethod
    def read(cls, folder: Path, size: int) -> VectorIndex:
        """Read an index of `size` vectors.

        Raises:
            DamagedError: if it is damaged.
        """
        about = read_json(folder / ABOUT)
        try:
            index = faiss().read_index(str(folder / FILE))
            probes, recall = int(about["probes"]), float(about["recall"])
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{folder} is damaged.") from error
        if index.ntotal != size or probes < 1:
            raise DamagedError(f"{folder} is damaged: its files do not match.")
        return cls(index, probes, recall)


def subspaces(width: int) -> int:
    """Return into how many parts of equal size vectors are split."""
    return width // next(size for size in (SUBSPACE, 3, 1) if width % size == 0)


def sample(size: int, count: int) -> Int64Array:
    """Return a fixed random sample of at most `count` numbers below `size`, in ascending order."""
    return np.sort(np.random.default_rng(SEED).permutation(size)[:count])


def best_rows(gather: Gather, size: int, asked: Float32Array, count: int) -> Int64Array:
    """Return the rows with the greatest inner products with vectors (q, d), by comparing all: (q, count)."""
    count = min(count, size)
    products = np.full((len(asked), count), -np.inf, np.float32)
    rows = np.full((len(asked), count), -1, np.int64)
    for start in range(0, size, BLOCK):
        block = np.arange(start, min(start + BLOCK, size))
        both = np.concatenate([products, asked @ gather(block).T], axis=1)
        named = np.concatenate([rows, np.broadcast_to(block, (len(asked), len(block)))], axis=1)
        kept = np.argpartition(-both, count - 1, axis=1)[:, :count]
        products, rows = np.take_along_axis(both, kept, 1), np.take_along_axis(named, kept, 1)
    return rows
