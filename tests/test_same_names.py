"""Entities with the same name."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fnftg.text import same_names
from fnftg.text.same_names import SameNames

NAMES = ["Café Noir", "river", "River", "go on", "caf\u0065\u0301 noir", "go", "river"]


def pairs(names: SameNames, entities: list[int]) -> set[tuple[int, int]]:
    place, found = names.of_entities(np.array(entities))
    return {(entities[one], other) for one, other in zip(place.tolist(), found.tolist(), strict=True)}


def test_names_are_compared_without_case_and_in_one_unicode_form() -> None:
    names = SameNames.of(pl.Series(NAMES))
    expected = {(0, 4), (4, 0), (1, 2), (1, 6), (2, 1), (2, 6), (6, 1), (6, 2)}
    assert pairs(names, list(range(len(NAMES)))) == expected
    assert pairs(names, [3, 6, 5]) == {(6, 1), (6, 2)}


def test_added_names_count_as_if_they_had_been_there_from_the_start() -> None:
    whole, parts = SameNames.of(pl.Series(NAMES)), SameNames.of(pl.Series(NAMES[:2])).extended(pl.Series(NAMES[2:]))
    assert pairs(parts, list(range(len(NAMES)))) == pairs(whole, list(range(len(NAMES))))


def test_names_that_very_many_entities_share_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_names, "COMMON", 2)
    assert pairs(SameNames.of(pl.Series(NAMES)), list(range(len(NAMES)))) == {(0, 4), (4, 0)}
