"""Support split: some edges of each new entity become visible, the others remain queries."""

from __future__ import annotations

import numpy as np

from fnftg.arrays import BoolArray
from fnftg.errors import FnftgError
from fnftg.kg.graph_data import STANDARD_SPLITS, AnyGraph, Triples


def support_split(graph: AnyGraph, share: float = 0.5, seed: int = 0) -> AnyGraph:
    """Move a share of the edges of each new entity from val to val-support and from test to test-support.

    New entities are those that are not in train. An edge between two new entities counts for one of them, drawn at
    random. An entity with two or more edges gets at least one visible edge and keeps at least one query. The only edge
    of an entity remains a query.
    """
    if not 0 < share < 1:
        raise FnftgError(f"The share is {share}: it must lie between 0 and 1.")
    known = np.zeros(len(graph.entities), bool)
    known[graph.triples("train")[:, [0, 2]]] = True
    splits = {split: triples for split, triples in graph.splits.items() if not split.endswith("-support")}
    for position, split in enumerate(STANDARD_SPLITS[1:], start=1):
        if len(triples := graph.triples(split)):
            support = support_edges(triples, known, share, np.random.default_rng([seed, position]))
            splits |= {split: triples[~support], f"{split}-support": triples[support]}
    if not any(split.endswith("-support") and len(triples) for split, triples in splits.items()):
        raise FnftgError("No new entity has two or more edges in val or test: there are no edges to make visible.")
    return graph.with_splits(splits, {"split": "support", "share": share, "seed": seed})


def support_edges(triples: Triples, known: BoolArray, share: float, random: np.random.Generator) -> BoolArray:
    """Return which triples become visible. Triples between known entities remain queries."""
    head_new, tail_new = ~known[triples[:, 0]], ~known[triples[:, 2]]
    head_owns = head_new & (~tail_new | (random.random(len(triples)) < 0.5))
    owner = np.where(head_owns, triples[:, 0], triples[:, 2])
    owned = np.flatnonzero(head_new | tail_new)
    by_owner = owned[np.lexsort((random.random(len(owned)), owner[owned]))]  # edges of an owner together, shuffled
    _, first, inverse, counts = np.unique(owner[by_owner], return_index=True, return_inverse=True, return_counts=True)
    visible = np.clip(np.rint(share * counts).astype(np.int64), 1, np.maximum(counts - 1, 0))  # (owners,)
    visible[counts < 2] = 0
    support = np.zeros(len(triples), bool)
    support[by_owner] = np.arange(len(by_owner)) - first[inverse] < visible[inverse]
    return support
