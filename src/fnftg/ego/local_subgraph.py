"""The edges of a few centres, including those that a request adds, without copying the rest of the graph.

The rows of the centres are complete and in the same order as in the extended graph, so ego-graphs and counts are equal
to those of the extended graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import Int32Array, Int64Array, IntArray
from fnftg.ego.neighbours import Directions, Neighbours
from fnftg.ego.sampling import EgoGraphs
from fnftg.kernels.ranges import ranges


@dataclass(frozen=True)
class EdgeList:
    """Edges as seen from a centre, (m,) each."""

    centres: Int64Array
    others: Int64Array
    labels: Int64Array

    @classmethod
    def of(cls, triples: IntArray, relations: int, directions: Directions) -> EdgeList:
        """Convert triples (n, 3) to edges of their heads and, with directions both, of their tails."""
        heads, relation, tails = np.asarray(triples, np.int64).reshape(-1, 3).T
        if directions == "out":
            return cls(heads, tails, relation)
        labels = np.concatenate([relation, relation + relations])
        return cls(np.concatenate([heads, tails]), np.concatenate([tails, heads]), labels)

    @classmethod
    def around(cls, neighbours: Neighbours, centres: Int64Array, relations: int | None = None) -> EdgeList:
        """Return all edges of the centres. New entities have none. Labels are those of a graph with `relations`."""
        inside = centres[centres < len(neighbours)]
        starts = neighbours.offsets[inside]
        counts = neighbours.offsets[inside + 1] - starts
        places = ranges(starts, counts)
        labels = neighbours.labels[places].astype(np.int64)
        if relations is not None:
            labels += (relations - neighbours.relations) * (labels >= neighbours.relations)
        return cls(np.repeat(inside, counts), neighbours.entities[places].astype(np.int64), labels)

    def __getitem__(self, chosen: IntArray | np.ndarray) -> EdgeList:
        return EdgeList(self.centres[chosen], self.others[chosen], self.labels[chosen])

    def combined(self, more: EdgeList) -> EdgeList:
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return EdgeList(*(np.concatenate(pair) for pair in pairs))

    def neighbours(self, size: int, relations: int, directions: Directions = "both") -> Neighbours:
        """Return the distinct edges as rows of `size` centres."""
        keys = np.stack([self.centres, self.others, self.labels])
        keys = np.unique(keys, axis=1) if keys.size else keys  # sorted by centre, other end and label
        return Neighbours(np.searchsorted(keys[0], np.arange(size + 1)), keys[1], keys[2], relations, directions)


@dataclass(frozen=True)
class LocalSubgraph:
    """Rows of neighbours, and the rows of their entities in the whole graph."""

    neighbours: Neighbours
    entities: Int64Array | None = None  # (u,): ascending; None: the same rows

    @classmethod
    def of(cls, base: Neighbours, added: EdgeList, relations: int, centres: Int64Array) -> LocalSubgraph:
        """Build the rows of the centres with the added edges. `relations` includes new relations."""
        needed = np.unique(centres)
        edges = EdgeList.around(base, needed, relations).combined(added[np.isin(added.centres, needed)])
        entities, place = np.unique(np.concatenate([needed, edges.centres, edges.others]), return_inverse=True)
        centre, other = np.split(place[len(needed) :], 2)
        local = EdgeList(centre, other, edges.labels).neighbours(len(entities), relations, base.directions)
        return cls(local, entities)

    def inside(self, entities: IntArray) -> Int32Array:
        """Return the rows in the subgraph of entities (n,)."""
        places = entities if self.entities is None else np.searchsorted(self.entities, entities)
        return np.asarray(places, np.int32)

    def outside(self, places: Int32Array) -> Int32Array:
        """Return the entities of rows in the subgraph (n,)."""
        return places if self.entities is None else self.entities[places].astype(np.int32)

    def outside_ego_graphs(self, egos: EgoGraphs) -> EgoGraphs:
        return EgoGraphs(egos.offsets, self.outside(egos.neighbours), egos.labels)
