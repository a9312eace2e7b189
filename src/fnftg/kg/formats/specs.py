"""The file formats by name, and the options of their readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

Wanted = dict[str, str | None]  # role: name or number of its column; None: the column named after the role
OPTIONAL = {"split", "name"}  # roles


@dataclass(frozen=True)
class TableOptions:
    """The columns of each role, by name or by number from 1.

    None stands for the column with the role's own name (head, relation, tail, split, id, text or name) if the file has
    a header, else for its position.
    """

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
    """Which RDF literals are used as texts."""

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
    language: str = "en"  # preferred; then texts without a language, then others


@dataclass(frozen=True)
class ReadOptions:
    tables: TableOptions = field(default_factory=TableOptions)
    rdf: RdfOptions = field(default_factory=RdfOptions)
    max_size: int | None = None  # bytes that a compressed file may unpack to; None: 2 GB or 100 times its size


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
    "jsonl": Format("table_files", (".jsonl", ".ndjson"), "one JSON object per line"),
    "nt": Format("rdf", (".nt",), "RDF N-Triples"),
    "ttl": Format("rdf", (".ttl",), "RDF Turtle"),
    "nq": Format("rdf", (".nq",), "RDF N-Quads"),
    "rdfxml": Format("rdf", (".rdf", ".owl", ".xml"), "RDF/XML"),
    "jsonld": Format("rdf", (".jsonld",), "JSON-LD"),
}
