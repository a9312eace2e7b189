"""Open plain and compressed files, with a limit on the unpacked size."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import zstandard

from fnftg.console import progress
from fnftg.errors import FnftgError

COMPRESSIONS = (".gz", ".zst")
FREE_SIZE = 2 << 30  # bytes that any file may unpack to
LARGEST_RATIO = 100  # of unpacked to packed bytes beyond that; texts have 3 to 20
LARGEST_WINDOW = 1 << 27  # bytes; the window of a Zstandard frame, which the decoder keeps in memory
PACKED_PIECE = 512  # bytes; they unpack to at most 16 MiB, as Zstandard packs up to 128 KiB into four bytes


def plain_suffix(path: Path) -> str:
    """Return the extension without the compression: `.tsv` for `a.tsv.gz`."""
    path = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return path.suffix.lower()


def existing(folder: Path, name: str) -> Path | None:
    """Return the file of this name, plain or compressed, or None."""
    candidates = (folder / f"{name}{compression}" for compression in ("", *COMPRESSIONS))
    return next((path for path in candidates if path.is_file()), None)


@contextmanager
def open_binary(path: Path, max_size: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed and with a progress bar.

    Args:
        path: a plain, .gz or .zst file.
        max_size: bytes that the file may unpack to (see `check_unpacked`).

    Raises:
        FnftgError: if the file cannot be read, is damaged or unpacks to too much.
    """
    try:
        with open(path, "rb") as raw, progress(f"Reading {path.name}", os.fstat(raw.fileno()).st_size) as advance:
            counted = _CountedFile(raw, advance)
            if path.suffix.lower() == ".gz":
                yield _UnpackedFile(path, counted, gzip.GzipFile(fileobj=counted), max_size)  # type: ignore[misc]
            elif path.suffix.lower() == ".zst":
                unpacked = io.BufferedReader(_ZstandardFile(counted))
                yield _UnpackedFile(path, counted, unpacked, max_size)  # type: ignore[misc]
            else:
                yield counted  # type: ignore[misc]
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        if "too much memory" in str(error):
            raise FnftgError(
                f"{path} needs more than {LARGEST_WINDOW >> 20} MiB of memory to unpack: compress it without --long."
            ) from error
        raise FnftgError(
            f"{path} is truncated or not {path.suffix[1:]} data ({error}): download or compress it again."
        ) from error
    except OSError as error:
        if error.filename is not None and Path(error.filename) == path:
            raise FnftgError(f"{path} cannot be read: {error.strerror}.") from error
        raise


def check_unpacked(path: Path, packed: int, unpacked: int, max_size: int | None) -> None:
    """Raise if a file unpacks to more than `max_size` (`--max-size`), by default 2 GB or 100 times its size."""
    if max_size is None and unpacked > FREE_SIZE and unpacked > LARGEST_RATIO * packed:
        raise FnftgError(
            f"{path} unpacks to more than {FREE_SIZE / (1 << 30):.3g} GB and {LARGEST_RATIO} times its size: "
            "check that it is the right file, or allow more with --max-size 50GB."
        )
    if max_size is not None and unpacked > max_size:
        raise FnftgError(
            f"{path} unpacks to more than the {max_size:,} bytes of --max-size: check the file, or raise --max-size."
        )


class _CountedFile(io.BufferedIOBase):
    """A file that advances a progress bar as it is read."""

    def __init__(self, raw: BinaryIO, advance: Callable[[int], None]):
        self.raw_file, self.advance, self.count = raw, advance, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        data = self.raw_file.read(-1 if size is None else size)
        self.count += len(data)
        self.advance(len(data))
        return data


class _UnpackedFile(io.BufferedIOBase):
    """The content of a compressed file, with a limit on its size."""

    def __init__(self, path: Path, packed: _CountedFile, unpacked: io.BufferedIOBase, max_size: int | None):
        self.path, self.packed, self.unpacked, self.max_size = path, packed, unpacked, max_size
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        data = self.unpacked.read(size)
        self.count += len(data)
        check_unpacked(self.path, self.packed.count, self.count, self.max_size)
        return data


class _ZstandardFile(io.RawIOBase):
    """The content of consecutive Zstandard frames. Unlike the library's reader, this raises if a frame is truncated."""

    def __init__(self, source: io.BufferedIOBase):
        self.source = source
        self.decoder = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)  # one for all: slow to make
        self.frame = self.decoder.decompressobj()
        self.packed, self.place = memoryview(b""), 0  # read from the source, and how much of it is decoded
        self.decoded = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self.decoded:
            if self.place == len(self.packed):
                self.packed, self.place = memoryview(self.source.read(1 << 20)), 0
            if self.frame.eof:
                if not self.packed:
                    return 0
                self.frame = self.decoder.decompressobj()
            elif not self.packed:
                raise EOFError("the data ends inside a frame")
            piece = self.packed[self.place : self.place + PACKED_PIECE]
            self.decoded = memoryview(self.frame.decompress(piece))
            self.place += len(piece) - len(self.frame.unused_data)
        count = min(len(buffer), len(self.decoded))
        buffer[:count] = self.decoded[:count]
        self.decoded = self.decoded[count:]
        return count
