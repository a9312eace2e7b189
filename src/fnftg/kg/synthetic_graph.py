"""Synthetic graphs of any size, with the statistics of Wikidata5M in the transfer setting, in BLP's file layout.

Every number is drawn from a generator named by (seed, part, chunk), so the same arguments always give the same bytes.
Until they are written, entities and relations are rows; a low row is a popular one, as low numbers are in Wikidata.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from fnftg.arrays import Int32Array, Int64Array, UInt8Array
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.files import new_folder

WORD_PART, ENTITY_PART, RELATION_PART, ORDER_PART, TEXT_PART, LABEL_PART, SPLIT_PART = range(7)  # drawn independently

WORDS_BY_SYLLABLES = {1: 100, 2: 8_000, 3: 21_900}  # frequent words are short
ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "kl")
VOWELS = ("a", "e", "i", "o", "u")
CODAS = ("", "n", "r", "s", "l")
CELL = 16  # bytes in which the longest word and the space behind it fit
DRAW_BITS = 20  # how finely the frequencies of words are drawn
NAME_WORDS = 2
RELATION_WORDS = 3
SPREAD_OF_WORDS = 0.6  # σ of the logarithm of a text's number of words
SHAPE_OF_OUT_DEGREES = 0.75  # of a gamma distribution: σ is 4.4 at Wikidata5M's mean of 4.48 outgoing edges
WIDEST_GAP = 32  # between the numbers of two ids
CHUNK_WORDS = 1 << 20
CHUNK_TRIPLES = 1 << 18
ID_BYTES = 24  # in which any id and the separator behind it fit


def write_synthetic(
    folder_target: str | os.PathLike[str],
    entities: int,
    triples: int,
    relations: int,
    seed: int = 0,
    words: int = 64,
    force: bool = False,
) -> None:
    """Writes train, dev and test triples and the texts, of about `words` words an entity, into a new folder."""
    sizes = split_sizes(entities, triples, relations)
    if seed < 0:
        raise FnftgError(f"The seed {seed} is negative: choose 0 or more.")
    if words < 1:
        raise FnftgError(f"Texts of {words} words cannot be written: ask for at least 1.")
    vocabulary = PseudoWords.drawn(generator(seed, WORD_PART))
    entity_numbers = id_numbers(entities, generator(seed, ENTITY_PART))
    relation_numbers = id_numbers(relations, generator(seed, RELATION_PART))
    with new_folder(folder_target, force) as folder:
        first = 0
        for part, (split, (own, count)) in enumerate(sizes.items(), start=SPLIT_PART):
            must_occur = relations if split == "train" else 0
            drawn = drawn_triples(own, count, relations, must_occur, generator(seed, part))
            write_triples(folder / f"ind-{split}.tsv", drawn, entity_numbers[first : first + own], relation_numbers)
            first += own
        del drawn
        listed = entity_numbers[generator(seed, ORDER_PART).permutation(entities)]
        write_texts(folder / "entity2text.txt", "Q", listed, vocabulary, words, (seed, TEXT_PART))
        write_texts(folder / "relation2text.txt", "P", relation_numbers, vocabulary, RELATION_WORDS, (seed, LABEL_PART))


def generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def split_sizes(entities: int, triples: int, relations: int) -> dict[str, tuple[int, int]]:
    """(entities, triples) of each split; no entity is in two of them. Refuses what cannot be made."""
    for what, number in {"entities": entities, "triples": triples, "relations": relations}.items():
        if number < 1:
            raise FnftgError(f"A made-up graph cannot have {number:,} {what}: ask for at least 1.")
    held_out = max(triples // 3_000, min(triples // 10, 10))  # Wikidata5M's share, or 10 where that is more
    if held_out == 0:
        raise FnftgError(f"{triples:,} triples are too few for three splits: ask for at least 10.")
    held_out_entities = held_out + max(held_out // 10, 1)
    own, count = entities - 2 * held_out_entities, triples - 2 * held_out
    if relations > count:
        raise FnftgError(f"{relations:,} relations cannot all occur in {count:,} training triples: ask for fewer.")
    if own < 2:
        least = 2 * held_out_entities + 2
        raise FnftgError(f"{entities:,} entities are too few for {triples:,} triples: ask for at least {least:,}.")
    if own > 2 * count:
        raise FnftgError(f"{entities:,} entities cannot all occur in {triples:,} triples: ask for fewer entities.")
    return {"train": (own, count), "dev": (held_out_entities, held_out), "test": (held_out_entities, held_out)}


def id_numbers(count: int, rng: np.random.Generator) -> Int64Array:
    """The distinct numbers of the ids, rising with the row, with gaps as in Wikidata."""
    return np.cumsum(rng.integers(1, WIDEST_GAP, count))


# Triples


def drawn_triples(entities: int, triples: int, relations: int, must_occur: int, rng: np.random.Generator) -> Int32Array:
    """Distinct triples as rows (n, 3), shuffled; every entity occurs, and so do the first `must_occur` relations."""
    # Where there are as few triples as entities, only the low rows are heads and the others at least tails.
    heads = min(entities, max((entities + 1) // 2, (3 * triples + 3) // 4))
    shares = rng.gamma(SHAPE_OF_OUT_DEGREES, size=heads)
    shares /= shares.sum()
    out_degrees = 1 + rng.multinomial(triples - heads, shares)
    if out_degrees.max() >= entities:
        raise FnftgError(f"{triples:,} triples are too many for {entities:,} entities: ask for more entities.")
    drawn = np.empty((triples, 3), np.int32)
    draw_triples(rng, out_degrees, entities, relations, must_occur, drawn)
    rng.shuffle(drawn.view("V12").reshape(-1))
    return drawn


@numba.njit(cache=True)
def draw_triples(
    rng: np.random.Generator, out_degrees: Int64Array, entities: int, relations: int, must_occur: int, drawn: Int32Array
) -> None:
    """Fills `drawn` head by head; popularity falls as 1/row, so that (n + 1)^u - 1 with u uniform draws a row of n."""
    heads, row = len(out_degrees), 0
    for head in range(heads):
        first = row
        while row < first + out_degrees[head]:
            relation = min(int((relations + 1) ** rng.random()), relations) - 1
            tail = min(int((entities + 1) ** rng.random()), entities) - 1
            if row < must_occur:
                relation = row
            if row == first and heads + head < entities:
                tail = heads + head
            repeated = tail == head
            for earlier in range(first, row):
                repeated |= drawn[earlier, 1] == relation and drawn[earlier, 2] == tail
            if not repeated:
                drawn[row, 0], drawn[row, 1], drawn[row, 2] = head, relation, tail
                row += 1


def write_triples(path: Path, drawn: Int32Array, entity_numbers: Int64Array, relation_numbers: Int64Array) -> None:
    lines = np.empty(3 * ID_BYTES * min(CHUNK_TRIPLES, len(drawn)), np.uint8)
    with open(path, "wb") as file, progress(f"Writing {path.name}", len(drawn), "triples") as advance:
        for start in range(0, len(drawn), CHUNK_TRIPLES):
            chunk = drawn[start : start + CHUNK_TRIPLES]
            file.write(lines.data[: put_triples(lines, chunk, entity_numbers, relation_numbers)])
            advance(len(chunk))


@numba.njit(cache=True)
def put_triples(
    lines: UInt8Array, triples: Int32Array, entity_numbers: Int64Array, relation_numbers: Int64Array
) -> int:
    """Lays out a line a triple; returns the number of bytes."""
    end = 0
    for row in range(len(triples)):
        end = put_id(lines, end, ord("Q"), entity_numbers[triples[row, 0]], ord("\t"))
        end = put_id(lines, end, ord("P"), relation_numbers[triples[row, 1]], ord("\t"))
        end = put_id(lines, end, ord("Q"), entity_numbers[triples[row, 2]], ord("\n"))
    return end


@numba.njit(cache=True)
def put_id(lines: UInt8Array, end: int, letter: int, number: int, separator: int) -> int:
    """Lays out such as `Q42` and a separator; returns the new end."""
    lines[end] = letter
    last, rest = end, number
    while rest:
        last, rest = last + 1, rest // 10
    for place in range(last, end, -1):
        lines[place], number = ord("0") + number % 10, number // 10
    lines[last + 1] = separator
    return last + 2


# Texts


@dataclass(frozen=True)
class PseudoWords:
    """A made-up vocabulary, the most frequent word first."""

    letters: UInt8Array  # (words, CELL): each word and a space behind it
    sizes: Int64Array  # (words,): without the space
    by_draw: npt.NDArray[np.int16]  # (1 << DRAW_BITS,): the word that a uniform draw stands for, Zipf's law

    @staticmethod
    def drawn(rng: np.random.Generator) -> PseudoWords:
        syllables = ["".join(parts) for parts in product(ONSETS, VOWELS, CODAS)]
        words: dict[str, None] = {}  # a set in order: two rows of syllables may read the same
        for length, count in WORDS_BY_SYLLABLES.items():
            chosen = rng.choice(len(syllables) ** length, count, replace=False)
            places = np.unravel_index(chosen, (len(syllables),) * length)
            words.update(dict.fromkeys("".join(syllables[place] for place in row) for row in zip(*places, strict=True)))
        cells = "".join(word.ljust(CELL) for word in words).encode()
        draws = (np.arange(1 << DRAW_BITS) + 0.5) / (1 << DRAW_BITS)
        by_draw = np.floor((len(words) + 1) ** draws) - 1
        return PseudoWords(
            np.frombuffer(cells, np.uint8).reshape(-1, CELL), np.array([*map(len, words)]), by_draw.astype(np.int16)
        )


def write_texts(
    path: Path, letter: str, numbers: Int64Array, vocabulary: PseudoWords, words: int, key: tuple[int, int]
) -> None:
    """A line for each id: a name and further words, `words` in the mean, log-normal."""
    chunk_size = max(CHUNK_WORDS // words, 1)
    location = np.log(words) - SPREAD_OF_WORDS**2 / 2
    with open(path, "wb") as file, progress(f"Writing {path.name}", len(numbers), "texts") as advance:
        for chunk, start in enumerate(range(0, len(numbers), chunk_size)):
            rng = generator(*key, chunk)
            own = numbers[start : start + chunk_size]
            counts = np.rint(rng.lognormal(location, SPREAD_OF_WORDS, len(own))).clip(1).astype(np.int64)
            draws = rng.integers(0, 1 << 32, counts.sum(), np.uint32)
            lines = np.empty(len(own) * (ID_BYTES + 2) + (len(draws) + 1) * CELL, np.uint8)
            arrays = (vocabulary.letters, vocabulary.sizes, vocabulary.by_draw)
            file.write(lines.data[: put_texts(lines, ord(letter), own, counts, draws, *arrays)])
            advance(len(own))


@numba.njit(cache=True)
def put_texts(
    lines: UInt8Array,
    letter: int,
    numbers: Int64Array,
    counts: Int64Array,
    draws: npt.NDArray[np.uint32],
    letters: UInt8Array,
    sizes: Int64Array,
    by_draw: npt.NDArray[np.int16],
) -> int:
    """Lays out `Q42⇥Some Name, further words` for each id; returns the number of bytes."""
    end, draw = 0, 0
    for row in range(len(numbers)):
        end = put_id(lines, end, letter, numbers[row], ord("\t"))
        for position in range(counts[row]):
            in_name = position < NAME_WORDS
            word = draws[draw] % len(sizes) if in_name else by_draw[draws[draw] >> (32 - DRAW_BITS)]
            for place in range(CELL):  # the whole cell, as that is one instruction; what is too much is overwritten
                lines[end + place] = letters[word, place]
            if in_name:
                lines[end] -= ord("a") - ord("A")
            end += sizes[word] + 1
            if position == NAME_WORDS - 1:
                lines[end - 1], lines[end] = ord(","), ord(" ")
                end += 1
            draw += 1
        end -= 2 if counts[row] == NAME_WORDS else 1
        lines[end] = ord("\n")
        end += 1
    return end
