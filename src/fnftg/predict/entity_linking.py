"""Entity linking: from the names in a question to rows of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnftg.errors import FnftgError, shortened
from fnftg.predict.name_index import NameIndex
from fnftg.predict.questions import (
    MOST_EDGES,
    MOST_NEW,
    EntityName,
    GraphDelta,
    NewEntity,
    Question,
    Relation,
    RelationName,
    ResolvedQuery,
)


def resolved(question: Question, entities: NameIndex, relations: NameIndex) -> ResolvedQuery:
    """Resolve all names to rows; new entities and relations get the rows after the graph's own."""
    return resolved_triple(question.head, question.relation, question.tail, entities, relations)


def resolved_triple(
    head: EntityName | None,
    relation: RelationName | None,
    tail: EntityName | None,
    entities: NameIndex,
    relations: NameIndex,
) -> ResolvedQuery:
    meaning = Resolver(entities, relations)
    head_row, tail_row = (-1 if name is None else meaning.entity(name) for name in (head, tail))
    relation_row = -1 if relation is None else meaning.relation(relation)
    meaning.follow_edges()
    return ResolvedQuery(head_row, relation_row, tail_row, meaning.delta())


def resolved_delta(
    new: Sequence[NewEntity],
    triples: Sequence[tuple[EntityName, RelationName, EntityName]],
    entities: NameIndex,
    relations: NameIndex,
) -> GraphDelta:
    """Resolve new entities, the entities they link to, and further triples between old and new entities."""
    meaning = Resolver(entities, relations)
    for one in new:
        if not isinstance(one, NewEntity):
            raise FnftgError(f"{shortened(str(one))} is not a NewEntity: pass NewEntity objects.")
        meaning.entity(one)
    meaning.follow_edges()
    for head, relation, tail in triples:
        meaning.triples.append((meaning.entity(head), meaning.relation(relation), meaning.entity(tail)))
    meaning.follow_edges()
    return meaning.delta()


class Resolver:
    """Collects new entities, relations and triples in order of appearance."""

    def __init__(self, entities: NameIndex, relations: NameIndex):
        self.entities, self.relations = entities, relations
        self.new_entities: dict[NewEntity, int] = {}  # by identity, so that new entities can be linked
        self.new_relations: dict[Relation, int] = {}
        self.triples: list[tuple[int, int, int]] = []
        self.followed = 0

    def entity(self, name: EntityName) -> int:
        if not isinstance(name, NewEntity):
            by_id = [row for entity, row in self.new_entities.items() if entity.id == name and name is not None]
            return by_id[0] if by_id else self.entities.row(name)
        row = self.new_entities.setdefault(name, len(self.entities.vocabulary) + len(self.new_entities))
        if len(self.new_entities) > MOST_NEW:
            raise FnftgError(
                f"A request can have up to {MOST_NEW} new entities: add them to the graph with fnftg update."
            )
        return row

    def relation(self, name: RelationName) -> int:
        if isinstance(name, Relation):
            return self.new_relations.setdefault(name, len(self.relations.vocabulary) + len(self.new_relations))
        return self.relations.row(name)

    def follow_edges(self) -> None:
        """Turn the edges of new entities into triples; the neighbours may be new, too."""
        while self.followed < len(self.new_entities):
            entity = list(self.new_entities)[self.followed]
            own, self.followed = self.new_entities[entity], self.followed + 1
            if len(entity.edges) + len(entity.incoming) > MOST_EDGES:
                count = len(entity.edges) + len(entity.incoming)
                raise FnftgError(f"The new entity has {count:,} edges: give {MOST_EDGES} at most.")
            for relation, other in map(pair, entity.edges):
                self.triples.append((own, self.relation(relation), self.entity(other)))
            for relation, other in map(pair, entity.incoming):
                self.triples.append((self.entity(other), self.relation(relation), own))

    def delta(self) -> GraphDelta:
        ids: list[str] = []
        for number, entity in enumerate(self.new_entities, start=1):
            id_ = entity.id or f"new:{number}"
            while entity.id is None and (id_ in ids or self.entities.vocabulary.find(id_) is not None):
                id_ += "'"
            if id_ in ids or self.entities.vocabulary.find(id_) is not None:
                raise FnftgError(f"The graph already has an entity {shortened(id_)}: choose another id.")
            ids.append(id_)
        return GraphDelta(tuple(self.new_entities), tuple(ids), tuple(self.new_relations), tuple(self.triples))


def pair(edge: Any) -> tuple[Any, Any]:
    if isinstance(edge, (tuple, list)) and len(edge) == 2:
        return edge[0], edge[1]
    raise FnftgError(f"{shortened(str(edge))} is not an edge: give (relation, entity).")
