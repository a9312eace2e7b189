"""Every example runs, is short, uses public names alone, and prints what it should."""

from __future__ import annotations

import ast
import io
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from conftest import ROOT

import fnftg

EXPECTED = {
    "own_graph": ["1. ", "(known)"],
    "new_entity": ["move?\n   air", "linked to it?\n   air", "enemy"],
    "compare_systems": ["FnF-TG   MRR", "BOW      MRR", "chance   MRR"],
}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_every_example_is_here() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(EXPECTED)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_uses_the_public_names_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fnftg":
            assert node.module == "fnftg" and {alias.name for alias in node.names} <= set(fnftg.PUBLIC)
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.startswith("fnftg.")]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fnftg":
            assert node.attr in fnftg.PUBLIC


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(path.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path)])
    with redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(path), run_name="__main__")
    for words in EXPECTED[path.stem]:
        assert words in printed.getvalue(), printed.getvalue()
