"""Fully inductive relations (FIR), as in the paper: the rarest relations are removed from train.

val and test do not change, so they contain relations that the model has not seen in training.
"""

from __future__ import annotations

import numpy as np

from fnftg.errors import FnftgError
from fnftg.kg.graph_data import AnyGraph
from fnftg.kg.store import sorted_rows
from fnftg.kg.strings import as_series


def fir_split(graph: AnyGraph, share: float = 0.1, cross: bool = False) -> AnyGraph:
    """Remove the rarest relations from train, as long as they have at most `share` of its triples.

    Args:
        graph: the graph to split.
        share: largest share of the triples to remove.
        cross: also remove the relation that crosses the share. The paper's "until 10 % of edges have been removed" can
            mean either.

    Raises:
        FnftgError: if no relation, or every relation, would be removed.
    """
    if not 0 < share < 1:
        raise FnftgError(f"The share is {share}: it must be between 0 and 1.")
    train = graph.triples("train")
    counts = np.bincount(train[:, 1], minlength=len(graph.relations))
    by_id = sorted_rows(as_series(graph.relations.ids))  # makes ties independent of the source's order
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
