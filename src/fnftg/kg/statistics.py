"""The figures of the paper's dataset table, for any graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.strings import StringList, blocks


def statistics(graph: KnowledgeGraph) -> dict[str, Any]:
    """Counts of the whole graph and of each split, and how long the texts are."""
    train = entities_of(graph.triples("train"))
    relations = np.bincount(graph.all_triples()[:, 1], minlength=len(graph.relations))
    return {
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "triples": sum(map(len, graph.splits.values())),
        "splits": {split: split_statistics(triples, split, train) for split, triples in graph.splits.items()},
        "words": {"entities": words(graph.entities.texts), "relations": words(graph.relations.texts)},
        "triples_by_relation": {
            graph.relations.ids[int(row)]: int(relations[row]) for row in np.argsort(-relations, kind="stable")
        },
    }


def entities_of(triples: Triples) -> Int32Array:
    """The distinct entities at the ends of triples."""
    return np.unique(triples[:, [0, 2]])


def split_statistics(triples: Triples, split: str, train: Int32Array) -> dict[str, Any]:
    """As the paper counts: entities other than those of train (for train, its own); an entity's ego-graph has its
    outgoing edges among the split's own triples, averaged over all entities of these triples."""
    ends = entities_of(triples)
    outgoing = np.bincount(np.searchsorted(ends, triples[:, 0]), minlength=len(ends))
    return {
        "entities": len(ends) if split == "train" else len(np.setdiff1d(ends, train, assume_unique=True)),
        "triples": len(triples),
        "relations": len(np.unique(triples[:, 1])),
        "ego_graph_mean": float(outgoing.mean()) if len(ends) else 0.0,
        "ego_graph_std": float(outgoing.std()) if len(ends) else 0.0,
        "self_loops": int((triples[:, 0] == triples[:, 2]).sum()),
    }


def words(texts: StringList) -> dict[str, float]:
    """How many words a text has."""
    counts = [pl.Series(block).str.count_matches(" ").to_numpy() + 1 for block in blocks(texts)]
    lengths = np.concatenate(counts) if counts else np.zeros(1)
    return {"mean": float(lengths.mean()), "median": float(np.median(lengths)), "longest": int(lengths.max())}
