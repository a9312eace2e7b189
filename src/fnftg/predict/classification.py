"""Triple classification: is a triple true or false? The false ones are hard.

Each true triple of a split is paired with two false ones: the best wrong tail by the score of the model, and a random
tail that the relation has elsewhere. The threshold between true and false is chosen on one split, and accuracy and AUC
are measured on another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fnftg.arrays import BoolArray, Float64Array
from fnftg.console import progress
from fnftg.kg.graph import Triples
from fnftg.predict.discovery import area_under_roc
from fnftg.predict.questions import GraphDelta, ResolvedQuery
from fnftg.predict.request_batch import RequestBatch
from fnftg.predict.scored_queries import ScoredQueries
from fnftg.predict.state import PredictorState
from fnftg.predict.triple_inputs import triple_inputs
from fnftg.predict.triple_probability import TripleProbability

ROUND, CANDIDATES = 256, 8  # triples at a time; best answers among which a wrong one is looked for
KINDS = ("best wrong answer", "tail of the relation")


def labelled_probabilities(
    predictor: PredictorState, probability: TripleProbability, triples: Triples, true: Triples, seed: int = 0
) -> tuple[Float64Array, Float64Array]:
    """Return P(triple) of true triples (n,), which the predictor must not see, and of two false ones each (n, 2).

    `true` has all triples that must not serve as false ones.
    """
    entities = len(predictor.graph.entities)
    heads, relations, tails = true.astype(np.int64).T
    count = len(predictor.graph.relations)
    all_true = np.unique((heads * count + relations) * entities + tails)
    of_relation = {relation: np.unique(tails[relations == relation]) for relation in np.unique(triples[:, 1]).tolist()}
    random = np.random.default_rng(seed)
    found, false = np.empty(len(triples)), np.full((len(triples), 2), np.nan)
    batch = RequestBatch.of(predictor, [ResolvedQuery(-1, -1, -1, GraphDelta())])
    with torch.inference_mode(), progress("Classifying", len(triples), "triples") as advance:
        for start in range(0, len(triples), ROUND):
            part = triples[start : start + ROUND].astype(np.int64)
            queries = ScoredQueries.of(batch, np.zeros(len(part), np.int64), part[:, 0], part[:, 1])
            rows = queries.best(CANDIDATES)[1]
            keys = (part[:, :1] * count + part[:, 1:2]) * entities + rows
            wrong = (rows >= 0) & ~np.isin(keys, all_true)
            best = np.where(wrong.any(axis=1), rows[np.arange(len(part)), wrong.argmax(axis=1)], -1)
            drawn = np.array([random.choice(of_relation[relation]) for relation in part[:, 1].tolist()])
            drawn_keys = (part[:, 0] * count + part[:, 1]) * entities + drawn
            drawn = np.where(np.isin(drawn_keys, all_true) | (drawn == part[:, 0]), -1, drawn)
            for column, answers in enumerate((part[:, 2], best, drawn)):
                there = np.flatnonzero(answers >= 0)
                scores = queries.score(there, answers[there])
                values = triple_inputs(queries, there, answers[there], scores).probabilities(probability)
                target = found if column == 0 else false[:, column - 1]
                target[start + there] = values
            advance(len(part))
    return found, false


def best_threshold(true: Float64Array, false: Float64Array) -> float:
    """Return the probability from which on a triple counts as true that gives the best accuracy."""
    values = np.concatenate([true, false])
    labels = np.concatenate([np.ones(len(true), bool), np.zeros(len(false), bool)])
    order = np.argsort(-values, kind="stable")
    right = np.cumsum(labels[order]) + (~labels).sum() - np.cumsum(~labels[order])
    last = np.append(np.diff(values[order]) < 0, True)  # of those with the same value, which are accepted together
    return float(values[order[int(np.where(last, right, -1).argmax())]])


def classified(
    chosen: tuple[Float64Array, Float64Array], measured: tuple[Float64Array, Float64Array]
) -> dict[str, Any]:
    """Choose a threshold on one split and measure another, each given as P(triple) of true and of false triples."""

    def present(false: Float64Array) -> Float64Array:
        return np.asarray(false[~np.isnan(false)])

    threshold = best_threshold(chosen[0], present(chosen[1]))
    true, false = measured
    accepted: BoolArray = true >= threshold
    kinds = {
        kind: {
            "triples": len(values),
            "accuracy": float(np.concatenate([accepted, values < threshold]).mean()),
            "auc": area_under_roc(true, values),
        }
        for kind, values in ((kind, present(false[:, which])) for which, kind in enumerate(KINDS))
    }
    values = present(false)
    return {
        "threshold": threshold,
        "triples": len(true),
        "accuracy": float(np.concatenate([accepted, values < threshold]).mean()),
        "auc": area_under_roc(true, values),
        "against": kinds,
    }
