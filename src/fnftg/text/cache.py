"""A cache of folders, named by their content, created under a lock and rebuilt if damaged."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from fnftg.checksums import verify_folder
from fnftg.console import log
from fnftg.errors import FnftgError
from fnftg.files import new_folder, remove_leftovers

Content = TypeVar("Content")
KIND = "cache"


def cached(cache: Path, name: str, make: Callable[[Path], None], read: Callable[[Path], Content]) -> Content:
    """Return what `read` finds in the folder `name` of the cache. `make` fills the folder if it is missing or damaged.

    Other processes wait in the meantime. If the cache is not writable, the folder is created for this process only.
    """
    folder = cache / name
    found = read_cached(cache, name, read)
    if found is not None:
        return found
    try:
        with _lock(cache, name):
            if os.path.lexists(folder) and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError
            found = read_cached(cache, name, read)
            if found is None:
                with new_folder(folder, KIND, owned=True) as partial:
                    make(partial)
                found = read(folder)
            return found
    except PermissionError:
        log(f"The cache {cache} is not writable, so its content is computed for this command only.")
        folder = Path(tempfile.mkdtemp(prefix="fnftg-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        make(folder)
        return read(folder)


def read_cached(cache: Path, name: str, read: Callable[[Path], Content]) -> Content | None:
    """Return what `read` finds in the folder, or None if it is missing. A damaged folder is logged and removed."""
    folder = cache / name
    try:
        if not folder.is_dir():
            return None
        remove_leftovers(folder)
        verify_folder(folder, KIND)
        return read(folder)
    except FnftgError as error:
        log(f"{error} It was removed from the cache and will be computed again when it is needed.")
        shutil.rmtree(folder, ignore_errors=True)
    except PermissionError as error:
        log(f"{folder} cannot be read: {error.strerror}. It will be computed again when it is needed.")
    return None


@contextlib.contextmanager
def _lock(cache: Path, name: str) -> Iterator[None]:
    """Lock a folder of the cache. Raises a `PermissionError` if the cache is not writable."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = os.open(cache / f".{name}.making", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise PermissionError(error.errno, error.strerror) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        (cache / f".{name}.making").unlink(missing_ok=True)  # processes that wait for the lock find the folder
    finally:
        os.close(lock)
