"""Lines of separated columns as frames of strings; what is wrong with a line is said with its number."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import polars as pl

from fnftg.errors import FnftgError
from fnftg.kg.formats.lines import LineBlock

NAMES = {"\t": "tab-separated", ",": "comma-separated"}


def columns_of(block: LineBlock, separator: str) -> list[str]:
    """The cells of the block's first line."""
    for _, cells in _rows(block, separator):
        return cells
    return []


def parse(block: LineBlock, separator: str, width: int, needed: list[int]) -> pl.DataFrame:
    """The block's lines as columns 0, 1, …; blank lines go, the `needed` columns are never null."""
    names = [str(column) for column in range(width)]
    quote = '"' if separator == "," else None
    try:
        frame = pl.read_csv(
            block.data, separator=separator, has_header=False, quote_char=quote, schema=dict.fromkeys(names, pl.String)
        )
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        block.explain_encoding()
        _explain_columns(block, separator, width, needed)
        raise FnftgError(f"{block.place} and below cannot be read as {NAMES[separator]} text: {error}.") from error
    if sum(frame[names[column]].null_count() for column in needed):
        _explain_columns(block, separator, width, needed)
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    return frame


def _explain_columns(block: LineBlock, separator: str, width: int, needed: list[int]) -> None:
    """Raises for the first line, other than a blank one, that has not `width` columns or lacks a needed one."""
    for line, cells in _rows(block, separator):
        place = f"{block.path}, line {line}"
        if len(cells) != width:
            raise FnftgError(f"{place}: {len(cells)} {NAMES[separator]} column(s) instead of {width}; fix the line.")
        for column in needed:
            if not cells[column]:
                raise FnftgError(f"{place}: column {column + 1} is empty; fix the line.")


def _rows(block: LineBlock, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not blank, as cells, each with its number; slow, for headers and for finding what is wrong."""
    if separator == "\t":
        for line, content in block.lines():
            if content.strip():
                yield line, content.decode(errors="replace").split("\t")
        return
    rows = csv.reader(io.StringIO(block.data.decode(errors="replace"), newline=""))
    line = block.first_line
    try:
        for cells in rows:
            if cells:
                yield line, cells
            line = block.first_line + rows.line_num
    except csv.Error as error:
        raise FnftgError(f"{block.path}, line {line}: {error}; fix the line.") from error
