"""Parts of an unfinished computation: array files with their checksums in their names."""

from __future__ import annotations

from pathlib import Path

import numpy.typing as npt

from fnftg.array_files import Shape, load_array, write_array
from fnftg.arrays import AnyArray
from fnftg.checksums import array_checksum
from fnftg.console import log
from fnftg.errors import FnftgError
from fnftg.files import new_file


def write_part(folder: Path, name: str, part: AnyArray) -> None:
    with new_file(folder / f"{name}-{array_checksum(part)}.npy", owned=True) as partial:
        write_array(partial, part)


def read_part(folder: Path, name: str, dtype: npt.DTypeLike, shape: Shape = (None,)) -> AnyArray | None:
    """Read the part of this name. Returns None if it is missing; a damaged part is logged and deleted."""
    for path in folder.glob(f"{name}-*.npy"):
        try:
            part = load_array(path, dtype, shape)
            if path.stem.rpartition("-")[2] == array_checksum(part):
                return part
            log(f"{path} is damaged: its checksum does not match. This part will be computed again.")
        except FnftgError as error:
            log(f"{error} This part will be computed again.")
        path.unlink()
    return None
