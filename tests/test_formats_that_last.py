"""Files of released format versions are read, with the same answers, by every later version; others get one sentence."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import fnftg
from fnftg.errors import FnftgError

FIXTURES = Path(__file__).parent / "fixtures"
spec = importlib.util.spec_from_file_location("make_fixtures", FIXTURES / "make.py")
assert spec is not None and spec.loader is not None
make: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


@pytest.mark.parametrize("stored", sorted(FIXTURES.glob("checkpoint-version-*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("graph", sorted(FIXTURES.glob("store-version-*")), ids=lambda path: path.stem)
def test_checkpoint_and_store_of_every_version_give_the_answers_that_they_gave(
    stored: Path, graph: Path, tmp_path: Path
) -> None:
    shutil.copytree(stored.with_suffix(""), tmp_path / "model")
    shutil.copytree(graph, tmp_path / "graph")
    found, expected = make.answers(tmp_path / "model", tmp_path / "graph"), json.loads(stored.read_text())
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert {id_: pytest.approx(score, abs=1e-4) for id_, score in one} == dict(other)


def test_present_versions_have_fixtures() -> None:
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
