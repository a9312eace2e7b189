"""Tables of triples and of texts: TSV, CSV, Parquet, JSON lines.

A source is one file of triples (the tables of texts are named by options), or a folder of triples.EXT, or train.EXT,
dev.EXT and test.EXT, with entities.EXT and relations.EXT beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import polars as pl

from fnftg.errors import FnftgError, shortened
from fnftg.kg.blocks import Block, Report, TextBlock, TripleBlock, split_name
from fnftg.kg.formats.delimited_lines import columns_of, parse
from fnftg.kg.formats.frames import triple_frames, vocabulary_frames
from fnftg.kg.formats.lines import LineBlock, existing, line_blocks, plain_suffix
from fnftg.kg.formats.specs import FORMATS, ReadOptions, TableOptions
from fnftg.kg.graph import KnowledgeGraph

SEPARATORS = {"tsv": "\t", "csv": ","}
SPLIT_FILES = ("train", "dev", "valid", "val", "validation", "test")
ROWS = 1_000_000  # of a Parquet file at a time

Wanted = dict[str, str | None]  # column's role: its name or number in the file, None: found by the role's own name
OPTIONAL = {"split", "name"}


def read(source: Path, options: ReadOptions, report: Report) -> Iterator[Block]:
    tables, format = options.tables, report.format
    triples: Wanted = {role: getattr(tables, role) for role in ("head", "relation", "tail", "split")}
    for split, path in triple_files(source, format).items():
        for frame, place in read_table(path, format, triples):
            yield from split_blocks(frame, split, place)
    texts: Wanted = {role: getattr(tables, role) for role in ("id", "text", "name")}
    kinds: tuple[Literal["entities", "relations"], ...] = ("entities", "relations")
    for kind in kinds:
        if text_path := text_file(source, format, kind, tables):
            for frame, place in read_table(text_path, format_of(text_path, format), texts):
                yield TextBlock(kind, frame, place)


def triple_files(source: Path, format: str) -> dict[str, Path]:
    """Split: file; a single file is train unless it has a column that says otherwise."""
    if source.is_file():
        return {"train": source}
    found: dict[str, Path] = {}
    for suffix in FORMATS[format].suffixes:
        if path := existing(source, f"triples{suffix}"):
            return {"train": path}
        for name in SPLIT_FILES:
            if path := existing(source, f"{name}{suffix}"):
                found.setdefault(split_name(name, str(path)), path)
    if not found:
        suffix = FORMATS[format].suffixes[0]
        raise FnftgError(f"{source} has neither triples{suffix} nor train{suffix}: give the file of triples itself.")
    return found


def text_file(source: Path, format: str, kind: str, tables: TableOptions) -> Path | None:
    named: Path | None = getattr(tables, kind)
    if named is not None:
        return named
    if source.is_file():
        return None
    found = (existing(source, f"{kind}{suffix}") for suffix in FORMATS[format].suffixes)
    return next((path for path in found if path), None)


def format_of(path: Path, fallback: str) -> str:
    """Tables of texts may be of another format than the triples."""
    tables = {name: format.suffixes for name, format in FORMATS.items() if format.module == "table_files"}
    names = [name for name, suffixes in tables.items() if plain_suffix(path) in suffixes]
    return names[0] if names else fallback


def split_blocks(frame: pl.DataFrame, split: str, place: str) -> Iterator[TripleBlock]:
    """One block, or one for each value of the column `split`."""
    if "split" not in frame.columns:
        yield TripleBlock(split, frame, place)
        return
    for (name,), part in frame.group_by("split", maintain_order=True):
        if name is None:
            raise FnftgError(f"{place} and below: a triple has no split; fill in the column, or leave it out.")
        yield TripleBlock(split_name(str(name), place), part.drop("split"), place)


def read_table(path: Path, format: str, wanted: Wanted) -> Iterator[tuple[pl.DataFrame, str]]:
    """Frames with the roles as columns, all strings, and where each frame begins in the file."""
    if format in SEPARATORS:
        yield from read_delimited(path, SEPARATORS[format], wanted)
    elif format == "jsonl":
        yield from read_json_lines(path, wanted)
    else:
        yield from read_parquet(path, wanted)


def read_delimited(path: Path, separator: str, wanted: Wanted) -> Iterator[tuple[pl.DataFrame, str]]:
    chosen: dict[str, int] = {}
    width = 0
    for block in line_blocks(path, quotes=separator == ","):
        if not width:
            cells = columns_of(block, separator)
            width = len(cells)
            chosen, header = choose_columns(path, cells, wanted)
            if header:
                block = without_header(block)
        needed = [column for role, column in chosen.items() if role in ("head", "relation", "tail", "id")]
        frame = parse(block, separator, width, needed)
        yield frame.select(pl.col(str(column)).alias(role) for role, column in chosen.items()), block.place


def choose_columns(path: Path, cells: list[str], wanted: Wanted) -> tuple[dict[str, int], bool]:
    """Role: position, and whether the first line is a header: it is where it has the names that are asked for."""
    names = [cell.strip().lower() for cell in cells]
    given = {role: column for role, column in wanted.items() if column is not None}
    required = [role for role in wanted if role not in OPTIONAL]
    by_name = any(not column.isdigit() for column in given.values())
    header = by_name or all(role in names for role in required if role not in given)
    if given and not by_name and len(given) >= len(required):
        header = False
    chosen: dict[str, int] = {}
    for position, role in enumerate(wanted):
        column = given.get(role)
        if column is not None and column.isdigit():
            chosen[role] = int(column) - 1
        elif column is not None:
            if column.lower() not in names:
                raise FnftgError(
                    f"{path}, line 1: no column {shortened(column)}; it has {', '.join(map(shortened, cells))}."
                )
            chosen[role] = names.index(column.lower())
        elif header and role in names:
            chosen[role] = names.index(role)
        elif role in required:
            if header:
                raise FnftgError(f"{path}, line 1: no column {role!r}; say which it is with --{role}.")
            chosen[role] = position
    if not given and not header and len(cells) != len(required):
        raise FnftgError(
            f"{path}, line 1: {len(cells)} column(s) instead of {len(required)} ({', '.join(required)}); "
            f"fix the line, or name the columns with {' '.join(f'--{role}' for role in required)}."
        )
    for role, column_number in chosen.items():
        if not 0 <= column_number < len(cells):
            raise FnftgError(f"{path}, line 1: no column {column_number + 1} for {role!r}; the file has {len(cells)}.")
    return chosen, header


def without_header(block: LineBlock) -> LineBlock:
    """The block after its header, which is one line: quoted line breaks in column names are not for us."""
    return LineBlock(block.path, block.data.partition(b"\n")[2], block.first_line + 1)


def read_json_lines(path: Path, wanted: Wanted) -> Iterator[tuple[pl.DataFrame, str]]:
    roles = {role: column or role for role, column in wanted.items()}
    for block in line_blocks(path):
        block.explain_encoding()
        schema = dict.fromkeys(roles.values(), pl.String)
        try:
            frame = pl.read_ndjson(block.data, schema=schema)
        except pl.exceptions.PolarsError as error:
            explain_json(block, roles)
            raise FnftgError(f"{block.place} and below cannot be read as JSON lines: {error}.") from error
        frame = frame.select(pl.col(column).alias(role) for role, column in roles.items())
        needed = [role for role in roles if role not in OPTIONAL | {"text"}]
        if sum(frame[role].null_count() for role in needed):
            explain_json(block, roles)
        yield drop_unused(frame), block.place


def explain_json(block: LineBlock, roles: dict[str, str]) -> None:
    """Raises for the first line that is not an object with the columns that we need."""
    for line, content in block.lines():
        if not content.strip():
            continue
        place = f"{block.path}, line {line}"
        try:
            value = json.loads(content)
        except ValueError as error:
            raise FnftgError(f"{place}: not JSON ({error}); fix the line.") from error
        if not isinstance(value, dict):
            raise FnftgError(f"{place}: not a JSON object; fix the line.")
        for role, key in roles.items():
            if role not in OPTIONAL | {"text"} and value.get(key) in (None, ""):
                raise FnftgError(f"{place}: no {key!r} in the object; fix the line, or name the key with --{role}.")


def read_parquet(path: Path, wanted: Wanted) -> Iterator[tuple[pl.DataFrame, str]]:
    try:
        columns = pl.scan_parquet(path).collect_schema()
        roles = {role: column or role for role, column in wanted.items()}
        for role, column in list(roles.items()):
            if column in columns:
                continue
            if role not in OPTIONAL or wanted[role] is not None:
                raise FnftgError(f"{path}: no column {column!r}; it has {', '.join(columns)}; name it with --{role}.")
            del roles[role]
        selected = pl.scan_parquet(path).select(
            pl.col(column).cast(pl.String).alias(role) for role, column in roles.items()
        )
        start = 0
        for frame in selected.collect_batches(chunk_size=ROWS, maintain_order=True):
            place = f"{path}, row {start + 1}"
            for role, column in roles.items():
                if role not in OPTIONAL | {"text"} and frame[role].null_count():
                    row = start + int(frame[role].is_null().arg_max() or 0) + 1
                    raise FnftgError(f"{path}, row {row}: column {column!r} is empty; fix the row.")
            yield frame, place
            start += len(frame)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FnftgError(f"{path} cannot be read as Parquet: {error}.") from error
    if not start:
        raise FnftgError(f"{path} is empty: nothing to import.")


def drop_unused(frame: pl.DataFrame) -> pl.DataFrame:
    """Without an optional column that no row of the block fills."""
    return frame.drop([role for role in OPTIONAL & set(frame.columns) if frame[role].null_count() == len(frame)])


# Writing


def write(graph: KnowledgeGraph, folder: Path, format: str) -> None:
    """triples.EXT with a column for the split, entities.EXT, relations.EXT."""
    suffix = FORMATS[format].suffixes[0]
    triples = (frame.with_columns(pl.lit(split).alias("split")) for split, frame in triple_frames(graph))
    write_table(folder / f"triples{suffix}", format, triples)
    write_table(folder / f"entities{suffix}", format, vocabulary_frames(graph.entities))
    relations = (frame.drop("name") for frame in vocabulary_frames(graph.relations))
    write_table(folder / f"relations{suffix}", format, relations)


def write_table(path: Path, format: str, frames: Iterator[pl.DataFrame]) -> None:
    if format == "parquet":
        pl.concat(list(frames)).write_parquet(path)
        return
    with open(path, "wb") as file:
        for number, frame in enumerate(frames):
            if format == "jsonl":
                text = frame.write_ndjson()
            else:
                quoting: Literal["never", "necessary"] = "never" if format == "tsv" else "necessary"
                separator = SEPARATORS[format]
                text = frame.write_csv(separator=separator, include_header=number == 0, quote_style=quoting)
            file.write(text.encode())
