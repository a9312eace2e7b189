"""Kill commands with SIGKILL at random times, run them again, and compare the results with those of undisturbed runs.

    python benchmarks/kills.py --kills 20
    python benchmarks/kills.py --kills 20 --commands import train --seed 1 --json

Each command runs in a process forked from one that has already loaded the libraries, so that kills hit the work and not
the start of Python. A third of the kills comes at a random time within the duration of the undisturbed command, a third
right after a random file appeared, hidden or not, and a third right after a file appeared under its final name.

A result is wrong if it differs from the undisturbed one, either right after the kill, if there is a result, or after
the second run. A leftover is a hidden file or folder that still exists after the second run. The exit code is 1 if
there are wrong results or leftovers. Empty hidden files are locks, which are harmless and counted in a separate column.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fnftg.console import log, print_json, print_table

SMALL = ["--model.text.encoder", "scratch:L-1_H-32_A-2", "--model.text.width", "16", "--training.batch_size", "32"]
SMALL += ["--training.epochs", "2", "--training.save_every", "3", "--training.log_every", "2", "--trainer.threads", "1"]
CHANGING = ("seconds", "training_seconds")  # metrics that differ between runs
INDEXED = ["predict", "{}/run", "--head", "e1", "--relation", "r1", "--index", "--json"]
Result = dict[str, str]


@dataclass(frozen=True)
class Case:
    """A command, its result, and how to run it again.

    Args:
        command: the arguments; {} is the folder of the trial.
        needs: files and folders that are copied into that folder first.
        result: returns what must be equal, by name; empty if there is no result yet.
        repeat: returns the arguments of the second run, if they differ.
    """

    command: list[str]
    needs: tuple[str, ...]
    result: Callable[[Path], Result]
    repeat: Callable[[Path], list[str]] | None = None


# Results of commands


def digests(*paths: Path, without: tuple[str, ...] = ()) -> Result:
    """Return the SHA-256 of files, and of the files in folders."""
    files = [(path.name, path) for path in paths if path.is_file()]
    for folder in (path for path in paths if path.is_dir()):
        files += [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*")) if path.is_file()]
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files if path.name not in without}


def model(folder: Path) -> Result:
    checkpoint = folder / "run" / "checkpoint"
    try:
        metrics = json.loads((checkpoint / "metrics.json").read_text())
    except FileNotFoundError:
        return {}
    if "test" not in metrics:
        return {}  # training has not finished
    return {**digests(checkpoint / "model.safetensors"), "metrics": json.dumps(unchanging(metrics), sort_keys=True)}


def unchanging(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: unchanging(part) for name, part in value.items() if name not in (*CHANGING, "checksum")}


def updated(folder: Path) -> Result:
    """Return the digests of the current graph and its answers; nothing while the old graph is current."""
    try:
        graph = Path(json.loads((folder / "run" / "answers" / "graph.json").read_text())["graph"])
    except FileNotFoundError:
        return {}
    answers = [path for path in (folder / "run" / "answers").iterdir() if path.is_dir() and path.name[0] != "."]
    newest = max(answers, key=lambda path: path.stat().st_mtime_ns)
    return {**digests(graph, without=("manifest.json",)), **digests(newest, without=("checksums.json",))}


def calibrated(folder: Path) -> Result:
    """Return the digests of the curves and of P(triple); nothing while P(triple) is that of an earlier fit."""
    checkpoint = folder / "run" / "checkpoint"
    try:
        if json.loads((checkpoint / "probability.json").read_text())["about"]["seed"] != 1:
            return {}
    except FileNotFoundError:
        return {}
    return digests(checkpoint / "calibration.json", checkpoint / "probability.json")


def output(name: str) -> Callable[[Path], Result]:
    return lambda folder: digests(folder / name)


def with_force(*arguments: str) -> Callable[[Path], list[str]]:
    return lambda folder: [*arguments, "--force"]


def resumed(folder: Path) -> list[str]:
    """Resume the run, or start it if it was not even begun, as the messages advise."""
    begun = (folder / "run" / "config.json").is_file()
    return ["train", "--resume", "{}/run"] if begun else CASES["train"].command


IMPORT, COMPLETE = (
    ["import", "{}/source", "-o", "{}/store"],
    ["complete", "{}/run", "-o", "{}/out.tsv", "--relations", "r1"],
)
EMBED = ["embed", "{}/run", "-o", "{}/out.safetensors"]
UPDATE = ["update", "{}/run", "--triples", "{}/new.tsv", "--texts", "{}/new.txt"]
CASES = {
    "import": Case(
        IMPORT, ("source",), lambda folder: digests(folder / "store", without=("manifest.json",)), with_force(*IMPORT)
    ),
    "train": Case(["train", "{}/graph", "-o", "{}/run", *SMALL], ("graph",), model, resumed),
    "calibrate": Case(["calibrate", "{}/run", "--seed", "1"], ("graph", "run"), calibrated),
    "complete": Case(COMPLETE, ("graph", "run"), output("out.tsv"), with_force(*COMPLETE)),
    "update": Case(UPDATE, ("graph", "run", "new.tsv", "new.txt"), updated),
    "embed": Case(EMBED, ("graph", "run"), output("out.safetensors"), with_force(*EMBED)),
    "index": Case(INDEXED, ("graph", "run"), output("stdout")),
}


# Processes


def started(arguments: list[str], folder: Path) -> int:
    """Start a command in a new process and return its id; its output is written to files in the folder."""
    process = os.fork()
    if process:
        return process
    try:
        os.environ["FNFTG_HOME"] = str(folder / "home")
        for name, number in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        from fnftg.cli import main

        code = main([word.replace("{}", str(folder)) for word in arguments])
        sys.stdout.flush()
        os._exit(code)
    finally:
        os._exit(70)


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def run(arguments: list[str], folder: Path) -> None:
    if code := ended(started(arguments, folder)):
        said = (folder / "stderr").read_text()
        raise RuntimeError(f"fnftg {' '.join(arguments)} ended with {code}: {said}")


def prepare(folder: Path, with_run: bool) -> None:
    """Create a small graph, files for an update and, if needed, a run."""
    chance = random.Random(0)
    pairs = [(chance.randrange(400), chance.randrange(400)) for _ in range(1_500)]
    triples = [f"e{head}\tr{(head + tail) % 5}\te{tail}\n" for head, tail in pairs]
    (folder / "source").mkdir()
    for name, lines in (("train", triples[:1_200]), ("dev", triples[1_200:1_350]), ("test", triples[1_350:])):
        (folder / "source" / f"ind-{name}.tsv").write_text("".join(lines))
    kinds = ("red", "green", "blue", "grey")
    texts = [f"e{row}\tEntity {row}, a {kinds[row % 4]} thing of class {row % 7}\n" for row in range(400)]
    (folder / "source" / "entity2text.txt").write_text("".join(texts))
    (folder / "source" / "relation2text.txt").write_text("".join(f"r{row}\trelation {row}\n" for row in range(5)))
    (folder / "new.txt").write_text("".join(f"n{row}\tA new one, number {row}\n" for row in range(20)))
    (folder / "new.tsv").write_text("".join(f"n{row}\tr{row % 5}\te{7 * row}\n" for row in range(20)))
    run(["import", "{}/source", "-o", "{}/graph"], folder)
    if with_run:
        run(["train", "{}/graph", "-o", "{}/run", *SMALL], folder)
        run(["calibrate", "{}/run"], folder)


def trial(prepared: Path, case: Case, folder: Path) -> None:
    """Copy the files that a command needs into a new folder, and point the run to the graph there."""
    folder.mkdir()
    for name in ("stdout", "stderr"):
        (folder / name).touch()
    for name in case.needs:
        (shutil.copytree if (prepared / name).is_dir() else shutil.copy)(prepared / name, folder / name)
    config = folder / "run" / "config.json"
    if config.exists():
        value = {name: part for name, part in json.loads(config.read_text()).items() if name != "checksum"}
        config.write_text(json.dumps({**value, "graph": str(folder / "graph")}))


def appearances(folder: Path, process: int, hidden: bool, limit: int = sys.maxsize) -> int:
    """Wait until new files appeared `limit` times or the process ended; return how often they appeared."""
    seen, count = paths(folder, hidden), 0
    while count < limit and os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        found = paths(folder, hidden)
        count += not found <= seen
        seen |= found
    return count


def paths(folder: Path, hidden: bool) -> set[str]:
    """Return all paths in a folder, without hidden ones unless `hidden`."""
    found: set[str] = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if hidden or name[0] != "."]
        found.update(os.path.join(place, name) for name in (*folders, *files) if hidden or name[0] != ".")
    return found


def hidden_paths(folder: Path) -> tuple[list[str], list[str]]:
    """Return the hidden paths in a folder, and separately the locks, which are empty files."""
    hidden = [path for path in folder.rglob("*") if path.name[0] == "."]
    locks = [path for path in hidden if path.is_file() and not path.stat().st_size]
    return [str(path.relative_to(folder)) for path in hidden if path not in locks], [path.name for path in locks]


def measured(name: str, kills: int, seed: int, prepared: Path, work: Path) -> dict[str, Any]:
    """Return one row of the table: how often a killed and repeated command had a wrong result or leftovers."""
    case, chance = CASES[name], random.Random(f"{name} {seed}")
    seconds, results, appeared = [], [], {}
    for hidden in (False, True):
        folder = work / f"{name}-undisturbed-{hidden}"
        trial(prepared, case, folder)
        begun, process = time.monotonic(), started(case.command, folder)
        appeared[hidden] = max(appearances(folder, process, hidden), 1)
        if code := ended(process):
            raise RuntimeError(f"fnftg {name} ended with {code}: {(folder / 'stderr').read_text()}")
        seconds.append(time.monotonic() - begun)
        results.append(case.result(folder))
    expected = results[0]
    assert expected and results[1] == expected, f"{name} has no reproducible result to compare with"
    killed, wrong, left, locks = 0, [], [], 0
    for number in range(2 * kills):  # some commands end before the kill
        if killed == kills:
            break
        folder = work / f"{name}-{number}"
        trial(prepared, case, folder)
        process, begun = started(case.command, folder), time.monotonic()
        if way := number % 3:
            appearances(folder, process, way == 1, chance.randint(1, appeared[way == 1]))
        else:
            time.sleep(min(seconds) * ((number + chance.random()) / kills % 1))
        moment = time.monotonic() - begun
        os.kill(process, signal.SIGKILL)
        killed += ended(process) == -signal.SIGKILL
        found = case.result(folder) if name != "index" else {}
        if found and found != expected:
            wrong.append(f"wrong result right after a kill at {moment:.2f} s")
        try:
            run(case.repeat(folder) if case.repeat else case.command, folder)
            if case.result(folder) != expected:
                wrong.append(f"wrong result of the second run after a kill at {moment:.2f} s")
        except RuntimeError as error:
            wrong.append(f"second run failed after a kill at {moment:.2f} s: {error}")
        found_left, found_locks = hidden_paths(folder)
        left += [f"leftover of a kill at {moment:.2f} s: {path}" for path in found_left]
        locks += len(found_locks)
        shutil.rmtree(folder)
    for words in (*wrong, *left):
        log(f"{name}: {words}")
    return {
        "command": name,
        "seconds": round(min(seconds), 2),
        "kills": killed,
        "wrong": len(wrong),
        "leftovers": len(left),
        "locks": locks,
    }


def load_libraries() -> None:
    """Import the libraries once, before all forks. Nothing may start threads here, as they do not survive a fork."""
    names = ("commands.calibrate", "commands.complete", "commands.update", "graph_update", "index", "completion")
    for name in (
        *(f"fnftg.predict.{name}" for name in names),
        "fnftg.training.loop",
        "fnftg.kg.commands.import_export",
    ):
        importlib.import_module(name)
    for name in ("fnftg.training.train_command", "fnftg.ranking.reliability", "faiss", "safetensors.torch"):
        importlib.import_module(name)
    import transformers

    for name in ("AutoModel", "AutoTokenizer", "BertConfig", "BertModel", "PreTrainedTokenizerFast"):
        getattr(transformers, name)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="kills per command (default: 20)")
    parser.add_argument(
        "--commands", nargs="+", choices=CASES, default=list(CASES), help="commands to kill (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the kill times (default: 0)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    load_libraries()

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "prepared").mkdir()
        prepare(work / "prepared", any("run" in CASES[command].needs for command in chosen.commands))
        rows = [measured(command, chosen.kills, chosen.seed, work / "prepared", work) for command in chosen.commands]
    if chosen.json:
        print_json(rows)
    else:
        columns = list(rows[0])
        print_table(
            "Killed with SIGKILL, then run again", columns, [[row[column] for column in columns] for row in rows]
        )
    return int(any(row["wrong"] or row["leftovers"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
