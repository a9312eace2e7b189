"""Runs can be stopped anywhere, shared among processes, and go wrong with one sentence."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fnftg
from fnftg.checksums import write_checksums
from fnftg.cli import main
from fnftg.errors import FnftgError
from fnftg.json_files import read_json, write_json
from fnftg.kg import KnowledgeGraph
from fnftg.models.configs import from_dict
from fnftg.models.pretrained import from_pretrained, save_pretrained
from fnftg.ranking.evaluation import split_metrics
from fnftg.ranking.protocols import protocol
from fnftg.ranking.runs import RunFolder
from fnftg.training.loop import train_run
from fnftg.training.recipes import merge_fields
from fnftg.training.run_config import RunConfig

SMALL = {
    "model": {
        "text": {"encoder": "scratch:L-1_H-32_A-2", "words": 6, "width": 32},
        "graph": {"heads": 2, "dropout": 0.1},
        "ego": {"num_neighbours": 4},
    },
    "training": {
        "epochs": 2, "batch_size": 64, "learning_rate": 0.003, "save_every": 3, "log_every": 1, "protocol": "cumulative",
        "loss": {"name": "infonce", "temperature": 4.0},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph that a model can learn: its texts say who belongs to whom."""
    random = np.random.default_rng(0)
    groups = random.integers(0, 12, 240)
    colours = ["red", "blue", "green", "grey", "pink", "gold", "teal", "cyan", "lime", "plum", "navy", "rust"]
    texts = {f"e{i}": f"{colours[group]} thing {colours[group]} {i % 7}" for i, group in enumerate(groups)}
    pairs = [(i, int(random.choice(np.flatnonzero(groups == groups[i])))) for i in random.integers(0, 240, 700)]
    triples = [(f"e{h}", f"r{(h + t) % 2}", f"e{t}") for h, t in pairs]
    splits = {"train": triples[:560], "val": triples[560:630], "test": triples[630:]}
    path = tmp_path_factory.mktemp("graph") / "store"
    KnowledgeGraph.from_triples(splits, texts, {"r0": "is next to", "r1": "is like"}).save(path)
    return path


def configured(**changes: object) -> RunConfig:
    config: RunConfig = from_dict(RunConfig, merge_fields(SMALL, changes))  # type: ignore[arg-type]
    return config


def command(store: Path, run: Path, **changes: object) -> list[str]:
    """The same run as a command line."""
    file = run.parent / f"{run.name}.json"
    file.write_text(json.dumps(merge_fields(SMALL, changes)))  # type: ignore[arg-type]
    return [sys.executable, "-m", "fnftg", "train", str(store), "-o", str(run), "--config", str(file)]


def weights(run: Path, name: str = "restart/weights.safetensors") -> dict[str, torch.Tensor]:
    return load_file(run / name)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def losses(run: Path) -> list[float]:
    return [float(row["loss"]) for row in csv.DictReader(open(run / "log.csv")) if row["learning_rate"]]


@pytest.mark.parametrize("training", ["frozen", "finetune"])
def test_killed_and_resumed_run_is_bit_identical(training: str, store: Path, tmp_path: Path) -> None:
    text = {"model": {"text": {"training": training}}}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_run(KnowledgeGraph.open(store), configured(**text), whole)
    slow = "import fnftg.training.loop as l, time, sys; from fnftg.cli import main; s = l.Run.step\n"
    slow += "l.Run.step = lambda *a: (time.sleep(0.15), s(*a))[1]; sys.exit(main(sys.argv[1:]))"  # room to be killed in
    first = [sys.executable, "-c", slow, *command(store, killed, **text)[3:]]
    again = [sys.executable, "-c", slow, "train", "--resume", str(killed)]
    random, kills = np.random.default_rng(len(training)), 0
    for attempt in range(6):
        begun = (killed / "restart").exists()
        last = attempt == 5
        process = subprocess.Popen(again if begun else first, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        if last:
            assert process.wait() == 0, process.stderr.read().decode() if process.stderr else ""
            break
        seen = restart_step(killed)
        while process.poll() is None and restart_step(killed) == seen:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() != 0
        for name in ("checkpoint", "restart"):
            if (killed / name).exists():
                assert (killed / name / {"checkpoint": "metrics.json", "restart": "state.json"}[name]).is_file()
    assert kills >= 3
    assert same(weights(whole), weights(killed))
    assert same(weights(whole, "checkpoint/model.safetensors"), weights(killed, "checkpoint/model.safetensors"))
    assert losses(whole) == losses(killed)


def test_several_threads_give_the_same_weights_every_time(store: Path, tmp_path: Path) -> None:
    wide = {"text": {"training": "frozen", "width": 512}}  # so that gradients are worth several threads
    config = configured(model=wide, training={"epochs": 1, "batch_size": 512}, trainer={"threads": 2})
    for run in ("one", "other", "third"):
        train_run(KnowledgeGraph.open(store), config, tmp_path / run)
    assert same(weights(tmp_path / "one"), weights(tmp_path / "other"))
    assert same(weights(tmp_path / "one"), weights(tmp_path / "third"))


@pytest.mark.parametrize("training", ["frozen", "finetune"])
def test_bfloat16_trains_and_learns_about_the_same(training: str, store: Path, tmp_path: Path) -> None:
    """Which `auto` chooses on a GPU; the weights themselves stay in float32."""
    model = {"text": {"training": training}}
    for precision in ("32-true", "bf16-mixed"):
        config = configured(model=model, trainer={"precision": precision, "threads": 1})
        train_run(fnftg.KnowledgeGraph.open(store), config, tmp_path / precision)
    first, second = (np.array(losses(tmp_path / precision)) for precision in ("32-true", "bf16-mixed"))
    assert (first != second).any() and second == pytest.approx(first, rel=0.1)
    assert {weight.dtype for weight in weights(tmp_path / "bf16-mixed").values() if weight.is_floating_point()} == {
        torch.float32
    }


def restart_step(run: Path) -> int:
    try:
        return int(json.loads((run / "restart" / "state.json").read_text())["step"])
    except (OSError, ValueError):
        return -1


def test_training_learns_and_the_checkpoint_ranks_as_the_run_did(store: Path, tmp_path: Path) -> None:
    graph = KnowledgeGraph.open(store)
    text = {"training": "finetune", "pooling": "mean"}
    train_run(graph, configured(model={"text": text}, training={"epochs": 12, "validate_every": 4}), tmp_path / "run")
    found = losses(tmp_path / "run")
    assert np.mean(found[-8:]) < 0.7 * np.mean(found[:8])
    metrics = json.loads((tmp_path / "run" / "checkpoint" / "metrics.json").read_text())
    assert metrics["test"]["mrr"] > 5 * sum(1 / i for i in range(1, 241)) / 240
    model = from_pretrained(tmp_path / "run")
    texts = model.texts(graph)
    again = split_metrics(model, graph, texts, "test", protocol("cumulative"))
    assert again["mrr"] == pytest.approx(metrics["test"]["mrr"], abs=1e-6)
    assert "MRR" in (tmp_path / "run" / "checkpoint" / "README.md").read_text()


@pytest.mark.parametrize(
    "model",
    [
        {"text": {"training": "frozen", "query": "text"}},
        {"text": {"training": "finetune", "query": "text"}},
        {"text": {"training": "finetune-centre"}},
        {"ego": {"directions": "out"}},
        {"ego_graphs": False, "relation_conditioning": False, "score": "complex", "normalise": True},
    ],
    ids=["frozen query texts", "the paper's", "centre", "edges out", "text only"],
)
def test_every_way_to_train_gives_a_model_that_can_be_saved_and_loaded(
    model: dict[str, object], store: Path, tmp_path: Path
) -> None:
    config = configured(model=model, training={"epochs": 1, "save_every": 100, "accumulate": 3})
    trained = train_run(KnowledgeGraph.open(store), config, tmp_path / "run")
    save_pretrained(trained, tmp_path / "copy")
    for folder in (tmp_path / "run", tmp_path / "copy"):
        assert same(dict(trained.state_dict()), dict(from_pretrained(folder).state_dict()))


@pytest.mark.parametrize(
    "option", ["--training.batch=8", "--training.epochs=zero", "--model.evidence.sources=mentions"]
)
def test_option_that_does_not_fit_is_one_sentence(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "anything", "-o", "anywhere", option]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and option.split("=", maxsplit=1)[0].removeprefix("--") in said and "--help" in said


def test_two_processes_have_the_losses_of_one(store: Path, tmp_path: Path) -> None:
    changes = {"model": {"graph": {"dropout": 0.0}}, "training": {"epochs": 7}}
    train_run(KnowledgeGraph.open(store), configured(**changes), tmp_path / "one")
    two = command(store, tmp_path / "two", **changes)
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", *two[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = ["--trainer.devices", "2", "--trainer.accelerator", "cpu"]
    result = subprocess.run([*launched, *options], capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    one, other = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(other) >= 50
    apart = np.abs(np.array(one) - np.array(other))
    assert apart[:20].max() < 5e-6 and apart.max() < 1e-3  # sums in another order, whose effect grows with the steps


def test_interrupted_run_saves_and_says_how_to_go_on(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(command(store, run, training={"epochs": 500}), stderr=subprocess.PIPE, text=True)
    while not (run / "restart").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate()
    assert process.returncode == 130 and f"fnftg train --resume {run}" in printed and "Traceback" not in printed


def test_log_of_a_run_grows_while_it_is_trained(store: Path, tmp_path: Path) -> None:
    """Lines on standard error and in log.csv, long before the first epoch or restart point is complete."""
    run = tmp_path / "run"
    changes = {"training": {"epochs": 500, "save_every": 10**6, "validate_every": 500}}
    environment = {**os.environ, "FNFTG_PROGRESS_SECONDS": "0.2"}
    code = "import fnftg.training.loop as l, time, sys; from fnftg.cli import main; s = l.Run.step\n"
    code += "l.Run.step = lambda *a: (time.sleep(0.3), s(*a))[1]; sys.exit(main(sys.argv[1:]))"
    with open(tmp_path / "printed", "w") as printed:
        arguments = [sys.executable, "-c", code, *command(store, run, **changes)[3:]]
        process = subprocess.Popen(arguments, stdout=printed, stderr=printed, env=environment)
        while process.poll() is None and not (run / "log.csv").exists():
            time.sleep(0.02)
        assert (run / "log.csv").read_text().startswith("step,epoch,seconds,loss,learning_rate,")
        while process.poll() is None and len((run / "log.csv").read_text().splitlines()) < 4:
            time.sleep(0.02)
        process.kill()
        process.wait()
    assert not (run / "restart").exists() and len(losses(run)) >= 3
    lines = [line for line in (tmp_path / "printed").read_text().splitlines() if line.startswith("Training: ")]
    assert len(lines) >= 2 and re.match(
        r"Training: [\d,]+ of 256,000 triples, [\d,.]+ triples/s, epoch 1, loss [\d.]+, .* left$", lines[-1]
    )


def test_patience_without_validation_is_refused(store: Path, tmp_path: Path) -> None:
    graph = KnowledgeGraph.open(store)
    without = graph.with_splits({"train": graph.triples("train")}, {})
    with pytest.raises(FnftgError, match="patience needs a val split"):
        train_run(without, configured(training={"patience": 1}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    steps: list[int] = []
    train_run(without, configured(), tmp_path / "run", after_step=lambda step, _: steps.append(step))
    assert len(steps) == 16, "without patience every epoch is trained"


def test_patience_stops_a_run_that_does_not_improve(store: Path, tmp_path: Path) -> None:
    steps: list[int] = []
    config = configured(training={"patience": 1, "epochs": 9, "learning_rate": 1e-12})
    train_run(KnowledgeGraph.open(store), config, tmp_path / "run", after_step=lambda step, _: steps.append(step))
    assert 16 <= len(steps) < 72


def test_steps_are_limited_to_whole_epochs_and_the_run_is_that_of_as_many_epochs_or_to_a_part_of_one(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """560 triples in batches of 64 are 8 steps an epoch; 23 steps are two whole epochs, 3 are a part of one."""
    losses: dict[str, list[float]] = {}
    for name, limits in {
        "limited": {"epochs": 9, "max_steps": 23}, "same": {"epochs": 2}, "short": {"epochs": 9, "max_steps": 3},
    }.items():  # fmt: skip
        losses[name] = []
        train_run(
            KnowledgeGraph.open(store),
            configured(training=limits),
            tmp_path / name,
            after_step=lambda step, loss, kept=losses[name]: kept.append(loss),  # type: ignore[misc]
        )
    assert losses["limited"] == losses["same"] and len(losses["same"]) == 16
    assert len(losses["short"]) == 3 and losses["short"][0] == losses["same"][0]
    said = capsys.readouterr().err
    assert "2 instead of 9 epochs of 8 steps, because --training.max_steps is 23." in said
    assert "3 of the 8 steps of an epoch, because --training.max_steps is 3." in said
    assert "1/1" in said, "it ends with a validation"


def test_paper_learning_rate_follows_the_batch() -> None:
    config: RunConfig = from_dict(RunConfig, {"training": {"batch_size": 128}})
    assert config.training.first_learning_rate == pytest.approx(4e-5)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_not_fetched_anew() -> None:
    """Filling 64 MB that were freed before touches 16,384 new pages, or none if they were kept."""
    code = """
import sys, resource, numpy
from fnftg.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
counts = []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numpy.full(64 << 20, 7, numpy.uint8)
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(counts[1:]))
"""
    faults = {
        way: int(subprocess.run([sys.executable, "-c", code, way], capture_output=True, text=True, check=True).stdout)
        for way in ("kept", "returned")
    }
    assert faults["kept"] < 100 and faults["kept"] < faults["returned"]


# Bad input

CASES: dict[str, tuple[dict[str, object], list[str]]] = {
    "unknown field": ({"model": {"text": {"encodr": "tiny"}}}, ["model.text.encodr", "encoder"]),
    "wrong type": ({"training": {"epochs": "many"}}, ["training.epochs", "int"]),
    "wrong choice": ({"model": {"score": "rotate"}}, ["model.score", "transe"]),
    "contradiction": ({"model": {"ego_graphs": False, "text": {"training": "finetune-centre"}}}, ["centre", "ego-graphs"]),
    "heads that do not divide": ({"model": {"graph": {"heads": 5}}}, ["5 heads"]),
    "batch too large": ({"training": {"batch_size": 1000}}, ["--training.batch_size", "534"]),
    "missing encoder": ({"model": {"text": {"encoder": "./no-such-folder"}}}, ["no-such-folder"]),
    "loss that is not a number": ({"training": {"learning_rate": 1e30, "grad_clip": 0.0}}, ["loss is", "learning_rate"]),
}  # fmt: skip


@pytest.mark.parametrize("value", ["9" * 5000, "0x" + "f" * 5000, "-" + "9" * 5000, "2024-13-45"])
@pytest.mark.parametrize("field", ["epochs", "learning_rate"])
@pytest.mark.parametrize("is_option", [False, True])
def test_number_that_cannot_be_gets_one_sentence(
    field: str, value: str, is_option: bool, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").write_text(
        "base: frugal\n" if is_option else f"base: frugal\ntraining: {{{field}: {value}}}\n"
    )
    options = [f"--training.{field}={value}"] if is_option else []
    assert (
        main(["train", str(store), "-o", str(tmp_path / "run"), "--config", str(tmp_path / "my.yaml"), *options]) == 1
    )
    printed = capsys.readouterr().err
    assert printed.startswith("fnftg: ") and printed.count("\n") == 1 and len(printed) < 600
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", CASES)
def test_bad_config_gets_one_sentence(
    case: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, parts = CASES[case]
    assert main(command(store, tmp_path / "run", **changes)[3:]) == 1
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fnftg: ")]
    assert len(printed) == 1
    for part in parts:
        assert part in printed[0]


def test_other_architecture_gets_one_sentence(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "vision"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "vit", "architectures": ["ViTModel"], "hidden_size": 32}')
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "model.safetensors").write_bytes(b"")
    assert main(command(store, tmp_path / "run", model={"text": {"encoder": str(folder)}})[3:]) == 1
    assert "vit" in capsys.readouterr().err


def test_graph_without_train_triples_is_refused(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_triples({"test": [("a", "r", "b")]})
    with pytest.raises(FnftgError, match="no triples in train"):
        train_run(graph, configured(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_run_that_was_stopped_before_its_first_restart_point_can_be_resumed(store: Path, tmp_path: Path) -> None:
    graph, config = KnowledgeGraph.open(store), configured(training={"epochs": 1})

    def stop(step: int, loss: float) -> None:
        raise RuntimeError

    train_run(graph, config, tmp_path / "whole")
    with pytest.raises(RuntimeError):
        train_run(graph, config, tmp_path / "run", after_step=stop)
    assert not (tmp_path / "run" / "restart").exists()
    with pytest.raises(FnftgError, match="continue with --resume"):
        train_run(graph, config, tmp_path / "run")
    train_run(graph, config, tmp_path / "run", resume=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "run"))
    left = tmp_path / "early" / ".config.json.partial-abcd_123"
    left.mkdir(parents=True)  # stopped even before its config was written
    (left / "fnftg-partial").touch()
    train_run(graph, config, tmp_path / "early")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "early")) and not left.exists()


def test_resumed_run_removes_what_a_kill_left(store: Path, tmp_path: Path) -> None:
    graph, config = KnowledgeGraph.open(store), configured(training={"epochs": 1})
    train_run(graph, config, tmp_path / "run")
    for name in ("config.json", "log.csv", "checkpoint", "restart"):
        left = tmp_path / "run" / f".{name}.partial-abcd_123"
        left.mkdir()
        (left / "fnftg-partial").touch()
    train_run(graph, config, tmp_path / "run", resume=True)
    assert not list((tmp_path / "run").glob(".*"))


ODD_STATES: dict[str, dict[str, Any]] = {
    "epoch": {"epoch": "x"},
    "epochs beyond the last": {"epoch": 10**9},
    "epochs and steps beyond the last": {"epoch": 10**9, "step": 8 * 10**9},
    "huge epoch": {"epoch": 10**4000},
    "truth": {"epoch": True},
    "negative step": {"step": -5},
    "half a step": {"step": 1.5},
    "no step": {"step": None},
    "steps of another epoch": {"step": 3},
    "no best": {"best": None},
    "best epoch to come": {"best_epoch": 2},
    "seconds": {"seconds": "NaN"},
    "seconds that are no number": {"seconds": float("nan")},
    "graph": {"graph": 1},
    "log": {"log": "x"},
    "numbers as log": {"log": [1, 2]},
    "lists in the log": {"log": [{"loss": [1]}]},
    "unknown column": {"log": [{"a": 1}]},
    "unknown field": {"more": 1},
}


@pytest.fixture(scope="module")
def resumable(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("resumable") / "run"
    train_run(KnowledgeGraph.open(store), configured(training={"epochs": 1}), run)
    return run


@pytest.mark.parametrize("case", ODD_STATES)
def test_odd_restart_point_with_a_fitting_checksum_gets_one_sentence(
    case: str, resumable: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(resumable, tmp_path / "run")
    folder = tmp_path / "run" / "restart"
    write_json(folder / "state.json", {**read_json(folder / "state.json"), **ODD_STATES[case]})
    (folder / "checksums.json").unlink()
    write_checksums(folder, "restart")
    assert main(["train", "--resume", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "train from the start into another folder" in printed


def test_run_is_neither_overwritten_nor_resumed_with_another_graph(store: Path, tmp_path: Path) -> None:
    graph = KnowledgeGraph.open(store)
    config = configured(training={"epochs": 1})
    train_run(graph, config, tmp_path / "run")
    before = weights(tmp_path / "run")
    with pytest.raises(FnftgError, match="already exists"):
        train_run(graph, config, tmp_path / "run")
    other = graph.extended({"new": "a new thing"})
    with pytest.raises(FnftgError, match="another graph"):
        train_run(other, config, tmp_path / "run", resume=True)
    with pytest.raises(FnftgError, match="no run to resume"):
        train_run(graph, config, tmp_path / "nothing", resume=True)
    assert same(before, weights(tmp_path / "run"))
    (tmp_path / "run" / "checkpoint" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(FnftgError, match="damaged"):
        from_pretrained(tmp_path / "run")


def test_run_finds_its_graph_from_any_folder_and_never_takes_another(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    shutil.copytree(store, tmp_path / "graph")
    monkeypatch.chdir(tmp_path / "a")
    train_run(KnowledgeGraph.open("../graph"), configured(training={"epochs": 1}), Path("run"))
    run, others = RunFolder(tmp_path / "a" / "run"), tmp_path / "elsewhere" / "graph"
    other = KnowledgeGraph.open(store).extended(triples=[("e1", "r0", "e2")], split="train")
    others.parent.mkdir()
    other.save(others)
    (others.parent / "a").mkdir()
    monkeypatch.chdir(others.parent / "a")  # where ../graph is another graph
    assert run.graph().path == tmp_path / "graph"
    other.save(tmp_path / "graph2")
    shutil.rmtree(tmp_path / "graph")
    (tmp_path / "graph2").rename(tmp_path / "graph")
    with pytest.raises(FnftgError, match=r"is not the one that .*run was trained on: name .* with --graph"):
        run.graph()


def test_run_of_an_older_version_says_which_graph_its_relative_path_means(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"graph": store.name, "config": {}}))
    monkeypatch.chdir(store.parent)
    assert len(RunFolder(tmp_path).graph().entities) == 240
    assert f"relative path: using {store}" in capsys.readouterr().err


def test_run_without_a_restart_point_is_not_resumed_with_another_graph(store: Path, tmp_path: Path) -> None:
    graph, config = KnowledgeGraph.open(store), configured(training={"epochs": 1})

    def stop(step: int, loss: float) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        train_run(graph, config, tmp_path / "run", after_step=stop)
    with pytest.raises(FnftgError, match="another graph"):
        train_run(graph.extended({"new": "a new thing"}), config, tmp_path / "run", resume=True)


# In Python


def test_train_and_evaluate_take_names_folders_and_changes(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FNFTG_HOME", str(tmp_path / "home"))
    steps: list[int] = []
    changes: dict[str, Any] = {"training": {"epochs": 1, "seed": 5}}
    model = fnftg.train(store, SMALL, output=tmp_path / "one", after_step=lambda step, _: steps.append(step), **changes)
    assert steps == list(range(1, 9)), "the fields that were changed are merged into those of the recipe"
    file = tmp_path / "small.json"
    file.write_text(json.dumps(SMALL))
    fnftg.train(KnowledgeGraph.open(store), file, output=tmp_path / "two", **changes)
    fnftg.train(str(store), config=configured(**changes), output=tmp_path / "three")
    for other in ("two", "three"):
        assert same(weights(tmp_path / "one"), weights(tmp_path / other))
    found = fnftg.evaluate(model, store, "strict")
    again = fnftg.evaluate(tmp_path / "one", protocol="strict")
    assert found["mrr"] == again["mrr"] and again["protocol"]["name"] == "strict"
    with pytest.raises(FnftgError, match="pass the graph"):
        fnftg.evaluate(model)
    with pytest.raises(FnftgError, match="set training in the config"):
        fnftg.train(store, output=tmp_path / "four", config=configured(), training={"epochs": 1})
    with pytest.raises(FnftgError, match="unknown field optimiser"):
        fnftg.train(store, output=tmp_path / "four", optimiser="adam")
