"""From names to rows: what a question means in this graph, and what it adds to it."""

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
    """Everything as rows; new entities and relations have those behind the graph's own."""
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
    """New entities, those that they are linked to, and further triples between old and new ones."""
    meaning = Resolver(entities, relations)
    for one in new:
        if not isinstance(one, NewEntity):
            raise FnftgError(f"{shortened(str(one))} is no NewEntity: only those can be added.")
        meaning.entity(one)
    meaning.follow_edges()
    for head, relation, tail in triples:
        meaning.triples.append((meaning.entity(head), meaning.relation(relation), meaning.entity(tail)))
    meaning.follow_edges()
    return meaning.delta()


class Resolver:
    """Collects what is new, in the order in which it is met."""

    def __init__(self, entities: NameIndex, relations: NameIndex):
        self.entities, self.relations = entities, relations
        self.new_entities: dict[NewEntity, int] = {}  # by identity: to be linked to one another they must be the same
        self.new_relations: dict[Relation, int] = {}
        self.triples: list[tuple[int, int, int]] = []
        self.followed = 0

    def entity(self, name: EntityName) -> int:
        if not isinstance(name, NewEntity):
            by_id = [row for entity, row in self.new_entities.items() if entity.id == name and name is not None]
            return by_id[0] if by_id else self.entities.row(name)
        row = self.new_entities.setdefault(name, len(self.entities.vocabulary) + len(self.new_entities))
        if len(self.new_entities) > MOST_NEW:
            raise FnftgError(f"More than {MOST_NEW} new entities at once: add them to the graph with fnftg update.")
        return row

    def relation(self, name: RelationName) -> int:
        if isinstance(name, Relation):
            return self.new_relations.setdefault(name, len(self.relations.vocabulary) + len(self.new_relations))
        return self.relations.row(name)

    def follow_edges(self) -> None:
        """Turns the edges of new entities into triples; who they lead to may be new as well."""
        while self.followed < len(self.new_entities):
            entity = list(self.new_entities)[self.followed]
            own, self.followed = self.new_entities[entity], self.followed + 1
            if len(entity.edges) + len(entity.incoming) > MOST_EDGES:
                count = len(entity.edges) + len(entity.incoming)
                raise FnftgError(f"The new entity has {count:,} edges: {MOST_EDGES} are allowed.")
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
                raise FnftgError(f"The graph has {shortened(id_)} among its entities already: choose another id.")
            ids.append(id_)
        return GraphDelta(tuple(self.new_entities), tuple(ids), tuple(self.new_relations), tuple(self.triples))


def pair(edge: Any) -> tuple[Any, Any]:
    if isinstance(edge, (tuple, list)) and len(edge) == 2:
        return edge[0], edge[1]
    raise FnftgError(f"{shortened(str(edge))} is no edge: it must be (relation, entity).")
