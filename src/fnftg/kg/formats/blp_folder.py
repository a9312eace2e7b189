"""The folder layout of BLP and KG-BERT: one file of triples per split, and files of texts.

ind-train.tsv, ind-dev.tsv, ind-test.tsv    head, relation, tail (or train.tsv, dev.tsv, test.tsv; .txt as well)
entity2textlong.txt, entity2text.txt        id, text: with both files, the short texts are the names
relation2text.txt                           id, text
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import polars as pl

from fnftg.errors import FnftgError
from fnftg.kg.blocks import Block, Report, TextBlock, TripleBlock, split_name, split_rank
from fnftg.kg.formats.compressed_files import COMPRESSIONS, existing
from fnftg.kg.formats.delimited_lines import parse
from fnftg.kg.formats.frames import triple_frames, vocabulary_frames
from fnftg.kg.formats.lines import LineBlock, line_blocks
from fnftg.kg.formats.specs import ReadOptions
from fnftg.kg.graph import KnowledgeGraph

PREFIX = "ind-"
PLAIN_SPLITS = ("train", "dev", "valid", "val", "validation", "test")
SUFFIXES = (".tsv", ".txt")


def is_blp_folder(folder: Path) -> bool:
    """Return whether a folder has a file of training triples and, unless it is ind-train, a file of texts."""
    files = split_files(folder)
    texts = any(existing(folder, name) for name in ("entity2text.txt", "entity2textlong.txt", "relation2text.txt"))
    return "train" in files and (texts or files["train"].name.startswith(PREFIX))


def split_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split: the inductive files (ind-*) if there are any, else the plain ones."""
    inductive: dict[str, Path] = {}
    for path in sorted(folder.glob(f"{PREFIX}*")):
        plain_name = path.with_suffix("") if path.suffix in COMPRESSIONS else path
        if plain_name.suffix in SUFFIXES:
            inductive.setdefault(split_name(plain_name.stem.removeprefix(PREFIX), str(path)), path)
    if inductive:
        return inductive
    plain: dict[str, Path] = {}
    for split in PLAIN_SPLITS:
        for suffix in SUFFIXES:
            if found := existing(folder, f"{split}{suffix}"):
                plain.setdefault(split_name(split, str(found)), found)
    return plain


def read(source: Path, options: ReadOptions, report: Report) -> Iterator[Block]:
    if not source.is_dir():
        raise FnftgError(
            f"{source} is not a folder: the blp layout is a folder that contains {PREFIX}train.tsv or train.tsv."
        )
    files = split_files(source)
    if "train" not in files:
        raise FnftgError(f"{source} has neither {PREFIX}train.tsv nor train.tsv: add the training triples.")
    for split in sorted(files, key=split_rank):
        for block in line_blocks(files[split], max_size=options.max_size):
            frame = parse(block, "\t", width=3, needed=[0, 1, 2])
            yield TripleBlock(split, frame.rename({"0": "head", "1": "relation", "2": "tail"}), block.place)
    long, short = existing(source, "entity2textlong.txt"), existing(source, "entity2text.txt")
    if long and short:
        yield from read_texts("entities", short, "name", options.max_size)
    if text := long or short:
        yield from read_texts("entities", text, max_size=options.max_size)
    if relations := existing(source, "relation2text.txt"):
        yield from read_texts("relations", relations, max_size=options.max_size)


def read_texts(
    kind: Literal["entities", "relations"],
    path: Path,
    column: Literal["text", "name"] = "text",
    max_size: int | None = None,
) -> Iterator[TextBlock]:
    """Read lines of id, tab, text. Further tabs belong to the text."""
    for block in line_blocks(path, max_size=max_size):
        frame = parse_texts(block).with_columns(pl.lit(None, pl.String).alias("unused"))
        other = "name" if column == "text" else "text"
        yield TextBlock(kind, frame.rename({"value": column, "unused": other}), block.place)


def parse_texts(block: LineBlock) -> pl.DataFrame:
    """Return (id, value) of each non-blank line."""
    columns = {"id": pl.String, "value": pl.String}
    try:
        frame = pl.read_csv(block.for_polars(), separator="\t", has_header=False, quote_char=None, schema=columns)
    except pl.exceptions.PolarsError:
        return parse_odd_texts(block)
    blank = frame["value"].is_null() | ~frame["id"].str.contains(r"\S").fill_null(False)
    return parse_odd_texts(block) if blank.any() else frame


def parse_odd_texts(block: LineBlock) -> pl.DataFrame:
    """Parse a block with tabs in texts or blank lines, which is slower. Raises for the first malformed line."""
    block.explain_encoding()
    lines = pl.Series(block.data.decode().split("\n"), dtype=pl.String).str.strip_chars_end("\r")
    parts = lines.str.splitn("\t", 2).struct.rename_fields(["id", "value"]).struct.unnest()
    blank = lines.str.strip_chars() == ""
    wrong = (parts["value"].is_null() | (parts["id"] == "")) & ~blank
    if wrong.any():
        line = block.first_line + int(wrong.arg_max() or 0)
        raise FnftgError(f"{block.path}, line {line}: not an id and a text separated by a tab; fix the line.")
    return parts.filter(~blank)


def write(graph: KnowledgeGraph, folder: Path, format: str) -> None:
    for split, frame in triple_frames(graph):
        _append(folder / f"{PREFIX}{'dev' if split == 'val' else split}.tsv", frame)
    named = graph.entities.names is not None
    for frame in vocabulary_frames(graph.entities):
        if named:
            _append(folder / "entity2text.txt", frame.select("id", "name"))
        _append(folder / ("entity2textlong.txt" if named else "entity2text.txt"), frame.select("id", "text"))
    for frame in vocabulary_frames(graph.relations):
        _append(folder / "relation2text.txt", frame.select("id", "text"))


def _append(path: Path, frame: pl.DataFrame) -> None:
    with open(path, "ab") as file:
        file.write(frame.write_csv(separator="\t", include_header=False, quote_style="never").encode())
