"""Graph look-ups for the HTTP API: entities by id or name, their edges, and relations."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnftg.kg.graph import Vocabulary
from fnftg.predict.predictor import Predictor


def search_entities(predictor: Predictor, query: str, limit: int) -> list[dict[str, Any]]:
    """Find entities whose id or name starts with the query, followed by entities with a similar spelling."""
    names = predictor.entity_names
    rows = names.search(query, limit)
    if len(rows) < limit and query.strip():
        rows = list(dict.fromkeys([*rows, *names.similar(query, limit)]))[:limit]
    return [entity_record(predictor, row) for row in rows]


def entity_with_edges(predictor: Predictor, id: str, limit: int) -> dict[str, Any] | None:
    """Return the entity with this id and its first edges, or None."""
    row = predictor.graph.entities.find(id)
    if row is None:
        return None
    graph, (start, stop) = predictor.graph, known_range(predictor, row)
    relations = len(graph.relations)
    packed = predictor.known.packed[start : min(stop, start + limit)] - row * 2 * relations * predictor.known.entities
    edges = []
    for label, other in zip(*(part.tolist() for part in np.divmod(packed, predictor.known.entities)), strict=True):
        relation = label % relations
        edges.append(
            {
                "relation": {"id": graph.relations.ids[relation], "name": graph.relations.name(relation)},
                "direction": "out" if label < relations else "in",
                "neighbour": named_record(graph.entities, other),
            }
        )
    return {**entity_record(predictor, row), "edges": edges}


def all_relations(predictor: Predictor) -> list[dict[str, Any]]:
    """List all relations, the most frequent first."""
    vocabulary, counts = predictor.graph.relations, predictor.context.neighbours.frequencies
    order = np.argsort(-counts, kind="stable").tolist()
    return [{**named_record(vocabulary, row), "triples": int(counts[row])} for row in order]


def entity_record(predictor: Predictor, row: int) -> dict[str, Any]:
    start, stop = known_range(predictor, row)
    return {**named_record(predictor.graph.entities, row), "degree": stop - start}


def known_range(predictor: Predictor, row: int) -> tuple[int, int]:
    """Return the range of an entity's known edges, including incoming ones."""
    known = predictor.known
    size = 2 * known.relations * known.entities
    start, stop = np.searchsorted(known.packed, [row * size, (row + 1) * size])
    return int(start), int(stop)


def named_record(vocabulary: Vocabulary, row: int) -> dict[str, Any]:
    return {"id": vocabulary.ids[row], "name": vocabulary.name(row), "text": vocabulary.texts[row]}
