"""Lists of a folder's files with sizes and checksums, which detect damage and identify files that fnftg wrote.

checksums.json      format (fnftg-KIND), version, size and XXH3 of each file; written when the folder is complete
manifest.json       of a store: the same with SHA-256, and more fields (see kg/store.py)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from fnftg.arrays import AnyArray
from fnftg.errors import DamagedError, FnftgError
from fnftg.json_files import read_json, write_json

CHECKSUMS, MANIFEST, VERSION = "checksums.json", "manifest.json", 1
WHOLE = 1 << 30  # bytes; only the size of larger files is checked
BUFFER = 1 << 20

_verified: dict[Path, tuple[Any, ...]] = {}  # path: state of the file when this process verified it


def file_checksum(path: Path) -> str:
    """Return the 128-bit XXH3 of a file's content. It detects damage, not forgery."""
    digest, buffer = xxhash.xxh3_128(), bytearray(BUFFER)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def array_checksum(array: AnyArray) -> str:
    """Return the 128-bit XXH3 of an array's values."""
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).data.cast("B") if array.size else b"")


def write_checksums(folder: Path, kind: str) -> None:
    """Write the list of a folder's files, unless it has a manifest. Subfolders with a list of their own are skipped."""
    if (folder / MANIFEST).is_file():
        return
    separate = {path.parent for path in folder.rglob(CHECKSUMS)}
    files = sorted(path for path in folder.rglob("*") if path.is_file() and separate.isdisjoint(path.parents))
    listed = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "xxh3": file_checksum(path)}
        for path in files
    }
    write_json(folder / CHECKSUMS, {"format": f"fnftg-{kind}", "version": VERSION, "files": listed})


def listed_files(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """Return the kind of a folder that fnftg wrote and its listed files, including the list; None for other folders."""
    for name in (MANIFEST, CHECKSUMS):
        try:
            found = read_json(folder / name)
        except FnftgError:
            continue
        kind, files = found.get("format"), found.get("files")
        if isinstance(kind, str) and kind.startswith("fnftg-") and isinstance(files, dict):
            return kind.removeprefix("fnftg-"), {**files, name: {}}
    return None


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run."""
    try:
        found = read_json(folder / "config.json")
    except FnftgError:
        return is_folder_of(folder / "checkpoint", "model")
    return isinstance(found.get("graph"), str) and isinstance(found.get("config"), dict)


def is_folder_of(folder: Path, kind: str) -> bool:
    """Return whether a folder is one of this kind that fnftg wrote."""
    found = None if folder.is_symlink() else listed_files(folder)
    return found is not None and found[0] == kind


def verify_folder(folder: Path, kind: str) -> None:
    """Raise a `DamagedError` if a file differs from the list. Each file is read at most once per process."""
    if not (folder / CHECKSUMS).exists():
        raise DamagedError(f"{folder} has no {CHECKSUMS}: it is damaged, or was written by fnftg 0.2 or older.")
    found = read_json(folder / CHECKSUMS)
    if found.get("format") != f"fnftg-{kind}":
        raise DamagedError(f"{folder} is damaged: it does not hold {kind}.")
    if found.get("version") != VERSION:
        raise DamagedError(f"{folder} was written by another version of fnftg.")
    files = found.get("files")
    if not isinstance(files, dict) or not all(isinstance(facts, dict) for facts in files.values()):
        raise DamagedError(f"{folder / CHECKSUMS} is damaged: it lists no files.")
    for name, facts in files.items():
        verify_file(folder / name, facts.get("bytes"), facts.get("xxh3"))


def verify_file(path: Path, size: Any, checksum: Any) -> None:
    """Raise a `DamagedError` unless the file has this size and, up to 1 GiB, this checksum."""
    if not path.is_file():
        raise DamagedError(f"{path.parent} is damaged: {path.name} is missing.")
    found = path.stat().st_size
    if found != size:
        raise DamagedError(f"{path} is damaged: it has {found:,} bytes instead of {size}.")
    if found <= WHOLE and not has_checksum(path, checksum):
        raise DamagedError(f"{path} is damaged: its checksum does not match.")


def has_checksum(path: Path, checksum: str, compute: Callable[[Path], str] = file_checksum) -> bool:
    """Return whether a file has this checksum. A match is remembered until the file changes or the process ends."""
    try:
        found = os.stat(path)
        state = found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev, checksum
        if _verified.get(path) == state:
            return True
        if compute(path) != checksum:
            return False
    except OSError as error:
        raise FnftgError(f"{path} cannot be read: {error.strerror}.") from error
    _verified[path] = state
    return True
