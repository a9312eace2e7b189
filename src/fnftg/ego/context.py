"""`GraphContext`: the texts and edges that a model may look at, and the same with what a request adds to them.

VisibleGraph        what everything that looks at a graph asks for
├─ GraphContext     a whole graph
└─ ExtendedContext  a graph with a few more entities, relations and triples; nothing of the graph is copied
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from fnftg.arrays import Float32Array, Int64Array, IntArray
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.known_answers import AnswerLookup, ExtendedAnswers, KnownAnswers, new_triples
from fnftg.ego.local_subgraph import EdgeList, LocalSubgraph
from fnftg.ego.neighbours import Directions, Neighbours
from fnftg.ego.sampling import EgoGraphs, Hidden, sample
from fnftg.kg.graph import Triples, first_words
from fnftg.text.mentions import Mentions
from fnftg.text.nearest_texts import TextKNN
from fnftg.text.text_transformer import GraphTexts

NO_TRIPLES: Triples = np.zeros((0, 3), np.int32)


class VisibleGraph(ABC):
    """Entities and relations have the rows 0, 1, …; those that a request adds come last."""

    entities: int  # N
    relations: int  # R
    base: GraphContext | None  # the graph that this one extends
    added: Triples  # (n, 3): the triples that the graph extended lacks
    memo: dict[Hashable, Any]  # what was counted once

    @property
    @abstractmethod
    def known(self) -> AnswerLookup:
        """The answers that visible edges give to queries."""

    @property
    @abstractmethod
    def mentions(self) -> Mentions:
        """Which texts name which entities."""

    @property
    @abstractmethod
    def fingerprints(self) -> Int64Array:
        """Hashes of the relations' texts: (R,), never 0."""

    @abstractmethod
    def entity_texts(self, first: int = 0) -> list[str]:
        """The texts of the entities from row `first` on."""

    @abstractmethod
    def nearest_texts(self, k: int) -> TextKNN:
        """The k entities with the most similar texts of each entity."""

    @abstractmethod
    def subgraph(self, centres: IntArray) -> LocalSubgraph:
        """A graph that has all edges of the centres (n,)."""

    def counted(self, key: Hashable, count: Callable[[], Any]) -> Any:
        """What was counted under this key; it is counted now if it was not."""
        if key not in self.memo:
            self.memo[key] = count()
        return self.memo[key]

    def ego_graphs(
        self,
        config: EgoConfig,
        centres: IntArray,
        hidden: Hidden | None = None,
        key: tuple[int, int, int] = (0, 0, 0),
        streams: Int64Array | None = None,
        training: bool = False,
    ) -> EgoGraphs:
        """The sampled ego-graphs; outside training they depend on the centre alone, not on the batch."""
        limit = config.num_neighbours if training else config.num_neighbours_at_evaluation
        if limit == 0:
            return EgoGraphs(np.zeros(len(centres) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        streams = centres.astype(np.int64) if streams is None else streams
        graph = self.subgraph(centres)
        assert hidden is None or graph.entities is None, "what is hidden has the numbers of the whole graph"
        egos = sample(graph.neighbours, graph.inside(centres), limit, key, hidden, streams)
        return graph.outside_ego_graphs(egos)


class GraphContext(VisibleGraph):
    """A whole graph.

    Args:
        texts: the texts as the model reads them.
        neighbours: the visible edges.
        known: the same edges as answers; made of the neighbours when first needed if not given.
        base: the graph that this one extends, if it is a view.
        added: the triples that this view adds to it.
        interactive: few entities will be asked about, so nothing is computed for all of them in advance.
    """

    def __init__(
        self,
        texts: GraphTexts,
        neighbours: Neighbours,
        known: KnownAnswers | None = None,
        base: GraphContext | None = None,
        added: Triples = NO_TRIPLES,
        interactive: bool = False,
    ):
        self.texts, self.neighbours, self._known = texts, neighbours, known
        self.base, self.added, self.interactive = base, added, interactive
        self.entities, self.relations = texts.entities, texts.relations
        self.memo = {}

    @classmethod
    def of(cls, texts: GraphTexts, triples: Triples, directions: Directions = "both") -> GraphContext:
        """With the edges of triples (n, 3)."""
        return cls(texts, Neighbours.of(triples, texts.entities, texts.relations, directions))

    @cached_property
    def known(self) -> KnownAnswers:
        if self._known is not None:
            return self._known
        return KnownAnswers.of(self.neighbours.triples(), self.entities, self.relations)

    @property
    def mentions(self) -> Mentions:
        return self.texts.mentions

    @cached_property
    def fingerprints(self) -> Int64Array:
        return relation_fingerprints(self.texts, np.arange(self.relations))

    def entity_texts(self, first: int = 0) -> list[str]:
        assert self.texts.vocabulary is not None
        return self.texts.vocabulary.texts.slice(first, self.entities)

    def nearest_texts(self, k: int) -> TextKNN:
        return self.texts.nearest_texts(k)

    def subgraph(self, centres: IntArray) -> LocalSubgraph:
        return LocalSubgraph(self.neighbours)


class ExtendedContext(VisibleGraph):
    """A graph with the few entities, relations and triples of a request.

    Args:
        base: the graph.
        triples: those of the request, (n, 3), with the rows of this context.
        new_texts: of the new entities.
        features: gives the frozen encoder's features of these texts, (new entities, hidden).
        new_fingerprints: of the texts of the new relations.
    """

    base: GraphContext

    def __init__(
        self,
        base: GraphContext,
        triples: Triples,
        new_texts: Sequence[str],
        features: Callable[[], Float32Array],
        new_fingerprints: Int64Array,
    ):
        self.base, self.triples, self.new_texts, self.features = base, triples, new_texts, features
        self.entities, self.relations = base.entities + len(new_texts), base.relations + len(new_fingerprints)
        self.added, self.new_fingerprints = new_triples(base.known, triples), new_fingerprints
        self.memo = {}

    @cached_property
    def edges(self) -> EdgeList:
        """Of the request."""
        return EdgeList.of(self.triples, self.relations, self.base.neighbours.directions)

    @cached_property
    def known(self) -> ExtendedAnswers:
        return ExtendedAnswers.of(self.base.known, self.triples, self.entities, self.relations)

    @cached_property
    def fingerprints(self) -> Int64Array:
        return np.concatenate([self.base.fingerprints, self.new_fingerprints])

    @cached_property
    def mentions(self) -> Mentions:
        if not self.new_texts:
            return self.base.mentions
        return self.base.mentions.extended(self.new_texts, first_words(pl.Series(self.new_texts)))

    def entity_texts(self, first: int = 0) -> list[str]:
        new = max(first - self.base.entities, 0)
        return [*self.base.entity_texts(first), *self.new_texts[new:]]

    def nearest_texts(self, k: int) -> TextKNN:
        found = self.base.nearest_texts(k)
        return found.extended(self.features()) if self.new_texts else found

    def subgraph(self, centres: IntArray) -> LocalSubgraph:
        return LocalSubgraph.of(self.base.neighbours, self.edges, self.relations, centres.astype(np.int64))

    def changed_centres(self, config: EgoConfig) -> Int64Array:
        """The entities whose ego-graphs may differ from those of the graph, new ones included; ascending."""
        return changed_centres(self.base.neighbours, self.edges, self.entities, config)


def changed_centres(base: Neighbours, added: EdgeList, entities: int, config: EgoConfig) -> Int64Array:
    """The entities whose ego-graphs may differ once edges are added to a graph, new ones included; ascending."""
    new = np.arange(len(base), entities)
    if config.num_neighbours_at_evaluation == 0:
        return new
    return np.unique(np.concatenate([added.centres, new]))


def relation_fingerprints(texts: GraphTexts, relations: IntArray) -> Int64Array:
    """Hashes that tell the texts of relations (n,) apart in whatever graph, by their tokens: (n,), never 0."""
    rows, ragged = texts.entities + relations.astype(np.int64), texts.tokens.ragged
    lengths = ragged.lengths(rows)
    tokens = np.split(ragged.flat(rows, lengths).astype("<i8"), np.cumsum(lengths)[:-1]) if len(rows) else []
    hashes = [int.from_bytes(hashlib.blake2b(part.tobytes(), digest_size=8).digest(), "big") >> 1 for part in tokens]
    return np.maximum(np.array(hashes, np.int64), 1)
