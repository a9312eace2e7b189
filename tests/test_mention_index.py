"""Mentions of new entities, found by an index of words, are those that a look at every phrase of every text finds."""

from __future__ import annotations

import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.kg.graph import Vocabulary
from fnftg.kg.strings import Strings
from fnftg.text import mentions
from fnftg.text.mentions import Mentions, NamePhrases, Words

TEXT = st.lists(st.sampled_from(["a", "B", "b", "c-d", "ß", "e.", "7"]), max_size=9).map(" ".join)
NAME = st.lists(st.sampled_from(["a", "b", "c", "C d", "ß", "7", "x"]), max_size=6).map(" ".join)
ENTITIES = st.lists(st.tuples(NAME, TEXT), max_size=8)


def series(strings: list[str]) -> pl.Series:
    return pl.Series(strings, dtype=pl.String)


def scanned(names: NamePhrases, texts: Words) -> tuple[np.ndarray, np.ndarray]:
    """Every phrase of every text, one after the other."""
    rows, places, numbered = [], [], {phrase: place for place, phrase in enumerate(names.phrases.tolist())}
    for length in range(1, mentions.LONGEST + 1):
        for row, phrase in zip(*(part.tolist() for part in texts.phrases(length)), strict=True):
            if phrase in numbered:
                rows.append(row)
                places.append(numbered[phrase])
    found = sorted(set(zip(rows, places, strict=True)))
    return np.array([row for row, _ in found], np.int64), np.array([place for _, place in found], np.int64)


@settings(max_examples=300, deadline=None)
@given(st.lists(NAME, max_size=6), st.lists(TEXT, max_size=8))
def test_the_index_finds_the_names_that_a_look_at_every_phrase_finds(names: list[str], texts: list[str]) -> None:
    phrases, words = NamePhrases.of(series(names), 3), Words.of(series(texts))
    expected = scanned(phrases, words)
    for found in (phrases.looked_up_in(words), phrases.found_in(words)):
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@settings(max_examples=100, deadline=None)
@given(ENTITIES.filter(len), ENTITIES, ENTITIES, st.integers(0, 6))
def test_new_entities_have_the_same_mentions_with_and_without_the_index(
    base: list[tuple[str, str]], more: list[tuple[str, str]], most: list[tuple[str, str]], words: int
) -> None:
    def extended() -> Mentions:
        ids = Strings.of([str(row) for row in range(len(base))])
        names, texts = zip(*base, strict=True)
        found = Mentions.of(Vocabulary(ids, Strings.of(texts), Strings.of(names)), words)
        for part in (more, most):
            found = found.extended([text for _, text in part], series([name for name, _ in part]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        by_index = extended()
        patch.setattr(NamePhrases, "looked_up_in", NamePhrases.found_in)
        for one, other in zip(by_index.parts, extended().parts, strict=True):
            assert one.keys.tolist() == other.keys.tolist() and one.kinds.tolist() == other.kinds.tolist()


def test_a_name_is_found_in_a_text_of_another_unicode_form() -> None:
    names, texts = ["Málaga", "Zürich"], ["x", unicodedata.normalize("NFD", "near Málaga")]
    found = Mentions.of(Vocabulary(Strings.of(["0", "1"]), Strings.of(texts), Strings.of(names)), 0)
    assert found.between(np.array([1]), np.array([0])).tolist() == [mentions.NAMES]
