"""The inductive split of BLP (Daza et al., 2021): val and test have entities that are not in train.

Entities are drawn at random and removed, test entities first. An entity is removed only if each of its neighbours has
more than two neighbours (so that none becomes isolated) and every relation keeps at least `min_edges` triples in train.
The triples of an entity move with it: a test triple may have a val entity, but no val triple has a test entity.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import polars as pl

from fnftg.arrays import Int32Array, Int64Array
from fnftg.errors import FnftgError
from fnftg.kg.graph_data import AnyGraph, Triples

TRAIN, VAL, TEST = 0, 1, 2


def inductive_split(
    graph: AnyGraph,
    val: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    min_edges: int = 100,
    types: Int32Array | None = None,
) -> AnyGraph:
    """Hold out a share `test`, then a share `val` of the entities. See `KnowledgeGraph.split_inductive`."""
    if not (val >= 0 and test >= 0 and 0 < val + test < 1):
        raise FnftgError(
            f"The shares of val ({val}) and test ({test}) must not be negative and must add up to less than 1."
        )
    if min_edges < 0:
        raise FnftgError(f"--min-edges is {min_edges}: it must not be negative.")
    triples = distinct(graph.all_triples())
    present = np.unique(triples[:, [0, 2]])
    wanted = {TEST: int(len(present) * test), VAL: int(len(present) * val)}
    order = drawing_order(present, seed, types)
    assigned = draw(triples, len(graph.entities), len(graph.relations), order, wanted[TEST], wanted[VAL], min_edges)
    if not (assigned != TRAIN).any():
        raise FnftgError(
            "No entity can be held out: each has a neighbour that would become isolated, or a relation with at most "
            f"{min_edges} triples; try a lower --min-edges."
        )
    left = np.unique(triples[assigned == TRAIN][:, [0, 2]])
    splits = {name: triples[assigned == part] for part, name in ((TRAIN, "train"), (VAL, "val"), (TEST, "test"))}
    parameters = {"val": val, "test": test, "seed": seed, "min_edges": min_edges, "by_type": types is not None}
    counts = {"asked": wanted[TEST] + wanted[VAL], "held_back": len(present) - len(left)}
    return graph.with_splits(splits, {"split": "inductive", **parameters, **counts})


def distinct(triples: Triples) -> Triples:
    """Return the distinct triples in order of first appearance."""
    return pl.DataFrame(triples, orient="row").unique(maintain_order=True).to_numpy()


def drawing_order(present: Int32Array, seed: int, types: Int32Array | None) -> Int64Array:
    """Return the entities in random order. With types, every section of the order has about the same proportions."""
    random = np.random.default_rng(seed)
    order = random.permutation(present).astype(np.int64)
    if types is None:
        return order
    of_type = types[order]
    by_type = np.argsort(of_type, kind="stable")
    counts = np.bincount(of_type[by_type])
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)  # (entities,): rank within the type
    position = (rank + random.random(len(order))) / np.repeat(counts, counts)
    return order[by_type[np.argsort(position)]]


def draw(
    triples: Triples, entities: int, relations: int, order: Int64Array, test: int, val: int, min_edges: int
) -> npt.NDArray[np.int8]:
    """Return the split of each triple."""
    heads, tails = triples[:, 0].astype(np.int64), triples[:, 2].astype(np.int64)
    self_loops = heads == tails
    # Edges of each entity; a self-loop counts once.
    ends = np.concatenate([heads, tails[~self_loops]])
    edges = np.concatenate([np.arange(len(triples)), np.flatnonzero(~self_loops)])
    edge_starts, edges = grouped(ends, edges, entities)
    # Distinct neighbours of each entity; an entity with a self-loop is its own neighbour.
    pairs = np.sort(np.concatenate([heads * entities + tails, tails * entities + heads]))
    pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])] if len(pairs) else pairs
    owners, neighbours = np.divmod(pairs, entities)
    neighbour_starts = np.searchsorted(owners, np.arange(entities + 1))
    counts = np.bincount(triples[:, 1], minlength=relations)
    result: npt.NDArray[np.int8] = _draw(
        triples, order, edge_starts, edges, neighbour_starts, neighbours, counts, test, val, min_edges
    )
    return result


def grouped(owners: Int64Array, values: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """Group values by owner. Returns (starts, values); those of owner i are values[starts[i] : starts[i + 1]]."""
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=count), out=starts[1:])
    return starts, values[np.argsort(owners, kind="stable")]


@numba.njit(cache=True)
def _draw(  # type: ignore[no-untyped-def]
    triples, order, edge_starts, edges, neighbour_starts, neighbours, counts, test, val, min_edges
) -> Any:
    assigned = np.zeros(len(triples), np.int8)
    alive = np.ones(len(edge_starts) - 1, np.bool_)
    degree = np.diff(neighbour_starts)  # distinct neighbours that are alive
    removed, before = 0, -1
    # An entity that a neighbour blocks may be removed in a later pass, after that neighbour.
    while removed < test + val and removed != before:
        before = removed
        for entity in order:
            if removed == test + val:
                break
            if not alive[entity]:
                continue
            possible = True
            for neighbour in neighbours[neighbour_starts[entity] : neighbour_starts[entity + 1]]:
                if alive[neighbour] and degree[neighbour] <= 2:
                    possible = False
                    break
            if not possible:
                continue
            taken = 0
            own = edges[edge_starts[entity] : edge_starts[entity + 1]]
            for edge in own:
                taken += 1
                if assigned[edge] == TRAIN:
                    counts[triples[edge, 1]] -= 1
                    if counts[triples[edge, 1]] < min_edges:
                        possible = False
                        break
            if not possible:
                for edge in own[:taken]:
                    if assigned[edge] == TRAIN:
                        counts[triples[edge, 1]] += 1
                continue
            for edge in own:
                if assigned[edge] == TRAIN:
                    assigned[edge] = TEST if removed < test else VAL
            for neighbour in neighbours[neighbour_starts[entity] : neighbour_starts[entity + 1]]:
                degree[neighbour] -= 1
            alive[entity] = False
            removed += 1
    return assigned
