"""Equality of two graphs, independent of the order of their ids and triples."""

from __future__ import annotations

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array
from fnftg.kg.graph_data import NO_TRIPLES, GraphData, Triples, Vocabulary
from fnftg.kg.strings import as_series


def same_graph(one: GraphData, other: GraphData) -> bool:
    entities = _matching_rows(one.entities, other.entities)
    relations = _matching_rows(one.relations, other.relations)
    if entities is None or relations is None:
        return False
    splits = {split for graph in (one, other) for split, triples in graph.splits.items() if len(triples)}
    return all(_same_triples(one, other, split, entities, relations) for split in splits)


def _matching_rows(one: Vocabulary, other: Vocabulary) -> Int32Array | None:
    """Return for each row of `one` the row of `other` with the same id, name and text; None if they differ."""
    if len(one) != len(other):
        return None
    columns = ["id", "name", "text"]
    frames = [_frame(vocabulary).with_row_index(f"row_{index}") for index, vocabulary in enumerate((one, other))]
    joined = frames[0].join(frames[1], on=columns, how="left", maintain_order="left")
    if joined["row_1"].null_count():
        return None
    return joined["row_1"].cast(pl.Int32).to_numpy()


def _frame(vocabulary: Vocabulary) -> pl.DataFrame:
    names = as_series(vocabulary.names) if vocabulary.names is not None else pl.lit("")
    return pl.DataFrame({"id": as_series(vocabulary.ids), "text": as_series(vocabulary.texts)}).with_columns(name=names)


def _same_triples(
    one: GraphData,
    other: GraphData,
    split: str,
    entities: Int32Array,
    relations: Int32Array,
) -> bool:
    ours, theirs = (graph.splits.get(split, NO_TRIPLES) for graph in (one, other))
    if len(ours) != len(theirs):
        return False
    translated = np.stack([entities[ours[:, 0]], relations[ours[:, 1]], entities[ours[:, 2]]], axis=1)
    return np.array_equal(_sorted(translated), _sorted(theirs))


def _sorted(triples: Triples) -> Triples:
    return triples[np.lexsort(triples.T[::-1])]
