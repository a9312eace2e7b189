"""The statistics of the paper's dataset table, for any graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.strings import StringList, blocks


def statistics(graph: KnowledgeGraph) -> dict[str, Any]:
    """Return counts of the graph and of each split, and the lengths of the texts."""
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
    """Return the distinct heads and tails of triples."""
    return np.unique(triples[:, [0, 2]])


def split_statistics(triples: Triples, split: str, train: Int32Array) -> dict[str, Any]:
    """Return the counts of a split as defined in the paper.

    Entities are those that train lacks (for train, all of its own). The size of an entity's ego-graph is the number of
    its outgoing edges in the split, averaged over all entities of the split.
    """
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
    """Return the mean, median and maximum number of words in a text."""
    counts = [pl.Series(block).str.count_matches(" ").to_numpy() + 1 for block in blocks(texts)]
    lengths = np.concatenate(counts) if counts else np.zeros(1)
    return {"mean": float(lengths.mean()), "median": float(np.median(lengths)), "longest": int(lengths.max())}
