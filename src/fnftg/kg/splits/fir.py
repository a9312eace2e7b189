"""Fully inductive relations (FIR), as in the paper: the rarest relations leave the training graph.

val and test stay as they are, so that a model trained on the rest can be asked for relations that it never saw.
"""

from __future__ import annotations

import numpy as np

from fnftg.errors import FnftgError
from fnftg.kg.graph_data import AnyGraph
from fnftg.kg.store import sorted_rows
from fnftg.kg.strings import as_series


def fir_split(graph: AnyGraph, share: float = 0.1, cross: bool = False) -> AnyGraph:
    """Removes the least frequent relations while they make up at most `share` of the triples in train.

    "Until 10 % of edges have been removed" can also mean the first relation that crosses the share: `cross`.
    """
    if not 0 < share < 1:
        raise FnftgError(f"The share is {share}: it must lie between 0 and 1.")
    train = graph.triples("train")
    counts = np.bincount(train[:, 1], minlength=len(graph.relations))
    by_id = sorted_rows(as_series(graph.relations.ids))  # so that ties do not depend on the order of the source
    rarest = by_id[np.argsort(counts[by_id], kind="stable")]
    rarest = rarest[counts[rarest] > 0]
    removed_edges = np.cumsum(counts[rarest])
    removed_relations = int(np.searchsorted(removed_edges, share * len(train), side="right")) + cross
    if removed_relations == 0:
        raise FnftgError(
            f"Even the rarest relation has more than {share:.0%} of the triples in train: raise --share or use --cross."
        )
    if removed_relations >= len(rarest):
        raise FnftgError(f"A share of {share:.0%} would remove every relation of train: lower --share.")
    seen = np.ones(len(graph.relations), bool)
    seen[rarest[:removed_relations]] = False
    splits = {**graph.splits, "train": train[seen[train[:, 1]]]}
    parameters = {"share": share, "cross": cross, "unseen_relations": removed_relations}
    return graph.with_splits(splits, {"split": "fir", **parameters})
