"""Entities with the same name: two meanings of a word, or two works with one title.

Names are compared without case, in Unicode form NFC. Names that more than `COMMON` entities share are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from fnftg.arrays import Int64Array, IntArray, UInt64Array
from fnftg.kernels.ranges import ranges

COMMON = 300  # entities of a name


@dataclass(frozen=True)
class SameNames:
    """The names of entities as hashes."""

    hashes: UInt64Array  # (n,)

    @classmethod
    def of(cls, names: pl.Series) -> SameNames:
        """Index the names (n,) of entities."""
        return cls(names.str.normalize("NFC").str.to_lowercase().hash().to_numpy())

    def extended(self, names: pl.Series) -> SameNames:
        """Return the index with more entities."""
        return SameNames(np.concatenate([self.hashes, SameNames.of(names).hashes]))

    @cached_property
    def order(self) -> tuple[UInt64Array, Int64Array]:
        """All hashes in ascending order, and their entities, (n,) each."""
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order

    def of_entities(self, entities: IntArray) -> tuple[Int64Array, Int64Array]:
        """Return pairs (m,) of places in `entities` (q,) and all other entities with the same name."""
        hashes, rows = self.order
        starts, stops = (np.searchsorted(hashes, self.hashes[entities], side) for side in ("left", "right"))
        counts = np.where(stops - starts <= COMMON, stops - starts, 0)
        place, found = np.repeat(np.arange(len(entities)), counts), rows[ranges(starts, counts)]
        other = found != entities[place]
        return place[other], found[other]
