"""Folders that are computed once: named by their content, made under a lock, there only when whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fnftg.arrays import AnyArray
from fnftg.errors import FnftgError
from fnftg.files import new_folder


def cached_folder(cache: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache; where it is not there yet, `make` fills it. Other processes wait meanwhile."""
    folder = cache / name
    if folder.is_dir():
        return folder
    with _lock(cache, name):
        if not folder.is_dir():
            with new_folder(folder) as partial:
                make(partial)
    return folder


def cached_array(folder: Path, name: str) -> AnyArray:
    """An array of a cached folder, mapped into memory."""
    try:
        array: AnyArray = np.load(folder / name, mmap_mode="r", allow_pickle=False)
        return array
    except (OSError, ValueError) as error:
        raise FnftgError(f"The cached folder {folder} is damaged: delete it and run this again.") from error


@contextlib.contextmanager
def _lock(cache: Path, name: str) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = os.open(cache / f".{name}.making", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise FnftgError(f"The cache folder {cache} cannot be written to: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        (cache / f".{name}.making").unlink(missing_ok=True)  # whoever waits for it finds the folder
    finally:
        os.close(lock)
