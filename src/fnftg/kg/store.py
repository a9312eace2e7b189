"""A graph on disk: a folder of flat arrays and one-line-a-string text files, with a manifest in JSON.

manifest.json                       format, version, counts, size and SHA-256 of each file, the import's report
entities.ids.txt                    one id a line; likewise .names.txt (optional) and .texts.txt
entities.ids.offsets.npy            where each line starts; likewise for names and texts
entities.ids.order.npy              rows sorted by id
relations.…                         the same for relations
triples.train.npy                   (n, 3) int32: head, relation, tail; one file a split
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fnftg.arrays import AnyArray, Int32Array, Int64Array, UInt8Array
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.files import new_folder, sha256
from fnftg.kg.graph import KnowledgeGraph, Triples, Vocabulary
from fnftg.kg.strings import StringList, Strings, as_series, blocks
from fnftg.version import __version__

FORMAT, VERSION, MANIFEST = "fnftg-graph", 1, "manifest.json"
KINDS = ("entities", "relations")


def is_store(path: Path) -> bool:
    return (path / MANIFEST).is_file()


# Writing


def write_array(path: Path, array: AnyArray) -> None:
    """An .npy file; unlike numpy.save, a full disk raises with its errno."""
    array = np.ascontiguousarray(array)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data.cast("B") if array.size else b"")


def write_strings(folder: Path, name: str, chunks: Iterable[tuple[bytes | memoryview, Int64Array]]) -> None:
    """Lines and their offsets, chunk by chunk: each chunk is its lines' bytes and the length of every line."""
    offsets, end = [np.zeros(1, np.int64)], 0
    with open(folder / f"{name}.txt", "wb") as file:
        for lines, lengths in chunks:
            file.write(lines)
            offsets.append(end + np.cumsum(lengths, dtype=np.int64))
            end += len(lines)
    write_array(folder / f"{name}.offsets.npy", np.concatenate(offsets))


def as_chunk(strings: list[str]) -> tuple[bytes, Int64Array]:
    """Strings as `write_strings` takes them."""
    table = Strings.of(strings)
    return table.lines.tobytes(), np.diff(table.offsets)


def sorted_rows(ids: pl.Series) -> Int32Array:
    """The rows in the order of their ids' bytes."""
    return ids.arg_sort().cast(pl.Int32).to_numpy()


def seal(folder: Path, report: Mapping[str, Any]) -> None:
    """Writes the manifest, which makes a folder of arrays a store."""
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
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def save_store(graph: KnowledgeGraph, path: Path, force: bool = False) -> KnowledgeGraph:
    """Writes any graph, also a view, as a store."""
    with new_folder(path, force) as folder:
        for kind, vocabulary in zip(KINDS, (graph.entities, graph.relations), strict=True):
            for column in ("ids", "names", "texts"):
                strings = getattr(vocabulary, column)
                if strings is not None:
                    write_strings(folder, f"{kind}.{column}", map(as_chunk, blocks(strings)))
            write_array(folder / f"{kind}.ids.order.npy", sorted_rows(as_series(vocabulary.ids)))
        for split, triples in graph.splits.items():
            write_array(folder / f"triples.{split}.npy", triples)
        seal(folder, {**graph.report, "triples": {split: len(triples) for split, triples in graph.splits.items()}})
    return open_store(path)


# Opening


def open_store(path: Path, verify: bool = False) -> KnowledgeGraph:
    manifest = _read_manifest(path)
    for name, facts in manifest["files"].items():
        size = (path / name).stat().st_size if (path / name).is_file() else None
        if size != facts["bytes"]:
            found = "is missing" if size is None else f"has {size:,} bytes instead of {facts['bytes']:,}"
            raise FnftgError(f"The store {path} is damaged: {name} {found}; import it again.")
    if verify:
        verify_store(path, manifest)
    splits: dict[str, Triples] = {split: _map_array(path, f"triples.{split}") for split in manifest["triples"]}
    entities, relations = (_vocabulary(path, kind, manifest) for kind in KINDS)
    return KnowledgeGraph(entities, relations, splits, path, manifest["report"])


def verify_store(path: Path, manifest: Mapping[str, Any] | None = None) -> None:
    """Compares every file with its checksum; raises on the first that differs."""
    files = (manifest or _read_manifest(path))["files"]
    with progress("Verifying", sum(facts["bytes"] for facts in files.values())) as advance:
        for name, facts in files.items():
            if sha256(path / name) != facts["sha256"]:
                raise FnftgError(f"The store {path} is damaged: {name} differs from its checksum; import it again.")
            advance(facts["bytes"])


def in_memory(graph: KnowledgeGraph) -> KnowledgeGraph:
    """A copy of an opened store that no longer needs its files."""

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
    return KnowledgeGraph(load(graph.entities), load(graph.relations), splits, None, graph.report)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not is_store(path):
        raise FnftgError(f"{path} is not a store (no {MANIFEST}): make one with fnftg import.")
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        known = manifest["format"] == FORMAT
        version = int(manifest["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise FnftgError(f"{path / MANIFEST} is not readable as a manifest: import the graph again.") from error
    if not known:
        raise FnftgError(f"{path} is not a graph store (its format is {manifest['format']!r}).")
    if version > VERSION:
        raise FnftgError(
            f"The store {path} has format version {version}, this fnftg reads up to {VERSION}: upgrade fnftg."
        )
    return manifest


def _vocabulary(path: Path, kind: str, manifest: Mapping[str, Any]) -> Vocabulary:
    def strings(column: str) -> Strings:
        name = f"{kind}.{column}"
        return Strings(_map_bytes(path / f"{name}.txt"), _map_array(path, f"{name}.offsets"))

    names = strings("names") if f"{kind}.names.txt" in manifest["files"] else None
    return Vocabulary(strings("ids"), strings("texts"), names, _map_array(path, f"{kind}.ids.order"))


def _map_array(path: Path, name: str) -> AnyArray:
    try:
        array: AnyArray = np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array
    except ValueError as error:
        raise FnftgError(f"The store {path} is damaged: {name}.npy is not an array; import it again.") from error


def _map_bytes(path: Path) -> UInt8Array:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r")
