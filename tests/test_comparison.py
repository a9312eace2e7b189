"""The comparison with other tools: every verdict has its evidence, every link a target; and the citation names this version."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import fnftg
from fnftg.models.systems import SYSTEMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "comparison.md").read_text(encoding="utf-8")
TABLE = (DOCS / "tables" / "features.md").read_text(encoding="utf-8")
VERDICTS = {"✓", "(✓)", "✗", "–"}


def script(path: Path) -> Any:
    """A script that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = script(DOCS / "tables.py")


def cells(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without the rule below each head."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line] for line in lines]
    return [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]


HEAD, *ROWS = cells(TABLE)
OURS, *OTHERS = HEAD[1:]


def evidence(tool: str) -> dict[str, list[str]]:
    """What the page says about a tool: verdict and what was looked at, by feature."""
    section = re.split(r"^#{1,3} ", PAGE.split(f"\n### {tool}\n")[1], flags=re.M)[0]
    return {feature: rest for feature, *rest in cells(section)[1:]}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def functions() -> set[str]:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py")]
    return {name for text in sources for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.M)}


def test_the_table_has_a_verdict_for_every_tool_and_rows_where_others_are_ahead() -> None:
    assert OTHERS == ["PyKEEN", "ULTRA", "SimKGC", "BLP", "dicee"] and len(ROWS) >= 12
    for feature, _, *verdicts in ROWS:
        assert len(verdicts) == len(OTHERS) and all(one in VERDICTS or one[0].isdigit() for one in verdicts), feature
    behind = [row for row in ROWS if "✗" in row[1] and "✓" in row[2:]]
    assert len(behind) >= 3


def test_every_cell_of_ours_links_to_what_shows_it() -> None:
    for feature, cell, *_ in ROWS:
        found = re.fullmatch(r"\[(✓|\(✓\)|✗|\d+)\]\(((?:docs|tests)/[\w./-]+)(?:#([\w-]+))?\)", cell)
        assert found, f"{feature}: {cell}"
        target = ROOT / found[2]
        assert target.is_file(), f"{feature}: {target}"
        assert found[3] is None or found[3] in anchors(target), f"{feature}: #{found[3]}"


@pytest.mark.parametrize("tool", HEAD[1:])
def test_every_verdict_has_its_evidence(tool: str) -> None:
    found = evidence(tool)
    assert list(found) == [row[0] for row in ROWS]
    for row in ROWS:
        verdict = re.sub(r"\[(.+?)\]\(.+\)", r"\1", row[HEAD.index(tool)])
        stated, *places = found[row[0]]
        assert stated == verdict and len(places) == 1, (tool, row[0])
        named = re.search(r"`[^`]+`|\]\(|\bS-\w+", places[0])
        assert named or tool == OURS, f"{tool}, {row[0]}: names no file and no search term"


def test_search_terms_of_the_evidence_are_defined_and_used() -> None:
    defined = set(re.findall(r"^- (S-\w+): `", PAGE, re.M))
    assert defined == set(re.findall(r"S-\w+", PAGE.split("## Evidence")[1]))


def test_every_repository_is_named_with_its_commit() -> None:
    section = PAGE.split("## What was looked at")[1].split("## Evidence")[0]
    found = {row[0]: row for row in cells(section)[1:]}
    assert list(found) == OTHERS
    for _, address, commit, date, *_ in found.values():
        assert (
            "https://github.com/" in address and re.fullmatch(r"`[0-9a-f]{12}`", commit) and re.search(r"20\d\d$", date)
        )


def test_tests_and_files_named_for_ours_exist() -> None:
    existing = functions()
    for feature, (_, places) in evidence(OURS).items():
        for name in re.findall(r"`([^`]+)`", places):
            assert (ROOT / name).is_file() or name in existing or name.startswith("fnftg "), f"{feature}: {name}"
    assert evidence(OURS)["Number of models"][0] == str(len(SYSTEMS))


def test_links_of_a_table_work_from_the_readme_and_from_docs() -> None:
    table = "| [✓](docs/x.md#y) | [(✓)](tests/test_x.py) | [z](https://z.org/docs/) |\n"
    assert tables.linked_from_docs(table) == "| [✓](x.md#y) | (✓) `tests/test_x.py` | [z](https://z.org/docs/) |\n"
    page = "<!-- table: features -->\n<!-- end of table -->\n"
    assert tables.renewed(page, {}, in_docs=False) == page.replace("<!-- end", f"{TABLE}<!-- end")
    assert not re.search(r"\]\((docs|tests)/", tables.renewed(page, {}, in_docs=True))


def test_the_page_shows_the_table_as_it_is() -> None:
    assert tables.linked_from_docs(TABLE) in PAGE


def test_no_module_reads_or_writes_pickle() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            gone = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
            assert not gone & {module.split(".")[0] for module in modules}, path
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in ("torch.load", "torch.save"), path
            allowed = [word for word in getattr(node, "keywords", []) if word.arg == "allow_pickle"]
            assert all(isinstance(word.value, ast.Constant) and word.value.value is False for word in allowed), path


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return found


def test_the_citation_names_this_version_and_licence(citation: dict[str, Any]) -> None:
    assert citation["version"] == fnftg.__version__
    assert f'license = "{citation["license"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_citation_has_what_its_format_requires(citation: dict[str, Any]) -> None:
    assert citation["cff-version"] == "1.2.0" and {"message", "title", "authors"} <= set(citation)
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper)
    assert [author["family-names"] for author in paper["authors"]] == ["Coman", "Theodoropoulos", "Moens", "Henderson"]
    assert paper["doi"].removeprefix("10.18653/v1/") in paper["url"]
