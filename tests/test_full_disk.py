"""A disk that fills up at any place of any command: one sentence, nothing half-written, and the next try succeeds."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fnftg.cli import main
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.training.log_file import LogFile

LIMITS = [300, 1_500, 4_000, 15_000, 60_000]  # bytes that a file may have: stands for a full disk
SMALL = ["--model.text.encoder", "scratch:L-1_H-32_A-2", "--model.text.width", "16", "--training.epochs", "2"]
SMALL += ["--training.batch_size", "16", "--training.log_every", "1", "--training.save_every", "1"]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph and a calibrated run."""
    folder = tmp_path_factory.mktemp("disk")
    triples = [(f"e{i % 90}", f"r{i % 3}", f"e{(7 * i + 1) % 90}") for i in range(150)]
    texts = {f"e{i}": f"Entity {i}, a thing of the {'first' if i % 2 else 'second'} kind" for i in range(90)}
    splits = {"train": triples[:100], "val": triples[100:125], "test": triples[125:]}
    KnowledgeGraph.from_triples(splits, texts, {}).save(folder / "graph")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNFTG_HOME", str(folder / "home"))
        assert main(["train", str(folder / "graph"), "-o", str(folder / "run"), *SMALL]) == 0
        assert main(["calibrate", str(folder / "run"), "--share", "0.3"]) == 0  # of a graph that is small
        assert main(["predict", str(folder / "run"), "--head", "e1", "--relation", "r1"]) == 0  # makes its answers
    return folder


COMMANDS = {
    "distill": ["distill", "{graph}", "-o", "{own}/new", "--size", "L-1_H-32_A-2", "--epochs", "1"],
    "train": ["train", "{graph}", "-o", "{own}/new", *SMALL],
    "calibrate": ["calibrate", "{own}/run", "--method", "platt"],
    "complete": ["complete", "{own}/run", "-o", "{own}/out.tsv"],
    "complete to Parquet": ["complete", "{own}/run", "-o", "{own}/out.parquet"],
    "complete to RDF": ["complete", "{own}/run", "-o", "{own}/out.ttl"],
    "embed": ["embed", "{own}/run", "-o", "{own}/out.safetensors"],
    "embed to NumPy": ["embed", "{own}/run", "-o", "{own}/out.npz"],
    "embed to Parquet": ["embed", "{own}/run", "-o", "{own}/out.parquet"],
    "embed to TSV": ["embed", "{own}/run", "-o", "{own}/out.tsv"],
    "index": ["predict", "{own}/run", "--head", "e1", "--relation", "r1", "--index"],
    "update": ["update", "{own}/run", "--triples", "{own}/new.tsv", "--texts", "{own}/new.txt"],
    "evaluate": ["evaluate", "{own}/run", "--save-ranks", "{own}/ranks.parquet"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("warm", [False, True], ids=["all", "output"])
def test_a_disk_that_fills_up_gets_one_sentence_and_leaves_nothing(
    name: str,
    warm: bool,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FNFTG_HOME", str((trained if warm else tmp_path) / "home"))  # features that are there, or not
    shutil.copytree(trained / "run", tmp_path / "run", ignore=shutil.ignore_patterns(*[] if warm else ["answers"]))
    (tmp_path / "new.txt").write_text("n1\tA new one\n")
    (tmp_path / "new.tsv").write_text("n1\tr1\te3\n")
    command = [word.format(graph=trained / "graph", own=tmp_path) for word in COMMANDS[name]]
    failures = 0
    for limit in LIMITS:
        with largest_file(limit):
            code = main(command)
        error = capsys.readouterr().err
        if code:
            failures += 1
            last = error.splitlines()[-1]
            assert code == 1 and last.startswith("fnftg: "), error
            assert "disk is full" in last or "File too large" in last, error
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
        assert not list(tmp_path.rglob(".*partial*"))
        if not code:
            break
    assert failures, "the limits must stop something"
    assert code == 0 or main(command) == 0


def test_a_log_that_cannot_be_written_says_how_to_go_on(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log.csv", [])
    with largest_file((tmp_path / "log.csv").stat().st_size + 5), pytest.raises(FnftgError, match="train --resume"):
        log.append({"step": 1, "epoch": 1, "loss": 0.5})
