"""The leak audit: counts the triples of a split that other visible edges reveal.

A model that reads the edges around a query can find many answers without predicting anything, because the reverse of
the triple, or another edge between the same two entities, is often visible.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import polars as pl

from fnftg.arrays import Int32Array
from fnftg.kg.blocks import split_rank
from fnftg.kg.graph import NO_TRIPLES, KnowledgeGraph, Triples
from fnftg.kg.statistics import entities_of

TRIPLE = ["head", "relation", "tail"]
VisibleEdges = Literal["own-split", "cumulative", "before"]


def audit(graph: KnowledgeGraph, visible: VisibleEdges = "cumulative") -> dict[str, Any]:
    """Audit each split against the visible triples.

    Args:
        graph: the graph to audit.
        visible: own-split for the triples of the split itself, cumulative for those of all earlier splits as well,
            before for those of earlier splits alone, as in the protocol held-out.
    """
    ordered = sorted(graph.splits, key=split_rank)
    train = entities_of(graph.triples("train"))
    result = {}
    for place, split in enumerate(ordered):
        shown = [] if visible == "own-split" else ordered[:place]
        own = [] if visible == "before" else [split]
        edges = np.concatenate([NO_TRIPLES, *(graph.splits[name] for name in [*shown, *own])])
        candidates = entities_of(np.concatenate([graph.splits[name] for name in ordered[: place + 1]]))
        result[split] = audit_split(graph, split, edges, candidates, train, bool(own))
    return result


def audit_split(
    graph: KnowledgeGraph, split: str, edges: Triples, candidates: Int32Array, train: Int32Array, own: bool
) -> dict[str, Any]:
    """Audit a split against visible edges. `own`: its triples are among them; otherwise none of them is visible."""
    triples = graph.splits[split]
    visible = edges if own else _frame(edges).join(_frame(triples), on=TRIPLE, how="anti").to_numpy().astype(np.int32)
    facts = given_away(triples, edges, visible, own)
    by_relation = facts.group_by("relation").agg(
        pl.len().alias("triples"), pl.col("reverse", "other_edge", "repeated").sum()
    )
    new_ends = np.isin(triples[:, [0, 2]], train, invert=True).sum(axis=1)  # (n,): 0, 1 or 2
    degrees = np.bincount(np.concatenate([visible[:, 0], visible[visible[:, 0] != visible[:, 2], 2]]))
    degrees = np.pad(degrees, (0, len(graph.entities) - len(degrees)))
    alone = int((degrees[triples[:, [0, 2]]] == int(own)).sum())
    return {
        "triples": len(triples),
        "reverse": int(facts["reverse"].sum()),
        "other_edge": int(facts["other_edge"].sum()),
        "repeated": int(facts["repeated"].sum()),
        "ends_new": {str(count): int((new_ends == count).sum()) for count in (0, 1, 2)},
        "candidates": len(candidates),
        "candidates_without_edge": len(np.setdiff1d(candidates, visible[:, [0, 2]])),
        "ends_without_edge_when_target_hidden": alone,
        "relations": [
            {**row, "relation": graph.relations.ids[row["relation"]]}
            for row in by_relation.sort("triples", "relation", descending=[True, False]).to_dicts()
        ],
    }


def given_away(triples: Triples, edges: Triples, visible: Triples, own: bool) -> pl.DataFrame:
    """Return for each triple whether its reverse (unless it is a self-loop) or another edge between its two entities is
    visible, and whether the same triple is in an earlier split."""
    distinct = _frame(visible).unique(TRIPLE)
    per_pair = _with_pair(distinct).group_by("low", "high").agg(pl.len().alias("between"))
    copies = _frame(edges).group_by(TRIPLE).agg(pl.len().alias("copies")).filter(pl.col("copies") > int(own))
    reverses = distinct.select(head="tail", relation="relation", tail="head").with_columns(reverse=pl.lit(True))
    return (
        _with_pair(_frame(triples))
        .join(per_pair, on=["low", "high"], how="left", maintain_order="left")
        .join(reverses, on=TRIPLE, how="left", maintain_order="left")
        .join(copies, on=TRIPLE, how="left", maintain_order="left")
        .select(
            "relation",
            reverse=pl.col("reverse").fill_null(False) & (pl.col("head") != pl.col("tail")),
            other_edge=pl.col("between").fill_null(0) > int(own),
            repeated=pl.col("copies").is_not_null(),
        )
    )


def _frame(triples: Triples) -> pl.DataFrame:
    return pl.DataFrame({name: triples[:, column] for column, name in enumerate(TRIPLE)})


def _with_pair(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the two ends of each edge in ascending order, independent of the edge's direction."""
    return frame.with_columns(low=pl.min_horizontal("head", "tail"), high=pl.max_horizontal("head", "tail"))
