"""A graph with more in it, and what answers need of it, made from what was there without starting anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.ego.known_answers import KnownAnswers
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.predict.questions import GraphDelta


def grown_graph(graph: KnowledgeGraph, delta: GraphDelta) -> KnowledgeGraph:
    """A view with the new entities, relations and triples, these in a split of their own."""
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


@dataclass(frozen=True)
class ExtendedAnswers:
    """Known answers and those of a few more triples, of a graph with more entities and relations: nothing is copied."""

    base: KnownAnswers
    added: KnownAnswers  # with the numbers of the grown graph

    @classmethod
    def of(cls, base: KnownAnswers, delta: GraphDelta) -> ExtendedAnswers:
        triples: Triples = np.array(delta.triples, np.int32).reshape(-1, 3)
        entities, relations = base.entities + len(delta.entities), base.relations + len(delta.relations)
        return cls(base, KnownAnswers.of(triples, entities, relations))

    @property
    def entities(self) -> int:
        return self.added.entities

    def __call__(self, centres: Int32Array, labels: Int32Array) -> tuple[Int64Array, Int32Array]:
        """As of the grown graph: the answers of query i stand at offsets[i] to offsets[i + 1], ascending."""
        new = self.added.relations - self.base.relations
        old = labels - (labels >= self.added.relations) * new  # inverses stand behind the new relations
        inside = np.flatnonzero((centres < self.base.entities) & (labels % self.added.relations < self.base.relations))
        keys = []
        for queries, (offsets, found) in (
            (inside, self.base(centres[inside], old[inside])),
            (np.arange(len(centres)), self.added(centres, labels)),
        ):
            keys.append(np.repeat(queries, np.diff(offsets)) * self.entities + found)
        both = np.unique(np.concatenate(keys))
        return np.searchsorted(both, np.arange(len(centres) + 1) * self.entities), (both % self.entities).astype(
            np.int32
        )


def new_triples(known: KnownAnswers, delta: GraphDelta) -> Triples:
    """What an addition says that was not known, each triple once."""
    triples: Triples = np.unique(np.array(delta.triples, np.int32).reshape(-1, 3), axis=0)
    heads, relations, tails = triples.astype(np.int64).T
    new = np.maximum(heads, tails) >= known.entities
    new |= relations >= known.relations
    packed = (heads * 2 * known.relations + relations) * known.entities + tails
    return np.asarray(triples[new | _absent(known.packed, packed)])


def grown_answers(known: KnownAnswers, triples: Triples, entities: int, relations: int) -> KnownAnswers:
    """With more triples, entities and relations: equal to `KnownAnswers.of` all triples, but sorts only new ones."""
    new = KnownAnswers.of(triples, entities, relations).packed  # checks that all can be packed
    asked, answers = np.divmod(known.packed, known.entities)
    centres, labels = np.divmod(asked, 2 * known.relations)
    labels += (labels >= known.relations) * (relations - known.relations)  # inverses move behind the new relations
    old = (centres * 2 * relations + labels) * entities + answers  # in the same order
    new = new[_absent(old, new)]
    return KnownAnswers(np.insert(old, np.searchsorted(old, new), new), entities, relations)


def _absent(old: Int64Array, new: Int64Array) -> BoolArray:
    """Whether each of the new numbers is missing among the sorted old ones."""
    if not len(old):
        return np.ones(len(new), bool)
    place = np.minimum(np.searchsorted(old, new), len(old) - 1)
    return np.asarray(old[place] != new)
