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
from fnftg.kg.blocks import split_rank
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
    texts: StringList  # input of the text encoder
    names: StringList | None = None  # short names for display; None if the source has none
    order: Int32Array | None = None  # rows sorted by id, for binary search
    base: Vocabulary | None = None  # of a view: the vocabulary that it extends
    new_rows: Mapping[str, int] = field(default_factory=dict)  # of a view: the added rows, by id

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, wanted: str) -> int | None:
        """Return the row of an id, or None."""
        if wanted in self.new_rows:
            return self.new_rows[wanted]
        if self.base is not None:
            return self.base.find(wanted)
        assert isinstance(self.ids, Strings) and self.order is not None
        return search(self.ids, self.order, wanted)

    def name(self, row: int) -> str:
        """Return a short name for display: the name in the source, or else the beginning of the text."""
        name = self.names[row] if self.names is not None else ""
        return name or beginning(self.texts[row])[:80]

    def full_name(self, row: int) -> str:
        """Return the name in the source, or else the beginning of the text, however long it is."""
        name = self.names[row] if self.names is not None else ""
        return name or beginning(self.texts[row])

    def extended(self, ids: Sequence[str], texts: Sequence[str], kind: str) -> Vocabulary:
        """Return a view with more rows. Nothing is copied.

        Raises:
            FnftgError: if an id exists already, or an id or a text is not one non-empty line.
        """
        if len(ids) != len(texts):
            raise FnftgError(f"{len(ids)} new {kind} but {len(texts)} texts: give exactly one text for each.")
        new_rows: dict[str, int] = {}
        for row, id_ in enumerate(ids, start=len(self)):
            if id_ in new_rows or self.find(id_) is not None:
                raise FnftgError(f"{shortened(id_)} is already one of the graph's {kind}: choose another id.")
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
    """The content of a graph. `KnowledgeGraph` adds methods to open, build, save, split and compare graphs."""

    entities: Vocabulary
    relations: Vocabulary
    splits: Mapping[str, Triples]
    path: Path | None = None  # the store's folder
    report: Mapping[str, Any] = field(default_factory=dict)  # of the import: counts and what was left out

    def __post_init__(self) -> None:
        for triples in self.splits.values():
            triples.flags.writeable = False
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))

    def triples(self, split: str) -> Triples:
        """Return the triples of a split, (n, 3). Missing standard splits (train, val, test) are empty.

        Raises:
            FnftgError: if the graph has no other split of this name.
        """
        if split in self.splits or split in STANDARD_SPLITS:
            return self.splits.get(split, NO_TRIPLES)
        raise FnftgError(f"The graph has no split {shortened(split)}: it has {', '.join(self.splits)}.")

    def all_triples(self) -> Triples:
        """Return the triples of all splits, concatenated."""
        return np.concatenate([NO_TRIPLES, *self.splits.values()])

    def up_to(self, split: str) -> Self:
        """Return the graph of a split and the splits before it, in order, as if the later ones did not exist.

        Whatever chooses or fits anything uses `up_to("val")`, so that nothing is learned from test.
        """
        kept = [name for name in sorted(self.splits, key=split_rank) if split_rank(name) <= split_rank(split)]
        return replace(self, splits={name: self.splits[name] for name in kept}, path=None)

    def with_splits(self, splits: Mapping[str, Triples], recipe: Mapping[str, Any]) -> Self:
        """Return the graph with other splits. The recipe is added to the report."""
        recipes = [*self.report.get("recipes", []), dict(recipe)]
        return replace(self, splits=splits, path=None, report={**self.report, "recipes": recipes})

    def extended(
        self,
        entities: Mapping[str, str] | None = None,
        relations: Mapping[str, str] | None = None,
        triples: Iterable[tuple[str, str, str]] = (),
        split: str = "added",
    ) -> Self:
        """Return a view with additional entities, relations and triples.

        An existing split that gets triples is copied; everything else is shared.

        Args:
            entities: text by id of the new entities.
            relations: text by id of the new relations.
            triples: (head, relation, tail) ids, of old and new entities and relations.
            split: the split that gets the triples.
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
        """Return the rows of a triple of ids.

        Raises:
            FnftgError: if the graph has no such entity or relation.
        """
        wanted = ((self.entities, head), (self.relations, relation), (self.entities, tail))
        found = [vocabulary.find(id_) for vocabulary, id_ in wanted]
        for (vocabulary, id_), row in zip(wanted, found, strict=True):
            if row is None:
                kind = "relation" if vocabulary is self.relations else "entity"
                raise FnftgError(f"The graph has no {kind} {shortened(id_)}: add it with its text first.")
        return found[0], found[1], found[2]  # type: ignore[return-value]


AnyGraph = TypeVar("AnyGraph", bound=GraphData)


def short_names(vocabulary: Vocabulary, start: int, stop: int) -> pl.Series:
    """Return `Vocabulary.name` for a range of rows."""
    texts = pl.Series(vocabulary.texts.slice(start, stop), dtype=pl.String)
    if vocabulary.names is None:
        return first_words(texts)
    names = pl.Series(vocabulary.names.slice(start, stop), dtype=pl.String)
    return pl.select(pl.when(names != "").then(names).otherwise(first_words(texts))).to_series()


def beginning(text: str) -> str:
    """Return a text up to the first dash or comma, which is often a name."""
    return text.split(" -- ", maxsplit=1)[0].split(", ", maxsplit=1)[0]


def first_words(texts: pl.Series) -> pl.Series:
    """Return the beginning of each text, which serves as the name if there is none."""
    return texts.str.split(" -- ").list.first().str.split(", ").list.first().str.slice(0, 80)


def one_line_strings(strings: Sequence[str], what: str) -> Strings:
    """Return the strings of a view. Raises an `FnftgError` unless each is one non-empty line."""
    for string in strings:
        if not string.strip() or any(mark in string for mark in "\n\r\t"):
            raise FnftgError(f"{shortened(string)} cannot be {what}: it must be one non-empty line without tabs.")
    return Strings.of(strings)
