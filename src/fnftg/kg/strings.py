"""Millions of strings on disk: a text file with one string a line, and an array saying where each line starts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array, Int64Array, UInt8Array


class StringList(Protocol):
    """A read-only list of one-line strings, whole or as a view of several."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> str: ...
    def slice(self, start: int, stop: int) -> list[str]: ...


class Strings:
    """Strings as two flat arrays, memory-mapped or not; nothing is read before it is asked for."""

    def __init__(self, lines: UInt8Array, offsets: Int64Array):
        self.lines = lines  # (total bytes,): every string in UTF-8, each followed by a line feed
        self.offsets = offsets  # (n + 1,): string i starts at offsets[i] and its line ends at offsets[i + 1]
        self._plain = np.asarray(lines), np.asarray(offsets)  # slices of a memory map take ten times as long

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
        return self.encoded(row).decode()

    def encoded(self, row: int) -> bytes:
        lines, offsets = self._plain
        return lines[offsets[row] : offsets[row + 1] - 1].tobytes()

    def slice(self, start: int, stop: int) -> list[str]:
        stop = min(stop, len(self))
        if start >= stop:
            return []
        return self.lines[self.offsets[start] : self.offsets[stop] - 1].tobytes().decode().split("\n")


class ChainedStrings:
    """One list after another, none of them copied."""

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
    """The strings in order, in lists of at most `size`."""
    for start in range(0, len(strings), size):
        yield strings.slice(start, start + size)


def as_series(strings: StringList) -> pl.Series:
    """All strings at once, for work that needs them together."""
    return pl.concat([pl.Series([], dtype=pl.String), *map(pl.Series, blocks(strings))])


def search(strings: Strings, order: Int32Array, wanted: str) -> int | None:
    """The row of `wanted` by binary search, `order` being the rows sorted by their bytes."""
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
