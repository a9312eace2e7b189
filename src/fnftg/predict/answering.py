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
import numpy.typing as npt
import polars as pl
import torch

from fnftg.ego.sampling import EgoGraphs
from fnftg.ego.votes import Votes
from fnftg.kg.graph import first_words
from fnftg.predict.growing import MoreAnswers, new_triples
from fnftg.predict.questions import Answer, Asked
from fnftg.predict.surroundings import Edges, Surroundings, changed_centres, edges_of, grown_parallels, joined
from fnftg.ranking.answers import pair_scores
from fnftg.ranking.calibration import margins, rivals
from fnftg.ranking.extras import Extras, merged
from fnftg.text.lookalikes import Lookalikes
from fnftg.text.transformer import GraphTexts

if TYPE_CHECKING:
    from fnftg.predict.predictor import Predictor

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
ROUND = 512  # questions answered at a time
Search = Callable[[Floats, Numbers, Numbers, int], tuple[Floats, Numbers]]


@dataclass(frozen=True)
class Batch:
    """Questions and one view for the texts of all that they add; each has its own numbers for what is new to it."""

    predictor: Predictor
    asked: Sequence[Asked]
    texts: GraphTexts
    first_entity: Numbers  # (q,): how many new entities come before those of each question
    first_relation: Numbers  # (q,)

    @classmethod
    def of(cls, predictor: Predictor, asked: Sequence[Asked]) -> Batch:
        entities = [entity.text for one in asked for entity in one.addition.entities]
        relations = [relation.text for one in asked for relation in one.addition.relations]
        texts = predictor.visible.texts
        if entities or relations:
            view = predictor.graph.extended(
                {f"\x1f{place}": text for place, text in enumerate(entities)},
                {f"\x1f{place}": text for place, text in enumerate(relations)},
            )
            texts = texts.extended(view, predictor.model.tt.encoder)
        counts = np.array([(len(one.addition.entities), len(one.addition.relations)) for one in asked], np.int64)
        first = np.cumsum(counts, axis=0) - counts
        return cls(predictor, asked, texts, first[:, 0], first[:, 1])

    def relations_of(self, question: int) -> int:
        """R as the question sees it."""
        return len(self.predictor.graph.relations) + len(self.asked[question].addition.relations)

    def surroundings(self, question: int, centre: int) -> tuple[Numbers, Surroundings]:
        """The centres that the question's edges change, and a graph around them and the question's own centre."""
        base, ego = self.predictor.visible.neighbours, self.predictor.model.ego
        (added, relations), more = self.added_edges(question), len(self.asked[question].addition.entities)
        changed = changed_centres(base, added, len(base) + more, relations, ego)
        return changed, Surroundings.of(base, added, relations, np.append(changed, centre), ego)

    def added_edges(self, question: int) -> tuple[Edges, int]:
        """Those of the question, and R as it sees it."""
        triples, relations = np.array(self.asked[question].addition.triples, np.int64), self.relations_of(question)
        return edges_of(triples, relations, self.predictor.visible.neighbours.directions), relations

    def entities(self, rows: npt.NDArray[Any], question: int) -> npt.NDArray[np.int32]:
        """A question's rows of entities as rows of the common view."""
        own = rows >= len(self.predictor.graph.entities)
        return np.asarray(rows + own * self.first_entity[question], np.int32)

    def labels(self, labels: npt.NDArray[Any], question: int) -> npt.NDArray[np.int32]:
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

    def ego_graphs(self, question: int, centres: Numbers, around: Surroundings) -> EgoGraphs:
        return self.common(around.ego_graphs(self.predictor.model.ego, self.texts, centres), question)

    def embedded(self, centres: list[Any], egos: list[EgoGraphs], labels: list[Any] | None) -> Floats:
        """Vectors of candidates, or points of queries where there are labels: (n, d)."""
        model = self.predictor.model
        if not centres:
            return np.empty((0, model.width), np.float32)
        own = None if labels is None else np.concatenate(labels)
        with torch.inference_mode():
            found = model(self.texts, np.concatenate(centres), joined(egos), own, labels is None)
        vectors: Floats = found[0 if labels is None else 1].float().cpu().numpy()
        return vectors

    def extras(
        self, queries: Sequence[tuple[int, Numbers, Numbers, Surroundings | None]], labels: npt.NDArray[Any]
    ) -> Extras:
        """What votes add to the scores of queries, given as questions with centres and labels in their own numbers and
        the graph around them, if it is another; the same labels (q,) in those of the common view."""
        model = self.predictor.model
        if not model.votes.counted:
            return Extras.nothing(len(labels))
        return Extras.of(model, self.texts, labels, Votes.joined([self.votes(*part) for part in queries]))

    def votes(self, question: int, centres: Numbers, labels: Numbers, around: Surroundings | None) -> Votes:
        """What speaks for answers of the queries (q,), all in the numbers of the question."""
        predictor, addition = self.predictor, self.asked[question].addition
        visible, config = predictor.visible, predictor.model.votes
        asked = centres.astype(np.int32), labels.astype(np.int32)
        if around is None:
            votes = visible.votes(config, *asked)
            assert votes is not None
            return votes
        votes, answers = Votes.none(len(centres)), MoreAnswers.of(predictor.known, addition)
        unknown = new_triples(predictor.known, addition)
        if config.lookalikes:
            lookalikes = self.lookalikes(config.lookalikes_at_evaluation, question)
            votes = Votes.of(lookalikes, answers, *asked, config.answers)
        if visible.parallels is not None:
            counted = grown_parallels(visible.parallels, visible.neighbours, *self.added_edges(question))
            votes = votes.beside("kinship", *around.parallels(counted, *asked, config.answers))
        if visible.naming is not None:
            mentions, texts = visible.naming.mentions, [entity.text for entity in addition.entities]
            if texts:
                mentions = mentions.extended(texts, first_words(pl.Series(texts)))
            naming = visible.naming.grown(mentions, unknown, self.relations_of(question))
            votes = votes.beside("mentioned", *naming(answers, *asked))
        if visible.precedents is not None and self.unmet[self.labels(labels, question)].any():
            every = self.labels(np.arange(2 * self.relations_of(question)), question)
            precedents = visible.precedents.grown(unknown, self.unmet[every])
            lookalikes = self.lookalikes(config.lookalikes, question)
            votes = precedents.beside(votes, lookalikes, answers, *asked, None, config.answers)
        return votes

    @cached_property
    def unmet(self) -> Truths:
        """Which labels of the common view were never trained on."""
        return self.predictor.model.unmet(self.texts)

    def lookalikes(self, k: int, question: int) -> Lookalikes:
        """In the numbers of the question, what is new to it among them."""
        found, more = self.predictor.visible.texts.lookalikes(k), len(self.asked[question].addition.entities)
        if not more:
            return found
        assert self.texts.features is not None
        new = self.entities(len(self.predictor.graph.entities) + np.arange(more), question)
        return found.extended(self.texts.features.take(new.astype(np.int64)))


def answered(predictor: Predictor, asked: Sequence[Asked], k: int, known: bool) -> list[list[Answer]]:
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


def entity_answers(predictor: Predictor, asked: Sequence[Asked], k: int, known: bool) -> list[list[Answer]]:
    batch, entities = Batch.of(predictor, asked), len(predictor.graph.entities)
    centres = np.array([one.head if one.tail < 0 else one.tail for one in asked], np.int64)
    inverse = np.array([one.tail >= 0 for one in asked])
    labels = np.array(
        [one.relation + i * batch.relations_of(q) for q, (one, i) in enumerate(zip(asked, inverse, strict=True))]
    )
    plain = [question for question, one in enumerate(asked) if not one.addition]
    own = [question for question, one in enumerate(asked) if one.addition]
    query_egos, changed_egos, changed_rows = [], [], []
    groups: list[tuple[int, Numbers, Numbers, Surroundings | None]] = []
    if plain:
        egos = predictor.visible.ego_graphs(predictor.model.ego, centres[plain].astype(np.int32), None)
        query_egos.append(batch.common(egos, plain[0]))
        groups.append((plain[0], centres[plain], labels[plain], None))
    for question in own:
        changed, around = batch.surroundings(question, int(centres[question]))
        query_egos.append(batch.ego_graphs(question, centres[[question]], around))
        changed_egos.append(batch.ego_graphs(question, changed, around))
        changed_rows.append(changed)
        groups.append((question, centres[[question]], labels[[question]], around))
    order = [*plain, *own]
    points = np.empty((len(asked), predictor.model.width), np.float32)
    view_labels = np.concatenate([batch.labels(labels[[question]], question) for question in order])
    points[order] = batch.embedded(
        [batch.entities(centres[[question]], question) for question in order], query_egos, [view_labels]
    )
    vectors = batch.embedded(
        [batch.entities(rows, question) for rows, question in zip(changed_rows, own, strict=True)], changed_egos, None
    )
    query = np.repeat(np.array(own, np.int64), [len(rows) for rows in changed_rows])
    rows = np.concatenate([np.zeros(0, np.int64), *changed_rows])

    size = entities + int(max((len(one.addition.entities) for one in asked), default=0))
    links = np.unique(known_links(predictor, asked, centres, inverse, size))
    extras = batch.extras(groups, view_labels)
    listed = np.array(order, np.int64)[extras.queries], extras.rows, extras.values
    candidates = Candidates.of(predictor, points, size, query, rows, vectors, *listed)
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


def relation_answers(predictor: Predictor, one: Asked, k: int, known: bool) -> list[Answer]:
    """All relations of two entities, by the score that the tail has as an answer to (head, relation, ?)."""
    batch = Batch.of(predictor, [one])
    count = batch.relations_of(0)
    changed, around = batch.surroundings(0, one.head)
    labels, centres = np.arange(count), np.full(count, one.head, np.int64)
    egos = batch.ego_graphs(0, centres, around)
    points = batch.embedded([batch.entities(centres, 0)], [egos], [batch.labels(labels, 0)])
    if one.tail in changed:
        tail = np.array([one.tail])
        vectors = batch.embedded([batch.entities(tail, 0)], [batch.ego_graphs(0, tail, around)], None)
    else:
        vectors = np.array(predictor.table[[one.tail]])
    scores = pair_scores(predictor.model, points, vectors, labels, np.zeros(count, np.int64))
    scores += batch.extras([(0, centres, labels, around)], batch.labels(labels, 0)).added_to(np.full(count, one.tail))
    marks = np.array([(one.head, relation, one.tail) in set(one.addition.triples) for relation in range(count)])
    if max(one.head, one.tail) < len(predictor.graph.entities):
        graph_relations = len(predictor.graph.relations)
        offsets, tails = predictor.known(
            centres[:graph_relations].astype(np.int32), labels[:graph_relations].astype(np.int32)
        )
        marks[np.repeat(labels[:graph_relations], np.diff(offsets))[tails == one.tail]] = True
    usable = ~np.isnan(scores) & (known | ~marks)
    order = np.lexsort((labels, -scores, ~usable))[: min(k, int(usable.sum()))]
    answer = np.full((len(order), 1), one.tail)
    unknown = partial(best_tails, batch, changed, around, points[order], order)
    probabilities = probable(batch, scores[order][:, None], answer, batch.labels(labels[order], 0), unknown)
    return as_answers(predictor, one, "relation", scores[order], order, marks[order], probabilities[:, 0])


def best_tails(
    batch: Batch, changed: Numbers, around: Surroundings, points: Floats, relations: Numbers
) -> tuple[Floats, Numbers]:
    """The two best tails that are not known of (head, relation, ?), of the head of the only question with some
    relations (q,) and their points: scores and rows, (q, 2) each."""
    predictor, one = batch.predictor, batch.asked[0]
    asked = [replace(one, relation=relation, tail=-1) for relation in relations.tolist()]
    vectors = batch.embedded([batch.entities(changed, 0)], [batch.ego_graphs(0, changed, around)], None)
    query, which = (part.ravel() for part in np.indices((len(asked), len(changed))))
    size = len(predictor.graph.entities) + len(one.addition.entities)
    heads, inverse = np.full(len(asked), one.head, np.int64), np.zeros(len(asked), bool)
    links = known_links(predictor, asked, heads, inverse, size)
    left_out = np.union1d(links, np.arange(len(asked)) * size + heads)
    extras = batch.extras([(0, heads, relations, around)], batch.labels(relations, 0))
    listed = extras.queries, extras.rows, extras.values
    return Candidates.of(predictor, points, size, query, changed[which], vectors[which], *listed).best(left_out, 2)


@dataclass(frozen=True)
class Candidates:
    """The entities as candidates of points: those of the table, but some by scores of their own: new and changed ones,
    and those that votes or parallels speak for."""

    predictor: Predictor
    points: Floats  # (q, d)
    size: int  # above every row
    query: Numbers  # (p,): whose candidate each of those with a score of its own is
    rows: Numbers  # (p,)
    scores: Floats  # (p,)

    @classmethod
    def of(
        cls,
        predictor: Predictor,
        points: Floats,
        size: int,
        query: Numbers,
        rows: Numbers,
        vectors: Floats,
        voted_query: Numbers,
        voted: Numbers,
        values: Floats,
    ) -> Candidates:
        """With the vectors (p, d) of new and changed rows, in the order of their queries and then their own; and with
        values that votes add to the scores of some rows (v,)."""
        scores = pair_scores(predictor.model, points, vectors, query, np.arange(len(vectors)))
        own, listed = query * size + rows, voted_query * size + voted
        changed, place = np.isin(listed, own), np.searchsorted(own, listed)
        scores[place[changed]] += values[changed]
        voted_query, voted, values = voted_query[~changed], voted[~changed], values[~changed]
        raised = pair_scores(predictor.model, points, predictor.table, voted_query, voted) + values
        query, rows = np.concatenate([query, voted_query]), np.concatenate([rows, voted])
        return cls(predictor, points, size, query, rows, np.concatenate([scores, raised]))

    def best(self, left_out: Numbers, k: int) -> tuple[Floats, Numbers]:
        """The k best of each point, without what is left out (query · size + row, ascending): scores, rows, (q, k)."""
        own = self.query * self.size + self.rows
        not_in_table = np.unique(np.concatenate([left_out, own]))
        not_in_table = not_in_table[not_in_table % self.size < len(self.predictor.graph.entities)]
        offsets = np.searchsorted(not_in_table, np.arange(len(self.points) + 1) * self.size)
        scores, found = self.predictor.search(self.points, offsets, not_in_table % self.size, k)
        spared = ~np.isin(own, left_out)
        return merged(scores, found, self.query[spared], self.scores[spared], self.rows[spared])


def known_links(predictor: Predictor, asked: Sequence[Asked], centres: Numbers, inverse: Truths, size: int) -> Numbers:
    """Every known answer of every question, as question · size + row: those of the graph, and what questions add."""
    relations = np.array([one.relation for one in asked])
    entities, count = len(predictor.graph.entities), len(predictor.graph.relations)
    there = np.flatnonzero((centres < entities) & (relations < count))
    labels = (relations + inverse * count)[there]
    offsets, rows = predictor.known(centres[there].astype(np.int32), labels.astype(np.int32))
    added = [
        question * size + (head if one.tail >= 0 else tail)
        for question, one in enumerate(asked)
        for head, relation, tail in one.addition.triples
        if relation == one.relation and (tail if one.tail >= 0 else head) == centres[question]
    ]
    return np.concatenate([np.repeat(there, np.diff(offsets)) * size + rows, np.array(added, np.int64)])


def probable(
    batch: Batch,
    scores: Floats,
    rows: Numbers,
    labels: npt.NDArray[Any],
    unknown: Callable[[], tuple[Floats, Numbers]],
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
    predictor: Predictor, one: Asked, kind: str, scores: Floats, rows: Numbers, marks: Truths, probabilities: Any
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
            text = one.addition.entities[row - len(vocabulary)].text
            id_, name = one.addition.ids[row - len(vocabulary)], text.split(", ")[0][:80]
        else:
            text = one.addition.relations[row - len(vocabulary)].text
            id_, name = text, text
        probability = None if probability is None else float(probability)
        answers.append(Answer(len(answers) + 1, id_, name, text, score, probability, mark))
    return answers
