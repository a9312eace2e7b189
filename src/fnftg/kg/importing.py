"""`fnftg import`: any source that a reader understands becomes a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import polars as pl

from fnftg.errors import FnftgError
from fnftg.files import new_folder
from fnftg.kg.blocks import Block, Report, TextBlock, TripleBlock
from fnftg.kg.formats import ReadOptions, detect, reader
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.store import in_memory, is_store, open_store


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
    source, options = Path(source), options or ReadOptions()
    if not source.exists():
        raise FnftgError(f"{source} does not exist: check the path.")
    if is_store(source):
        raise FnftgError(f"{source} is a store already: open it as it is, or export it to another format.")
    format = format or detect(source)
    read = reader(format)

    def blocks_of(report: Report) -> Iterator[Block]:
        return read(source, options, report)

    return build_store(store, source.name, format, blocks_of, strict, keep_isolated, force)


def build_store(
    store: str | os.PathLike[str],
    source: str,
    format: str,
    blocks_of: Callable[[Report], Iterator[Block]],
    strict: bool = False,
    keep_isolated: bool = False,
    force: bool = False,
) -> KnowledgeGraph:
    """Writes what `blocks_of(report)` yields; starts again in the rare case that two ids share a hash."""
    from fnftg.kg.building import GraphBuilder  # loads numba, which those who only open a store can do without
    from fnftg.kg.rows import HashCollisionError

    for hash_seed in range(8):
        report = Report(source, format)
        try:
            with new_folder(store, force) as folder:
                builder = GraphBuilder(folder, report, strict, keep_isolated, hash_seed)
                for block in blocks_of(report):
                    builder.add(block)
                builder.finish()
            return open_store(Path(store))
        except HashCollisionError:
            continue
    raise RuntimeError("eight hash seeds in a row collided")


def graph_from_triples(
    splits: Mapping[str, Iterable[tuple[str, str, str]]],
    entity_texts: Mapping[str, str],
    relation_texts: Mapping[str, str],
) -> KnowledgeGraph:
    """A graph in memory; texts of entities in no triple are kept."""

    def blocks_of(report: Report) -> Iterator[Block]:
        for split, triples in splits.items():
            rows = [tuple(map(str, triple)) for triple in triples]
            frame = pl.DataFrame(rows, schema=dict.fromkeys(("head", "relation", "tail"), pl.String), orient="row")
            yield TripleBlock(split, frame, f"triples of {split}")
        for kind, texts in (("entities", entity_texts), ("relations", relation_texts)):
            columns = {"id": list(texts), "text": list(texts.values())}
            yield TextBlock(kind, pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)), f"texts of {kind}")  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder:
        return in_memory(
            build_store(Path(folder) / "store", "triples in memory", "python", blocks_of, keep_isolated=True)
        )
