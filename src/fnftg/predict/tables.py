"""The vectors of all candidates, of which a few are not those of the table: nothing is copied to let them in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fnftg.kernels.ranks import l1_pairs
from fnftg.models.predictor import LinkPredictor
from fnftg.ranking.answers import top_answers
from fnftg.ranking.counting import Counts, filtered_counts

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PatchedTable:
    table: Floats  # (n, d)
    rows: Numbers  # (m,): ascending; entities whose vectors changed, or that the table lacks
    vectors: Floats  # (m, d): theirs

    def copied(self, size: int) -> Floats:
        """One table for so many entities."""
        table = np.empty((size, self.table.shape[1]), np.float32)
        table[: len(self.table)] = self.table
        table[self.rows] = self.vectors
        return table

    def counts(self, model: LinkPredictor, points: Floats, true: Floats, taken: Numbers, memory: int) -> Counts:
        """As `filtered_counts` among all candidates; the rows taken are left out of every query."""
        queries = len(points)
        found = [
            filtered_counts(
                model, points, true, table, np.arange(queries + 1) * len(out), np.tile(out, queries), memory
            )
            for table, out in self._without(taken)
        ]
        better, equal = sum(one.better for one in found), sum(one.equal for one in found)
        return Counts(np.asarray(better), np.asarray(equal), found[0].scores)

    def best(self, model: LinkPredictor, point: Floats, taken: Numbers) -> Floats:
        """The best score of one point (1, d) without the rows taken: (1, 1), −∞ where nobody is left."""
        parts = self._without(taken)
        scores = [top_answers(model, point, table, np.array([0, len(out)]), out, 1)[0] for table, out in parts]
        best: Floats = np.maximum.reduce(scores)
        return best

    def distances(self, point: Floats, rows: npt.NDArray[np.integer]) -> Floats:
        """L1, of one point (1, d) to the vectors of rows (p,)."""
        place = np.minimum(np.searchsorted(self.rows, rows), max(len(self.rows) - 1, 0))
        patched = self.rows[place] == rows if len(self.rows) else np.zeros(len(rows), bool)
        found = np.empty(len(rows), np.float32)
        for mask, table, places in ((patched, self.vectors, place), (~patched, self.table, rows)):
            found[mask] = l1_pairs(point, table, np.zeros(int(mask.sum()), np.int64), places[mask])
        return found

    def _without(self, taken: Numbers) -> Iterator[tuple[Floats, Numbers]]:
        """Both tables, each with the rows to leave out."""
        changed = np.union1d(taken, self.rows)
        yield self.table, changed[changed < len(self.table)]
        if len(self.rows):
            yield self.vectors, np.flatnonzero(np.isin(self.rows, taken))
