"""The peers that benchmarks/discovery.py compares with are listed as their own scores say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fnftg.kg import KnowledgeGraph

ENTITIES = 40


@pytest.fixture
def graph() -> KnowledgeGraph:
    """A symmetric relation, of whose reverse edges every third is missing, and another relation."""
    order = [f"e{row}" for row in np.random.default_rng(0).permutation(ENTITIES)]
    pairs = list(zip(order[::2], order[1::2], strict=True))
    triples = [(head, "symmetric", tail) for head, tail in pairs]
    triples += [(tail, "symmetric", head) for number, (head, tail) in enumerate(pairs) if number % 3]
    triples += [(f"e{row}", "next", f"e{row + 1}") for row in range(0, ENTITIES, 2)]
    return KnowledgeGraph.from_triples({"train": triples})


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module


@pytest.mark.parametrize("name", ["ComplEx", "RotatE"])
def test_pykeens_list_is_sorted_by_pykeens_scores(graph: KnowledgeGraph, load, name: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import torch

    links: ModuleType = load("pykeen_links")
    model = links.trained(graph, name, 0.01, tmp_path)
    known = {tuple(triple) for triple in graph.all_triples().tolist()}
    triples = [
        (head, relation, tail)
        for relation in range(2)
        for head in sorted({one[0] for one in known if one[1] == relation})
        for tail in sorted({one[2] for one in known if one[1] == relation})
        if head != tail and (head, relation, tail) not in known
    ]
    with torch.inference_mode():
        scores = model.score_hrt(torch.tensor(triples)).view(-1).numpy()
    best = np.argsort(-scores, kind="stable")[:50]
    found = links.likeliest(graph, model, 50)[:50]
    np.testing.assert_allclose(found["score"], scores[best], atol=1e-5)
    assert set(found[["head", "relation", "tail"]].tolist()) <= set(triples)
    again = links.trained(graph, name, 0.01, tmp_path)
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[key])


def test_the_rule_miner_finds_the_reverse_edges_of_a_symmetric_relation(graph: KnowledgeGraph, load) -> None:  # type: ignore[no-untyped-def]
    found = load("rule_miner").likeliest(graph, 50)
    known = {tuple(triple) for triple in graph.all_triples().tolist()}
    symmetric = graph.relations.find("symmetric")
    missing = {(tail, symmetric, head) for head, relation, tail in known if relation == symmetric} - known
    assert missing and set(found[["head", "relation", "tail"]][: len(missing)].tolist()) == missing
