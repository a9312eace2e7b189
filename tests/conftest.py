"""Graphs and commands that several tests use."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # several workers share the cores; to be said before torch is loaded
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from fnftg.kg import KnowledgeGraph

if TYPE_CHECKING:
    from fnftg.predict.small_network import Network
    from fnftg.predict.triple_probability import TripleProbability

ROOT = Path(__file__).parents[1]
REAL_DATA = ROOT.parent / "shared" / "data"
FAMILY = {
    "train": [
        ("ann", "parent_of", "bob"),
        ("bob", "parent_of", "cleo"),
        ("ann", "knows", "ann"),
        ("bob", "knows", "ann"),
    ],
    "val": [("dora", "parent_of", "ann")],
    "test": [("eve", "knows", "dora"), ("dora", "knows", "eve")],
}
TEXTS = {
    "ann": "Ann, a baker",
    "bob": "Bob, her son",
    "cleo": "Cleo",
    "dora": "Dora, her mother",
    "eve": "Eve, a friend",
}
RELATION_TEXTS = {"parent_of": "is a parent of", "knows": "knows"}


def needs_package(name: str) -> pytest.MarkDecorator:
    """Skips a test where the package is not installed, except in CI, where the test then fails."""
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing and not os.environ.get("CI"), reason=f"{name} is not installed")


@pytest.fixture(autouse=True)
def own_data_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests share one data home of their own, so that what is made once is made once."""
    monkeypatch.setenv("FNFTG_HOME", str(tmp_path_factory.getbasetemp() / "data-home"))


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is written in this process need not survive a power cut; commands in processes of their own do sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fnftg.files._sync", lambda path: None)
        yield


@pytest.fixture
def family() -> KnowledgeGraph:
    return KnowledgeGraph.from_triples(FAMILY, TEXTS, RELATION_TEXTS)


@pytest.fixture
def family_folder(tmp_path: Path) -> Path:
    """The family in BLP's layout."""
    folder = tmp_path / "family"
    folder.mkdir()
    for split, triples in FAMILY.items():
        name = "dev" if split == "val" else split
        (folder / f"ind-{name}.tsv").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    (folder / "entity2text.txt").write_text("".join(f"{id_}\t{text}\n" for id_, text in TEXTS.items()))
    (folder / "relation2text.txt").write_text("".join(f"{id_}\t{text}\n" for id_, text in RELATION_TEXTS.items()))
    return folder


def untrained_run(graph: KnowledgeGraph, folder: Path) -> Path:
    """The folder of a run as training leaves it, with a tiny model that has learned nothing."""
    import torch

    from fnftg.models.fnf import FnF, FnFConfig
    from fnftg.models.pretrained import save_pretrained
    from fnftg.text.encoders import TextConfig, load_encoder
    from fnftg.text.rows import GraphLines

    graph.save(folder / "graph")
    encoder = load_encoder("scratch:L-1_H-32_A-2", GraphLines(graph))
    torch.manual_seed(0)
    model = FnF(FnFConfig(text=TextConfig(encoder=encoder.name, width=16)), encoder).eval()
    (folder / "run").mkdir()
    save_pretrained(model, folder / "run" / "checkpoint")
    config = {"graph": str(folder / "graph"), "config": {"training": {"protocol": "own-split", "seed": 0}}}
    (folder / "run" / "config.json").write_text(json.dumps(config))
    return folder / "run"


def probability_by_hand(screen: float = 9.0, lower: float = 0.0) -> TripleProbability:
    """P(triple) of weights that make many triples likely. Every feature counts, and entities without edges differ.

    `screen` is the intercept of the first look, which lets everything pass by default; `lower` lowers all log-odds.
    """
    import numpy as np

    from fnftg.predict.logistic import Logistic
    from fnftg.predict.triple_probability import TRIPLE_FEATURES, QueryModel, TripleModel, TripleProbability

    def model(intercept: float, shift: float, *weights: float) -> Logistic:
        return Logistic(np.array(weights), intercept, np.zeros(0), shift)

    def network(intercept: float, shift: float, *weights: float) -> Network:
        return network_by_hand(intercept, shift, [*weights, *[0.05] * (len(TRIPLE_FEATURES) - len(weights))])

    return TripleProbability(
        QueryModel(
            model(2.4, -0.3, -0.2, 0.4, 0.5, 0.3, 1.5, 0.1, 0.2, -0.1),
            model(1.5, 0.0, 0.0, 0.0, 0.1, 0.4, 0.0, 0.0, 0.0, 0.0),
        ),
        TripleModel(
            network(0.4 - lower, -0.2, 0.6, 0.4, 0.3, 0.2, 0.9, 0.7),
            network(0.1 - lower, 0.0, 0.5, 0.3, 0.4, 0.1, 0.6, 0.8),
        ),
        QueryModel(model(screen, 0.0, 0.1, 0.1, 0.1, 0.1), model(screen, 0.0, 0.1, 0.1, 0.1, 0.1)),
        [],
        {"made": "by hand"},
    )


def network_by_hand(intercept: float, shift: float, weights: Sequence[float]) -> Network:
    """Two equal networks that are almost linear: small inputs of tanh, scaled back at the end."""
    import numpy as np

    from fnftg.predict.small_network import HIDDEN, Network

    first, second, last = np.zeros((HIDDEN, len(weights))), np.zeros((HIDDEN, HIDDEN)), np.zeros((1, HIDDEN))
    first[0], second[0, 0], last[0, 0] = np.array(weights) / 100, 1.0, 100.0
    layers = [first, np.zeros(HIDDEN), second, np.zeros(HIDDEN), last, np.zeros(1)]
    return Network(np.zeros(len(weights)), np.ones(len(weights)), [layers, layers], 1.0, intercept, shift)


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run() -> Run:
    """Runs `fnftg …` as a user would, in a process of its own."""

    def run_command(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fnftg", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), **options)  # type: ignore[call-overload, no-any-return]

    return run_command
