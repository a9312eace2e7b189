"""Evaluation of a completed graph: how many of the predicted triples are among those that were held out?

A held-out triple is known to be true. A predicted triple that was not held out may be true as well, so every precision
is a lower bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int64Array
from fnftg.ego.context import GraphContext
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.predict.completion import FOUND, Found, best_first
from fnftg.predict.query_features import query_features
from fnftg.predict.triple_probability import QueryModel

FIRST = (100, 1_000, 10_000)  # lengths of the list at which precision is measured
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CONFIDENT = 0.5
SAMPLE = 100_000  # queries drawn for the AUC
COMMON = 300  # heads and tails per relation in the frequency baseline


def discovered(found: Found, held_out: Triples, graph: KnowledgeGraph) -> dict[str, Any]:
    """Compare predicted triples, likeliest first, with the held-out triples."""
    hits = is_held_out(found, held_out, graph)
    total = len(np.unique(held_out, axis=0))
    probabilities = np.asarray(found["probability"])
    return {
        "triples": len(found),
        "held_out": total,
        "hits": int(hits.sum()),
        "recall": float(hits.sum() / max(total, 1)),
        "area_under_precision_recall": average_precision(hits, total),
        "precision_at": precision_at(hits),
        "expected": [at_least(probabilities, hits, threshold, total) for threshold in THRESHOLDS],
        "frequency_baseline": precision_at(is_held_out(frequent(graph), held_out, graph)),
    }


def is_held_out(found: Found, held_out: Triples, graph: KnowledgeGraph) -> BoolArray:
    """Return which of the triples are among the held-out ones."""
    keys = packed(graph, found["head"], found["relation"], found["tail"])
    return np.isin(keys, packed(graph, *held_out.T))


def packed(graph: KnowledgeGraph, heads: Any, relations: Any, tails: Any) -> Int64Array:
    """Return triples (n,) as integers."""
    entities = len(graph.entities)
    return np.asarray((heads.astype(np.int64) * len(graph.relations) + relations) * entities + tails)


def precision_at(hits: BoolArray) -> dict[str, float]:
    """Return the precision of the first 100, 1,000 and 10,000 triples; what a shorter list lacks is a miss."""
    return {str(first): float(hits[:first].sum() / first) for first in FIRST}


def average_precision(hits: BoolArray, total: int) -> float:
    """Return the area under the curve of precision over recall."""
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precision[hits].sum() / max(total, 1))


def at_least(probabilities: Float64Array, hits: BoolArray, threshold: float, total: int) -> dict[str, float]:
    """Compare the expected and the found number of hits among the triples above a threshold."""
    chosen = probabilities >= threshold
    return {
        "threshold": threshold,
        "triples": int(chosen.sum()),
        "expected": float(probabilities[chosen].sum()),
        "found": int(hits[chosen].sum()),
        "precision": float(hits[chosen].mean()) if chosen.any() else 0.0,
        "recall": float(hits[chosen].sum() / max(total, 1)),
    }


def query_auc(context: GraphContext, query: QueryModel, held_out: Triples, seed: int = 0) -> dict[str, float]:
    """Return the AUC of "the query has a missing answer": queries with a held-out answer against a random sample.

    Entities with edges, and entities without any (new ones, described by their texts alone), are also measured
    separately.
    """
    size = 2 * context.relations
    heads, relations, tails = held_out.astype(np.int64).T
    true = np.unique(np.concatenate([heads * size + relations, tails * size + context.relations + relations]))
    drawn = np.unique(np.random.default_rng(seed).integers(0, context.entities * size, SAMPLE))
    degrees = np.diff(context.neighbours.offsets)
    without_edges = np.flatnonzero(degrees == 0)
    more = (without_edges[:, None] * size + np.arange(size)).ravel()[: 4 * SAMPLE]
    false = np.setdiff1d(np.concatenate([drawn, more]), true)
    values = [
        query.of_queries(query_features(context, (keys // size).astype(np.int32), (keys % size).astype(np.int32)))
        for keys in (true, false)
    ]
    isolated = [degrees[keys // size] == 0 for keys in (true, false)]
    cases = {
        "all": [np.ones(len(true), bool), np.isin(false, drawn)],
        "linked": [~mask for mask in isolated],
        "isolated": isolated,
    }
    found = {}
    for name, masks in cases.items():
        parts = [value[mask] for value, mask in zip(values, masks, strict=True)]
        if all(map(len, parts)):
            found[name] = area_under_roc(*parts)
    return found


def area_under_roc(true: Float64Array, false: Float64Array) -> float:
    """Return the probability that a true example has a higher value than a false one; ties count half."""
    order = np.sort(false)
    below, up_to = np.searchsorted(order, true, "left"), np.searchsorted(order, true, "right")
    return float(((below + up_to) / 2).sum() / max(len(true) * len(false), 1))


def frequent(graph: KnowledgeGraph) -> Found:
    """Return the frequency baseline: the most frequent heads and tails of each relation, combined; no model."""
    triples = graph.all_triples()
    known, parts = packed(graph, *triples.T), [np.empty(0, FOUND)]
    for relation in np.unique(triples[:, 1]):
        own = triples[triples[:, 1] == relation]
        ends = [np.unique(own[:, end], return_counts=True) for end in (0, 2)]
        (heads, head_counts), (tails, tail_counts) = (
            (rows[order], counts[order]) for rows, counts in ends for order in [np.lexsort((rows, -counts))[:COMMON]]
        )
        pairs = np.empty((len(heads), len(tails)), FOUND)
        pairs["head"], pairs["relation"], pairs["tail"] = heads[:, None], relation, tails[None]
        pairs["probability"] = pairs["score"] = head_counts[:, None] * tail_counts[None] / len(own)
        part = pairs.ravel()
        new = part["head"] != part["tail"]
        new &= ~np.isin(packed(graph, part["head"], part["relation"], part["tail"]), known)
        parts.append(part[new])
    return best_first(np.concatenate(parts), len(graph.entities), len(graph.relations))
