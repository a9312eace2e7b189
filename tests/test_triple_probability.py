"""P(triple) is counted without the target, learned without test, and the same however a triple is asked for."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import test_predict
from conftest import probability_by_hand
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import GRAPH, made_run, random_model
from test_predict import evidence_from, run_of, small_model
from test_ranking import Here, here, trained  # noqa: F401 (fixtures)

import fnftg
from fnftg.cli import main
from fnftg.ego.context import ExtendedContext, GraphContext, VisibleGraph
from fnftg.ego.known_answers import KnownAnswers, new_triples
from fnftg.ego.neighbours import Directions, Neighbours
from fnftg.errors import FnftgError
from fnftg.evidence.sources import SOURCES
from fnftg.files import sha256
from fnftg.kg import KnowledgeGraph
from fnftg.kg.formats.rdf import node_of
from fnftg.predict import logistic, probability_fitting, query_features
from fnftg.predict.classification import best_threshold, classified
from fnftg.predict.completion import FOUND, Wanted, complete
from fnftg.predict.discovery import area_under_roc, at_least, average_precision, discovered, frequent, precision_at
from fnftg.predict.predictor import Predictor
from fnftg.predict.probability_fitting import fit
from fnftg.predict.query_features import FEATURES, likely_queries
from fnftg.predict.query_features import query_features as features_of
from fnftg.predict.questions import NewEntity, Question, Relation
from fnftg.predict.review_page import iri, review_page
from fnftg.predict.small_network import Network
from fnftg.predict.triple_probability import FILE, TRIPLE_FEATURES, load, screen_features, triple_features
from fnftg.text.nearest_texts import TextKNN

# Features of queries, counted in sets of triples. Few numbers of answers and few nearest texts, so that limits matter.

MOST, NEAREST = 2, 3
Triple = tuple[int, int, int]


@pytest.fixture(scope="module", autouse=True)
def no_more_than_needed() -> Iterator[None]:
    """So that a graph of a few triples is large enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probability_fitting, "LEAST", 5)
        yield


@pytest.fixture
def small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_features, "MOST_ANSWERS", MOST)
        patch.setattr(query_features, "NEAREST", NEAREST)
        yield


class Texts(SimpleNamespace):
    """Of entities whose features are given."""

    def nearest_texts(self, k: int) -> TextKNN:
        return TextKNN.of(self.features, k)


def context_of(triples: Any, texts: Any, directions: Directions = "both", **more: Any) -> GraphContext:
    rows = np.array(sorted(triples), np.int32).reshape(-1, 3)
    neighbours = Neighbours.of(rows, texts.entities, texts.relations, directions)
    return GraphContext(texts, neighbours, KnownAnswers.of(rows, texts.entities, texts.relations), **more)


class Counted:
    """The features of a query, counted one by one."""

    def __init__(self, triples: set[Triple], texts: Any, directions: Directions = "both"):
        self.triples, self.entities, self.relations = triples, texts.entities, texts.relations
        self.edges = triples | {(tail, relation + self.relations, head) for head, relation, tail in triples}
        self.seen = self.edges if directions == "both" else triples  # by the model
        self.texts = texts.features

    def answers(self, entity: int, label: int) -> set[int]:
        return {other for centre, own, other in self.edges if centre == entity and own == label}

    def continuation(self, entity: int, label: int) -> float:
        number = min(len(self.answers(entity, label)), MOST)
        have = [len(self.answers(other, label)) for other in range(self.entities)]
        return (sum(n > number for n in have) + 0.5) / (sum(n >= number for n in have) + 1)

    def nearest(self, entity: int) -> list[tuple[float, int]]:
        def cosine(other: int) -> float:
            one, two = (self.texts[row].astype(np.float64) for row in (entity, other))
            return round(float(one @ two / math.sqrt(one @ one) / math.sqrt(two @ two)), 4)

        others = [(cosine(other), other) for other in range(self.entities) if other != entity]
        return sorted(others, key=lambda pair: (-pair[0], pair[1]))[:NEAREST]

    def nearest_share(self, entity: int, label: int) -> float:
        weights = [(max(cosine, 0) ** 4, other) for cosine, other in self.nearest(entity)]
        having = sum(weight for weight, other in weights if self.answers(other, label))
        return having / max(sum(weight for weight, _ in weights), 1e-12)

    def rate(self, label: int, by: int) -> float:
        """How often an edge with label `by` connects what `label` connects, too."""
        if label == by:
            return 0.0
        both = sum((head, label, tail) in self.seen for head, own, tail in self.seen if own == by)
        return both / (sum(relation == by % self.relations for _, relation, _ in self.triples) + 1)

    def implied(self, entity: int, label: int) -> float:
        known = self.answers(entity, label)
        edges = [(own, other) for centre, own, other in self.seen if centre == entity and other != entity]
        return max((self.rate(label, own) for own, other in edges if other not in known), default=0.0)

    def degree(self, entity: int) -> int:
        return sum(centre == entity for centre, _, _ in self.seen)

    def __call__(self, entity: int, label: int) -> tuple[float, ...]:
        number, slot = len(self.answers(entity, label)), 2 * (label % self.relations) + (label >= self.relations)
        parts = self.continuation, self.nearest_share, self.implied
        holders = sum(bool(self.answers(other, label)) for other in range(self.entities))
        triples = sum(relation == label % self.relations for _, relation, _ in self.triples)
        return (slot, number, *(part(entity, label) for part in parts), self.degree(entity), holders, triples)


@st.composite
def small_graphs(draw: st.DrawFn, most: int = 7) -> tuple[set[Triple], Any]:
    entities, relations = draw(st.integers(2, most)), draw(st.integers(1, 3))
    row = st.integers(0, entities - 1)
    triples = draw(st.sets(st.tuples(row, st.integers(0, relations - 1), row), max_size=14))
    features = np.random.default_rng(draw(st.integers(0, 99))).normal(0.3, 1, (entities, 3)).astype(np.float32)
    return triples, Texts(entities=entities, relations=relations, features=features)


def all_queries(context: VisibleGraph) -> tuple[Any, Any]:
    centres, labels = np.indices((context.entities, 2 * context.relations), dtype=np.int32)
    return centres.ravel(), labels.ravel()


def columns(found: Any) -> list[tuple[float, ...]]:
    return list(zip(*(value.tolist() for value in vars(found).values()), strict=True))


DIRECTIONS: Any = st.sampled_from(["both", "both", "out"])


@given(small_graphs(), DIRECTIONS)
@settings(max_examples=60, deadline=None)
def test_features_of_queries_are_those_of_a_count_in_sets(
    case: tuple[set[Triple], Any], directions: Directions
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_features, "MOST_ANSWERS", MOST)
        patch.setattr(query_features, "NEAREST", NEAREST)
        context, oracle = context_of(*case, directions), Counted(*case, directions)
        centres, labels = all_queries(context)
        found = columns(features_of(context, centres, labels))
        for centre, label, one in zip(centres.tolist(), labels.tolist(), found, strict=True):
            assert one == pytest.approx(oracle(centre, label), abs=1e-6), (centre, label)


@given(small_graphs(), st.data(), DIRECTIONS)
@settings(max_examples=60, deadline=None)
def test_likely_queries_have_the_same_features_and_none_with_evidence_is_missed(
    case: tuple[set[Triple], Any], data: st.DataObject, directions: Directions
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_features, "MOST_ANSWERS", MOST)
        patch.setattr(query_features, "NEAREST", NEAREST)
        context, oracle = context_of(*case, directions), Counted(*case, directions)
        chosen = data.draw(st.sets(st.integers(0, context.entities - 1), min_size=1))
        centres, labels, found = likely_queries(context, np.array(sorted(chosen), np.int32))
        again = features_of(context, centres, labels)
        for one, other in zip(columns(found), columns(again), strict=True):
            assert one == pytest.approx(other, abs=1e-9)
        pairs = list(zip(centres.tolist(), labels.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs) and {centre for centre, _ in pairs} <= chosen
        for entity in chosen:
            for label in range(2 * context.relations):
                near = any(oracle.answers(other, label) for _, other in oracle.nearest(entity))
                evident = oracle.answers(entity, label) or near or oracle.implied(entity, label) >= 0.05
                assert not evident or (entity, label) in pairs


def test_features_worked_by_hand(small_limits: None) -> None:
    """Four people: 0 and 1 are friends of each other; 2 says that 3 is a friend. 4 has no edges."""
    features = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [1, 0.1]], np.float32)
    context = context_of({(0, 0, 1), (1, 0, 0), (2, 0, 3)}, Texts(entities=5, relations=1, features=features))
    found = features_of(context, np.array([3, 0, 4], np.int32), np.array([0, 0, 0], np.int32))
    assert found.answers.tolist() == [0, 1, 0] and found.degree.tolist() == [1, 2, 0]
    assert found.isolated.tolist() == [False, False, True]
    assert found.continuation.tolist() == pytest.approx([3.5 / 6, 0.5 / 4, 3.5 / 6]), (
        "of all, of those with one, of all"
    )
    # An edge of friend is also one of friend-of in two pairs of three triples: (0, 1) and (1, 0).
    assert found.implied.tolist() == pytest.approx([2 / 4, 0, 0]), "the edge from 2 to 3 often has a reverse one"
    assert found.nearest_share.tolist() == pytest.approx([0, 2 / (2 + 0.995**4), 1], abs=1e-3), "4 is next to 3"
    matrix = found.matrix()
    assert matrix.shape == (3, len(FEATURES))
    expected = [math.log(2), 1, math.log(0.125), math.log(found.nearest_share[1] + 1e-3), 0, math.log(3)]
    assert matrix[1].tolist() == pytest.approx([*expected, math.log(0.125), expected[3]])
    assert matrix[0, 6:].tolist() == [0, 0], "nothing is known, so that these do not count"


# What is posted counts as what is imported


@given(small_graphs(5), st.data(), DIRECTIONS)
@settings(max_examples=60, deadline=None)
def test_counts_of_posted_triples_are_those_of_imported_ones(
    case: tuple[set[Triple], Any], data: st.DataObject, directions: Directions
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_features, "MOST_ANSWERS", MOST)
        patch.setattr(query_features, "NEAREST", NEAREST)
        triples, texts = case
        base = context_of(triples, texts, directions)
        more_entities, more_relations = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1))
        entities, relations = texts.entities + more_entities, texts.relations + more_relations
        row = st.integers(0, entities - 1)
        posted = data.draw(st.sets(st.tuples(row, st.integers(0, relations - 1), row), max_size=6))
        features = np.random.default_rng(5).normal(0.3, 1, (more_entities, 3)).astype(np.float32)
        whole = Texts(entities=entities, relations=relations, features=np.concatenate([texts.features, features]))
        imported = context_of(triples | posted, whole, directions)
        rows = np.array(sorted(posted), np.int32).reshape(-1, 3)
        new_texts, prints = ["new"] * more_entities, np.ones(more_relations, np.int64)
        extended = ExtendedContext(base, rows, new_texts, lambda: features, ["new"] * more_relations, prints)
        view = context_of(triples | posted, whole, directions, base=base, added=new_triples(base.known, rows))
        centres, labels = all_queries(imported)
        expected = columns(features_of(imported, centres, labels))
        for grown in (extended, view):
            found = columns(features_of(grown, centres, labels))
            for centre, label, one, other in zip(centres, labels, found, expected, strict=True):
                assert one == pytest.approx(other, abs=1e-6), (centre, label)


TEXT = "is the natural predator of"
POSTED: dict[str, tuple[NewEntity | None, list[tuple[Any, Any, Any]], dict[str, str]]] = {
    "without edges": (NewEntity("a third kind", id="new"), [], {}),
    "with edges": (
        NewEntity("one of the first kind", [("_r_1", "e3"), ("_r_1", "e4")], [("_r_3", "e5")], id="new"),
        [("new", "_r_1", "e3"), ("new", "_r_1", "e4"), ("e5", "_r_3", "new")],
        {},
    ),
    "with a new relation": (
        NewEntity("one more", [(Relation(TEXT), "e3")], [("_r_2", "e5")], id="new"),
        [("new", "eats", "e3"), ("e5", "_r_2", "new")],
        {"eats": TEXT},
    ),
    "new triples between known entities": (
        None,
        [("e1", "_r_1", "e2"), ("e2", "_r_1", "e1"), ("e7", "_r_0", "e3")],
        {},
    ),
}


@pytest.mark.parametrize("changes", [{}, evidence_from(*SOURCES, num_nearest=3, num_candidates=9), {"ego__directions": "out"}, {"text__training": "finetune"}], ids=["transe", "all evidence", "outgoing", "fine-tuned"])  # fmt: skip
def test_what_is_posted_is_as_likely_as_the_same_imported(changes: dict[str, Any], tmp_path: Path) -> None:
    run = run_of(small_model(**changes), tmp_path)
    probability_by_hand().save(run / "checkpoint")
    predictor = fnftg.load(run)
    for entity, triples, relations in POSTED.values():
        texts = {} if entity is None else {"new": entity.text}
        imported = fnftg.load(run, test_predict.GRAPH.extended(texts, relations, triples))
        grown = predictor.add(*([] if entity is None else [entity]), triples=triples if entity is None else [])
        names = ["_r_1", "_r_3", *relations]
        asked: list[tuple[Predictor, Any, Any, Any]] = []  # who is asked, and for which triple
        for name in names:
            relation: Any = Relation(TEXT) if name == "eats" else name
            if entity is None:
                asked += [(grown, head, name, tail) for head, tail in (("e1", "e2"), ("e3", "e7"), ("e2", "e9"))]
            else:
                asked += [(predictor, entity, relation, tail) for tail in ("e3", "e8", "e20")]
                asked += [(predictor, head, relation, entity) for head in ("e5", "e9")]
                added = TEXT if name == "eats" else name  # the id that a new relation has
                asked += [(grown, head, added, tail) for head, tail in (("new", "e30"), ("e3", "e8"))]
        compared = 0
        for source in (predictor, grown):
            own_triples = [(head, relation, tail) for who, head, relation, tail in asked if who is source]
            same_triples: list[tuple[str, str, str]] = []
            own_questions, same_questions = [], []
            for head, relation, tail in own_triples:
                first, last = ("new" if end is entity else end for end in (head, tail))
                name = "eats" if TEXT in (relation, getattr(relation, "text", None)) else relation
                same_triples.append((first, name, last))
                if source is grown or head is entity:
                    own_questions.append(Question(head, relation))
                    same_questions.append(Question(first, name))
                if source is grown or tail is entity:
                    own_questions.append(Question(relation=relation, tail=tail))
                    same_questions.append(Question(relation=name, tail=last))
            own, same = source.triple_probabilities(own_triples), imported.triple_probabilities(same_triples)
            assert [one is None for one in own] == [triple in known_of(imported) for triple in same_triples]
            assert own == pytest.approx(same, abs=1e-6)
            missing = source.missing_answers(own_questions)
            assert missing == pytest.approx(imported.missing_answers(same_questions), abs=1e-6)
            compared += len(missing) + sum(one is not None for one in own)
        assert compared > 10


def known_of(predictor: Predictor) -> set[tuple[str, str, str]]:
    graph = predictor.graph
    return {(graph.entities.ids[h], graph.relations.ids[r], graph.entities.ids[t]) for h, r, t in graph.all_triples().tolist()}  # fmt: skip


def test_a_request_is_as_likely_alone_as_among_others(tmp_path: Path) -> None:
    run = run_of(small_model(), tmp_path)
    probability_by_hand().save(run / "checkpoint")
    predictor = fnftg.load(run)
    entities = [entity for entity, _, _ in POSTED.values() if entity is not None]
    triples: list[Any] = [(entity, "_r_1", "e8") for entity in entities] + [
        ("e1", "_r_0", "e9"),
        ("e3", Relation(TEXT), "e4"),
    ]
    questions = [Question(triple[0], triple[1]) for triple in triples]
    alone = [predictor.triple_probabilities([triple])[0] for triple in triples]
    assert predictor.triple_probabilities(triples) == pytest.approx(alone, abs=1e-6)
    missing = [predictor.missing_answers([question])[0] for question in questions]
    assert predictor.missing_answers(questions) == pytest.approx(missing, abs=1e-6) and len(set(missing)) > 3
    assert predictor.missing_answers([Question("e1", tail="e2"), questions[0]]) == [None, pytest.approx(missing[0])]


# Both ends


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = made_run(tmp_path_factory.mktemp("probable"), random_model(score="cosine"))
    probability_by_hand().save(run / "checkpoint")
    return run


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return fnftg.load(run)


def test_a_triple_is_as_likely_whichever_end_was_asked_for(predictor: Predictor) -> None:
    alone = NewEntity("a green thing without edges", id="alone")
    linked = NewEntity("an old thing", [("r1", "e03")], id="linked")
    for head, relation, tail in (("e01", "r0", "e02"), (alone, "r1", "e07"), ("e04", "r2", alone), (linked, "r0", "e09"), ("e10", "r1", linked)):  # fmt: skip
        ids = [getattr(end, "id", end) for end in (head, tail)]
        [said] = predictor.triple_probabilities([(head, relation, tail)])
        of_tail = next((a for a in predictor.tails(head, relation, 20) if a.id == ids[1]), None)
        of_head = next((a for a in predictor.heads(relation, tail, 20) if a.id == ids[0]), None)
        between = next(a for a in predictor.relations(head, tail) if a.id == relation)
        explained = predictor.explain(head, relation, tail)
        assert predictor.explain(head, relation, tail, "head").probability == pytest.approx(said, abs=1e-6)
        for found in (of_tail, of_head, between, explained):
            assert found is None or found.probability == pytest.approx(said, abs=1e-6)
        grown = predictor.add(*(end for end in (head, tail) if isinstance(end, NewEntity)))
        questions = [Question(ids[0], relation), Question(relation=relation, tail=ids[1])]
        assert [query.asked for query in explained.queries] == ["tail", "head"]
        expected = pytest.approx(grown.missing_answers(questions), abs=1e-6)
        assert [query.probability for query in explained.queries] == expected


def test_all_answers_of_both_directions_agree(predictor: Predictor) -> None:
    ids = GRAPH.entities.ids.slice(0, 40)
    tails = predictor.many([Question(id_, "r1") for id_ in ids], 20)
    heads = predictor.many([Question(relation="r1", tail=id_) for id_ in ids], 20)
    by_tail = {(id_, one.id): one.probability for id_, answers in zip(ids, tails, strict=True) for one in answers}
    by_head = {(one.id, id_): one.probability for id_, answers in zip(ids, heads, strict=True) for one in answers}
    both = sorted(by_tail.keys() & by_head.keys())
    assert len(both) > 100
    assert [by_tail[pair] for pair in both] == pytest.approx([by_head[pair] for pair in both], abs=1e-6)


def test_known_triples_have_no_probability_and_lead_the_relations_if_they_are_asked_for(predictor: Predictor) -> None:
    answers = predictor.tails("e02", "r0", 20, known=True)
    assert any(one.known for one in answers) and any(not one.known for one in answers)
    assert all((one.probability is None) == one.known for one in answers)
    assert predictor.triple_probabilities([("e00", "r0", "e04")]) == [None]
    between = predictor.relations("e00", "e04", known=True)
    assert [one.known for one in between] == sorted((one.known for one in between), reverse=True) and between[0].known
    likely = [one.probability for one in predictor.relations("e01", "e02", 3)]
    assert likely == sorted(likely, reverse=True) and len(set(likely)) == 3


# The fit


def drawn(size: int, seed: int = 0) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    weights, features = np.array([1.5, -0.8, 0.0]), random.normal([0, 3, -1], [1, 2, 5], (size, 3))
    logits = features @ weights + 0.7
    return features, random.random(size) < 1 / (1 + np.exp(-logits)), logits


class Logistic(logistic.Logistic):
    """With one relation, whose offset is 0."""

    @classmethod
    def fitted(cls, features: Any, hits: Any, *weights: Any, **options: Any) -> Any:
        found = logistic.Logistic.fitted(features, hits, np.zeros(len(hits), np.int64), 1, *weights, **options)
        assert abs(found.offsets[0]) < 0.05, "the intercept is fitted already"
        return cls(found.weights, found.intercept, np.zeros(1), found.shift)

    def logits(self, features: Any, slots: Any = None) -> Any:
        return super().logits(features, np.zeros(len(features), np.int64))

    def __call__(self, features: Any, slots: Any = None) -> Any:
        return super().__call__(features, np.zeros(len(features), np.int64))


def test_known_weights_are_found_again() -> None:
    features, hits, logits = drawn(40_000)
    found = Logistic.fitted(features, hits)
    assert found.weights == pytest.approx([1.5, -0.8, 0.0], abs=0.05) and found.intercept == pytest.approx(0.7, abs=0.1)
    assert found.logits(features) == pytest.approx(np.clip(logits, -30, 30), abs=0.6)
    assert found(features).mean() == pytest.approx(hits.mean(), abs=1e-3)
    twice = Logistic.fitted(np.repeat(features[:2_000], 2, axis=0), np.repeat(hits[:2_000], 2))
    weighted = Logistic.fitted(features[:2_000], hits[:2_000], np.full(2_000, 2.0))
    assert twice.weights == pytest.approx(weighted.weights, abs=1e-6), "a weight of two stands for two examples"


def test_true_examples_without_a_label_do_not_lower_the_probability() -> None:
    features, true, _ = drawn(80_000)
    labelled = true & (np.random.default_rng(1).random(len(true)) < 0.5)
    found = Logistic.fitted(features, labelled, labelled=0.5)
    assert found.weights == pytest.approx([1.5, -0.8, 0.0], abs=0.1) and found.intercept == pytest.approx(0.7, abs=0.2)
    assert found(features).mean() == pytest.approx(true.mean(), abs=0.01)
    naive = Logistic.fitted(features, labelled)
    assert naive(features).mean() < 0.6 * true.mean(), "what has no label is taken for false"


def test_a_shift_corrects_for_fewer_missing_links() -> None:
    """Fitted where all true triples are missing; in use, nine of ten are known, which the odds of a few show."""
    random = np.random.default_rng(2)
    features = random.normal(0, 1, (60_000, 1))
    true = random.random(len(features)) < 1 / (1 + np.exp(-(2 * features[:, 0] - 5)))
    found = Logistic.fitted(features, true, shift=math.log(0.1))
    still_missing = ~true | (random.random(len(true)) < 0.1)
    hits = true[still_missing]
    assert found(features[still_missing]).sum() == pytest.approx(hits.sum(), rel=0.15)
    assert replace(found, shift=0.0)(features[still_missing]).sum() > 5 * hits.sum()


def test_nothing_to_learn_from_gives_a_finite_model() -> None:
    features = np.ones((50, 2))  # no feature varies
    for hits in (np.zeros(50, bool), np.ones(50, bool), np.arange(50) % 2 == 0):
        found = Logistic.fitted(features, hits, labelled=0.5)
        assert np.isfinite([*found.weights, found.intercept]).all()
        assert 0 <= found(features)[0] <= 1
    separable = Logistic.fitted(np.array([[-1.0], [1.0]] * 20), np.array([False, True] * 20))
    assert np.isfinite(separable.weights).all() and separable(np.array([[1.0]]))[0] > 0.9


def test_relations_differ_by_their_offsets_and_rare_ones_hardly() -> None:
    random = np.random.default_rng(5)
    slots = np.concatenate([np.repeat([0, 1], 20_000), [2] * 2])
    features = random.normal(0, 1, (len(slots), 1))
    logits = 2 * features[:, 0] - 1 + np.array([0.8, -0.8, 4.0])[slots]
    hits = random.random(len(slots)) < 1 / (1 + np.exp(-logits))
    found = logistic.Logistic.fitted(features, hits, slots, 4)
    assert found.offsets[0] - found.offsets[1] == pytest.approx(1.6, abs=0.25)
    assert abs(found.offsets[2]) < 1.5 and found.offsets[3] == 0
    one = np.zeros((1, 1))
    assert found.logits(one, np.array([7])) == found.logits(one, np.array([3])), "a new relation has no offset"


def test_a_network_learns_what_no_line_separates_and_is_calibrated_with_half_of_the_labels() -> None:
    random = np.random.default_rng(6)
    features = random.normal(0, 1, (40_000, 3))
    true = random.random(len(features)) < 1 / (1 + np.exp(-(4 * features[:, 0] * features[:, 1] - 2)))
    labelled = true & (random.random(len(true)) < 0.5)
    found = Network.fitted(features[:30_000], labelled[:30_000], labelled=0.5)
    rest = features[30_000:]
    said = 1 / (1 + np.exp(-found.logits(rest)))
    assert area_under_roc(said[true[30_000:]], said[~true[30_000:]]) > 0.85
    assert said.sum() == pytest.approx(true[30_000:].sum(), rel=0.1)
    high = said > 0.5
    assert said[high].sum() == pytest.approx(true[30_000:][high].sum(), rel=0.1)
    again = Network.fitted(features[:30_000], labelled[:30_000], labelled=0.5)
    assert again.plain() == found.plain(), "the same examples give the same network"
    assert Network.read(json.loads(json.dumps(found.plain())), 3).plain() == found.plain()
    for odd in ({"scale": math.nan}, {"mean": [0.0]}, {"layers": []}, {"spread": [0.0, 1.0, 1.0]}):
        with pytest.raises((ValueError, TypeError)):
            Network.read({**found.plain(), **odd}, 3)


def test_features_of_triples_are_those_worked_by_hand() -> None:
    one, other = np.array([0.5, -2.0]), np.array([1.0, 0.0])
    found = triple_features(one, other, np.array([7.0, np.nan]), np.array([-0.5, -np.inf]))
    assert found.tolist() == [[0.5, 1.0, 3.0, -0.5, 0.0, -0.5], [-2.0, 0.0, -3.0, -3.0, -3.0, -3.0]]
    assert screen_features(one, other, np.array([7.0, -0.5])).tolist() == [[0.5, 1, 3, 0], [-2, 0, -0.5, -0.5]]


def fitted_bytes(run: Path, graph: KnowledgeGraph, folder: Path, **options: Any) -> bytes:
    found = fit(lambda view: fnftg.load(run, view), graph, share=0.2, **options)
    folder.mkdir()
    shutil.copy(run / "checkpoint" / "model.safetensors", folder)
    found.save(folder)
    return (folder / FILE).read_bytes()


def test_the_fit_never_touches_test(run: Path, tmp_path: Path) -> None:
    train, val, test = (GRAPH.triples(name) for name in ("train", "val", "test"))
    random = np.random.default_rng(8)
    others = random.integers(0, [40, 3, 40], (25, 3)).astype(np.int32)
    variants = {
        "as it is": {"train": train, "val": val, "test": test},
        "shuffled": {"train": train, "val": val, "test": random.permutation(test)},
        "other triples": {"train": train, "val": val, "test": others},
        "removed": {"train": train, "val": val},
        "before the others": {"test": test, "train": train, "val": val},
        "of another name": {"train": train, "val": val, "test_new": others, "test": test},
    }
    found = {
        name: fitted_bytes(run, GRAPH.with_splits(splits, {}), tmp_path / name) for name, splits in variants.items()
    }
    assert len(set(found.values())) == 1, [name for name in found if found[name] != found["as it is"]]
    more = GRAPH.with_splits({"train": np.concatenate([train, test]), "val": val}, {})
    assert fitted_bytes(run, more, tmp_path / "in train") != found["as it is"]
    assert fitted_bytes(run, GRAPH, tmp_path / "other seed", seed=1) != found["as it is"]


def test_the_order_of_the_triples_does_not_matter(run: Path, tmp_path: Path) -> None:
    shuffled = {
        name: np.random.default_rng(3).permutation(np.concatenate([triples, triples[:2]]))
        for name, triples in GRAPH.splits.items()
    }
    one = fitted_bytes(run, GRAPH, tmp_path / "one")
    assert fitted_bytes(run, GRAPH.with_splits(shuffled, {}), tmp_path / "other") == one


def test_what_is_fitted_tells_how_and_comes_back_from_its_file(run: Path, tmp_path: Path) -> None:
    found = fit(lambda view: fnftg.load(run, view), GRAPH, share=0.2, missing=0.1, seed=4)
    about = found.about
    assert (about["share"], about["missing"], about["seed"]) == (0.2, 0.1, 4)
    rest = np.unique(np.concatenate([GRAPH.triples("train"), GRAPH.triples("val")]), axis=0)
    assert 0.1 * len(rest) < about["triples"] < 0.3 * len(rest) and about["entities"] == 8
    shutil.copy(run / "checkpoint" / "model.safetensors", tmp_path)
    found.save(tmp_path)
    again = load(tmp_path)
    assert again is not None and again.about == about
    for name in ("query", "triple", "screen"):
        for case in ("linked", "isolated"):
            one, other = (getattr(getattr(which, name), case).plain() for which in (found, again))
            assert one == other
    # 0.1 of the true links are missing already, so 0.2 + 0.1 / 0.9 were missing in the fit
    assert found.query.linked.shift == found.triple.linked.shift == pytest.approx(math.log((1 / 9) / (0.2 + 1 / 9)))
    assert found.query.isolated.shift == 0 == found.triple.isolated.shift
    assert fit(lambda view: fnftg.load(run, view), GRAPH, 0.2, 0.3, 4).query.linked.shift > found.query.linked.shift


@pytest.mark.parametrize("shares", [(0, 0.1), (1, 0.1), (0.1, 0), (0.1, 1), (math.nan, 0.1), (-0.1, 0.1)])
def test_shares_that_make_no_sense_are_refused(run: Path, shares: tuple[float, float]) -> None:
    with pytest.raises(FnftgError, match="between 0 and 1"):
        fit(lambda view: fnftg.load(run, view), GRAPH, *shares)


def test_too_few_triples_are_told(run: Path) -> None:
    few = GRAPH.with_splits({"train": GRAPH.triples("train")[:20], "test": GRAPH.triples("test")}, {})
    with pytest.raises(FnftgError, match="20 triples in train and val: too few"):
        fit(lambda view: fnftg.load(run, view), few)


def test_a_held_out_triple_is_as_likely_whether_it_is_in_test_or_nowhere(
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    """And so are all others: what was held out is nowhere counted."""
    random = np.random.default_rng(9)
    tests = {"a": GRAPH.triples("test"), "b": random.integers(0, [40, 3, 40], (5, 3)).astype(np.int32)}
    written = []
    for name, test in tests.items():
        GRAPH.with_splits({**GRAPH.splits, "test": test}, {}).save(tmp_path / name)
        options = ("--graph", tmp_path / name, "--hold-out", "test", "--min-probability", 0, "-k", 40)
        result = here("complete", run, "-o", tmp_path / f"{name}.tsv", *options)
        assert result.returncode == 0, result.stderr
        written.append((tmp_path / f"{name}.tsv").read_bytes())
    assert written[0] == written[1] and written[0].count(b"\n") > 1_000
    head, relation, tail = GRAPH.triples("test")[0].tolist()
    ids = GRAPH.entities.ids[head], GRAPH.relations.ids[relation], GRAPH.entities.ids[tail]
    assert fnftg.load(run).triple_probabilities([ids]) == [None], "known in the whole graph"
    assert "\t".join(ids).encode() in written[0]


def test_a_graph_too_large_to_compare_all_texts_has_probabilities_from_those_that_an_index_finds(
    run: Path, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        asked = np.arange(40, dtype=np.int32), np.zeros(40, np.int32)
        expected = features_of(fnftg.load(run).context, *asked)
        patch.setattr("fnftg.text.nearest_texts.EXACT", 39)
        predictor = fnftg.load(run)
        found = features_of(predictor.context, *asked)
        assert predictor.context.nearest_texts(3).index is not None
        assert np.allclose(found.nearest_share, expected.nearest_share, atol=1e-4), "but for the rounding of cosines"
        assert found.nearest_share.any()
        [probability] = predictor.triple_probabilities([(NewEntity("a green thing"), "r1", "e02")])
        assert probability is not None and 0 < probability < 1
        assert len(complete(predictor, Wanted(), tmp_path / "parts").triples) > 100


# Files


def broken_files(value: dict[str, Any]) -> dict[str, Any]:
    triple = value["triple"]
    return {
        "half": json.dumps(value)[:200],
        "no JSON": "once upon a time",
        "a list": "[]",
        "empty": "",
        "no models": json.dumps({key: value[key] for key in value if key != "triple"}),
        "one case": json.dumps({**value, "triple": {"linked": triple["linked"]}}),
        "too few weights": json.dumps({**value, "triple": {**triple, "linked": {**triple["linked"], "mean": [1.0]}}}),
        "words for weights": json.dumps(
            {**value, "triple": {**triple, "linked": {**triple["linked"], "layers": "ab"}}}
        ),
        "not a number": json.dumps(
            {**value, "query": {**value["query"], "linked": {**value["query"]["linked"], "shift": math.nan}}}
        ),
        "too large a number": json.dumps(
            {**value, "triple": {**triple, "linked": {**triple["linked"], "shift": 10**400}}}
        ),
        "other features": json.dumps({**value, "features": {**value["features"], "query": [*FEATURES[:-1], "magic"]}}),
        "other features of triples": json.dumps(
            {**value, "features": {**value["features"], "triple": [*TRIPLE_FEATURES[:-1], "magic"]}}
        ),
        "another format": json.dumps({**value, "format": "fnftg-calibration"}),
        "a changed weight": None,
        "another version": json.dumps({**value, "version": 99}),
        "foreign weights": json.dumps({**value, "weights": "0" * 64}),
    }


NAMES = ["half", "no JSON", "a list", "empty", "no models", "one case", "too few weights", "words for weights", "not a number", "too large a number", "other features", "other features of triples", "another format", "a changed weight", "another version", "foreign weights"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_damaged_older_and_foreign_files_get_one_sentence(
    name: str,
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint" / FILE
    whole = path.read_text()
    value = json.loads(whole)
    value.pop("checksum")
    broken = broken_files(value)
    assert list(broken) == NAMES
    path.write_text(json.dumps(value))
    assert load(path.parent) is not None, "without a checksum, as edited by hand"
    path.write_text(broken[name] if broken[name] is not None else whole.replace("0.4", "0.5", 1))
    reason = {"another version": "was written by another version of fnftg", "foreign weights": "was fitted to other weights"}.get(name, "is damaged")  # fmt: skip
    with pytest.raises(FnftgError, match=f"{reason}: run fnftg calibrate again.$"):
        load(path.parent)
    for command in (("predict", tmp_path / "run", "--head", "e01", "--relation", "r1"), ("complete", tmp_path / "run", "-o", tmp_path / "out.tsv")):  # fmt: skip
        result = here(*command)
        assert result.returncode == 1 and result.stderr.count("\n") == 1 and reason in result.stderr, result.stderr
        assert not result.stdout and not (tmp_path / "out.tsv").exists()


def test_calibrate_replaces_a_file_that_nobody_can_read(
    trained: Path,  # noqa: F811
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint" / FILE
    for content in ("half a", json.dumps({"format": "fnftg-probability", "version": 99})):
        path.write_text(content)
        assert here("calibrate", tmp_path / "run", "--share", 0.5).returncode == 0
        assert load(path.parent) is not None


@pytest.mark.parametrize(
    "command",
    [
        ("complete", "RUN", "-o", "OUT"),
        ("predict", "RUN", "--head", "e01", "--relation", "r1", "--tail", "e02"),
        ("predict", "RUN", "--head", "e01", "--relation", "r1", "--tail", "e02", "--json", "--reasons"),
        ("evaluate", "RUN", "--task", "discovery"),
        ("evaluate", "RUN", "--task", "classification"),
    ],
    ids=lambda command: " ".join(word for word in command if word[0] != "e" or word == "evaluate"),
)
def test_a_checkpoint_without_probabilities_gets_one_sentence(
    command: tuple[str, ...],
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / FILE).unlink()
    places = {"RUN": tmp_path / "run", "OUT": tmp_path / "out.tsv"}
    result = here(*(places.get(word, word) for word in command))
    assert result.returncode == 1 and not result.stdout
    expected = f"{tmp_path / 'run'} has no probabilities of triples: run fnftg calibrate {tmp_path / 'run'} first."
    assert result.stderr.count("\n") == 1 and expected in result.stderr, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing is left behind"


# Measures


def test_measures_of_discovery_are_those_worked_by_hand() -> None:
    hits = np.array([True, False, True, True, False])
    assert precision_at(hits) == {"100": 0.03, "1000": 0.003, "10000": 0.0003}
    many = np.zeros(12_000, bool)
    many[[0, 99, 100, 999, 1_000, 9_999, 10_000, 11_000]] = True
    assert precision_at(many) == {"100": 0.02, "1000": 0.004, "10000": 0.0006}
    assert average_precision(hits, 4) == pytest.approx((1 / 1 + 2 / 3 + 3 / 4) / 4), "one of four was not found"
    assert average_precision(hits[:0], 4) == 0 == average_precision(~hits[:1], 0)
    probabilities = np.array([0.9, 0.8, 0.6, 0.5, 0.1])
    row = at_least(probabilities, hits, 0.5, 6)
    assert row == {"threshold": 0.5, "triples": 4, "expected": pytest.approx(2.8), "found": 3, "precision": 0.75, "recall": 0.5}  # fmt: skip
    assert at_least(probabilities, hits, 0.95, 6) == {"threshold": 0.95, "triples": 0, "expected": 0, "found": 0, "precision": 0, "recall": 0}  # fmt: skip


def test_found_triples_are_compared_with_the_distinct_held_out_ones(family: KnowledgeGraph) -> None:
    visible = family.with_splits({name: family.triples(name) for name in ("train", "val")}, {})
    held_out = np.concatenate([family.triples("test"), family.triples("test")[:1]])
    eve, dora, knows = family.entities.find("eve"), family.entities.find("dora"), family.relations.find("knows")
    rows = [(eve, knows, dora, 1.0, 0.95), (eve, knows, eve, 0.5, 0.35)]
    found = discovered(np.array(rows, FOUND), held_out, visible)
    assert (found["triples"], found["held_out"], found["hits"], found["recall"]) == (2, 2, 1, 0.5)
    assert found["area_under_precision_recall"] == 0.5 and found["precision_at"]["100"] == 0.01
    assert [(row["triples"], row["found"]) for row in found["expected"]] == [(2, 1)] * 3 + [(1, 1)] * 6
    baseline = frequent(visible)
    names = [tuple(one)[:3] for one in baseline.tolist()]
    known = {tuple(triple) for triple in visible.all_triples().tolist()}
    assert not set(names) & known and len(set(names)) == len(names) and all(head != tail for head, _, tail in names)
    assert (np.diff(baseline["probability"]) <= 0).all()
    parent = family.relations.find("parent_of")  # ann, bob and dora are parents of bob, cleo and ann
    ann, bob, cleo = (family.entities.find(name) for name in ("ann", "bob", "cleo"))
    expected = {(ann, parent, cleo), (bob, parent, ann), (dora, parent, bob), (dora, parent, cleo)}
    assert {triple for triple in names if triple[1] == parent} == expected


def test_measures_of_classification_are_those_worked_by_hand() -> None:
    true, false = np.array([0.9, 0.6, 0.4]), np.array([0.7, 0.3, 0.2, 0.1])
    assert best_threshold(true, false) == 0.4, "all but 0.7 are right"
    assert best_threshold(np.array([0.5]), np.array([0.9])) in (0.5, 0.9), "one of two is right, whatever is chosen"
    assert best_threshold(np.array([0.8, 0.7]), np.array([0.1])) == 0.7
    # Pairs: 0.9 exceeds four, 0.6 exceeds three, 0.4 exceeds three, of twelve
    assert area_under_roc(true, false) == pytest.approx(10 / 12)
    assert area_under_roc(np.array([0.5]), np.array([0.5, 0.5])) == 0.5, "ties count half"
    assert area_under_roc(np.array([0.9]), np.array([0.1])) == 1
    table = np.array([[0.7, np.nan], [0.3, 0.2], [0.1, np.nan]])
    found = classified((true, table), (np.array([0.5, 0.1]), np.array([[0.3, 0.45], [np.nan, 0.0]])))
    assert found["threshold"] == 0.4 and found["triples"] == 2
    assert found["accuracy"] == pytest.approx(3 / 5), "0.5, 0.3 and 0.0 are right; 0.1 and 0.45 are wrong"
    assert found["auc"] == pytest.approx((3 + 1) / 6)
    best, drawn_tails = found["against"]["best wrong answer"], found["against"]["tail of the relation"]
    assert (best["triples"], best["accuracy"], best["auc"]) == (1, pytest.approx(2 / 3), 0.5)
    assert (drawn_tails["triples"], drawn_tails["accuracy"], drawn_tails["auc"]) == (2, 0.5, pytest.approx(3 / 4))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.lists(st.integers(0, 9), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_no_threshold_is_better_than_the_best_one(true: list[int], false: list[int]) -> None:
    def right(threshold: float) -> int:
        return sum(value >= threshold for value in true) + sum(value < threshold for value in false)

    found = best_threshold(np.array(true, float), np.array(false, float))
    assert right(found) == max(right(value) for value in {*true, *false})
    pairs = [(1.0 if one > other else 0.5 if one == other else 0.0) for one in true for other in false]
    assert area_under_roc(np.array(true, float), np.array(false, float)) == pytest.approx(sum(pairs) / len(pairs))


# Commands


@pytest.fixture(scope="module")
def calibrated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    folder = tmp_path_factory.mktemp("fitted") / "run"
    shutil.copytree(trained, folder)
    assert main(["calibrate", str(folder), "--share", "0.4", "--seed", "1"]) == 0
    return folder


def test_discovery_is_measured_from_the_command_line(calibrated: Path, here: Here) -> None:  # noqa: F811
    result = here("evaluate", calibrated, "--task", "discovery", "--json")
    found = json.loads(result.stdout)
    assert result.returncode == 0 and found["task"] == "discovery" and found["split"] == "test", result.stderr
    assert 0 < found["queries"] <= found["possible_queries"] == 2 * 14 * 3
    held_out = len({tuple(triple) for triple in fnftg.load(calibrated).graph.triples("test").tolist()})
    assert found["held_out"] == held_out and found["hits"] <= min(found["triples"], held_out)
    assert found["recall"] == pytest.approx(found["hits"] / held_out)
    counts = [row["triples"] for row in found["expected"]]
    assert counts == sorted(counts, reverse=True) and counts[0] <= found["triples"]
    assert set(found["frequency_baseline"]) == set(found["precision_at"]) == {"100", "1000", "10000"}
    some = json.loads(
        here("evaluate", calibrated, "--task", "discovery", "--without-relations", "r0,r1", "--json").stdout
    )
    assert some["held_out"] < held_out and 0 < some["queries"] < found["queries"]
    table = here("evaluate", calibrated, "--task", "discovery", "--split", "val").stdout
    assert "P(triple) at least" in table and "held-out triples of val" in table


def test_classification_is_measured_from_the_command_line(calibrated: Path, here: Here) -> None:  # noqa: F811
    result = here("evaluate", calibrated, "--task", "classification", "--json")
    found = json.loads(result.stdout)
    assert result.returncode == 0 and found["task"] == "classification", result.stderr
    assert 0 <= found["accuracy"] <= 1 and 0 <= found["auc"] <= 1 and 0 < found["threshold"] < 1
    assert set(found["against"]) == {"best wrong answer", "tail of the relation"}
    assert all(0 < kind["triples"] <= found["triples"] for kind in found["against"].values())
    again = json.loads(here("evaluate", calibrated, "--task", "classification", "--json").stdout)
    assert again == found, "the same every time"
    few = json.loads(here("evaluate", calibrated, "--task", "classification", "--sample", 3, "--json").stdout)
    assert few["triples"] == 3
    assert "true or false?" in here("evaluate", calibrated, "--task", "classification").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("discovery", "--split", "dev"), "it has train, val, test"),
        (("discovery", "--without-relations", "likes"), "'likes'"),
        (("classification", "--split", "val"), "choose two splits"),
        (("classification", "--sample", "0"), "give at least 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_wishes_of_an_evaluation_get_one_sentence(
    calibrated: Path,
    here: Here,  # noqa: F811
    arguments: tuple[str, ...],
    words: str,
) -> None:
    result = here("evaluate", calibrated, "--task", *arguments)
    assert result.returncode == 1 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_an_unknown_task_is_named_with_the_tasks_that_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "run", "--task", "guess"])
    said = capfd.readouterr().err
    assert ended.value.code == 2 and "fnftg evaluate: error: argument --task: invalid choice: 'guess'" in said
    assert "discovery" in said and "classification" in said


@pytest.mark.parametrize("option", ["--missing", "--share"])
@pytest.mark.parametrize("value", ["0", "1", "-0.5", "nan"])
def test_bad_shares_of_calibrate_get_one_sentence(
    calibrated: Path,
    here: Here,  # noqa: F811
    option: str,
    value: str,
) -> None:
    before = (calibrated / "checkpoint" / FILE).read_bytes()
    result = here("calibrate", calibrated, option, value)
    assert result.returncode == 1 and option in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert (calibrated / "checkpoint" / FILE).read_bytes() == before


def test_calibrate_says_what_it_fitted_and_does_so_again(calibrated: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    shutil.copytree(calibrated, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint" / FILE
    before = path.read_bytes()
    result = here("calibrate", tmp_path / "run", "--share", 0.4, "--seed", 1, "--json")
    about = json.loads(result.stdout)["probability"]
    assert about == json.loads(before)["about"] and path.read_bytes() == before
    higher = here("calibrate", tmp_path / "run", "--share", 0.4, "--seed", 1, "--missing", 0.4)
    assert f"P(triple) is fitted to {about['triples']:,} triples" in higher.stderr and path.read_bytes() != before
    shares = [json.loads(text)["query"]["linked"]["shift"] for text in (before, path.read_bytes())]
    assert shares[0] < shares[1] < 0, "with more missing links, all are likelier"


def test_too_small_a_graph_is_calibrated_without_probabilities_of_triples(
    calibrated: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr(probability_fitting, "LEAST", 1_000)
    shutil.copytree(calibrated, tmp_path / "run")
    result = here("calibrate", tmp_path / "run", "--json")
    assert result.returncode == 0 and json.loads(result.stdout)["probability"] is None
    assert "P(triple) was not fitted." in result.stderr and "too few" in result.stderr
    assert not (tmp_path / "run" / "checkpoint" / FILE).exists(), "an older fit would be misleading"


def test_predict_tells_how_likely_a_triple_and_a_missing_answer_are(
    run: Path,
    predictor: Predictor,
    here: Here,  # noqa: F811
) -> None:
    triple = ("--head", "e01", "--relation", "r1", "--tail", "e02")
    [expected] = predictor.triple_probabilities([("e01", "r1", "e02")])
    found = json.loads(here("predict", run, *triple, "--json").stdout)
    assert found == {"triple": ["e01", "r1", "e02"], "probability": pytest.approx(expected), "known": False}
    assert f"e01 — r1 — e02: true with probability {expected:.3f}." in here("predict", run, *triple).stdout
    known = here("predict", run, "--head", "e00", "--relation", "r0", "--tail", "e04").stdout
    assert "the graph has this triple" in known
    text = ("--text", "a green thing", "--relation", "r1", "--tail", "e02")
    [of_new] = predictor.triple_probabilities([(NewEntity("a green thing"), "r1", "e02")])
    assert f"probability {of_new:.3f}" in here("predict", run, *text).stdout
    shown = here("predict", run, "--head", "e01", "--relation", "r1")
    [missing] = predictor.missing_answers([Question("e01", "r1")])
    assert f"This query has a missing answer with probability {missing:.2f}." in shown.stdout
    assert "given an answer" not in shown.stdout and "probability" in shown.stdout
    explained = here("explain", run, "e01", "r1", "e02").stdout
    assert f"true with probability {expected:.3f}" in explained
    assert explained.count(" has a missing answer with probability ") == 2


def test_given_an_answer_is_shown_on_request(calibrated: Path, here: Here) -> None:  # noqa: F811
    asked = ("predict", calibrated, "--head", "e1", "--relation", "r1")
    assert "given an answer" in here(*asked, "--conditional").stdout and "given an answer" not in here(*asked).stdout


# Random splits


def test_a_random_split_holds_out_the_shares_of_the_distinct_triples(tmp_path: Path, here: Here) -> None:  # noqa: F811
    store = GRAPH.save(tmp_path / "graph").path
    whole = {tuple(triple) for triple in GRAPH.all_triples().tolist()}
    for seed in (0, 0, 7):
        place = tmp_path / f"random-{seed}-{len(list(tmp_path.iterdir()))}"
        result = here("split", "random", store, "-o", place, "--val", 0.1, "--test", 0.2, "--seed", seed)
        assert result.returncode == 0, result.stderr
    one, again, other = (KnowledgeGraph.open(path) for path in sorted(tmp_path.glob("random-*"), key=lambda path: int(path.name.split("-")[2])))  # fmt: skip
    sizes = {name: len(triples) for name, triples in one.splits.items()}
    assert sizes == {"train": len(whole) - round(0.1 * len(whole)) - round(0.2 * len(whole)), "val": round(0.1 * len(whole)), "test": round(0.2 * len(whole))}  # fmt: skip
    parts = [set(map(tuple, one.triples(name).tolist())) for name in sizes]
    assert set.union(*parts) == whole and sum(map(len, parts)) == len(whole)
    for name in sizes:
        assert np.array_equal(one.triples(name), again.triples(name))
        assert not np.array_equal(one.triples(name), other.triples(name))
    assert "val" not in GRAPH.split_random(0, 0.1).splits and "test" not in GRAPH.split_random(0.1, 0).splits


@pytest.mark.parametrize("shares", [(0, 0), (0.5, 0.5), (-0.1, 0.2), (0.7, 0.7), ("nan", 0.1)], ids=str)
def test_bad_shares_of_a_split_get_one_sentence(shares: Any, tmp_path: Path, here: Here) -> None:  # noqa: F811
    store = GRAPH.save(tmp_path / "graph").path
    result = here("split", "random", store, "-o", tmp_path / "out", "--val", shares[0], "--test", shares[1])
    assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
    assert "must not be negative and must add up to less than 1" in result.stderr and not (tmp_path / "out").exists()


def test_too_few_triples_for_a_split_are_told(family: KnowledgeGraph) -> None:
    with pytest.raises(FnftgError, match=r"7 triples, too few for these shares: raise --val and --test\.$"):
        family.split_random(0.01, 0.3)


# The review page

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script> ]]>",
    "quote \" and ' and \\ and `${1}`",
    "\u2028 and \u2029 and \x7f and \x01 and \ufeff",
    "@DATA@",
    "&lt;b&gt; <b>",
]


def page_data(page: str) -> Any:
    """What a browser would read: a script ends with the first </script, whatever it holds."""
    start = page.index('<script type="application/json" id="data">')
    body = page[page.index(">", start) + 1 :]
    content = body[: body.lower().index("</script")]
    assert "<" not in content and "@DATA@" not in page[:start]
    return json.loads(content)


def test_no_name_or_text_can_end_the_script_of_the_review_page(tmp_path: Path) -> None:
    ids = [f"{word} {number}" for number, word in enumerate(HOSTILE)]
    triples = [(ids[number], HOSTILE[0], ids[number - 1]) for number in range(len(ids))]
    graph = KnowledgeGraph.from_triples(
        {"train": triples}, dict(zip(ids, HOSTILE, strict=True)), {HOSTILE[0]: HOSTILE[0]}
    )
    run = made_run(tmp_path, random_model(), graph)
    probability_by_hand().save(run / "checkpoint")
    predictor = fnftg.load(run)
    rows = [(head, 0, (head + 2) % len(ids), 0.5, 0.25) for head in range(len(ids))]
    page = review_page(predictor, np.array(rows, FOUND), f"a run {HOSTILE[0]}")
    found = page_data(page)
    assert page.lower().count("</script") == 2 and page.count("<script") == 2
    assert found["title"] == f"Missing links of a run {HOSTILE[0]}"
    names = list(graph.entities.ids.slice(0, len(ids)))
    assert [one["triple"] for one in found["triples"]] == [[names[h], HOSTILE[0], names[t]] for h, _, t, _, _ in rows]
    assert [one["texts"] for one in found["triples"]] == [[graph.entities.texts[h], graph.entities.texts[t]] for h, _, t, _, _ in rows]  # fmt: skip
    assert all(len(one["reasons"]) >= 2 and one["probability"] == 0.25 for one in found["triples"])
    assert "default-src 'none'" in page, "and nothing is loaded"


@pytest.mark.parametrize("id_", ["http://example.org/ä", "https://a.b/c d", "urn:x:1", "plain", "http://a/\x01b", "http://a/<b>", "urn:fnftg:id:xab", "urn:fnftg:probability", 'http://a/"', "http://", "urn:x", "http://a b", "http://a/%zz", "urn:x:{y}"])  # fmt: skip
def test_a_review_exports_the_iris_that_export_and_complete_write(id_: str) -> None:
    assert iri(id_) == node_of(id_).value


@pytest.mark.parametrize(
    "id_", ["http://example.org/ä", "http://a b", "urn:fnftg:probability", "http://a/%zz", "plain"]
)
def test_without_an_rdf_library_a_review_exports_the_same_iris(id_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = iri(id_)

    def missing(id_: str) -> None:
        raise FnftgError("RDF requires pyoxigraph.")

    monkeypatch.setattr("fnftg.predict.review_page.node_of", missing)
    assert iri(id_) == expected


def test_a_review_of_nothing_is_a_page_too(predictor: Predictor) -> None:
    assert page_data(review_page(predictor, np.empty(0, FOUND), "run")) == {
        "title": "Missing links of run",
        "triples": [],
    }


def test_weights_are_named_in_the_file(run: Path) -> None:
    value = json.loads((run / "checkpoint" / FILE).read_text())
    assert value["weights"] == sha256(run / "checkpoint" / "model.safetensors")
