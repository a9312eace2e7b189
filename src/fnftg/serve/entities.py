"""Looking around in the graph: entities by what they are called, their edges, and the relations."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnftg.kg.graph import Vocabulary
from fnftg.predict.predictor import Predictor


def search(predictor: Predictor, asked: str, limit: int) -> list[dict[str, Any]]:
    """Those whose id or name begins so, then those that are spelled alike."""
    names = predictor.entity_names
    rows = names.search(asked, limit)
    if len(rows) < limit and asked.strip():
        rows = list(dict.fromkeys([*rows, *names.similar(asked, limit)]))[:limit]
    return [described(predictor, row) for row in rows]


def surroundings(predictor: Predictor, row: int, limit: int) -> dict[str, Any]:
    """An entity and the first of its edges."""
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
                "neighbour": named(graph.entities, other),
            }
        )
    return {**described(predictor, row), "edges": edges}


def all_relations(predictor: Predictor) -> list[dict[str, Any]]:
    """The most frequent first."""
    vocabulary, counts = predictor.graph.relations, predictor.context.neighbours.frequencies
    order = np.argsort(-counts, kind="stable").tolist()
    return [{**named(vocabulary, row), "triples": int(counts[row])} for row in order]


def described(predictor: Predictor, row: int) -> dict[str, Any]:
    start, stop = known_range(predictor, row)
    return {**named(predictor.graph.entities, row), "degree": stop - start}


def known_range(predictor: Predictor, row: int) -> tuple[int, int]:
    """Where the known links of an entity stand, those that lead to it included."""
    known = predictor.known
    size = 2 * known.relations * known.entities
    start, stop = np.searchsorted(known.packed, [row * size, (row + 1) * size])
    return int(start), int(stop)


def named(vocabulary: Vocabulary, row: int) -> dict[str, Any]:
    return {"id": vocabulary.ids[row], "name": vocabulary.name(row), "text": vocabulary.texts[row]}
