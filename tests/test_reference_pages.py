"""The reference pages equal what the code says, and the outputs on the page about imports are real."""

from __future__ import annotations

import importlib.util
import re
import shlex
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

import fnftg
from fnftg.cli import COMMANDS, main
from fnftg.kg.formats import compressed_files, guarded_file, lines
from fnftg.kg.formats.specs import FORMATS
from fnftg.models.configs import from_dict
from fnftg.ranking.protocols import CHOICES, PROTOCOLS
from fnftg.training.recipes import recipe_fields, recipes
from fnftg.training.run_config import RunConfig

DOCS = ROOT / "docs"


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("commands", DOCS / "commands.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_commands_is_what_the_script_writes(script: ModuleType) -> None:
    assert script.page() == read("commands.md"), "run: make results"


def test_the_page_of_commands_has_every_command_option_and_recipe(script: ModuleType) -> None:
    page = read("commands.md")
    sections = dict(re.findall(r"^### fnftg (.+?)\n(.*?)(?=^##|\Z)", page, re.M | re.S))
    assert set(sections) == set(COMMANDS)
    for name, text in sections.items():
        options = [option for action in script.parser_of(name)._actions for option in action.option_strings]
        shown = [one for one in options if one not in ("-h", "--help", "--print_shtab") and not one.endswith("+")]
        configs = ("--model", "--training", "--trainer")  # files, beside --config
        missing = [one for one in shown if not re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", text)]
        assert [one for one in missing if not one.startswith(configs)] == []
    assert [name for name in recipes() if f"| `{name}` |" not in sections["recipes"]] == []


def test_help_still_works_after_the_script_has_looked_at_it(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    script.parser_of("data list")
    with pytest.raises(SystemExit):
        main(["data", "list", "--help"])
    assert "usage: fnftg data list" in capsys.readouterr().out


def test_the_page_of_formats_has_every_format_with_its_endings() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", read("formats.md"), re.M))
    assert {name: tuple(re.findall(r"`(\.\w+)`", rows[name])) for name in FORMATS} == {
        name: format.suffixes for name, format in FORMATS.items()
    }


def test_the_page_of_formats_has_the_limits_of_the_code() -> None:
    limits = read("formats.md").partition("## Limits")[2].partition("\n## ")[0]
    assert (
        f"more than {compressed_files.FREE_SIZE >> 30} GB and to more than {compressed_files.LARGEST_RATIO} times"
        in limits
    )
    assert f"window of {compressed_files.LARGEST_WINDOW >> 20} MiB" in limits
    assert (
        f"| lines | {lines.LONGEST_LINE >> 20} MiB" in limits
        and f"rows of at most {lines.LONGEST_LINE >> 20} MiB" in limits
    )
    assert f"| {guarded_file.LONGEST_TOKEN >> 20} MiB |" in limits
    deepest = guarded_file.DEEPEST
    assert deepest["nt"] == deepest["nq"] == deepest["ttl"]
    nesting = f"{deepest['nt']} levels in N-Triples, N-Quads and Turtle, {deepest['rdfxml']:,} in RDF/XML, {deepest['jsonld']} in"
    assert nesting in limits


def test_the_page_of_evaluation_has_the_protocols_of_the_code() -> None:
    table = read("evaluation.md").partition("## Protocols")[2].partition("## ")[0]
    rows = re.findall(r"^\| `([\w-]+)`(?: \(default\))? \| `([\w-]+)` \| `([\w-]+)` \| `([\w-]+)` \|$", table, re.M)
    assert rows == [(name, one.visible, one.hidden, one.candidates) for name, one in PROTOCOLS.items()]
    assert {one.unseen_edges for one in PROTOCOLS.values()} == {"visible"}
    for name, choices in CHOICES.items():
        described = table.partition(f"| `--{name.replace('_', '-')}` |")[2].partition("| `--")[0]
        assert re.findall(r"^(?:\| \|)? `([\w-]+)` \|", described, re.M) == list(choices), name


def test_the_defaults_on_the_page_about_training_are_those_of_the_recipe() -> None:
    config = asdict(from_dict(RunConfig, recipe_fields("frugal")))
    rows = re.findall(r"^\| (`--.+?) \| (.+?) \|", read("training.md"), re.M)
    checked = 0
    for options, defaults in rows:
        fields = re.findall(r"`--([\w.]+)`", options)
        values = [str(reduce(lambda part, key: part[key], field.split("."), config)) for field in fields]
        if re.search(r"\d|`", defaults):
            assert values == [shown.strip("`").replace(",", "") for shown in defaults.split(", ")], options
            checked += 1
    assert checked >= 8


def test_the_recipe_on_the_page_about_training_can_be_trained_with(tmp_path: Path) -> None:
    (written,) = re.findall(r"^```yaml\n(.*?)^```", read("training.md"), re.M | re.S)
    (tmp_path / "my.yaml").write_text(written)
    config = from_dict(RunConfig, recipe_fields(tmp_path / "my.yaml"))
    assert asdict(config) != asdict(from_dict(RunConfig, recipe_fields("frugal")))


# The page about imports


def steps(page: str) -> list[tuple[str, str]]:
    """Every block of shell code that is followed by its output, and the output."""
    found = re.findall(r"^```sh\n([^`]*)^```\n\n```text\n([^`]*)^```", page, re.M)
    return [(code.replace("\\\n", " "), output) for code, output in found]


def without_blanks(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_outputs_on_the_page_about_imports_are_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = read("data.md")
    monkeypatch.chdir(tmp_path)
    for name, content in re.findall(r'^```\w+ title="(.+?)"\n(.*?)^```', page, re.M | re.S):
        Path(name).write_text(content, encoding="utf-8")
    found = steps(page)
    assert len(found) == 2
    for code, output in found:
        assert main(shlex.split(code)[1:]) == 0
        assert without_blanks(capsys.readouterr().out) == without_blanks(output)
    for code in (code for code in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "people" in code):
        exec(compile(code, "data.md", "exec"), {})
    assert capsys.readouterr().out == "3 [[2 0 1]]\n" and "3 [[2 0 1]]\n" in page
    assert len(fnftg.KnowledgeGraph.open("people-again").entities) == len(fnftg.KnowledgeGraph.open("people").entities)


def test_the_errors_on_the_page_about_imports_are_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = read("data.md")
    monkeypatch.chdir(tmp_path)
    Path("broken.tsv").write_text("a\tb\tc\na\tb\n")
    for name, content in re.findall(r'^```\w+ title="(.+?)"\n(.*?)^```', page, re.M | re.S):
        Path(name).write_text(content, encoding="utf-8")
    triples = "people.csv --relation predicate --tail object"
    commands = (
        "broken.tsv",
        f"{triples} --head subjct",
        f"{triples} --head subject --entities descriptions.csv --id qid",
    )
    errors = [line for line in page.splitlines() if line.startswith("fnftg: ")]
    assert len(errors) == len(commands)
    for command, error in zip(commands, errors, strict=True):
        assert main(["import", *command.split(), "-o", "store"]) == 1
        assert capsys.readouterr().err.strip() == error
    assert not Path("store").exists()
