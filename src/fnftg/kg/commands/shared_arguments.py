"""Arguments that several commands share."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

GRAPH_HELP = "a store, the name of a dataset (fnftg data list), or files that fnftg import reads"


def add_graph(parser: ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=GRAPH_HELP)


def add_output(parser: ArgumentParser, metavar: str, help: str) -> None:
    parser.add_argument("-o", "--output", metavar=metavar, type=Path, required=True, help=help)
    parser.add_argument("--force", action="store_true", help="replace an existing output")


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def examples(*lines: str) -> str:
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])
