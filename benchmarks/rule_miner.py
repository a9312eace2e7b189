"""A plain rule miner as a finder of missing links, for `discovery.py`: bodies of one edge or of two."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnftg.kg.graph import KnowledgeGraph
from fnftg.predict.completion import FOUND, Found, best_first

PATHS = 20  # bodies of two edges per relation
SAMPLE = 300  # triples of a relation that these are looked for in
LARGEST = 2_000_000  # pairs of entities that a body may connect
SMOOTHING = 5.0  # added to the number of predictions of a rule
LEAST = 0.02  # confidence


def likeliest(graph: KnowledgeGraph, most: int) -> Found:
    """Mine rules with one or two body edges and return the triples that they predict, by the best rule's confidence.

    The confidence of a rule is the share of its predictions that are in the graph, smoothed for rare rules.
    """
    from scipy.sparse import csr_matrix

    triples, entities, relations = graph.all_triples(), len(graph.entities), len(graph.relations)
    edges = {}
    for relation in range(relations):
        own = triples[triples[:, 1] == relation]
        matrix = csr_matrix((np.ones(len(own)), (own[:, 0], own[:, 2])), (entities, entities))
        edges[relation], edges[relation + relations] = matrix, matrix.T.tocsr()
    random, parts = np.random.default_rng(0), [np.empty(0, FOUND)]
    around = csr_rows(triples, relations, entities)
    for relation in range(relations):
        target = edges[relation].astype(bool).astype(float)
        if not target.nnz:
            continue
        own = triples[triples[:, 1] == relation]
        sample = own[random.permutation(len(own))[:SAMPLE]]
        bodies: list[tuple[int, ...]] = [(label,) for label in edges if label != relation]
        bodies += common_paths(sample, around, relations)
        predicted: dict[int, float] = {}
        for body in bodies:
            matrix = edges[body[0]]
            if len(body) == 2:
                cost = float(np.diff(edges[body[1]].indptr)[matrix.indices].sum())
                if cost > LARGEST:
                    continue
                matrix = matrix @ edges[body[1]]
            matrix = matrix.astype(bool).astype(float)
            matrix.setdiag(0)
            matrix.eliminate_zeros()
            support = float(matrix.multiply(target).sum())
            confidence = support / (matrix.nnz + SMOOTHING)
            if confidence < LEAST:
                continue
            missing = (matrix - matrix.multiply(target)).tocoo()
            there = missing.data > 0.5
            for key in (missing.row[there].astype(np.int64) * entities + missing.col[there]).tolist():
                predicted[key] = max(predicted.get(key, 0.0), confidence)
        if predicted:
            keys = np.fromiter(predicted, np.int64, len(predicted))
            scores = np.fromiter(predicted.values(), np.float64, len(predicted))
            order = np.argsort(-scores, kind="stable")[:most]
            part = np.empty(len(order), FOUND)
            part["head"], part["relation"], part["tail"] = keys[order] // entities, relation, keys[order] % entities
            part["score"] = part["probability"] = scores[order]
            parts.append(part)
    return best_first(np.concatenate(parts), entities, relations)


def csr_rows(triples: Any, relations: int, entities: int) -> tuple[Any, Any, Any]:
    """Return offsets, other ends and labels of the edges of each entity."""
    centres = np.concatenate([triples[:, 0], triples[:, 2]])
    others = np.concatenate([triples[:, 2], triples[:, 0]])
    labels = np.concatenate([triples[:, 1], triples[:, 1] + relations])
    order = np.argsort(centres, kind="stable")
    return np.searchsorted(centres[order], np.arange(entities + 1)), others[order], labels[order]


def common_paths(sample: Any, rows: Any, relations: int) -> list[tuple[int, ...]]:
    """Return the most frequent paths of two edges between heads and tails of the sample."""
    offsets, others, labels = rows
    counts: dict[tuple[int, ...], int] = {}
    for head, _, tail in sample.tolist():
        ends = slice(offsets[head], offsets[head + 1]), slice(offsets[tail], offsets[tail + 1])
        if (ends[0].stop - ends[0].start) * (ends[1].stop - ends[1].start) > LARGEST:
            continue
        middle, first, second = np.intersect1d(others[ends[0]], others[ends[1]], return_indices=True)
        for place in range(len(middle)):
            if middle[place] in (head, tail):
                continue
            one = int(labels[ends[0]][first[place]])
            two = int(labels[ends[1]][second[place]])
            path = (one, (two + relations) % (2 * relations))
            counts[path] = counts.get(path, 0) + 1
    return sorted(counts, key=lambda path: -counts[path])[:PATHS]
