"""What readers pass to the builder: blocks of triples or texts, all as strings, and a report."""

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
    """Some triples of one split."""

    split: str
    frame: pl.DataFrame  # head, relation, tail: no nulls
    place: str  # the file and its first line here, for messages


@dataclass(frozen=True)
class TextBlock:
    """Some texts of entities or relations; of several texts for one id the first counts."""

    kind: Literal["entities", "relations"]
    frame: pl.DataFrame  # id (no nulls), text and name (null or empty where there is none)
    place: str


Block = TripleBlock | TextBlock


@dataclass
class Report:
    """What an import found, and what it left out and why."""

    source: str
    format: str
    entities: int = 0
    relations: int = 0
    triples: dict[str, int] = field(default_factory=dict)
    self_loops: int = 0  # kept
    filled_texts: dict[str, int] = field(default_factory=dict)  # entities, relations: text made from the id
    left_out: Counter[str] = field(default_factory=Counter)  # reason: how many

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
    """A split's name as we write it: dev, valid and validation are all val."""
    name = SPLIT_SYNONYMS.get(name.lower(), name)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise FnftgError(
            f"{place}: {shortened(name)} cannot name a split; use at most 64 letters, digits, hyphens and underscores."
        )
    return name


def split_rank(split: str) -> tuple[int, int, str]:
    """The order in which splits become visible: train, val, test, each after its support, then others by name."""
    base = split.removesuffix("-support")
    return {"train": 0, "val": 1, "test": 2}.get(base, 3), int(base == split), split
