"""`KnowledgeGraph`: entities and relations with texts, and triples in splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fnftg.arrays import Int32Array
from fnftg.kg.graph_data import (
    NO_TRIPLES,
    STANDARD_SPLITS,
    GraphData,
    Triples,
    Vocabulary,
    beginning,
    first_words,
    short_names,
)
from fnftg.kg.graph_equality import same_graph
from fnftg.kg.store import read_store, write_store

if TYPE_CHECKING:
    from pykeen.triples import TriplesFactory

__all__ = [
    "NO_TRIPLES",
    "STANDARD_SPLITS",
    "KnowledgeGraph",
    "Triples",
    "Vocabulary",
    "beginning",
    "first_words",
    "short_names",
]


@dataclass(frozen=True)
class KnowledgeGraph(GraphData):
    """An immutable knowledge graph with texts, usually memory-mapped from a store.

    Triples are arrays of dense integers, the rows of the vocabularies `entities` and `relations`.
    """

    @staticmethod
    def open(path: str | os.PathLike[str], verify: bool = False) -> KnowledgeGraph:
        """Map a store into memory.

        Args:
            path: the store's folder.
            verify: compare all files with their checksums first, which reads them completely.

        Raises:
            FnftgError: if the folder is not a store, or the store is damaged.
        """
        return KnowledgeGraph(**vars(read_store(Path(path), verify)))

    @staticmethod
    def from_triples(
        splits: Mapping[str, Iterable[tuple[str, str, str]]],
        entity_texts: Mapping[str, str] | None = None,
        relation_texts: Mapping[str, str] | None = None,
    ) -> KnowledgeGraph:
        """Build a graph in memory.

        Args:
            splits: (head, relation, tail) ids of each split.
            entity_texts: text by entity id; the text of other entities is derived from their ids.
            relation_texts: text by relation id.
        """
        from fnftg.kg.graph_builder import build_from_triples  # loads numba, which opening a store does not need

        return KnowledgeGraph(**vars(build_from_triples(splits, entity_texts or {}, relation_texts or {})))

    @staticmethod
    def from_pykeen(
        training: TriplesFactory,
        validation: TriplesFactory | None = None,
        testing: TriplesFactory | None = None,
        entity_texts: Mapping[str, str] | None = None,
        relation_texts: Mapping[str, str] | None = None,
    ) -> KnowledgeGraph:
        """Build a graph in memory from PyKEEN triples factories."""
        factories = {"train": training, "val": validation, "test": testing}
        triples = {split: factory.triples for split, factory in factories.items() if factory is not None}
        return KnowledgeGraph.from_triples(triples, entity_texts, relation_texts)

    def to_pykeen(self) -> dict[str, TriplesFactory]:
        """Return one PyKEEN `TriplesFactory` per split. All use the ids of this graph."""
        import torch
        from pykeen.triples import TriplesFactory

        entities = {id_: row for row, id_ in enumerate(self.entities.ids.slice(0, len(self.entities)))}
        relations = {id_: row for row, id_ in enumerate(self.relations.ids.slice(0, len(self.relations)))}
        return {
            split: TriplesFactory(torch.from_numpy(triples.astype(np.int64)), entities, relations)
            for split, triples in self.splits.items()
        }

    def save(self, path: str | os.PathLike[str], force: bool = False) -> KnowledgeGraph:
        """Write the graph to a store and open the store. `force` replaces an existing store."""
        write_store(self, Path(path), force)
        return KnowledgeGraph.open(path)

    def split_inductive(
        self,
        val: float = 0.1,
        test: float = 0.1,
        seed: int = 0,
        min_edges: int = 100,
        types: Int32Array | None = None,
    ) -> KnowledgeGraph:
        """Split the triples as in BLP, so that train has no triples of the entities held out for val and test.

        Args:
            val: share of the entities held out for val.
            test: share of the entities held out for test; these are drawn first.
            seed: random seed.
            min_edges: number of triples that each relation keeps in train.
            types: type of each entity (N,); the splits keep the proportions of the types.

        Examples:
            >>> graph = fnftg.KnowledgeGraph.open("people").split_inductive(val=0.05, test=0.1)
            >>> graph.save("people-ind")
        """
        from fnftg.kg.splits.inductive import inductive_split  # loads numba, which opening a store does not need

        return inductive_split(self, val, test, seed, min_edges, types)

    def split_random(self, val: float = 0.05, test: float = 0.05, seed: int = 0) -> KnowledgeGraph:
        """Hold out triples at random, whatever their entities: what `fnftg evaluate --task discovery` looks for.

        Args:
            val: share of the triples for val.
            test: share of the triples for test.
            seed: random seed.
        """
        from fnftg.kg.splits.random_triples import random_split  # loads numba, which opening a store does not need

        return random_split(self, val, test, seed)

    def equals(self, other: KnowledgeGraph) -> bool:
        """Return whether both graphs have the same ids, names, texts and triples per split, in any order."""
        return same_graph(self, other)
