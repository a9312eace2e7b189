"""Mentions: whose names stand in whose texts.

A film's text names its director, a definition the thing that it defines: whom a text names, its entity is often linked
with. Names are looked for word by word, whatever their case, in the whole text behind the entity's own name. A name
that very many texts have is a common word, and one that very many entities share says little: neither counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from fnftg.arrays import BoolArray, Int64Array, IntArray, UInt8Array, UInt64Array
from fnftg.errors import FnftgError
from fnftg.kernels.ranges import ranges
from fnftg.kg.graph import Vocabulary, short_names
from fnftg.kg.strings import as_series
from fnftg.text.nearest_texts import MAX_ENTITIES

NAMES, NAMED = 1, 2  # an entity's text names the other, the other's text names it; the sum where both do
LONGEST = 5  # words of a name that is looked for
COMMON = 300  # texts, or entities, that may have the same name
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no place of a word in a phrase is lost


@dataclass(frozen=True)
class Words:
    """The words of some strings, one after the other."""

    hashes: UInt64Array  # (w,)
    offsets: Int64Array  # (n + 1,): where those of each string start

    @classmethod
    def of(cls, strings: pl.Series) -> Words:
        words = strings.str.to_lowercase().str.extract_all(r"\w+")
        offsets = np.concatenate([[0], np.cumsum(words.list.len().to_numpy())]).astype(np.int64)
        return cls(words.explode().drop_nulls().hash().to_numpy(), offsets)

    @cached_property
    def left(self) -> Int64Array:
        """From each word on, how many its string has left: (w,)."""
        return np.repeat(self.offsets[1:], np.diff(self.offsets)) - np.arange(len(self.hashes))

    def phrases(self, length: int) -> tuple[Int64Array, UInt64Array]:
        """So many words in a row, wherever they stand in one string: the string and a hash of each, (p,)."""
        starts = np.flatnonzero(self.left >= length)
        phrases = self.hashes[starts]
        for place in range(1, length):
            phrases = phrases * FACTOR + self.hashes[starts + place]
        return np.searchsorted(self.offsets, starts, "right") - 1, phrases


@dataclass(frozen=True)
class NamePhrases:
    """Phrases that are names, and the entities that have them."""

    phrases: UInt64Array  # (p,): distinct, ascending
    offsets: Int64Array  # (p + 1,)
    entities: Int64Array  # (e,): those of name i stand at offsets[i] to offsets[i + 1]
    lengths: tuple[int, ...]  # which numbers of words they have

    @classmethod
    def of(cls, names: pl.Series, first: int) -> NamePhrases:
        """Of entities from row `first` on."""
        words = Words.of(names)
        counts = np.diff(words.offsets)
        named, phrases = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        lengths = tuple(length for length in range(1, LONGEST + 1) if (counts == length).any())
        for length in lengths:
            row, phrase = words.phrases(length)
            whole = counts[row] == length
            named, phrases = np.concatenate([named, row[whole]]), np.concatenate([phrases, phrase[whole]])
        order = np.lexsort((named, phrases))
        distinct, starts = np.unique(phrases[order], return_index=True)
        return cls(distinct, np.append(starts, len(order)), first + named[order], lengths)

    def found_in(self, texts: Words) -> tuple[Int64Array, Int64Array]:
        """Which texts have which names, each once: rows of texts, places of names."""
        keys = [np.zeros(0, np.int64)]
        for length in self.lengths if len(self.phrases) else ():
            row, phrases = texts.phrases(length)
            place = np.minimum(np.searchsorted(self.phrases, phrases), len(self.phrases) - 1)
            found = self.phrases[place] == phrases
            keys.append(row[found] * len(self.phrases) + place[found])
        row, place = np.divmod(np.unique(np.concatenate(keys)), max(len(self.phrases), 1))
        return row, place

    def only(self, kept: BoolArray) -> NamePhrases:
        """Some of the names (p,)."""
        counts = np.diff(self.offsets)
        offsets = np.concatenate([[0], np.cumsum(counts[kept])])
        return NamePhrases(self.phrases[kept], offsets, self.entities[np.repeat(kept, counts)], self.lengths)

    def bearers(self, texts: Int64Array, places: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Texts that have the names in these places (m,) as texts and all entities that they name, (…)."""
        counts = np.diff(self.offsets)[places]
        return np.repeat(texts, counts), self.entities[ranges(self.offsets[places], counts)]


@dataclass(frozen=True)
class Part:
    """Some entities, and every mention between one of them and one of them or of the parts before."""

    first: int  # row
    size: int  # entities, those of the parts before included
    texts: Words
    names: NamePhrases
    keys: Int64Array  # (m,): row · size + the other's row, ascending
    kinds: UInt8Array  # (m,)

    @classmethod
    def of(cls, texts: pl.Series, names: pl.Series, before: tuple[Part, ...]) -> Part:
        first = before[-1].size if before else 0
        size = first + len(texts)
        behind = pl.DataFrame({"text": texts, "name": names}).select(pl.col("text").str.strip_prefix(pl.col("name")))
        words, own = Words.of(behind["text"]), NamePhrases.of(names, first)
        found = [(part.first + row, place) for part in before for row, place in [own.found_in(part.texts)]]
        row, place = own.found_in(words)
        found.append((first + row, place))
        row, place = (np.concatenate(parts) for parts in zip(*found, strict=True))
        rare = (np.bincount(place, minlength=len(own.phrases)) <= COMMON) & (np.diff(own.offsets) <= COMMON)
        pairs = [own.bearers(row[rare[place]], place[rare[place]])]
        for part in before:
            row, place = part.names.found_in(words)
            pairs.append(part.names.bearers(first + row, place))
        one, other = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        one, other = one[one != other], other[one != other]
        keys, which = np.unique(np.concatenate([one * size + other, other * size + one]), return_inverse=True)
        kinds = np.bincount(which, np.repeat([NAMES, NAMED], len(one)), len(keys)).astype(np.uint8)
        return cls(first, size, words, own.only(rare), keys, kinds)


@dataclass(frozen=True)
class Mentions:
    """Which entities an entity's text names, and whose texts name it."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, entities: Vocabulary) -> Mentions:
        if len(entities) > MAX_ENTITIES:
            raise FnftgError(
                f"{len(entities):,} entities are too many to look for their names in all texts, {MAX_ENTITIES:,} being "
                "the most: remove mentions from --model.evidence.sources."
            )
        return cls((Part.of(as_series(entities.texts), short_names(entities, 0, len(entities)), ()),))

    def extended(self, texts: Sequence[str], names: pl.Series) -> Mentions:
        """With more entities; nothing is copied. Which names of others are common is not decided anew."""
        return Mentions((*self.parts, Part.of(pl.Series(texts, dtype=pl.String), names, self.parts)))

    def around(self, entities: IntArray) -> tuple[Int64Array, Int64Array, UInt8Array]:
        """Of entities (q,) all that they name and are named by: who, at offsets[i] to offsets[i + 1], and how."""
        query, others, kinds = [], [], []
        for part in self.parts:
            inside = np.flatnonzero(entities < part.size)
            starts = np.searchsorted(part.keys, entities[inside].astype(np.int64) * part.size)
            counts = np.searchsorted(part.keys, (entities[inside].astype(np.int64) + 1) * part.size) - starts
            places = ranges(starts, counts)
            query.append(np.repeat(inside, counts))
            others.append(part.keys[places] % part.size)
            kinds.append(part.kinds[places])
        order = np.lexsort((np.concatenate(others), np.concatenate(query)))
        offsets = np.searchsorted(np.concatenate(query)[order], np.arange(len(entities) + 1))
        return offsets, np.concatenate(others)[order], np.concatenate(kinds)[order]

    def between(self, ones: Int64Array, others: Int64Array) -> UInt8Array:
        """How the first of each pair (m,) names the other, or is named by it; 0: not at all."""
        found = np.zeros(len(ones), np.uint8)
        for part in self.parts:
            wanted = ones * part.size + others
            place = np.minimum(np.searchsorted(part.keys, wanted), max(len(part.keys) - 1, 0))
            here = (ones < part.size) & (others < part.size) & (len(part.keys) > 0)
            here[here] = part.keys[place[here]] == wanted[here]
            found[here] = part.kinds[place[here]]
        return found
