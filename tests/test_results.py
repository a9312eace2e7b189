"""Published figures: each is in docs/results.json with what it takes to measure it again, and pages show no others."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
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
}
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
    text = re.sub(r"`[^`]*`", "", text)
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


@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/measurements.md"])
def test_every_number_of_the_page_is_in_the_results(name: str) -> None:
    known = published() | NO_FIGURES | {str(number) for number in range(10)} | {"73", "74", "75"}
    assert not [number for number in NUMBER.findall(prose(ROOT / name)) if number.rstrip(",") not in known]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250


def test_tables_do_not_mix_protocols() -> None:
    """A table with figures of ours under two protocols would compare what cannot be compared."""
    protocols = {one["id"]: one.get("protocol") for one in RESULTS["measurements"]}
    for template in (DOCS / "tables").glob("*.md"):
        if template.stem.startswith("protocols-"):  # which compare protocols, one a column
            continue
        text = template.read_text(encoding="utf-8")
        used = {protocols[found[1]] for found in TABLES.FIELD.finditer(text) if found[2].startswith(("mrr", "hits"))}
        assert len(used - {None}) <= 1, template.name
