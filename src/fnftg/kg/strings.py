"""Large lists of strings, stored as a text file with one string per line and an array of line offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array, Int64Array, UInt8Array
from fnftg.errors import DamagedError


class StringList(Protocol):
    """A read-only list of one-line strings."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> str: ...
    def slice(self, start: int, stop: int) -> list[str]: ...


class Strings:
    """Strings in two flat arrays, which may be memory-mapped. Strings are decoded on access."""

    def __init__(self, lines: UInt8Array, offsets: Int64Array):
        self.lines = lines  # (total bytes,): the strings in UTF-8, each followed by a line feed
        self.offsets = offsets  # (n + 1,): line i is lines[offsets[i] : offsets[i + 1]]
        self._plain = np.asarray(lines), np.asarray(offsets)  # slicing a memory map is ten times slower

    @classmethod
    def of(cls, strings: Sequence[str]) -> Strings:
        encoded = [string.encode() for string in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(line) + 1 for line in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(line + b"\n" for line in encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} strings")
        return _decoded(self.encoded(row))

    def encoded(self, row: int) -> bytes:
        lines, offsets = self._plain
        return lines[offsets[row] : offsets[row + 1] - 1].tobytes()

    def slice(self, start: int, stop: int) -> list[str]:
        stop = min(stop, len(self))
        if start >= stop:
            return []
        found = _decoded(self.lines[self.offsets[start] : self.offsets[stop] - 1].tobytes()).split("\n")
        if len(found) != stop - start:
            raise DamagedError(f"A store has {len(found):,} lines instead of {stop - start:,}: import the graph again.")
        return found


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DamagedError("A string of a store is not UTF-8: import the graph again.") from error


class ChainedStrings:
    """Two lists concatenated without copying."""

    def __init__(self, first: StringList, second: StringList):
        self.parts = (first, second)
        self.starts = (0, len(first))

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} strings")
        part = bisect_right(self.starts, row) - 1
        return self.parts[part][row - self.starts[part]]

    def slice(self, start: int, stop: int) -> list[str]:
        strings: list[str] = []
        for part, first in zip(self.parts, self.starts, strict=True):
            strings += part.slice(max(start - first, 0), max(stop - first, 0))
        return strings


def blocks(strings: StringList, size: int = 100_000) -> Iterator[list[str]]:
    """Yield the strings in order, in lists of at most `size`."""
    for start in range(0, len(strings), size):
        yield strings.slice(start, start + size)


def as_series(strings: StringList) -> pl.Series:
    """Return all strings as one series."""
    return pl.concat([pl.Series([], dtype=pl.String), *map(pl.Series, blocks(strings))])


def search(strings: Strings, order: Int32Array, wanted: str) -> int | None:
    """Return the row of `wanted`, or None, by binary search. `order` has the rows sorted by their bytes."""
    key, low, high = wanted.encode(), 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if strings.encoded(int(order[middle])) < key:
            low = middle + 1
        else:
            high = middle
    if low < len(order) and strings.encoded(int(order[low])) == key:
        return int(order[low])
    return None


def is_unicode(string: str) -> bool:
    """Return whether a string can be encoded as UTF-8. Arguments and file names in other encodings cannot."""
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True
