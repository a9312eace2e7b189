"""Splits keep what they promise, and are the same for the same seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from conftest import FAMILY
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.kg.commands.split import read_types
from fnftg.kg.splits.fir import fir_split
from fnftg.kg.splits.inductive import drawing_order
from fnftg.kg.splits.support import support_split
from fnftg.kg.statistics import entities_of


@st.composite
def random_graphs(draw: st.DrawFn) -> KnowledgeGraph:
    node = st.integers(0, draw(st.integers(5, 25)))
    triples = draw(st.lists(st.tuples(node, st.integers(0, 2), node), min_size=20, max_size=150))
    return KnowledgeGraph.from_triples({"train": [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in triples]})


def blp_oracle(
    graph: KnowledgeGraph, order: list[int], test: int, val: int, min_edges: int
) -> dict[str, set[tuple[int, ...]]]:
    """The rule of the split, told with networkx one entity after the other."""
    multigraph = nx.MultiDiGraph()
    multigraph.add_edges_from((h, t, r) for h, r, t in graph.triples("train").tolist())
    counts = Counter(graph.triples("train")[:, 1].tolist())
    parts: dict[str, set[tuple[int, ...]]] = {"test": set(), "val": set()}
    removed, before = 0, -1
    while removed < test + val and removed != before:
        before = removed
        for entity in order:
            if entity not in multigraph or removed == test + val:
                continue
            neighbours = set(nx.all_neighbors(multigraph, entity))
            edges = {*multigraph.in_edges(entity, keys=True), *multigraph.out_edges(entity, keys=True)}
            after = counts - Counter(r for _, _, r in edges)
            enough = all(after[r] >= min_edges for _, _, r in edges)
            if enough and all(len(set(nx.all_neighbors(multigraph, n))) > 2 for n in neighbours):
                parts["test" if removed < test else "val"] |= {(h, r, t) for h, t, r in edges}
                counts = after
                multigraph.remove_node(entity)
                removed += 1
    assert not list(nx.isolates(multigraph))
    return parts


@settings(max_examples=60, deadline=None)
@given(random_graphs(), st.integers(0, 5), st.sampled_from([0, 3, 10]))
def test_inductive_split_follows_the_rule_of_blp(graph: KnowledgeGraph, seed: int, min_edges: int) -> None:
    present = entities_of(graph.triples("train"))
    order = drawing_order(present, seed, None).tolist()
    expected = blp_oracle(graph, order, int(len(present) * 0.2), int(len(present) * 0.2), min_edges)
    if not any(expected.values()):
        with pytest.raises(FnftgError, match="No entity can be held out"):
            graph.split_inductive(0.2, 0.2, seed, min_edges)
        return
    split = graph.split_inductive(0.2, 0.2, seed, min_edges)
    for name in ("val", "test"):
        assert {tuple(triple) for triple in split.triples(name).tolist()} == expected[name]
    together = np.concatenate([split.triples(name) for name in ("train", "val", "test")]).tolist()
    assert sorted(together) == sorted(graph.triples("train").tolist())


def random_graph(entities: int = 400, triples: int = 4_000, seed: int = 0) -> KnowledgeGraph:
    random = np.random.default_rng(seed)
    heads, tails = random.integers(0, entities, (2, triples))
    relations = random.zipf(1.5, triples).clip(max=4)
    return KnowledgeGraph.from_triples(
        {"train": [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in zip(heads, relations, tails, strict=True)]}
    )


def test_inductive_split_leaves_new_entities_no_isolated_one_and_enough_edges() -> None:
    graph = random_graph()
    split = graph.split_inductive(val=0.1, test=0.2, seed=3, min_edges=100)
    train, val, test = (entities_of(split.triples(name)) for name in ("train", "val", "test"))
    new_in_val, new_in_test = np.setdiff1d(val, train), np.setdiff1d(test, np.concatenate([train, val]))
    assert len(new_in_val) == 40 and len(train) == 400 - 40 - 80
    assert not np.intersect1d(val, new_in_test).size
    before, after = (np.bincount(g.triples("train")[:, 1], minlength=4) for g in (graph, split))
    assert ((after >= 100) | (after == before)).all()
    assert split.report["recipes"][-1] | {"asked": 120, "held_back": 120} == split.report["recipes"][-1]


@pytest.mark.parametrize("make", [KnowledgeGraph.split_inductive, support_split])
def test_same_seed_same_split_other_seed_another(make: object) -> None:
    graph = random_graph().split_inductive()
    one, same, other = (make(graph, seed=seed) for seed in (1, 1, 2))  # type: ignore[operator]
    assert one.equals(same) and not one.equals(other)


def test_types_keep_their_proportions_in_every_stretch() -> None:
    types = np.repeat([0, 1, 2], [700, 200, 100]).astype(np.int32)
    order = drawing_order(np.arange(1000, dtype=np.int32), 0, types)
    assert sorted(order) == list(range(1000))
    shares = [np.bincount(types[order[start : start + 100]], minlength=3) for start in range(0, 1000, 100)]
    assert (np.abs(np.array(shares) - [70, 20, 10]) <= 2).all()


def test_types_are_read_by_entity(tmp_path: Path, family: KnowledgeGraph) -> None:
    path = tmp_path / "types.tsv"
    path.write_text("cleo\tchild\nann\tadult\nbob\tadult\nann\tchild\n")
    types = read_types(family, path)
    rows = {id_: family.entities.find(id_) for id_ in ("ann", "bob", "cleo", "dora")}
    assert types[rows["ann"]] == types[rows["bob"]] != types[rows["cleo"]] and types[rows["dora"]] == 0
    path.write_text("nobody\tchild\n")
    with pytest.raises(FnftgError, match="no entity 'nobody'"):
        read_types(family, path)


def test_fir_removes_the_rarest_relations_up_to_the_share_or_across_it() -> None:
    counts = {"a": 60, "b": 25, "c": 9, "d": 5, "e": 1}
    triples = [(f"h{i}", relation, f"t{i}") for relation, count in counts.items() for i in range(count)]
    graph = KnowledgeGraph.from_triples({"train": triples, "test": [("h1", "d", "t2")]})
    for cross, left in ((False, {"a", "b", "c"}), (True, {"a", "b"})):
        split = fir_split(graph, 0.1, cross)
        assert {graph.relations.ids[row] for row in set(split.triples("train")[:, 1].tolist())} == left
        assert np.array_equal(split.triples("test"), graph.triples("test"))
    with pytest.raises(FnftgError, match="raise --share or use --cross"):
        fir_split(graph, 0.005)
    with pytest.raises(FnftgError, match="lower --share"):
        fir_split(graph, 0.99, cross=True)


def test_fir_does_not_depend_on_the_order_of_triples() -> None:
    triples = [(f"h{i}", f"r{i % 20}", f"t{i}") for i in range(200)]
    one, other = (fir_split(KnowledgeGraph.from_triples({"train": rows}), 0.12) for rows in (triples, triples[::-1]))
    assert one.equals(other)


def test_support_shows_a_share_of_each_new_entity_and_keeps_a_query() -> None:
    graph = random_graph().split_inductive(min_edges=10)
    split = support_split(graph, share=0.3, seed=1)
    known = set(entities_of(graph.triples("train")).tolist())
    for name in ("val", "test"):
        support, queries = split.triples(f"{name}-support"), split.triples(name)
        assert sorted([*support.tolist(), *queries.tolist()]) == sorted(graph.triples(name).tolist())
        assert 0.25 < len(support) / len(graph.triples(name)) < 0.35
        shown, asked = Counter(support[:, [0, 2]].ravel().tolist()), Counter(queries[:, [0, 2]].ravel().tolist())
        alone = [e for e in {*shown, *asked} - known if not shown[e] and asked[e] > 4]
        assert not alone  # a new entity with several edges has one to look at


def test_support_of_a_single_edge_stays_a_query() -> None:
    graph = KnowledgeGraph.from_triples({"train": FAMILY["train"], "test": [("new", "knows", "ann")]})
    with pytest.raises(FnftgError, match="no edges to make visible"):
        support_split(graph)
