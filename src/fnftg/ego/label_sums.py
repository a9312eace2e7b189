"""Sums of integer values of labels over the edges of every entity. Integers make them independent of the order."""

from __future__ import annotations

import numba
import numpy as np

from fnftg.arrays import Int64Array
from fnftg.ego.context import ExtendedContext, GraphContext, VisibleGraph
from fnftg.ego.local_subgraph import EdgeList
from fnftg.kernels.threads import in_parallel

COST = 4  # operations per edge, an estimate for the choice of threads


def label_sums(context: VisibleGraph, values: Int64Array) -> Int64Array:
    """Return the sums of the values (2R, v) of the labels of each entity's edges: (N, v)."""
    sums = np.zeros((context.entities, values.shape[1]), np.int64)
    if isinstance(context, GraphContext):
        neighbours, known = context.neighbours, values
    else:
        assert isinstance(context, ExtendedContext)
        neighbours = context.base.neighbours
        edges = EdgeList.of(context.added, context.relations, neighbours.directions)
        np.add.at(sums, edges.centres, values[edges.labels])
        old = np.arange(neighbours.relations)
        known = values[np.concatenate([old, old + context.relations])]  # inverses come after the new relations

    def some(start: int, stop: int) -> None:
        add_labels(neighbours.offsets, neighbours.labels, known, sums, start, stop)

    in_parallel(some, len(neighbours), COST * (1 + len(neighbours.labels) // max(len(neighbours), 1)))
    return sums


@numba.njit(nogil=True, cache=True)
def add_labels(offsets, labels, values, sums, start, stop):  # type: ignore[no-untyped-def]
    for entity in range(start, stop):
        for edge in range(offsets[entity], offsets[entity + 1]):
            for column in range(values.shape[1]):
                sums[entity, column] += values[labels[edge], column]
