"""The review page: a self-contained HTML file on which a person accepts or rejects predicted triples."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fnftg.errors import FnftgError
from fnftg.kg.formats.rdf import iri_of, node_of
from fnftg.models.evidence_model import evidence_of
from fnftg.predict.completion import Found
from fnftg.predict.explanation import evidence_reason
from fnftg.predict.probability_reasons import query_reasons
from fnftg.predict.questions import GraphDelta, ResolvedQuery

if TYPE_CHECKING:
    from fnftg.predict.predictor import Predictor

MOST = 2_000  # triples on the page
EXPLAINED = 300  # triples with reasons
LONGEST = 160  # characters of a text
IRI = re.compile(r"(https?://|urn:(?!fnftg:))([^\x00-\x20<>\"{}|^`\\%]|%[0-9A-Fa-f]{2})*")


def review_page(predictor: Predictor, found: Found, run: str) -> str:
    """Return the page for the likeliest triples, with the reasons for the first ones."""
    triples = [
        described(predictor, int(one["head"]), int(one["relation"]), int(one["tail"]), float(one["probability"]), place)
        for place, one in enumerate(found[:MOST])
    ]
    data = json.dumps({"title": f"Missing links of {run}", "triples": triples}, ensure_ascii=False)
    page = files("fnftg.predict.review").joinpath("review.html").read_text(encoding="utf-8")
    return page.replace("@DATA@", data.replace("<", "\\u003c"))  # so that no text can end the script


def described(
    predictor: Predictor, head: int, relation: int, tail: int, probability: float, place: int
) -> dict[str, Any]:
    graph = predictor.graph
    ids = [graph.entities.ids[head], graph.relations.ids[relation], graph.entities.ids[tail]]
    return {
        "triple": ids,
        "iris": [iri(id_) for id_ in ids],
        "names": [graph.entities.name(head), graph.relations.name(relation), graph.entities.name(tail)],
        "texts": [graph.entities.texts[row][:LONGEST] for row in (head, tail)],
        "probability": probability,
        "reasons": reasons(predictor, head, relation, tail) if place < EXPLAINED else [],
    }


def reasons(predictor: Predictor, head: int, relation: int, tail: int) -> list[str]:
    """Return the reasons of the evidence sources and of the two queries, as sentences."""
    said = []
    evidence = evidence_of(predictor.model)
    if evidence is not None:
        for source, finding in evidence.findings(predictor.context, head, relation, tail, False):
            reason = evidence_reason(predictor.graph, source, finding, head, tail, 0.0, 0.0, 0.0)
            named = [item.entity.name for item in reason.items[:4] if item.entity is not None]
            edges = [item.relation.relation for item in reason.items[:4] if item.relation is not None]
            words = reason.sentence or ", ".join(named or edges)
            said.append(f"{source.title[0].upper()}{source.title[1:]}: {words}")
    for one in query_reasons(predictor, ResolvedQuery(head, relation, tail, GraphDelta())):
        said.append(f"Missing {one.asked} ({one.probability:.0%}): {' '.join(one.sentences)}")
    return said


def iri(id_: str) -> str:
    """Return the IRI that `fnftg export` gives an id: the id itself if it is an IRI."""
    try:
        return str(node_of(id_).value)
    except FnftgError:  # pyoxigraph is not installed
        return id_ if IRI.fullmatch(id_) else iri_of(id_)
