"""`EvidenceTable`: the candidates of all sources for a batch of queries, with the features of all sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.evidence.base import Candidates, EvidenceSource, query_of_each


@dataclass(frozen=True)
class EvidenceTable:
    """Ragged table of candidates: query i has the entries offsets[i] to offsets[i + 1], distinct and ascending."""

    offsets: Int64Array  # (q + 1,)
    entities: Int32Array  # (e,)
    features: Float32Array  # (e, F): 0 if a source does not support a candidate
    unseen: BoolArray  # (q,): whether the relation is not in the training split
    columns: dict[str, slice]  # the columns of each source

    @classmethod
    def join(
        cls, sources: Sequence[EvidenceSource], found: dict[str, Candidates], unseen: BoolArray, entities: int
    ) -> EvidenceTable:
        """Merge the candidates `found` by some of the sources in a graph with this number of `entities`."""
        columns, width = source_columns(sources)
        keys = [part.queries * entities + part.entities for part in found.values()]
        distinct, place = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]), return_inverse=True)
        features, start = np.zeros((len(distinct), width), np.float32), 0
        for name, part in found.items():
            features[place[start : start + len(part.entities)], columns[name]] = part.features
            start += len(part.entities)
        offsets = np.searchsorted(distinct, np.arange(len(unseen) + 1) * entities)
        return cls(offsets, (distinct % entities).astype(np.int32), features, unseen, columns)

    @classmethod
    def combined(cls, parts: Sequence[EvidenceTable]) -> EvidenceTable:
        """Concatenate the queries of several tables with the same sources."""
        starts = np.cumsum([0, *(len(part.entities) for part in parts)])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        return cls(
            np.concatenate([*offsets, starts[-1:]]),
            np.concatenate([part.entities for part in parts]),
            np.concatenate([part.features for part in parts]),
            np.concatenate([part.unseen for part in parts]),
            parts[0].columns,
        )

    def without(self, source: str) -> EvidenceTable:
        """Return a copy in which the features of one source are 0."""
        features = self.features.copy()
        features[:, self.columns[source]] = 0
        return replace(self, features=features)

    @property
    def queries(self) -> Int64Array:
        """The query of each candidate: (e,)."""
        return query_of_each(self.offsets)


def source_columns(sources: Sequence[EvidenceSource]) -> tuple[dict[str, slice], int]:
    """Return the columns of each source in a table, and the total number of columns."""
    ends = np.cumsum([0, *(len(source.features) for source in sources)]).tolist()
    return {source.name: slice(ends[i], ends[i + 1]) for i, source in enumerate(sources)}, ends[-1]
