"""Read and write RDF with pyoxigraph: N-Triples, Turtle, N-Quads, RDF/XML and JSON-LD.

Statements between IRIs or blank nodes become triples, labels and descriptions become texts, and other literals are left
out. Terms under `urn:fnftg:` represent what RDF lacks, so that importing an export gives the same graph:

    urn:fnftg:id:x…             an id that is not an IRI; bytes other than ASCII letters, digits and _ become -hh
    urn:fnftg:split:NAME        the named graph of a split
    urn:fnftg:text              the text of an entity, if it cannot be composed of its name and description
    urn:fnftg:relation-text     the text of a relation without triples, or with the same id as an entity
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
import polars as pl

from fnftg.errors import FnftgError, shortened
from fnftg.kg.blocks import SPLIT_SYNONYMS, Block, Report, TextBlock, TripleBlock, split_name
from fnftg.kg.formats.compressed_files import COMPRESSIONS, open_binary, plain_suffix
from fnftg.kg.formats.frames import triple_frames, vocabulary_frames
from fnftg.kg.formats.guarded_file import LONGEST_TOKEN, GuardedFile
from fnftg.kg.formats.lines import BYTE_ORDER_MARK
from fnftg.kg.formats.specs import FORMATS, RdfOptions, ReadOptions
from fnftg.kg.graph import NO_TRIPLES, STANDARD_SPLITS, KnowledgeGraph
from fnftg.kg.strings import blocks

SYNTAXES = {"nt": "N_TRIPLES", "ttl": "TURTLE", "nq": "N_QUADS", "rdfxml": "RDF_XML", "jsonld": "JSON_LD"}
WITH_GRAPHS = ("nq", "jsonld")
WITH_ANONYMOUS_NODES = ("ttl", "rdfxml", "jsonld")
STATEMENTS_AT_A_TIME = 500_000

LABEL, DESCRIPTION = "http://www.w3.org/2000/01/rdf-schema#label", "http://schema.org/description"
TEXT, RELATION_TEXT = "urn:fnftg:text", "urn:fnftg:relation-text"
OWN, OWN_ID, OWN_SPLIT = "urn:fnftg:", "urn:fnftg:id:x", "urn:fnftg:split:"
OWN_SPLIT_FILE = "split-"
PREFIXES = {"rdfs": "http://www.w3.org/2000/01/rdf-schema#", "schema": "http://schema.org/"}
NOT_XML = r"[^\t\n\r\x20-\x{D7FF}\x{E000}-\x{FFFD}\x{10000}-\x{10FFFF}]"  # characters that XML 1.0 cannot represent

TRIPLE_SCHEMA = dict.fromkeys(("head", "relation", "tail"), pl.String)
LITERAL_SCHEMA = {"id": pl.String, "role": pl.String, "rank": pl.Int32, "value": pl.String}


def pyoxigraph() -> ModuleType:
    try:
        import pyoxigraph
    except ImportError as error:
        raise FnftgError("RDF requires pyoxigraph, which is not installed: run pip install 'fnftg[rdf]'.") from error
    return pyoxigraph


def composed(name: pl.Expr, description: pl.Expr) -> pl.Expr:
    """Compose a text of a name and a description, either of which may be null. The name comes first."""
    named = description.str.to_lowercase().str.starts_with(name.str.to_lowercase())
    both = pl.when(named).then(description).otherwise(name + ", " + description)
    return pl.coalesce(both, name, description)


# Reading


def read(source: Path, options: ReadOptions, report: Report) -> Iterator[Block]:
    """Yield triples as they are read, and texts at the end, because a preferred text may be on the last line."""
    literals, ends = Accumulator(LITERAL_SCHEMA, preferred), Accumulator({"key": pl.UInt64}, pl.DataFrame.unique)
    predicates: set[str] = set()
    for path in source_files(source, report.format):
        split = file_split(path) if source.is_dir() else "train"
        for batch in statements(path, source, options, report):
            literals.add(batch.literals)
            for name, part in batch.triples.group_by("graph", maintain_order=True):
                triples = part.drop("graph")
                predicates.update(triples["relation"].unique().to_list())
                ends.add(pl.concat([triples["head"], triples["tail"]]).hash().alias("key").to_frame())
                yield TripleBlock(graph_split(name[0], split, path), triples, str(path))
    yield from text_blocks(literals, ends, predicates, source, report)


def source_files(source: Path, format: str) -> list[Path]:
    if source.is_file():
        return [source]
    suffixes = FORMATS[format].suffixes
    found = (path for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    paths = sorted(path for path in found if plain_suffix(path) in suffixes)
    if not paths:
        raise FnftgError(f"{source} has no {' or '.join(suffixes)} file: choose another folder or another --format.")
    return paths


def file_split(path: Path) -> str:
    """Return the split of a file: by its name for train.*, dev.*, test.*, … and split-NAME.*; train for other files."""
    stem = (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).stem
    if stem.startswith(OWN_SPLIT_FILE):
        return own_split(stem.removeprefix(OWN_SPLIT_FILE), str(path))
    name = SPLIT_SYNONYMS.get(stem.lower(), stem.lower())
    return name if name in STANDARD_SPLITS else "train"


def graph_split(graph: str, split: str, path: Path) -> str:
    return own_split(graph.removeprefix(OWN_SPLIT), f"{path}, graph {graph}") if graph.startswith(OWN_SPLIT) else split


def own_split(name: str, place: str) -> str:
    """Check the name of an exported split and return it unchanged: dev stays dev."""
    split_name(name, place)
    return name


class Accumulator:
    """Rows that are reduced by `reduce` whenever their number has doubled."""

    def __init__(self, schema: dict[str, Any], reduce: Callable[[pl.DataFrame], pl.DataFrame]):
        self.reduce = reduce
        self.reduced = pl.DataFrame(schema=schema)
        self.pending: list[pl.DataFrame] = []
        self.added = 0

    def add(self, rows: pl.DataFrame) -> None:
        self.pending.append(self.reduce(rows))
        self.added += len(rows)
        if sum(map(len, self.pending)) > len(self.reduced):
            self.rows()

    def rows(self) -> pl.DataFrame:
        if self.pending:
            self.reduced, self.pending = self.reduce(pl.concat([self.reduced, *self.pending])), []
        return self.reduced


def preferred(literals: pl.DataFrame) -> pl.DataFrame:
    """Return the name and description of each subject with the lowest rank, the first one in case of ties."""
    return literals.sort("rank", maintain_order=True).unique(["id", "role"], keep="first", maintain_order=True)


class Statements(NamedTuple):
    triples: pl.DataFrame  # head, relation, tail, graph (empty: the default graph, or the format has none)
    literals: pl.DataFrame  # id, role, rank, value: texts only


def statements(path: Path, source: Path, options: ReadOptions, report: Report) -> Iterator[Statements]:
    """Yield the statements of a file in batches."""
    oxigraph = pyoxigraph()
    found = False
    with open_binary(path, options.max_size) as file:
        content = io.BufferedReader(GuardedFile(path, file, report.format), 1 << 20)
        if content.peek(3).startswith(BYTE_ORDER_MARK):
            content.read(3)
        if content.peek(1):
            syntax = getattr(oxigraph.RdfFormat, SYNTAXES[report.format])
            # With this base, relative IRIs are the same on every machine and in all files of a folder.
            parser = oxigraph.parse(content, syntax, base_iri=f"file:///{quote(source.name)}")
            collect = Collector(path, source, options.rdf, report)
            try:
                while batch := collect(islice(parser, STATEMENTS_AT_A_TIME)):
                    found = True
                    yield batch
            except SyntaxError as error:
                raise explained(error, path, report.format, options.max_size) from error
            except MemoryError as error:
                if "buffer maximal size" not in str(error):
                    raise
                raise FnftgError(
                    f"{path}: an IRI or a text is longer than {LONGEST_TOKEN >> 20} MiB; shorten or remove it."
                ) from error
    if not found:
        raise FnftgError(f"{path} is empty: it contains no RDF statements.")


class Collector:
    """Converts the statements of a file to frames, and counts those that are left out."""

    def __init__(self, path: Path, source: Path, options: RdfOptions, report: Report):
        self.report = report
        self.with_graphs = report.format in WITH_GRAPHS
        self.blank_id = blank_ids(f"{path.name}:" if source.is_dir() else "", report.format in WITH_ANONYMOUS_NODES)
        self.roles = {
            **{iri: ("description", rank) for rank, iri in enumerate(options.description_predicates)},
            **{iri: ("name", rank) for rank, iri in enumerate(options.name_predicates)},
            TEXT: ("text", 0),
            RELATION_TEXT: ("relation_text", 0),
        }
        self.language = options.language.lower()

    def language_rank(self, language: str | None) -> int:
        """Rank a language: the preferred one, then its variants (en-GB for en), then none, then others."""
        if language is None:
            return 2
        language = language.lower()
        if language == self.language:
            return 0
        return 1 if language.partition("-")[0] == self.language.partition("-")[0] else 3

    def __call__(self, quads: Iterator[Any]) -> Statements | None:
        """Return the next frames, or None after the last. An import spends most of its time in this loop."""
        oxigraph = pyoxigraph()
        named, blank, literal = oxigraph.NamedNode, oxigraph.BlankNode, oxigraph.Literal
        blank_id, roles, with_graphs = self.blank_id, self.roles, self.with_graphs
        heads: list[str] = []
        relations: list[str] = []
        tails: list[str] = []
        graphs: list[str] = []
        literals: list[tuple[str, str, int, str]] = []
        count = quoted = 0
        for count, quad in enumerate(quads, start=1):  # noqa: B007
            subject, value = quad.subject, quad.object
            kind = value.__class__
            if subject.__class__ is named:
                head = subject.value
            elif subject.__class__ is blank:
                head = blank_id(subject.value)
            else:
                quoted += 1
                continue
            if kind is named:
                tail = value.value
            elif kind is blank:
                tail = blank_id(value.value)
            elif kind is literal:
                if role := roles.get(quad.predicate.value):
                    rank = self.language_rank(value.language) * len(roles) + role[1]
                    literals.append((head, role[0], rank, value.value))
                continue
            else:
                quoted += 1
                continue
            heads.append(head)
            relations.append(quad.predicate.value)
            tails.append(tail)
            if with_graphs:
                graph = quad.graph_name
                graphs.append(graph.value if graph.__class__ is named else "")
        if not count:
            return None
        columns = {"head": heads, "relation": relations, "tail": tails}
        triples = pl.DataFrame(columns, schema=TRIPLE_SCHEMA).with_columns(pl.all().map_batches(plain_ids))
        tidy = pl.col("value").str.replace_all(r"\s+", " ").str.strip_chars()
        texts = pl.DataFrame(literals, schema=LITERAL_SCHEMA, orient="row").with_columns(
            pl.col("id").map_batches(plain_ids), tidy
        )
        texts = texts.filter(pl.col("value") != "")
        if others := count - len(heads) - len(texts) - quoted:
            self.report.left_out["literals that are not texts"] += others
        if quoted:
            self.report.left_out["statements about quoted triples (RDF-star)"] += quoted
        graph_column = pl.Series("graph", graphs, dtype=pl.String) if with_graphs else pl.lit("").alias("graph")
        return Statements(triples.with_columns(graph_column), texts)


def blank_ids(prefix: str, anonymous: bool) -> Callable[[str], str]:
    """Return the function that maps the label of a blank node to an id.

    Anonymous nodes, for which the parser draws a random label, are numbered instead.
    """
    drawn = re.compile(r"[a-f][0-9a-f]{23,31}")
    numbers: dict[str, int] = {}

    def blank_id(label: str) -> str:
        if anonymous and drawn.fullmatch(label):
            label = f"[{numbers.setdefault(label, len(numbers) + 1)}]"  # labels have no brackets
        return f"_:{prefix}{label}"

    return blank_id


def text_blocks(
    literals: Accumulator, ends: Accumulator, predicates: set[str], source: Path, report: Report
) -> Iterator[TextBlock]:
    """Yield the texts of subjects used as relations, and of subjects used as entities or not used in any triple."""
    chosen = literals.rows()
    if further := literals.added - len(chosen):
        report.left_out["labels and descriptions besides the preferred ones"] += further
    roles = ("name", "description", "text", "relation_text")
    columns = (pl.col("value").filter(pl.col("role") == role).first().alias(role) for role in roles)
    subjects = chosen.group_by("id", maintain_order=True).agg(columns)
    used = pl.Series(sorted(predicates), dtype=pl.String)
    is_relation = pl.col("id").is_in(used.implode()) | pl.col("relation_text").is_not_null()
    is_entity = pl.col("id").hash().is_in(ends.rows()["key"].implode()) | pl.col("text").is_not_null() | ~is_relation
    either = composed(pl.col("name"), pl.col("description"))
    entities = subjects.filter(is_entity).select("id", text=pl.coalesce("text", either), name="name")
    relations = subjects.filter(is_relation).select("id", text=pl.coalesce("relation_text", either))
    for frame in entities.iter_slices(STATEMENTS_AT_A_TIME):
        yield TextBlock("entities", frame, str(source))
    for frame in relations.iter_slices(STATEMENTS_AT_A_TIME):
        yield TextBlock("relations", frame, str(source))


def explained(error: SyntaxError, path: Path, format: str, max_size: int | None) -> FnftgError:
    """Return a parser's error as an `FnftgError` with the line. For XML, another parser finds the line."""
    line, message = error.lineno, error.msg
    if message.startswith("Parser error"):
        message = message.partition(": ")[2]
    if "LoadDocumentCallback" in message:
        return FnftgError(f"{path}: its @context is remote and is not downloaded; write the context into the file.")
    if format == "rdfxml":
        with open_binary(path, max_size) as file:
            try:
                expat.ParserCreate().ParseFile(io.BufferedReader(GuardedFile(path, file, format)))
            except expat.ExpatError as found:
                line, message = found.lineno, expat.ErrorString(found.code)
            except (LookupError, ValueError):
                pass  # expat does not know the encoding: keep the first parser's message
    place = f"{path}, line {line}" if line else str(path)
    return FnftgError(f"{place}: {' '.join(message.split())}; fix the file.")


# Ids as IRIs


def iri_of(id_: str) -> str:
    """Return an IRI for an id that is not one. It ends in an XML name, as RDF/XML requires of predicates."""
    return OWN_ID + re.sub(rb"[^A-Za-z0-9_]", lambda byte: b"-%02x" % byte[0][0], id_.encode()).decode()


def id_of(iri: str) -> str:
    """Return the id of an IRI made by `iri_of`. Other IRIs are returned unchanged."""
    coded = iri.removeprefix(OWN_ID)
    try:
        id_ = re.sub(rb"-([0-9a-f]{2})", lambda byte: bytes.fromhex(byte[1].decode()), coded.encode()).decode()
    except UnicodeDecodeError:
        return iri
    return id_ if id_ and iri_of(id_) == iri else iri


def plain_ids(iris: pl.Series) -> pl.Series:
    own = iris.str.starts_with(OWN_ID)
    if not own.any():
        return iris
    distinct = iris.filter(own).unique()
    return iris.replace(distinct, pl.Series([id_of(iri) for iri in distinct.to_list()], dtype=pl.String))


def node_of(id_: str) -> Any:
    """Return an id as a node. Web IRIs and URNs are used unchanged."""
    named = pyoxigraph().NamedNode
    if id_.startswith(("http://", "https://", "urn:")) and not id_.startswith(OWN):
        try:
            return named(id_)
        except ValueError:
            pass
    return named(iri_of(id_))


# Writing


def write(graph: KnowledgeGraph, folder: Path, format: str) -> None:
    """Write one file per split and one of texts or, for formats with named graphs, one file with a graph per split."""
    suffix = FORMATS[format].suffixes[0]
    for split in graph.splits:
        own_split(split, "The graph")
    if format == "rdfxml":
        check_xml_names(graph)
    if format in WITH_GRAPHS:
        serialize(quads_of(graph), folder / f"graph{suffix}", format)
        return
    for split, parts in groupby(triple_frames(graph), key=lambda part: part[0]):
        stem = split if split in STANDARD_SPLITS else OWN_SPLIT_FILE + split
        serialize((triple for _, frame in parts for triple in nodes_of(frame)), folder / f"{stem}{suffix}", format)
    serialize(literals_of(graph, format), folder / f"texts{suffix}", format)


Nodes = tuple[Any, Any, Any]  # subject, predicate, object


def serialize(statements: Iterator[Any], path: Path, format: str) -> None:
    oxigraph = pyoxigraph()
    if format not in WITH_GRAPHS:
        statements = (oxigraph.Triple(*nodes) for nodes in statements)
    with open(path, "wb") as file:
        oxigraph.serialize(statements, file, getattr(oxigraph.RdfFormat, SYNTAXES[format]), prefixes=PREFIXES)


def quads_of(graph: KnowledgeGraph) -> Iterator[Any]:
    """Yield the triples of each split in a named graph, and the texts in the default graph."""
    oxigraph = pyoxigraph()
    for split, frame in triple_frames(graph):
        name = oxigraph.NamedNode(OWN_SPLIT + split)
        for subject, predicate, object_ in nodes_of(frame):
            yield oxigraph.Quad(subject, predicate, object_, name)
    for subject, predicate, literal in literals_of(graph):
        yield oxigraph.Quad(subject, predicate, literal)


def nodes_of(frame: pl.DataFrame) -> Iterator[Nodes]:
    ids = pl.concat(list(frame.iter_columns()), rechunk=False).unique().to_list()
    nodes = {id_: node_of(id_) for id_ in ids}
    for head, relation, tail in zip(*(column.to_list() for column in frame.iter_columns()), strict=True):
        yield nodes[head], nodes[relation], nodes[tail]


def literals_of(graph: KnowledgeGraph, format: str = "") -> Iterator[Nodes]:
    """Yield the texts of entities and relations, with predicates from which `read` composes the same texts."""
    relation_ids = pl.Series([id_ for ids in blocks(graph.relations.ids) for id_ in ids], dtype=pl.String)
    shared: set[str] = set()
    for frame in vocabulary_frames(graph.entities):
        also_relation = frame["id"].is_in(relation_ids.implode())
        shared.update(frame["id"].filter(also_relation))
        yield from literal_nodes(entity_literals(frame, also_relation), format)
    used = np.unique(np.concatenate([NO_TRIPLES[:, 1], *(np.unique(split[:, 1]) for split in graph.splits.values())]))
    alone = set(relation_ids) - set(relation_ids.gather(used)) | shared
    for frame in vocabulary_frames(graph.relations):
        is_alone = pl.col("id").is_in(pl.Series(sorted(alone), dtype=pl.String).implode())
        text = pl.col("text")
        literals = {RELATION_TEXT: pl.when(is_alone).then(text), LABEL: pl.when(~is_alone).then(text)}
        yield from literal_nodes(frame.select("id", **literals), format)


def entity_literals(frame: pl.DataFrame, also_relation: pl.Series) -> pl.DataFrame:
    """Return a column per predicate: name and description, and the text if it cannot be composed of these."""
    name, text, description = pl.col("name"), pl.col("text"), pl.col(DESCRIPTION)
    rest = text.str.strip_prefix(name + ", ")
    described = (
        pl.when(name == text)
        .then(None)
        .when(composed(name, rest) == text)
        .then(rest)
        .when(composed(name, text) == text)
        .then(text)
    )
    frame = frame.with_columns(described.alias(DESCRIPTION))
    enough = (composed(name, description) == text) & ~also_relation
    return frame.select("id", name.alias(LABEL), description, pl.when(enough).then(None).otherwise(text).alias(TEXT))


def literal_nodes(frame: pl.DataFrame, format: str) -> Iterator[Nodes]:
    oxigraph = pyoxigraph()
    predicates = frame.columns[1:]
    if format == "rdfxml":
        bad = frame.filter(pl.any_horizontal(pl.col(predicates).str.contains(NOT_XML)))
        if len(bad):
            raise FnftgError(
                f"The text of {shortened(bad['id'][0])} has a control character, which XML cannot represent: "
                "export to nt instead."
            )
    nodes = [oxigraph.NamedNode(predicate) for predicate in predicates]
    for id_, *values in frame.iter_rows():
        subject = node_of(id_)
        for predicate, value in zip(nodes, values, strict=True):
            if value is not None:
                yield subject, predicate, oxigraph.Literal(value)


def check_xml_names(graph: KnowledgeGraph) -> None:
    """Raise for relations that RDF/XML cannot represent. They must end in an XML name that is not reserved."""
    oxigraph = pyoxigraph()
    syntax = oxigraph.RdfFormat.RDF_XML
    for ids in blocks(graph.relations.ids):
        for id_ in ids:
            node = node_of(id_)
            try:
                data = oxigraph.serialize([oxigraph.Triple(node, node, node)], format=syntax)
                ElementTree.fromstring(data)
                whole = [quad.predicate for quad in oxigraph.parse(data, syntax)] == [node]
            except (OSError, SyntaxError):
                whole = False
            if not whole:
                raise FnftgError(f"RDF/XML cannot write the relation {shortened(id_)}: export to nt instead.")
