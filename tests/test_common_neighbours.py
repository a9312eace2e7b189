"""The resource-allocation index, and sums of labels over the edges of entities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.ego.common_neighbours import resource_allocation
from fnftg.ego.neighbours import Neighbours

ENTITIES, RELATIONS = 7, 2
ENTITY = st.integers(0, ENTITIES - 1)
TRIPLES = st.lists(st.tuples(ENTITY, st.integers(0, RELATIONS - 1), ENTITY), max_size=30, unique=True)


def index_of(triples: list[tuple[int, int, int]], limit: int = ENTITIES) -> list[list[tuple[int, float]]]:
    """Entities with common neighbours of each entity, with their index."""
    graph = Neighbours.of(np.array(triples, np.int32).reshape(-1, 3), ENTITIES, RELATIONS)
    pairs = np.unique([(h, t) for h, _, t in triples if h != t] + [(t, h) for h, _, t in triples if h != t], axis=0)
    first, other = pairs.reshape(-1, 2).astype(np.int64).T
    offsets = np.searchsorted(first, np.arange(ENTITIES + 1))
    centres = np.arange(ENTITIES, dtype=np.int32)
    ends, found, index = resource_allocation(graph, centres, offsets, other.astype(np.int32), limit)
    return [
        list(zip(found[start:stop].tolist(), index[start:stop].tolist(), strict=True)) for start, stop in pairwise(ends)
    ]


def test_the_index_worked_by_hand() -> None:
    """0 and 3 share 1, which has 2 neighbours, and 2, which has 4; two edges between 0 and 1 count once."""
    found = index_of([(0, 0, 1), (0, 1, 1), (1, 0, 3), (2, 0, 0), (3, 0, 2), (2, 1, 4), (5, 0, 2)])
    assert found[0] == [(3, 0.75), (4, 0.25), (5, 0.25)]  # the greatest first, ties by row
    assert found[1] == [(2, 1.0)] and found[6] == []


@settings(max_examples=100, deadline=None)
@given(triples=TRIPLES, limit=st.integers(1, ENTITIES))
def test_the_index_is_that_of_its_definition(triples: list[tuple[int, int, int]], limit: int) -> None:
    around: list[set[int]] = [set() for _ in range(ENTITIES)]
    for head, _, tail in triples:
        around[head].add(tail)
        around[tail].add(head)
    for centre, found in enumerate(index_of(triples, limit)):
        expected = {}
        for other in set(range(ENTITIES)) - {centre}:
            common = (around[centre] & around[other]) - {centre, other}
            if common:
                expected[other] = sum(1 / len(around[between]) for between in common)
        assert len(found) == min(limit, len(expected))
        assert dict(found) == pytest.approx({other: expected[other] for other, _ in found})
        worst = min((index for _, index in found), default=0)
        assert all(value <= worst + 1e-6 for other, value in expected.items() if other not in dict(found))
