"""The log of trials, docs/trials.csv: every trial has its figures, its verdict and its commit, and stands on the page."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
COLUMNS = ["log", "trial", "metric", "figure", "baseline", "verdict", "commit"]
NUMBER = r"\d+(?:\.\d+)?"
VERDICTS = ("adopted", "not adopted: ", "not tried", "baseline", "observation: ")


def read_trials(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == COLUMNS
    return rows[1:]


def faults(row: list[str]) -> list[str]:
    """What is wrong with a trial, by column."""
    if len(row) != len(COLUMNS):
        return ["columns"]
    given = dict(zip(COLUMNS, row, strict=True))
    parts = {name: given[name].split(" / ") for name in ("metric", "figure", "baseline")}
    checks = {
        "empty": all(cell.strip() == cell != "" for cell in row),
        "pipe": not any("|" in cell for cell in row),  # it would end a cell of the table
        "figure": all(re.fullmatch(rf"{NUMBER}|not measured", one) for one in parts["figure"]),
        "baseline": given["baseline"] == "none" or all(re.fullmatch(NUMBER, one) for one in parts["baseline"]),
        "number of figures": len(parts["figure"]) == len(parts["metric"])
        and (given["baseline"] == "none" or len(parts["baseline"]) == len(parts["figure"])),
        "verdict": given["verdict"].startswith(VERDICTS),
        "commit": re.fullmatch(r"[0-9a-f]{7,40}", given["commit"]) is not None,
    }
    return [name for name, good in checks.items() if not good]


def test_every_trial_has_its_figures_a_verdict_and_a_commit() -> None:
    trials = read_trials(DOCS / "trials.csv")
    assert len(trials) > 100
    wrong = {",".join(row): found for row in trials if (found := faults(row))}
    assert not wrong


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("figure", "about 0.6", "figure"),
        ("figure", "0.600", "number of figures"),
        ("baseline", "", "empty"),
        ("baseline", "better", "baseline"),
        ("verdict", "good", "verdict"),
        ("verdict", "not adopted", "verdict"),  # why?
        ("commit", "HEAD", "commit"),
        ("trial", "a | b", "pipe"),
    ],
)
def test_faulty_trials_are_noticed(column: str, value: str, fault: str) -> None:
    good = ["wn18rr", "cosine", "all / strict", "0.630 / 0.347", "0.616 / 0.327", "adopted", "71478b1"]
    assert faults(good) == []
    row = [value if name == column else cell for name, cell in zip(COLUMNS, good, strict=True)]
    assert fault in faults(row)
    assert faults(good[:-1]) == ["columns"]


def test_every_log_is_a_table_of_the_page_and_every_table_a_log() -> None:
    page = (DOCS / "search.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- table: trials-([\w-]+) -->", page)
    assert sorted(shown) == sorted({row[0] for row in read_trials(DOCS / "trials.csv")})


def test_the_page_shows_every_trial() -> None:
    lines = (DOCS / "search.md").read_text(encoding="utf-8").splitlines()
    missing = [row for row in read_trials(DOCS / "trials.csv") if f"| {' | '.join(row[1:])} |" not in lines]
    assert not missing, "run make results"
