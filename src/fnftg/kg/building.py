"""From blocks of strings to a store: ids become dense integers, texts find their owners, duplicates go.

Strings are compared by a 64-bit hash, which is several times faster than by themselves; a second hash notices the
one-in-a-million import in which two ids share the first, and that import starts again with another seed. Texts are
spilled to disk as they come and put in the order of the entities at the end, so memory holds no text but one block's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fnftg.console import progress
from fnftg.errors import FnftgError, shortened
from fnftg.kg.blocks import Block, Report, TextBlock, TripleBlock, split_rank
from fnftg.kg.readable import readable
from fnftg.kg.store import KINDS, as_chunk, seal, sorted_rows, write_array, write_strings

GATHERED_BYTES = 1 << 24  # how much text is put in order at a time


class HashCollisionError(Exception):
    """Two ids have the same 64-bit hash: to be tried again with another seed."""


class IdPool:
    """The distinct ids seen so far, in the order of their first appearance."""

    def __init__(self, seed: int):
        self.seed = seed
        self.compacted = pl.DataFrame(schema={"id": pl.String, "key": pl.UInt64, "check": pl.UInt64})
        self.pending: list[pl.DataFrame] = []

    def keys(self, ids: pl.Series) -> pl.Series:
        return ids.hash(2 * self.seed).alias("key")

    def add(self, ids: pl.Series, keys: pl.Series) -> None:
        """Adds the distinct ones of `ids`, whose keys are given."""
        check = ids.hash(2 * self.seed + 1).alias("check")
        self.pending.append(first_of_each(pl.DataFrame([ids.alias("id"), keys.alias("key"), check])))
        if sum(map(len, self.pending)) > max(len(self.compacted), 1_000_000):
            self.distinct()

    def distinct(self) -> pl.DataFrame:
        """(id, key, check), one row an id."""
        if self.pending:
            self.compacted = first_of_each(pl.concat([self.compacted, *self.pending]))
            self.pending = []
        return self.compacted


def first_of_each(ids: pl.DataFrame) -> pl.DataFrame:
    """The first row of each key; as many keys as checks means that no two ids share a key."""
    first = ids.unique("key", keep="first", maintain_order=True)
    if ids["check"].n_unique() != len(first):
        raise HashCollisionError
    return first


class TextSpill:
    """Texts in the order in which they come: their bytes on disk, and for each the key of its owner and its place."""

    def __init__(self, path: Path):
        self.path = path
        self.path.touch()
        self.end = 0
        self.index = [pl.DataFrame(schema={"key": pl.UInt64, "start": pl.Int64, "bytes": pl.Int64})]

    def add(self, keys: pl.Series, texts: pl.Series) -> None:
        """Keeps the texts that are not empty, on one line each: runs of white space become one space."""
        untidy = texts.str.contains(r"\s\s|[^\S ]")
        if untidy.any():
            texts = texts.zip_with(~untidy.fill_null(False), texts.str.replace_all(r"\s+", " "))
        texts = texts.str.strip_chars()
        present = (texts.str.len_bytes() > 0).fill_null(False)
        keys, texts = keys.filter(present), texts.filter(present)
        lengths = texts.str.len_bytes().cast(pl.Int64)
        data = ("".join(texts.to_list())).encode() if len(texts) else b""
        starts = self.end + lengths.cum_sum() - lengths
        self.index.append(pl.DataFrame({"key": keys, "start": starts, "bytes": lengths}))
        with open(self.path, "ab") as file:
            file.write(data)
        self.end += len(data)

    def distinct(self) -> tuple[pl.DataFrame, int]:
        """(key, start, bytes) of the first text of each key, and how many later ones there were."""
        index = pl.concat(self.index)
        first = index.unique("key", keep="first", maintain_order=True)
        return first, len(index) - len(first)


class GraphBuilder:
    """Takes blocks in any order, then writes the store into `folder`."""

    def __init__(self, folder: Path, report: Report, strict: bool, keep_isolated: bool, hash_seed: int):
        self.folder, self.report, self.strict, self.keep_isolated = folder, report, strict, keep_isolated
        self.pools = {kind: IdPool(hash_seed) for kind in KINDS}
        self.text_pools = {kind: IdPool(hash_seed) for kind in KINDS}  # ids that have a text
        self.texts = {kind: TextSpill(folder / f"{kind}.texts.spill") for kind in KINDS}
        self.names = TextSpill(folder / "entities.names.spill")
        self.triples: dict[str, list[pl.DataFrame]] = {}  # per split: keys of head, relation, tail

    def add(self, block: Block) -> None:
        if isinstance(block, TripleBlock):
            self._add_triples(block)
        else:
            self._add_texts(block)

    def _add_triples(self, block: TripleBlock) -> None:
        frame = block.frame
        for column in frame.iter_columns():
            check_ids(column, block.place)
        entities, relations = self.pools["entities"], self.pools["relations"]
        # First appearance reads along the lines: head, tail, head, tail, …
        ends = pl.concat([frame["head"], frame["tail"]]).gather(np.arange(2 * len(frame)).reshape(2, -1).T.reshape(-1))
        end_keys, relation_keys = entities.keys(ends), relations.keys(frame["relation"])
        entities.add(ends, end_keys)
        relations.add(frame["relation"], relation_keys)
        keys = {"head": end_keys.gather_every(2), "relation": relation_keys, "tail": end_keys.gather_every(2, 1)}
        self.triples.setdefault(block.split, []).append(pl.DataFrame(keys))

    def _add_texts(self, block: TextBlock) -> None:
        frame, kind = block.frame, block.kind
        check_ids(frame["id"], block.place)
        keys = self.pools[kind].keys(frame["id"])
        self.texts[kind].add(keys, frame["text"])
        if kind == "entities" and "name" in frame.columns:
            self.names.add(keys, frame["name"])
        if self.keep_isolated:
            self.text_pools[kind].add(frame["id"], keys)

    def finish(self) -> None:
        """Writes every array, the manifest last."""
        if not self.triples:
            raise FnftgError(f"{self.report.source} holds no triples: nothing to import.")
        vocabularies = {kind: self._write_vocabulary(kind) for kind in KINDS}
        self.report.entities, self.report.relations = (len(vocabularies[kind]) for kind in KINDS)
        self._write_triples(vocabularies)
        seal(self.folder, self.report.as_dict())

    def _write_vocabulary(self, kind: str) -> pl.DataFrame:
        """Ids, order, texts and names; returns (key, row)."""
        ids = self.pools[kind].distinct()
        texts, repeated = self.texts[kind].distinct()
        if repeated:
            self.report.left_out[f"further texts of {kind} that had one already"] += repeated
        if self.keep_isolated:
            # Ids that have a text but no triple follow those of the triples.
            ids = first_of_each(pl.concat([ids, self.text_pools[kind].distinct()]))
        elif isolated := len(texts.join(ids, on="key", how="anti")):
            self.report.left_out[f"texts of {kind} in no triple (kept with --keep-isolated)"] += isolated
        write_strings(
            self.folder, f"{kind}.ids", (as_chunk(chunk["id"].to_list()) for chunk in ids.iter_slices(100_000))
        )
        write_array(self.folder / f"{kind}.ids.order.npy", sorted_rows(ids["id"]))
        self._write_texts(kind, ids, texts)
        if kind == "entities":
            self._write_names(ids)
        return ids.select("key").with_row_index("row")

    def _write_texts(self, kind: str, ids: pl.DataFrame, texts: pl.DataFrame) -> None:
        placed = ids.join(texts, on="key", how="left", maintain_order="left")
        without = placed.filter(pl.col("start").is_null())["id"]
        if len(without) and self.strict:
            one = {"entities": "entity", "relations": "relation"}[kind]
            more = f" (and {len(without) - 1:,} more)" if len(without) > 1 else ""
            raise FnftgError(
                f"{self.report.source}: the {one} {shortened(without[0])}{more} has no text; "
                "add it to the texts, or leave out --strict to read the id instead."
            )
        self.report.filled_texts[kind] = len(without)
        # What is missing is spilled behind the rest, so that every text has a place.
        spill = self.texts[kind]
        filled = [line.encode() for line in readable(without).to_list()]
        lengths = np.fromiter(map(len, filled), np.int64, len(filled))
        with open(spill.path, "ab") as file:
            file.write(b"".join(filled))
        starts, sizes = (placed[column].fill_null(0).to_numpy(writable=True) for column in ("start", "bytes"))
        missing = placed["start"].is_null().to_numpy()
        starts[missing] = spill.end + np.cumsum(lengths) - lengths
        sizes[missing] = lengths
        self._write_gathered(f"{kind}.texts", spill.path, starts, sizes)

    def _write_names(self, ids: pl.DataFrame) -> None:
        names, _ = self.names.distinct()
        placed = ids.join(names, on="key", how="left", maintain_order="left")
        if placed["start"].null_count() == len(placed):
            self.names.path.unlink()
            return
        starts, sizes = (placed[column].fill_null(0).to_numpy() for column in ("start", "bytes"))
        self._write_gathered("entities.names", self.names.path, starts, sizes)

    def _write_gathered(
        self, name: str, spill: Path, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> None:
        write_strings(self.folder, name, gathered_lines(spill, starts, sizes))
        spill.unlink()

    def _write_triples(self, vocabularies: dict[str, pl.DataFrame]) -> None:
        rows_of = {kind: vocabulary.rename({"row": "found"}) for kind, vocabulary in vocabularies.items()}
        for split in sorted(self.triples, key=split_rank):
            keys = pl.concat(self.triples.pop(split))
            columns = {}
            for column, kind in (("head", "entities"), ("relation", "relations"), ("tail", "entities")):
                joined = keys.select(key=column).join(rows_of[kind], on="key", how="left", maintain_order="left")
                columns[column] = joined["found"].cast(pl.Int32)
            triples = pl.DataFrame(columns)
            distinct = triples.unique(maintain_order=True)
            if repeated := len(triples) - len(distinct):
                self.report.left_out[f"repeated triples in {split}"] += repeated
            self.report.triples[split] = len(distinct)
            self.report.self_loops += int((distinct["head"] == distinct["tail"]).sum())
            write_array(self.folder / f"triples.{split}.npy", distinct.to_numpy())


def check_ids(ids: pl.Series, place: str) -> None:
    """Ids must be one line that is not empty: otherwise no text format could hold them."""
    bad = ids.str.contains(r"[\t\n\r]") | (ids.str.len_bytes() == 0)
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise FnftgError(
            f"{place}: {shortened(ids[row])} cannot be an id; ids must not be empty nor hold tabs or line breaks."
        )


def gathered_lines(
    spill: Path, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> Iterator[tuple[bytes, npt.NDArray[np.int64]]]:
    """The spilled strings as lines in the order asked for, some megabytes at a time."""
    data = np.memmap(spill, np.uint8, mode="r") if spill.stat().st_size else np.empty(0, np.uint8)
    ends = np.cumsum(sizes + 1)  # of each line in the output
    with progress(f"Writing {spill.stem}", int(ends[-1]) if len(ends) else 0) as advance:
        first = 0
        while first < len(sizes):
            begin = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, begin + GATHERED_BYTES, side="right")), first + 1)
            lengths = sizes[first:last] + 1
            line_starts = ends[first:last] - lengths - begin  # (lines,) within this chunk
            source = np.repeat(starts[first:last] - line_starts, lengths)  # (bytes,)
            source += np.arange(len(source))
            line_ends = line_starts + lengths - 1
            source[line_ends] = 0
            lines = data[source] if len(data) else np.empty(len(source), np.uint8)
            lines[line_ends] = ord("\n")
            yield lines.tobytes(), lengths
            advance(len(lines))
            first = last
