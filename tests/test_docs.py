"""The documentation is whole, needs no network and speaks of what there is; so do the files of the container."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import fnmatch
import importlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterator
from functools import cache, cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import fnftg
from fnftg.cli import COMMANDS, main
from fnftg.models.systems import SYSTEMS
from fnftg.training.run_config import TrainerConfig, TrainingConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(set(DOCS.rglob("*.md")) - set((DOCS / "tables").glob("*"))), ROOT / "README.md"]
GUIDES = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]  # CHANGELOG.md has the old names, too
OLD_WORDS = (
    r"lookalikes?|votes?|voters?|voting|parallels?|kinship|precedents?|weigh(?:s|ed|ing)?|unmet|query points?|signatures?"
    r"|protocol `?(?:paper|statik)|model\.loops|ego\.limit|training\.(?:batch|draws|clip)"
)
ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
CLASSES = [
    "fnftg.errors.FnftgError",
    "fnftg.kg.graph.KnowledgeGraph",
    "fnftg.kg.graph_data.Vocabulary",
    "fnftg.models.link_predictor.LinkPredictor",
    "fnftg.predict.explanation.Explanation",
    "fnftg.predict.predictor.Predictor",
    "fnftg.predict.questions.Answer",
    "fnftg.predict.questions.NewEntity",
    "fnftg.predict.questions.Question",
    "fnftg.predict.questions.Relation",
    "fnftg.serve.client.Client",
    "fnftg.training.run_config.RunConfig",
]


def built(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = built(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_strictly_and_has_every_page(site: Path) -> None:
    for page in (page for page in DOCS.rglob("*.md") if page.parent != DOCS / "tables"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file(), page


def test_broken_links_fail_the_build_and_are_named(tmp_path: Path) -> None:
    broken = {"[x](gone.md)": "'gone.md'", "[x](#nowhere)": "'#nowhere'", "![x](y.svg)": "'y.svg'", "[x](/z)": "'/z'"}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n" + "\n\n".join(broken))
    config = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "nav": ["index.md"], "plugins": [], "hooks": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    done = built(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0 and all(link in done.stderr for link in broken.values()), done.stderr


class Fetched(HTMLParser):
    """What a browser fetches by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        assert "mermaid" not in given.get("class", "").split(), "its script would be fetched"
        names = ["src", "srcset", "poster", "data"] + (["href"] if tag in ("link", "image", "use") else [])
        self.found += [given[name] for name in names if name in given]
        self.found += re.findall(r"url\(['\"]?(.*?)['\"]?\)", given.get("style", ""))


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        seen = Fetched()
        seen.feed(page.read_text(encoding="utf-8"))
        assert seen.found
        elsewhere = [one for one in seen.found if re.match(r"([a-z]+:)?//", one)]
        assert not elsewhere, (page, elsewhere)
    for style in site.rglob("*.css"):
        fetched = re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", style.read_text(encoding="utf-8"))
        assert not [one for one in fetched if re.match(r"([a-z]+:)?//", one)], style


def test_equations_need_no_script(site: Path) -> None:
    for name, at_least in (("model", 20), ("evidence", 20), ("protocols", 1), ("search", 1)):
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        assert page.count("<math") >= at_least, name
        assert "arithmatex" not in page and "<merror" not in page and "\\mathbf" not in page, name


# What the pages say


def blocks(page: Path, language: str) -> Iterator[str]:
    """The code of a page in a language, also where it stands indented in a tab."""
    for found in re.finditer(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(encoding="utf-8"), re.M | re.S):
        yield textwrap.dedent(found[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_the_docs_compiles_and_imports_what_there_is(page: Path) -> None:
    for code in blocks(page, "python"):
        tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fnftg":
                assert hasattr(fnftg, node.attr), ast.unparse(node)


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words behind each `fnftg` of a page's shell code, and of its code within the text."""
    shell = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    inline = [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]
    for line in [*shell.splitlines(), *(one for one in inline if one.startswith("fnftg "))]:
        for part in re.split(r" (?:\||&&|;|>) ", line):
            words = shlex.split(part, comments=True) if re.search(r"\bfnftg\b", part) else []
            if "fnftg" in words and words[0] not in ("docker", "pip"):
                yield words[words.index("fnftg") + 1 :]


@cache
def help_of(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    return out.getvalue()


def check_command(words: list[str]) -> None:
    command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), None)
    if command is None:
        assert words in (["--help"], ["--version"]), f"there is no command fnftg {' '.join(words)}"
        return
    for option in (word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w.-])", help_of(command)), f"fnftg {command} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_the_docs_exists_with_its_options(page: Path) -> None:
    for words in command_lines(page):
        check_command(words)


@cache
def config_fields() -> set[str]:
    """Every field of a run's config, of whatever system, as an option."""

    def fields(kind: Any, path: str) -> Iterator[str]:
        for name, hint in typing.get_type_hints(kind).items():
            yield f"{path}.{name}"
            if dataclasses.is_dataclass(hint):
                yield from fields(hint, f"{path}.{name}")

    kinds = [("model", found.config) for found in SYSTEMS.values()]
    kinds += [("training", TrainingConfig), ("trainer", TrainerConfig)]
    return {field for path, kind in kinds for field in fields(kind, path)}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_field_of_a_config_in_the_docs_exists(page: Path) -> None:
    named = set(re.findall(r"--((?:model|training|trainer)\.[a-z_.]*[a-z])", page.read_text(encoding="utf-8")))
    assert named <= config_fields()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_old_names_are_gone(page: Path) -> None:
    assert not re.findall(rf"\b(?:{OLD_WORDS})\b", page.read_text(encoding="utf-8"), re.IGNORECASE)


def test_every_module_in_the_architecture_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {path.name for path in (ROOT / "src" / "fnftg").iterdir() if path.is_dir()}
    named = {found for found in re.findall(r"`(\w+/[\w/]*(?:\.py)?)`", text) if found.split("/")[0] in rooms}
    assert named and not [found for found in named if not (ROOT / "src" / "fnftg" / found).exists()]


def test_commands_that_do_not_exist_are_noticed() -> None:
    for words in (["trian", "x"], ["audit", "x", "--visble", "own-split"]):
        with pytest.raises(AssertionError):
            check_command(words)


def test_the_page_on_http_has_every_route_and_every_limit() -> None:
    from fnftg.predict.questions import MOST_CHARACTERS, MOST_EDGES
    from fnftg.serve import schemas
    from fnftg.serve.app import make_app
    from fnftg.serve.options import Options

    page = (DOCS / "http.md").read_text(encoding="utf-8")
    routes = {
        f"{method.upper()} {path}"
        for path, methods in make_app(Options("run")).openapi()["paths"].items()
        for method in methods
    }
    told = set(re.findall(r"(?:GET|POST) /[\w/]*", page))
    assert {route.replace("/{id}", "/ID") for route in routes} == told
    limits = (
        schemas.MOST_QUERIES,
        schemas.MOST_ANSWERS,
        MOST_CHARACTERS,
        MOST_EDGES,
        Options("").queue,
    )
    assert all(f"{limit:,}" in page for limit in limits)


def test_every_promise_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (?!promise|---)(.+?) \| (.+) \|$", (DOCS / "promises.md").read_text(encoding="utf-8"), re.M)
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py")]
    functions = {name for text in sources for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.M)}
    for promise, cell in rows:
        tests = re.findall(r"`([^`]+)`", cell)
        gone = [test for test in tests if not ((ROOT / test).is_file() if "/" in test else test in functions)]
        assert tests and not gone, f"{promise}: {gone}"
    assert len(rows) > 30


# The reference


def public(name: str) -> Iterator[tuple[str, object]]:
    """A class with its public methods and properties."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    yield name, found
    if inspect.isclass(found):
        for member, value in vars(found).items():
            called = isinstance(value, (staticmethod, classmethod, property, cached_property))
            if not member.startswith("_") and (called or inspect.isfunction(value)):
                yield f"{name}.{member}", value


@pytest.mark.parametrize("name", [*(f"{module}.{name}" for name, module in fnftg.PUBLIC.items()), *CLASSES])
def test_every_public_name_says_what_it_is(name: str) -> None:
    silent = [name for name, value in public(name) if not (inspect.getdoc(value) or "").strip()]
    own = [name for name, value in public(name) if (inspect.getdoc(value) or "").startswith(f"{name.split('.')[-1]}(")]
    assert not silent and not own, (silent, own)  # a dataclass without a docstring has its signature as one


def test_every_public_name_is_in_the_reference() -> None:
    index = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`fnftg\.(\w+)`", index)) == set(fnftg.PUBLIC)


# The container


def dockerfile(instruction: str) -> list[str]:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return [line.split(maxsplit=1)[1] for line in lines if line.startswith(f"{instruction} ")]


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    for sources in (line.split()[:-1] for line in dockerfile("COPY")):
        for source in sources:
            assert (ROOT / source).exists(), source
            last = [one for one in ignored if fnmatch.fnmatch(source, one.lstrip("!"))][-1]
            assert last.startswith("!"), f"{source} is left out by {last} of .dockerignore"


def test_the_image_serves_as_a_user_without_rights_with_options_that_exist() -> None:
    assert dockerfile("USER") == ["fnftg"] and dockerfile("ENTRYPOINT") == ['["fnftg"]']
    words = ast.literal_eval(dockerfile("CMD")[-1])
    check_command(words)
    assert words[0] == "serve" and dockerfile("EXPOSE") == [words[words.index("--port") + 1]]
    assert "/healthz" in dockerfile("HEALTHCHECK")[0]
    assert any(line.startswith("TORCH_INDEX=") for line in dockerfile("ARG"))
    assert re.search(r"^torch==\d", (ROOT / "constraints.txt").read_text(), re.M), "the image takes it from there"


def test_compose_mounts_the_run_read_only_and_the_proxy_finds_the_replicas() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    for name in ("fnftg", "replica"):
        service = services[name]
        assert {one.split(":")[-1] for one in service["volumes"] if "/srv/home" not in one} == {"ro"}
        assert "FNFTG_TOKEN" in service["environment"] and service["read_only"]
    mounted = [one.split(":")[0] for one in services["proxy"]["volumes"]]
    assert all((ROOT / one).is_file() for one in mounted)
    proxy = (ROOT / "deploy" / "nginx.conf").read_text()
    (upstream,) = re.findall(r"server (\w+):(\d+) resolve", proxy)
    assert upstream == ("replica", dockerfile("EXPOSE")[0]) and "profiles" in services["replica"]
    assert proxy.count("{") == proxy.count("}")
