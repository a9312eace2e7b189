"""Files of released format versions are read, with the same answers, by every later version; others get one sentence."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fnftg
from fnftg.ego.context import GraphContext
from fnftg.errors import FnftgError
from fnftg.evidence.evidence import Evidence
from fnftg.kg import store
from fnftg.models import pretrained
from fnftg.predict import triple_probability
from fnftg.training.loop import read_config

LEGACY = Path(__file__).parent / "legacy"
spec = importlib.util.spec_from_file_location("make_legacy", LEGACY / "make.py")
assert spec is not None and spec.loader is not None
make: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


@pytest.mark.parametrize("stored", sorted(LEGACY.glob("checkpoint-version-*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("graph", sorted(LEGACY.glob("store-version-*")), ids=lambda path: path.stem)
def test_checkpoint_and_store_of_every_version_give_the_answers_that_they_gave(
    stored: Path, graph: Path, tmp_path: Path
) -> None:
    shutil.copytree(stored.with_suffix(""), tmp_path / "model")
    shutil.copytree(graph, tmp_path / "graph")
    found, expected = make.answers(tmp_path / "model", tmp_path / "graph"), json.loads(stored.read_text())
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        numbers = {id_: (pytest.approx(score, abs=1e-4), pytest.approx(likely, abs=1e-3)) for id_, score, likely in one}
        assert numbers == {id_: (score, rest[0] if rest else None) for id_, score, *rest in other}


@pytest.mark.parametrize("stored", sorted(LEGACY.glob("probability-version-*")), ids=lambda path: path.name)
def test_probabilities_of_triples_of_every_version_are_those_that_they_were(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(make.MODEL, tmp_path / "model")
    shutil.copy(stored / "probability.json", tmp_path / "model")
    found, expected = (
        make.probabilities(tmp_path / "model", make.GRAPH),
        json.loads((stored / "expected.json").read_text()),
    )
    assert found == pytest.approx(expected, abs=1e-4) and max(filter(None, expected)) > 2 * min(filter(None, expected))


def test_mentions_of_an_older_checkpoint_are_found_in_whole_texts(tmp_path: Path) -> None:
    """Its config does not say how many words are read, and the names come after the words that the encoder reads."""
    folder = shutil.copytree(make.MODEL, tmp_path / "model")
    assert "mention_words" not in json.loads((folder / "config.json").read_text())["model"]["evidence"]
    text = "{}, " + 40 * "a very " + "good friend of {}"
    texts = {"ann": text.format("Ann", "Bob"), "cleo": text.format("Cleo", "Dora"), "bob": "Bob", "dora": "Dora"}
    triples = [("ann", "knows", "bob"), ("cleo", "knows", "dora"), ("bob", "parent_of", "dora")]
    graph = fnftg.KnowledgeGraph.from_triples({"train": triples}, texts, {"parent_of": "is a parent of"})
    model: Any = pretrained.from_pretrained(folder)
    context = GraphContext.of(model.texts(graph), graph.triples("train"))
    centres, labels = graph.triples("train")[:1, 0], graph.triples("train")[:1, 1]
    new = Evidence(replace(model.config.evidence, mention_words=None), model.width, 2)  # as models are made now
    for evidence, found in ((model.evidence, True), (new, False)):
        table = evidence.table(context, centres, labels)
        assert table.features[:, table.columns["mentions"]].any() == found


def test_a_run_of_an_older_version_is_resumed_with_mentions_in_whole_texts(tmp_path: Path) -> None:
    for evidence, words in (({"sources": ["mentions"]}, 0), ({"sources": ["mentions"], "mention_words": None}, None)):
        config = {"model": {"evidence": evidence}, "system": "fnf"}
        (tmp_path / "config.json").write_text(json.dumps({"graph": "somewhere", "config": config}))
        assert read_config(tmp_path).model.evidence.mention_words == words  # type: ignore[union-attr]


def test_an_older_checkpoint_is_refused_in_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    shutil.copytree(LEGACY / "checkpoint-version-2", tmp_path / "model")
    with pytest.raises(
        FnftgError, match=r"version 2, written by an older version .*: train it again, or .* fnftg 0\.1\.$"
    ):
        fnftg.load(tmp_path / "model", LEGACY / "store-version-1")


def test_an_older_calibration_is_refused_in_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    shutil.copytree(make.MODEL, tmp_path / "model")
    path = tmp_path / "model" / "calibration.json"
    value = {**json.loads(path.read_text()), "version": 1}
    del value["checksum"]  # as version 1 had none
    path.write_text(json.dumps(value))
    with pytest.raises(FnftgError, match="another version of fnftg: run fnftg calibrate again"):
        fnftg.load(tmp_path / "model", make.GRAPH)


def test_every_version_there_ever_was_has_a_sample() -> None:
    assert {path.name for path in LEGACY.glob("store-*")} == {f"store-version-{n + 1}" for n in range(store.VERSION)}
    checkpoints = {int(path.name.split("-")[2]) for path in LEGACY.glob("checkpoint-version-*") if path.is_dir()}
    assert checkpoints == set(range(2, pretrained.VERSION + 1))  # 1 was never released
    probabilities = {path.name for path in LEGACY.glob("probability-*")}
    assert probabilities == {f"probability-version-{n + 1}" for n in range(triple_probability.VERSION)}
    assert make.GRAPH.is_dir() and make.MODEL.is_dir() and make.ANSWERS.is_file()


@pytest.mark.parametrize("version", [1, 2, 99])
def test_other_versions_of_a_checkpoint_get_one_sentence(version: int, tmp_path: Path) -> None:
    shutil.copytree(make.MODEL, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "version": version}))
    with pytest.raises(FnftgError, match=rf"version {version}") as refused:
        fnftg.from_pretrained(tmp_path / "model")
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


@pytest.mark.parametrize("version", [2, 99])
def test_other_versions_of_a_store_get_one_sentence(version: int, tmp_path: Path) -> None:
    shutil.copytree(make.GRAPH, tmp_path / "graph")
    manifest = json.loads((tmp_path / "graph" / "manifest.json").read_text())
    (tmp_path / "graph" / "manifest.json").write_text(json.dumps({**manifest, "version": version}))
    with pytest.raises(FnftgError, match=rf"version {version}") as refused:
        fnftg.KnowledgeGraph.open(tmp_path / "graph")
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")
