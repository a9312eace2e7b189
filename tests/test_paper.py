"""The paper's tables: true figures, true arithmetic, cells that can be stopped and go on, a budget that is kept."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

from fnftg.cli import main
from fnftg.kg import KnowledgeGraph
from fnftg.models.configs import from_dict
from fnftg.paper import published_results as paper
from fnftg.paper import runner
from fnftg.paper.budget import Budget, OutOfTime, Timing, share_of_epochs
from fnftg.paper.experiments import EXPERIMENTS, READINGS, TEST, Reader, readers, run_fields
from fnftg.paper.result_tables import (
    Label,
    Line,
    Number,
    Sheet,
    Value,
    comma_separated,
    escaped,
    latex,
    markdown,
    sheets,
)
from fnftg.training.loop import Run
from fnftg.training.run_config import RunConfig

ENCODER = "scratch:L-1_H-32_A-2"
FAST = [
    "--encoder", ENCODER, "--set", "training.batch_size=32", "--set", "training.epochs=2", "--set", "model.text.width=32",
    "--set", "training.save_every=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 entities whose texts say who belongs to whom, and one rare relation."""
    random = np.random.default_rng(0)
    colours = ["red", "blue", "green", "grey", "pink", "gold"]
    texts = {f"e{i}": f"{colours[i % 6]} thing number {i}" for i in range(60)}
    pairs = [(i, int(6 * random.integers(0, 10) + i % 6)) for i in random.integers(0, 60, 260)]
    triples = list(
        dict.fromkeys((f"e{h}", "r2" if n % 14 == 0 else f"r{n % 2}", f"e{t}") for n, (h, t) in enumerate(pairs))
    )
    splits = {"train": triples[:160], "val": triples[160:180], "test": triples[180:]}
    path = tmp_path_factory.mktemp("paper") / "colours"
    KnowledgeGraph.from_triples(splits, texts, {"r0": "is next to", "r1": "is like", "r2": "is seldom"}).save(path)
    return path


def run(name: str, store: Path, folder: Path, *more: str) -> int:
    return main(["paper", "run", name, "--dataset", str(store), "-o", str(folder), *FAST, *more])


def results(folder: Path) -> dict[str, Any]:
    """What a table found, without how long it took."""
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    for part in (*found["cells"], *found["rows"]):
        part.pop("seconds", None)
    return found


# The paper's figures

SEEDS = ROOT.parent / "shared" / "seeds"
SYSTEM = re.compile(r"\\text\{(DKRL|BOW|BLP|KEPLER|StAR|StATIK|FnF-TG|FnF-T)\}.*?\\textsc\{(\w+)\}")


def paper_tables() -> dict[str, list[str]]:
    """The rows of each table in the paper's source, by label."""
    files = sorted(SEEDS.glob("*.txt"))
    if not files:
        pytest.skip("the paper's source is not here")
    source = files[0].read_text()
    tables = re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}.*?\\label\{(tab:\w+)\}", source, re.DOTALL)
    return {label: [line for line in body.splitlines() if "&" in line] for body, label in tables}


def numbers(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"(?<![\d.])0\.\d+", line)]


@pytest.mark.parametrize("label, printed", [("tab:inductive", paper.INDUCTIVE), ("tab:wikidata", paper.WIKIDATA)])
def test_result_tables_are_those_of_the_paper(label: str, printed: paper.Results) -> None:
    lines = [line for line in paper_tables()[label] if SYSTEM.search(line)]
    assert len(lines) == len(next(iter(printed.values())))
    for line in lines:
        match = SYSTEM.search(line)
        assert match
        row = f"{match[1].lower()}-{match[2]}"
        assert numbers(line) == [figure for rows in printed.values() for figure in rows[row].values()], row


@pytest.mark.parametrize(
    "label, printed", [("tab:controlled_experimental_setup", paper.CONTROLLED), ("tab:ablation", paper.ABLATION)]
)
def test_tables_of_additions_and_removals_are_those_of_the_paper(label: str, printed: paper.Results) -> None:
    lines = [numbers(line) for line in paper_tables()[label] if numbers(line)]
    assert lines == [
        [a["mrr"], b["mrr"]]
        for a, b in zip(printed[paper.WN18RR].values(), printed[paper.FB15K237].values(), strict=True)
    ]


def test_fully_inductive_table_is_that_of_the_paper() -> None:
    *lines, chance = [numbers(line) for line in paper_tables()["tab:fully_inductive"] if numbers(line)]
    assert chance == list(paper.RANDOM.values())
    rows = [
        (evaluation, f"{system}-{trained}-tiny")
        for system in ("fnf-t", "fnf-tg")
        for evaluation in (paper.IND, paper.UNSEEN)
        for trained in ("ind", "fir")
    ]
    assert len(lines) == len(rows)
    for line, (evaluation, row) in zip(lines, rows, strict=True):
        assert line == [
            figure for results in paper.FULLY_INDUCTIVE[evaluation].values() for figure in results[row].values()
        ]


def test_dataset_table_is_that_of_the_paper() -> None:
    lines = [line for line in paper_tables()["tab:datasets"] if "IND" in line]
    for line, figures in zip(lines, paper.DATASETS.values(), strict=True):
        found = []
        for cell in re.findall(r"\$([\d,_{}]+)\$", line):
            if "_" in cell:
                found += [float(part.replace(",", ".")) for part in re.findall(r"[\d,]+", cell)]
            else:
                found.append(float(cell.replace(",", "")))
        assert found == list(figures.values())


def test_every_printed_figure_belongs_to_a_row_that_is_run() -> None:
    for experiment in EXPERIMENTS.values():
        for evaluation, datasets in experiment.figures.items():
            for dataset, rows in datasets.items():
                made = {
                    f"{row.printed_as or row.key}-{bert}"
                    for row in experiment.rows
                    for bert in experiment.berts_of(row, dataset)
                    if experiment.printed(evaluation, dataset, row, bert)
                }
                assert made == set(rows), experiment.name


@pytest.mark.parametrize("training", ["finetune", "frozen"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_row_is_a_config_of_its_own(name: str, training: str) -> None:
    experiment = EXPERIMENTS[name]
    configs = [
        (
            from_dict(RunConfig, run_fields(row, reader, experiment.setting(dataset), 73, "cumulative", "dynamic")),
            row.fir,
        )
        for dataset in experiment.datasets[:1]
        for row in experiment.rows
        if not row.quoted and not row.same_as
        for reader in readers(row, ("tiny",), ["tiny"], [], training)
    ]
    assert all(one != other for place, one in enumerate(configs) for other in configs[:place])
    exceptions = {("statik", "finetune"): "finetune-centre", ("kepler", "frozen"): "finetune"}
    for config, _ in configs:
        assert config.model.text.training == exceptions.get((config.system, training), training)


# Tables


def line(values: dict[str, Value], **changes: Any) -> Line:
    facts: dict[str, Any] = {
        "dataset": "WN18RR_IND", "section": "Text-only models", "row": "fnf-t", "label": "FnF-T", "latex": "",
        "encoder": "BERT-tiny", "paper_encoder": "BERT-tiny", "evaluation": TEST, "values": values,
        "seconds": Value(12.0), "epochs": [40], "seeds": [73, 21], "asked": 2, "status": "done",
    }  # fmt: skip
    return Line(**(facts | changes))


def test_mean_deviation_and_difference_are_those_worked_by_hand() -> None:
    value = Value.of([0.190, 0.200, 0.204], paper=0.193)
    assert value.mean == pytest.approx(0.198)
    assert value.std == pytest.approx((((0.008) ** 2 + 0.002**2 + 0.006**2) / 2) ** 0.5)
    assert value.difference == pytest.approx(0.005)
    assert Value.of([0.5], 0.4).std is None and Value.of([], 0.4) == Value(None, None, 0.4)
    assert Value.of([], 0.4).difference is None


def test_markdown_shows_ours_the_papers_and_the_difference() -> None:
    values = {"mrr": Value(0.2, 0.0123, 0.193)}
    made = sheets(
        EXPERIMENTS["ablation"],
        [line(values), line({"mrr": Value(None, paper=0.3)}, seeds=[], epochs=[], status="not run: budget")],
        [],
        {"WN18RR_IND": ["A note."]},
    )
    text = markdown(made)
    rows = [row for row in text.splitlines() if row.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert rows[0] == "| Model | MRR | paper | Δ | epochs | seeds |"
    assert "| FnF-T (BERT-tiny) | 0.200 ± 0.012 | 0.193 | +0.007 | 40 | 2 |" in rows
    assert "| FnF-T (BERT-tiny) | not run: budget | 0.300 | – | – | 0 |" in rows
    assert "A note." in text


def test_another_encoder_never_passes_for_the_papers() -> None:
    other = line({"mrr": Value(0.2, None, 0.193)}, encoder=Reader("minilm", "frozen").label)
    text = markdown(sheets(EXPERIMENTS["ablation"], [other], [], {"WN18RR_IND": []}))
    assert "FnF-T (all-MiniLM-L6-v2, frozen)" in text
    assert "The paper's figures are for BERT-tiny, fine-tuned; ours are for all-MiniLM-L6-v2, frozen." in text
    assert (
        Reader("tiny", "finetune", "tiny").label == "BERT-tiny"
        and Reader("tiny", "frozen").label == "BERT-tiny, frozen"
    )
    assert Reader(ENCODER, "frozen").label == "untrained L-1 H-32 A-2, frozen"


def test_latex_is_well_formed() -> None:
    sheet = Sheet(
        "a & b_c",
        ["Model", "MRR"],
        [("part", [Label("50 % of $x_i$ {∖} − [t‖r⁻¹]"), Number(-0.25, 0.5, signed=True)])],
        ["±"],
    )
    text = latex([sheet, sheet])
    for opening in ("table*", "tabular"):
        assert text.count(rf"\begin{{{opening}}}") == text.count(rf"\end{{{opening}}}") == 2
    bare = re.sub(r"\\[{}$]", "", text)
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
    assert all(
        row.count("&") - row.count(r"\&") == 1
        for row in text.splitlines()
        if row.endswith(r"\\") and "multicolumn" not in row
    )
    assert r"$-0.250_{\pm 0.500}$" in text and r"a \& b\_c" in text
    assert text.isascii() and escaped("a\\b") == r"a\textbackslash{}b"


def test_csv_has_a_line_for_each_metric() -> None:
    values = {"mrr": Value(0.2, 0.01, 0.193), "hits@1": Value(0.1)}
    rows = list(csv.DictReader(comma_separated([line(values)]).splitlines()))
    assert [row["metric"] for row in rows] == ["mrr", "hits@1"]
    assert float(rows[0]["difference"]) == pytest.approx(0.007) and rows[1]["paper"] == ""


# Running


@pytest.fixture(scope="module")
def ablation(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that was never stopped."""
    folder = tmp_path_factory.mktemp("ablation") / "table"
    assert run("ablation", store, folder, "--seeds", "73,21") == 0
    return folder


def test_folder_holds_runs_results_table_and_figures(ablation: Path) -> None:
    for name in ("results.json", "results.csv", "table.md", "table.tex", "ablation.png", "ablation.svg"):
        assert (ablation / name).stat().st_size > 100, name
    assert (ablation / "ablation.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "</svg>" in (ablation / "ablation.svg").read_text()
    found = results(ablation)
    assert len(found["cells"]) == 10 and {cell["status"] for cell in found["cells"]} == {"done"}
    for cell in found["cells"]:
        assert cell["epochs"] == 2
        metrics = json.loads((ablation / cell["folder"] / "checkpoint" / "metrics.json").read_text())
        assert cell["metrics"]["test"] == metrics["test"] and (ablation / cell["folder"] / "log.csv").is_file()
    first = found["rows"][0]
    values = [cell["metrics"]["test"]["mrr"] for cell in found["cells"] if cell["row"] == "fnf-tg"]
    assert first["mrr"]["mean"] == pytest.approx(np.mean(values)) and first["mrr"]["std"] == pytest.approx(
        np.std(values, ddof=1)
    )
    assert first["mrr"]["paper"] is None and "untrained" in first["encoder"]


def test_stopped_table_goes_on_and_ends_as_if_never_stopped(
    ablation: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = 0
    step = Run.step

    def interrupted(self: Run, order: Any, index: int) -> float:
        nonlocal steps
        steps += 1
        if steps in (8, 14):  # in the second epoch of the first cell, and in that of the next
            raise KeyboardInterrupt
        return step(self, order, index)

    monkeypatch.setattr(Run, "step", interrupted)
    folder = tmp_path / "table"
    for _ in range(2):
        assert run("ablation", store, folder, "--seeds", "73,21") == 130
        assert "run the same command again to continue" in capsys.readouterr().err
        assert results(folder)["cells"][-1]["status"] == runner.NOT_YET
    assert run("ablation", store, folder, "--seeds", "73,21") == 0
    assert results(folder) == results(ablation)
    assert (folder / "table.md").read_text() == (ablation / "table.md").read_text()
    assert steps < 2 + 2 * 5 * 10 + 8, "cells were trained from the start again"


def test_finished_cells_are_not_run_again(ablation: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Path] = []
    train = Run.train

    def counted(self: Run) -> Any:
        begun.append(self.run)
        return train(self)

    monkeypatch.setattr(Run, "train", counted)
    before = results(ablation)
    assert run("ablation", store, ablation, "--seeds", "73,21") == 0
    assert begun == [] and results(ablation) == before
    assert run("ablation", store, ablation, "--seeds", "73,37") == 0
    assert len(begun) == 5 and all(path.name == "seed-37" for path in begun)


def test_folder_of_other_options_is_refused(ablation: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ablation", store, ablation, "--set", "training.learning_rate=0.5") == 1
    assert "other options" in capsys.readouterr().err


@pytest.fixture(scope="module")
def fully_inductive(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fully-inductive") / "table"
    assert run("fully-inductive", store, folder, "--seeds", "73", "--systems", "fnf-tg") == 0
    return folder


def test_fully_inductive_has_both_readings_of_ten_per_cent(fully_inductive: Path, store: Path) -> None:
    whole = KnowledgeGraph.open(store)
    relation = {name: whole.relations.find(name) for name in ("r0", "r1", "r2")}
    counts = np.bincount(whole.triples("train")[:, 1])
    second = min(("r0", "r1"), key=lambda name: (counts[relation[name]], name))
    removed = {"fir": {"r2"}, "fir-cross": {"r2", second}}  # r2 has less than 10 % of train, and both have more
    evaluations: dict[str, set[str]] = {"fnf-tg-ind": {paper.IND}}
    for reading in READINGS:
        graph = KnowledgeGraph.open(fully_inductive / "graphs" / f"colours-{reading.key.upper()}")
        left = {name for name, row in relation.items() if row in graph.triples("train")[:, 1]}
        assert left == relation.keys() - removed[reading.key]
        evaluations[f"fnf-tg-{reading.key}"] = {paper.IND, reading.unseen}
        evaluations["fnf-tg-ind"].add(reading.unseen)
    cells = {cell["row"]: cell["metrics"] for cell in results(fully_inductive)["cells"]}
    assert {row: set(metrics) for row, metrics in cells.items()} == evaluations
    for metrics in cells.values():
        assert metrics[paper.IND]["queries"] == 2 * len(whole.triples("test"))
        for reading in READINGS:
            asked = np.isin(whole.triples("test")[:, 1], [relation[name] for name in removed[reading.key]])
            assert reading.unseen not in metrics or metrics[reading.unseen]["queries"] == 2 * asked.sum()
    text = (fully_inductive / "table.md").read_text()
    assert text.count("| random ranking |") == 1 and text.count("| frequency baseline |") == 2
    for reading in READINGS:
        assert f"trained on FIR, {reading.words}" in text and f"IND∖FIR, {reading.words}" in text


def test_fully_inductive_ranks_in_the_graph_that_evaluate_ranks_in(
    fully_inductive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = results(fully_inductive)
    for reading in READINGS:
        cell = next(cell for cell in found["cells"] if cell["row"] == f"fnf-tg-{reading.key}")
        folder = str(fully_inductive / cell["folder"])
        for evaluation, options in ((paper.IND, []), (reading.unseen, ["--relations", "unseen"])):
            capsys.readouterr()
            assert main(["evaluate", folder, "--json", *options]) == 0
            evaluated, own = json.loads(capsys.readouterr().out), cell["metrics"][evaluation]
            assert own["mrr"] == pytest.approx(evaluated["mrr"]) and own["candidates"] == evaluated["candidates"]
        baseline = next(line for line in found["baselines"] if line["evaluation"] == reading.unseen)
        assert baseline["mrr"] == pytest.approx(evaluated["baselines"]["frequency"]["mrr"])


def test_reading_that_a_graph_does_not_have_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    triples = [(f"e{i}", "rare" if i % 16 == 0 else "usual", f"e{(7 * i + 1) % 40}") for i in range(40)]
    splits = {"train": triples, "test": [("e1", "rare", "e3"), ("e2", "usual", "e5")]}
    graph = KnowledgeGraph.from_triples(splits, {f"e{i}": f"thing {i}" for i in range(40)}).save(tmp_path / "two")
    folder, small = tmp_path / "table", ("--set", "training.batch_size=8")
    assert run("fully-inductive", graph.path, folder, "--seeds", "73", "--systems", "fnf-t", *small) == 0
    assert "two has no FIR, past 10 %: A share of 10% would remove every relation" in capsys.readouterr().err
    assert [cell["row"] for cell in results(folder)["cells"]] == ["fnf-t-ind", "fnf-t-fir"]
    assert "past 10 %" not in (folder / "table.md").read_text().replace("goes past 10 %", "")


# Wikidata5M: transfer


@pytest.fixture(scope="module")
def transfer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph like Wikidata5M_IND, in which no entity is in two splits."""
    folder = tmp_path_factory.mktemp("transfer") / "synthetic"
    sizes = ["--entities", "120", "--triples", "400", "--relations", "4", "--words", "8"]
    assert main(["data", "synth", *sizes, "-o", str(folder)]) == 0
    return folder


def entities_in(file: Path) -> set[str]:
    return {end for row in file.read_text().splitlines() for end in row.split("\t")[::2]}


def expected_random_mrr(candidates: int) -> float:
    """The paper's formula."""
    return sum(1 / rank for rank in range(1, candidates + 1)) / candidates


def test_paper_formula_gives_its_random_row_only_among_the_entities_of_test() -> None:
    test, everything = paper.DATASETS[paper.WIKIDATA5M]["test.entities"], 4_594_458
    assert round(expected_random_mrr(int(test)), 4) == paper.RANDOM[paper.WIKIDATA5M]
    assert round(expected_random_mrr(everything), 4) == 0.0


def test_wikidata_ranks_among_the_entities_of_the_split(transfer: Path, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    assert run("wikidata", transfer, folder, "--seeds", "73", "--systems", "blp,fnf-tg", "--budget", "2") == 0
    of_val, of_test = entities_in(transfer / "ind-dev.tsv"), entities_in(transfer / "ind-test.tsv")
    assert not of_test & (of_val | entities_in(transfer / "ind-train.tsv"))
    found = results(folder)
    assert [cell["status"] for cell in found["cells"]] == ["done", "done"]
    for cell in found["cells"]:
        assert cell["metrics"][TEST]["candidates"] == len(of_test)
        metrics = json.loads((folder / cell["folder"] / "checkpoint" / "metrics.json").read_text())
        assert metrics["val"]["candidates"] == len(of_val) and metrics["protocol"] == "cumulative-transfer"
    (chance,) = found["baselines"]
    assert chance["label"] == "random ranking" and chance["mrr"] == pytest.approx(expected_random_mrr(len(of_test)))
    text = (folder / "table.md").read_text()
    assert f"protocol cumulative-transfer, {len(of_test)} candidates" in text
    assert f"| random ranking | {expected_random_mrr(len(of_test)):.4f} |" in text


def test_candidates_of_the_command_line_replace_those_of_the_paper(transfer: Path, tmp_path: Path) -> None:
    everything = len(set().union(*(entities_in(file) for file in transfer.glob("ind-*.tsv"))))
    few = ("--seeds", "73", "--systems", "blp", "--set", "training.epochs=1")
    for table, options, count in (
        ("wikidata", ["--candidates", "dynamic"], everything),
        ("inductive", [], everything),
        ("inductive", ["--candidates", "transfer"], len(entities_in(transfer / "ind-test.tsv"))),
    ):
        folder = tmp_path / "-".join([table, *options])
        assert run(table, transfer, folder, *few, *options) == 0
        found = results(folder)
        assert found["ranking"]["synthetic"]["candidates"] == count
        assert found["cells"][0]["metrics"][TEST]["candidates"] == count
        assert found["baselines"][0]["mrr"] == pytest.approx(expected_random_mrr(count))


def test_candidates_and_seeds_are_those_of_the_paper_for_each_dataset() -> None:
    table = EXPERIMENTS["fully-inductive"]
    chosen = {name: (table.setting(name).candidates, len(table.setting(name).seeds)) for name in table.datasets}
    assert chosen == {paper.WN18RR: ("dynamic", 5), paper.FB15K237: ("dynamic", 5), paper.WIKIDATA5M: ("transfer", 2)}


def test_latency_draws_accuracy_against_time(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    assert run("latency", store, folder, "--seeds", "73", "--encoders", f"{ENCODER},scratch:L-2_H-64_A-2") == 0
    for ending in ("png", "svg"):
        assert (folder / f"latency.{ending}").stat().st_size > 1000
    drawn = (folder / "latency.svg").read_text()
    assert "untrained L-2 H-64 A-2" in drawn and "time to encode the texts and train" in drawn
    assert all(cell["seconds"]["set_up"] > 0 for cell in json.loads((folder / "results.json").read_text())["cells"])


def test_inductive_and_controlled_rows_run(store: Path, tmp_path: Path) -> None:
    assert run("inductive", store, tmp_path / "inductive", "--seeds", "73", "--systems", "bow,blp,statik") == 0
    assert [row["row"] for row in results(tmp_path / "inductive")["rows"]] == ["bow", "blp", "statik"]
    assert run("controlled", store, tmp_path / "controlled", "--seeds", "73", "--set", "training.epochs=1") == 0
    rows = results(tmp_path / "controlled")["rows"]
    assert rows[0]["status"] == runner.QUOTED and all(row["status"] == "done" for row in rows[1:])


def test_last_two_rows_of_the_controlled_table_are_one_model(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    train = Run.train

    def counted(self: Run) -> Any:
        begun.append(self.run.parent.name)
        return train(self)

    monkeypatch.setattr(Run, "train", counted)
    table = EXPERIMENTS["controlled"]
    assert run("controlled", store, tmp_path / "table", "--seeds", "73", "--set", "training.epochs=1") == 0
    assert len(begun) == len(set(begun)) == len(table.rows) - 2  # without the quoted row and the last row's twin
    *_, before, sampling, last = results(tmp_path / "table")["rows"]
    assert (sampling["label"], last["label"]) == ("+ better sampling method", "FnF-T")
    assert sampling["mrr"] == last["mrr"] != before["mrr"]


def test_controlled_table_ends_with_fnf_t_and_changes_one_thing_a_row() -> None:
    table, reader = EXPERIMENTS["controlled"], Reader("base", "finetune", "base")
    setting = table.setting(paper.WN18RR)
    configs = [
        asdict(from_dict(RunConfig, run_fields(row, reader, setting, 73, "cumulative", "dynamic")))
        for row in table.rows
        if not row.quoted
    ]
    changed = [
        {
            f"{part}.{name}"
            for part in ("model", "training")
            for name in one[part]
            if one[part][name] != other[part][name]
        }
        for one, other in pairwise(configs)
    ]
    assert changed == [
        {"model.relations"}, {"training.negatives"}, {"model.text"}, {"training.batch_size"}, {"training.negatives"}, set(),
    ]  # fmt: skip
    fnf_t = next(row for row in EXPERIMENTS["inductive"].rows if row.key == "fnf-t")
    assert configs[-1] == asdict(from_dict(RunConfig, run_fields(fnf_t, reader, setting, 73, "cumulative", "dynamic")))


@pytest.mark.parametrize(
    "reader, inductive",
    [(Reader("base", "finetune", "base"), "text"), (Reader("minilm", "frozen", frugal=True), "projection")],
)
def test_inductive_relations_of_the_controlled_table_are_those_of_the_recipe(reader: Reader, inductive: str) -> None:
    table = EXPERIMENTS["controlled"]
    setting = table.setting(paper.WN18RR)
    found = [
        from_dict(RunConfig, run_fields(row, reader, setting, 73, "cumulative", "dynamic")).model.relations
        for row in table.rows
        if not row.quoted
    ]
    assert found == ["table", *[inductive] * (len(found) - 1)]


def test_dataset_table_counts(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "paper",
                "run",
                "datasets",
                "--dataset",
                f"{store},Wikidata5M_IND",
                "-o",
                str(tmp_path / "table"),
                "--json",
            ]
        )
        == 0
    )
    ours, absent = json.loads(capsys.readouterr().out)["rows"]
    assert ours["figures"]["train.triples"] == {"ours": 160, "paper": None, "difference": None}
    assert absent["status"].startswith("not available") and absent["figures"]["relations"]["paper"] == 822
    assert "4,579,609" in (tmp_path / "table" / "table.md").read_text()


# What is missing


def test_encoder_that_cannot_be_had_is_said_in_its_cell(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    folder = tmp_path / "table"
    assert main(["paper", "run", "ablation", "--dataset", str(store), "--sizes", "mini", "-o", str(folder)]) == 0
    assert "encoder google/bert_uncased_L-4_H-256_A-4 could not be downloaded" in (folder / "table.md").read_text()
    assert "No plot: there are no results yet" in capsys.readouterr().err


def test_budget_too_small_still_gives_a_table(store: Path, tmp_path: Path) -> None:
    folder, started = tmp_path / "table", time.monotonic()
    assert (
        run("ablation", store, folder, "--seeds", "73,21", "--set", "training.epochs=100000", "--budget", "0.15") == 0
    )
    assert time.monotonic() - started < 9 + 6
    found = results(folder)
    assert runner.NO_TIME in {cell["status"] for cell in found["cells"]} <= {runner.NO_TIME, "done"}
    assert runner.NO_TIME in (folder / "table.md").read_text()
    for cell in found["cells"]:
        assert cell["status"] != "done" or 1 <= cell["epochs"] < 100000


def test_rows_share_the_time_as_equals() -> None:
    costs = [lambda share: 1 + 100 * share, lambda share: 1 + 10 * share]
    assert share_of_epochs(costs, 10, 1000) == 1.0
    assert share_of_epochs(costs, 10, 2 + 110 * 0.4) == 0.4
    assert share_of_epochs(costs, 10, 3) == 0.1


def test_timing_counts_steps_validations_and_evaluations(store: Path) -> None:
    config = from_dict(
        RunConfig, {"training": {"batch_size": 32, "epochs": 8, "validate_every": 3, "validation_triples": 10}}
    )
    graph = KnowledgeGraph.open(store)
    test = len(graph.triples("test"))
    whole = Timing(9, 1, 0.5, 2, 0.1).whole(graph, config, 4, evaluations=2)
    assert whole == pytest.approx(1 + 4 * 5 * 0.5 + 2 * (2 + 0.1 * 10) + 2 * (2 + 0.1 * test))


def test_budget_ends_whatever_is_going_on() -> None:
    budget = Budget(0.01, time.monotonic())
    with pytest.raises(OutOfTime), budget.enforced():
        while True:
            pass
    assert -5 < budget.left() <= 0
    assert Budget(None, 0.0).left() == float("inf")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def check(arguments: list[str], *parts: str) -> None:
        assert main(["paper", "run", *arguments]) == 1
        printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fnftg: ")]
        assert len(printed) == 1 and all(part in printed[0] for part in parts), printed

    yield check


def test_bad_input_gets_one_sentence(refused: Any, store: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "table")]
    here = ["--dataset", str(store), *out]
    refused(["tables", *here], "tables", "inductive")
    refused(["ablation", "--dataset", "no-such-graph", *out], "no-such-graph")
    refused(["wikidata", *out], "Wikidata5M_IND", "--dataset")
    refused(["ablation", "--seeds", "73,x", *here], "'x'", "--seeds")
    refused(["ablation", "--sizes", "huge", *here], "huge", "tiny")
    refused(["ablation", "--systems", "blp", *here], "blp", "fnf-tg")
    refused(["ablation", "--budget", "0", *here], "--budget")
    refused(["ablation", "--protocol", "none", *here], "none", "cumulative")
    refused(["ablation", "--sizes", "tiny", "--encoder", "minilm", *here], "--sizes", "--encoder")
    refused(["ablation", "--set", "training.batches=3", "--encoder", ENCODER, *here], "training.batches")
    refused(
        ["ablation", "--set", "training.batch_size=many", "--encoder", ENCODER, *here], "training.batch_size", "many"
    )
    refused(
        ["ablation", "--set", "training.batch_size=9999", "--encoder", ENCODER, "--seeds", "73", *here],
        "--training.batch_size",
    )
    refused(["ablation", "--encoder", str(tmp_path / "nothing"), "--seeds", "73", *here], "nothing")


def test_list_names_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "list", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {*EXPERIMENTS, "datasets"}
    assert main(["paper", "list"]) == 0
    assert "latency" in capsys.readouterr().out
