"""The file formats by name, and the options of their readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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
    module: str  # in this folder
    suffixes: tuple[str, ...]  # of its files, without .gz and .zst
    description: str


FORMATS = {
    "blp": Format("blp_folder", (), "folder of ind-{train,dev,test}.tsv and {entity,relation}2text.txt (BLP, KG-BERT)"),
    "tsv": Format("table_files", (".tsv", ".txt"), "tab-separated triples and texts"),
    "csv": Format("table_files", (".csv",), "comma-separated triples and texts"),
    "parquet": Format("table_files", (".parquet",), "Parquet triples and texts"),
    "jsonl": Format("table_files", (".jsonl", ".ndjson"), "one JSON object a line"),
    "nt": Format("rdf", (".nt",), "RDF N-Triples"),
    "ttl": Format("rdf", (".ttl",), "RDF Turtle"),
    "nq": Format("rdf", (".nq",), "RDF N-Quads"),
    "rdfxml": Format("rdf", (".rdf", ".owl", ".xml"), "RDF/XML"),
    "jsonld": Format("rdf", (".jsonld",), "JSON-LD"),
}
