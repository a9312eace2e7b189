"""The fuzz targets, one function for each reader.

A function prepares a folder and returns the target, which takes bytes and either succeeds or raises FnftgError. Any
other exception, more than ten seconds or more than 3 GB of memory count as a crash.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from folder_targets import FOLDER_TARGETS, Target

# Imports


def _imported(name: str, triples: str = "") -> Callable[[Path], Target]:
    """Fuzz a reader of `fnftg import`; the bytes are a file of this name, of entity texts if `triples` are given."""

    def prepare(folder: Path) -> Target:
        from fnftg.kg.formats.specs import ReadOptions, TableOptions
        from fnftg.kg.graph_import import import_graph

        source, path, store = folder / "graph.tsv", folder / name, folder / "store"
        source.write_text(triples)

        def target(data: bytes) -> None:
            path.write_bytes(data)
            options = ReadOptions(TableOptions(entities=path) if triples else TableOptions())
            try:
                graph = import_graph(
                    source if triples else path, store, options=options, force=True, keep_isolated=True
                )
                for vocabulary in (graph.entities, graph.relations):
                    rows = range(len(vocabulary))
                    assert [vocabulary.find(vocabulary.ids[row]) for row in rows] == list(rows)
                    assert all(vocabulary.texts[row] for row in rows)
            finally:
                shutil.rmtree(store, ignore_errors=True)

        return target

    return prepare


def blp(folder: Path) -> Target:
    """Fuzz the texts of a folder in the format of BLP."""
    from fnftg.kg.graph_import import import_graph

    source = folder / "blp"
    source.mkdir()
    (source / "ind-train.tsv").write_text("a\tr\tb\n")

    def target(data: bytes) -> None:
        (source / "entity2text.txt").write_bytes(data)
        try:
            import_graph(source, folder / "store", force=True)
        finally:
            shutil.rmtree(folder / "store", ignore_errors=True)

    return target


def archive(folder: Path) -> Target:
    """Fuzz a downloaded archive."""
    from fnftg.kg.download import extract_tar

    def target(data: bytes) -> None:
        (folder / "a.tar").write_bytes(data)
        try:
            extract_tar(folder / "a.tar", folder / "unpacked")
            assert {path.name for path in folder.iterdir()} <= {"a.tar", "unpacked"}
        finally:
            shutil.rmtree(folder / "unpacked", ignore_errors=True)

    return target


TARGETS: dict[str, Callable[[Path], Target]] = {
    "tsv": _imported("a.tsv"),
    "csv": _imported("a.csv"),
    "jsonl": _imported("a.jsonl"),
    "parquet": _imported("a.parquet"),
    "texts-tsv": _imported("e.tsv", "a\tr\tb\n"),
    "texts-csv": _imported("e.csv", "a\tr\tb\n"),
    "texts-jsonl": _imported("e.jsonl", "a\tr\tb\n"),
    "gzip": _imported("a.tsv.gz"),
    "zstandard": _imported("a.tsv.zst"),
    "blp": blp,
    "n-triples": _imported("a.nt"),
    "n-quads": _imported("a.nq"),
    "turtle": _imported("a.ttl"),
    "rdf-xml": _imported("a.rdf"),
    "json-ld": _imported("a.jsonld"),
    "archive": archive,
    **FOLDER_TARGETS,
}
