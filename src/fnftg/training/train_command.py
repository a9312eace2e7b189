"""`fnftg train` and `fnftg recipes`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fnftg.console import is_first_process, print_json, print_table
from fnftg.errors import FnftgError, one_line
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, examples
from fnftg.kg.datasets import data_home
from fnftg.kg.graph_source import open_graph
from fnftg.models.configs import from_dict
from fnftg.models.pretrained import CHECKPOINT, read_metrics
from fnftg.models.systems import SYSTEMS
from fnftg.training.recipes import DEFAULT, LARGE, default_recipe, recipe_fields, recipe_of_system, recipes
from fnftg.training.run_config import RunConfig

DEFAULT_SYSTEM = "fnf"


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
            parser.error("give a graph and -o RUN, or --resume RUN")
        run, graph = Path(chosen.output), open_graph(chosen.graph)
        if chosen.config is None and chosen.system == DEFAULT_SYSTEM:
            recipe = default_recipe(len(graph.entities))
            chosen = parse(parser, [*arguments, "--config", recipe]) if recipe != DEFAULT else chosen
        given = RunConfig(chosen.model, chosen.training, chosen.trainer, chosen.system)
        config = from_dict(RunConfig, asdict(given))  # checks more than the parser
    train_run(graph, config, run, data_home() / "texts", resume=bool(chosen.resume))
    if not is_first_process():
        return
    metrics = read_metrics(run / CHECKPOINT)
    print_json(metrics) if chosen.json else print_metrics(run, metrics)


def parse(outline: argparse.ArgumentParser, arguments: list[str]) -> Any:
    """Parse the options: every field of the system's config, with the values of the recipe or file as defaults."""
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
            "fnftg recipes frugal > my.yaml && fnftg train wordnet-animals -o animals --config my.yaml",
            "fnftg train WN18RR_IND -o wn18rr --config wn18rr-tiny --training.batch_size 256 --trainer.devices 2",
            "fnftg train wordnet-animals -o blp --config frugal-blp --model.score distmult",
            "fnftg train --system statik --help",
            "fnftg train --resume wn18rr",
        ),
    )
    parser.add_argument("graph", nargs="?", help=GRAPH_HELP)
    parser.add_argument("-o", "--output", metavar="RUN", help="folder of the run, to be created")
    parser.add_argument(
        "--config",
        metavar="NAME_OR_FILE",
        help=f"recipe ({', '.join(recipes())}), or a YAML or JSON file (default: {DEFAULT}, {LARGE} for large "
        "graphs, or frugal-SYSTEM)",
    )
    systems = "; ".join(f"{name}: {made.description}" for name, made in SYSTEMS.items())
    parser.add_argument("--system", default=config.system, help=f"system to train, with its own --model.… ({systems})")
    parser.add_argument("--resume", metavar="RUN", help="continue an interrupted run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    for name in ("model", "training", "trainer"):
        parser.add_argument(f"--{name}", type=type(getattr(config, name)), default=getattr(config, name))
    try:
        return parser.instantiate(parser.parse_args(arguments))
    except argparse.ArgumentError as error:
        raise FnftgError(f"{one_line(error, 500)}; fnftg train --help lists the options.") from error


def configured(config: str | None, system: str | None) -> RunConfig:
    """Return the config of a recipe or file, or of the system's default recipe, or the system's defaults."""
    chosen = config or recipe_of_system(system or DEFAULT_SYSTEM)
    fields = recipe_fields(chosen) if chosen else {}
    if system is not None and fields.get("system", system) != system:
        raise FnftgError(
            f"--config {config} is for the system {fields['system']}, not {system}: leave out --config or --system."
        )
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
