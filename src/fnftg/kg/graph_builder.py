"""Build a store from blocks of strings: map ids to dense integers, join texts to ids, remove duplicates.

Strings are compared by a 64-bit hash, which is several times faster than comparing them directly. A second hash detects
collisions of the first; the import then restarts with another seed. Texts are spilled to disk as they arrive and sorted
by entity at the end, so that only one block of texts is in memory.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from fnftg.array_files import write_array
from fnftg.arrays import Int32Array, Int64Array, UInt8Array, UInt64Array
from fnftg.console import progress
from fnftg.errors import FnftgError, shortened
from fnftg.files import new_folder
from fnftg.kg.blocks import Block, Report, TextBlock, TripleBlock, split_rank
from fnftg.kg.graph_data import GraphData
from fnftg.kg.readable_ids import readable
from fnftg.kg.row_table import HashCollisionError, RowTable, byte_order, gather, untidy, without_repeats
from fnftg.kg.store import GRAPH, KINDS, in_memory, read_store, seal, write_strings
from fnftg.kg.strings import Strings, as_series

GATHERED_BYTES = 1 << 24  # of text that is sorted at a time
MANY_TRIPLES = 1 << 25  # 400 MB
MOST_SPLITS = 100  # each is a file of the store, which stays open


class IdPool:
    """The distinct ids seen so far, in order of first appearance."""

    def __init__(self, seed: int):
        self.seed = seed
        self.table = RowTable()
        self.lines: list[bytes] = []
        self.sizes = [np.zeros(1, np.int64)]  # of the lines

    def keys(self, ids: pl.Series) -> pl.Series:
        return ids.hash(2 * self.seed)

    def hashes(self, *columns: pl.Series) -> tuple[UInt64Array, UInt64Array]:
        """Return the keys and check hashes of the ids, line by line."""
        keys = [self.keys(ids).to_numpy() for ids in columns]
        checks = [ids.hash(2 * self.seed + 1).to_numpy() for ids in columns]
        return np.stack(keys, axis=1).reshape(-1), np.stack(checks, axis=1).reshape(-1)

    def add(self, place: str, *columns: pl.Series) -> Int32Array:
        """Return the row of each id, (lines, columns). New ids get the next rows, line by line."""
        rows, first = self.table.add(*self.hashes(*columns))
        if len(first):
            line, column = np.divmod(first, len(columns))
            lines, offsets = id_lines(pl.concat(columns).gather(column * len(columns[0]) + line), place)
            self.lines.append(lines.tobytes())
            self.sizes.append(np.diff(offsets))
        return rows.reshape(-1, len(columns))

    def strings(self) -> Strings:
        return Strings(np.frombuffer(b"".join(self.lines), np.uint8), np.cumsum(np.concatenate(self.sizes)))


class TextSpill:
    """Texts in order of arrival: their lines on disk, and for each text the hashes of its id and its place."""

    def __init__(self, path: Path):
        self.path = path
        self.path.touch()
        self.end = 0
        self.index: list[tuple[UInt64Array, UInt64Array, Int64Array, Int64Array]] = []  # key, check, start, size

    def add(self, keys: UInt64Array, checks: UInt64Array, texts: pl.Series) -> None:
        """Write the non-empty texts, one per line. Runs of white space become one space."""
        lines, offsets = lines_of(texts)
        to_tidy = untidy(lines, offsets)
        if to_tidy.any():
            tidied = texts.str.replace_all(r"\s+", " ").str.strip_chars(" ")
            lines, offsets = lines_of(tidied.zip_with(pl.Series(to_tidy), texts))
        sizes = np.diff(offsets) - 1
        present = sizes > 0
        self.index.append((keys[present], checks[present], self.write(lines) + offsets[:-1][present], sizes[present]))

    def write(self, lines: UInt8Array) -> int:
        """Append lines and return the offset of the first."""
        with open(self.path, "ab") as file:
            file.write(lines.data)
        self.end += len(lines)
        return self.end - len(lines)

    def places(self, table: RowTable) -> tuple[Int64Array, Int64Array, int, int]:
        """Return start and size of each row's first text (size 0: none), and the numbers of further texts and of ids
        without a row."""
        starts, sizes = np.zeros(table.size, np.int64), np.zeros(table.size, np.int64)
        later, others = 0, RowTable()
        for keys, checks, own_starts, own_sizes in self.index:
            rows = table.find(keys, checks)
            first = np.unique(rows, return_index=True)[1]
            known = first[rows[first] >= 0]
            known = known[sizes[rows[known]] == 0]
            starts[rows[known]], sizes[rows[known]] = own_starts[known], own_sizes[known]
            before = others.size
            others.add(keys[rows < 0], checks[rows < 0])
            later += len(rows) - len(known) - (others.size - before)
        return starts, sizes, later, others.size


class TriplePool:
    """The triples of a split in order of arrival. Duplicates are removed whenever the number of triples has doubled."""

    def __init__(self) -> None:
        self.parts: list[Int32Array] = []
        self.size = self.distinct = self.added = 0

    def add(self, triples: Int32Array) -> None:
        self.parts.append(triples)
        self.size += len(triples)
        self.added += len(triples)
        if self.size > max(2 * self.distinct, MANY_TRIPLES):
            self.parts = [self.take().copy()]  # a copy, as this may be a few rows of a large array
            self.size = self.distinct = len(self.parts[0])

    def take(self) -> Int32Array:
        """Return the distinct triples and empty the pool."""
        triples, self.parts = np.concatenate(self.parts), []
        return without_repeats(triples)


class GraphBuilder:
    """Collects blocks in any order, then writes the store to `folder`."""

    def __init__(self, folder: Path, report: Report, strict: bool, keep_isolated: bool, hash_seed: int):
        self.folder, self.report, self.strict, self.keep_isolated = folder, report, strict, keep_isolated
        self.pools = {kind: IdPool(hash_seed) for kind in KINDS}
        self.text_pools = {kind: IdPool(hash_seed) for kind in KINDS}  # ids that have a text
        self.texts = {kind: TextSpill(folder / f"{kind}.texts.spill") for kind in KINDS}
        self.names = TextSpill(folder / "entities.names.spill")
        self.triples: dict[str, TriplePool] = {}  # per split

    def add(self, block: Block) -> None:
        if isinstance(block, TripleBlock):
            self._add_triples(block)
        else:
            self._add_texts(block)

    def _add_triples(self, block: TripleBlock) -> None:
        if block.split not in self.triples and len(self.triples) == MOST_SPLITS:
            raise FnftgError(
                f"{block.place} and below: there are more than {MOST_SPLITS} splits; check that the column split, or "
                "the one given with --split, names splits."
            )
        head, relation, tail = (block.frame[column] for column in ("head", "relation", "tail"))
        triples = np.empty((len(head), 3), np.int32)
        triples[:, ::2] = self.pools["entities"].add(block.place, head, tail)
        triples[:, 1:2] = self.pools["relations"].add(block.place, relation)
        self.triples.setdefault(block.split, TriplePool()).add(triples)

    def _add_texts(self, block: TextBlock) -> None:
        frame, kind = block.frame, block.kind
        if self.keep_isolated:
            self.text_pools[kind].add(block.place, frame["id"])
        else:
            id_lines(frame["id"], block.place)
        keys, checks = self.text_pools[kind].hashes(frame["id"])
        self.texts[kind].add(keys, checks, frame["text"])
        if kind == "entities" and "name" in frame.columns:
            self.names.add(keys, checks, frame["name"])

    def finish(self) -> None:
        """Write all arrays, then the manifest."""
        if not self.triples:
            raise FnftgError(f"{self.report.source} contains no triples: nothing to import.")
        self._write_triples()
        self.report.entities, self.report.relations = (self._write_vocabulary(kind) for kind in KINDS)
        seal(self.folder, self.report.as_dict())

    def _write_triples(self) -> None:
        for split in sorted(self.triples, key=split_rank):
            pool = self.triples.pop(split)
            distinct = pool.take()
            if repeated := pool.added - len(distinct):
                self.report.left_out[f"repeated triples in {split}"] += repeated
            self.report.triples[split] = len(distinct)
            self.report.self_loops += int((distinct[:, 0] == distinct[:, 2]).sum())
            write_array(self.folder / f"triples.{split}.npy", distinct)

    def _write_vocabulary(self, kind: str) -> int:
        """Write ids, order, texts and names. Returns the number of ids."""
        pool = self.pools[kind]
        if self.keep_isolated:
            # Ids with a text but no triple follow the ids of the triples.
            pool.add("", as_series(self.text_pools[kind].strings()))
        ids = pool.strings()
        write_strings(self.folder, f"{kind}.ids", [(ids.lines.tobytes(), np.diff(ids.offsets))])
        write_array(self.folder / f"{kind}.ids.order.npy", byte_order(ids))
        self._write_texts(kind, ids)
        if kind == "entities":
            self._write_names()
        return len(ids)

    def _write_texts(self, kind: str, ids: Strings) -> None:
        spill = self.texts[kind]
        starts, sizes, later, isolated = spill.places(self.pools[kind].table)
        if later:
            self.report.left_out[f"further texts of {kind} that had one already"] += later
        if isolated:
            self.report.left_out[f"texts of {kind} in no triple (kept with --keep-isolated)"] += isolated
        missing = sizes == 0
        self.report.filled_texts[kind] = int(missing.sum())
        if missing.any():
            without = as_series(ids).filter(pl.Series(missing))
            if self.strict:
                one = {"entities": "entity", "relations": "relation"}[kind]
                more = f" (and {len(without) - 1:,} more)" if len(without) > 1 else ""
                raise FnftgError(
                    f"{self.report.source}: the {one} {shortened(without[0])}{more} has no text; "
                    "add it to the texts, or omit --strict to derive it from the id."
                )
            # Missing texts are derived from the ids and appended to the spill.
            lines, offsets = lines_of(readable(without))
            starts[missing], sizes[missing] = spill.write(lines) + offsets[:-1], np.diff(offsets) - 1
        self._write_gathered(f"{kind}.texts", spill.path, starts, sizes)

    def _write_names(self) -> None:
        starts, sizes, _, _ = self.names.places(self.pools["entities"].table)
        if sizes.any():
            self._write_gathered("entities.names", self.names.path, starts, sizes)
        else:
            self.names.path.unlink()

    def _write_gathered(self, name: str, spill: Path, starts: Int64Array, sizes: Int64Array) -> None:
        write_strings(self.folder, name, gathered_lines(spill, starts, sizes))
        spill.unlink()


def build_store(
    store: str | os.PathLike[str],
    source: str,
    format: str,
    blocks_of: Callable[[Report], Iterator[Block]],
    strict: bool = False,
    keep_isolated: bool = False,
    force: bool = False,
) -> None:
    """Write the blocks that `blocks_of(report)` yields to a store.

    In the rare case that two ids have the same hash, this restarts with another seed.
    """
    for hash_seed in range(8):
        report = Report(source, format)
        try:
            with new_folder(store, GRAPH, force) as folder:
                builder = GraphBuilder(folder, report, strict, keep_isolated, hash_seed)
                for block in blocks_of(report):
                    builder.add(block)
                builder.finish()
            return
        except HashCollisionError:
            continue
    raise RuntimeError("eight hash seeds in a row collided")


def build_from_triples(
    splits: Mapping[str, Iterable[tuple[str, str, str]]],
    entity_texts: Mapping[str, str],
    relation_texts: Mapping[str, str],
) -> GraphData:
    """Build a graph in memory. Texts of entities without triples are kept."""

    def blocks_of(report: Report) -> Iterator[Block]:
        for split, triples in splits.items():
            rows = [tuple(map(str, triple)) for triple in triples]
            frame = pl.DataFrame(rows, schema=dict.fromkeys(("head", "relation", "tail"), pl.String), orient="row")
            yield TripleBlock(split, frame, f"triples of {split}")
        for kind, texts in (("entities", entity_texts), ("relations", relation_texts)):
            columns = {"id": list(texts), "text": list(texts.values())}
            yield TextBlock(kind, pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)), f"texts of {kind}")  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        build_store(store, "triples in memory", "python", blocks_of, keep_isolated=True)
        return in_memory(read_store(store))


def lines_of(strings: pl.Series) -> tuple[UInt8Array, Int64Array]:
    """Return the strings as lines, and the offset of each line. Nulls become empty lines."""
    buffer = io.BytesIO()
    strings.to_frame("lines").write_csv(buffer, include_header=False, quote_style="never")
    sizes = strings.str.len_bytes().fill_null(0).to_numpy()
    return np.frombuffer(buffer.getbuffer(), np.uint8), np.append(0, np.cumsum(sizes + np.int64(1)))


def id_lines(ids: pl.Series, place: str) -> tuple[UInt8Array, Int64Array]:
    """Return ids as lines, as `lines_of` does.

    Raises:
        FnftgError: if an id is blank or contains tabs or line breaks, which text formats cannot represent.
    """
    lines, offsets = lines_of(ids)
    data = lines.tobytes()
    broken = data.count(b"\n") > len(ids) or b"\t" in data or b"\r" in data
    if broken or (np.diff(offsets) == 1).any() or untidy(lines, offsets).any():  # untidy() finds more than blank ids
        bad = ids.str.contains(r"[\t\n\r]|^\s*$")
        if bad.any():
            raise FnftgError(
                f"{place}: {shortened(ids.filter(bad)[0])} is not a valid id; "
                "ids must not be blank or contain tabs or line breaks."
            )
    return lines, offsets


def gathered_lines(spill: Path, starts: Int64Array, sizes: Int64Array) -> Iterator[tuple[memoryview, Int64Array]]:
    """Yield the spilled strings as lines in the given order, some megabytes at a time."""
    data = np.asarray(np.memmap(spill, np.uint8, mode="r")) if spill.stat().st_size else np.empty(0, np.uint8)
    ends = np.cumsum(sizes + 1)  # of each line in the output
    with progress(f"Writing {spill.stem}", int(ends[-1]) if len(ends) else 0) as advance:
        first = 0
        while first < len(sizes):
            begin = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, begin + GATHERED_BYTES, side="right")), first + 1)
            lines = np.empty(ends[last - 1] - begin, np.uint8)
            gather(data, starts[first:last], sizes[first:last], lines)
            yield lines.data, sizes[first:last] + 1
            advance(len(lines))
            first = last
