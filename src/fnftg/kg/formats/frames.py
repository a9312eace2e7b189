"""Convert a graph to data frames of strings, part by part, for the writers of text formats."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from fnftg.kg.graph import KnowledgeGraph, Triples, Vocabulary
from fnftg.kg.strings import as_series, blocks

TRIPLES_AT_A_TIME = 1_000_000


def triple_frames(graph: KnowledgeGraph) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield (split, frame of head, relation and tail), split by split."""
    entities, relations = as_series(graph.entities.ids), as_series(graph.relations.ids)
    for split, triples in graph.splits.items():
        for start in range(0, len(triples), TRIPLES_AT_A_TIME):
            part: Triples = triples[start : start + TRIPLES_AT_A_TIME]
            rows = [pl.Series(part[:, column]) for column in range(3)]
            yield (
                split,
                pl.DataFrame(
                    {
                        "head": entities.gather(rows[0]),
                        "relation": relations.gather(rows[1]),
                        "tail": entities.gather(rows[2]),
                    }
                ),
            )


def vocabulary_frames(vocabulary: Vocabulary) -> Iterator[pl.DataFrame]:
    """Yield frames of id, name and text. Missing names are null."""
    names = vocabulary.names
    for ids, texts, start in zip(
        blocks(vocabulary.ids), blocks(vocabulary.texts), range(0, len(vocabulary), 100_000), strict=True
    ):
        name = pl.Series(
            names.slice(start, start + len(ids)) if names is not None else [None] * len(ids), dtype=pl.String
        )
        yield pl.DataFrame({"id": ids, "name": name.replace("", None), "text": texts})
