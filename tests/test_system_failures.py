"""What the system refuses (permissions, names, memory, disk) ends in one sentence, and never after hours of work."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run, untrained_run

from fnftg.cli import main
from fnftg.kg import KnowledgeGraph, import_graph

NO_OVERRIDE = (24, 1, 0, 0, 0), (24, 2, 0, 0, 0)  # PR_CAPBSET_DROP of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


def as_ordinary_user() -> None:
    """Permissions then hold for root as well; others lack both capabilities already."""
    for arguments in NO_OVERRIDE:
        ctypes.CDLL(None).prctl(*arguments)


def assert_one_sentence(error: str, *parts: str) -> None:
    assert error.startswith("fnftg: ") and error.count("\n") == 1, error
    for part in parts:
        assert part in error


def test_a_source_that_may_not_be_read_gets_one_sentence(family_folder: Path, tmp_path: Path, run: Run) -> None:
    (family_folder / "ind-train.tsv").chmod(0)
    done = run("import", family_folder, "-o", tmp_path / "store", preexec_fn=as_ordinary_user)
    assert done.returncode == 1 and not (tmp_path / "store").exists()
    assert_one_sentence(done.stderr, "ind-train.tsv", "Permission denied")


def test_a_place_that_may_not_be_written_gets_one_sentence(family_folder: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    done = run("import", family_folder, "-o", tmp_path / "closed" / "store", preexec_fn=as_ordinary_user)
    assert done.returncode == 1
    assert_one_sentence(done.stderr, "closed", "is not writable")


@pytest.mark.parametrize("command", [["import", "{source}", "-o", "{long}"], ["data", "stats", "{long}"]])
def test_a_name_that_is_too_long_gets_one_sentence(
    command: list[str], family_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"source": family_folder, "long": tmp_path / ("x" * 300)}
    assert main([word.format(**names) for word in command]) == 1
    assert_one_sentence(capsys.readouterr().err, "xxx")


def test_a_store_that_may_not_be_read_gets_one_sentence(family_folder: Path, tmp_path: Path, run: Run) -> None:
    import_graph(family_folder, tmp_path / "store")
    (tmp_path / "store" / "entities.ids.txt").chmod(0)
    done = run("data", "stats", tmp_path / "store", preexec_fn=as_ordinary_user)
    assert done.returncode == 1
    assert_one_sentence(done.stderr, "entities.ids.txt", "Permission denied")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "Out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried…"), "Out of memory"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deep"),
        (OSError(30, "Read-only file system", "/data/x"), "/data/x cannot be read or written: Read-only file system."),
        (OSError(28, "No space left on device"), "The disk is full"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(
    error: Exception, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fnftg.cli.run", raising(error))
    assert main(["audit"]) == 1
    assert_one_sentence(capsys.readouterr().err, words)


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ZeroDivisionError(), RuntimeError("shapes differ")):
        monkeypatch.setattr("fnftg.cli.run", raising(error))
        with pytest.raises(type(error)):
            main(["audit"])


def raising(error: Exception) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise error

    return fail


@pytest.fixture(scope="module")
def closed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that may be read, but not written to."""
    triples = [(f"e{i}", "r", f"e{(3 * i + 1) % 12}") for i in range(12)]
    texts = {f"e{i}": f"Entity {i}, a thing" for i in range(12)}
    splits = {"train": triples[:8], "val": triples[8:10], "test": triples[10:]}
    folder = untrained_run(KnowledgeGraph.from_triples(splits, texts, {}), tmp_path_factory.mktemp("closed"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return folder


def test_an_evaluation_that_cannot_be_kept_is_printed(closed_run: Path, run: Run) -> None:
    done = run("evaluate", closed_run, "--json", preexec_fn=as_ordinary_user)
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["mrr"] <= 1
    assert len([line for line in done.stderr.splitlines() if "were not saved" in line]) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["answers/*-*", "home/texts/*", "answers"])
def test_a_cache_of_another_user_is_never_an_error(
    closed: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without any permission stands for one of another user with mode 0700."""
    triples = [(f"e{i}", "r", f"e{(3 * i + 1) % 12}") for i in range(12)]
    folder = untrained_run(KnowledgeGraph.from_triples({"train": triples}), tmp_path)
    monkeypatch.setenv("FNFTG_HOME", str(folder / "home"))
    question = ("predict", folder, "--head", "e1", "--relation", "r", "--json", "--graph", tmp_path / "graph")
    expected = run(*question)
    assert expected.returncode == 0, expected.stderr
    places = [path for path in folder.glob(closed) if path.is_dir()]
    for place in places:
        place.chmod(0)
    found = run(*question, preexec_fn=as_ordinary_user)
    for place in places:
        place.chmod(0o755)
    assert places and found.returncode == 0 and found.stdout == expected.stdout, found.stderr
    assert "cannot be read: Permission denied" in found.stderr


@pytest.mark.parametrize("command", ["report", "calibrate", "evaluate", "update"])
def test_what_cannot_be_written_is_not_computed(
    command: str, closed_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fnftg.ranking.runs.os.access", lambda *_: False)  # as of a user without rights
    monkeypatch.setattr("fnftg.models.link_predictor.LinkPredictor.texts", raising(ZeroDivisionError()))
    own = {"evaluate": ["--save-ranks", str(closed_run / "ranks.parquet")], "update": ["--texts", "new.txt"]}
    options = own.get(command, [])
    assert main([command, str(closed_run), *options]) == 1
    assert_one_sentence(capsys.readouterr().err, "cannot be written to", str(closed_run))
