"""Batched inference: answers to many questions, each with its own additions to the graph, and their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnftg.arrays import BoolArray, Float32Array, Int64Array
from fnftg.predict.logistic import sigmoid
from fnftg.predict.questions import Answer, ResolvedQuery
from fnftg.predict.request_batch import RequestBatch
from fnftg.predict.scored_queries import ScoredQueries
from fnftg.predict.state import PredictorState
from fnftg.predict.triple_inputs import features_of, triple_inputs

ROUND = 512  # questions per batch
PROBABLE = 20  # answers per question with a probability, which costs a search for each of them
SHORTLIST = 64  # relations between two entities whose probabilities are compared


def answered(predictor: PredictorState, asked: Sequence[ResolvedQuery], k: int, known: bool) -> list[list[Answer]]:
    """Return the k best answers to each question. Known triples are left out, or marked if `known`."""
    answers: dict[int, list[Answer]] = {}
    for_entities = [place for place, one in enumerate(asked) if one.relation >= 0]
    for start in range(0, len(for_entities), ROUND):
        part = for_entities[start : start + ROUND]
        answers.update(zip(part, entity_answers(predictor, [asked[place] for place in part], k, known), strict=True))
    for place, one in enumerate(asked):
        if one.relation < 0:
            answers[place] = relation_answers(predictor, one, k, known)
    return [answers[place] for place in range(len(asked))]


def queries_of(batch: RequestBatch) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return request, centre and label of the query that each question of a batch asks."""
    asked = batch.asked
    centres = np.array([one.head if one.tail < 0 else one.tail for one in asked], np.int64)
    labels = [one.relation + (one.tail >= 0) * batch.relations_of(place) for place, one in enumerate(asked)]
    return np.arange(len(asked)), centres, np.array(labels, np.int64)


def missing_answers(predictor: PredictorState, asked: Sequence[ResolvedQuery]) -> list[float | None]:
    """Return the probability that each question has a missing answer; None for questions that ask for a relation."""
    places = [place for place, one in enumerate(asked) if one.relation >= 0]
    found: list[float | None] = [None] * len(asked)
    if predictor.probability is None or not places:
        return found
    batch = RequestBatch.of(predictor, [asked[place] for place in places])
    logits = predictor.probability.query_logits(features_of(batch, *queries_of(batch)))
    for place, value in zip(places, sigmoid(logits).tolist(), strict=True):
        found[place] = value
    return found


def triple_probabilities(predictor: PredictorState, asked: Sequence[ResolvedQuery]) -> list[float | None]:
    """Return P(triple) of complete triples; None for known ones. It must have been fitted."""
    assert predictor.probability is not None
    found: list[float | None] = []
    for start in range(0, len(asked), ROUND):
        part = asked[start : start + ROUND]
        batch = RequestBatch.of(predictor, part)
        heads, relations, tails = (
            np.array([getattr(one, name) for one in part], np.int64) for name in ("head", "relation", "tail")
        )
        queries = ScoredQueries.of(batch, np.arange(len(part)), heads, relations)
        new = np.flatnonzero(~queries.is_known(tails[:, None])[:, 0])
        values = np.full(len(part), None, object)
        inputs = triple_inputs(queries, new, tails[new], queries.score(new, tails[new]))
        values[new] = inputs.probabilities(predictor.probability)
        found += values.tolist()
    return found


def entity_answers(
    predictor: PredictorState, asked: Sequence[ResolvedQuery], k: int, known: bool
) -> list[list[Answer]]:
    batch = RequestBatch.of(predictor, asked)
    queries = ScoredQueries.of(batch, *queries_of(batch))
    scores, rows = queries.best(max(k, 2), known)  # at least two, for the margin of the best
    marks = queries.is_known(rows)
    values = probable(queries, scores[:, :k], rows[:, :k], marks[:, :k])
    return [
        as_answers(predictor, one, "entity", score[:k], row[:k], mark[:k], *value)
        for one, score, row, mark, value in zip(asked, scores, rows, marks, values, strict=True)
    ]


def relation_answers(predictor: PredictorState, one: ResolvedQuery, k: int, known: bool) -> list[Answer]:
    """Rank all relations between two entities by P(triple), or by the score of the tail if it was not fitted."""
    batch = RequestBatch.of(predictor, [one])
    labels = np.arange(batch.relations_of(0))
    every = ScoredQueries.of(batch, np.zeros_like(labels), np.full_like(labels, one.head), labels)
    scores = every.score(labels, np.full_like(labels, one.tail))
    marks = every.is_known(np.full((len(labels), 1), one.tail))[:, 0]
    usable = ~np.isnan(scores) & (known | ~marks)
    order = np.lexsort((labels, -scores, ~usable))[: min(max(k, SHORTLIST), int(usable.sum()))]
    best = ScoredQueries.of(batch, np.zeros_like(order), np.full_like(order, one.head), order)
    rows = np.full((len(order), 1), one.tail)
    values = probable(best, scores[order][:, None], rows, marks[order][:, None])
    conditional, probability = (np.array([value[which][0] for value in values], object) for which in (0, 1))
    if predictor.probability is not None:
        likely = np.array([-1.0 if value is None else -float(value) for value in probability])
        likeliest = np.lexsort((order, likely))
        order, conditional, probability = order[likeliest], conditional[likeliest], probability[likeliest]
    order, conditional, probability = order[:k], conditional[:k], probability[:k]
    return as_answers(predictor, one, "relation", scores[order], order, marks[order], conditional, probability)


def probable(queries: ScoredQueries, scores: Float32Array, rows: Int64Array, marks: BoolArray) -> list[tuple[Any, Any]]:
    """Return two lists for each query: P(answer, given that the query has one) and P(triple) of candidates (q, k).

    A value is None if the model is not calibrated. P(triple) is that of the first PROBABLE candidates, and None for
    known triples.
    """
    predictor = queries.batch.predictor
    conditional = np.full(scores.shape, None, object)
    probability = np.full(scores.shape, None, object)
    query, place = np.nonzero(rows >= 0)
    calibration = predictor.calibration
    if calibration is not None and len(query):
        if queries.batch.texts.relations != len(predictor.graph.relations):
            ids = predictor.relation_ids
            calibration = calibration.bound([*ids, *(queries.batch.texts.relations - len(ids)) * [""]])
        over = np.full(scores.shape, np.nan)
        over[query, place] = queries.margins(query, rows[query, place], scores[query, place])
        conditional = calibration.probabilities(over, queries.view_labels).astype(object)
    if predictor.probability is not None:
        query, place = np.nonzero((rows >= 0) & ~marks & (np.arange(rows.shape[1]) < PROBABLE))
        if len(query):
            inputs = triple_inputs(queries, query, rows[query, place], scores[query, place])
            probability[query, place] = inputs.probabilities(predictor.probability)
    return list(zip(conditional, probability, strict=True))


def as_answers(
    predictor: PredictorState,
    one: ResolvedQuery,
    kind: str,
    scores: Float32Array,
    rows: Int64Array,
    marks: BoolArray,
    conditional: Any,
    probabilities: Any,
) -> list[Answer]:
    vocabulary = predictor.graph.entities if kind == "entity" else predictor.graph.relations
    answers: list[Answer] = []
    for score, row, mark, given_one, probability in zip(
        scores.tolist(), rows.tolist(), marks.tolist(), conditional, probabilities, strict=True
    ):
        if row < 0:
            break
        if row < len(vocabulary):
            id_, name, text = vocabulary.ids[row], vocabulary.name(row), vocabulary.texts[row]
        elif kind == "entity":
            text = one.delta.entities[row - len(vocabulary)].text
            id_, name = one.delta.ids[row - len(vocabulary)], text.split(", ")[0][:80]
        else:
            text = one.delta.relations[row - len(vocabulary)].text
            id_, name = text, text
        given_one, probability = (None if value is None else float(value) for value in (given_one, probability))
        answers.append(Answer(len(answers) + 1, id_, name, text, score, probability, given_one, mark))
    return answers
