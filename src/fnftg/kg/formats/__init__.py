"""File formats for import and export, one module each.

Each module has `read(source, options, report)`, a generator of blocks, and `write(graph, folder, format)`. To add a
format, write such a module and add it to `FORMATS` in `specs.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fnftg.checksums import CHECKSUMS
from fnftg.errors import FnftgError
from fnftg.kg.blocks import Block, Report
from fnftg.kg.formats.blp_folder import is_blp_folder
from fnftg.kg.formats.compressed_files import plain_suffix
from fnftg.kg.formats.specs import FORMATS, ReadOptions
from fnftg.kg.graph import KnowledgeGraph

Reader = Callable[[Path, ReadOptions, Report], Iterator[Block]]
Writer = Callable[[KnowledgeGraph, Path, str], None]


def _module(format: str) -> object:
    if format not in FORMATS:
        raise FnftgError(f"There is no format {format!r}: choose one of {', '.join(FORMATS)}.")
    return importlib.import_module(f"fnftg.kg.formats.{FORMATS[format].module}")


def reader(format: str) -> Reader:
    return _module(format).read  # type: ignore[attr-defined, no-any-return]


def writer(format: str) -> Writer:
    return _module(format).write  # type: ignore[attr-defined, no-any-return]


def detect(source: Path) -> str:
    """Detect the format of a file by its extension, and of a folder by its files.

    Raises:
        FnftgError: if no format or several formats match.
    """
    if source.is_dir():
        if is_blp_folder(source):
            return "blp"
        files = (path for path in source.iterdir() if path.is_file() and path.name != CHECKSUMS)
        endings = {plain_suffix(path) for path in files if not path.name.startswith(".")}
    else:
        endings = {plain_suffix(source)}
    found = [name for name, format in FORMATS.items() if endings & set(format.suffixes)]
    if len(found) == 1:
        return found[0]
    if found:
        raise FnftgError(
            f"{source} has files of several formats: choose one with --format {' or --format '.join(found)}."
        )
    raise FnftgError(f"The format of {source} cannot be detected: give it with --format {{{','.join(FORMATS)}}}.")
