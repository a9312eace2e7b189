"""Mentions: which texts contain the names of which entities.

A film's text names its director, a definition the thing that it defines: an entity is often linked with the entities
that its text names. Names are matched word by word, ignoring case, in the whole text after the entity's own name. A
name that occurs in very many texts, or that very many entities share, is ignored.
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

NAMES, NAMED = 1, 2  # an entity's text names the other, the other's text names it; 3 where both do
LONGEST = 5  # words of a name; longer ones are ignored
COMMON = 300  # texts with a name, or entities of that name: names with more are ignored
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the place of a word in a phrase changes the phrase's hash


@dataclass(frozen=True)
class Words:
    """The words of some strings as hashes, one string after the other."""

    hashes: UInt64Array  # (w,)
    offsets: Int64Array  # (n + 1,): where those of each string start

    @classmethod
    def of(cls, strings: pl.Series) -> Words:
        words = strings.str.to_lowercase().str.extract_all(r"\w+")
        offsets = np.concatenate([[0], np.cumsum(words.list.len().to_numpy())]).astype(np.int64)
        return cls(words.explode().drop_nulls().hash().to_numpy(), offsets)

    def take(self, rows: Int64Array) -> Words:
        """The words of some of the strings."""
        counts = np.diff(self.offsets)[rows]
        return Words(self.hashes[ranges(self.offsets[rows], counts)], np.concatenate([[0], np.cumsum(counts)]))

    @cached_property
    def left(self) -> Int64Array:
        """How many words of its string follow from each word on, itself included: (w,)."""
        return np.repeat(self.offsets[1:], np.diff(self.offsets)) - np.arange(len(self.hashes))

    @cached_property
    def index(self) -> tuple[UInt64Array, Int64Array]:
        """An inverted index: all hashes, ascending, and where each stands; (w,) both."""
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order

    def phrases(self, length: int) -> tuple[Int64Array, UInt64Array]:
        """All phrases of `length` words in a row within one string: the string and the phrase's hash, (p,) each."""
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
    entities: Int64Array  # (e,): those of name i are at offsets[i] to offsets[i + 1]
    words: Words  # of each name

    @classmethod
    def of(cls, names: pl.Series, first: int) -> NamePhrases:
        """The names of entities from row `first` on."""
        words = Words.of(names)
        counts = np.diff(words.offsets)
        named, phrases = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        for length in range(1, LONGEST + 1):
            row, phrase = words.phrases(length)
            whole = counts[row] == length
            named, phrases = np.concatenate([named, row[whole]]), np.concatenate([phrases, phrase[whole]])
        order = np.lexsort((named, phrases))
        distinct, starts = np.unique(phrases[order], return_index=True)
        return cls(distinct, np.append(starts, len(order)), first + named[order], words.take(named[order][starts]))

    def looked_up_in(self, texts: Words) -> tuple[Int64Array, Int64Array]:
        """The same as `found_in`, by an index of the texts: where a name's rarest word stands, are the others there?

        This is faster for few names in many texts, and slower where it has more places to look at than all phrases.
        """
        hashes, places = texts.index
        start, stop = (np.searchsorted(hashes, self.words.hashes, side) for side in ("left", "right"))
        lengths, offsets = np.diff(self.words.offsets), self.words.offsets[:-1]  # (p,) both
        order = np.lexsort((stop - start, np.repeat(np.arange(len(lengths)), lengths)))
        rarest = order[offsets]  # (p,): the first word of each name, by how often it occurs
        counts = (stop - start)[rarest]
        if counts.sum() > LONGEST * len(texts.hashes):
            return self.found_in(texts)
        word = places[ranges(start[rarest], counts)]  # (m,): where a name may stand, by its rarest word
        name, row = np.repeat(np.arange(len(counts)), counts), np.searchsorted(texts.offsets, word, "right") - 1
        first = word - np.repeat(rarest - offsets, counts)  # (m,): where the name would start
        whole = (first >= texts.offsets[row]) & (first + lengths[name] <= texts.offsets[row + 1])
        name, row, first = name[whole], row[whole], first[whole]
        for place in range(LONGEST):
            longer = lengths[name] > place
            same = ~longer
            same[longer] = texts.hashes[first[longer] + place] == self.words.hashes[offsets[name[longer]] + place]
            name, row, first = name[same], row[same], first[same]
        row, name = np.divmod(np.unique(row * len(lengths) + name), max(len(lengths), 1))
        return row, name

    def found_in(self, texts: Words) -> tuple[Int64Array, Int64Array]:
        """Which texts have which names, each once: rows of texts, places of names. All phrases are looked at."""
        keys = [np.zeros(0, np.int64)]
        for length in np.unique(np.diff(self.words.offsets)).tolist():
            row, phrases = texts.phrases(length)
            place = np.minimum(np.searchsorted(self.phrases, phrases), len(self.phrases) - 1)
            found = self.phrases[place] == phrases
            keys.append(row[found] * len(self.phrases) + place[found])
        row, place = np.divmod(np.unique(np.concatenate(keys)), max(len(self.phrases), 1))
        return row, place

    def only(self, kept: BoolArray) -> NamePhrases:
        """Some of the names (p,)."""
        counts = np.diff(self.offsets)
        offsets, words = np.concatenate([[0], np.cumsum(counts[kept])]), self.words.take(np.flatnonzero(kept))
        return NamePhrases(self.phrases[kept], offsets, self.entities[np.repeat(kept, counts)], words)

    def bearers(self, texts: Int64Array, places: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Of texts and the names that they have (m,): the texts and all entities of these names, (…) each."""
        counts = np.diff(self.offsets)[places]
        return np.repeat(texts, counts), self.entities[ranges(self.offsets[places], counts)]


@dataclass(frozen=True)
class Part:
    """Some entities, and every mention between them, or between them and the entities of the parts before."""

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
        found = [(part.first + row, place) for part in before for row, place in [own.looked_up_in(part.texts)]]
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
        """With more entities; nothing is copied. Which names of others are common is not decided again."""
        return Mentions((*self.parts, Part.of(pl.Series(texts, dtype=pl.String), names, self.parts)))

    def around(self, entities: IntArray) -> tuple[Int64Array, Int64Array, UInt8Array]:
        """The entities that entities (q,) name or are named by, at offsets[i] to offsets[i + 1], and NAMES or NAMED."""
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
        """Whether the first of each pair (m,) NAMES the other, or is NAMED by it; 0: neither."""
        found = np.zeros(len(ones), np.uint8)
        for part in self.parts:
            wanted = ones * part.size + others
            place = np.minimum(np.searchsorted(part.keys, wanted), max(len(part.keys) - 1, 0))
            here = (ones < part.size) & (others < part.size) & (len(part.keys) > 0)
            here[here] = part.keys[place[here]] == wanted[here]
            found[here] = part.kinds[place[here]]
        return found
