"""A graph on disk: a folder of arrays, text files with one string per line, and a manifest in JSON.

manifest.json                       format, version, counts, size and SHA-256 of each file, the import's report
entities.ids.txt                    one id per line; likewise .names.txt (optional) and .texts.txt
entities.ids.offsets.npy            the offset of each line; likewise for names and texts
entities.ids.order.npy              rows sorted by id
relations.…                         the same for relations
triples.train.npy                   (n, 3) int32: head, relation, tail; one file per split
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fnftg.array_files import load_array, load_offsets, map_bytes, write_array
from fnftg.arrays import Int32Array, Int64Array
from fnftg.checksums import MANIFEST, has_checksum
from fnftg.console import progress
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import check_not_source, new_folder, sha256
from fnftg.json_files import read_json, write_json
from fnftg.kg.graph_data import GraphData, Triples, Vocabulary
from fnftg.kg.strings import StringList, Strings, as_series, blocks
from fnftg.version import __version__

GRAPH = "graph"  # the kind of folder
FORMAT, VERSION = f"fnftg-{GRAPH}", 1
KINDS = ("entities", "relations")
REQUIRED = ("ids.txt", "ids.offsets.npy", "ids.order.npy", "texts.txt", "texts.offsets.npy")  # of both kinds


def is_store(path: Path) -> bool:
    return (path / MANIFEST).is_file()


# Writing


def write_strings(folder: Path, name: str, chunks: Iterable[tuple[bytes | memoryview, Int64Array]]) -> None:
    """Write lines and their offsets. Each chunk has the bytes of its lines and the length of every line."""
    offsets, end = [np.zeros(1, np.int64)], 0
    with open(folder / f"{name}.txt", "wb") as file:
        for lines, lengths in chunks:
            file.write(lines)
            offsets.append(end + np.cumsum(lengths, dtype=np.int64))
            end += len(lines)
    write_array(folder / f"{name}.offsets.npy", np.concatenate(offsets))


def as_chunk(strings: list[str]) -> tuple[bytes, Int64Array]:
    """Return strings as a chunk for `write_strings`."""
    table = Strings.of(strings)
    return table.lines.tobytes(), np.diff(table.offsets)


def sorted_rows(ids: pl.Series) -> Int32Array:
    """Return the rows sorted by the bytes of their ids."""
    return ids.arg_sort().cast(pl.Int32).to_numpy()


def seal(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the manifest, which makes a folder of arrays a store."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".npy", ".txt"))
    with progress("Checksums", sum(path.stat().st_size for path in files)) as advance:
        listed = {}
        for path in files:
            size = path.stat().st_size
            listed[path.name] = {"bytes": size, "sha256": sha256(path)}
            advance(size)
    lengths = {path.name: len(np.load(path, mmap_mode="r")) for path in files if path.suffix == ".npy"}
    splits = list(report["triples"])
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": f"fnftg {__version__}",
        "entities": lengths["entities.ids.order.npy"],
        "relations": lengths["relations.ids.order.npy"],
        "triples": {split: lengths[f"triples.{split}.npy"] for split in splits},
        "report": report,
        "files": listed,
    }
    write_json(folder / MANIFEST, manifest)


def write_store(graph: GraphData, path: Path, force: bool = False) -> None:
    """Write a graph or a view to a store."""
    check_not_source(path, graph.path)
    with new_folder(path, GRAPH, force) as folder:
        for kind, vocabulary in zip(KINDS, (graph.entities, graph.relations), strict=True):
            for column in ("ids", "names", "texts"):
                strings = getattr(vocabulary, column)
                if strings is not None:
                    write_strings(folder, f"{kind}.{column}", map(as_chunk, blocks(strings)))
            write_array(folder / f"{kind}.ids.order.npy", sorted_rows(as_series(vocabulary.ids)))
        for split, triples in graph.splits.items():
            write_array(folder / f"triples.{split}.npy", triples)
        seal(folder, {**graph.report, "triples": {split: len(triples) for split, triples in graph.splits.items()}})


# Opening


def read_store(path: Path, verify: bool = False) -> GraphData:
    """Map the arrays of a store into memory. With `verify`, compare all files with their checksums first."""
    manifest = _read_manifest(path)
    try:
        _check_sizes(path, manifest["files"])
        if verify:
            verify_store(path, manifest)
        entities, relations = (_vocabulary(path, kind, manifest, verify) for kind in KINDS)
        splits = {
            split: load_array(path / f"triples.{split}.npy", np.int32, (None, 3)) for split in manifest["triples"]
        }
        counts = len(entities), len(relations), {split: len(triples) for split, triples in splits.items()}
        if counts != (manifest["entities"], manifest["relations"], manifest["triples"]):
            raise DamagedError("the lengths of its arrays differ from its manifest.")
        if verify:
            _check_triples(splits, len(entities), len(relations))
    except DamagedError as error:
        raise DamagedError(f"The store {path} is damaged: {str(error).rstrip('.')}; import it again.") from error
    return GraphData(entities, relations, splits, path, manifest["report"])


def verify_store(path: Path, manifest: Mapping[str, Any] | None = None) -> None:
    """Compare every file with its checksum. Raises a `DamagedError` for the first that differs."""
    files = (manifest or _read_manifest(path))["files"]
    with progress("Verifying", sum(facts["bytes"] for facts in files.values())) as advance:
        for name, facts in files.items():
            if not has_checksum(path / name, facts["sha256"], sha256):
                raise DamagedError(f"the checksum of {name} does not match.")
            advance(facts["bytes"])


def _check_sizes(path: Path, files: Mapping[str, Any]) -> None:
    for name, facts in files.items():
        size = (path / name).stat().st_size if (path / name).is_file() else None
        if size != facts["bytes"]:
            raise DamagedError(
                f"{name} is missing." if size is None else f"{name} has {size:,} bytes instead of {facts['bytes']:,}."
            )


def _check_triples(splits: Mapping[str, Triples], entities: int, relations: int) -> None:
    """Raise unless all values of the triples are rows of the vocabularies."""
    for split, triples in splits.items():
        for column, count in enumerate((entities, relations, entities)):
            values = triples[:, column]
            if len(values) and not (values.min() >= 0 and values.max() < count):
                raise DamagedError(f"triples.{split}.npy has an entity or a relation that the store does not have.")


def in_memory(graph: GraphData) -> GraphData:
    """Return a copy in memory that does not need the store's files."""

    def load(vocabulary: Vocabulary) -> Vocabulary:
        def copy(strings: StringList | None) -> Strings | None:
            if strings is None:
                return None
            assert isinstance(strings, Strings)
            return Strings(np.array(strings.lines), np.array(strings.offsets))

        ids, texts = copy(vocabulary.ids), copy(vocabulary.texts)
        assert ids is not None and texts is not None and vocabulary.order is not None
        return Vocabulary(ids, texts, copy(vocabulary.names), np.array(vocabulary.order))

    splits = {split: np.array(triples) for split, triples in graph.splits.items()}
    return GraphData(load(graph.entities), load(graph.relations), splits, None, graph.report)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not is_store(path):
        raise FnftgError(f"{path} is not a store (it has no {MANIFEST}): create one with fnftg import.")
    try:
        manifest = read_json(path / MANIFEST)
    except DamagedError as error:
        raise DamagedError(f"{error} Import the graph again.") from error
    if manifest.get("format") != FORMAT:
        raise FnftgError(f"{path} is not a graph store (its format is {manifest.get('format')!r}).")
    version = manifest.get("version")
    if isinstance(version, int) and version > VERSION:
        raise FnftgError(
            f"The store {path} has format version {version}, but this fnftg reads only up to {VERSION}: upgrade fnftg."
        )
    if version != VERSION or not _describes_a_store(manifest):
        raise DamagedError(f"{path / MANIFEST} does not describe a store: import the graph again.")
    return manifest


def _describes_a_store(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest has all fields that are needed to open a store, with the right types."""
    files, triples = manifest.get("files"), manifest.get("triples")
    return (
        isinstance(files, dict)
        and isinstance(triples, dict)
        and all(isinstance(manifest.get(kind), int) for kind in KINDS)
        and isinstance(manifest.get("report"), dict)
        and all(isinstance(facts, dict) and isinstance(facts.get("bytes"), int) for facts in files.values())
        and all(Path(name).name == name and isinstance(facts.get("sha256"), str) for name, facts in files.items())
        and {f"triples.{split}.npy" for split in triples} <= files.keys()
        and {f"{kind}.{part}" for kind in KINDS for part in REQUIRED} <= files.keys()
    )


def _vocabulary(path: Path, kind: str, manifest: Mapping[str, Any], verify: bool) -> Vocabulary:
    count = manifest[kind]

    def strings(column: str) -> Strings:
        lines = map_bytes(path / f"{kind}.{column}.txt")
        return Strings(lines, load_offsets(path / f"{kind}.{column}.offsets.npy", count, len(lines)))

    names = strings("names") if f"{kind}.names.txt" in manifest["files"] else None
    bounds = (0, count) if verify else None
    order = load_array(path / f"{kind}.ids.order.npy", np.int32, (count,), bounds)
    return Vocabulary(strings("ids"), strings("texts"), names, order)
