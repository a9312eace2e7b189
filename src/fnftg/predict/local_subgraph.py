"""The ego-graphs that a few new edges change, found without touching the rest of the graph.

Sampling looks at rows of edges and at the centre's stream, not at how many other entities there are. So a small graph
with the rows that matter, whole and in their order, gives the ego-graphs of the whole graph with the new edges in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import Float32Array, Int32Array, Int64Array, IntArray
from fnftg.ego.config import EgoConfig
from fnftg.ego.neighbours import Directions, Neighbours
from fnftg.ego.parallels import Parallels
from fnftg.ego.sampling import EgoGraphs
from fnftg.kernels.ranges import ranges
from fnftg.models.link_predictor import GraphContext
from fnftg.text.transformer import GraphTexts


@dataclass(frozen=True)
class EdgeList:
    """Edges as seen from a centre: (m,) each."""

    centres: Int64Array
    others: Int64Array
    labels: Int64Array

    def joined(self, more: EdgeList) -> EdgeList:
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return EdgeList(*(np.concatenate(pair) for pair in pairs))

    def neighbours(self, size: int, relations: int, directions: Directions = "both") -> Neighbours:
        """As rows of centres below `size`, each edge once."""
        keys = np.stack([self.centres, self.others, self.labels])
        keys = np.unique(keys, axis=1) if keys.size else keys  # sorted by centre, other end and label
        return Neighbours(np.searchsorted(keys[0], np.arange(size + 1)), keys[1], keys[2], relations, directions)


def changed_centres(base: Neighbours, added: EdgeList, entities: int, relations: int, ego: EgoConfig) -> Int64Array:
    """The centres whose ego-graphs may differ once the edges are added, new entities included; ascending."""
    new = np.arange(len(base), entities)
    limit = ego.num_neighbours_at_evaluation
    if limit == 0:
        return new
    touched = np.unique(np.concatenate([added.centres, new]))
    sources = [touched]
    if ego.method == "rare" and len(added.labels):  # a draw weighs relations by their number in the whole graph
        crowded = np.diff(base.offsets) > (limit if ego.hops == 1 else min(limit, ego.second_limit))
        weighed = np.isin(base.labels % base.relations, added.labels % relations)
        has_one = np.bincount(_centres_of(base)[weighed], minlength=len(base)) > 0
        touched = np.union1d(touched, np.flatnonzero(crowded & has_one))
        sources = [touched]
    if ego.hops == 2:
        if base.directions == "both":
            sources += [rows_of(base, touched).others, added.others]
        else:
            sources += [_centres_of(base)[np.isin(base.entities, touched)], added.centres]
    return np.unique(np.concatenate(sources))


def edges_of(triples: IntArray, relations: int, directions: str) -> EdgeList:
    """Triples (n, 3) as edges of their heads and, if incoming ones are seen, of their tails."""
    heads, relation, tails = np.asarray(triples, np.int64).reshape(-1, 3).T
    if directions == "out":
        return EdgeList(heads, tails, relation)
    return EdgeList(
        np.concatenate([heads, tails]), np.concatenate([tails, heads]), np.concatenate([relation, relation + relations])
    )


@dataclass(frozen=True)
class Surroundings:
    """A small graph around some centres, its entities renumbered in their order."""

    neighbours: Neighbours
    entities: Int64Array  # (u,): ascending, what its rows are called outside

    @classmethod
    def of(cls, base: Neighbours, added: EdgeList, relations: int, centres: Int64Array, ego: EgoConfig) -> Surroundings:
        """With the rows of the centres and, for two hops, of all that they lead to; `relations` counts new ones too."""
        needed = np.unique(centres)
        for _ in range(ego.hops - 1):
            needed = np.unique(np.concatenate([needed, rows_of(base, needed).others, _within(added, needed).others]))
        old, new = rows_of(base, needed, relations), _within(added, needed)
        edges = old.joined(new)
        universe, place = np.unique(np.concatenate([needed, edges.centres, edges.others]), return_inverse=True)
        centre, other = np.split(place[len(needed) :], 2)
        local = EdgeList(centre, other, edges.labels).neighbours(len(universe), relations, base.directions)
        if ego.method == "rare":  # which weighs relations by their number in the whole graph
            counts = np.bincount(local.labels, minlength=2 * relations) - np.bincount(
                old.labels, minlength=2 * relations
            )
            local.__dict__["frequencies"] = (
                np.pad(base.frequencies, (0, relations - base.relations)) + counts[:relations]
            )
        return cls(local, universe)

    def ego_graphs(self, ego: EgoConfig, texts: GraphTexts, centres: Int64Array) -> EgoGraphs:
        """As they would be sampled in the whole graph, with the entities' rows there."""
        places = np.searchsorted(self.entities, centres).astype(np.int32)
        egos = GraphContext(texts, self.neighbours).ego_graphs(ego, places, None, streams=centres)
        return EgoGraphs(egos.offsets, self.entities[egos.neighbours].astype(np.int32), egos.labels, egos.second_labels)

    def parallels(
        self, counted: Parallels, centres: Int32Array, labels: Int32Array, limit: int
    ) -> tuple[Int64Array, Int32Array, Float32Array]:
        """As they would be found in the whole graph, by what was counted there."""
        places = np.searchsorted(self.entities, centres).astype(np.int32)
        offsets, found, kinship = counted(self.neighbours, places, labels, limit)
        return offsets, self.entities[found].astype(np.int32), kinship


def grown_parallels(counted: Parallels, base: Neighbours, added: EdgeList, relations: int) -> Parallels:
    """What is counted once edges are added: only the pairs of entities that these join are looked at again."""
    touched = np.unique(added.centres)
    old = rows_of(base, touched, relations)
    size = int(max(old.others.max(initial=0), added.others.max(initial=0))) + 1
    again = np.isin(old.centres * size + old.others, added.centres * size + added.others)
    before = EdgeList(old.centres[again], old.others[again], old.labels[again])
    some = [
        EdgeList(np.searchsorted(touched, edges.centres), edges.others, edges.labels).neighbours(
            len(touched), relations
        )
        for edges in (before, before.joined(added))
    ]
    return counted.changed(*some)


def rows_of(base: Neighbours, centres: Int64Array, relations: int | None = None) -> EdgeList:
    """All edges of some centres; those beyond the graph have none. Labels are those among so many relations."""
    inside = centres[centres < len(base)]
    starts = base.offsets[inside]
    counts = base.offsets[inside + 1] - starts
    places = ranges(starts, counts)
    labels = base.labels[places].astype(np.int64)
    if relations is not None:
        labels += (relations - base.relations) * (labels >= base.relations)
    return EdgeList(np.repeat(inside, counts), base.entities[places].astype(np.int64), labels)


def joined(parts: list[EgoGraphs]) -> EgoGraphs:
    """Several batches of ego-graphs as one."""
    starts = np.cumsum([0, *(len(part.neighbours) for part in parts)])
    offsets = np.concatenate([[0], *(part.offsets[1:] + start for part, start in zip(parts, starts[:-1], strict=True))])
    seconds = [part.second_labels for part in parts if part.second_labels is not None]
    return EgoGraphs(
        offsets.astype(np.int64),
        np.concatenate([part.neighbours for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(seconds) if seconds else None,
    )


def _within(edges: EdgeList, centres: Int64Array) -> EdgeList:
    own = np.isin(edges.centres, centres)
    return EdgeList(edges.centres[own], edges.others[own], edges.labels[own])


def _centres_of(base: Neighbours) -> Int64Array:
    return np.repeat(np.arange(len(base)), np.diff(base.offsets))
