"""Arguments shared by several prediction commands."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fnftg.errors import FnftgError, shortened
from fnftg.kg.commands.shared_arguments import GRAPH_HELP

if TYPE_CHECKING:
    from fnftg.predict.questions import NewEntity


def add_run(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="the folder of a run, or of a model (which needs --graph)"
    )
    parser.add_argument("--graph", help=f"predict on this graph instead of the run's own: {GRAPH_HELP}")


def add_new(parser: ArgumentParser, place: str) -> None:
    """Add the options that describe a new entity and a new relation."""
    parser.add_argument("--text", help=f"the description of a new entity, instead of {place}")
    parser.add_argument(
        "--edge",
        action="append",
        default=[],
        metavar="RELATION=ENTITY",
        help="an outgoing edge of the new entity; repeatable",
    )
    parser.add_argument(
        "--edge-from",
        action="append",
        default=[],
        metavar="ENTITY=RELATION",
        help="an incoming edge of the new entity; repeatable",
    )
    parser.add_argument("--id", help="the id of the new entity")
    parser.add_argument(
        "--relation-text", metavar="TEXT", help="the description of a new relation, instead of its name"
    )


def new_entity(chosen: Any) -> NewEntity | None:
    """Return the new entity that --text and its edges describe, if any."""
    from fnftg.predict.questions import NewEntity

    if chosen.text is None:
        if chosen.edge or chosen.edge_from or chosen.id or getattr(chosen, "save", None):
            options = (
                "--edge, --edge-from, --id and --save" if hasattr(chosen, "save") else "--edge, --edge-from and --id"
            )
            raise FnftgError(f"{options} need a new entity: describe it with --text.")
        return None
    edges = [split_edge(edge, "--edge", "RELATION=ENTITY") for edge in chosen.edge]
    incoming = [split_edge(edge, "--edge-from", "ENTITY=RELATION")[::-1] for edge in chosen.edge_from]
    return NewEntity(chosen.text, edges, incoming, chosen.id)


def split_edge(edge: str, option: str, form: str) -> tuple[str, str]:
    """Split an edge at the equals sign. The entity may contain further equals signs, the relation may not."""
    first, sign, second = edge.partition("=") if option == "--edge" else edge.rpartition("=")
    if not sign or not first.strip() or not second.strip():
        raise FnftgError(f"{option} {shortened(edge)} is not an edge: write {form}.")
    return first.strip(), second.strip()
