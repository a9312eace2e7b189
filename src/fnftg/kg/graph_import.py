"""Import a source in any supported format into a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fnftg.errors import FnftgError, shortened
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
    """Import a file or a folder into a store and open the store.

    Args:
        source: the file or folder to read.
        store: the folder to create.
        format: a key of `FORMATS`; detected by default.
        options: columns of tables, predicates of RDF and the limit for compressed files.
        strict: raise if an entity or a relation has no text, instead of deriving the text from its id.
        keep_isolated: keep entities that have a text but no triple.
        force: replace an existing store.

    Raises:
        FnftgError: if the source cannot be read; the message names the file, the line and the fix.
    """
    from fnftg.kg.graph_builder import build_store  # loads numba, which opening a store does not need

    source, options = Path(source), options or ReadOptions()
    with readable(source):
        if not source.exists():
            raise FnftgError(f"{source} does not exist: check the path.")
        if is_store(source):
            raise FnftgError(f"{source} is already a store: use it directly, or export it to another format.")
        format = format or detect(source)
    read = reader(format)

    def blocks_of(report: Report) -> Iterator[Block]:
        with readable(source):
            yield from read(source, options, report)

    build_store(store, source.name, format, blocks_of, strict, keep_isolated, force)
    return KnowledgeGraph.open(store)


@contextmanager
def readable(source: Path) -> Iterator[None]:
    """Convert a system error about the source, or a file in it, into an `FnftgError`."""
    try:
        yield
    except OSError as error:
        if error.filename is None or not Path(os.fsdecode(error.filename)).is_relative_to(source):
            raise
        raise FnftgError(f"{shortened(str(error.filename), 200)} cannot be read: {error.strerror}.") from error
