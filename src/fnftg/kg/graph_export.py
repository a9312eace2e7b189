"""Export a graph to any format that `fnftg import` reads."""

from __future__ import annotations

import os

from fnftg.files import new_folder
from fnftg.kg.formats import writer
from fnftg.kg.graph import KnowledgeGraph


def export_graph(graph: KnowledgeGraph, folder: str | os.PathLike[str], format: str, force: bool = False) -> None:
    """Write the graph to a new folder. Importing the folder gives an equal graph.

    Args:
        graph: the graph to write.
        folder: the folder to create.
        format: a key of `FORMATS`, e.g. csv.
        force: replace an existing export.
    """
    write = writer(format)
    with new_folder(folder, "export", force) as partial:
        write(graph, partial, format)
