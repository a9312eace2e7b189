"""Read and write arrays in .npy files. Type, shape, size and values are checked before any other code uses them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from fnftg.arrays import AnyArray, Int64Array, UInt8Array
from fnftg.errors import DamagedError, FnftgError

MAX_HEADER = 10_000  # bytes
BLOCK = 1 << 22  # values compared at a time
Shape = tuple["int | None", ...]  # None: any length


class UnexpectedContentError(ValueError):
    """An array file has unexpected content. The message completes the sentence "PATH is damaged: …"."""


def write_array(path: Path, array: AnyArray) -> None:
    """Write an .npy file. Unlike `numpy.save`, this raises an `OSError` with its errno when the disk is full."""
    array = np.ascontiguousarray(array)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data.cast("B") if array.size else b"")


def write_rows(path: Path, count: int, width: int, parts: Iterator[AnyArray]) -> None:
    """Write a float32 array of shape (count, width) part by part, without holding all of it in memory."""
    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, "<f4").data.cast("B") if part.size else b"")


def load_array(
    path: Path,
    dtype: npt.DTypeLike,
    shape: Shape = (None,),
    bounds: tuple[int, int] | None = None,
    ascending: bool = False,
    mode: Literal["r", "c"] = "r",
) -> AnyArray:
    """Map an array into memory after checking its type, shape and values.

    Args:
        path: an .npy file.
        dtype: the required type.
        shape: the required shape; None stands for any length.
        bounds: the smallest value allowed, and the first value above the range.
        ascending: whether the values must be in ascending order.
        mode: r for a read-only array, c for a writable one whose changes stay in memory.

    Raises:
        DamagedError: if the file cannot be read or does not pass the checks.
    """
    expected = np.dtype(dtype)
    try:
        with open(path, "rb") as file:
            found, start = _header(file)
            size = os.fstat(file.fileno()).st_size
        given = tuple(int(length) for length in found["shape"])
        if np.dtype(found["descr"]) != expected or found["fortran_order"]:
            raise UnexpectedContentError(f"it holds {found['descr']!s} instead of {expected}")
        fits = len(given) == len(shape) and all(
            length >= 0 and wanted in (None, length) for length, wanted in zip(given, shape, strict=False)
        )
        if not fits:
            raise UnexpectedContentError(f"its shape is {given}")
        count = int(np.prod(given, dtype=object))
        if size != start + count * expected.itemsize:
            raise UnexpectedContentError(f"it has {size:,} bytes instead of {start + count * expected.itemsize:,}")
        # An empty file cannot be mapped.
        array: AnyArray = np.memmap(path, expected, mode, start, given) if count else np.empty(given, expected)
        if bounds is not None and count and not (bounds[0] <= array.min() and array.max() < bounds[1]):
            raise UnexpectedContentError(f"a value is not between {bounds[0]:,} and {bounds[1]:,}")
        if ascending and not is_ascending(array):
            raise UnexpectedContentError("its values are not in ascending order")
        return array
    except PermissionError as error:
        raise FnftgError(f"{path} cannot be read: permission denied.") from error
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnexpectedContentError, OverflowError) as error:
        raise DamagedError(f"{path} is damaged: {error}.") from error


def load_offsets(path: Path, rows: int, total: int) -> Int64Array:
    """Load the offsets (rows + 1,) of a ragged array with `total` values: the start of each row and the last end."""
    offsets = load_array(path, np.int64, (rows + 1,), ascending=True)
    if offsets[0] != 0 or offsets[-1] != total:
        raise DamagedError(f"{path} is damaged: its offsets do not fit {total:,} values.")
    return offsets


def map_bytes(path: Path) -> UInt8Array:
    """Map the content of a file into memory."""
    try:
        return np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    except PermissionError as error:
        raise FnftgError(f"{path} cannot be read: permission denied.") from error
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from error


def is_ascending(array: AnyArray, strictly: bool = False) -> bool:
    """Return whether the values are in (strictly) ascending order. Uses bounded memory."""
    compare: Any = np.greater if strictly else np.greater_equal
    parts = (array[start : start + BLOCK + 1] for start in range(0, max(len(array) - 1, 0), BLOCK))
    return all(bool(compare(part[1:], part[:-1]).all()) for part in parts)


def _header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the header of an .npy file and the offset of its first value."""
    try:
        version = np.lib.format.read_magic(file)
        read: Any = np.lib.format.read_array_header_2_0 if version[0] == 2 else np.lib.format.read_array_header_1_0
        shape, fortran_order, dtype = read(file, max_header_size=MAX_HEADER)
        return {"shape": shape, "fortran_order": fortran_order, "descr": dtype}, file.tell()
    except Exception as error:  # numpy evaluates the header as Python, which fails in many ways
        raise UnexpectedContentError("it is not an array") from error
