"""Arguments that several commands of this room share."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from fnftg.kg.commands.arguments import GRAPH_HELP


def add_run(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a run, or of a model (then with --graph)")
    parser.add_argument("--graph", help=f"instead of the run's own, updated or not: {GRAPH_HELP}")
