"""Reasons for P(triple): what speaks for a missing answer of the two queries of a triple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fnftg.predict.logistic import sigmoid
from fnftg.predict.query_features import MOST_ANSWERS, QueryFeatures
from fnftg.predict.questions import ResolvedQuery
from fnftg.predict.request_batch import RequestBatch
from fnftg.predict.state import PredictorState
from fnftg.predict.triple_inputs import features_of, inverse_labels

UNLIKELY = 0.01  # below this probability of a missing answer, no missing link is expected
NOTABLE = 0.01  # smaller shares are not mentioned


@dataclass(frozen=True)
class QueryReason:
    """Whether one of the two queries of a triple has a missing answer, and why."""

    asked: Literal["tail", "head"]  # the end of the triple that the query asks for
    probability: float  # that the query has a missing answer
    sentences: list[str]


def query_reasons(predictor: PredictorState, one: ResolvedQuery) -> list[QueryReason]:
    """Explain whether the queries (head, relation, ?) and (?, relation, tail) have missing answers."""
    if predictor.probability is None:
        return []
    batch = RequestBatch.of(predictor, [one])
    request, label = np.zeros(1, np.int64), np.array([one.relation], np.int64)
    labels = np.concatenate([label, inverse_labels(batch, request, label)])
    features = features_of(batch, np.zeros(2, np.int64), np.array([one.head, one.tail], np.int64), labels)
    values = sigmoid(predictor.probability.query_logits(features)).tolist()
    ends: tuple[Literal["tail", "head"], ...] = ("tail", "head")
    return [
        QueryReason(end, value, sentences(features.take(np.array([place])), value))
        for place, (end, value) in enumerate(zip(ends, values, strict=True))
    ]


def sentences(features: QueryFeatures, probability: float) -> list[str]:
    """Describe the features of a single query."""
    answers, more = int(features.answers[0]), float(features.continuation[0])
    said = []
    if features.isolated[0]:
        said.append("The entity has no edges, so all its links are missing.")
    elif answers == 0:
        said.append(f"The query has no known answer; {more:.1%} of all entities have one.")
    else:
        many = f"{answers:,} known answer{'s' * (answers > 1)}"
        least = f"at least {MOST_ANSWERS}" if answers > MOST_ANSWERS else f"{answers:,}"
        said.append(f"The query has {many}; {more:.1%} of the entities with {least} have more.")
    said.append(f"{float(features.nearest_share[0]):.0%} of the entities with the most similar texts have an answer.")
    if features.implied[0] >= NOTABLE:
        said.append(f"One of its edges comes with such a link in {float(features.implied[0]):.0%} of all cases.")
    if probability < UNLIKELY:
        said.append("No missing link is expected.")
    return said
