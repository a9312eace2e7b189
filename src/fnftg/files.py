"""Files that are either whole or not there: every folder and file we write appears under its name in one step."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from fnftg.errors import FnftgError

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
LOCK = ".lock"


@contextlib.contextmanager
def new_folder(target: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """Yields a hidden folder beside `target` that takes its name when the block ends well and vanishes otherwise.

    With `force` an existing target is exchanged for the new folder in one system call.
    """
    target = Path(os.path.abspath(target))
    if os.path.lexists(target) and not force:
        raise FnftgError(f"{target} exists already: choose another name, or replace it with --force.")
    if target.exists() and not target.is_dir():
        raise FnftgError(f"{target} is a file, not a folder: choose another name.")
    _make_parent(target)
    _remove_abandoned(target)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    with _full_disk_is_a_sentence(target), contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, partial, ignore_errors=True)  # first: an interrupt may come right after mkdir
        partial.mkdir()
        lock = stack.enter_context(open(partial / LOCK, "w"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield partial
        os.unlink(partial / LOCK)
        for path in sorted(partial.rglob("*")):
            if path.is_file():
                _sync(path)
        _sync(partial)
        if os.path.lexists(target):
            if not force:
                raise FnftgError(
                    f"{target} was made by another process meanwhile: choose another name, or use --force."
                )
            _exchange(partial, target)
        else:
            os.rename(partial, target)
        _sync(target.parent)


@contextlib.contextmanager
def new_file(target: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """The same promise for one file: yields a hidden path beside `target` that takes its name at the end."""
    target = Path(os.path.abspath(target))
    if os.path.lexists(target) and not force:
        raise FnftgError(f"{target} exists already: choose another name, or replace it with --force.")
    _make_parent(target)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    with _full_disk_is_a_sentence(target), contextlib.ExitStack() as stack:
        stack.callback(partial.unlink, missing_ok=True)
        yield partial
        _sync(partial)
        os.replace(partial, target)
        _sync(target.parent)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


@contextlib.contextmanager
def _full_disk_is_a_sentence(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            reason = "the disk is full or a size limit was reached"
            raise FnftgError(f"{target} was not written: {reason}; free some space and run it again.") from error
        raise


def _make_parent(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FnftgError(f"The folder {target.parent} cannot be made: {error.strerror}.") from error
    if not os.access(target.parent, os.W_OK):
        raise FnftgError(f"The folder {target.parent} cannot be written to: choose another place.")


def _remove_abandoned(target: Path) -> None:
    """Clears what killed processes left of `target`."""
    for partial in target.parent.glob(f".{target.name}.partial-*"):
        if _abandoned(partial):
            shutil.rmtree(partial, ignore_errors=True)


def _abandoned(partial: Path) -> bool:
    """Whether nobody holds the folder's lock or, where it has none (yet or any more), its process is gone."""
    try:
        with open(partial / LOCK, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except OSError:
        owner = partial.name.rpartition("-")[2]
        return owner.isdigit() and not _alive(int(owner))


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _exchange(new: Path, old: Path) -> None:
    """Swaps two folders: one step on Linux and macOS, elsewhere two renames between which the old one is hidden."""
    library = ctypes.CDLL(None, use_errno=True)
    source, target = os.fsencode(new), os.fsencode(old)
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        at_cwd, exchange = -100, 2
        if library.renameat2(at_cwd, source, at_cwd, target, exchange) == 0:
            return
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        swap = 2
        if library.renamex_np(source, target, swap) == 0:
            return
    spare = old.with_name(f".{old.name}.replaced-{os.getpid()}")
    os.rename(old, spare)
    os.rename(new, old)
    shutil.rmtree(spare)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
