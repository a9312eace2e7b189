"""Outputs on the pages are written by docs/transcripts.py, and come from one trained model."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

DOCS = ROOT / "docs"


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("docs_transcripts", DOCS / "transcripts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_transcripts"] = module
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Any]:
    made = SCRIPT.Shell(tmp_path / "pages")
    yield made
    made.stop()


def fenced(language: str, body: str = "") -> str:
    return f"```{language}\n{body}```\n"


def test_a_page_gets_the_outputs_of_its_commands_in_order(shell: Any) -> None:
    page = (
        f'```text title="in.txt"\nwords\n```\n\n{fenced("sh", "export NAME=x" + chr(10))}\n'
        f"{fenced('sh', 'cat in.txt; echo $NAME; pwd' + chr(10))}\n{fenced('text', 'old' + chr(10))}\n"
        f"{fenced('python', 'print(1 + 1)' + chr(10))}\n{fenced('text')}"
    )
    expected = page.replace("old\n", "words\nx\npages\n")
    made = SCRIPT.transcribed(page, shell).replace(f"{shell.folder.parent}/", "")
    assert made == expected[: -len("```\n")] + "2\n```\n"


def test_blocks_that_do_not_run_and_texts_that_are_no_outputs_stay(shell: Any) -> None:
    page = (
        f"<!-- not run -->\n{fenced('sh', 'false' + chr(10))}\n{fenced('text', 'kept' + chr(10))}\n"
        f"{fenced('sh', 'echo a' + chr(10))}\nProse.\n\n{fenced('text', 'kept' + chr(10))}"
    )
    assert SCRIPT.transcribed(page, shell) == page


def test_of_tabs_the_first_one_runs(shell: Any) -> None:
    tab = '=== "{}"\n\n    ```sh\n    echo {}\n    ```\n\n'
    page = f"{tab.format('One', 'one')}{tab.format('Two', 'two')}{fenced('text')}"
    assert SCRIPT.transcribed(page, shell).endswith("```text\none\n```\n")


def test_on_the_readme_only_named_commands_run(shell: Any) -> None:
    page = f"{fenced('sh', 'false' + chr(10))}\n<!-- output of: echo quokka -->\n{fenced('text')}"
    assert SCRIPT.transcribed(page, shell, only_notes=True).endswith("```text\nquokka\n```\n")


def test_a_command_that_fails_is_an_error(shell: Any) -> None:
    with pytest.raises(SystemExit, match="no such thing"):
        SCRIPT.transcribed(fenced("sh", "echo no such thing; false\n"), shell)


def test_long_outputs_are_shortened_as_their_note_says() -> None:
    output = "title\n\n  a   b\n ─────\n  1   2\n  3   4\n  5   6\n\nnote 1\nnote 2\n"
    assert SCRIPT.excerpt(output, "output: from a; to 1") == "  a   b\n ─────\n  1   2\n"
    assert SCRIPT.excerpt(output, "") == output
    assert SCRIPT.excerpt(output, "output: from note") == "note 1\nnote 2\n"
    with pytest.raises(SystemExit, match="no lines for"):
        SCRIPT.excerpt(output, "output: from nothing")


def test_json_is_shortened_and_laid_out() -> None:
    value = {"text": "x" * 100, "list": [1.23456789, 2, 3], "more": [{"key": "y" * 70}, {"key": "z" * 70}]}
    short = SCRIPT.shortened(value, 2)
    assert short == {**value, "text": "x" * SCRIPT.LONGEST_TEXT + "…", "list": [1.2346, 2, "…"]}
    lines = SCRIPT.laid_out(short).splitlines()
    assert len(lines) > 2 and all(len(line) <= SCRIPT.WIDTH for line in lines)
    assert json.loads("".join(lines).replace(" …]", ' "…"]')) == short


@pytest.mark.parametrize("page", SCRIPT.PAGES, ids=lambda page: page.name)
def test_every_output_of_the_page_is_filled_in_without_paths_of_a_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outputs = [step.output for step in SCRIPT.steps(text, page.name == "README.md") if step.output]
    assert outputs and all(block["body"].strip() for block in outputs), "run make transcripts"
    assert not re.search(r"/tmp/|/home/|/root/|/work/", text)


def test_pages_and_screenshots_show_the_same_model() -> None:
    shown = json.loads((DOCS / "screenshots" / "made-with.json").read_text(encoding="utf-8"))
    for page in ("http.md", "tutorial-service.md"):
        found = re.findall(r'"checkpoint": "([0-9a-f]{64})"', (DOCS / page).read_text(encoding="utf-8"))
        assert set(found) == {shown["checkpoint"]}, f"run make pictures: {page}"
