"""Lookup of entities and relations by id, name or prefix, ignoring case and Unicode form."""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from fnftg.array_files import load_array, load_offsets, map_bytes, write_array
from fnftg.arrays import Int32Array
from fnftg.console import log
from fnftg.errors import DamagedError, FnftgError, shortened
from fnftg.kg.graph import Vocabulary, short_names
from fnftg.kg.store import as_chunk, write_strings
from fnftg.kg.strings import Strings, blocks, is_unicode

SUGGESTIONS, NEARBY = 5, 500  # suggestions in an error; names compared in either direction
BLOCK = 100_000  # names in memory as strings at a time


BLANKS = re.compile(r"[\t-\r _]+")  # ASCII whitespace and underscores


def plain(name: str) -> str:
    """Normalise a name: NFC, lower case, single blanks instead of underscores, stripped."""
    if name.isascii():  # nearly all names, and 200 times as fast
        return BLANKS.sub(" ", name.lower()).strip(" ")
    return str(_plain(pl.Series([name]))[0])


@dataclass(frozen=True)
class NameTable:
    """The normalised names and ids of a vocabulary in sorted order, with their rows."""

    names: Strings  # (m,): sorted
    rows: Int32Array  # (m,)

    @classmethod
    def of(cls, vocabulary: Vocabulary, first: int = 0) -> NameTable:
        """Build the table of the rows from `first` on."""
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
    def open(cls, folder: Path, name: str, rows_in_graph: int) -> NameTable:
        """Open a saved table of a vocabulary with this many rows as a memory map."""
        rows = load_array(folder / f"{name}.names.rows.npy", np.int32, bounds=(0, rows_in_graph))
        lines = map_bytes(folder / f"{name}.names.txt")
        return cls(Strings(lines, load_offsets(folder / f"{name}.names.offsets.npy", len(rows), len(lines))), rows)

    def place(self, name: bytes) -> int:
        """Return the position at which a name is, or would be inserted."""
        low, high = 0, len(self.names)
        while low < high:
            middle = (low + high) // 2
            if self.names.encoded(middle) < name:
                low = middle + 1
            else:
                high = middle
        return low

    def equal(self, name: str, limit: int) -> list[int]:
        """Return the rows with this name, in ascending order."""
        key = plain(name).encode()
        found: list[int] = []
        place = self.place(key)
        while place < len(self.names) and len(found) < limit and self.names.encoded(place) == key:
            found.append(int(self.rows[place]))
            place += 1
        return found

    def beginning(self, prefix: str, limit: int) -> list[int]:
        """Return distinct rows with a name that starts with the prefix, in alphabetical order."""
        key = plain(prefix).encode()
        place, found = self.place(key), dict[int, None]()
        while place < len(self.names) and len(found) < limit and self.names.encoded(place).startswith(key):
            found[int(self.rows[place])] = None
            place += 1
        return list(found)

    def similar(self, name: str, limit: int) -> list[int]:
        """Return distinct rows with a similarly spelled name, among the alphabetical neighbours."""
        key = plain(name)
        place = self.place(key.encode())
        start = max(place - NEARBY, 0)
        near = self.names.slice(start, place + NEARBY)
        row_of = {other: int(self.rows[start + at]) for at, other in reversed(list(enumerate(near)))}
        return list(dict.fromkeys(row_of[found] for found in difflib.get_close_matches(key, row_of, limit)))


class NameIndex:
    """Finds the row of an entity or a relation by id or name."""

    def __init__(self, vocabulary: Vocabulary, kind: str, folder: Path | None = None, base: NameIndex | None = None):
        self.vocabulary, self.kind, self.folder = vocabulary, kind, folder
        self.base = base  # of a view: the index of the graph that it extends

    @cached_property
    def table(self) -> NameTable:
        """The sorted names: read from the folder, or built on first use."""
        if self.folder is None:
            return NameTable.of(self.vocabulary, len(self.base.vocabulary) if self.base else 0)
        try:
            return NameTable.open(self.folder, self.kind, len(self.vocabulary))
        except DamagedError as error:
            log(f"{error} The names are sorted again.")
            return NameTable.of(self.vocabulary)

    def row(self, wanted: str | int) -> int:
        """Return the row of an id, a name or a row number.

        Raises:
            FnftgError: if nothing or more than one thing has this name; the message suggests alternatives.
        """
        if isinstance(wanted, (int, np.integer)) and not isinstance(wanted, bool):
            if not 0 <= wanted < len(self.vocabulary):
                raise FnftgError(
                    f"There is no {self.kind} in row {wanted}: the graph has {len(self.vocabulary):,} {self.plural}."
                )
            return int(wanted)
        if not isinstance(wanted, str) or not wanted.strip():
            raise FnftgError(f"The {self.kind} is empty: give its id or name.")
        if not is_unicode(wanted):
            raise FnftgError(f"The {self.kind} {shortened(wanted)} is not Unicode text: give its id or name in UTF-8.")
        row = self.vocabulary.find(wanted)
        if row is not None:
            return row
        found = self.equal(wanted, 1_000)
        spelled = unicodedata.normalize("NFC", wanted)
        exact = [row for row in found if unicodedata.normalize("NFC", self.vocabulary.name(row)) == spelled]
        if len(exact) == 1 or len(found) == 1:
            return (exact if len(exact) == 1 else found)[0]
        if found:
            which = self.listed((exact or found)[:SUGGESTIONS])
            count = f"{len(exact or found):,} {self.plural}"
            raise FnftgError(f"{shortened(wanted)} is the name of {count}: give an id instead, such as {which}.")
        near = list(dict.fromkeys([*self.search(wanted, SUGGESTIONS), *self.similar(wanted)]))[:SUGGESTIONS]
        hint = f": did you mean {self.listed(near)}?" if near else ": check its spelling."
        raise FnftgError(f"The graph has no {self.kind} {shortened(wanted)}{hint}")

    def equal(self, name: str, limit: int) -> list[int]:
        return self._both(self.base.equal(name, limit) if self.base else [], self.table.equal(name, limit), limit)

    def search(self, prefix: str, limit: int) -> list[int]:
        """Return rows with an id or a name that starts with the prefix."""
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
    names = names.str.normalize("NFC").str.to_lowercase()
    return names.str.replace_all(r"[\s_]+", " ").str.strip_chars()
