"""Atomic writes: every file and folder appears under its final name in one step, when it is complete."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fnftg.checksums import is_run, listed_files, write_checksums
from fnftg.errors import FnftgError

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FULL_DISK_WORDS = tuple(os.strerror(number) for number in FULL_DISK)  # for errors of libraries that have no errno
NAME_BYTES = 120  # of the target's name that are used in the name of its partial folder
PARTIAL = re.compile(r"\..*\.partial-[a-z0-9_]{8}", re.DOTALL)  # name of a partial folder; mkdtemp chooses the end
MARKER, CONTENT = "fnftg-partial", "content"  # in a partial folder: an empty file, and what becomes the target


@contextlib.contextmanager
def new_folder(target: str | os.PathLike[str], kind: str, force: bool = False, owned: bool = False) -> Iterator[Path]:
    """Yield a hidden folder next to `target`, which is renamed to it on success and removed on failure.

    The folder gets a list of its files with checksums. An existing target is replaced in one system call.

    Args:
        target: the folder to create.
        kind: the kind of content, written to the list as fnftg-KIND.
        force: replace an existing folder if it is empty, or if it is of this kind and has no other files.
        owned: replace an existing folder with any content; for folders that only fnftg writes to, as inside a run.

    Raises:
        FnftgError: if the target may not be replaced or cannot be written.
    """
    target = Path(os.path.abspath(target))
    with _errors_are_sentences(target):
        if target.exists() and not target.is_dir():
            raise FnftgError(f"{target} is a file, not a folder: choose another name.")
        if os.path.lexists(target) and not owned:
            _check_replaceable(target, kind, force)
        with _partial_folder(target) as partial:
            yield partial
            write_checksums(partial, kind)
            _sync_all(partial)
            if os.path.lexists(target):
                if not owned:
                    _check_replaceable(target, kind, force)
                _exchange(partial, target)
            else:
                os.rename(partial, target)
            _sync(target.parent)


@contextlib.contextmanager
def new_file(target: str | os.PathLike[str], force: bool = False, owned: bool = False) -> Iterator[Path]:
    """Yield a path in a hidden folder next to `target`; on success the file written there becomes the target.

    See `new_folder` for `force` and `owned`.
    """
    target = Path(os.path.abspath(target))
    with _errors_are_sentences(target):
        if os.path.lexists(target) and not owned:
            _check_replaceable_file(target, force)
        with _partial_folder(target) as partial:
            yield partial / target.name
            _sync_all(partial)
            os.replace(partial / target.name, target)
            _sync(target.parent)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


# What may be replaced


def _check_replaceable(target: Path, kind: str, force: bool) -> None:
    """Raise unless `force` is set and the folder is empty, or is of this kind and has no other files."""
    if not force:
        raise FnftgError(f"{target} already exists: choose another name, or replace it with --force.")
    here = Path.cwd()
    if here.is_relative_to(target.resolve()):
        raise FnftgError(f"{target} is or contains the current folder, so it is not replaced: choose another name.")
    if target.is_symlink():
        raise FnftgError(f"{target} is a symbolic link, so it is not replaced: give the folder that it points to.")
    inside = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    if not inside and not any(target.iterdir()):
        return
    found = listed_files(target)
    if found is None or found[0] != kind:
        what = f"an fnftg folder of another kind ({found[0]})" if found else "not a folder that fnftg wrote"
        raise FnftgError(f"{target} is {what}, so it is not replaced: choose another name, or remove it.")
    if others := sorted(inside - found[1].keys()):
        raise FnftgError(
            f"{target} contains {others[0]}, which fnftg did not write, so it is not replaced: move that file away."
        )


def _check_replaceable_file(target: Path, force: bool) -> None:
    """Raise unless `force` is set and the file is a regular one that belongs to nothing that fnftg wrote."""
    if not force:
        raise FnftgError(f"{target} already exists: choose another name, or replace it with --force.")
    if target.is_dir():
        raise FnftgError(f"{target} is a folder, not a file: choose another name.")
    if target.exists() and not target.is_file():
        raise FnftgError(f"{target} is a device or a pipe, so it is not replaced: choose another name.")
    for folder in target.parents:
        found = listed_files(folder)
        if is_run(folder) or (found is not None and target.relative_to(folder).as_posix() in found[1]):
            raise FnftgError(f"{target} is a part of {folder}, so it is not replaced: choose another name.")


def check_output_file(path: Path, force: bool, *sources: str | os.PathLike[str] | None) -> None:
    """Raise if a command may not write a file, so that nothing is computed first.

    Args:
        path: the file.
        force: replace an existing file, as in `new_file`.
        sources: what the command reads; what does not exist (the name of a dataset, None) is ignored.
    """
    target = Path(os.path.abspath(path))
    for source in sources:
        check_not_source(target, source)
        if source is not None and os.path.isdir(source) and target.resolve().is_relative_to(Path(source).resolve()):
            raise FnftgError(f"{target} is inside the source {source}, so it is not written: choose another output.")
    if os.path.lexists(target):
        _check_replaceable_file(target, force)


def check_not_source(target: Path, source: str | os.PathLike[str] | None) -> None:
    """Raise if the output would replace its own source."""
    if source is not None and os.path.exists(source) and target.resolve() == Path(source).resolve():
        raise FnftgError(f"{target} is both the source and the output, so it is not replaced: choose another output.")


# Partial folders


@contextlib.contextmanager
def _partial_folder(target: Path) -> Iterator[Path]:
    """Yield a folder in a locked, hidden folder next to `target`. Removes what killed processes left there of it."""
    _make_parent(target)
    prefix = f".{_cut(target.name)}.partial-"
    remove_leftovers(target)
    with contextlib.ExitStack() as stack:
        while True:
            partial = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
            stack.callback(shutil.rmtree, partial, ignore_errors=True)
            lock = os.open(partial, os.O_RDONLY)
            stack.callback(os.close, lock)
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if partial.exists():  # else another process removed it before it was locked
                break
        (partial / MARKER).touch()
        (partial / CONTENT).mkdir()
        yield partial / CONTENT


def is_partial(path: Path) -> bool:
    """Return whether a path is a partial folder, of a running process or left by a killed one."""
    if not PARTIAL.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    return (path / MARKER).is_file() or not any(path.iterdir())


def remove_leftovers(target: Path) -> None:
    """Remove what killed processes left beside a target. A kill right after the renaming leaves an empty marker."""
    with contextlib.suppress(OSError):
        remove_abandoned(target.parent, f".{_cut(target.name)}.partial-")


def remove_abandoned(folder: Path, prefix: str = ".") -> None:
    """Remove the partial folders in a folder, with this beginning of their names, that no process has locked."""
    for partial in folder.glob(f"{_escaped(prefix)}*"):
        with contextlib.suppress(OSError):
            lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_partial(partial):
                    shutil.rmtree(partial, ignore_errors=True)
            finally:
                os.close(lock)


def _make_parent(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FnftgError(f"The folder {target.parent} cannot be created: {error.strerror}.") from error
    if not os.access(target.parent, os.W_OK):
        raise FnftgError(f"The folder {target.parent} is not writable: choose another folder.")


def _cut(name: str) -> str:
    """Truncate a name, so that a longer name built from it does not exceed the limit of the file system."""
    return os.fsencode(name)[:NAME_BYTES].decode(errors="ignore")


def _escaped(pattern: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in pattern)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _sync_all(folder: Path) -> None:
    """Flush all files to disk, and set the default modes: some libraries create files for their owner only."""
    mask = _umask()
    for path in sorted(folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        if path.is_file():
            _sync(path)
    _sync(folder)


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders: in one step on Linux and macOS, elsewhere by two renames."""
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
    spare = Path(tempfile.mkdtemp(prefix=f".{_cut(old.name)}.partial-", dir=old.parent))  # without a marker: never lost
    os.rename(old, spare / "replaced")
    os.rename(new, old)
    shutil.rmtree(spare)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Errors


@contextlib.contextmanager
def _errors_are_sentences(target: Path) -> Iterator[None]:
    """Convert a full disk, and other system errors about the target's files, into an `FnftgError`."""
    try:
        yield
    except FnftgError:
        raise
    except Exception as error:
        if is_full_disk(error):
            reason = "the disk is full or a size limit was reached; free some space and run the command again"
            raise FnftgError(f"{target} was not written: {reason}.") from error
        if isinstance(error, OSError) and str(error.filename or "").startswith(str(target.parent)):
            raise FnftgError(f"{target} cannot be written: {error.strerror}.") from error
        raise


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error, also one wrapped by a library, says that the disk is full or a limit was reached."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL_DISK
    return any(words in str(error) for words in FULL_DISK_WORDS)
