"""The data of a graph: entities and relations with their texts, and triples in named splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array
from fnftg.errors import FnftgError, shortened
from fnftg.kg.strings import ChainedStrings, StringList, Strings, search

if TYPE_CHECKING:
    from typing_extensions import Self

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
    new_rows: Mapping[str, int] = field(default_factory=dict)  # of a view: the rows that it adds, by id

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, wanted: str) -> int | None:
        """The row of an id, or None."""
        if wanted in self.new_rows:
            return self.new_rows[wanted]
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
        new_rows: dict[str, int] = {}
        for row, id_ in enumerate(ids, start=len(self)):
            if id_ in new_rows or self.find(id_) is not None:
                raise FnftgError(f"The graph has {shortened(id_)} among its {kind} already: choose another id.")
            new_rows[id_] = row
        return Vocabulary(
            ids=ChainedStrings(self.ids, one_line_strings(ids, f"an id of the new {kind}")),
            texts=ChainedStrings(self.texts, one_line_strings(texts, f"a text of the new {kind}")),
            names=None if self.names is None else ChainedStrings(self.names, Strings.of([""] * len(ids))),
            base=self,
            new_rows=new_rows,
        )


@dataclass(frozen=True)
class GraphData:
    """What a graph is made of. `KnowledgeGraph` adds how it is opened, made, saved and compared."""

    entities: Vocabulary
    relations: Vocabulary
    splits: Mapping[str, Triples]
    path: Path | None = None  # the store's folder
    report: Mapping[str, Any] = field(default_factory=dict)  # what its import counted and left out

    def __post_init__(self) -> None:
        for triples in self.splits.values():
            triples.flags.writeable = False
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))

    def triples(self, split: str) -> Triples:
        """The triples of a split; none where the graph lacks one of the standard splits."""
        if split in self.splits or split in STANDARD_SPLITS:
            return self.splits.get(split, NO_TRIPLES)
        raise FnftgError(f"The graph has no split {shortened(split)}: it has {', '.join(self.splits)}.")

    def all_triples(self) -> Triples:
        """The triples of every split, one after the other."""
        return np.concatenate([NO_TRIPLES, *self.splits.values()])

    def with_splits(self, splits: Mapping[str, Triples], recipe: Mapping[str, Any]) -> Self:
        """The same entities and relations with their triples split anew; the report keeps how that was done."""
        recipes = [*self.report.get("recipes", []), dict(recipe)]
        return replace(self, splits=splits, path=None, report={**self.report, "recipes": recipes})

    def extended(
        self,
        entities: Mapping[str, str] | None = None,
        relations: Mapping[str, str] | None = None,
        triples: Iterable[tuple[str, str, str]] = (),
        split: str = "added",
    ) -> Self:
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


AnyGraph = TypeVar("AnyGraph", bound=GraphData)


def short_names(vocabulary: Vocabulary, start: int, stop: int) -> pl.Series:
    """`Vocabulary.name` for a range of rows."""
    texts = pl.Series(vocabulary.texts.slice(start, stop), dtype=pl.String)
    if vocabulary.names is None:
        return first_words(texts)
    names = pl.Series(vocabulary.names.slice(start, stop), dtype=pl.String)
    return pl.select(pl.when(names != "").then(names).otherwise(first_words(texts))).to_series()


def first_words(texts: pl.Series) -> pl.Series:
    """The start of each text, used as the name where there is none."""
    return texts.str.split(" -- ").list.first().str.split(", ").list.first().str.slice(0, 80)


def one_line_strings(strings: Sequence[str], what: str) -> Strings:
    """Strings of a view; each must be one line that is not empty."""
    for string in strings:
        if not string.strip() or any(mark in string for mark in "\n\r\t"):
            raise FnftgError(f"{shortened(string)} cannot be {what}: it must be one line that is not empty.")
    return Strings.of(strings)
