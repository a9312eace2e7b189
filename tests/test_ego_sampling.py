"""Ego-graphs show what they should, never the target, and the same whatever else is in the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.array_files import write_array
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import EgoGraphs, Hidden, sample
from fnftg.errors import DamagedError, FnftgError

Triple = tuple[int, int, int]
ENTITIES, RELATIONS = 6, 3

triple = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
graphs = st.lists(triple, max_size=60)
directions = st.sampled_from(["both", "out"])
whats = st.sampled_from(["target", "pair"])
limits = st.integers(0, 8)
keys = st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3)
quickly = settings(deadline=None, max_examples=100)


def array(triples: Any) -> np.ndarray:
    return np.array(list(triples), np.int32).reshape(-1, 3)


def build(triples: Any, directions: Any = "both", entities: int = ENTITIES, relations: int = RELATIONS) -> Neighbours:
    return Neighbours.of(array(triples), entities, relations, directions)


def rows(neighbours: Neighbours) -> dict[int, list[tuple[int, int]]]:
    """(other end, label) of the edges of each entity."""
    ends = zip(neighbours.offsets, neighbours.offsets[1:], strict=False)
    pairs = list(zip(neighbours.entities.tolist(), neighbours.labels.tolist(), strict=True))
    return {entity: pairs[start:stop] for entity, (start, stop) in enumerate(ends)}


def oracle(triples: Any, directions: str) -> dict[int, list[tuple[int, int]]]:
    edges: dict[int, set[tuple[int, int]]] = {entity: set() for entity in range(ENTITIES)}
    for head, relation, tail in triples:
        edges[head].add((tail, relation))
        if directions == "both":
            edges[tail].add((head, RELATIONS + relation))
    return {entity: sorted(found) for entity, found in edges.items()}


def seen_from(target: Triple, end: str, label_of: int = RELATIONS) -> tuple[int, int, int]:
    """The centre, the hidden entity and the hidden label when the query is asked from the head or from the tail."""
    head, relation, tail = target
    return (head, tail, relation) if end == "head" else (tail, head, label_of + relation)


def draw_all(
    neighbours: Neighbours, centre: int, limit: int, hidden: tuple[int, int, str] | None = None, **more: Any
) -> list[list[tuple[int, int]]]:
    """Ego-graphs of one centre from 16 streams, each a list of (neighbour, label)."""
    secret = None
    if hidden is not None:
        secret = Hidden(np.full(16, hidden[0], np.int32), np.full(16, hidden[1], np.int32), hidden[2])  # type: ignore[arg-type]
    key = more.pop("key", (0, 0, 0))
    return listed(sample(neighbours, np.full(16, centre, np.int32), limit, key, secret, **more))


def draw(*arguments: Any, **more: Any) -> list[tuple[int, int]]:
    """The first of them."""
    return draw_all(*arguments, **more)[0]


def listed(egos: EgoGraphs) -> list[list[tuple[int, int]]]:
    edges = list(zip(egos.neighbours.tolist(), egos.labels.tolist(), strict=True))
    assert egos.offsets[0] == 0 and egos.offsets[-1] == len(edges)
    return [edges[start:stop] for start, stop in zip(egos.offsets, egos.offsets[1:], strict=False)]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# The rows of edges


@quickly
@given(graphs, directions)
def test_rows_hold_each_distinct_edge_once_sorted(triples: list[Triple], directions: str) -> None:
    assert rows(build(triples, directions)) == oracle(triples, directions)


def test_self_loop_is_two_edges_and_a_repeated_triple_one() -> None:
    assert rows(build([(1, 2, 1), (1, 2, 1)]))[1] == [(1, 2), (1, RELATIONS + 2)]
    assert rows(build([(1, 2, 1), (1, 2, 1)], "out"))[1] == [(1, 2)]


@quickly
@given(graphs, st.randoms(use_true_random=False))
def test_order_of_triples_does_not_matter(triples: list[Triple], random: Any) -> None:
    shuffled = triples + triples[:5]
    random.shuffle(shuffled)
    assert rows(build(triples)) == rows(build(shuffled))


def test_rows_of_a_large_graph_with_hubs_equal_numpys() -> None:
    random = np.random.default_rng(0)
    heads, tails = (random.random((2, 60_000)) ** 6 * 3_000).astype(np.int32)
    triples = np.stack([heads, random.integers(0, 7, 60_000), tails], axis=1).astype(np.int32)
    found = Neighbours.of(triples, 3_000, 7)
    edges = np.concatenate([triples[:, [0, 2, 1]], triples[:, [2, 0, 1]] + [0, 0, 7]])
    centre, other, label = np.unique(edges, axis=0).T
    assert np.array_equal(found.offsets, np.searchsorted(centre, np.arange(3_001)))
    assert np.array_equal(found.entities, other) and np.array_equal(found.labels, label)


@quickly
@given(graphs, st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 7)), max_size=8), directions)
def test_extended_rows_equal_rows_of_all_triples(triples: list[Triple], more: list[Triple], directions: str) -> None:
    extended = build(triples, directions).extended(array(more), ENTITIES + 2, RELATIONS + 1)
    assert rows(extended) == rows(build(triples + more, directions, ENTITIES + 2, RELATIONS + 1))


@quickly
@given(graphs, directions)
def test_inverse_is_the_label_from_the_other_end_and_frequencies_count_triples(
    triples: list[Triple], directions: str
) -> None:
    neighbours = build(triples, directions)
    assert neighbours.frequencies.tolist() == [sum(r == relation for _, r, _ in set(triples)) for relation in range(3)]
    assert [neighbours.inverse(label) for label in (0, 2, 3, 5)] == [3, 5, 0, 2]
    if directions == "both":
        edges = {(c, label, o) for c, row in rows(neighbours).items() for o, label in row}
        assert {(o, neighbours.inverse(label), c) for c, label, o in edges} == edges
    assert np.array_equal(neighbours.inverse(neighbours.inverse(neighbours.labels)), neighbours.labels)


@pytest.mark.parametrize("wrong", [(6, 0, 0), (0, 3, 0), (0, 0, 6), (-1, 0, 0)])
def test_triple_out_of_range_is_named(wrong: Triple) -> None:
    with pytest.raises(FnftgError, match=r"triple \("):
        build([(0, 0, 1), wrong])


def test_saved_rows_open_equal_and_mapped(tmp_path: Path) -> None:
    neighbours = build([(0, 1, 2), (3, 0, 3), (2, 2, 0)], "out")
    neighbours.write(tmp_path / "rows")
    opened = Neighbours.open(tmp_path / "rows", ENTITIES, RELATIONS)
    assert rows(opened) == rows(neighbours)
    assert (opened.relations, opened.directions, len(opened)) == (RELATIONS, "out", ENTITIES)
    assert isinstance(opened.entities.base, np.memmap) or isinstance(opened.entities.base.base, np.memmap)
    assert draw(opened, 0, 5) == draw(neighbours, 0, 5)
    build([]).write(tmp_path / "empty")
    assert len(Neighbours.open(tmp_path / "empty", ENTITIES, RELATIONS).entities) == 0


def test_neighbours_that_a_loop_could_not_read_are_refused(tmp_path: Path) -> None:
    neighbours = build([(0, 1, 2), (3, 0, 3)])
    falling = neighbours.offsets.copy()
    falling[1] = falling[-1] + 1
    beyond = {
        "offsets": falling,
        "entities": neighbours.entities + ENTITIES,
        "labels": neighbours.labels - 2 * RELATIONS,
    }
    for name, array in beyond.items():
        neighbours.write(tmp_path / name)
        write_array(tmp_path / name / f"{name}.npy", array)
    neighbours.write(tmp_path / "cut")
    labels = tmp_path / "cut" / "labels.npy"
    labels.write_bytes(labels.read_bytes()[:-4])
    for folder in (*beyond, "cut", "nowhere"):
        with pytest.raises(DamagedError):
            Neighbours.open(tmp_path / folder, ENTITIES, RELATIONS)
    neighbours.write(tmp_path / "whole")
    with pytest.raises(DamagedError):
        Neighbours.open(tmp_path / "whole", ENTITIES, RELATIONS + 1)


# Samples


@quickly
@given(graphs, directions, limits, keys)
def test_samples_are_as_many_distinct_visible_edges_as_the_limit_allows_in_order(
    triples: list[Triple], directions: str, limit: int, key: Any
) -> None:
    visible = oracle(triples, directions)
    centres = np.arange(ENTITIES, dtype=np.int32)
    for centre, edges in enumerate(listed(sample(build(triples, directions), centres, limit, key))):
        assert len(edges) == min(limit, len(visible[centre]))
        assert edges == sorted(set(edges)) and set(edges) <= set(visible[centre])


@quickly
@given(graphs, triple, st.sampled_from(["head", "tail"]), directions, limits, whats, keys)
def test_target_in_the_graph_or_not_the_ego_graph_has_the_same_bits(
    triples: list[Triple],
    target: Triple,
    end: str,
    directions: str,
    limit: int,
    what: str,
    key: Any,
) -> None:
    centre, entity, label = seen_from(target, end)
    hidden = (entity, label, what)
    options = {"key": key}
    without = [known for known in triples if known != target]
    if what == "pair":
        without = [known for known in without if {known[0], known[2]} != {target[0], target[2]}]
    graphs = [without, [*triples, target], [*triples, target, target]]
    found = [draw_all(build(graph, directions), centre, limit, hidden, **options) for graph in graphs]
    found.append(draw_all(build(without, directions), centre, limit, **options))  # nothing needs hiding there
    assert found.count(found[0]) == len(found)


@quickly
@given(graphs, triple, st.sampled_from(["head", "tail"]), directions, limits, whats, keys)
def test_relabelling_the_target_changes_no_bit(
    triples: list[Triple],
    target: Triple,
    end: str,
    directions: str,
    limit: int,
    what: str,
    key: Any,
) -> None:
    head, _, tail = target
    labelled = [(head, relation, tail) for relation in range(RELATIONS)]
    others = [known for known in triples if known not in labelled]
    options = {"key": key}
    found = []
    for relabelled in labelled:
        neighbours = build([*others, relabelled], directions)
        centre, entity, label = seen_from(relabelled, end)
        found.append(draw_all(neighbours, centre, limit, (entity, label, what), **options))
        if what == "pair":  # hidden whatever its label, also when the query asks for another
            centre, entity, label = seen_from(target, end)
            found.append(draw_all(neighbours, centre, limit, (entity, label, what), **options))
    assert found.count(found[0]) == len(found)


@quickly
@given(graphs, triple, st.sampled_from(["head", "tail"]), directions, whats)
def test_all_but_the_hidden_edges_stay_visible(
    triples: list[Triple], target: Triple, end: str, directions: str, what: str
) -> None:
    centre, entity, label = seen_from(target, end)
    left = [known for known in [*triples, target] if known != target]
    if what == "pair":
        left = [known for known in left if {known[0], known[2]} != {centre, entity}]
    found = draw(build([*triples, target], directions), centre, 1_000, (entity, label, what))
    assert found == oracle(left, directions)[centre]


def test_hidden_self_loop_vanishes_in_both_directions_and_parallel_edges_stay() -> None:
    neighbours = build([(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0)])
    loop = [(0, 1), (0, RELATIONS + 1)]
    others = [(1, 0), (1, 1), (1, RELATIONS)]
    for label in (0, RELATIONS):
        assert draw(neighbours, 0, 9, (0, label, "target")) == loop + others
        assert draw(neighbours, 0, 9, (0, label, "pair")) == others
    all_loops = [(0, 0), (0, 1), (0, RELATIONS), (0, RELATIONS + 1)]
    assert draw(neighbours, 0, 9, (1, 1, "target")) == [*all_loops, (1, 0), (1, RELATIONS)]
    assert draw(neighbours, 0, 9, (1, RELATIONS, "target")) == [*all_loops, (1, 0), (1, 1)]
    assert draw(neighbours, 0, 9, (1, 2, "pair")) == all_loops
    assert draw(neighbours, 0, 9, (-1, 0, "target")) == all_loops + others


def large(seed: int = 0) -> tuple[Neighbours, np.ndarray]:
    """A graph with hubs and a batch of its triples."""
    random = np.random.default_rng(seed)
    heads, tails = (random.random((2, 20_000)) ** 4 * 1_000).astype(np.int32)
    triples = np.stack([heads, random.integers(0, 9, 20_000), tails], axis=1).astype(np.int32)
    return Neighbours.of(triples, 1_000, 9), triples[random.integers(0, 20_000, 3_000)]


def test_threads_batches_and_row_order_do_not_matter(threads: None) -> None:
    neighbours, batch = large()
    streams = np.arange(len(batch)) * 7 - 100

    def drawn(places: Any) -> list[list[tuple[int, int]]]:
        secret = Hidden(batch[places, 2], batch[places, 1])
        return listed(sample(neighbours, batch[places, 0], 6, (1, 2, 3), secret, streams[places]))

    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(drawn(np.arange(len(batch))))
    assert results[0] == results[1] == results[2]
    order = np.random.default_rng(1).permutation(len(batch))
    parts = [row for part in np.array_split(order, 7) for row in drawn(part)]
    assert parts == [results[0][place] for place in order]


def test_each_part_of_the_key_and_the_stream_change_the_sample() -> None:
    neighbours = build([(0, 0, 1 + tail) for tail in range(1_000)], entities=1_001)
    centres = np.zeros(3, np.int32)
    found = [draw(neighbours, 0, 20, key=key) for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**64, 0, 0)]]
    assert found[0] == found[4] and len(set(map(tuple, found))) == 4
    rows_of_batch = listed(sample(neighbours, centres, 20, (0, 0, 0)))
    assert rows_of_batch[0] == found[0] and len(set(map(tuple, rows_of_batch))) == 3
    same = listed(sample(neighbours, centres, 20, (0, 0, 0), streams=centres.astype(np.int64)))
    assert same == [found[0]] * 3


def test_every_set_of_edges_is_as_likely() -> None:
    """A chi-square of 34 degrees of freedom is below 80 almost always."""
    neighbours = build([(0, 0, tail) for tail in range(1, 9)], entities=9)  # 8 edges, one of them hidden
    draws, hidden_tail = 35_000, 4
    centres = np.zeros(draws, np.int32)
    hidden = Hidden(np.full(draws, hidden_tail, np.int32), centres)
    sets = Counter(map(tuple, listed(sample(neighbours, centres, 3, (5, 0, 0), hidden))))
    assert len(sets) == 35  # 7 visible edges, 3 drawn
    assert sum((count - 1_000) ** 2 / 1_000 for count in sets.values()) < 80


def test_hub_beyond_a_word_of_marks_is_drawn_from_evenly() -> None:
    neighbours = build([(0, 0, tail) for tail in range(1, 1_001)], entities=1_001)
    draws = 20_000
    egos = sample(neighbours, np.zeros(draws, np.int32), 10, (0, 0, 0))
    counts = np.bincount(egos.neighbours, minlength=1_001)[1:]
    assert counts.sum() == 10 * draws
    assert ((counts - 200) ** 2 / 200).sum() < 1_000 + 6 * 2_000**0.5


def test_empty_batches_and_entities_without_edges_are_empty() -> None:
    neighbours = build([(0, 0, 1)])
    assert listed(sample(neighbours, np.zeros(0, np.int32), 5, (0, 0, 0))) == []
    assert listed(sample(neighbours, np.array([4, 0], np.int32), 0, (0, 0, 0))) == [[], []]
    assert listed(sample(build([]), np.array([4], np.int32), 3, (0, 0, 0))) == [[]]


def test_what_would_read_elsewhere_or_hide_nothing_is_refused() -> None:
    neighbours, centres = build([(0, 0, 1)]), np.zeros(1, np.int32)
    one, far = np.ones(1, np.int32), np.full(1, ENTITIES, np.int32)
    wrong: list[dict[str, Any]] = [
        {"centres": far},
        {"centres": -one},
        {"hidden": Hidden(far, one)},
        {"hidden": Hidden(one, far)},
        {"hidden": Hidden(np.zeros(2, np.int32), np.zeros(2, np.int32))},
        {"streams": np.zeros(2, np.int64)},
        {"limit": -1},
    ]
    for change in wrong:
        with pytest.raises(ValueError):
            sample(**{"neighbours": neighbours, "centres": centres, "limit": 3, "key": (0, 0, 0), **change})
    with pytest.raises(ValueError):
        Hidden(one, one, "all")  # type: ignore[arg-type]
