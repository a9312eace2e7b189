"""Writers of predicted triples: TSV, JSON lines, Parquet, or RDF with the probability as an annotation.

In RDF, a node that represents the triple has its probability (urn:fnftg:probability) and score (urn:fnftg:score). With
`rdf-star` the node reifies the triple as a term, `rdf:reifies <<( s p o )>>`, as in RDF 1.2. With `reification` it is
an rdf:Statement with subject, predicate and object, which every RDF tool reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import polars as pl

from fnftg.errors import FnftgError
from fnftg.kg.formats.rdf import SYNTAXES, node_of, pyoxigraph
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.strings import as_series
from fnftg.predict.completion import Found

Annotation = Literal["rdf-star", "reification", "none"]
ANNOTATIONS: tuple[Annotation, ...] = ("rdf-star", "reification", "none")
TABLES, RDF = ("tsv", "jsonl", "parquet"), ("nt", "ttl")
RDF_NAMES, XSD_DOUBLE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2001/XMLSchema#double"
PROBABILITY, SCORE = "urn:fnftg:probability", "urn:fnftg:score"
AT_A_TIME = 100_000


def format_of(path: Path) -> str:
    """Return the format of a file by its extension."""
    ending = path.suffix.removeprefix(".").lower()
    if ending not in (*TABLES, *RDF):
        raise FnftgError(
            f"{path.name} has an unknown format: use one of the extensions .{', .'.join((*TABLES, *RDF))}."
        )
    if ending in RDF:
        pyoxigraph()
    return ending


def write_triples(
    graph: KnowledgeGraph,
    found: Found,
    path: Path,
    format: str,
    annotation: Annotation = "rdf-star",
    base: str | None = None,
) -> None:
    """Write the triples in the given order."""
    if format in RDF:
        oxigraph = pyoxigraph()
        statements = annotated(frames(graph, found), annotation, nodes_under(base))
        prefixes = {"fnftg": "urn:fnftg:", "rdf": RDF_NAMES, "xsd": "http://www.w3.org/2001/XMLSchema#"}
        with open(path, "wb") as file:
            oxigraph.serialize(statements, file, getattr(oxigraph.RdfFormat, SYNTAXES[format]), prefixes=prefixes)
    elif format == "parquet":
        pl.concat(frames(graph, found)).write_parquet(path)
    else:
        with open(path, "wb") as file:
            for number, frame in enumerate(frames(graph, found)):
                if format == "tsv":
                    frame.write_csv(file, separator="\t", quote_style="never", include_header=number == 0)
                else:
                    frame.write_ndjson(file)


def frames(graph: KnowledgeGraph, found: Found) -> Iterator[pl.DataFrame]:
    """Yield at least one frame of head, relation, tail, score and probability."""
    entities, relations = as_series(graph.entities.ids), as_series(graph.relations.ids)
    for start in range(0, max(len(found), 1), AT_A_TIME):
        part = found[start : start + AT_A_TIME]
        yield pl.DataFrame(
            {
                "head": entities.gather(part["head"].copy()),
                "relation": relations.gather(part["relation"].copy()),
                "tail": entities.gather(part["tail"].copy()),
                "score": part["score"].copy(),
                "probability": part["probability"].copy(),
            }
        )


def nodes_under(base: str | None) -> Callable[[str], Any]:
    """Return a function from ids to RDF nodes. IRIs are kept; other ids follow `base`, or are named as in `export`."""
    if base is None:
        return node_of
    named = pyoxigraph().NamedNode
    try:
        named(base + "x")
    except ValueError as error:
        raise FnftgError(f"--base {base} is not an IRI: give one such as http://example.org/id/.") from error

    def node(id_: str) -> Any:
        own = node_of(id_)
        return own if own.value == id_ else named(base + quote(id_, safe=""))

    return node


def annotated(parts: Iterator[pl.DataFrame], annotation: Annotation, node: Callable[[str], Any]) -> Iterator[Any]:
    """Yield each triple and its annotations."""
    oxigraph = pyoxigraph()
    triple, named, blank = oxigraph.Triple, oxigraph.NamedNode, oxigraph.BlankNode
    reifies, a, statement = named(f"{RDF_NAMES}reifies"), named(f"{RDF_NAMES}type"), named(f"{RDF_NAMES}Statement")
    ends = [named(RDF_NAMES + end) for end in ("subject", "predicate", "object")]
    number = 0
    for frame in parts:
        predicates = named(SCORE), named(PROBABILITY)
        for head, relation, tail, *said in frame.iter_rows():
            nodes = (node(head), node(relation), node(tail))
            yield triple(*nodes)
            if annotation == "none":
                continue
            number += 1
            about = blank(f"t{number}")
            if annotation == "rdf-star":
                yield triple(about, reifies, triple(*nodes))
            else:
                yield triple(about, a, statement)
                for end, own in zip(ends, nodes, strict=True):
                    yield triple(about, end, own)
            for predicate, value in zip(predicates, said, strict=True):
                yield triple(about, predicate, oxigraph.Literal(f"{value:.9g}", datatype=named(XSD_DOUBLE)))
