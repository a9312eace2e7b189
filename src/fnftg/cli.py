"""The command line. `COMMANDS` maps each command to the function that runs it."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import fnftg
from fnftg.console import harmless, log, print_text
from fnftg.errors import FnftgError, shortened


@dataclass(frozen=True)
class Command:
    group: str
    function: str  # module:function, imported only when the command runs
    summary: str


GRAPH, LOOK, MODEL = "Import a graph", "Inspect and split a graph", "Train and evaluate a model"
ASK, PAPER = "Predict links", "Reproduce the paper"
COMMANDS = {
    "data list": Command(GRAPH, "fnftg.kg.commands.data:list_datasets", "List the named datasets."),
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
    "split random": Command(LOOK, "fnftg.kg.commands.split:random", "Hold out triples at random for val and test."),
    "split fir": Command(LOOK, "fnftg.kg.commands.split:fir", "Remove the rarest relations from train."),
    "split support": Command(
        LOOK, "fnftg.kg.commands.split:support", "Make some edges of the held-out entities visible."
    ),
    "distill": Command(
        MODEL,
        "fnftg.text.distill_command:distill",
        "Distil a small text encoder from a larger one.",
    ),
    "train": Command(MODEL, "fnftg.training.train_command:train", "Train FnF-TG or another system, or resume a run."),
    "recipes": Command(
        MODEL, "fnftg.training.recipe_command:show_recipes", "List the recipes, or print one to copy and change."
    ),
    "evaluate": Command(
        MODEL, "fnftg.predict.commands.evaluate:evaluate", "Evaluate a model against no-model baselines."
    ),
    "report": Command(MODEL, "fnftg.ranking.evaluate_commands:report", "Write an HTML report on a run, with plots."),
    "predict": Command(
        ASK, "fnftg.predict.commands.predict:predict", "Predict heads, tails or relations, also for new entities."
    ),
    "update": Command(ASK, "fnftg.predict.commands.update:update", "Add to the graph and embed only what changed."),
    "embed": Command(ASK, "fnftg.predict.commands.embed:embed", "Export the entity embeddings."),
    "calibrate": Command(
        ASK, "fnftg.predict.commands.calibrate:calibrate", "Fit probabilities of answers and of triples."
    ),
    "explain": Command(ASK, "fnftg.predict.commands.explain:explain", "Explain the score of a triple, with a drawing."),
    "complete": Command(
        ASK, "fnftg.predict.commands.complete:complete", "Predict the likeliest missing triples of a graph."
    ),
    "serve": Command(ASK, "fnftg.serve.serve_command:serve", "Serve a model over HTTP, with an API and a web page."),
    "paper list": Command(PAPER, "fnftg.paper.paper_commands:list_tables", "List the tables of the paper."),
    "paper run": Command(PAPER, "fnftg.paper.paper_commands:run_table", "Reproduce a table or a figure of the paper."),
}


def start() -> None:
    """Run the command and exit.

    Importing torch creates many objects and little garbage. Running the garbage collector less often, and not at exit,
    saves a third of a short command's time.
    """
    gc.set_threshold(100_000, 50, 100)
    code = main()
    gc.freeze()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Bad input prints one sentence on standard error and returns 1."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds the stack, which removes partial files
    try:
        check_encoding(arguments)
        return run(list(arguments))
    except FnftgError as error:
        log(f"fnftg: {error}")
        return 1
    except KeyboardInterrupt:
        log("fnftg: stopped; partial output was removed.")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python prints an error at exit
        return 141
    except Exception as error:
        words = system_failure(error)
        if words is None:
            raise  # a bug in fnftg: show the traceback
        log(f"fnftg: {words}")
        return 1


def check_encoding(arguments: Sequence[str]) -> None:
    """Raise an `FnftgError` for an argument that is not UTF-8; Python represents its bytes by surrogates."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise FnftgError(f"The argument {shortened(argument)} is not UTF-8: rename the file, or fix the argument.")


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors cannot command a terminal."""

    def error(self, message: str) -> NoReturn:
        super().error(harmless(message))


def system_failure(error: Exception) -> str | None:
    """Return a sentence about a failure of the operating system, or None for other errors."""
    out_of_memory = isinstance(error, RuntimeError) and re.search("n't allocate memory|out of memory", str(error))
    if isinstance(error, MemoryError) or out_of_memory:
        return "Out of memory: close other programs, use a smaller batch, or use a machine with more memory."
    if isinstance(error, RecursionError):
        return "The input is nested too deeply: check that it is the right file."
    from fnftg.files import is_full_disk

    if is_full_disk(error):
        return "The disk is full or a size limit was reached: free some space and run the command again."
    if not isinstance(error, OSError):
        return None
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"The operating system reports: {reason}."
    named = " and ".join(os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None)
    return f"{named} cannot be read or written: {reason}."


def run(arguments: list[str]) -> int:
    for length in (2, 1):
        name = " ".join(arguments[:length])
        if len(arguments) >= length and name in COMMANDS:
            command = COMMANDS[name]
            parser = CommandParser(
                f"fnftg {name}", description=command.summary, formatter_class=argparse.RawDescriptionHelpFormatter
            )
            module, function = command.function.split(":")
            getattr(importlib.import_module(module), function)(parser, arguments[length:])
            return 0
    if arguments == ["--version"]:
        print_text(f"fnftg {fnftg.__version__}")
        return 0
    prefix = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    chosen = {name: command for name, command in COMMANDS.items() if name.startswith(f"{prefix} " if prefix else "")}
    if not chosen:
        log(f"fnftg: there is no command {prefix!r}; fnftg --help lists them.")
        return 2
    asked = arguments[bool(prefix) :] in (["--help"], ["-h"])
    (print_text if asked else log)(overview(chosen))
    return 0 if asked else 2


def overview(commands: dict[str, Command]) -> str:
    """Return the help text: the commands by group with their summaries, in the order of a typical workflow."""
    lines = ["usage: fnftg COMMAND …", "", str(fnftg.__doc__)]
    width = max(map(len, commands)) + 2
    for group in dict.fromkeys(command.group for command in commands.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:{width}}{command.summary}" for name, command in commands.items() if command.group == group]
    return "\n".join(
        [*lines, "", "Run fnftg COMMAND --help for options and examples, fnftg --version for the version."]
    )
