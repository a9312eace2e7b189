"""The visible edges of the test split under two protocols: the counts of docs/protocols.md. Needs no model.

python benchmarks/visible_edges.py WN18RR_IND
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph

SPLITS = ("train", "val", "test")


def leaking(test: Any, visible: Any) -> Any:
    """Whether the reverse of each test triple is a visible triple, (n,)."""
    keys = {(int(tail), int(relation), int(head)) for head, relation, tail in visible}
    return np.array([tuple(map(int, triple)) in keys and triple[0] != triple[2] for triple in test])


def edges_left(test: Any, visible: Any, entities: int) -> Any:
    """The number of visible edges of both ends of each test triple without the triple itself, (n, 2)."""
    degrees = np.bincount(visible[:, [0, 2]].ravel(), minlength=entities)
    return degrees[test[:, [0, 2]]] - 1


def frequency_ranks(test: Any, visible: Any, known: Any, entities: int) -> tuple[Any, Any]:
    """Filtered ranks of the tails by how often they answer the relation, and how many other candidates do, (n,)."""
    answers: dict[tuple[int, int], list[int]] = {}
    for head, relation, tail in known:
        answers.setdefault((int(head), int(relation)), []).append(int(tail))
    ranks, others = np.empty(len(test)), np.empty(len(test))
    for relation in np.unique(test[:, 1]):
        counts = np.bincount(visible[visible[:, 1] == relation, 2], minlength=entities)
        for row in np.flatnonzero(test[:, 1] == relation):
            head, _, tail = test[row]
            kept = np.delete(counts, answers[(int(head), int(relation))])
            true = counts[tail] - 1
            ranks[row] = 1 + (kept > true).sum() + (kept == true).sum() / 2
            others[row] = (kept > 0).sum()
    return ranks, others


def measure(graph: KnowledgeGraph) -> dict[str, Any]:
    parts = {split: np.asarray(graph.triples(split)).astype(np.int64) for split in SPLITS}
    everything, test, entities = np.concatenate(list(parts.values())), parts["test"], len(graph.entities)
    in_train = np.isin(np.arange(entities), parts["train"][:, [0, 2]])
    found: dict[str, Any] = {"outgoing_cumulative": len(everything) / entities}
    found["percent_new_answers"] = 100 * (~in_train[test[:, [0, 2]]]).mean()
    if (hypernym := graph.relations.find("_hypernym")) is not None:
        heads = everything[everything[:, 1] == hypernym, 0]
        found["percent_with_hypernym"] = 100 * len(np.unique(heads)) / entities
    for protocol, visible in (("own-split", test), ("cumulative", everything)):
        left = edges_left(test, visible, entities)[~leaking(test, visible)]
        found[protocol] = {"median_edges": float(np.median(left)), "percent_without": 100 * (left == 0).any(1).mean()}
        queries = [
            (test[:, columns], visible[:, columns], everything[:, columns]) for columns in ([0, 1, 2], [2, 1, 0])
        ]
        measured = [frequency_ranks(*one, entities) for one in queries]
        ranks, others = np.concatenate([one[0] for one in measured]), np.concatenate([one[1] for one in measured])
        new = np.concatenate([~in_train[test[:, 2]], ~in_train[test[:, 0]]])
        means = {"mrr": 1 / ranks, "new": 1 / ranks[new], "old": 1 / ranks[~new]}
        found[protocol] |= {name: float(value.mean()) for name, value in means.items()}
        found[protocol]["other_candidates"] = float(np.median(others))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="a graph with the splits train, val and test")
    print(json.dumps(measure(open_graph(parser.parse_args().graph)), indent=1))


if __name__ == "__main__":
    main()
