"""`fnftg import`: reads a source in any supported format and writes a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fnftg.errors import FnftgError
from fnftg.kg.blocks import Block, Report
from fnftg.kg.formats import detect, reader
from fnftg.kg.formats.specs import ReadOptions
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.store import is_store


def import_graph(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    format: str | None = None,
    options: ReadOptions | None = None,
    strict: bool = False,
    keep_isolated: bool = False,
    force: bool = False,
) -> KnowledgeGraph:
    """Reads `source` (a file or a folder; its format is detected) and writes it as the store `store`."""
    from fnftg.kg.graph_builder import build_store  # loads numba, which opening a store does not need

    source, options = Path(source), options or ReadOptions()
    if not source.exists():
        raise FnftgError(f"{source} does not exist: check the path.")
    if is_store(source):
        raise FnftgError(f"{source} is a store already: open it as it is, or export it to another format.")
    format = format or detect(source)
    read = reader(format)

    def blocks_of(report: Report) -> Iterator[Block]:
        return read(source, options, report)

    build_store(store, source.name, format, blocks_of, strict, keep_isolated, force)
    return KnowledgeGraph.open(store)
