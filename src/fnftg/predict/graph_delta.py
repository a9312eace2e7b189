"""Graph views extended by what a request adds."""

from __future__ import annotations

from fnftg.kg.graph import KnowledgeGraph
from fnftg.predict.questions import GraphDelta


def extended_graph(graph: KnowledgeGraph, delta: GraphDelta) -> KnowledgeGraph:
    """Return a view with the new entities, relations and triples; the triples are in a split of their own."""
    relation_ids = []
    for relation in delta.relations:
        id_ = relation.text
        while graph.relations.find(id_) is not None:
            id_ += "'"
        relation_ids.append(id_)
    entities = dict(zip(delta.ids, (entity.text for entity in delta.entities), strict=True))
    relations = dict(zip(relation_ids, (relation.text for relation in delta.relations), strict=True))
    view = graph.extended(entities, relations)
    ids = [
        (view.entities.ids[head], view.relations.ids[relation], view.entities.ids[tail])
        for head, relation, tail in delta.triples
    ]
    return graph.extended(entities, relations, ids)
