"""Batched inference: answers to many questions, each with its own additions to the graph.

Only new texts are encoded, and only ego-graphs that new edges change are embedded again. All other candidates come from
the table. The answers equal those of a graph into which the new entities were imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from fnftg.arrays import AnyArray, BoolArray, Float32Array, Int32Array, Int64Array, IntArray
from fnftg.ego.context import ExtendedContext, VisibleGraph, relation_fingerprints
from fnftg.ego.sampling import EgoGraphs
from fnftg.evidence.table import EvidenceTable
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.predict.questions import Answer, ResolvedQuery
from fnftg.predict.state import PredictorState
from fnftg.ranking.calibration import margins, rivals
from fnftg.ranking.evidence_scores import EvidenceScores, merged
from fnftg.ranking.search import pair_scores
from fnftg.text.text_transformer import GraphTexts

ROUND = 512  # questions per batch
Search = Callable[[Float32Array, Int64Array, Int64Array, int], tuple[Float32Array, Int64Array]]


@dataclass(frozen=True)
class RequestBatch:
    """Requests and a common view of the texts that they add. Each request has its own numbers for what is new."""

    predictor: PredictorState
    asked: Sequence[ResolvedQuery]
    texts: GraphTexts
    first_entity: Int64Array  # (q,): number of new entities of all earlier requests
    first_relation: Int64Array  # (q,)

    @classmethod
    def of(cls, predictor: PredictorState, asked: Sequence[ResolvedQuery]) -> RequestBatch:
        entities = [entity.text for one in asked for entity in one.delta.entities]
        relations = [relation.text for one in asked for relation in one.delta.relations]
        texts = predictor.context.texts
        if entities or relations:
            view = predictor.graph.extended(
                {f"\x1f{place}": text for place, text in enumerate(entities)},
                {f"\x1f{place}": text for place, text in enumerate(relations)},
            )
            texts = texts.extended(view, predictor.model.tt.encoder)
        counts = np.array([(len(one.delta.entities), len(one.delta.relations)) for one in asked], np.int64)
        first = np.cumsum(counts, axis=0) - counts
        return cls(predictor, asked, texts, first[:, 0], first[:, 1])

    @cached_property
    def contexts(self) -> list[VisibleGraph]:
        """The visible graph of each request, including what it adds."""
        return [
            self.context(request) if one.delta else self.predictor.context for request, one in enumerate(self.asked)
        ]

    def context(self, request: int) -> ExtendedContext:
        delta, graph = self.asked[request].delta, self.predictor.graph
        new = len(graph.entities) + np.arange(len(delta.entities))
        relations = len(graph.relations) + self.first_relation[request] + np.arange(len(delta.relations))

        def features() -> Float32Array:
            assert self.texts.features is not None
            return self.texts.features.take(self.entities(new, request).astype(np.int64))

        return ExtendedContext(
            self.predictor.context,
            np.array(delta.triples, np.int32).reshape(-1, 3),
            [entity.text for entity in delta.entities],
            features,
            relation_fingerprints(self.texts, relations),
        )

    def relations_of(self, request: int) -> int:
        """Return the number of relations, including the request's new ones."""
        return len(self.predictor.graph.relations) + len(self.asked[request].delta.relations)

    def changed(self, request: int) -> Int64Array:
        """Return the entities whose ego-graphs the request changes."""
        context = self.contexts[request]
        if not isinstance(context, ExtendedContext):
            return np.zeros(0, np.int64)
        return context.changed_centres(self.predictor.model.ego)

    def entities(self, rows: IntArray, request: int) -> Int32Array:
        """Convert a request's entity rows to rows of the common view."""
        own = rows >= len(self.predictor.graph.entities)
        return np.asarray(rows + own * self.first_entity[request], np.int32)

    def labels(self, labels: IntArray, request: int) -> Int32Array:
        """Convert a request's labels to labels of the common view."""
        count = self.relations_of(request)
        relation, inverse = labels % count, labels >= count
        relation = relation + (relation >= len(self.predictor.graph.relations)) * self.first_relation[request]
        return np.asarray(relation + inverse * self.texts.relations, np.int32)

    def ego_graphs(self, request: int, centres: IntArray) -> EgoGraphs:
        """Sample ego-graphs, with rows and labels of the common view."""
        egos = self.contexts[request].ego_graphs(self.predictor.model.ego, centres.astype(np.int32))
        return EgoGraphs(egos.offsets, self.entities(egos.neighbours, request), self.labels(egos.labels, request))

    def embedded(self, centres: list[AnyArray], egos: list[EgoGraphs], labels: Int32Array | None) -> Float32Array:
        """Embed centres as queries if labels are given, else as candidates: (n, d)."""
        model = self.predictor.model
        if not centres:
            return np.empty((0, model.width), np.float32)
        with torch.inference_mode():
            found = model(self.texts, np.concatenate(centres), combined(egos), labels, labels is None)
        vectors: Float32Array = found[0 if labels is None else 1].float().cpu().numpy()
        return vectors

    def evidence(self, queries: Sequence[tuple[int, IntArray, IntArray]], labels: Int32Array) -> EvidenceScores:
        """Return the scores that evidence adds to queries.

        Args:
            queries: requests with centres and labels, in each request's own numbers.
            labels: the same labels (q,), in the numbers of the common view.
        """
        model = self.predictor.model
        evidence = evidence_of(model)
        if evidence is None:
            return EvidenceScores.nothing(len(labels))
        assert isinstance(model, EvidenceModel)
        tables = [
            evidence.table(self.contexts[request], centres.astype(np.int32), own_labels.astype(np.int32))
            for request, centres, own_labels in queries
        ]
        return EvidenceScores.of(model, self.texts, labels, EvidenceTable.combined(tables))


def combined(parts: list[EgoGraphs]) -> EgoGraphs:
    """Concatenate batches of ego-graphs."""
    starts = np.cumsum([0, *(len(part.neighbours) for part in parts)])
    offsets = np.concatenate([[0], *(part.offsets[1:] + start for part, start in zip(parts, starts[:-1], strict=True))])
    return EgoGraphs(
        offsets.astype(np.int64),
        np.concatenate([part.neighbours for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )


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


def entity_answers(
    predictor: PredictorState, asked: Sequence[ResolvedQuery], k: int, known: bool
) -> list[list[Answer]]:
    batch, entities = RequestBatch.of(predictor, asked), len(predictor.graph.entities)
    centres = np.array([one.head if one.tail < 0 else one.tail for one in asked], np.int64)
    inverse = np.array([one.tail >= 0 for one in asked])
    labels = np.array(
        [one.relation + i * batch.relations_of(q) for q, (one, i) in enumerate(zip(asked, inverse, strict=True))]
    )
    plain = [request for request, one in enumerate(asked) if not one.delta]
    own = [request for request, one in enumerate(asked) if one.delta]
    groups = [(request, [request]) for request in own]
    if plain:  # these requests all see the same graph
        groups.insert(0, (plain[0], plain))
    query_egos = [batch.ego_graphs(request, centres[members]) for request, members in groups]
    changed_rows = [batch.changed(request) for request in own]
    changed_egos = [batch.ego_graphs(request, rows) for request, rows in zip(own, changed_rows, strict=True)]
    order = [*plain, *own]
    view_labels = np.concatenate([batch.labels(labels[[request]], request) for request in order])
    view_centres = [batch.entities(centres[[request]], request) for request in order]
    query_embeddings = np.empty((len(asked), predictor.model.width), np.float32)
    query_embeddings[order] = batch.embedded(view_centres, query_egos, view_labels)
    vectors = batch.embedded(
        [batch.entities(rows, request) for rows, request in zip(changed_rows, own, strict=True)], changed_egos, None
    )
    query = np.repeat(np.array(own, np.int64), [len(rows) for rows in changed_rows])
    rows = np.concatenate([np.zeros(0, np.int64), *changed_rows])

    size = entities + int(max((len(one.delta.entities) for one in asked), default=0))
    links = np.unique(known_links(predictor, asked, centres, inverse, size))
    evidence = batch.evidence([(request, centres[some], labels[some]) for request, some in groups], view_labels)
    listed = np.array(order, np.int64)[evidence.queries], evidence.rows, evidence.values
    candidates = ScoredCandidates.of(predictor, query_embeddings, size, query, rows, vectors, *listed)
    itself = np.arange(len(asked)) * size + centres  # excluded unless the graph contains such a triple
    left_out = np.setdiff1d(itself, links) if known else np.union1d(itself, links)
    scores, found = candidates.best(left_out, max(k, 2))  # at least two, for the margin of the best
    marks = np.isin(np.arange(len(asked))[:, None] * size + found, links) & (found >= 0)
    unknown = partial(candidates.best, np.union1d(itself, links), 2) if known else lambda: (scores, found)
    probabilities = probable(batch, scores, found, view_labels[np.argsort(order)], unknown)
    return [
        as_answers(predictor, one, "entity", *(part[:k] for part in found_of))
        for one, *found_of in zip(asked, scores, found, marks, probabilities, strict=True)
    ]


def relation_answers(predictor: PredictorState, one: ResolvedQuery, k: int, known: bool) -> list[Answer]:
    """Rank all relations between two entities by the score of the tail as an answer to (head, relation, ?)."""
    batch = RequestBatch.of(predictor, [one])
    count, changed = batch.relations_of(0), batch.changed(0)
    labels, centres = np.arange(count), np.full(count, one.head, np.int64)
    view_labels = batch.labels(labels, 0)
    query_embeddings = batch.embedded([batch.entities(centres, 0)], [batch.ego_graphs(0, centres)], view_labels)
    if one.tail in changed:
        tail = np.array([one.tail])
        vectors = batch.embedded([batch.entities(tail, 0)], [batch.ego_graphs(0, tail)], None)
    else:
        vectors = np.array(predictor.table[[one.tail]])
    scores = pair_scores(predictor.model, query_embeddings, vectors, labels, np.zeros(count, np.int64))
    scores += batch.evidence([(0, centres, labels)], view_labels).of_rows(np.full(count, one.tail))
    marks = np.array([(one.head, relation, one.tail) in set(one.delta.triples) for relation in range(count)])
    if max(one.head, one.tail) < len(predictor.graph.entities):
        graph_relations = len(predictor.graph.relations)
        offsets, tails = predictor.known(
            centres[:graph_relations].astype(np.int32), labels[:graph_relations].astype(np.int32)
        )
        marks[np.repeat(labels[:graph_relations], np.diff(offsets))[tails == one.tail]] = True
    usable = ~np.isnan(scores) & (known | ~marks)
    order = np.lexsort((labels, -scores, ~usable))[: min(k, int(usable.sum()))]
    answer = np.full((len(order), 1), one.tail)
    unknown = partial(best_tails, batch, changed, query_embeddings[order], order)
    probabilities = probable(batch, scores[order][:, None], answer, batch.labels(labels[order], 0), unknown)
    return as_answers(predictor, one, "relation", scores[order], order, marks[order], probabilities[:, 0])


def best_tails(
    batch: RequestBatch,
    changed: Int64Array,
    query_embeddings: Float32Array,
    relations: Int64Array,
) -> tuple[Float32Array, Int64Array]:
    """Return scores and rows (q, 2) of the two best new tails for the batch's only head and each relation.

    Args:
        changed: entities whose ego-graphs the request changes.
        query_embeddings: embeddings (q, d) of the head with each relation.
        relations: rows (q,) of the relations.
    """
    predictor, one = batch.predictor, batch.asked[0]
    asked = [replace(one, relation=relation, tail=-1) for relation in relations.tolist()]
    vectors = batch.embedded([batch.entities(changed, 0)], [batch.ego_graphs(0, changed)], None)
    query, which = (part.ravel() for part in np.indices((len(asked), len(changed))))
    size = len(predictor.graph.entities) + len(one.delta.entities)
    heads, inverse = np.full(len(asked), one.head, np.int64), np.zeros(len(asked), bool)
    links = known_links(predictor, asked, heads, inverse, size)
    left_out = np.union1d(links, np.arange(len(asked)) * size + heads)
    evidence = batch.evidence([(0, heads, relations)], batch.labels(relations, 0))
    listed = evidence.queries, evidence.rows, evidence.values
    return ScoredCandidates.of(predictor, query_embeddings, size, query, changed[which], vectors[which], *listed).best(
        left_out, 2
    )


@dataclass(frozen=True)
class ScoredCandidates:
    """All entities as candidates.

    Most are scored from the table. New and changed entities, and those with evidence, have their scores stored here.
    """

    predictor: PredictorState
    query_embeddings: Float32Array  # (q, d)
    size: int  # larger than every row
    query: Int64Array  # (p,): the query of each separately scored candidate
    rows: Int64Array  # (p,)
    scores: Float32Array  # (p,)

    @classmethod
    def of(
        cls,
        predictor: PredictorState,
        query_embeddings: Float32Array,
        size: int,
        query: Int64Array,
        rows: Int64Array,
        vectors: Float32Array,
        listed_query: Int64Array,
        listed_rows: Int64Array,
        values: Float32Array,
    ) -> ScoredCandidates:
        """Score the candidates that need a separate score.

        Args:
            query_embeddings: (q, d).
            size: larger than every row.
            query: query of each new or changed candidate (p,), sorted by query and then by row.
            rows: their rows (p,).
            vectors: their embeddings (p, d).
            listed_query: query of each candidate with evidence (v,).
            listed_rows: their rows (v,).
            values: the evidence added to their scores (v,).
        """
        scores = pair_scores(predictor.model, query_embeddings, vectors, query, np.arange(len(vectors)))
        own, listed = query * size + rows, listed_query * size + listed_rows
        changed, place = np.isin(listed, own), np.searchsorted(own, listed)
        scores[place[changed]] += values[changed]
        listed_query, listed_rows, values = listed_query[~changed], listed_rows[~changed], values[~changed]
        raised = pair_scores(predictor.model, query_embeddings, predictor.table, listed_query, listed_rows) + values
        query, rows = np.concatenate([query, listed_query]), np.concatenate([rows, listed_rows])
        return cls(predictor, query_embeddings, size, query, rows, np.concatenate([scores, raised]))

    def best(self, left_out: Int64Array, k: int) -> tuple[Float32Array, Int64Array]:
        """Return scores and rows (q, k) of the best candidates, except `left_out` (query · size + row, sorted)."""
        own = self.query * self.size + self.rows
        not_in_table = np.unique(np.concatenate([left_out, own]))
        not_in_table = not_in_table[not_in_table % self.size < len(self.predictor.graph.entities)]
        offsets = np.searchsorted(not_in_table, np.arange(len(self.query_embeddings) + 1) * self.size)
        scores, found = self.predictor.search(self.query_embeddings, offsets, not_in_table % self.size, k)
        spared = ~np.isin(own, left_out)
        return merged(scores, found, self.query[spared], self.scores[spared], self.rows[spared])


def known_links(
    predictor: PredictorState, asked: Sequence[ResolvedQuery], centres: Int64Array, inverse: BoolArray, size: int
) -> Int64Array:
    """Return all known answers, from the graph and from what the questions add, as question · size + row."""
    relations = np.array([one.relation for one in asked])
    entities, count = len(predictor.graph.entities), len(predictor.graph.relations)
    there = np.flatnonzero((centres < entities) & (relations < count))
    labels = (relations + inverse * count)[there]
    offsets, rows = predictor.known(centres[there].astype(np.int32), labels.astype(np.int32))
    added = [
        question * size + (head if one.tail >= 0 else tail)
        for question, one in enumerate(asked)
        for head, relation, tail in one.delta.triples
        if relation == one.relation and (tail if one.tail >= 0 else head) == centres[question]
    ]
    return np.concatenate([np.repeat(there, np.diff(offsets)) * size + rows, np.array(added, np.int64)])


def probable(
    batch: RequestBatch,
    scores: Float32Array,
    rows: Int64Array,
    labels: AnyArray,
    unknown: Callable[[], tuple[Float32Array, Int64Array]],
) -> Any:
    """Return the probabilities of candidates (q, k) for labels (q,), or None values if the model is not calibrated.

    `unknown` returns at least the two best candidates that are not known answers. Margins are computed against them.
    """
    calibration = batch.predictor.calibration
    if calibration is None:
        return np.full(scores.shape, None, object)
    if batch.texts.relations != len(batch.predictor.graph.relations):
        ids = batch.predictor.relation_ids
        calibration = calibration.bound([*ids, *(batch.texts.relations - len(ids)) * [""]])
    best, best_rows = unknown()
    over = margins(scores, rivals(best, rows == best_rows[:, :1]))
    return calibration.probabilities(over, labels)


def as_answers(
    predictor: PredictorState,
    one: ResolvedQuery,
    kind: str,
    scores: Float32Array,
    rows: Int64Array,
    marks: BoolArray,
    probabilities: Any,
) -> list[Answer]:
    vocabulary = predictor.graph.entities if kind == "entity" else predictor.graph.relations
    answers: list[Answer] = []
    for score, row, mark, probability in zip(
        scores.tolist(), rows.tolist(), marks.tolist(), probabilities, strict=True
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
        probability = None if probability is None else float(probability)
        answers.append(Answer(len(answers) + 1, id_, name, text, score, probability, mark))
    return answers
