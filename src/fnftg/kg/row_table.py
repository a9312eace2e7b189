"""The inner loops of an import, compiled: keys become rows, repeated triples go, strings are sorted and gathered."""

from __future__ import annotations

import numba
import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array
from fnftg.kg.strings import Strings

HIGH, LOW, ONE = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF), np.uint64(1)
MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd, from the golden ratio: spreads small numbers over 64 bits


class HashCollisionError(Exception):
    """Two ids have the same 64-bit hash: to be tried again with another seed."""


class RowTable:
    """The row of each 64-bit key, in the order of first appearance; half of a second hash tells keys that collide."""

    def __init__(self) -> None:
        self.slots = np.zeros((1 << 10, 2), np.uint64)  # the key; half a check above the row + 1 (0: a free slot)
        self.size = 0

    def add(self, keys: UInt64Array, checks: UInt64Array) -> tuple[Int32Array, Int64Array]:
        """The row of each key, and the places of those that are new."""
        rows, first, before, place = np.empty(len(keys), np.int32), np.empty(len(keys), np.int64), self.size, 0
        while place < len(keys):
            if 4 * self.size >= 3 * len(self.slots):
                self.slots = _doubled(self.slots)
            place, self.size = _put(self.slots, self.size, keys, checks, rows, first[self.size - before :], place)
            if place < 0:
                raise HashCollisionError
        return rows, first[: self.size - before]

    def find(self, keys: UInt64Array, checks: UInt64Array) -> Int32Array:
        """The row of each key, -1 where it has none."""
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
    """Goes on at `place` until the table is three quarters full; returns the next place, -1 for a collision."""
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
    """The same keys in a table twice as large."""
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
    """The distinct triples in the order of their first appearance; rearranges `triples` itself."""
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
    """The rows in the order of their strings' bytes: sorted by eight bytes, then those that tie by the next eight."""
    lines, offsets = strings.lines, strings.offsets
    sizes = np.diff(offsets) - 1
    order = np.arange(len(strings))
    tied, groups, depth = order.copy(), np.zeros(len(strings), np.int64), 0  # places in `order`, and who ties with whom
    while len(tied) > 1:
        rows = order[tied]
        at_end = depth >= sizes[rows].max()  # only trailing NUL characters are left to tell them apart
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
    """The bytes of each string from `depth` on as one number, filled up with zeros."""
    keys = np.zeros(len(rows), np.uint64)
    for place in range(len(rows)):
        start, end = offsets[rows[place]] + depth, offsets[rows[place] + 1] - 1
        for position in range(start, min(start + 8, end)):
            keys[place] |= np.uint64(lines[position]) << np.uint64(8 * (7 - position + start))
    return keys


@numba.njit(cache=True)
def untidy(lines: UInt8Array, offsets: Int64Array) -> BoolArray:
    """Which strings have white space at an end, in a run, or other than a space; those that may have count as well."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(found)):
        after_space, bad = True, False
        for position in range(offsets[row], offsets[row + 1] - 1):
            byte = lines[position]
            space = byte == 32
            # Beyond ASCII white space begins with one of these: U+0085, U+00A0, U+1680, U+2000–205F, U+3000.
            bad |= (space and after_space) or 9 <= byte <= 13 or byte == 0xC2 or 0xE1 <= byte <= 0xE3
            after_space = space
        found[row] = bad or (after_space and offsets[row + 1] - offsets[row] > 1)
    return found


@numba.njit(cache=True)
def gather(data: UInt8Array, starts: Int64Array, sizes: Int64Array, lines: UInt8Array) -> None:
    """Fills `lines` with the strings that start there, a line feed behind each."""
    end = 0
    for row in range(len(starts)):
        start, size = starts[row], sizes[row]
        for position in range(size):
            lines[end + position] = data[start + position]
        lines[end + size] = 10
        end += size + 1
