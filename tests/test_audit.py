"""Statistics and audit count as a plain reading of their definitions does, and as the paper's table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import REAL_DATA
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.kg import KnowledgeGraph, open_graph
from fnftg.kg.audit import audit
from fnftg.kg.statistics import statistics

Splits = dict[str, list[tuple[int, int, int]]]
node = st.integers(0, 5)
splits_of_triples = st.fixed_dictionaries(
    {
        name: st.lists(st.tuples(node, st.integers(0, 2), node), min_size=1, max_size=15)
        for name in ("train", "val", "test")
    }
)


def audit_oracle(splits: Splits, split: str, context: list[str]) -> dict[str, Any]:
    """The definitions, triple by triple."""
    own = list(dict.fromkeys(splits[split]))
    every = [edge for name in context for edge in dict.fromkeys(splits[name])]
    shown = split in context  # otherwise no triple of the split is visible
    edges = [edge for edge in every if shown or edge not in own]
    train = {end for h, _, t in splits["train"] for end in (h, t)}
    degree = {e: sum(e in (h, t) for h, _, t in edges) for e in range(6)}
    order = ["train", "val", "test"]
    candidates = {end for name in order[: order.index(split) + 1] for h, _, t in splits[name] for end in (h, t)}
    return {
        "triples": len(own),
        "reverse": sum(h != t and (t, r, h) in edges for h, r, t in own),
        "other_edge": sum(any({a, b} == {h, t} and (a, p, b) != (h, r, t) for a, p, b in edges) for h, r, t in own),
        "repeated": sum(every.count(triple) > shown for triple in own),
        "ends_new": {str(n): sum((h not in train) + (t not in train) == n for h, _, t in own) for n in (0, 1, 2)},
        "candidates": len(candidates),
        "candidates_without_edge": sum(degree[e] == 0 for e in candidates),
        "ends_without_edge_when_target_hidden": sum((degree[h] == shown) + (degree[t] == shown) for h, _, t in own),
    }


@settings(max_examples=80, deadline=None)
@given(splits_of_triples)
def test_audit_counts_what_its_definitions_say(splits: Splits) -> None:
    named = {name: [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in triples] for name, triples in splits.items()}
    graph = KnowledgeGraph.from_triples(named)
    before: list[str] = []
    for split in ("train", "val", "test"):
        before.append(split)
        for context, names in (("cumulative", before), ("own-split", [split]), ("before", before[:-1])):
            found = audit(graph, context)[split]  # type: ignore[arg-type]
            by_relation = found.pop("relations")
            assert found == audit_oracle(splits, split, names)
            for count in ("triples", "reverse", "other_edge", "repeated"):
                assert sum(row[count] for row in by_relation) == found[count]


def test_ego_graph_counts_outgoing_edges_of_the_split_over_its_entities() -> None:
    graph = KnowledgeGraph.from_triples(
        {"train": [("a", "r", "b"), ("a", "s", "b"), ("a", "r", "c")], "test": [("d", "r", "a"), ("d", "r", "d")]}
    )
    found = statistics(graph)["splits"]
    assert found["train"]["ego_graph_mean"] == 1.0 and found["train"]["ego_graph_std"] == pytest.approx(np.sqrt(2))
    assert (found["test"]["entities"], found["test"]["ego_graph_mean"], found["test"]["self_loops"]) == (1, 1.0, 1)


PAPER = {  # relations; entities, triples, mean and σ of the ego-graph size for train, val, test; leaks of test
    "WN18RR_IND": (
        11,
        {
            "train": (32_755, 69_585, 2.12, 3.15),
            "val": (4_094, 11_381, 1.17, 1.33),
            "test": (4_456, 12_037, 1.18, 1.35),
        },
        {"reverse": 4_980, "other_edge": 5_010, "both_new": 812},
    ),
    "FB15k-237_IND": (
        237,
        {
            "train": (11_633, 215_082, 18.49, 28.91),
            "val": (1_454, 42_164, 4.70, 10.63),
            "test": (2_416, 52_870, 4.97, 12.29),
        },
        {"reverse": 6_456, "other_edge": 17_626, "both_new": 6_490},
    ),
}


@pytest.mark.parametrize("name", PAPER)
def test_real_datasets_have_the_figures_of_the_paper(name: str) -> None:
    if not (REAL_DATA / name).is_dir():
        pytest.skip(f"{name} is third-party data that is not here")
    graph = open_graph(REAL_DATA / name)
    relations, splits, leaks = PAPER[name]
    found = statistics(graph)
    assert found["relations"] == relations
    for split, (entities, triples, mean, deviation) in splits.items():
        facts = found["splits"][split]
        assert (facts["entities"], facts["triples"]) == (entities, triples)
        assert (round(facts["ego_graph_mean"], 2), round(facts["ego_graph_std"], 2)) == (mean, deviation)
    test = audit(graph)["test"]
    assert {"reverse": test["reverse"], "other_edge": test["other_edge"], "both_new": test["ends_new"]["2"]} == leaks
