"""The file formats that a graph is read from and written to: one module each, listed here once.

A module has `read(source, options, report)`, a generator of blocks, and `write(graph, folder, format)`. To add a
format, write such a module and add its line to FORMATS.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fnftg.errors import FnftgError
from fnftg.kg.blocks import Block, Report
from fnftg.kg.formats.lines import plain_suffix

if TYPE_CHECKING:
    from fnftg.kg.graph import KnowledgeGraph


@dataclass(frozen=True)
class TableOptions:
    """Which columns hold what, by name or by number from 1; None: by the names head, relation, tail, split, id, name
    and text where the file has a header, else by position."""

    head: str | None = None
    relation: str | None = None
    tail: str | None = None
    split: str | None = None
    entities: Path | None = None  # a table of entity texts, for a source that is one file
    relations: Path | None = None  # a table of relation texts
    id: str | None = None
    text: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class RdfOptions:
    """Which literals are texts."""

    name_predicates: tuple[str, ...] = (
        "http://www.w3.org/2000/01/rdf-schema#label",
        "http://www.w3.org/2004/02/skos/core#prefLabel",
        "http://xmlns.com/foaf/0.1/name",
    )
    description_predicates: tuple[str, ...] = (
        "http://schema.org/description",
        "https://schema.org/description",
        "http://www.w3.org/2000/01/rdf-schema#comment",
        "http://www.w3.org/2004/02/skos/core#definition",
    )
    language: str = "en"  # preferred; then texts without a language, then any other


@dataclass(frozen=True)
class ReadOptions:
    tables: TableOptions = field(default_factory=TableOptions)
    rdf: RdfOptions = field(default_factory=RdfOptions)


@dataclass(frozen=True)
class Format:
    module: str
    suffixes: tuple[str, ...]  # of its files, without .gz and .zst
    description: str


FORMATS = {
    "blp": Format("blp", (), "folder of ind-{train,dev,test}.tsv, entity2text.txt, relation2text.txt (BLP, KG-BERT)"),
    "tsv": Format("tables", (".tsv", ".txt"), "tab-separated triples and texts"),
    "csv": Format("tables", (".csv",), "comma-separated triples and texts"),
    "parquet": Format("tables", (".parquet",), "Parquet triples and texts"),
    "jsonl": Format("tables", (".jsonl", ".ndjson"), "one JSON object a line"),
    "nt": Format("rdf", (".nt",), "RDF N-Triples"),
    "ttl": Format("rdf", (".ttl",), "RDF Turtle"),
    "nq": Format("rdf", (".nq",), "RDF N-Quads"),
    "rdfxml": Format("rdf", (".rdf", ".owl", ".xml"), "RDF/XML"),
    "jsonld": Format("rdf", (".jsonld",), "JSON-LD"),
}
Reader = Callable[[Path, ReadOptions, Report], Iterator[Block]]
Writer = Callable[["KnowledgeGraph", Path, str], None]


def _module(format: str) -> object:
    if format not in FORMATS:
        raise FnftgError(f"There is no format {format!r}: choose one of {', '.join(FORMATS)}.")
    return importlib.import_module(f"fnftg.kg.formats.{FORMATS[format].module}")


def reader(format: str) -> Reader:
    return _module(format).read  # type: ignore[attr-defined, no-any-return]


def writer(format: str) -> Writer:
    return _module(format).write  # type: ignore[attr-defined, no-any-return]


def detect(source: Path) -> str:
    """The format of a file by its ending, of a folder by what lies in it."""
    from fnftg.kg.formats import blp

    if source.is_dir():
        if blp.is_layout(source):
            return "blp"
        endings = {plain_suffix(path) for path in source.iterdir() if path.is_file() and not path.name.startswith(".")}
    else:
        endings = {plain_suffix(source)}
    found = [name for name, format in FORMATS.items() if endings & set(format.suffixes)]
    if len(found) == 1:
        return found[0]
    if found:
        raise FnftgError(
            f"{source} holds files of several formats: choose one with --format {' or --format '.join(found)}."
        )
    raise FnftgError(f"The format of {source} is not known by its name: give it with --format {{{','.join(FORMATS)}}}.")
