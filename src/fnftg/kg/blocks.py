"""Blocks of triples or texts as strings, which readers pass to the graph builder, and the import report."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from fnftg.errors import FnftgError, shortened

SPLIT_SYNONYMS = {"training": "train", "dev": "val", "valid": "val", "validation": "val", "testing": "test"}


@dataclass(frozen=True)
class TripleBlock:
    """Triples of one split."""

    split: str
    frame: pl.DataFrame  # head, relation, tail: no nulls
    place: str  # the file and the first line of the block, for messages


@dataclass(frozen=True)
class TextBlock:
    """Texts of entities or relations. If an id has several texts, the first is used."""

    kind: Literal["entities", "relations"]
    frame: pl.DataFrame  # id (no nulls), text and name (null or empty if missing)
    place: str


Block = TripleBlock | TextBlock


@dataclass
class Report:
    """Counts of what an import read and left out, with reasons."""

    source: str
    format: str
    entities: int = 0
    relations: int = 0
    triples: dict[str, int] = field(default_factory=dict)
    self_loops: int = 0  # kept
    filled_texts: dict[str, int] = field(default_factory=dict)  # entities, relations: texts derived from the id
    left_out: Counter[str] = field(default_factory=Counter)  # reason: count

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "format": self.format,
            "entities": self.entities,
            "relations": self.relations,
            "triples": self.triples,
            "self_loops": self.self_loops,
            "filled_texts": self.filled_texts,
            "left_out": dict(self.left_out),
        }


def split_name(name: str, place: str) -> str:
    """Normalise the name of a split: dev, valid and validation become val.

    Raises:
        FnftgError: if the name has other characters than letters, digits, hyphens and underscores.
    """
    name = SPLIT_SYNONYMS.get(name.lower(), name)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise FnftgError(
            f"{place}: {shortened(name)} is not a valid split name; use at most 64 letters, digits, hyphens and "
            "underscores."
        )
    return name


def split_rank(split: str) -> tuple[int, str, bool]:
    """Return the sort key of a split: train, val and test, then others by name, each after its support split."""
    base = split.removesuffix("-support")
    return {"train": 0, "val": 1, "test": 2}.get(base, 3), base, base == split
