"""Test triples may be added, removed, relabelled or moved: nothing that is chosen or fitted changes by a bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnftg
from fnftg.cli import main
from fnftg.kg.graph import KnowledgeGraph, Triples

ENTITIES, RELATIONS = 60, 3
COLOURS = ("red", "blue", "green", "grey")
TEXTS = {f"e{i}": f"{COLOURS[i % 4]} thing{i}, beside thing{(7 * i + 1) % ENTITIES}" for i in range(ENTITIES)}
RANDOM = np.random.default_rng(1)
DRAWN = [  # many answers to a query, so that a test triple is often another answer to a val query
    (f"e{h}", f"r{r}", f"e{t}")
    for h, r, t in zip(
        RANDOM.integers(0, ENTITIES, 900), RANDOM.integers(0, RELATIONS, 900), RANDOM.integers(0, 12, 900), strict=True
    )
]
TRIPLES = list(dict.fromkeys(DRAWN))
GRAPH = KnowledgeGraph.from_triples(
    {"train": TRIPLES[:450], "val": TRIPLES[450:570], "test": TRIPLES[570:]},
    TEXTS,
    {f"r{i}": f"relation {i}" for i in range(RELATIONS)},
)
TEXT = {"encoder": "scratch:L-1_H-32_A-2", "width": 16}
CHANGED_FILES = ("model.safetensors", "calibration.json", "probability.json")


def changed(change: Callable[[Triples], dict[str, Triples]]) -> KnowledgeGraph:
    """The graph with other splits from test on."""
    splits = {name: GRAPH.triples(name) for name in ("train", "val")}
    return GRAPH.with_splits({**splits, **change(GRAPH.triples("test").copy())}, {})


def added(test: Triples) -> dict[str, Triples]:
    """Test also has an answer to each query of val that is wrong so far."""
    more = GRAPH.triples("val").copy()
    more[:, 2] = (more[:, 2] + 1) % ENTITIES
    return {"test": np.concatenate([test, more])}


def moved(test: Triples) -> dict[str, Triples]:
    test[:, [0, 2]] = (test[:, [0, 2]] + 5) % ENTITIES
    return {"test": test}


def relabelled(test: Triples) -> dict[str, Triples]:
    test[:, 1] = (test[:, 1] + 1) % RELATIONS
    return {"test": test}


CHANGES: dict[str, Callable[[Triples], dict[str, Triples]]] = {
    "added": added,
    "removed": lambda test: {},
    "one removed": lambda test: {"test": test[1:]},
    "relabelled": relabelled,
    "of other entities": moved,
    "partly support, and a later split": lambda test: {"test": test[:40], "test-support": test[40:], "zzz": test[:9]},
}


def learned(folder: Path, graph: KnowledgeGraph, query: str = "vector") -> dict[str, Any]:
    """What training, the fit of evidence, `calibrate` and the choice of a threshold leave behind."""
    store, run = graph.save(folder / "graph"), folder / "run"
    fields = {"model": {"text": {**TEXT, "query": query}}, "training": {"epochs": 3, "batch_size": 64}}
    fnftg.train(store, "frugal", output=run, **fields)  # type: ignore[arg-type]
    assert main(["calibrate", str(run), "--share", "0.2"]) == 0
    found: dict[str, Any] = {name: (run / "checkpoint" / name).read_bytes() for name in CHANGED_FILES}
    metrics = json.loads((run / "checkpoint" / "metrics.json").read_text())
    return found | {name: metrics[name] for name in ("epoch", "val", "evidence")}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNFTG_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return learned(tmp_path_factory.mktemp("as-it-is"), GRAPH)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_test_triple_changes_a_weight_a_curve_or_a_probability(
    change: Callable[[Triples], dict[str, Triples]], expected: dict[str, Any], tmp_path: Path
) -> None:
    found = learned(tmp_path, changed(change))
    assert [name for name in expected if found[name] != expected[name]] == []


def test_weights_of_a_system_that_reads_query_texts_do_not_depend_on_test(tmp_path: Path) -> None:
    """Features of queries are encoded in batches, which may differ in the last bits if test is among them."""
    found = [learned(tmp_path / name, changed(CHANGES[name]), "text") for name in ("added", "removed")]
    assert found[0] == found[1]


def test_a_val_triple_does_change_them(expected: dict[str, Any], tmp_path: Path) -> None:
    splits = {**GRAPH.splits, "val": GRAPH.triples("val")[1:]}
    found = learned(tmp_path, GRAPH.with_splits(splits, {}))
    assert {name for name in expected if found[name] != expected[name]} >= {*CHANGED_FILES, "val"}


def test_the_threshold_of_classification_does_not_depend_on_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned(tmp_path / "one", GRAPH)
    run, thresholds = str(tmp_path / "one" / "run"), []
    for name in ("one removed", "relabelled", "partly support, and a later split"):
        graph = changed(CHANGES[name]).save(tmp_path / f"{name[:4]}-graph")
        capsys.readouterr()
        assert main(["evaluate", run, "--task", "classification", "--graph", str(graph.path), "--json"]) == 0
        thresholds.append(json.loads(capsys.readouterr().out)["threshold"])
    assert len(set(thresholds)) == 1


def test_calibrate_uses_no_triple_that_the_evidence_weights_were_fitted_on(
    expected: dict[str, Any],
) -> None:
    about, fit = json.loads(expected["calibration.json"])["about"], expected["evidence"]
    assert about["split"] == "val" and about["part"] == "held-out"
    assert about["queries"] == 2 * fit["held_out"] and fit["fitted"] + fit["held_out"] == len(GRAPH.triples("val"))
