"""Recipes: every one is a config, prints as commented YAML, and can be copied and changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import fnftg
from fnftg.cli import main
from fnftg.errors import FnftgError
from fnftg.models.configs import from_dict
from fnftg.models.systems import SYSTEMS
from fnftg.training.config_yaml import to_yaml
from fnftg.training.recipes import FOLDER, SIZES, merge_fields, recipe_fields, recipe_of_system, recipes
from fnftg.training.run_config import RunConfig
from fnftg.training.train_command import configured


def config_of(name: str | Path) -> RunConfig:
    config: RunConfig = from_dict(RunConfig, recipe_fields(name))
    return config


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_is_a_config_with_a_description(name: str) -> None:
    assert config_of(name).model.text.encoder in ("minilm", "static", name.rpartition("-")[2])
    assert recipes()[name].endswith(".") and "\n" not in recipes()[name]


@pytest.mark.parametrize("name", recipes())
def test_printed_recipe_reads_as_the_same_config(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", name]) == 0
    file = tmp_path / "my.yaml"
    file.write_text(capsys.readouterr().out)
    assert config_of(file) == config_of(name) == configured(str(file), None)


@pytest.mark.parametrize("name", [name for name in recipes() if "-" not in name or name.startswith("frugal-")])
def test_printed_recipe_explains_every_field(name: str) -> None:
    lines = to_yaml(config_of(name)).splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        assert line.lstrip().startswith("#") or before.lstrip().startswith("#"), line


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--json"]) == 0
    listed = {entry["name"]: entry["summary"] for entry in json.loads(capsys.readouterr().out)}
    assert listed == recipes() and next(iter(listed)) == "frugal"
    systems = ("bow", "dkrl", "blp", "kepler", "star", "statik", "simkgc", "ensemble")
    frugal = {"frugal", *(f"frugal-{name}" for name in ("tg", "t", "large", "wn18rr", "fb15k237", *systems))}
    assert set(listed) == frugal | {f"{data}-{size}" for data in ("wn18rr", "fb15k237", "wikidata5m") for size in SIZES}
    assert main(["recipes"]) == 0
    assert "wikidata5m-base" in capsys.readouterr().out


def test_what_the_recipes_set() -> None:
    frugal, plain = config_of("frugal"), config_of("frugal-tg")
    assert frugal.training.max_steps == 1100 and frugal.model.score == "cosine" and plain.model.score == "transe"
    assert frugal.training.batch_size == plain.training.batch_size == 512
    assert config_of("frugal-wn18rr").system == "ensemble" and config_of("frugal-wn18rr").model.members == 3
    assert config_of("frugal-fb15k237").model.ego.num_neighbours == 30
    assert not config_of("frugal-t").model.ego_graphs and config_of("frugal-t").model.relations == "projection"
    assert frugal.model.relations == plain.model.relations == "text"
    assert config_of("frugal-kepler").model.text.training == "finetune"
    assert config_of("wikidata5m-base").model.text.words == 64
    assert config_of("wikidata5m-base").training.loss.name == "margin"


@pytest.mark.parametrize("given, expected", [((), "static"), (("--config", "frugal"), "minilm")])
def test_a_large_graph_is_trained_with_the_recipe_for_large_graphs_unless_told_otherwise(
    given: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    configs: list[RunConfig] = []
    for module in ("api", "loop"):  # in this order, as api imports from loop
        name = f"fnftg.training.{module}.train_run"
        monkeypatch.setattr(name, lambda graph, config, *rest, **more: configs.append(config))
    monkeypatch.setattr("fnftg.training.train_command.is_first_process", lambda: False)
    (tmp_path / "triples.tsv").write_text("".join(f"e{i}\tr\te{i + 1}\n" for i in range(9)))
    size = ("--training.batch_size", "7")
    for many, encoder in ((10, "minilm"), (9, expected)):
        monkeypatch.setattr("fnftg.training.recipes.MANY", many)
        assert main(["train", str(tmp_path / "triples.tsv"), "-o", str(tmp_path / "run"), *size, *given]) == 0
        said = "The graph has 10 entities: training with frugal-large" in capsys.readouterr().err
        assert configs[-1].model.text.encoder == encoder and configs[-1].training.batch_size == 7
        assert said == (encoder == "static")
        fnftg.train(str(tmp_path / "triples.tsv"), *given[1:], output=tmp_path / "run", training={"batch_size": 7})
        assert configs[-1].model.text.encoder == encoder and configs[-1].training.batch_size == 7


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "data, words, neighbours, epochs, candidates",
    [("wn18rr", 24, 10, 40, None), ("fb15k237", 24, 40, 40, None), ("wikidata5m", 64, 1, 5, "transfer")],
)
def test_papers_recipes_are_those_of_the_paper(
    data: str, words: int, neighbours: int, epochs: int, candidates: str | None, size: str
) -> None:
    config = config_of(f"{data}-{size}")
    text, ego, graph, training = config.model.text, config.model.ego, config.model.graph, config.training
    assert (text.encoder, text.training, text.pooling, text.query) == (size, "finetune", "cls", "text")
    assert (text.words, text.width, ego.num_neighbours, ego.num_neighbours_at_evaluation) == (
        words, None, neighbours, neighbours,
    )  # fmt: skip
    assert (graph.heads, graph.relations, graph.segments) == (1, True, True)
    assert not (graph.modulated_values or graph.label_histogram or config.model.evidence.sources)
    assert (config.model.score, config.model.relations, config.model.allow_self_answers) == ("transe", "text", True)
    assert (training.loss.name, training.loss.margin, training.negatives) == ("margin", 1, "two-sided")
    assert training.hidden == "target" and training.mask_known is False and training.grad_clip == 0
    assert (training.epochs, training.max_steps, training.batch_size) == (epochs, None, 128)
    assert training.first_learning_rate == pytest.approx(1e-5 * 128 / 32) and training.weight_decay == 0
    assert training.candidates == candidates


def test_file_may_name_a_base_and_set_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: frugal\ntraining: {seed: 5}\n")
    (tmp_path / "other.yaml").write_text("base: mine.yaml\nmodel: {text: {words: 40}}\n")
    expected = merge_fields(recipe_fields("frugal"), {"training": {"seed": 5}, "model": {"text": {"words": 40}}})
    assert recipe_fields(tmp_path / "other.yaml") == expected


def test_without_a_config_the_default_is_frugal_or_that_of_the_system() -> None:
    assert configured(None, None) == configured(None, "fnf") == configured("frugal", None)
    for system in SYSTEMS:
        if system != "fnf":
            assert recipe_of_system(system) == f"frugal-{system}"
            assert configured(None, system) == config_of(f"frugal-{system}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("base: [frugal]", "write the name of a recipe"),
        ("base: rugal", "no recipe 'rugal': choose frugal, "),
        ("base: mine.yaml", "is its own base"),
        ("- 3", "has no fields"),
        ("a: b: c", "cannot be read as YAML"),
    ],
)
def test_bad_recipe_file_gets_one_sentence(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(FnftgError, match=words):
        recipe_fields(tmp_path / "mine.yaml")


@pytest.mark.parametrize("name", ["rugal", "_frugall", "frugal-", "wn18rr-huge", "wn18rr-SIZE", "../config", ""])
def test_unknown_recipe_gets_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FnftgError, match="There is no recipe"):
        recipe_fields(name)
    assert main(["recipes", "rugal"]) == 1
    assert capsys.readouterr().err.startswith("fnftg: There is no recipe 'rugal': choose frugal, ")


def test_package_ships_its_recipes() -> None:
    settings = (FOLDER.parents[3] / "pyproject.toml").read_text()
    assert '"fnftg.training.recipes" = ["*.yaml"]' in settings
    for path in FOLDER.glob("*.yaml"):
        assert path.read_text().startswith("# ") and yaml.safe_load(path.read_text())
