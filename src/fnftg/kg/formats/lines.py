"""Read plain or compressed text files in blocks of whole lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fnftg.errors import FnftgError
from fnftg.kg.formats.compressed_files import open_binary

BLOCK = 1 << 24  # bytes of text in a block
LONGEST_LINE = 1 << 26
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
COMPRESSED = (b"\x1f\x8b", b"x\x9c", b"x\xda", b"\x28\xb5\x2f\xfd")  # magic numbers of gzip, zlib and Zstandard
MAYBE_COMPRESSED = (b"x\x01", b"x^")  # zlib or text
BLANK_LINES = re.compile(rb"(?:[ \t\r]*\n)+")


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file. The last line of the file may lack its line feed."""

    path: Path
    data: bytes
    first_line: int  # counted from 1

    @property
    def place(self) -> str:
        return f"{self.path}, line {self.first_line}"

    def for_polars(self) -> bytes:
        """Return the data in a form that Polars reads correctly.

        Leading blank lines are removed, because Polars would expect one column after them. Text that looks like
        compressed data gets a byte order mark, because Polars would unpack it without a limit.
        """
        self.explain_compression()
        blank = BLANK_LINES.match(self.data)
        data = self.data[blank.end() :] if blank else self.data
        return BYTE_ORDER_MARK + data if data.startswith((*COMPRESSED, *MAYBE_COMPRESSED)) else data

    def explain_compression(self) -> None:
        """Raise if the data is compressed."""
        if self.data.startswith(COMPRESSED):
            raise FnftgError(
                f"{self.place}: this is compressed data; rename the file to end in .gz or .zst, or unpack it."
            )

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line with its number. Slow; for error messages."""
        number, start = self.first_line, 0
        while start < len(self.data):
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            yield number, self.data[start:end].removesuffix(b"\r")
            number, start = number + 1, end + 1

    def explain_encoding(self) -> None:
        """Raise for the first line that is not UTF-8."""
        try:
            self.data.decode()
        except UnicodeDecodeError as error:
            line = self.first_line + self.data.count(b"\n", 0, error.start)
            raise FnftgError(
                f"{self.path}, line {line}: the byte 0x{self.data[error.start]:02x} is not UTF-8; "
                "convert the file to UTF-8."
            ) from error


def line_blocks(
    path: Path, quotes: bool = False, size: int = BLOCK, max_size: int | None = None
) -> Iterator[LineBlock]:
    """Yield the file in blocks of about `size` bytes.

    Args:
        path: a plain or compressed file.
        quotes: do not split quoted fields, which may contain line breaks.
        size: bytes of a block.
        max_size: bytes that the file may unpack to.
    """
    rest, line, blank = b"", 1, True
    with open_binary(path, max_size) as file:
        while read := file.read(size):
            data = rest + (read.removeprefix(BYTE_ORDER_MARK) if line == 1 and not rest else read)
            cut = _last_line_end(data, quotes)
            if cut == 0 and len(data) > LONGEST_LINE:
                raise FnftgError(
                    f"{path}, line {line}: longer than {LONGEST_LINE >> 20} MiB without a line break; "
                    "is this the right file, or is a quote left open?"
                )
            block, rest = LineBlock(path, data[:cut], line), data[cut:]
            if cut and not block.data.isspace():
                blank = False
                block.explain_compression()
                yield block
            line += block.data.count(b"\n")
    if rest and not rest.isspace():
        blank = False
        block = LineBlock(path, rest, line)
        block.explain_compression()
        yield block
    if blank:
        raise FnftgError(f"{path} is empty: nothing to import.")


def _last_line_end(data: bytes, quotes: bool) -> int:
    """Return the end of the last complete line; with `quotes`, of the last line that ends outside quotes."""
    end = data.rfind(b"\n") + 1
    if quotes and data.count(b'"', 0, end) % 2 == 1:
        from fnftg.kg.row_table import last_line_end  # loads numba, which is slow and rarely needed here

        return int(last_line_end(np.frombuffer(data, np.uint8)))
    return end
