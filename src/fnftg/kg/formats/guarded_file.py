"""Check RDF files for deep nesting and harmful XML entities before a parser reads them."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import BinaryIO

from fnftg.errors import FnftgError
from fnftg.kg.formats.nesting import DEEP, Nesting

# Levels. A parser's stack allows some thousands; the time and memory of JSON-LD grow with their square.
DEEPEST = {"nt": 500, "nq": 500, "ttl": 500, "rdfxml": 1000, "jsonld": 128}
LONGEST_TOKEN = 1 << 24  # bytes; in all syntaxes
PART = 1 << 20  # bytes

# XML entities: many ontologies use short ones for the prefixes of IRIs.
DECLARATION, LONGEST_DECLARATION, MOST_DECLARATIONS = b"<!ENTITY", 2048, 1 << 22  # bytes
HARMLESS = re.compile(rb'<!ENTITY\s+[^\s"%&<>]+\s+"([^"&%<>]{0,1000})"\s*>')
FREE_EXPANSION, LARGEST_EXPANSION = 1 << 26, 16  # bytes that they may add, and multiple of the file's size beyond that


class GuardedFile(io.RawIOBase):
    """The content of `file`. Every part is checked before it is returned."""

    def __init__(self, path: Path, file: BinaryIO, format: str):
        self.path, self.file, self.format = path, file, format
        self.nesting = Nesting(format, DEEPEST[format], LONGEST_TOKEN)
        self.checked = memoryview(b"")  # not returned yet
        self.count, self.tail, self.longest_entity = 0, b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self.checked:
            self.checked = memoryview(self._part())
        count = min(len(buffer), len(self.checked))
        buffer[:count] = self.checked[:count]
        self.checked = self.checked[count:]
        return count

    def _part(self) -> bytes:
        data = self.file.read(PART)
        if self.format == "rdfxml":
            data = self._with_harmless_entities(data)
        self.count += len(data)
        if wrong := self.nesting.add(data):
            if wrong == DEEP:
                trouble = f"nested more than {DEEPEST[self.format]} levels deep; flatten it, or convert it to N-Triples"
            else:
                trouble = f"a tag or a text is longer than {LONGEST_TOKEN >> 20} MiB; shorten or remove it"
            raise FnftgError(f"{self.path}, line {self.nesting.line}: {trouble}.")
        expansion = self.nesting.references * self.longest_entity
        if expansion > FREE_EXPANSION and expansion > LARGEST_EXPANSION * self.count:
            raise FnftgError(
                f"{self.path}, line {self.nesting.line}: XML entities expand the file to more than {LARGEST_EXPANSION} "
                "times its size; write them out, or convert the file to N-Triples."
            )
        return data

    def _with_harmless_entities(self, data: bytes) -> bytes:
        """Return the part, extended to the end of its last entity declaration. Raises for an entity that is long,
        external or refers to others."""
        content, before = self.tail + data, len(self.tail)
        place = content.find(DECLARATION)
        while place >= 0:
            found = HARMLESS.match(content, place)
            if not found:
                more = self.file.read(LONGEST_DECLARATION) if len(content) - place < LONGEST_DECLARATION else b""
                if not more:
                    raise FnftgError(
                        f"{self.path}: an XML entity is too long, external or refers to other entities; write it out, "
                        "or convert the file to N-Triples."
                    )
                content += more
                continue
            if len(content) > MOST_DECLARATIONS:
                raise FnftgError(f"{self.path}: too many XML entities are declared; convert the file to N-Triples.")
            self.longest_entity = max(self.longest_entity, len(found[1]))
            place = content.find(DECLARATION, found.end())
        self.tail = content[1 - len(DECLARATION) :]
        return content[before:]
