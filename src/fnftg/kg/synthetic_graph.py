"""Generate synthetic graphs of any size in BLP's file layout, with the statistics of Wikidata5M.

Random generators are seeded with (seed, part, chunk), so the same arguments always give the same bytes. Entities and
relations are rows until they are written. Low rows are popular, like low ids in Wikidata.
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

WORD_PART, ENTITY_PART, RELATION_PART, ORDER_PART, TEXT_PART, LABEL_PART, SPLIT_PART = range(7)  # of the seeds

WORDS_BY_SYLLABLES = {1: 100, 2: 8_000, 3: 21_900}  # frequent words are short
ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "kl")
VOWELS = ("a", "e", "i", "o", "u")
CODAS = ("", "n", "r", "s", "l")
CELL = 16  # bytes; enough for the longest word and a space
DRAW_BITS = 20  # resolution of the word frequencies
NAME_WORDS = 2
RELATION_WORDS = 3
SPREAD_OF_WORDS = 0.6  # σ of the logarithm of a text's number of words
SHAPE_OF_OUT_DEGREES = 0.75  # of a gamma distribution: σ is 4.4 at Wikidata5M's mean of 4.48 outgoing edges
WIDEST_GAP = 32  # between the numbers of consecutive ids
CHUNK_WORDS = 1 << 20
CHUNK_TRIPLES = 1 << 18
ID_BYTES = 24  # enough for any id and a separator


def write_synthetic(
    folder_target: str | os.PathLike[str],
    entities: int,
    triples: int,
    relations: int,
    seed: int = 0,
    words: int = 64,
    force: bool = False,
) -> None:
    """Write train, dev and test triples and texts to a new folder.

    Args:
        folder_target: the folder to create.
        entities: number of entities in all splits.
        triples: number of triples in all splits.
        relations: number of relations; all occur in train.
        seed: random seed.
        words: mean number of words in an entity's text.
        force: replace an existing export.
    """
    sizes = split_sizes(entities, triples, relations)
    if seed < 0:
        raise FnftgError(f"The seed {seed} is negative: choose 0 or more.")
    if words < 1:
        raise FnftgError(f"Texts cannot have {words} words: choose at least 1.")
    vocabulary = PseudoWords.drawn(generator(seed, WORD_PART))
    entity_numbers = id_numbers(entities, generator(seed, ENTITY_PART))
    relation_numbers = id_numbers(relations, generator(seed, RELATION_PART))
    with new_folder(folder_target, "export", force) as folder:
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
    """Return the number of (entities, triples) of each split. No entity is in two splits.

    Raises:
        FnftgError: if there is no graph with these numbers.
    """
    for what, number in {"entities": entities, "triples": triples, "relations": relations}.items():
        if number < 1:
            raise FnftgError(f"A synthetic graph cannot have {number:,} {what}: choose at least 1.")
    held_out = max(triples // 3_000, min(triples // 10, 10))  # Wikidata5M's share, but up to 10 for small graphs
    if held_out == 0:
        raise FnftgError(f"{triples:,} triples are too few for three splits: choose at least 10.")
    held_out_entities = held_out + max(held_out // 10, 1)
    own, count = entities - 2 * held_out_entities, triples - 2 * held_out
    if relations > count:
        raise FnftgError(f"{relations:,} relations cannot all occur in {count:,} training triples: choose fewer.")
    if own < 2:
        least = 2 * held_out_entities + 2
        raise FnftgError(f"{entities:,} entities are too few for {triples:,} triples: choose at least {least:,}.")
    if own > 2 * count:
        raise FnftgError(f"{entities:,} entities cannot all occur in {triples:,} triples: choose fewer entities.")
    return {"train": (own, count), "dev": (held_out_entities, held_out), "test": (held_out_entities, held_out)}


def id_numbers(count: int, rng: np.random.Generator) -> Int64Array:
    """Draw the numbers of the ids: distinct, ascending, with gaps as in Wikidata."""
    return np.cumsum(rng.integers(1, WIDEST_GAP, count))


# Triples


def drawn_triples(entities: int, triples: int, relations: int, must_occur: int, rng: np.random.Generator) -> Int32Array:
    """Draw distinct triples (n, 3) in random order. Every entity and the first `must_occur` relations occur."""
    # If there are few triples per entity, only the low rows are heads; the others occur at least as tails.
    heads = min(entities, max((entities + 1) // 2, (3 * triples + 3) // 4))
    shares = rng.gamma(SHAPE_OF_OUT_DEGREES, size=heads)
    shares /= shares.sum()
    out_degrees = 1 + rng.multinomial(triples - heads, shares)
    if out_degrees.max() >= entities:
        raise FnftgError(f"{triples:,} triples are too many for {entities:,} entities: choose more entities.")
    drawn = np.empty((triples, 3), np.int32)
    draw_triples(rng, out_degrees, entities, relations, must_occur, drawn)
    rng.shuffle(drawn.view("V12").reshape(-1))
    return drawn


@numba.njit(cache=True)
def draw_triples(
    rng: np.random.Generator, out_degrees: Int64Array, entities: int, relations: int, must_occur: int, drawn: Int32Array
) -> None:
    """Fill `drawn` head by head. Popularity falls as 1/row: (n + 1)^u - 1 with a uniform u draws one of n rows."""
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
    """Write one line per triple to `lines`. Returns the number of bytes."""
    end = 0
    for row in range(len(triples)):
        end = put_id(lines, end, ord("Q"), entity_numbers[triples[row, 0]], ord("\t"))
        end = put_id(lines, end, ord("P"), relation_numbers[triples[row, 1]], ord("\t"))
        end = put_id(lines, end, ord("Q"), entity_numbers[triples[row, 2]], ord("\n"))
    return end


@numba.njit(cache=True)
def put_id(lines: UInt8Array, end: int, letter: int, number: int, separator: int) -> int:
    """Write an id, e.g. `Q42`, and a separator to `lines`. Returns the new end."""
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
    """A synthetic vocabulary, the most frequent word first."""

    letters: UInt8Array  # (words, CELL): each word, followed by spaces
    sizes: Int64Array  # (words,): without the space
    by_draw: npt.NDArray[np.int16]  # (1 << DRAW_BITS,): the word of each uniform draw, by Zipf's law

    @staticmethod
    def drawn(rng: np.random.Generator) -> PseudoWords:
        syllables = ["".join(parts) for parts in product(ONSETS, VOWELS, CODAS)]
        words: dict[str, None] = {}  # an ordered set: different syllables may give the same word
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
    """Write one line per id: a name and further words. Lengths are log-normal with mean `words`."""
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
    """Write `Q42⇥Some Name, further words` for each id to `lines`. Returns the number of bytes."""
    end, draw = 0, 0
    for row in range(len(numbers)):
        end = put_id(lines, end, letter, numbers[row], ord("\t"))
        for position in range(counts[row]):
            in_name = position < NAME_WORDS
            word = draws[draw] % len(sizes) if in_name else by_draw[draws[draw] >> (32 - DRAW_BITS)]
            for place in range(CELL):  # copying the whole cell is one instruction; the rest is overwritten
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
