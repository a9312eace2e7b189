"""`fnftg update`: extend a graph and embed only the entities whose ego-graph changed.

Three things are written in order, each atomically: the new store, its answers, and the note that it is the current
graph. After a crash in between, the old graph is still the current one.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fnftg.array_files import write_array, write_rows
from fnftg.arrays import AnyArray
from fnftg.checksums import is_folder_of
from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import new_triples
from fnftg.errors import FnftgError, shortened
from fnftg.files import check_not_source, new_folder
from fnftg.kg.formats.delimited_lines import parse
from fnftg.kg.formats.lines import line_blocks
from fnftg.kg.graph import KnowledgeGraph, Triples, Vocabulary
from fnftg.kg.store import GRAPH
from fnftg.predict import answer_cache
from fnftg.predict.index import INDEX, NearestIndex
from fnftg.predict.predictor import Predictor, changed_rows
from fnftg.ranking.runs import RunFolder, check_writable
from fnftg.text.features import FeatureStore, FlatTable, ViewTable

SPLIT, GRAPHS = "added", "graphs"
STORE = re.compile("[0-9]{5,9}")  # name of a store in the folder of graphs
BLOCK = 1 << 16  # rows of a table copied at a time


@dataclass(frozen=True)
class Update:
    """The result of an update."""

    store: Path
    entities: int  # number of new entities
    relations: int
    triples: int
    known: int  # triples that the graph already has, or that are repeated in the file
    embedded: int  # number of embedded entities, including new ones
    index: NearestIndex | None


def read_additions(
    predictor: Predictor, triples: Path | None, texts: Path | None, relation_texts: Path | None
) -> tuple[KnowledgeGraph, Triples, int]:
    """Read the files that an update adds.

    Returns:
        A view of the extended graph, the new triples without duplicates, and the number of triples that are not new.
    """
    graph = predictor.graph
    if triples is None and texts is None:
        raise FnftgError("Nothing to add: give --triples, --texts or both.")
    entities = _new_texts(graph.entities, texts, "entity")
    relations = _new_texts(graph.relations, relation_texts, "relation")
    view = graph.extended(entities, relations)
    rows = [_rows(view, *place_and_frame) for place_and_frame in ([] if triples is None else _frames(triples, 3))]
    given: Triples = np.concatenate([np.empty((0, 3), np.int32), *rows])
    new = new_triples(predictor.known, given)
    if not len(new):
        return view, new, len(given)
    added = np.concatenate([graph.splits.get(SPLIT, new[:0]), new])
    view = KnowledgeGraph(view.entities, view.relations, {**graph.splits, SPLIT: added}, None, graph.report)
    return view, new, len(given) - len(new)


def update(
    predictor: Predictor,
    triples: Path | None,
    texts: Path | None,
    relation_texts: Path | None = None,
    store: Path | None = None,
    force: bool = False,
) -> Update:
    """Write the extended graph and its answers, and make it the run's current graph.

    Nothing is written if the files contain nothing new.
    """
    check_updatable(predictor.run)
    if predictor.folder is None or predictor.graph.path is None:
        raise FnftgError(f"{predictor.run} cannot be updated: give the folder of a run whose graph is a store.")
    for source in (predictor.graph.path, RunFolder(predictor.run).store):
        check_not_source(store or _next_store(predictor.run), source)
    view, new, known = read_additions(predictor, triples, texts, relation_texts)
    more = len(view.entities) - len(predictor.graph.entities), len(view.relations) - len(predictor.graph.relations)
    if not len(new) and not any(more):
        return Update(predictor.graph.path, 0, 0, 0, known, 0, None)
    written = view.save(store or _next_store(predictor.run), force)
    assert written.path is not None
    folder = answer_cache.folder_of(predictor.run, written)
    assert folder is not None
    embedded, index = 0, None
    if not answer_cache.is_whole(folder):
        with new_folder(folder, answer_cache.ANSWERS, owned=True) as partial:
            embedded, index = write_extended(partial, predictor, written, new)
    answer_cache.set_current_graph(predictor.run, written.path)
    _remove_replaced(predictor, written.path)
    return Update(written.path, *more, len(new), known, embedded, index)


def check_updatable(run: Path) -> None:
    """Raise FnftgError unless the folders that an update writes to can be written to."""
    for name in (answer_cache.ANSWERS, GRAPHS):
        check_writable(run / name)


def _remove_replaced(predictor: Predictor, current: Path) -> None:
    """Delete the stores of earlier updates, including interrupted ones, and the answers for the previous store."""
    for store in (predictor.run / GRAPHS).glob("*"):
        if STORE.fullmatch(store.name) and store.resolve() != current.resolve() and is_folder_of(store, GRAPH):
            if predictor.folder is not None and predictor.graph.path == store.resolve():
                shutil.rmtree(predictor.folder, ignore_errors=True)
            shutil.rmtree(store, ignore_errors=True)


def write_extended(
    folder: Path, predictor: Predictor, graph: KnowledgeGraph, triples: Triples
) -> tuple[int, NearestIndex | None]:
    """Write the answers for an extended graph; return the number of embedded entities and the index."""
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
    if predictor.folder is not None and (predictor.folder / INDEX).is_dir():
        table = answer_cache.load_vectors(folder, entities, vectors.shape[1])
        old = NearestIndex.open(predictor.folder / INDEX, len(predictor.table))
        queries = predictor.sample_query_embeddings()
        index = (
            NearestIndex.built(predictor.model, table, queries)
            if old is None
            else old.extended(predictor.model, table, changed.astype(np.int64), queries)
        )
        index.save(folder / INDEX)
    return len(changed), index


def _patched(old: AnyArray, count: int, rows: AnyArray, vectors: Any) -> Iterator[AnyArray]:
    """Yield the table with some rows replaced or added, in blocks. `rows` is sorted and includes all new rows."""
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        block = np.empty((stop - start, old.shape[1]), np.float32)
        block[: max(min(stop, len(old)) - start, 0)] = old[start:stop]
        first, last = np.searchsorted(rows, (start, stop))
        block[rows[first:last] - start] = vectors[first:last]
        yield block


def _write_features(folder: Path, features: FeatureStore, rows: int) -> None:
    """Write old and new features as one table, so that no text is encoded again."""
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
    taken = [int(path.name) for path in (run / GRAPHS).glob("*") if STORE.fullmatch(path.name)]
    return run / GRAPHS / f"{max(taken, default=0) + 1:05}"


# Reading


def _frames(path: Path, width: int) -> Iterator[tuple[Any, pl.DataFrame]]:
    if not path.is_file():
        raise FnftgError(f"{path} is not a file: check the path.")
    for block in line_blocks(path):
        yield block, parse(block, "\t", width, list(range(width)))


def _new_texts(vocabulary: Vocabulary, path: Path | None, kind: str) -> dict[str, str]:
    """Read the ids that the graph lacks, with their texts."""
    texts: dict[str, str] = {}
    for block, frame in [] if path is None else _frames(path, 2):
        for id_, text in frame.iter_rows():
            row = vocabulary.find(id_)
            known = texts.get(id_) if row is None else vocabulary.texts[row]
            if known is not None and known != text:
                place = _line(block, id_)
                raise FnftgError(
                    f"{place}: the {kind} {shortened(id_)} already has another text; import the graph again."
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
    """Return the file and number of the first line with this id in one of its columns."""
    for number, line in block.lines():
        if id_.encode() in line.split(b"\t"):
            return f"{block.path}, line {number}"
    return str(block.path)
