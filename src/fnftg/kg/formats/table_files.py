"""Tables of triples and of texts: TSV, CSV, Parquet, JSON lines.

A source is either one file of triples (options name the tables of texts), or a folder with triples.EXT (or train.EXT,
dev.EXT and test.EXT), entities.EXT and relations.EXT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import polars as pl

from fnftg.errors import FnftgError, shortened
from fnftg.kg.blocks import Block, Report, TextBlock, TripleBlock, split_name
from fnftg.kg.formats.compressed_files import existing, plain_suffix
from fnftg.kg.formats.delimited_lines import columns_of, parse
from fnftg.kg.formats.frames import triple_frames, vocabulary_frames
from fnftg.kg.formats.json_lines import read_json_lines
from fnftg.kg.formats.lines import LineBlock, line_blocks
from fnftg.kg.formats.parquet_rows import read_parquet
from fnftg.kg.formats.specs import FORMATS, OPTIONAL, ReadOptions, TableOptions, Wanted
from fnftg.kg.graph import KnowledgeGraph

SEPARATORS = {"tsv": "\t", "csv": ","}
NUMBER = re.compile("[0-9]{1,9}")  # of a column; anything else is a name
SPLIT_FILES = ("train", "dev", "valid", "val", "validation", "test")


def read(source: Path, options: ReadOptions, report: Report) -> Iterator[Block]:
    tables, format = options.tables, report.format
    triples: Wanted = {role: getattr(tables, role) for role in ("head", "relation", "tail", "split")}
    for split, path in triple_files(source, format).items():
        for frame, place in read_table(path, format, triples, options.max_size):
            yield from split_blocks(frame, split, place)
    texts: Wanted = {role: getattr(tables, role) for role in ("id", "text", "name")}
    kinds: tuple[Literal["entities", "relations"], ...] = ("entities", "relations")
    for kind in kinds:
        if text_path := text_file(source, format, kind, tables):
            for frame, place in read_table(text_path, format_of(text_path, format), texts, options.max_size):
                yield TextBlock(kind, frame, place)


def triple_files(source: Path, format: str) -> dict[str, Path]:
    """Return the file of each split. A single file is train, unless it has a column `split`."""
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
        raise FnftgError(f"{source} has neither triples{suffix} nor train{suffix}: give the path of the triples file.")
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
    """Return the format of a table of texts by its extension, which may differ from the format of the triples."""
    tables = {name: format.suffixes for name, format in FORMATS.items() if format.module == "table_files"}
    names = [name for name, suffixes in tables.items() if plain_suffix(path) in suffixes]
    return names[0] if names else fallback


def split_blocks(frame: pl.DataFrame, split: str, place: str) -> Iterator[TripleBlock]:
    """Yield one block, or one for each value of the column `split`."""
    if "split" not in frame.columns:
        yield TripleBlock(split, frame, place)
        return
    for (name,), part in frame.group_by("split", maintain_order=True):
        if name is None:
            raise FnftgError(f"{place} and below: a triple has no split; fill in the column, or remove it.")
        yield TripleBlock(split_name(str(name), place), part.drop("split"), place)


def read_table(
    path: Path, format: str, wanted: Wanted, max_size: int | None = None
) -> Iterator[tuple[pl.DataFrame, str]]:
    """Yield frames of strings with the roles as columns, each with its place in the file."""
    if format in SEPARATORS:
        yield from read_delimited(path, SEPARATORS[format], wanted, max_size)
    elif format == "jsonl":
        yield from read_json_lines(path, wanted, max_size)
    else:
        yield from read_parquet(path, wanted, max_size)


def read_delimited(
    path: Path, separator: str, wanted: Wanted, max_size: int | None
) -> Iterator[tuple[pl.DataFrame, str]]:
    chosen: dict[str, int] = {}
    width = 0
    for block in line_blocks(path, quotes=separator == ",", max_size=max_size):
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
    """Return the column of each role, and whether the first line is a header with the expected names."""
    names = [cell.strip().lower() for cell in cells]
    given = {role: column for role, column in wanted.items() if column is not None}
    required = [role for role in wanted if role not in OPTIONAL]
    by_name = any(not NUMBER.fullmatch(column) for column in given.values())
    header = by_name or all(role in names for role in required if role not in given)
    if given and not by_name and len(given) >= len(required):
        header = False
    chosen: dict[str, int] = {}
    for position, role in enumerate(wanted):
        column = given.get(role)
        if column is not None and NUMBER.fullmatch(column):
            chosen[role] = int(column) - 1
        elif column is not None:
            if column.lower() not in names:
                raise FnftgError(
                    f"{path}, line 1: no column {shortened(column)}; the columns are "
                    f"{', '.join(map(shortened, cells))}."
                )
            chosen[role] = names.index(column.lower())
        elif header and role in names:
            chosen[role] = names.index(role)
        elif role in required:
            if header:
                raise FnftgError(f"{path}, line 1: no column {role!r}; choose a column with --{role}.")
            chosen[role] = position
    if not given and not header and len(cells) != len(required):
        raise FnftgError(
            f"{path}, line 1: {len(cells)} column(s) instead of {len(required)} ({', '.join(required)}); "
            f"fix the line, or name the columns with {' '.join(f'--{role}' for role in required)}."
        )
    for role, column_number in chosen.items():
        if not 0 <= column_number < len(cells):
            raise FnftgError(f"{path}, line 1: no column {column_number + 1} for {role!r}; there are {len(cells)}.")
    return chosen, header


def without_header(block: LineBlock) -> LineBlock:
    """Return the block without its header, which must be one line: column names cannot contain line breaks."""
    return LineBlock(block.path, block.data.partition(b"\n")[2], block.first_line + 1)


# Writing


def write(graph: KnowledgeGraph, folder: Path, format: str) -> None:
    """Write triples.EXT with a column `split`, entities.EXT and relations.EXT."""
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
