"""The file formats that a graph is read from and written to, one module each.

A module has `read(source, options, report)`, a generator of blocks, and `write(graph, folder, format)`. To add a
format, write such a module and add its line to FORMATS in `specs.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fnftg.errors import FnftgError
from fnftg.kg.blocks import Block, Report
from fnftg.kg.formats.blp_folder import is_blp_folder
from fnftg.kg.formats.lines import plain_suffix
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
    """The format of a file by its ending, of a folder by what lies in it."""
    if source.is_dir():
        if is_blp_folder(source):
            return "blp"
        endings = {plain_suffix(path) for path in source.iterdir() if path.is_file() and not path.name.startswith(".")}
    else:
        endings = {plain_suffix(source)}
    found = [name for name, format in FORMATS.items() if endings & set(format.suffixes)]
    if len(found) == 1:
        return found[0]
    if found:
        raise FnftgError(
            f"{source} holds files of several formats: choose one with --format {' or --format '.join(found)}."
        )
    raise FnftgError(f"The format of {source} is not known by its name: give it with --format {{{','.join(FORMATS)}}}.")
