"""`KnowledgeGraph`: a graph of texts and triples, and how it is opened, made, saved and compared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fnftg.arrays import Int32Array
from fnftg.kg.graph_data import NO_TRIPLES, STANDARD_SPLITS, GraphData, Triples, Vocabulary, first_words, short_names
from fnftg.kg.graph_equality import same_graph
from fnftg.kg.store import read_store, write_store

if TYPE_CHECKING:
    from pykeen.triples import TriplesFactory

__all__ = ["NO_TRIPLES", "STANDARD_SPLITS", "KnowledgeGraph", "Triples", "Vocabulary", "first_words", "short_names"]


@dataclass(frozen=True)
class KnowledgeGraph(GraphData):
    """A text-attributed knowledge graph: immutable, ids dense integers, usually memory-mapped from a store."""

    @staticmethod
    def open(path: str | os.PathLike[str], verify: bool = False) -> KnowledgeGraph:
        """Maps a store into memory; reads no data unless `verify` asks for the checksums to be compared."""
        return KnowledgeGraph(**vars(read_store(Path(path), verify)))

    @staticmethod
    def from_triples(
        splits: Mapping[str, Iterable[tuple[str, str, str]]],
        entity_texts: Mapping[str, str] | None = None,
        relation_texts: Mapping[str, str] | None = None,
    ) -> KnowledgeGraph:
        """A graph in memory from (head, relation, tail) strings per split, and the texts of ids that have one."""
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
        """A graph in memory from PyKEEN's labelled triples."""
        factories = {"train": training, "val": validation, "test": testing}
        triples = {split: factory.triples for split, factory in factories.items() if factory is not None}
        return KnowledgeGraph.from_triples(triples, entity_texts, relation_texts)

    def to_pykeen(self) -> dict[str, TriplesFactory]:
        """One PyKEEN `TriplesFactory` a split, all over the ids of this graph."""
        import torch
        from pykeen.triples import TriplesFactory

        entities = {id_: row for row, id_ in enumerate(self.entities.ids.slice(0, len(self.entities)))}
        relations = {id_: row for row, id_ in enumerate(self.relations.ids.slice(0, len(self.relations)))}
        return {
            split: TriplesFactory(torch.from_numpy(triples.astype(np.int64)), entities, relations)
            for split, triples in self.splits.items()
        }

    def save(self, path: str | os.PathLike[str], force: bool = False) -> KnowledgeGraph:
        """Writes the graph as a store and opens it from there."""
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
        """The graph split as in BLP: train has no triple of an entity of val or test.

        Args:
            val: share of the entities that are new in val.
            test: share of the entities that are new in test; they are drawn first.
            seed: random seed of the draw.
            min_edges: triples that each relation keeps in train.
            types: the type of each entity (N,); the splits keep the proportions of the types.

        Examples:
            >>> graph = fnftg.KnowledgeGraph.open("people").split_inductive(val=0.05, test=0.1)
            >>> graph.save("people-ind")
        """
        from fnftg.kg.splits.inductive import inductive_split  # loads numba, which opening a store does not need

        return inductive_split(self, val, test, seed, min_edges, types)

    def equals(self, other: KnowledgeGraph) -> bool:
        """Whether both hold the same ids, names, texts and triples per split, whatever their order."""
        return same_graph(self, other)
