"""The compiled inner loops of an import: map keys to rows, remove duplicate triples, sort and gather strings."""

from __future__ import annotations

import numba
import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array
from fnftg.kg.strings import Strings

HIGH, LOW, ONE = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF), np.uint64(1)
MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads small numbers over 64 bits


class HashCollisionError(Exception):
    """Two ids have the same 64-bit hash. The import has to be repeated with another seed."""


class RowTable:
    """A hash table from 64-bit keys to rows in order of first appearance. Half of a second hash detects collisions."""

    def __init__(self) -> None:
        self.slots = np.zeros((1 << 10, 2), np.uint64)  # key; upper half: check, lower half: row + 1 (0: free)
        self.size = 0

    def add(self, keys: UInt64Array, checks: UInt64Array) -> tuple[Int32Array, Int64Array]:
        """Return the row of each key, and the positions of the new keys."""
        rows, first, before, place = np.empty(len(keys), np.int32), np.empty(len(keys), np.int64), self.size, 0
        while place < len(keys):
            if 4 * self.size >= 3 * len(self.slots):
                self.slots = _doubled(self.slots)
            place, self.size = _put(self.slots, self.size, keys, checks, rows, first[self.size - before :], place)
            if place < 0:
                raise HashCollisionError
        return rows, first[: self.size - before]

    def find(self, keys: UInt64Array, checks: UInt64Array) -> Int32Array:
        """Return the row of each key, -1 for unknown keys."""
        rows = np.empty(len(keys), np.int32)
        if not _find(self.slots, keys, checks, rows):
            raise HashCollisionError
        return rows


@numba.njit(cache=True)
def _put(
    slots: UInt64Array,
    size: int,
    keys: UInt64Array,
    checks: UInt64Array,
    rows: Int32Array,
    first: Int64Array,
    place: int,
) -> tuple[int, int]:
    """Insert keys from `place` on until the table is 3/4 full. Returns the next place, or -1 for a collision."""
    mask, limit, before = np.uint64(len(slots) - 1), 3 * len(slots) // 4, size
    while place < len(keys) and size < limit:
        key, check = keys[place], checks[place] & HIGH
        slot = key & mask
        while slots[slot, 1] != 0 and slots[slot, 0] != key:
            slot = (slot + ONE) & mask
        content = slots[slot, 1]
        if content == 0:
            slots[slot, 0], slots[slot, 1] = key, check | np.uint64(size + 1)
            first[size - before] = place
            rows[place] = size
            size += 1
        elif content & HIGH != check:
            return -1, size
        else:
            rows[place] = np.int64(content & LOW) - 1
        place += 1
    return place, size


@numba.njit(cache=True)
def _find(slots: UInt64Array, keys: UInt64Array, checks: UInt64Array, rows: Int32Array) -> bool:
    mask = np.uint64(len(slots) - 1)
    for place in range(len(keys)):
        key = keys[place]
        slot = key & mask
        while slots[slot, 1] != 0 and slots[slot, 0] != key:
            slot = (slot + ONE) & mask
        content = slots[slot, 1]
        if content != 0 and content & HIGH != checks[place] & HIGH:
            return False
        rows[place] = np.int64(content & LOW) - 1
    return True


@numba.njit(cache=True)
def _doubled(slots: UInt64Array) -> UInt64Array:
    """Return a table of twice the size with the same keys."""
    larger = np.zeros((2 * len(slots), 2), np.uint64)
    mask = np.uint64(len(larger) - 1)
    for old in range(len(slots)):
        if slots[old, 1] != 0:
            slot = slots[old, 0] & mask
            while larger[slot, 1] != 0:
                slot = (slot + ONE) & mask
            larger[slot, 0], larger[slot, 1] = slots[old, 0], slots[old, 1]
    return larger


def without_repeats(triples: Int32Array) -> Int32Array:
    """Return the distinct triples in order of first appearance. Modifies `triples`."""
    slots = np.zeros(1 << (3 * len(triples) // 2).bit_length(), np.int32)
    return triples[: _drop_repeats(triples, slots)]


@numba.njit(cache=True)
def _drop_repeats(triples: Int32Array, slots: Int32Array) -> int:
    mask, kept = np.uint64(len(slots) - 1), 0
    for row in range(len(triples)):
        head, relation, tail = triples[row, 0], triples[row, 1], triples[row, 2]
        mixed = (np.uint64(head) * MIXER ^ np.uint64(tail)) * MIXER ^ np.uint64(relation)
        mixed *= MIXER
        slot = (mixed >> np.uint64(32)) & mask
        while True:
            other = slots[slot] - 1
            if other < 0:
                slots[slot] = kept + 1
                triples[kept, 0], triples[kept, 1], triples[kept, 2] = head, relation, tail
                kept += 1
                break
            if triples[other, 0] == head and triples[other, 2] == tail and triples[other, 1] == relation:
                break
            slot = (slot + ONE) & mask
    return kept


def byte_order(strings: Strings) -> Int32Array:
    """Return the rows sorted by the bytes of their strings: by the first eight bytes, then ties by the next eight."""
    lines, offsets = strings.lines, strings.offsets
    sizes = np.diff(offsets) - 1
    order = np.arange(len(strings))
    tied, groups, depth = order.copy(), np.zeros(len(strings), np.int64), 0  # positions in `order`, and groups of ties
    while len(tied) > 1:
        rows = order[tied]
        at_end = depth >= sizes[rows].max()  # the strings differ only in trailing NUL characters
        keys = sizes[rows].astype(np.uint64) if at_end else _eight_bytes(lines, offsets, rows, depth)
        depth += 8
        if keys.min() == keys.max():
            if at_end:
                break
            continue
        by = np.argsort(keys) if groups[0] == groups[-1] else np.lexsort((keys, groups))
        order[tied], keys, groups = rows[by], keys[by], groups[by]
        differs = (keys[1:] != keys[:-1]) | (groups[1:] != groups[:-1])
        ties = np.append(False, ~differs) | np.append(~differs, False)
        tied, groups = tied[ties], np.append(0, np.cumsum(differs))[ties]
        if at_end:
            break
    return order.astype(np.int32)


@numba.njit(cache=True)
def _eight_bytes(lines: UInt8Array, offsets: Int64Array, rows: Int64Array, depth: int) -> UInt64Array:
    """Return eight bytes of each string from `depth` on as one number, padded with zeros."""
    keys = np.zeros(len(rows), np.uint64)
    for place in range(len(rows)):
        start, end = offsets[rows[place]] + depth, offsets[rows[place] + 1] - 1
        for position in range(start, min(start + 8, end)):
            keys[place] |= np.uint64(lines[position]) << np.uint64(8 * (7 - position + start))
    return keys


@numba.njit(cache=True)
def untidy(lines: UInt8Array, offsets: Int64Array) -> BoolArray:
    """Return which strings may have leading, trailing or repeated white space, or white space other than spaces."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(found)):
        after_space, bad = True, False
        for position in range(offsets[row], offsets[row + 1] - 1):
            byte = lines[position]
            space = byte == 32
            # First bytes of white space outside ASCII: U+0085, U+00A0, U+1680, U+2000–205F, U+3000.
            bad |= (space and after_space) or 9 <= byte <= 13 or byte == 0xC2 or 0xE1 <= byte <= 0xE3
            after_space = space
        found[row] = bad or (after_space and offsets[row + 1] - offsets[row] > 1)
    return found


@numba.njit(cache=True)
def gather(data: UInt8Array, starts: Int64Array, sizes: Int64Array, lines: UInt8Array) -> None:
    """Copy the strings at `starts` to `lines`, each followed by a line feed."""
    end = 0
    for row in range(len(starts)):
        start, size = starts[row], sizes[row]
        for position in range(size):
            lines[end + position] = data[start + position]
        lines[end + size] = 10
        end += size + 1


@numba.njit(cache=True)
def last_line_end(data: UInt8Array) -> int:
    """Return the end of the last line that ends outside quotes."""
    end, quoted = 0, False
    for position in range(len(data)):
        byte = data[position]
        if byte == 34:
            quoted = not quoted
        elif byte == 10 and not quoted:
            end = position + 1
    return end
