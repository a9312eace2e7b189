"""Read files with one JSON object per line. Errors name the line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from fnftg.errors import FnftgError, one_line, shortened
from fnftg.kg.formats.lines import LineBlock, line_blocks
from fnftg.kg.formats.specs import OPTIONAL, Wanted

ESCAPES = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|.)", re.DOTALL)


def read_json_lines(path: Path, wanted: Wanted, max_size: int | None) -> Iterator[tuple[pl.DataFrame, str]]:
    roles = {role: column or role for role, column in wanted.items()}
    for block in line_blocks(path, max_size=max_size):
        block.explain_encoding()
        explain_surrogates(block)
        schema = dict.fromkeys(roles.values(), pl.String)
        try:
            frame = pl.read_ndjson(block.for_polars(), schema=schema)
        except pl.exceptions.PolarsError as error:
            explain_json(block, roles)
            raise FnftgError(f"{block.place} and below cannot be read as JSON lines: {one_line(error)}.") from error
        frame = frame.select(pl.col(column).alias(role) for role, column in roles.items())
        needed = [role for role in roles if role not in OPTIONAL | {"text"}]
        if sum(frame[role].null_count() for role in needed):
            explain_json(block, roles)
            raise FnftgError(f"{block.place} and below: a line has no {' or no '.join(needed)}; fix the line.")
        yield drop_unused(frame), block.place


def explain_surrogates(block: LineBlock) -> None:
    r"""Raise for the first unpaired surrogate escape (\ud800 to \udfff), which the parser would read as NUL."""
    if b"\\ud" not in block.data and b"\\uD" not in block.data:
        return
    high_end = -1  # end of a high surrogate, where its low surrogate must follow
    for escape in ESCAPES.finditer(block.data):
        code = int(escape[1], 16) if escape[1] else 0
        second = 0xDC00 <= code < 0xE000
        paired = high_end == escape.start() and second
        if second != paired or (high_end >= 0 and not paired):
            raise _half_character(block, escape.start() if second else high_end)
        high_end = escape.end() if 0xD800 <= code < 0xDC00 else -1
    if high_end >= 0:
        raise _half_character(block, high_end)


def _half_character(block: LineBlock, place: int) -> FnftgError:
    line = block.first_line + block.data.count(b"\n", 0, place)
    return FnftgError(
        f"{block.path}, line {line}: an escape from \\ud800 to \\udfff is an unpaired surrogate; fix the line."
    )


def explain_json(block: LineBlock, roles: dict[str, str]) -> None:
    """Raise for the first line that is not an object with the required keys."""
    for line, content in block.lines():
        if not content.strip():
            continue
        place = f"{block.path}, line {line}"
        try:
            value = json.loads(content)
        except ValueError as error:
            raise FnftgError(f"{place}: not JSON ({one_line(error)}); fix the line.") from error
        except RecursionError as error:
            raise FnftgError(f"{place}: the JSON is nested too deeply; fix the line.") from error
        if not isinstance(value, dict):
            raise FnftgError(f"{place}: not a JSON object; fix the line.")
        for role, key in roles.items():
            if role not in OPTIONAL | {"text"} and value.get(key) in (None, ""):
                raise FnftgError(
                    f"{place}: no {shortened(key)} in the object; fix the line, or name the key with --{role}."
                )


def drop_unused(frame: pl.DataFrame) -> pl.DataFrame:
    """Drop optional columns without any value."""
    return frame.drop([role for role in OPTIONAL & set(frame.columns) if frame[role].null_count() == len(frame)])
