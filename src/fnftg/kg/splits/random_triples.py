"""Random split: triples are held out at random, whatever their entities and relations."""

from __future__ import annotations

import numpy as np

from fnftg.errors import FnftgError
from fnftg.kg.graph_data import AnyGraph
from fnftg.kg.splits.inductive import distinct


def random_split(graph: AnyGraph, val: float = 0.05, test: float = 0.05, seed: int = 0) -> AnyGraph:
    """Hold out random shares of all distinct triples for test and val. See `KnowledgeGraph.split_random`."""
    if not (val >= 0 and test >= 0 and 0 < val + test < 1):
        raise FnftgError(
            f"The shares of val ({val}) and test ({test}) must not be negative and must add up to less than 1."
        )
    triples = distinct(graph.all_triples())
    order = np.random.default_rng(seed).permutation(len(triples))
    in_test = round(test * len(triples))
    in_val = round(val * len(triples))
    parts = {"train": order[in_test + in_val :], "val": order[in_test : in_test + in_val], "test": order[:in_test]}
    if not all(len(parts[name]) for name, share in (("train", 1.0), ("val", val), ("test", test)) if share):
        raise FnftgError(f"The graph has {len(triples):,} triples, too few for these shares: raise --val and --test.")
    splits = {name: triples[np.sort(rows)] for name, rows in parts.items() if len(rows)}
    return graph.with_splits(splits, {"split": "random", "val": val, "test": test, "seed": seed})
