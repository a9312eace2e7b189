"""The command line: one dict maps each command to the function that runs it; the rest only finds and calls it."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import fnftg
from fnftg.errors import FnftgError


@dataclass(frozen=True)
class Command:
    group: str
    function: str  # module:function, imported only when the command runs
    summary: str


GRAPH, LOOK, MODEL = "Import a graph", "Inspect and split a graph", "Train and evaluate a model"
ASK, PAPER = "Predict links", "Reproduce the paper"
COMMANDS = {
    "data list": Command(GRAPH, "fnftg.kg.commands.data:list_datasets", "List the datasets that have a name."),
    "data get": Command(GRAPH, "fnftg.kg.commands.data:get_dataset", "Download, copy or build a dataset."),
    "import": Command(
        GRAPH,
        "fnftg.kg.commands.import_export:import_source",
        "Import files (TSV, CSV, Parquet, JSONL, RDF, …) into a store.",
    ),
    "export": Command(
        GRAPH, "fnftg.kg.commands.import_export:export_store", "Export a graph to any format that import reads."
    ),
    "data synth": Command(
        GRAPH, "fnftg.kg.commands.data:synthesise", "Generate a synthetic graph of any size, for benchmarks."
    ),
    "data stats": Command(
        LOOK, "fnftg.kg.commands.inspection:stats", "Count entities, relations, triples and ego-graph sizes."
    ),
    "audit": Command(
        LOOK, "fnftg.kg.commands.inspection:audit_graph", "Count the triples whose answer leaks through other edges."
    ),
    "split inductive": Command(
        LOOK, "fnftg.kg.commands.split:inductive", "Hold out entities for val and test, as in BLP."
    ),
    "split fir": Command(LOOK, "fnftg.kg.commands.split:fir", "Remove the rarest relations from train."),
    "split support": Command(
        LOOK, "fnftg.kg.commands.split:support", "Make some edges of the held-out entities visible."
    ),
    "train": Command(MODEL, "fnftg.training.train_command:train", "Train FnF-TG or another system, or resume a run."),
    "recipes": Command(
        MODEL, "fnftg.training.recipe_command:show_recipes", "List the recipes, or print one to copy and change."
    ),
    "evaluate": Command(
        MODEL, "fnftg.ranking.evaluate_commands:evaluate", "Evaluate a model against no-model baselines."
    ),
    "report": Command(MODEL, "fnftg.ranking.evaluate_commands:report", "Write an HTML report on a run, with plots."),
    "predict": Command(
        ASK, "fnftg.predict.commands.predict:predict", "Predict heads, tails or relations, also for new entities."
    ),
    "update": Command(ASK, "fnftg.predict.commands.update:update", "Add to the graph and embed only what changed."),
    "embed": Command(ASK, "fnftg.predict.commands.embed:embed", "Export the entity embeddings."),
    "calibrate": Command(ASK, "fnftg.predict.commands.calibrate:calibrate", "Calibrate scores to probabilities."),
    "explain": Command(ASK, "fnftg.predict.commands.explain:explain", "Explain the score of a triple, with a drawing."),
    "complete": Command(
        ASK, "fnftg.predict.commands.complete:complete", "Predict the likeliest missing triples of a graph."
    ),
    "serve": Command(ASK, "fnftg.serve.serve_command:serve", "Serve a model over HTTP, with an API and a web page."),
    "paper list": Command(PAPER, "fnftg.paper.paper_commands:list_tables", "List the tables of the paper."),
    "paper run": Command(PAPER, "fnftg.paper.paper_commands:run_table", "Reproduce a table or a figure of the paper."),
}


def start() -> None:
    """Runs the command of this process and ends it. Importing torch makes very many objects and hardly any garbage, so
    Python looks for garbage less often, and not at all at the end: that saves a third of a short command's time."""
    gc.set_threshold(100_000, 50, 100)
    code = main()
    gc.freeze()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; bad input ends in one sentence on standard error and exit code 1."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that nothing half-written stays
    try:
        return run(list(arguments))
    except FnftgError as error:
        print(f"fnftg: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fnftg: stopped; nothing half-written was left.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would complain at its end
        return 141


def run(arguments: list[str]) -> int:
    for length in (2, 1):
        name = " ".join(arguments[:length])
        if len(arguments) >= length and name in COMMANDS:
            command = COMMANDS[name]
            parser = argparse.ArgumentParser(
                f"fnftg {name}", description=command.summary, formatter_class=argparse.RawDescriptionHelpFormatter
            )
            module, function = command.function.split(":")
            getattr(importlib.import_module(module), function)(parser, arguments[length:])
            return 0
    if arguments == ["--version"]:
        print(f"fnftg {fnftg.__version__}")
        return 0
    prefix = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    chosen = {name: command for name, command in COMMANDS.items() if name.startswith(f"{prefix} " if prefix else "")}
    if not chosen:
        print(f"fnftg: there is no command {prefix!r}; fnftg --help lists them.", file=sys.stderr)
        return 2
    asked = arguments[bool(prefix) :] in (["--help"], ["-h"])
    print(overview(chosen), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def overview(commands: dict[str, Command]) -> str:
    """The commands with their one-line descriptions, grouped in the order in which a user meets them."""
    lines = ["usage: fnftg COMMAND …", "", str(fnftg.__doc__)]
    width = max(map(len, commands)) + 2
    for group in dict.fromkeys(command.group for command in commands.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:{width}}{command.summary}" for name, command in commands.items() if command.group == group]
    return "\n".join(
        [*lines, "", "Run fnftg COMMAND --help for options and examples, fnftg --version for the version."]
    )
