"""`fnftg export`: a graph in any format that `fnftg import` reads."""

from __future__ import annotations

import os

from fnftg.files import new_folder
from fnftg.kg.formats import writer
from fnftg.kg.graph import KnowledgeGraph


def export_graph(graph: KnowledgeGraph, folder: str | os.PathLike[str], format: str, force: bool = False) -> None:
    """Writes the graph's files into a new folder; reading it back gives an equal graph."""
    write = writer(format)
    with new_folder(folder, force) as partial:
        write(graph, partial, format)
