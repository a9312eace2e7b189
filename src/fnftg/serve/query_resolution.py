"""Resolution of the names in a request. Errors name the field with the unknown name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fnftg.errors import FnftgError
from fnftg.predict.entity_linking import resolved, resolved_triple
from fnftg.predict.name_index import NameIndex
from fnftg.predict.predictor import Predictor
from fnftg.predict.questions import ResolvedQuery
from fnftg.serve.api_errors import ApiError
from fnftg.serve.schemas import EmbedBody, ExplainBody, NewEntityBody, NewRelationBody, PredictBody, to_query_part

MOST_PAIR_SCORES = 4096  # relations of the graph × queries that ask for a relation


def resolve_queries(body: PredictBody, predictor: Predictor) -> list[ResolvedQuery]:
    pairs, relations = sum(query.relation is None for query in body.queries), len(predictor.graph.relations)
    allowed = max(MOST_PAIR_SCORES // max(relations, 1), 1)
    if pairs > allowed:
        message = f"{pairs} queries ask for a relation: with {relations:,} relations, send {allowed} at most."
        raise ApiError(422, "invalid", message, "queries")
    found = []
    for place, query in enumerate(body.queries):
        try:
            found.append(resolved(query.question(), predictor.entity_names, predictor.relation_names))
        except FnftgError as error:
            parts = {"head": query.head, "relation": query.relation, "tail": query.tail}
            raise api_error(error, predictor, f"queries.{place}", parts) from error
    return found


def check_triple(body: ExplainBody, predictor: Predictor) -> None:
    try:
        resolved_triple(*body.triple(), predictor.entity_names, predictor.relation_names)
    except FnftgError as error:
        parts = {"head": body.head, "relation": body.relation, "tail": body.tail}
        raise api_error(error, predictor, "", parts) from error


def resolve_entities(body: EmbedBody, predictor: Predictor) -> list[ResolvedQuery]:
    found = []
    for place, entity in enumerate(body.entities):
        try:
            names = predictor.entity_names, predictor.relation_names
            found.append(resolved_triple(to_query_part(entity), None, None, *names))
        except FnftgError as error:
            raise api_error(error, predictor, "entities", {str(place): entity}) from error
    return found


def api_error(error: FnftgError, predictor: Predictor, place: str, parts: dict[str, Any]) -> ApiError:
    """Create an error that names the field of the first unknown name, or the whole query if all names are known."""
    mentioned = [
        found
        for field, part in parts.items()
        for found in names_in(part, f"{place}.{field}".strip("."), "relation" if field == "relation" else "entity")
    ]
    new = {name for _, kind, name in mentioned if kind == "new"}
    for field, kind, name in mentioned:
        if kind != "new" and name not in new:
            names: NameIndex = predictor.relation_names if kind == "relation" else predictor.entity_names
            try:
                names.row(name)
            except FnftgError as missing:
                return ApiError(422, f"unknown_{kind}", str(missing), field)
    return ApiError(422, "invalid", str(error), place or None)


def names_in(part: Any, field: str, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield (field, kind, name) of every name. Kind "new" is the id of a new entity, to which other parts may refer."""
    if isinstance(part, str):
        yield field, kind, part
    elif isinstance(part, NewEntityBody):
        if part.id is not None:
            yield f"{field}.id", "new", part.id
        for which in ("edges", "incoming"):
            for number, (relation, entity) in enumerate(getattr(part, which)):
                yield from names_in(relation, f"{field}.{which}.{number}.0", "relation")
                yield from names_in(entity, f"{field}.{which}.{number}.1", "entity")
    else:
        assert part is None or isinstance(part, NewRelationBody)
