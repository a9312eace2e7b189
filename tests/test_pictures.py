"""The pictures of the README and the pages are those that `make pictures` makes, of the default recipe."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import ROOT

from fnftg.training.recipes import DEFAULT, recipe_fields

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SHOWN = re.compile(r"!\[[^\]]*\]\(([^)\s]+\.(?:svg|png))\)|<img[^>]*src=\"([^\"]+\.(?:svg|png))\"")


def draw(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, DOCS / "drawings", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=settings)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The drawings as the script makes them, by their path in docs/."""
    folder = tmp_path_factory.mktemp("drawings")
    done = draw("-o", folder)
    assert done.returncode == 0, done.stderr
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.svg")}


@pytest.fixture(scope="module")
def made_with() -> dict[str, Any]:
    return json.loads((DOCS / "screenshots" / "made-with.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_every_drawing_is_what_the_script_draws(drawn: dict[str, bytes]) -> None:
    stale = [name for name, content in drawn.items() if (DOCS / name).read_bytes() != content]
    assert not stale, f"run python docs/drawings: {', '.join(stale)}"
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("pictures/*")} == set(drawn) - {"picture.svg"}


def test_drawings_need_nothing_from_elsewhere(drawn: dict[str, bytes]) -> None:
    for name, content in drawn.items():
        root = ElementTree.fromstring(content)
        assert root.get("role") == "img" and root.get("aria-label"), name
        text = content.decode().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|href|@import|<script|<image", text), name


def test_every_picture_that_is_shown_is_made_by_the_script(drawn: dict[str, bytes], made_with: dict[str, Any]) -> None:
    made = {DOCS / name for name in drawn} | {DOCS / "screenshots" / name for name in made_with["screenshots"]}
    for page in PAGES:
        for found in SHOWN.finditer(page.read_text(encoding="utf-8")):
            path = (page.parent / (found[1] or found[2])).resolve()
            assert path in made, f"{page.name} shows {path.name}, which make pictures does not make"
            assert path.is_file(), path


def test_screenshots_show_the_default_recipe_as_it_is_today(made_with: dict[str, Any]) -> None:
    assert made_with["recipe"] == DEFAULT and made_with["fields"] == recipe_fields(DEFAULT), "run make pictures"
    assert re.fullmatch(r"[0-9a-f]{64}", made_with["checkpoint"]) and made_with["version"]
    folder = DOCS / "screenshots"
    assert {path.name for path in folder.glob("*.png")} == set(made_with["screenshots"])
    assert all((folder / name).stat().st_size < 200_000 for name in made_with["screenshots"])


def test_the_picture_of_the_readme_asks_what_the_demo_asks(made_with: dict[str, Any]) -> None:
    assert f'"{made_with["prediction"]["text"]}"' in (ROOT / "Makefile").read_text()


def test_without_a_browser_one_sentence_says_what_is_missing(tmp_path: Path) -> None:
    done = draw("--browser", PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "Screenshots need a browser: install chromium or google-chrome, then run make pictures again.\n"
    )
