"""`fnftg train` and `fnftg recipes`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fnftg.console import is_first_process, print_json, print_table
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, examples
from fnftg.kg.datasets import data_home
from fnftg.kg.graph_source import open_graph
from fnftg.models.configs import from_dict
from fnftg.models.pretrained import CHECKPOINT
from fnftg.models.systems import SYSTEMS
from fnftg.training.recipes import recipe_fields, recipe_of_system, recipes
from fnftg.training.run_config import RunConfig


def train(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    chosen = parse(parser, arguments)
    from fnftg.ranking.runs import RunFolder
    from fnftg.training.loop import read_config, train_run

    if chosen.resume:
        run = Path(chosen.resume)
        config = read_config(run)
        graph = open_graph(chosen.graph) if chosen.graph else RunFolder(run).graph()
    else:
        if not chosen.graph or not chosen.output:
            parser.error("a graph and -o RUN are needed, or --resume RUN")
        run, graph = Path(chosen.output), open_graph(chosen.graph)
        config = RunConfig(chosen.model, chosen.training, chosen.trainer, chosen.system)
    train_run(graph, config, run, data_home() / "texts", resume=bool(chosen.resume))
    if not is_first_process():
        return
    metrics = json.loads((run / CHECKPOINT / "metrics.json").read_text(encoding="utf-8"))
    print_json(metrics) if chosen.json else print_metrics(run, metrics)


def parse(outline: argparse.ArgumentParser, arguments: list[str]) -> Any:
    """Every field of the system's config is an option; its default is what the recipe or the file sets."""
    from jsonargparse import ArgumentParser

    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config")
    first.add_argument("--system")
    config = configured(**vars(first.parse_known_args(arguments)[0]))
    parser = ArgumentParser(
        prog=outline.prog,
        description=outline.description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        exit_on_error=False,
        epilog=examples(
            "fnftg train wordnet-animals -o animals",
            "fnftg train wordnet-animals -o animals --config my.yaml    (from fnftg recipes frugal > my.yaml)",
            "fnftg train WN18RR_IND -o wn18rr --config wn18rr-tiny --training.batch_size 256 --trainer.devices 2",
            "fnftg train wordnet-animals -o blp --config frugal-blp --model.score distmult",
            "fnftg train --system statik --help",
            "fnftg train --resume wn18rr",
        ),
    )
    parser.add_argument("graph", nargs="?", help=GRAPH_HELP)
    parser.add_argument("-o", "--output", metavar="RUN", help="the folder to create")
    parser.add_argument(
        "--config",
        metavar="NAME_OR_FILE",
        help=f"a recipe ({', '.join(recipes())}) or a YAML or JSON file (default: frugal, or frugal-SYSTEM)",
    )
    systems = "; ".join(f"{name}: {made.description}" for name, made in SYSTEMS.items())
    parser.add_argument("--system", default=config.system, help=f"what to train; its fields are --model.… ({systems})")
    parser.add_argument("--resume", metavar="RUN", help="continue a run that was stopped")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    for name in ("model", "training", "trainer"):
        parser.add_argument(f"--{name}", type=type(getattr(config, name)), default=getattr(config, name))
    try:
        return parser.instantiate(parser.parse_args(arguments))
    except argparse.ArgumentError as error:
        raise FnftgError(f"{one_line(str(error))}; fnftg train --help lists the options.") from error


def one_line(message: str) -> str:
    """A message of the parser as the beginning of a sentence."""
    return " ".join(message.split()).rstrip(".")


def configured(config: str | None, system: str | None) -> RunConfig:
    """The config of a recipe or a file, else of the system's own recipe, else the defaults of the system."""
    chosen = config or recipe_of_system(system or "fnf")
    fields = recipe_fields(chosen) if chosen else {}
    if system is not None and fields.get("system", system) != system:
        raise FnftgError(f"--config {config} is for the system {fields['system']}, not for {system}: leave one out.")
    made: RunConfig = from_dict(RunConfig, {**fields, "system": system} if system is not None else fields)
    return made


def print_metrics(run: Path, metrics: dict[str, Any]) -> None:
    columns = ("mrr", "hits@1", "hits@3", "hits@10")
    rows = [
        (split, *(f"{metrics[split][name]:.4f}" for name in columns), metrics[split]["queries"])
        for split in ("val", "test")
        if split in metrics
    ]
    note = f"Protocol {metrics['protocol']}." if "protocol" in metrics else None
    title = f"{run}: best after epoch {metrics['epoch']}"
    print_table(title, ["split", "MRR", "Hits@1", "Hits@3", "Hits@10", "queries"], rows, note)
