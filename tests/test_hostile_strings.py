"""Ids, names and texts come from others: nothing in them reaches the terminal as a command."""

from __future__ import annotations

import ast
import json
import unicodedata
from pathlib import Path

import pytest
from conftest import ROOT, untrained_run

from fnftg.cli import main
from fnftg.console import ESCAPED, Progress, harmless, log, print_json, print_table, print_text
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph

ESC, C1, BIDI = "\x1b]0;title\x07\x1b[2J", "\x9b31m", "\u202etxt.exe\u2066"
HOSTILE = f"a{ESC}b{C1}c{BIDI}d\x7f\u2028"


def assert_obeys_nothing(text: str) -> None:
    assert not [
        character
        for character in text
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    ], text
    assert not set(text) & set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), text


def test_every_way_to_print_is_harmless(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FNFTG_PROGRESS_SECONDS", "0")
    log(HOSTILE)
    print_text(HOSTILE)
    print_json({HOSTILE: HOSTILE})
    print_table(HOSTILE, ["id", HOSTILE], [[HOSTILE, 1], ["b\nc", 2]], HOSTILE)
    with Progress(HOSTILE, 2, HOSTILE) as shown:
        shown.advance(1, HOSTILE)
    captured = capsys.readouterr()
    for text in captured:
        assert_obeys_nothing(text)
    assert captured.err.splitlines()[0] == r"a\x1b]0;title\x07\x1b[2Jb\x9b31mc\u202etxt.exe\u2066d\x7f\u2028"
    assert r"b\nc" in captured.out and r"\x1b[2J" in captured.out


def test_words_of_all_scripts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    words = "Zürich 東京 القاهرة नई दिल्ली 👩‍🔬 :dog: [red]x[/red]"
    print_table("", ["name"], [[words]])
    assert words in capsys.readouterr().out and harmless(words) == words


def test_json_is_harmless_and_reads_back_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": " ".join(map(chr, ESCAPED)) + "Zürich\\"}
    print_json(value)
    out = capsys.readouterr().out
    assert_obeys_nothing(out)
    assert json.loads(out) == value and "Zürich" in out


@pytest.mark.parametrize("arguments", [["predict", "run", f"--x{HOSTILE}"], ["export", "g", "--format", HOSTILE]])
def test_errors_about_options_are_harmless(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    printed = capsys.readouterr().err
    assert exit_.value.code == 2 and "x1b[2J" in printed
    assert_obeys_nothing(printed)


def test_errors_are_harmless(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise FnftgError(f"The file {HOSTILE} is bad.")

    monkeypatch.setattr("fnftg.cli.run", fail)
    assert main(["audit"]) == 1
    assert_obeys_nothing(capsys.readouterr().err)


def test_only_the_console_prints() -> None:
    for path in sorted((ROOT / "src").rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        prints = [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
        assert not prints or path.name == "console.py", f"{path.relative_to(ROOT)}, lines {prints}"


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a graph all of whose strings want to be obeyed."""
    folder = tmp_path_factory.mktemp("hostile")
    bad = f"{ESC}{C1}{BIDI}"
    triples = [(f"e{i}{bad}", f"r{bad}", f"e{i + 1}{bad}") for i in range(8)]
    texts = {f"e{i}{bad}": f"Entity {i} {bad}, near Entity {i + 1} {bad}" for i in range(9)}
    graph = KnowledgeGraph.from_triples({"train": triples[:6], "val": triples[6:7], "test": triples[7:]}, texts, {})
    return untrained_run(graph, folder)


def test_no_command_lets_a_graph_command_the_terminal(hostile_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad = f"{ESC}{C1}{BIDI}"
    graph, head = str(hostile_run.parent / "graph"), f"e0{bad}"
    commands = {
        ("audit", graph): 0,
        ("predict", str(hostile_run), "--head", head, "--relation", f"r{bad}", "--reasons", "--known"): 0,
        ("predict", str(hostile_run), "--head", head, "--relation", f"r{bad}", "--json"): 0,
        ("predict", str(hostile_run), "--head", f"Entity {bad}", "--relation", f"r{bad}"): 1,
        ("explain", str(hostile_run), head, f"r{bad}", f"e1{bad}"): 0,
        ("evaluate", str(hostile_run)): 0,
    }
    for command, code in commands.items():
        assert main(list(command)) == code
        captured = capfd.readouterr()
        for text in captured:
            assert_obeys_nothing(text)
        assert r"\x1b" in captured.out + captured.err or r"\u001b" in captured.out or command[0] == "audit", command
