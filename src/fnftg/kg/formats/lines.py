"""Files as people have them, plain or compressed, read in blocks of whole lines."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

from fnftg.console import progress
from fnftg.errors import FnftgError

COMPRESSIONS = (".gz", ".zst")
BLOCK = 1 << 24  # bytes of text in a block
LONGEST_LINE = 1 << 26
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def plain_suffix(path: Path) -> str:
    """The ending that tells the format: `.tsv` for `a.tsv.gz`."""
    path = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return path.suffix.lower()


def existing(folder: Path, name: str) -> Path | None:
    """The file of that name, plain or compressed, if there is one."""
    candidates = (folder / f"{name}{compression}" for compression in ("", *COMPRESSIONS))
    return next((path for path in candidates if path.is_file()), None)


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The file's content, decompressed, with a progress bar; trouble with the file becomes one sentence."""
    try:
        with open(path, "rb") as raw, progress(f"Reading {path.name}", os.fstat(raw.fileno()).st_size) as advance:
            counted = _CountedFile(raw, advance)
            if path.suffix.lower() == ".gz":
                yield gzip.GzipFile(fileobj=counted)  # type: ignore[misc]
            elif path.suffix.lower() == ".zst":
                yield io.BufferedReader(_ZstandardFile(counted))
            else:
                yield counted  # type: ignore[misc]
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise FnftgError(
            f"{path} is cut short or is not {path.suffix[1:]} data ({error}): fetch or compress it again."
        ) from error
    except OSError as error:
        if error.filename is not None and Path(error.filename) == path:
            raise FnftgError(f"{path} cannot be read: {error.strerror}.") from error
        raise


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file; the last may lack its line feed at the end of the file."""

    path: Path
    data: bytes
    first_line: int  # counted from 1

    @property
    def place(self) -> str:
        return f"{self.path}, line {self.first_line}"

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line with its number; slow, for finding what is wrong."""
        number, start = self.first_line, 0
        while start < len(self.data):
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            yield number, self.data[start:end].removesuffix(b"\r")
            number, start = number + 1, end + 1

    def explain_encoding(self) -> None:
        """Raises for the first line that is not UTF-8, if there is one."""
        try:
            self.data.decode()
        except UnicodeDecodeError as error:
            line = self.first_line + self.data.count(b"\n", 0, error.start)
            raise FnftgError(
                f"{self.path}, line {line}: the byte 0x{self.data[error.start]:02x} is not UTF-8; "
                "convert the file to UTF-8."
            ) from error


def line_blocks(path: Path, quotes: bool = False, size: int = BLOCK) -> Iterator[LineBlock]:
    """The file in blocks of about `size` bytes; with `quotes`, never cut inside a quoted field."""
    rest, line, blank = b"", 1, True
    with open_binary(path) as file:
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
                yield block
            line += block.data.count(b"\n")
    if rest and not rest.isspace():
        blank = False
        yield LineBlock(path, rest, line)
    if blank:
        raise FnftgError(f"{path} is empty: nothing to import.")


def _last_line_end(data: bytes, quotes: bool) -> int:
    """Where the last whole line ends; outside quotes, their number so far is even."""
    end = data.rfind(b"\n") + 1
    if quotes:
        open_quote = data.count(b'"', 0, end) % 2 == 1
        while end and open_quote:
            start = data.rfind(b"\n", 0, end - 1) + 1
            open_quote ^= data.count(b'"', start, end) % 2 == 1
            end = start
    return end


class _CountedFile(io.BufferedIOBase):
    """A file that tells the progress bar how far it was read."""

    def __init__(self, raw: BinaryIO, advance: Callable[[int], None]):
        self.raw_file, self.advance = raw, advance

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        data = self.raw_file.read(-1 if size is None else size)
        self.advance(len(data))
        return data


class _ZstandardFile(io.RawIOBase):
    """Zstandard frames one after the other; unlike the library's own reader, a cut one is an error."""

    def __init__(self, source: io.BufferedIOBase):
        self.source = source
        self.frame = zstandard.ZstdDecompressor().decompressobj()
        self.decoded, self.unused = b"", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self.decoded:
            data = self.unused or self.source.read(1 << 20)
            self.unused = b""
            if self.frame.eof:
                if not data:
                    return 0
                self.frame = zstandard.ZstdDecompressor().decompressobj()
            elif not data:
                raise EOFError("the data ends inside a frame")
            self.decoded = self.frame.decompress(data)
            self.unused = self.frame.unused_data
        count = min(len(buffer), len(self.decoded))
        buffer[:count] = self.decoded[:count]
        self.decoded = self.decoded[count:]
        return count
