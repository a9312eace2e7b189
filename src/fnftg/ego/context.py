"""`GraphContext`: the texts and edges that a model may use.

VisibleGraph        the interface
├─ GraphContext     a graph
└─ ExtendedContext  a graph with the entities, relations and triples of a request; the graph is not copied
"""

from __future__ import annotations

import hashlib
import re
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
from fnftg.kg.graph import Triples, beginning, first_words
from fnftg.text.mentions import Mentions
from fnftg.text.nearest_texts import TextKNN
from fnftg.text.same_names import SameNames
from fnftg.text.text_transformer import GraphTexts

ANSWER_WORDS = 3  # words at either end of a relation's name
NO_TRIPLES: Triples = np.zeros((0, 3), np.int32)


class VisibleGraph(ABC):
    """The texts and edges that a model may use. Rows of entities and relations that a request adds come last."""

    entities: int  # N
    relations: int  # R
    base: GraphContext | None  # the graph that this one extends
    added: Triples  # (n, 3): the triples that the base graph lacks
    memo: dict[Hashable, Any]  # cached results of `counted`

    @property
    @abstractmethod
    def known(self) -> AnswerLookup:
        """The answers of queries among the visible edges."""

    @abstractmethod
    def mentions(self, words: int | None) -> Mentions:
        """Return the mentions of entities in the first words of texts: 0 for whole texts, None for what is encoded."""

    @property
    @abstractmethod
    def same_names(self) -> SameNames:
        """The entities with the same name."""

    @property
    @abstractmethod
    def fingerprints(self) -> Int64Array:
        """Hashes of the relations' texts, (R,), never 0."""

    @abstractmethod
    def entity_texts(self, first: int = 0) -> list[str]:
        """Return the texts of the entities from row `first` on."""

    @abstractmethod
    def nearest_texts(self, k: int) -> TextKNN:
        """Return the index of the k nearest texts of each entity."""

    @abstractmethod
    def relation_name(self, relation: int) -> str:
        """Return the name of a relation, or the beginning of its text."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Return the frozen encoder's features of any texts (n,): (n, hidden)."""

    def answer_words(self, labels: IntArray) -> list[str]:
        """Return the words of relations that name the answers of labels (n,): the last for tails, the first for heads.

        The name of a relation often begins with the type of its heads and ends with the type of its tails.
        """
        words = [re.findall(r"\w+", self.relation_name(label % self.relations)) for label in labels.tolist()]
        inverse = (labels >= self.relations).tolist()
        ends = (
            some[:ANSWER_WORDS] if first else some[-ANSWER_WORDS:] for some, first in zip(words, inverse, strict=True)
        )
        return [" ".join(some) for some in ends]

    @abstractmethod
    def subgraph(self, centres: IntArray) -> LocalSubgraph:
        """Return a graph with all edges of the centres (n,)."""

    def counted(self, key: Hashable, count: Callable[[], Any]) -> Any:
        """Return the result of `count`, which is called only once for each key."""
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
        """Sample the ego-graphs of centres (n,).

        Args:
            config: the numbers of neighbours.
            centres: the entities at the centres.
            hidden: the edges to hide.
            key: (seed, epoch, step) of the random numbers.
            streams: the random stream of each centre; by default the centre itself, so that a sample does not depend
                on the batch.
            training: whether to use the number of neighbours for training.
        """
        limit = config.num_neighbours if training else config.num_neighbours_at_evaluation
        if limit == 0:
            return EgoGraphs(np.zeros(len(centres) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        streams = centres.astype(np.int64) if streams is None else streams
        graph = self.subgraph(centres)
        assert hidden is None or graph.entities is None, "hidden edges have the rows of the whole graph"
        egos = sample(graph.neighbours, graph.inside(centres), limit, key, hidden, streams)
        return graph.outside_ego_graphs(egos)


class GraphContext(VisibleGraph):
    """The texts and visible edges of a graph.

    Args:
        texts: the texts as input of the model.
        neighbours: the visible edges.
        known: the same edges as answers; by default built from the neighbours on first use.
        base: of a view, the graph that it extends.
        added: of a view, the triples that it adds.
        interactive: whether only few entities will be queried, so that nothing is precomputed for all of them.
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
        """Build a context with the edges of triples (n, 3)."""
        return cls(texts, Neighbours.of(triples, texts.entities, texts.relations, directions))

    @cached_property
    def known(self) -> KnownAnswers:
        if self._known is not None:
            return self._known
        return KnownAnswers.of(self.neighbours.triples(), self.entities, self.relations)

    def mentions(self, words: int | None) -> Mentions:
        return self.texts.mentions(words)

    @property
    def same_names(self) -> SameNames:
        return self.texts.same_names

    @cached_property
    def fingerprints(self) -> Int64Array:
        return relation_fingerprints(self.texts, np.arange(self.relations))

    def entity_texts(self, first: int = 0) -> list[str]:
        assert self.texts.vocabulary is not None
        return self.texts.vocabulary.texts.slice(first, self.entities)

    def nearest_texts(self, k: int) -> TextKNN:
        return self.texts.nearest_texts(k)

    def relation_name(self, relation: int) -> str:
        assert self.texts.relation_vocabulary is not None
        return self.texts.relation_vocabulary.full_name(relation)

    def encode(self, texts: Sequence[str]) -> Float32Array:
        assert self.texts.features is not None
        return self.texts.features.encode_texts(texts)

    def subgraph(self, centres: IntArray) -> LocalSubgraph:
        return LocalSubgraph(self.neighbours)


class ExtendedContext(VisibleGraph):
    """A graph with the entities, relations and triples of a request.

    Args:
        base: the graph.
        triples: triples of the request, (n, 3), in rows of this context.
        new_texts: texts of the new entities.
        features: function that returns the frozen encoder's features of these texts, (new entities, hidden).
        new_relations: texts of the new relations.
        new_fingerprints: fingerprints of these texts.
    """

    base: GraphContext

    def __init__(
        self,
        base: GraphContext,
        triples: Triples,
        new_texts: Sequence[str],
        features: Callable[[], Float32Array],
        new_relations: Sequence[str],
        new_fingerprints: Int64Array,
    ):
        self.base, self.triples, self.new_texts, self.features = base, triples, new_texts, features
        self.new_relations = new_relations
        self.entities, self.relations = base.entities + len(new_texts), base.relations + len(new_fingerprints)
        self.added, self.new_fingerprints = new_triples(base.known, triples), new_fingerprints
        self.memo = {}

    @cached_property
    def edges(self) -> EdgeList:
        """The edges of the request."""
        return EdgeList.of(self.triples, self.relations, self.base.neighbours.directions)

    @cached_property
    def known(self) -> ExtendedAnswers:
        return ExtendedAnswers.of(self.base.known, self.triples, self.entities, self.relations)

    @cached_property
    def fingerprints(self) -> Int64Array:
        return np.concatenate([self.base.fingerprints, self.new_fingerprints])

    def mentions(self, words: int | None) -> Mentions:
        if not self.new_texts:
            return self.base.mentions(words)

        def extended() -> Mentions:
            return self.base.mentions(words).extended(self.new_texts, first_words(pl.Series(self.new_texts)))

        found: Mentions = self.counted(("mentions", words), extended)
        return found

    @property
    def same_names(self) -> SameNames:
        def extended() -> SameNames:
            return self.base.same_names.extended(first_words(pl.Series(self.new_texts, dtype=pl.String)))

        found: SameNames = self.counted("same_names", extended) if self.new_texts else self.base.same_names
        return found

    def entity_texts(self, first: int = 0) -> list[str]:
        new = max(first - self.base.entities, 0)
        return [*self.base.entity_texts(first), *self.new_texts[new:]]

    def nearest_texts(self, k: int) -> TextKNN:
        found = self.base.nearest_texts(k)
        return found.extended(self.features()) if self.new_texts else found

    def relation_name(self, relation: int) -> str:
        new = relation - self.base.relations
        return beginning(self.new_relations[new]) if new >= 0 else self.base.relation_name(relation)

    def encode(self, texts: Sequence[str]) -> Float32Array:
        return self.base.encode(texts)

    def subgraph(self, centres: IntArray) -> LocalSubgraph:
        return LocalSubgraph.of(self.base.neighbours, self.edges, self.relations, centres.astype(np.int64))

    def changed_centres(self, config: EgoConfig) -> Int64Array:
        """Return the entities whose ego-graphs may differ from the base graph, including new ones, ascending."""
        return changed_centres(self.base.neighbours, self.edges, self.entities, config)


def changed_centres(base: Neighbours, added: EdgeList, entities: int, config: EgoConfig) -> Int64Array:
    """Return the entities whose ego-graphs may change when edges are added, including new ones, ascending."""
    new = np.arange(len(base), entities)
    if config.num_neighbours_at_evaluation == 0:
        return new
    return np.unique(np.concatenate([added.centres, new]))


def relation_fingerprints(texts: GraphTexts, relations: IntArray) -> Int64Array:
    """Return hashes of the tokens of relations' texts, (n,), never 0. They are the same in any graph."""
    rows, ragged = texts.entities + relations.astype(np.int64), texts.tokens.ragged
    lengths = ragged.lengths(rows)
    tokens = np.split(ragged.flat(rows, lengths).astype("<i8"), np.cumsum(lengths)[:-1]) if len(rows) else []
    hashes = [int.from_bytes(hashlib.blake2b(part.tobytes(), digest_size=8).digest(), "big") >> 1 for part in tokens]
    return np.maximum(np.array(hashes, np.int64), 1)
