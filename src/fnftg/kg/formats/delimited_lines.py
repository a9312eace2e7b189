"""Parse lines of tab- or comma-separated columns. Errors name the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import polars as pl

from fnftg.errors import FnftgError
from fnftg.kg.formats.lines import LONGEST_LINE, LineBlock

csv.field_size_limit(LONGEST_LINE)
NAMES = {"\t": "tab-separated", ",": "comma-separated"}


def columns_of(block: LineBlock, separator: str) -> list[str]:
    """Return the cells of the block's first line."""
    for _, cells in _rows(block, separator):
        return cells
    return []


def parse(block: LineBlock, separator: str, width: int, needed: list[int]) -> pl.DataFrame:
    """Parse a block into columns named 0, 1, …, without blank lines.

    Args:
        block: whole lines of a file.
        separator: a tab or a comma.
        width: number of columns that every line must have.
        needed: columns that must not be empty.

    Raises:
        FnftgError: for the first malformed line.
    """
    names = [str(column) for column in range(width)]
    quote = '"' if separator == "," else None
    try:
        frame = pl.read_csv(
            block.for_polars(),
            separator=separator,
            has_header=False,
            quote_char=quote,
            schema=dict.fromkeys(names, pl.String),
        )
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        block.explain_encoding()
        _explain_columns(block, separator, width, needed)
        quotes = "; check its quotes: each must be closed, and doubled within quotes" if quote else ""
        raise FnftgError(f"{block.place} and below cannot be read as {NAMES[separator]} text{quotes}.") from error
    if sum(frame[names[column]].null_count() for column in needed):
        _explain_columns(block, separator, width, needed)
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
        if sum(frame[names[column]].null_count() for column in needed):
            raise FnftgError(f"{block.place} and below: a required column is empty; fix the line.")
    return frame


def _explain_columns(block: LineBlock, separator: str, width: int, needed: list[int]) -> None:
    """Raise for the first non-blank line with a wrong number of columns or an empty needed column."""
    for line, cells in _rows(block, separator):
        place = f"{block.path}, line {line}"
        if len(cells) != width:
            raise FnftgError(f"{place}: {len(cells)} {NAMES[separator]} column(s) instead of {width}; fix the line.")
        for column in needed:
            if not cells[column].strip("\r"):  # as Polars reads it
                raise FnftgError(f"{place}: column {column + 1} is empty; fix the line.")


def _rows(block: LineBlock, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each non-blank line. Slow; for headers and error messages."""
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
