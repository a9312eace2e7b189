"""`fnftg update`: a graph that grows, embedded only where it changed.

What is written appears in this order, each thing whole: the new store, the answers for it, the note that it is the
current one. A crash in between leaves the old graph current.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fnftg.arrays import AnyArray
from fnftg.ego.context import GraphContext
from fnftg.errors import FnftgError, shortened
from fnftg.files import new_folder
from fnftg.kg.formats.delimited_lines import parse
from fnftg.kg.formats.lines import line_blocks
from fnftg.kg.graph import KnowledgeGraph, Triples, Vocabulary
from fnftg.kg.store import write_array
from fnftg.predict import answer_cache
from fnftg.predict.index import HNSW, NearestIndex
from fnftg.predict.predictor import Predictor, changed_rows
from fnftg.text.features import FeatureStore, FlatTable, ViewTable

SPLIT, GRAPHS = "added", "graphs"
BLOCK = 1 << 16  # rows of a table that are copied at a time


@dataclass(frozen=True)
class Update:
    """What came of it."""

    store: Path
    entities: int  # new ones
    relations: int
    triples: int
    embedded: int  # entities, new ones included
    index: NearestIndex | None


def read_additions(
    graph: KnowledgeGraph, triples: Path | None, texts: Path | None, relation_texts: Path | None
) -> KnowledgeGraph:
    """A view with what the files add: lines of head, relation, tail; and lines of id, text."""
    if triples is None and texts is None:
        raise FnftgError("There is nothing to add: give --triples, --texts or both.")
    entities = _new_texts(graph.entities, texts, "entity")
    relations = _new_texts(graph.relations, relation_texts, "relation")
    view = graph.extended(entities, relations)
    rows = [_rows(view, *place_and_frame) for place_and_frame in ([] if triples is None else _frames(triples, 3))]
    if not rows:
        return view
    added: Triples = np.concatenate([graph.splits.get(SPLIT, np.empty((0, 3), np.int32)), *rows])
    return KnowledgeGraph(view.entities, view.relations, {**graph.splits, SPLIT: added}, None, graph.report)


def update(
    predictor: Predictor,
    triples: Path | None,
    texts: Path | None,
    relation_texts: Path | None = None,
    store: Path | None = None,
    force: bool = False,
) -> Update:
    """Writes the extended graph as a store, its answers into the run's folder, and makes it the graph that is asked."""
    if predictor.folder is None or predictor.graph.path is None:
        raise FnftgError(
            f"{predictor.run} cannot be updated: it must be the folder of a run, with its graph in a store."
        )
    before = len(predictor.graph.splits.get(SPLIT, ()))
    view = read_additions(predictor.graph, triples, texts, relation_texts)
    new: Triples = view.splits.get(SPLIT, np.empty((0, 3), np.int32))[before:]
    written = view.save(store or _next_store(predictor.run), force)
    assert written.path is not None
    folder = answer_cache.folder_of(predictor.run, written)
    assert folder is not None
    embedded, index = 0, None
    if not folder.is_dir():
        with new_folder(folder) as partial:
            embedded, index = write_extended(partial, predictor, written, new)
    answer_cache.set_current_graph(predictor.run, written.path)
    _remove_replaced(predictor, written.path)
    counts = (
        len(written.entities) - len(predictor.graph.entities),
        len(written.relations) - len(predictor.graph.relations),
    )
    return Update(written.path, *counts, len(new), embedded, index)


def _remove_replaced(predictor: Predictor, current: Path) -> None:
    """Stores of earlier updates, also of those that never ended, and the answers for the last one."""
    for store in (predictor.run / GRAPHS).glob("*"):
        if store.name.isdigit() and store.resolve() != current.resolve():
            if predictor.folder is not None and predictor.graph.path == store.resolve():
                shutil.rmtree(predictor.folder, ignore_errors=True)
            shutil.rmtree(store, ignore_errors=True)


def write_extended(
    folder: Path, predictor: Predictor, graph: KnowledgeGraph, triples: Triples
) -> tuple[int, NearestIndex | None]:
    """The answers for an extended graph from those of the old one; returns how many entities were embedded."""
    texts = predictor.context.texts.extended(graph, predictor.model.tt.encoder)
    entities, relations = len(graph.entities), len(graph.relations)
    neighbours = predictor.context.neighbours.extended(triples, entities, relations)
    changed = changed_rows(predictor.context.neighbours, triples, graph, predictor.model)
    vectors = answer_cache.embedded(predictor.model, GraphContext(texts, neighbours), changed)
    write_rows(
        folder / answer_cache.TABLE, entities, vectors.shape[1], _patched(predictor.table, entities, changed, vectors)
    )
    known = predictor.known.extended(triples, entities, relations)
    answer_cache.write_rest(folder, graph, neighbours, known)
    if texts.features is not None:
        _write_features(folder, texts.features, entities + 2 * relations)
    index = None
    if predictor.folder is not None and (predictor.folder / HNSW).is_dir():
        table = answer_cache.mapped(folder, answer_cache.TABLE)
        old = NearestIndex.open(predictor.folder / HNSW)
        index = old.extended(predictor.model, table, changed.astype(np.int64), predictor.sample_query_embeddings())
        index.save(folder / HNSW)
    return len(changed), index


def write_rows(path: Path, count: int, width: int, parts: Iterator[AnyArray]) -> None:
    """An .npy file of an array of float32 that is never whole in memory."""
    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, "<f4").data.cast("B") if part.size else b"")


def _patched(old: AnyArray, count: int, rows: AnyArray, vectors: Any) -> Iterator[AnyArray]:
    """The old table with some rows replaced or added, in blocks; rows ascend, and all that are new are among them."""
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        block = np.empty((stop - start, old.shape[1]), np.float32)
        block[: max(min(stop, len(old)) - start, 0)] = old[start:stop]
        first, last = np.searchsorted(rows, (start, stop))
        block[rows[first:last] - start] = vectors[first:last]
        yield block


def _write_features(folder: Path, features: FeatureStore, rows: int) -> None:
    """Old and new features as one table, so that no text is ever encoded again."""
    view = features.table
    assert isinstance(view, ViewTable) and isinstance(view.base, FlatTable)
    new, place = view.view.split(np.arange(rows))
    index = np.empty(rows, np.int64)
    index[~new] = view.base.index[place[~new]]
    index[new] = len(view.base.features) + view.added.index[place[new]]
    old, added = view.base.features, view.added.features

    def parts() -> Iterator[AnyArray]:
        for start in range(0, len(old), BLOCK):
            yield old[start : start + BLOCK]
        yield added

    write_rows(folder / answer_cache.FEATURES, len(old) + len(added), old.shape[1], parts())
    write_array(folder / answer_cache.INDEX, index)


def _next_store(run: Path) -> Path:
    taken = [int(path.name) for path in (run / GRAPHS).glob("*") if path.name.isdigit()]
    return run / GRAPHS / f"{max(taken, default=0) + 1:05}"


# Reading


def _frames(path: Path, width: int) -> Iterator[tuple[Any, pl.DataFrame]]:
    if not path.is_file():
        raise FnftgError(f"{path} is not a file: check the path.")
    for block in line_blocks(path):
        yield block, parse(block, "\t", width, list(range(width)))


def _new_texts(vocabulary: Vocabulary, path: Path | None, kind: str) -> dict[str, str]:
    """The ids that the graph lacks, with their texts."""
    texts: dict[str, str] = {}
    for block, frame in [] if path is None else _frames(path, 2):
        for id_, text in frame.iter_rows():
            row = vocabulary.find(id_)
            known = texts.get(id_) if row is None else vocabulary.texts[row]
            if known is not None and known != text:
                place = _line(block, id_)
                raise FnftgError(
                    f"{place}: the {kind} {shortened(id_)} has another text already; import the graph anew."
                )
            if row is None:
                texts[id_] = text
    return texts


def _rows(view: KnowledgeGraph, block: Any, frame: pl.DataFrame) -> Triples:
    columns = []
    for name, kind, vocabulary in (
        ("0", "entity", view.entities),
        ("1", "relation", view.relations),
        ("2", "entity", view.entities),
    ):
        distinct = frame[name].unique(maintain_order=True)
        found = {id_: vocabulary.find(id_) for id_ in distinct}
        for id_, row in found.items():
            if row is None:
                option = "--texts" if kind == "entity" else "--relation-texts"
                raise FnftgError(
                    f"{_line(block, id_)}: the graph has no {kind} {shortened(id_)}; give its text with {option}."
                )
        columns.append(frame[name].replace_strict(found, return_dtype=pl.Int32).to_numpy())
    return np.stack(columns, axis=1).astype(np.int32)


def _line(block: Any, id_: str) -> str:
    """The place of the first line that has an id in one of its columns."""
    for number, line in block.lines():
        if id_.encode() in line.split(b"\t"):
            return f"{block.path}, line {number}"
    return str(block.path)
