"""Entities and relations by what people call them: an id, or a name, whatever its case; and those that begin alike."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array
from fnftg.errors import FnftgError, shortened
from fnftg.kg.graph import Vocabulary, short_names
from fnftg.kg.store import as_chunk, write_array, write_strings
from fnftg.kg.strings import Strings, blocks

SUGGESTIONS, NEARBY = 5, 500  # shown to those who err; names looked at in either direction
BLOCK = 100_000  # names that are in memory as strings at once


def plain(name: str) -> str:
    """What two spellings of a name have in common: lower case, blanks for underscores, none in front."""
    return " ".join(name.lower().replace("_", " ").split())


@dataclass(frozen=True)
class NameTable:
    """The plain names and ids of a vocabulary, sorted, and whose they are."""

    names: Strings  # (m,): ascending
    rows: Int32Array  # (m,)

    @classmethod
    def of(cls, vocabulary: Vocabulary, first: int = 0) -> NameTable:
        """Of the rows from `first` on."""
        parts = []
        for start in range(first, len(vocabulary), BLOCK):
            stop = min(start + BLOCK, len(vocabulary))
            rows = pl.Series("row", np.arange(start, stop, dtype=np.int32))
            for column in (short_names(vocabulary, start, stop), pl.Series(vocabulary.ids.slice(start, stop))):
                parts.append(pl.DataFrame({"name": _plain(column), "row": rows}))
        table = (
            pl.concat(parts) if parts else pl.DataFrame({"name": [], "row": []}, {"name": pl.String, "row": pl.Int32})
        )
        table = table.filter(pl.col("name") != "").unique().sort("name", "row")
        chunks = (as_chunk(part["name"].to_list()) for part in table.iter_slices(BLOCK))
        lines, lengths = zip(*chunks, strict=True) if len(table) else ((), ())
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))]).astype(np.int64)
        return cls(Strings(np.frombuffer(b"".join(lines), np.uint8), offsets), table["row"].to_numpy())

    def save(self, folder: Path, name: str) -> None:
        write_strings(folder, f"{name}.names", map(as_chunk, blocks(self.names)))
        write_array(folder / f"{name}.names.rows.npy", self.rows)

    @classmethod
    def open(cls, folder: Path, name: str) -> NameTable:
        file = folder / f"{name}.names.txt"
        lines = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.empty(0, np.uint8)
        offsets, rows = (
            np.load(folder / f"{name}.names.{part}.npy", mmap_mode="r", allow_pickle=False)
            for part in ("offsets", "rows")
        )
        return cls(Strings(lines, offsets), rows)

    def place(self, name: bytes) -> int:
        """Where a name stands, or would stand."""
        low, high = 0, len(self.names)
        while low < high:
            middle = (low + high) // 2
            if self.names.encoded(middle) < name:
                low = middle + 1
            else:
                high = middle
        return low

    def equal(self, name: str, limit: int) -> list[int]:
        """Rows that have the name, ascending."""
        key = plain(name).encode()
        found: list[int] = []
        place = self.place(key)
        while place < len(self.names) and len(found) < limit and self.names.encoded(place) == key:
            found.append(int(self.rows[place]))
            place += 1
        return found

    def beginning(self, prefix: str, limit: int) -> list[int]:
        """Distinct rows with a name that begins so, shortest way of the alphabet first."""
        key = plain(prefix).encode()
        place, found = self.place(key), dict[int, None]()
        while place < len(self.names) and len(found) < limit and self.names.encoded(place).startswith(key):
            found[int(self.rows[place])] = None
            place += 1
        return list(found)

    def similar(self, name: str, limit: int) -> list[int]:
        """Distinct rows whose names are spelled alike, among those that stand near in the alphabet."""
        key = plain(name)
        place = self.place(key.encode())
        start = max(place - NEARBY, 0)
        near = self.names.slice(start, place + NEARBY)
        row_of = {other: int(self.rows[start + at]) for at, other in reversed(list(enumerate(near)))}
        return list(dict.fromkeys(row_of[found] for found in difflib.get_close_matches(key, row_of, limit)))


class NameIndex:
    """Finds the rows of one kind of thing in a graph."""

    def __init__(self, vocabulary: Vocabulary, kind: str, folder: Path | None = None, base: NameIndex | None = None):
        self.vocabulary, self.kind, self.folder = vocabulary, kind, folder
        self.base = base  # of a view: the names of what it extends

    @cached_property
    def table(self) -> NameTable:
        """Made when a name is first looked for, unless the folder has it."""
        if self.folder is None:
            return NameTable.of(self.vocabulary, len(self.base.vocabulary) if self.base else 0)
        return NameTable.open(self.folder, self.kind)

    def row(self, wanted: str | int) -> int:
        """The row that is meant, or a sentence that helps to say what is."""
        if isinstance(wanted, (int, np.integer)) and not isinstance(wanted, bool):
            if not 0 <= wanted < len(self.vocabulary):
                raise FnftgError(f"There is no {self.kind} in row {wanted}: there are {len(self.vocabulary):,}.")
            return int(wanted)
        if not isinstance(wanted, str) or not wanted.strip():
            raise FnftgError(f"The {self.kind} asked about is empty: give its id or its name.")
        row = self.vocabulary.find(wanted)
        if row is not None:
            return row
        found = self.equal(wanted, 1_000)
        exact = [row for row in found if self.vocabulary.name(row) == wanted]
        if len(exact) == 1 or len(found) == 1:
            return (exact if len(exact) == 1 else found)[0]
        if found:
            which = self.listed((exact or found)[:SUGGESTIONS])
            count = f"{len(exact or found):,} {self.plural}"
            raise FnftgError(f"{shortened(wanted)} is the name of {count}: give the id of one, such as {which}.")
        near = list(dict.fromkeys([*self.search(wanted, SUGGESTIONS), *self.similar(wanted)]))[:SUGGESTIONS]
        hint = f": did you mean {self.listed(near)}?" if near else ": check its spelling."
        raise FnftgError(f"The graph has no {self.kind} {shortened(wanted)}{hint}")

    def equal(self, name: str, limit: int) -> list[int]:
        return self._both(self.base.equal(name, limit) if self.base else [], self.table.equal(name, limit), limit)

    def search(self, prefix: str, limit: int) -> list[int]:
        """Rows with an id or a name that begins so."""
        found = self.base.search(prefix, limit) if self.base else []
        return self._both(found, self.table.beginning(prefix, limit), limit)

    def similar(self, name: str, limit: int = SUGGESTIONS) -> list[int]:
        return self._both(self.base.similar(name, limit) if self.base else [], self.table.similar(name, limit), limit)

    def listed(self, rows: list[int]) -> str:
        return ", ".join(f"{self.vocabulary.ids[row]} ({self.vocabulary.name(row)})" for row in rows)

    @property
    def plural(self) -> str:
        return {"entity": "entities", "relation": "relations"}[self.kind]

    @staticmethod
    def _both(first: list[int], second: list[int], limit: int) -> list[int]:
        return list(dict.fromkeys([*first, *second]))[:limit]


def _plain(names: pl.Series) -> pl.Series:
    return names.str.to_lowercase().str.replace_all("_", " ").str.replace_all(r"\s+", " ").str.strip_chars()
