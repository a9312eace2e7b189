"""Test MRR of trained systems under every protocol: the tables by system in docs/protocols.md.

    python benchmarks/protocols.py WN18RR_IND -o protocols-wn18rr
    python benchmarks/protocols.py FB15k-237_IND -o protocols-fb15k237 --max-steps 1620

Every recipe is trained with the first seed, `frugal` with every seed, and each run is ranked under the four protocols.
`held-out` ranks half of the test triples and shows the other half (fnftg split support). Text-only systems see no edge,
so their ranks under `cumulative` are also those under `own-split` and `strict` (tests/test_held_out.py). The folder
keeps runs and rankings: the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from fnftg.console import log, print_json, print_table
from fnftg.files import new_file
from fnftg.models.pretrained import CHECKPOINT, read_metrics

RECIPES = ("frugal", "frugal-tg", "frugal-statik", "frugal-simkgc", "frugal-blp", "frugal-t")
PROTOCOLS = ("own-split", "cumulative", "strict", "held-out")
TEXT_ONLY = ("frugal-simkgc", "frugal-blp", "frugal-t")
BASELINES = ("frequency", "random")
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")


def fnftg(*arguments: object) -> str:
    """Run a command of fnftg and return its output."""
    log(f"fnftg {' '.join(map(str, arguments))}")
    command = [sys.executable, "-m", "fnftg", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(run: Path, graph: str, recipe: str, seed: int, max_steps: int | None) -> None:
    """Train a run, or the rest of it."""
    if run.is_dir():
        fnftg("train", "--resume", run)
        return
    limit = ("--training.max_steps", max_steps) if max_steps and recipe != "frugal" else ()
    fnftg("train", graph, "-o", run, "--config", recipe, "--training.seed", seed, *limit)


def rank(run: Path, support: Path, protocol: str, sees_edges: bool, needs_baselines: bool) -> dict[str, Any]:
    """Rank the test triples under a protocol, unless the folder has the result."""
    if not sees_edges and protocol != "held-out":
        protocol = "cumulative"
    kept = run.parent / f"{run.name}.{protocol}.json"
    if protocol == "cumulative" and not kept.is_file() and not needs_baselines:
        with new_file(kept) as file:  # ranked at the end of training
            file.write_text(json.dumps(read_metrics(run / CHECKPOINT)["test"]))
    if not kept.is_file():
        graph = ("--graph", support) if protocol == "held-out" else ()
        printed = fnftg("evaluate", run, "--protocol", protocol, *graph, "--json")
        with new_file(kept) as file:
            file.write_text(printed)
    result: dict[str, Any] = json.loads(kept.read_text())
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="a graph with new entities in val and test")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="for runs and rankings")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES), help="(default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[73, 74, 75], help="of frugal (default: 73 74 75)")
    parser.add_argument("--max-steps", type=int, help="training steps of the other recipes (default: their epochs)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    support = chosen.output / "support"
    if not support.is_dir():
        fnftg("split", "support", chosen.graph, "-o", support, "--share", 0.5)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for recipe in chosen.recipes:
        results = found.setdefault(recipe, {protocol: [] for protocol in PROTOCOLS})
        for seed in chosen.seeds if recipe == "frugal" else chosen.seeds[:1]:
            run = chosen.output / f"{recipe}-{seed}"
            train(run, chosen.graph, recipe, seed, chosen.max_steps)
            for protocol in PROTOCOLS:
                found_here = rank(run, support, protocol, recipe not in TEXT_ONLY, recipe == chosen.recipes[0])
                results[protocol].append(found_here)
    for baseline in BASELINES:  # the same in every run, as they count the visible edges of the graph
        first = found[chosen.recipes[0]]
        found[baseline] = {protocol: [first[protocol][0]["baselines"][baseline]] for protocol in PROTOCOLS}
    if chosen.json:
        print_json(
            {
                name: {protocol: {key: [one[key] for one in runs] for key in METRICS} for protocol, runs in row.items()}
                for name, row in found.items()
            }
        )
        return 0
    rows = [
        (name, len(row["cumulative"]), *(f"{mean(one['mrr'] for one in row[protocol]):.4f}" for protocol in PROTOCOLS))
        for name, row in found.items()
    ]
    print_table(f"Test MRR on {chosen.graph}", ("system", "seeds", *PROTOCOLS), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
