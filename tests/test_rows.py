"""The compiled loops of an import agree with the plain way of doing the same."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.kg.graph_builder import lines_of
from fnftg.kg.row_table import HashCollisionError, RowTable, byte_order, untidy, without_repeats
from fnftg.kg.strings import Strings

PREFIXES = ("", "a", "http://e.org/", "http://e.org/entity/", "http://e.org/entity/é")
strings = st.builds(
    str.__add__, st.sampled_from(PREFIXES), st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
)


@settings(deadline=None)
@given(st.lists(strings.filter(lambda string: "\n" not in string), unique=True, min_size=1))
def test_rows_are_sorted_by_bytes(ids: list[str]) -> None:
    assert [ids[row] for row in byte_order(Strings.of(ids))] == sorted(ids, key=str.encode)


def test_keys_get_rows_in_the_order_of_first_appearance_also_when_the_table_grows() -> None:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 50_000, 300_000).astype(np.uint64) << np.uint64(7)
    table, expected = RowTable(), {key: row for row, key in enumerate(dict.fromkeys(keys.tolist()))}
    for part in np.array_split(keys, 3):
        before = table.size
        rows, first = table.add(part, ~part)
        assert rows.tolist() == [expected[key] for key in part.tolist()]
        assert rows[first].tolist() == [*range(before, table.size)]
    absent = np.array([3], np.uint64)
    assert table.find(np.append(keys[-1:], absent), np.append(~keys[-1:], absent)).tolist() == [expected[keys[-1]], -1]


def test_one_key_with_two_checks_is_a_collision() -> None:
    table, key = RowTable(), np.array([7], np.uint64)
    table.add(key, key << np.uint64(40))
    for method in (table.add, table.find):
        with pytest.raises(HashCollisionError):
            method(key, key << np.uint64(50))


def test_repeated_triples_go_and_the_first_stay_in_order() -> None:
    triples = np.random.default_rng(0).integers(0, 12, (3_000, 3)).astype(np.int32)
    expected = [*dict.fromkeys(map(tuple, triples.tolist()))]
    assert [tuple(triple) for triple in without_repeats(triples).tolist()] == expected


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.none(), min_size=1))
def test_every_text_with_odd_white_space_is_found(texts: list[str | None]) -> None:
    found = untidy(*lines_of(pl.Series(texts, dtype=pl.String)))
    for text, odd in zip(texts, found, strict=True):
        assert odd or re.sub(r"[^\S\x1c-\x1f]+", " ", text or "").strip(" ") == (text or "")
