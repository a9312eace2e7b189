"""`fnftg paper list|run`: reproduce the tables of the paper."""

from __future__ import annotations

import argparse
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from fnftg.console import log, print_json, print_table
from fnftg.errors import FnftgError, shortened
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, examples
from fnftg.ranking.protocols import DEFAULT_PROTOCOL, PROTOCOLS


def list_tables(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg paper list", "fnftg paper list --json")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    from fnftg.paper.dataset_table import SUMMARY
    from fnftg.paper.experiments import EXPERIMENTS, SETTINGS
    from fnftg.paper.published_results import DATASETS

    tables: dict[str, dict[str, Any]] = {
        name: {
            "summary": experiment.summary,
            "datasets": list(experiment.datasets),
            "systems": list(dict.fromkeys(row.system for row in experiment.rows)),
            "seeds": {dataset: list(SETTINGS[dataset].seeds) for dataset in experiment.datasets},
        }
        for name, experiment in EXPERIMENTS.items()
    }
    tables["datasets"] = {"summary": SUMMARY, "datasets": list(DATASETS), "systems": [], "seeds": {}}
    if chosen.json:
        print_json(tables)
        return
    rows = [(name, table["summary"], ", ".join(table["datasets"])) for name, table in tables.items()]
    print_table(
        "Tables of the paper", ["name", "what it is", "datasets"], rows, "Run a table with fnftg paper run NAME."
    )


def run_table(parser: ArgumentParser, arguments: list[str]) -> None:
    started = time.monotonic()
    chosen = parse(parser, arguments)
    from fnftg.paper.table_builder import build_dataset_table, build_table

    folder = chosen.output or Path(f"paper-{chosen.name}")
    try:
        results = (
            build_dataset_table(chosen, folder) if chosen.name == "datasets" else build_table(chosen, folder, started)
        )
    except KeyboardInterrupt:
        log(f"Finished runs are in {folder}; run the same command again to continue.")
        raise
    if chosen.json:
        print_json(results)
    log(f"Written to {folder}: " + ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file())))


def parse(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    parser.epilog = examples(
        "fnftg paper run inductive --dataset wordnet-animals --encoder minilm --budget 20",
        "fnftg paper run ablation --sizes tiny --seeds 73,21 -o ablation",
        "fnftg paper run latency --dataset wordnet-animals --encoder scratch:L-2_H-128_A-2,minilm",
        "fnftg paper run controlled --encoder minilm --set training.epochs=5",
        "fnftg paper run datasets",
    )
    parser.description = (
        f"{parser.description}\n\n"
        "Trains one run per cell, and writes the results as JSON and CSV, the table as Markdown and LaTeX (mean and σ\n"
        "over the seeds, beside the paper's figures), and a plot. If the command is interrupted, run it again to\n"
        "continue; finished runs are not repeated."
    )
    parser.add_argument("name", metavar="NAME", help="a table of fnftg paper list")
    parser.add_argument("--dataset", metavar="GRAPHS", type=listed, help=f"{GRAPH_HELP}; separate several with commas")
    parser.add_argument(
        "--sizes", metavar="SIZES", type=listed, default=[], help="sizes of the paper's BERTs, such as tiny,mini"
    )
    parser.add_argument(
        "--systems", metavar="SYSTEMS", type=listed, default=[], help="systems to run, such as blp,fnf-t,fnf-tg"
    )
    parser.add_argument(
        "--encoder",
        "--encoders",
        metavar="ENCODERS",
        type=listed,
        default=[],
        help="encoders instead of the paper's BERTs: minilm, a folder, a model on the hub, scratch:L-2_H-128_A-2",
    )
    parser.add_argument(
        "--text-training",
        choices=["finetune", "frozen", "finetune-centre"],
        help="how to train the encoder (default: finetune for the paper's BERTs, frozen with --encoder)",
    )
    parser.add_argument(
        "--seeds",
        metavar="SEEDS",
        type=listed,
        help="random seeds (default: the paper's, 73,21,37,3,7, and 73,21 for Wikidata5M_IND)",
    )
    parser.add_argument(
        "--protocol", default=DEFAULT_PROTOCOL, help=f"one of {', '.join(PROTOCOLS)} (default: {DEFAULT_PROTOCOL})"
    )
    parser.add_argument(
        "--candidates",
        choices=["dynamic", "transfer"],
        help="entities to rank (default: the paper's, transfer for Wikidata5M_IND or in its table, else dynamic)",
    )
    parser.add_argument(
        "--budget",
        metavar="MINUTES",
        type=float,
        help="time limit of the whole command: epochs are reduced to fit, and more seeds are run if there is time",
    )
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="set a config field of every run that has it, such as training.batch_size=64 (see fnftg train --help)",
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", type=Path, help="output folder (default: paper-NAME)")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    chosen.seeds = None if chosen.seeds is None else [whole_number(seed) for seed in chosen.seeds]
    if chosen.budget is not None and not chosen.budget > 0:
        raise FnftgError(f"--budget is {chosen.budget:g} minutes: give a number above 0.")
    return chosen


def listed(words: str) -> list[str]:
    found = [word.strip() for word in words.split(",") if word.strip()]
    if not found:
        raise argparse.ArgumentTypeError("the list is empty")
    return list(dict.fromkeys(found))


def whole_number(word: str) -> int:
    if not word.isdecimal():
        raise FnftgError(f"The seed {shortened(word)} is not a whole number: write for example --seeds 73,21.")
    return int(word)
