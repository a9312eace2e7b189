"""Published figures: each is in docs/results.json with what it takes to measure it again, and pages show no others."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

DOCS = ROOT / "docs"
RESULTS = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
# Numbers that are no figures of ours: versions, years, settings, and counts that code or another page shows.
NO_FIGURES = {
    "3.10",
    "2025",
    "24",
    "512",
    "60",
    "30",
    "12",
    "10",
    "11",
    "100",
    "1024",
    "256",
    "41,000",
    "250,000",
    "128",
    "3.0",
    "300",
    "1,000",
    "1,100",  # training steps
    "0.25",
    "2.5",
    "0.414",  # the shares of the audit, not in percent
    "0.586",
}
PAGES_OF_FIGURES = ("README.md", *(f"docs/{name}.md" for name in ("results", "measurements", "protocols", "evidence")))
NUMBER = re.compile(r"(?<![\w.,/@:-])\d[\d,]*(?:\.\d+)?(?![\w@]|[.,]\d|-\w)")


def load_tables() -> Any:
    spec = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_tables"] = module
    spec.loader.exec_module(module)
    return module


TABLES = load_tables()


def prose(page: Path) -> str:
    """A page without code, links' targets and generated tables."""
    text = TABLES.PLACE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)|https?://\S+", "", text)


def published() -> set[str]:
    """All values as a page may show them."""
    forms = ("", ",", ".1f", ".2f", ".3f", ".4f", ".0f", ",.0f")
    numbers = [v for one in RESULTS["measurements"] for v in one["values"].values() if not isinstance(v, str)]
    return {
        format(value, form) for value in numbers for form in forms if not (form == "," and isinstance(value, float))
    }


def test_tables_of_the_pages_are_those_of_the_results() -> None:
    assert not [page.name for page, _ in TABLES.changed()], "run make results"


def test_a_changed_figure_changes_a_table() -> None:
    measurements = TABLES.read_measurements()
    measurements["wn18rr/frugal-wn18rr/cumulative"]["mrr"] = 0.123
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "**0.123**" in TABLES.renewed(readme, measurements, in_docs=False)


def test_every_measurement_says_how_it_was_made() -> None:
    names = [one["id"] for one in RESULTS["measurements"]]
    assert len(names) == len(set(names)) > 50
    for one in RESULTS["measurements"]:
        assert one["values"], one
        if "source" in one:
            assert "Coman et al." in one["source"]
            continue
        assert one["command"].startswith(("fnftg ", "python benchmarks/")), one
        assert re.fullmatch("[0-9a-f]{7,40}", one["commit"]) and one["machine"] in RESULTS["machines"], one
        assert isinstance(one["seeds"], list) and one["protocol"], one
        if script := re.match(r"python (benchmarks/\w+\.py)", one["command"]):
            assert (ROOT / script[1]).is_file()


def test_paper_figures_are_those_of_the_package() -> None:
    from fnftg.paper import published_results

    values = TABLES.read_measurements()
    for dataset, rows in published_results.INDUCTIVE.items():
        for row, figures in rows.items():
            assert values[f"paper/inductive/{dataset}/{row}"] == figures


@pytest.mark.parametrize("name", PAGES_OF_FIGURES)
def test_every_number_of_the_page_is_in_the_results(name: str) -> None:
    known = published() | NO_FIGURES | {str(number) for number in range(10)} | {"73", "74", "75"}
    assert not [number for number in NUMBER.findall(prose(ROOT / name)) if number.rstrip(",") not in known]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250


def protocols_in(cells: list[str]) -> set[str]:
    """The protocols of our figures in some cells of a template."""
    protocols = {one["id"]: one.get("protocol") for one in RESULTS["measurements"]}
    accuracies = ("mrr", "hits", "non_leaking", "at_least")
    found = [field for cell in cells for field in TABLES.FIELD.finditer(cell) if field[2].startswith(accuracies)]
    return {protocols[field[1]] for field in found} - {None, "unknown"}


def test_tables_do_not_mix_protocols() -> None:
    """A table has one protocol. Tables that compare protocols have one in each column, or in each row."""
    for template in (DOCS / "tables").glob("*.md"):
        rows = [line.strip("| ").split(" | ") for line in template.read_text(encoding="utf-8").splitlines()]
        if template.stem.startswith("protocols-"):
            columns = [list(column) for column in zip_longest(*rows, fillvalue="")]
            assert any(all(len(protocols_in(line)) <= 1 for line in lines) for lines in (rows, columns)), template.name
        else:
            assert len(protocols_in([cell for row in rows for cell in row])) <= 1, template.name
