"""`KnowledgeGraph`: entities and relations with their texts, and triples in named splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array
from fnftg.errors import FnftgError, shortened
from fnftg.kg.strings import ChainedStrings, StringList, Strings, search

if TYPE_CHECKING:
    from pykeen.triples import TriplesFactory

Triples = Int32Array  # (n, 3): head, relation, tail
STANDARD_SPLITS = ("train", "val", "test")
NO_TRIPLES: Triples = np.empty((0, 3), np.int32)
NO_TRIPLES.flags.writeable = False


@dataclass(frozen=True)
class Vocabulary:
    """The entities or the relations: row i of each list belongs to the dense id i."""

    ids: StringList  # as in the source: unique, one line each
    texts: StringList  # what the text encoder reads
    names: StringList | None = None  # short, for people; None where the source has none
    order: Int32Array | None = None  # rows sorted by id, for look-up without an index in memory
    base: Vocabulary | None = None  # of a view: what it adds to
    added: Mapping[str, int] = field(default_factory=dict)  # of a view: the rows that it adds, by id

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, wanted: str) -> int | None:
        """The row of an id, or None."""
        if wanted in self.added:
            return self.added[wanted]
        if self.base is not None:
            return self.base.find(wanted)
        assert isinstance(self.ids, Strings) and self.order is not None
        return search(self.ids, self.order, wanted)

    def name(self, row: int) -> str:
        """A short name for people: the source's own, else the beginning of the text."""
        name = self.names[row] if self.names is not None else ""
        return name or self.texts[row].split(" -- ")[0].split(", ")[0][:80]

    def extended(self, ids: Sequence[str], texts: Sequence[str], kind: str) -> Vocabulary:
        """A view with more rows; nothing is copied."""
        if len(ids) != len(texts):
            raise FnftgError(f"{len(ids)} new {kind} but {len(texts)} texts: each needs exactly one.")
        added = {}
        for row, id_ in enumerate(ids, start=len(self)):
            if id_ in added or self.find(id_) is not None:
                raise FnftgError(f"The graph has {shortened(id_)} among its {kind} already: choose another id.")
            added[id_] = row
        return Vocabulary(
            ids=ChainedStrings(self.ids, one_line_strings(ids, f"an id of the new {kind}")),
            texts=ChainedStrings(self.texts, one_line_strings(texts, f"a text of the new {kind}")),
            names=None if self.names is None else ChainedStrings(self.names, Strings.of([""] * len(ids))),
            base=self,
            added=added,
        )


@dataclass(frozen=True)
class KnowledgeGraph:
    """A text-attributed knowledge graph: immutable, ids dense integers, usually memory-mapped from a store."""

    entities: Vocabulary
    relations: Vocabulary
    splits: Mapping[str, Triples]
    path: Path | None = None  # the store's folder
    report: Mapping[str, Any] = field(default_factory=dict)  # what its import counted and left out

    def __post_init__(self) -> None:
        for triples in self.splits.values():
            triples.flags.writeable = False
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))

    @staticmethod
    def open(path: str | os.PathLike[str], verify: bool = False) -> KnowledgeGraph:
        """Maps a store into memory; reads no data unless `verify` asks for the checksums to be compared."""
        from fnftg.kg.store import open_store

        return open_store(Path(path), verify)

    @staticmethod
    def from_triples(
        splits: Mapping[str, Iterable[tuple[str, str, str]]],
        entity_texts: Mapping[str, str] | None = None,
        relation_texts: Mapping[str, str] | None = None,
    ) -> KnowledgeGraph:
        """A graph in memory from (head, relation, tail) strings per split, and the texts of ids that have one."""
        from fnftg.kg.importing import graph_from_triples

        return graph_from_triples(splits, entity_texts or {}, relation_texts or {})

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
        from fnftg.kg.store import save_store

        return save_store(self, Path(path), force)

    def triples(self, split: str) -> Triples:
        """The triples of a split; none where the graph lacks one of the standard splits."""
        if split in self.splits or split in STANDARD_SPLITS:
            return self.splits.get(split, NO_TRIPLES)
        raise FnftgError(f"The graph has no split {shortened(split)}: it has {', '.join(self.splits)}.")

    def all_triples(self) -> Triples:
        """The triples of every split, one after the other."""
        return np.concatenate([NO_TRIPLES, *self.splits.values()])

    def with_splits(self, splits: Mapping[str, Triples], recipe: Mapping[str, Any]) -> KnowledgeGraph:
        """The same entities and relations with their triples split anew; the report keeps how that was done."""
        recipes = [*self.report.get("recipes", []), dict(recipe)]
        return replace(self, splits=splits, path=None, report={**self.report, "recipes": recipes})

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
        from fnftg.kg.splits.inductive import inductive_splits

        counts = len(self.entities), len(self.relations)
        splits, recipe = inductive_splits(self.all_triples(), *counts, val, test, seed, min_edges, types)
        return self.with_splits(splits, recipe)

    def extended(
        self,
        entities: Mapping[str, str] | None = None,
        relations: Mapping[str, str] | None = None,
        triples: Iterable[tuple[str, str, str]] = (),
        split: str = "added",
    ) -> KnowledgeGraph:
        """A view with new entities and relations (id: text) and triples between old and new ones.

        Only a split that exists already is copied; the rest of the graph is shared.
        """
        entities, relations = entities or {}, relations or {}
        view = replace(
            self,
            entities=self.entities.extended(list(entities), list(entities.values()), "entities"),
            relations=self.relations.extended(list(relations), list(relations.values()), "relations"),
            path=None,
        )
        rows = [view.rows(*triple) for triple in triples]
        if not rows:
            return view
        new = np.array(rows, np.int32).reshape(-1, 3)
        return replace(view, splits={**self.splits, split: np.concatenate([self.splits.get(split, NO_TRIPLES), new])})

    def rows(self, head: str, relation: str, tail: str) -> tuple[int, int, int]:
        """A triple of ids as dense integers."""
        wanted = ((self.entities, head), (self.relations, relation), (self.entities, tail))
        found = [vocabulary.find(id_) for vocabulary, id_ in wanted]
        for (vocabulary, id_), row in zip(wanted, found, strict=True):
            if row is None:
                kind = "relation" if vocabulary is self.relations else "entity"
                raise FnftgError(f"The graph has no {kind} {shortened(id_)}: add it with its text first.")
        return found[0], found[1], found[2]  # type: ignore[return-value]

    def equals(self, other: KnowledgeGraph) -> bool:
        """Whether both hold the same ids, names, texts and triples per split, whatever their order."""
        from fnftg.kg.comparing import same_graph

        return same_graph(self, other)


def short_names(vocabulary: Vocabulary, start: int, stop: int) -> pl.Series:
    """What `Vocabulary.name` says, for many rows."""
    texts = pl.Series(vocabulary.texts.slice(start, stop), dtype=pl.String)
    if vocabulary.names is None:
        return first_words(texts)
    names = pl.Series(vocabulary.names.slice(start, stop), dtype=pl.String)
    return pl.select(pl.when(names != "").then(names).otherwise(first_words(texts))).to_series()


def first_words(texts: pl.Series) -> pl.Series:
    """What stands for a name where there is none: the beginning of the text."""
    return texts.str.split(" -- ").list.first().str.split(", ").list.first().str.slice(0, 80)


def one_line_strings(strings: Sequence[str], what: str) -> Strings:
    """Strings for a view, refused where empty or spread over lines."""
    for string in strings:
        if not string.strip() or any(mark in string for mark in "\n\r\t"):
            raise FnftgError(f"{shortened(string)} cannot be {what}: it must be one line that is not empty.")
    return Strings.of(strings)
