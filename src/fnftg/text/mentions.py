"""Mentions of entities' names in texts.

An entity is often linked to the entities that its text names: the text of a film names its director. Names are matched
word by word, ignoring case and Unicode form, in the text after the entity's own name. Names that occur in more than
`COMMON` texts, or that more than `COMMON` entities share, are ignored. Like the encoder, it reads the first words of
each text, as many as it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from fnftg.arrays import BoolArray, Int64Array, IntArray, UInt8Array, UInt64Array
from fnftg.kernels.ranges import ranges
from fnftg.kg.graph import Vocabulary, short_names
from fnftg.kg.strings import blocks
from fnftg.text.rows import leading_words

NAMES, NAMED = 1, 2  # the entity's text names the other entity; the other's text names the entity; 3: both
LONGEST = 5  # words of a name; longer ones are ignored
BLOCK = 100_000  # texts in memory at a time
COMMON = 300  # texts with a name, or entities of a name
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # makes the hash of a phrase depend on the order of its words


@dataclass(frozen=True)
class Words:
    """The words of strings as hashes, one string after the other."""

    hashes: UInt64Array  # (w,)
    offsets: Int64Array  # (n + 1,): start of each string

    @classmethod
    def of(cls, strings: pl.Series) -> Words:
        words = strings.str.normalize("NFC").str.to_lowercase().str.extract_all(r"\w+")
        offsets = np.concatenate([[0], np.cumsum(words.list.len().to_numpy())]).astype(np.int64)
        return cls(words.explode().drop_nulls().hash().to_numpy(), offsets)

    @classmethod
    def joined(cls, parts: Sequence[Words]) -> Words:
        """Return the words of all strings of several parts."""
        starts = np.cumsum([0, *(len(part.hashes) for part in parts)])
        offsets = [start + part.offsets[1:] for start, part in zip(starts, parts, strict=False)]
        return cls(np.concatenate([part.hashes for part in parts]), np.concatenate([np.zeros(1, np.int64), *offsets]))

    def take(self, rows: Int64Array) -> Words:
        """Return the words of the strings in `rows`."""
        counts = np.diff(self.offsets)[rows]
        return Words(self.hashes[ranges(self.offsets[rows], counts)], np.concatenate([[0], np.cumsum(counts)]))

    @cached_property
    def left(self) -> Int64Array:
        """Number of words from each word to the end of its string, including the word: (w,)."""
        return np.repeat(self.offsets[1:], np.diff(self.offsets)) - np.arange(len(self.hashes))

    @cached_property
    def index(self) -> tuple[UInt64Array, Int64Array]:
        """An inverted index: all hashes in ascending order, and their positions, (w,) each."""
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order

    def phrases(self, length: int) -> tuple[Int64Array, UInt64Array]:
        """Return all phrases of `length` consecutive words of a string: the string and the phrase's hash, (p,) each."""
        starts = np.flatnonzero(self.left >= length)
        phrases = self.hashes[starts]
        for place in range(1, length):
            phrases = phrases * FACTOR + self.hashes[starts + place]
        return np.searchsorted(self.offsets, starts, "right") - 1, phrases


@dataclass(frozen=True)
class NamePhrases:
    """The names of entities as phrases."""

    phrases: UInt64Array  # (p,): hashes of the names; distinct, ascending
    offsets: Int64Array  # (p + 1,)
    entities: Int64Array  # (e,): those with name i are entities[offsets[i] : offsets[i + 1]]
    words: Words  # of each name

    @classmethod
    def of(cls, names: pl.Series, first: int) -> NamePhrases:
        """Index the names of the entities from row `first` on."""
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
        """Return the same as `found_in`, with an index of the texts: check all positions of each name's rarest word.

        This is faster for few names in many texts. If there are more positions than phrases, `found_in` is used.
        """
        hashes, places = texts.index
        start, stop = (np.searchsorted(hashes, self.words.hashes, side) for side in ("left", "right"))
        lengths, offsets = np.diff(self.words.offsets), self.words.offsets[:-1]  # (p,) both
        order = np.lexsort((stop - start, np.repeat(np.arange(len(lengths)), lengths)))
        rarest = order[offsets]  # (p,): the rarest word of each name
        counts = (stop - start)[rarest]
        if counts.sum() > LONGEST * len(texts.hashes):
            return self.found_in(texts)
        word = places[ranges(start[rarest], counts)]  # (m,): possible positions of a name, by its rarest word
        name, row = np.repeat(np.arange(len(counts)), counts), np.searchsorted(texts.offsets, word, "right") - 1
        first = word - np.repeat(rarest - offsets, counts)  # (m,): start of the name
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
        """Find the names in texts by checking all phrases. Returns distinct pairs: rows of texts, indices of names."""
        keys = [np.zeros(0, np.int64)]
        for length in np.unique(np.diff(self.words.offsets)).tolist():
            row, phrases = texts.phrases(length)
            place = np.minimum(np.searchsorted(self.phrases, phrases), len(self.phrases) - 1)
            found = self.phrases[place] == phrases
            keys.append(row[found] * len(self.phrases) + place[found])
        row, place = np.divmod(np.unique(np.concatenate(keys)), max(len(self.phrases), 1))
        return row, place

    def only(self, kept: BoolArray) -> NamePhrases:
        """Return the names selected by a mask (p,)."""
        counts = np.diff(self.offsets)
        offsets, words = np.concatenate([[0], np.cumsum(counts[kept])]), self.words.take(np.flatnonzero(kept))
        return NamePhrases(self.phrases[kept], offsets, self.entities[np.repeat(kept, counts)], words)

    def bearers(self, texts: Int64Array, places: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Replace names by entities: from (text, name) pairs (m,) to (text, entity) pairs."""
        counts = np.diff(self.offsets)[places]
        return np.repeat(texts, counts), self.entities[ranges(self.offsets[places], counts)]


@dataclass(frozen=True)
class Part:
    """A range of entities, and all mentions among them and between them and the entities of earlier parts."""

    first: int  # row of the first entity
    size: int  # number of entities, including earlier parts
    texts: Words
    names: NamePhrases
    keys: Int64Array  # (m,): row · size + the other's row, ascending
    kinds: UInt8Array  # (m,)

    @classmethod
    def of(cls, texts: Iterable[pl.Series], names: pl.Series, words: int, before: tuple[Part, ...]) -> Part:
        """Find the mentions in texts, which come in blocks, given the names of all of them."""
        first = before[-1].size if before else 0
        size = first + len(names)
        own = NamePhrases.of(names, first)
        found = [(part.first + row, place) for part in before for row, place in [own.looked_up_in(part.texts)]]
        parts, done = [], 0
        for block in texts:
            of_block = names.slice(done, len(block))
            read = pl.DataFrame({"text": read_words(block, words), "name": read_words(of_block, words)})
            behind = read.select(pl.col("text").str.strip_prefix(pl.col("name")))
            parts.append(Words.of(behind["text"]))
            row, place = own.found_in(parts[-1])
            found.append((first + done + row, place))
            done += len(block)
        own_words = Words.joined(parts)
        row, place = (np.concatenate(parts) for parts in zip(*found, strict=True))
        rare = (np.bincount(place, minlength=len(own.phrases)) <= COMMON) & (np.diff(own.offsets) <= COMMON)
        pairs = [own.bearers(row[rare[place]], place[rare[place]])]
        for part in before:
            row, place = part.names.found_in(own_words)
            pairs.append(part.names.bearers(first + row, place))
        one, other = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        one, other = one[one != other], other[one != other]
        keys, which = np.unique(np.concatenate([one * size + other, other * size + one]), return_inverse=True)
        kinds = np.bincount(which, np.repeat([NAMES, NAMED], len(one)), len(keys)).astype(np.uint8)
        return cls(first, size, own_words, own.only(rare), keys, kinds)


@dataclass(frozen=True)
class Mentions:
    """The entities that each entity's text names, and the entities whose texts name it."""

    parts: tuple[Part, ...]
    words: int  # that are read of each text; 0 for the whole text

    @classmethod
    def of(cls, entities: Vocabulary, words: int) -> Mentions:
        names = short_names(entities, 0, len(entities))
        texts = (pl.Series(block, dtype=pl.String) for block in blocks(entities.texts, BLOCK))
        return cls((Part.of(texts, names, words, ()),), words)

    def extended(self, texts: Sequence[str], names: pl.Series) -> Mentions:
        """Return the mentions with more entities. Nothing is copied, and known names are not counted again."""
        added = Part.of([pl.Series(texts, dtype=pl.String)], names, self.words, self.parts)
        return Mentions((*self.parts, added), self.words)

    def around(self, entities: IntArray) -> tuple[Int64Array, Int64Array, UInt8Array]:
        """Return the mentions of entities (q,): offsets (q + 1,), the other entities, and NAMES, NAMED or both."""
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
        """Return for each pair (m,) whether the first entity NAMES the other, is NAMED by it, or both; 0: neither."""
        found = np.zeros(len(ones), np.uint8)
        for part in self.parts:
            wanted = ones * part.size + others
            place = np.minimum(np.searchsorted(part.keys, wanted), max(len(part.keys) - 1, 0))
            here = (ones < part.size) & (others < part.size) & (len(part.keys) > 0)
            here[here] = part.keys[place[here]] == wanted[here]
            found[here] = part.kinds[place[here]]
        return found


def read_words(strings: pl.Series, words: int) -> pl.Series:
    """Return the first words of each string; the whole string if `words` is 0."""
    return pl.Series([leading_words(string, words) for string in strings], dtype=pl.String) if words else strings
