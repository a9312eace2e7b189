"""AUC of "the query has a missing answer" on the test split of a graph, with train and val visible.

    python benchmarks/missing_answers.py WN18RR_IND --run run

Only the model of queries is fitted, to edges taken out of train and val. It uses counts and the features of texts, and
no score of the trained model, so any run with the same frozen encoder gives the same figures. In an inductive split,
the entities that only test has are without edges: new entities, described by their texts alone.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np

from fnftg.console import print_json
from fnftg.kg.graph_source import open_graph
from fnftg.predict.discovery import query_auc
from fnftg.predict.logistic import Logistic
from fnftg.predict.predictor import load
from fnftg.predict.probability_fitting import MISSING, MOST_ENTITIES, SHARE, fit_queries, taken_out
from fnftg.predict.triple_probability import QueryModel


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="a graph with the splits train, val and test")
    parser.add_argument("--run", type=Path, required=True, help="a run with a frozen encoder")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    graph, random = open_graph(chosen.graph), np.random.default_rng(chosen.seed)
    visible = {name: graph.triples(name) for name in ("train", "val")}
    triples = np.unique(np.concatenate(list(visible.values())), axis=0)
    opened = partial(load, chosen.run)
    edges = random.random(len(triples)) < SHARE
    ends = np.unique(triples[:, [0, 2]])
    entities = np.sort(random.permutation(ends)[: min(int(SHARE * len(ends)), MOST_ENTITIES)]).astype(np.int32)
    of_entities = np.isin(triples[:, 0], entities) | np.isin(triples[:, 2], entities)
    linked = np.unique(triples[~edges][:, [0, 2]]).astype(np.int32)
    fitted = partial(Logistic.fitted, size=2 * len(graph.relations))
    labelled = SHARE / (SHARE + MISSING / (1 - MISSING))
    query = QueryModel(
        fit_queries(taken_out(opened, graph, triples, edges, linked, random), partial(fitted, labelled=labelled)),
        fit_queries(taken_out(opened, graph, triples, of_entities, entities, random), fitted),
    )
    predictor = opened(graph.with_splits(visible, {"held_out": "test"}))
    print_json({"graph": chosen.graph, **query_auc(predictor.context, query, graph.triples("test"))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
