"""Answers to many questions at once, each about a graph of its own: the graph, and what the question adds to it.

Only the texts that are new are encoded, and only the ego-graphs that new edges change are embedded again; all other
candidates come from the table. The answers are those of a graph into which the new entities had been imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch

from fnftg.arrays import AnyArray, BoolArray, Float32Array, Int32Array, Int64Array
from fnftg.ego.sampling import EgoGraphs
from fnftg.ego.votes import Votes
from fnftg.kg.graph import first_words
from fnftg.predict.graph_delta import ExtendedAnswers, new_triples
from fnftg.predict.local_subgraph import EdgeList, Surroundings, changed_centres, edges_of, grown_parallels, joined
from fnftg.predict.questions import Answer, ResolvedQuery
from fnftg.ranking.calibration import margins, rivals
from fnftg.ranking.evidence_scores import Extras, merged
from fnftg.ranking.search import pair_scores
from fnftg.text.nearest_texts import TextKNN
from fnftg.text.transformer import GraphTexts

if TYPE_CHECKING:
    from fnftg.predict.predictor import Predictor

ROUND = 512  # questions answered at a time
Search = Callable[[Float32Array, Int64Array, Int64Array, int], tuple[Float32Array, Int64Array]]


@dataclass(frozen=True)
class QueryBatch:
    """Questions and one view for the texts of all that they add; each has its own numbers for what is new to it."""

    predictor: Predictor
    asked: Sequence[ResolvedQuery]
    texts: GraphTexts
    first_entity: Int64Array  # (q,): how many new entities come before those of each question
    first_relation: Int64Array  # (q,)

    @classmethod
    def of(cls, predictor: Predictor, asked: Sequence[ResolvedQuery]) -> QueryBatch:
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

    def relations_of(self, question: int) -> int:
        """R as the question sees it."""
        return len(self.predictor.graph.relations) + len(self.asked[question].delta.relations)

    def surroundings(self, question: int, centre: int) -> tuple[Int64Array, Surroundings]:
        """The centres that the question's edges change, and a graph around them and the question's own centre."""
        base, ego = self.predictor.context.neighbours, self.predictor.model.ego
        (added, relations), more = self.added_edges(question), len(self.asked[question].delta.entities)
        changed = changed_centres(base, added, len(base) + more, relations, ego)
        return changed, Surroundings.of(base, added, relations, np.append(changed, centre), ego)

    def added_edges(self, question: int) -> tuple[EdgeList, int]:
        """Those of the question, and R as it sees it."""
        triples, relations = np.array(self.asked[question].delta.triples, np.int64), self.relations_of(question)
        return edges_of(triples, relations, self.predictor.context.neighbours.directions), relations

    def entities(self, rows: AnyArray, question: int) -> Int32Array:
        """A question's rows of entities as rows of the common view."""
        own = rows >= len(self.predictor.graph.entities)
        return np.asarray(rows + own * self.first_entity[question], np.int32)

    def labels(self, labels: AnyArray, question: int) -> Int32Array:
        count = self.relations_of(question)
        relation, inverse = labels % count, labels >= count
        relation = relation + (relation >= len(self.predictor.graph.relations)) * self.first_relation[question]
        return np.asarray(relation + inverse * self.texts.relations, np.int32)

    def common(self, egos: EgoGraphs, question: int) -> EgoGraphs:
        second = egos.second_labels
        if second is not None:
            second = np.where(second < 0, second, self.labels(np.maximum(second, 0), question)).astype(np.int32)
        neighbours, labels = self.entities(egos.neighbours, question), self.labels(egos.labels, question)
        return EgoGraphs(egos.offsets, neighbours, labels, second)

    def ego_graphs(self, question: int, centres: Int64Array, around: Surroundings) -> EgoGraphs:
        return self.common(around.ego_graphs(self.predictor.model.ego, self.texts, centres), question)

    def embedded(self, centres: list[Any], egos: list[EgoGraphs], labels: list[Any] | None) -> Float32Array:
        """Vectors of candidates, or points of queries where there are labels: (n, d)."""
        model = self.predictor.model
        if not centres:
            return np.empty((0, model.width), np.float32)
        own = None if labels is None else np.concatenate(labels)
        with torch.inference_mode():
            found = model(self.texts, np.concatenate(centres), joined(egos), own, labels is None)
        vectors: Float32Array = found[0 if labels is None else 1].float().cpu().numpy()
        return vectors

    def extras(
        self, queries: Sequence[tuple[int, Int64Array, Int64Array, Surroundings | None]], labels: AnyArray
    ) -> Extras:
        """What votes add to the scores of queries, given as questions with centres and labels in their own numbers and
        the graph around them, if it is another; the same labels (q,) in those of the common view."""
        model = self.predictor.model
        if not model.votes.counted:
            return Extras.nothing(len(labels))
        return Extras.of(model, self.texts, labels, Votes.joined([self.votes(*part) for part in queries]))

    def votes(self, question: int, centres: Int64Array, labels: Int64Array, around: Surroundings | None) -> Votes:
        """What speaks for answers of the queries (q,), all in the numbers of the question."""
        predictor, delta = self.predictor, self.asked[question].delta
        context, config = predictor.context, predictor.model.votes
        asked = centres.astype(np.int32), labels.astype(np.int32)
        if around is None:
            votes = context.votes(config, *asked)
            assert votes is not None
            return votes
        votes, answers = Votes.none(len(centres)), ExtendedAnswers.of(predictor.known, delta)
        unknown = new_triples(predictor.known, delta)
        if config.lookalikes:
            lookalikes = self.lookalikes(config.lookalikes_at_evaluation, question)
            votes = Votes.of(lookalikes, answers, *asked, config.answers)
        if context.parallels is not None:
            counted = grown_parallels(context.parallels, context.neighbours, *self.added_edges(question))
            votes = votes.beside("kinship", *around.parallels(counted, *asked, config.answers))
        if context.naming is not None:
            mentions, texts = context.naming.mentions, [entity.text for entity in delta.entities]
            if texts:
                mentions = mentions.extended(texts, first_words(pl.Series(texts)))
            naming = context.naming.grown(mentions, unknown, self.relations_of(question))
            votes = votes.beside("mentioned", *naming(answers, *asked))
        if context.precedents is not None and self.unmet[self.labels(labels, question)].any():
            every = self.labels(np.arange(2 * self.relations_of(question)), question)
            precedents = context.precedents.grown(unknown, self.unmet[every])
            lookalikes = self.lookalikes(config.lookalikes, question)
            votes = precedents.beside(votes, lookalikes, answers, *asked, None, config.answers)
        return votes

    @cached_property
    def unmet(self) -> BoolArray:
        """Which labels of the common view were never trained on."""
        return self.predictor.model.unmet(self.texts)

    def lookalikes(self, k: int, question: int) -> TextKNN:
        """In the numbers of the question, what is new to it among them."""
        found, more = self.predictor.context.texts.nearest_texts(k), len(self.asked[question].delta.entities)
        if not more:
            return found
        assert self.texts.features is not None
        new = self.entities(len(self.predictor.graph.entities) + np.arange(more), question)
        return found.extended(self.texts.features.take(new.astype(np.int64)))


def answered(predictor: Predictor, asked: Sequence[ResolvedQuery], k: int, known: bool) -> list[list[Answer]]:
    """The k best answers to each question, known links left out or kept and marked; nothing is its own answer."""
    answers: dict[int, list[Answer]] = {}
    for_entities = [place for place, one in enumerate(asked) if one.relation >= 0]
    for start in range(0, len(for_entities), ROUND):
        part = for_entities[start : start + ROUND]
        answers.update(zip(part, entity_answers(predictor, [asked[place] for place in part], k, known), strict=True))
    for place, one in enumerate(asked):
        if one.relation < 0:
            answers[place] = relation_answers(predictor, one, k, known)
    return [answers[place] for place in range(len(asked))]


def entity_answers(predictor: Predictor, asked: Sequence[ResolvedQuery], k: int, known: bool) -> list[list[Answer]]:
    batch, entities = QueryBatch.of(predictor, asked), len(predictor.graph.entities)
    centres = np.array([one.head if one.tail < 0 else one.tail for one in asked], np.int64)
    inverse = np.array([one.tail >= 0 for one in asked])
    labels = np.array(
        [one.relation + i * batch.relations_of(q) for q, (one, i) in enumerate(zip(asked, inverse, strict=True))]
    )
    plain = [question for question, one in enumerate(asked) if not one.delta]
    own = [question for question, one in enumerate(asked) if one.delta]
    query_egos, changed_egos, changed_rows = [], [], []
    groups: list[tuple[int, Int64Array, Int64Array, Surroundings | None]] = []
    if plain:
        egos = predictor.context.ego_graphs(predictor.model.ego, centres[plain].astype(np.int32), None)
        query_egos.append(batch.common(egos, plain[0]))
        groups.append((plain[0], centres[plain], labels[plain], None))
    for question in own:
        changed, around = batch.surroundings(question, int(centres[question]))
        query_egos.append(batch.ego_graphs(question, centres[[question]], around))
        changed_egos.append(batch.ego_graphs(question, changed, around))
        changed_rows.append(changed)
        groups.append((question, centres[[question]], labels[[question]], around))
    order = [*plain, *own]
    query_embeddings = np.empty((len(asked), predictor.model.width), np.float32)
    view_labels = np.concatenate([batch.labels(labels[[question]], question) for question in order])
    query_embeddings[order] = batch.embedded(
        [batch.entities(centres[[question]], question) for question in order], query_egos, [view_labels]
    )
    vectors = batch.embedded(
        [batch.entities(rows, question) for rows, question in zip(changed_rows, own, strict=True)], changed_egos, None
    )
    query = np.repeat(np.array(own, np.int64), [len(rows) for rows in changed_rows])
    rows = np.concatenate([np.zeros(0, np.int64), *changed_rows])

    size = entities + int(max((len(one.delta.entities) for one in asked), default=0))
    links = np.unique(known_links(predictor, asked, centres, inverse, size))
    extras = batch.extras(groups, view_labels)
    listed = np.array(order, np.int64)[extras.queries], extras.rows, extras.values
    candidates = Candidates.of(predictor, query_embeddings, size, query, rows, vectors, *listed)
    itself = np.arange(len(asked)) * size + centres  # no answer, unless the graph says so
    left_out = np.setdiff1d(itself, links) if known else np.union1d(itself, links)
    scores, found = candidates.best(left_out, max(k, 2))  # two, so that the first has a rival
    marks = np.isin(np.arange(len(asked))[:, None] * size + found, links) & (found >= 0)
    unknown = partial(candidates.best, np.union1d(itself, links), 2) if known else lambda: (scores, found)
    probabilities = probable(batch, scores, found, view_labels[np.argsort(order)], unknown)
    return [
        as_answers(predictor, one, "entity", *(part[:k] for part in found_of))
        for one, *found_of in zip(asked, scores, found, marks, probabilities, strict=True)
    ]


def relation_answers(predictor: Predictor, one: ResolvedQuery, k: int, known: bool) -> list[Answer]:
    """All relations of two entities, by the score that the tail has as an answer to (head, relation, ?)."""
    batch = QueryBatch.of(predictor, [one])
    count = batch.relations_of(0)
    changed, around = batch.surroundings(0, one.head)
    labels, centres = np.arange(count), np.full(count, one.head, np.int64)
    egos = batch.ego_graphs(0, centres, around)
    query_embeddings = batch.embedded([batch.entities(centres, 0)], [egos], [batch.labels(labels, 0)])
    if one.tail in changed:
        tail = np.array([one.tail])
        vectors = batch.embedded([batch.entities(tail, 0)], [batch.ego_graphs(0, tail, around)], None)
    else:
        vectors = np.array(predictor.table[[one.tail]])
    scores = pair_scores(predictor.model, query_embeddings, vectors, labels, np.zeros(count, np.int64))
    scores += batch.extras([(0, centres, labels, around)], batch.labels(labels, 0)).added_to(np.full(count, one.tail))
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
    unknown = partial(best_tails, batch, changed, around, query_embeddings[order], order)
    probabilities = probable(batch, scores[order][:, None], answer, batch.labels(labels[order], 0), unknown)
    return as_answers(predictor, one, "relation", scores[order], order, marks[order], probabilities[:, 0])


def best_tails(
    batch: QueryBatch, changed: Int64Array, around: Surroundings, query_embeddings: Float32Array, relations: Int64Array
) -> tuple[Float32Array, Int64Array]:
    """The two best tails that are not known of (head, relation, ?), of the head of the only question with some
    relations (q,) and their points: scores and rows, (q, 2) each."""
    predictor, one = batch.predictor, batch.asked[0]
    asked = [replace(one, relation=relation, tail=-1) for relation in relations.tolist()]
    vectors = batch.embedded([batch.entities(changed, 0)], [batch.ego_graphs(0, changed, around)], None)
    query, which = (part.ravel() for part in np.indices((len(asked), len(changed))))
    size = len(predictor.graph.entities) + len(one.delta.entities)
    heads, inverse = np.full(len(asked), one.head, np.int64), np.zeros(len(asked), bool)
    links = known_links(predictor, asked, heads, inverse, size)
    left_out = np.union1d(links, np.arange(len(asked)) * size + heads)
    extras = batch.extras([(0, heads, relations, around)], batch.labels(relations, 0))
    listed = extras.queries, extras.rows, extras.values
    return Candidates.of(predictor, query_embeddings, size, query, changed[which], vectors[which], *listed).best(
        left_out, 2
    )


@dataclass(frozen=True)
class Candidates:
    """The entities as candidates of points: those of the table, but some by scores of their own: new and changed ones,
    and those that votes or parallels speak for."""

    predictor: Predictor
    query_embeddings: Float32Array  # (q, d)
    size: int  # above every row
    query: Int64Array  # (p,): whose candidate each of those with a score of its own is
    rows: Int64Array  # (p,)
    scores: Float32Array  # (p,)

    @classmethod
    def of(
        cls,
        predictor: Predictor,
        query_embeddings: Float32Array,
        size: int,
        query: Int64Array,
        rows: Int64Array,
        vectors: Float32Array,
        voted_query: Int64Array,
        voted: Int64Array,
        values: Float32Array,
    ) -> Candidates:
        """With the vectors (p, d) of new and changed rows, in the order of their queries and then their own; and with
        values that votes add to the scores of some rows (v,)."""
        scores = pair_scores(predictor.model, query_embeddings, vectors, query, np.arange(len(vectors)))
        own, listed = query * size + rows, voted_query * size + voted
        changed, place = np.isin(listed, own), np.searchsorted(own, listed)
        scores[place[changed]] += values[changed]
        voted_query, voted, values = voted_query[~changed], voted[~changed], values[~changed]
        raised = pair_scores(predictor.model, query_embeddings, predictor.table, voted_query, voted) + values
        query, rows = np.concatenate([query, voted_query]), np.concatenate([rows, voted])
        return cls(predictor, query_embeddings, size, query, rows, np.concatenate([scores, raised]))

    def best(self, left_out: Int64Array, k: int) -> tuple[Float32Array, Int64Array]:
        """The k best of each point, without what is left out (query · size + row, ascending): scores, rows, (q, k)."""
        own = self.query * self.size + self.rows
        not_in_table = np.unique(np.concatenate([left_out, own]))
        not_in_table = not_in_table[not_in_table % self.size < len(self.predictor.graph.entities)]
        offsets = np.searchsorted(not_in_table, np.arange(len(self.query_embeddings) + 1) * self.size)
        scores, found = self.predictor.search(self.query_embeddings, offsets, not_in_table % self.size, k)
        spared = ~np.isin(own, left_out)
        return merged(scores, found, self.query[spared], self.scores[spared], self.rows[spared])


def known_links(
    predictor: Predictor, asked: Sequence[ResolvedQuery], centres: Int64Array, inverse: BoolArray, size: int
) -> Int64Array:
    """Every known answer of every question, as question · size + row: those of the graph, and what questions add."""
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
    batch: QueryBatch,
    scores: Float32Array,
    rows: Int64Array,
    labels: AnyArray,
    unknown: Callable[[], tuple[Float32Array, Int64Array]],
) -> Any:
    """Probabilities of candidates (q, k) of queries with these labels (q,), None where the model was not calibrated.
    Their rivals are the best of those that are no known links, of which two at least are looked up when needed."""
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
    predictor: Predictor,
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
