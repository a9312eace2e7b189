"""Probabilities mean what they say where the truth is known, and are kept with the weights that they belong to."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import GRAPH, made_run, random_model
from test_ranking import Here, here, random_case, texts_of, trained  # noqa: F401 (fixtures)

import fnftg
from fnftg.errors import FnftgError
from fnftg.models.pretrained import save_pretrained
from fnftg.predict.commands.calibrate import part_to_calibrate_on
from fnftg.predict.predictor import Predictor
from fnftg.predict.questions import Answer, NewEntity, Question, Relation
from fnftg.ranking.calibration import (
    LEAST,
    METHODS,
    Calibration,
    Isotonic,
    Method,
    Platt,
    fit,
    load,
    margins,
    pool_adjacent_violators,
    rivals,
)
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import PROTOCOLS
from fnftg.ranking.queries import Filter
from fnftg.ranking.reliability import measured, predictions, reliability, softmax, with_answer

# Synthetic answers whose probability is known: tails of relation a by one curve, its heads by another.


def true_probability(over: Any, labels: Any) -> Any:
    shift = np.where(labels == 0, 1.0, -3.0)[:, None]
    return 1 / (1 + np.exp(-(2 * over + shift)))


def drawn(seed: int, queries: int = 6_000) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    over = np.sort(generator.normal(0, 1.5, (queries, 10)), axis=1)[:, ::-1]
    labels = generator.integers(0, 2, queries) * 3  # of three relations: tails of the first, heads of the first
    return over, generator.random(over.shape) < true_probability(over, labels), labels


@pytest.mark.parametrize("method", METHODS)
def test_known_distribution_is_found_again(method: Method) -> None:
    calibration = fit(*drawn(0), ["a", "b", "c"], method)
    over, hits, labels = drawn(1)
    said = calibration.probabilities(over, labels)
    assert np.abs(said - true_probability(over, labels)).mean() < (0.02 if method == "isotonic" else 0.005)
    error, bins = reliability(said.ravel(), hits.ravel())
    assert error < 0.015 and len(bins) == 15
    uncalibrated, _ = reliability(softmax(over).ravel(), hits.ravel())
    assert error < uncalibrated / 3
    both_as_one = fit(*drawn(0), ["a", "b", "c"], method, least=10**9)
    assert np.abs(both_as_one.probabilities(over, labels) - true_probability(over, labels)).mean() > 0.2, (
        "tails and heads differ"
    )


def test_first_answers_are_as_likely_as_they_are_said_to_be() -> None:
    """Every query has a level of its own: a score says little, only what it has over the others says how likely it is."""

    def asked(seed: int) -> Any:
        generator = np.random.default_rng(seed)
        scores = np.sort(generator.gumbel(0, 1.5, (8_000, 12)), axis=1)[:, ::-1]
        share = np.exp(2 * scores) / np.exp(2 * scores).sum(axis=1, keepdims=True)
        answer = (share.cumsum(axis=1) > generator.random((8_000, 1))).argmax(axis=1)
        scores = (scores + generator.normal(0, 5, (8_000, 1))).astype(np.float32)
        others = scores[np.arange(12) != answer[:, None]].reshape(-1, 11)
        return with_answer(others, scores[np.arange(8_000), answer], np.zeros(8_000, np.int32))

    fitted, fresh = asked(0), asked(1)
    assert fresh.scores.shape == fresh.margins.shape == fresh.hits.shape == (8_000, 10)
    found = measured(fresh, fit(fitted.margins, fitted.hits, fitted.labels, ["r"]))
    assert found["calibrated"]["of_first_answers"] < 0.02 and found["calibrated"]["expected_calibration_error"] < 0.005
    said = fit(fitted.scores, fitted.hits, fitted.labels, ["r"]).probabilities(fresh.scores, fresh.labels)
    assert reliability(said[:, 0], fresh.hits[:, 0])[0] > 0.3, "by the score alone"


def test_margins_are_those_worked_by_hand() -> None:
    nothing, none, inf = -np.inf, np.nan, np.inf
    cases = [  # the two best, a score, whether it is the first of the two, its margin
        ((5, 3), 5, True, 2),
        ((5, 3), 3, False, -2),
        ((5, 5), 5, True, 0),
        ((5, 5), 5, False, 0),
        ((5, 3), 9, False, 4),  # a known link, which is above all that are not known
        ((5, nothing), 5, True, inf),
        ((5, none), 5, True, inf),
        ((nothing, nothing), 5, False, inf),
        ((5, 3), nothing, False, none),
        ((5, 3), none, False, none),
        ((nothing, nothing), nothing, True, none),
        ((inf, inf), inf, True, 0),
        ((inf, 3), inf, True, inf),
        ((inf, 3), 3, False, nothing),
    ]
    for best, score, first, expected in cases:
        rival = rivals(np.array([best], np.float32), np.array([[first]]))
        found = margins(np.array([[score]], np.float32), rival)
        assert np.array_equal(found, [[expected]], equal_nan=True), (best, score, first)


@pytest.mark.parametrize("method", METHODS)
def test_who_has_no_rival_is_as_likely_as_the_widest_margin_that_was_seen(method: Method) -> None:
    over, hits, labels = drawn(3, 300)
    over[0, 0] = np.inf  # says nothing about margins
    calibration = fit(over, hits, labels, ["a", "b", "c"], method)
    widest = over[np.isfinite(over) & (labels == 0)[:, None]].max()
    some = np.array([[widest, widest + 1, np.inf, -np.inf, np.nan]])
    said = calibration.probabilities(some, np.array([0]))[0]
    assert said[0] == said[1] == said[2] and 0.5 < said[0] < 1 and said[3:].tolist() == [0, 0]
    with pytest.raises(FnftgError, match="nothing to calibrate"):
        fit(np.array([[np.inf, np.nan]]), np.array([[True, False]]), np.array([0]), ["a"], method)


def test_expected_calibration_error_is_the_one_worked_by_hand() -> None:
    probabilities = np.array([0.01, 0.03, 0.95, 0.97, 1.0, 0.5])
    hits = np.array([False, True, True, True, False, True])
    gaps = abs(0.02 - 1 / 2) * 2 + abs((0.95 + 0.97 + 1.0) / 3 - 2 / 3) * 3 + abs(0.5 - 1)
    error, bins = reliability(probabilities, hits)
    assert error == pytest.approx(gaps / 6)
    assert [one["predictions"] for one in bins] == [2, 1, 3]
    perfect, _ = reliability(np.array([0.0, 1.0]), np.array([False, True]))
    assert perfect == 0


def best_monotone(totals: list[int], weights: list[int]) -> Any:
    """Every way to cut the scores into stretches; of those whose means never fall the one with the least squares."""
    best, best_loss = None, math.inf
    n = len(totals)
    for cuts in itertools.product((False, True), repeat=n - 1):
        stretch = np.cumsum([0, *cuts])
        means = np.bincount(stretch, totals) / np.bincount(stretch, weights)
        if (np.diff(means) >= 0).all():
            values = means[stretch]
            loss = (np.array(weights) * (np.array(totals) / weights - values) ** 2).sum()
            if loss < best_loss - 1e-12:
                best, best_loss = values, loss
    return best


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=8))
@settings(max_examples=80, deadline=None)
def test_isotonic_fit_is_that_of_brute_force(pairs: list[tuple[int, int]]) -> None:
    totals, weights = [min(t, w) for t, w in pairs], [w for _, w in pairs]
    starts, values = pool_adjacent_violators(np.array(totals, float), np.array(weights, float))
    assert np.allclose(np.repeat(values, np.diff([*starts, len(totals)])), best_monotone(totals, weights))
    assert (np.diff(values) > 0).all()


@given(
    st.lists(st.tuples(st.floats(-9, 9, width=32), st.booleans()), min_size=1, max_size=60), st.sampled_from(METHODS)
)
@settings(max_examples=60, deadline=None)
def test_curves_rise_and_nothing_is_certain(pairs: list[tuple[float, bool]], method: Method) -> None:
    scores, hits = (np.array(column)[:, None] for column in zip(*pairs, strict=True))
    calibration = fit(scores, hits, np.zeros(len(pairs), int), ["r"], method)
    grid = np.linspace(-12, 12, 200)[:, None]
    said = calibration.probabilities(grid, np.zeros(200, int)).ravel()
    assert (np.diff(said) >= 0).all() and (said > 0).all() and (said < 1).all()


def test_relations_asked_too_rarely_have_the_curve_of_all_and_no_score_is_no_chance() -> None:
    scores, hits, labels = drawn(2, 2 * LEAST)
    labels[:] = 0
    labels[: LEAST - 1] = 4  # heads of b
    calibration = fit(scores, hits, labels, ["a", "b", "c"])
    assert list(calibration.tails) == ["a"] and not calibration.heads
    some = np.array([[2.0, 0.5, -1.0, -np.inf, np.nan]])
    of_all, of_b = (calibration.probabilities(some, np.array([label])) for label in (2, 4))
    assert np.array_equal(of_all, of_b) and not np.array_equal(of_all, calibration.probabilities(some, np.array([0])))
    assert of_all[0, 3:].tolist() == [0, 0]
    moved = calibration.bound(["new", "a"])  # another graph: a is its second relation
    assert np.array_equal(moved.probabilities(some, np.array([1])), calibration.probabilities(some, np.array([0])))
    assert np.array_equal(moved.probabilities(some, np.array([3])), of_all), "heads of a have no curve of their own"


@pytest.mark.parametrize("by_distance", [True, False])
def test_the_answer_stands_where_ranking_without_the_entity_itself_puts_it(
    by_distance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fnftg.ranking.evaluation.Filter",
        SimpleNamespace(of=lambda known, candidates, _: Filter.of(known, candidates, True)),
    )
    graph, model = random_case(by_distance)
    for rules in PROTOCOLS.values():
        ranking = rank_split(model, graph, texts_of(graph), "test", rules)
        found = predictions(model, graph, texts_of(graph), "test", rules, k=7)
        last = (1 + ranking.better + ranking.equal).ravel()  # behind its equals
        place = np.where(found.hits.any(axis=1), found.hits.argmax(axis=1) + 1, 99)
        other = np.tile(ranking.triples[:, 0] != ranking.triples[:, 2], 2)  # a loop is refused, but calibrated
        assert np.array_equal(place[other], np.where(last <= 7, last, 99)[other])
        hits = found.hits & other[:, None]
        assert np.array_equal(found.scores[hits], ranking.scores.ravel()[(last <= 7) & other])
        assert (np.diff(found.scores, axis=1) <= 0).all()
        assert (found.margins[:, 0] == found.scores[:, 0] - found.scores[:, 1]).all()
        assert (found.margins[:, 1:] == found.scores[:, 1:] - found.scores[:, :1]).all()
        single = predictions(model, graph, texts_of(graph), "test", rules, k=1)
        for name in ("scores", "margins", "hits"):
            assert np.array_equal(getattr(single, name), getattr(found, name)[:, :1]), "fewer of the same"


# The commands


@pytest.fixture(scope="module")
def calibrated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    run = tmp_path_factory.mktemp("calibrated") / "run"
    shutil.copytree(trained, run)
    return run


def test_calibrate_is_seen_by_evaluate_and_drawn_by_report(calibrated: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    before = json.loads(here("evaluate", calibrated, "--json").stdout)
    assert "calibration" not in before
    result = here("calibrate", calibrated)
    assert result.returncode == 0 and "uncalibrated" in result.stdout, result.stderr
    found = json.loads(here("calibrate", calibrated, "--json", "--method", "platt", "--k", 5).stdout)
    assert found["method"] == "platt" and found["k"] == 5 and found["protocol"] == "cumulative"
    assert found["calibrated"]["expected_calibration_error"] < found["softmax"]["expected_calibration_error"]
    here("report", calibrated, "-o", tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 6 and (tmp_path / "page" / "reliability.png").is_file()
    after = json.loads(here("evaluate", calibrated, "--json").stdout)
    assert after["calibration"]["predictions"] == after["queries"] * 5
    assert {**after, "seconds": 0, "calibration": 0} == {**before, "seconds": 0, "calibration": 0}
    assert "calibration of the probabilities" in here("evaluate", calibrated).stdout
    kept = json.loads((calibrated / "evaluations" / "test-cumulative.json").read_text())
    assert kept["calibration"] == after["calibration"]


@pytest.mark.parametrize(
    ("metrics", "part", "said"),
    [
        ({}, None, False),
        ({"evidence": {"before": 0.1, "after": 0.2, "steps": 10}}, None, True),
        ({"evidence": {"before": 0.1, "after": 0.2, "steps": 10, "fitted": 6, "held_out": 3}}, "held-out", False),
    ],
    ids=["not fitted", "of an older version", "fitted"],
)
def test_curves_are_fitted_on_what_the_evidence_weights_were_not_fitted_on(
    metrics: dict[str, Any], part: str | None, said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_pretrained(random_model(), tmp_path / "model", metrics)
    assert part_to_calibrate_on(tmp_path / "model") == part
    assert ("train the model again" in capsys.readouterr().err) == said


def test_curves_of_other_weights_and_damaged_ones_are_refused(calibrated: Path, here: Here) -> None:  # noqa: F811
    folder = calibrated / "checkpoint"
    here("calibrate", calibrated)
    whole = (folder / "calibration.json").read_text()
    value = json.loads(whole)
    (folder / "calibration.json").write_text(whole.replace("0.", "1.", 1))
    with pytest.raises(FnftgError, match="damaged: run fnftg calibrate again"):
        load(folder)
    (folder / "calibration.json").write_text(whole)
    assert value.pop("checksum")
    assert isinstance(load(folder).everything, Isotonic)  # type: ignore[union-attr]
    broken: list[Any] = [
        whole[: len(whole) // 2],
        json.dumps([]),
        json.dumps({**value, "of": "score"}),
        json.dumps({**value, "format": "another"}),
        json.dumps({**value, "everything": {"knots": [1, 0], "values": [0.1, 0.2]}}),
        json.dumps({**value, "everything": {"knots": [0, 1], "values": [0.3, 0.2]}}),
        json.dumps({**value, "everything": {"knots": [0, 1], "values": [0.3, 1.2]}}),
        json.dumps({**value, "method": "platt", "everything": {"slope": -1.0, "intercept": 0.0, "widest": 1.0}}),
        json.dumps({**value, "method": "platt", "everything": {"slope": 1.0, "intercept": 0.0}}),
        json.dumps({**value, "everything": {"knots": [0, 10**400], "values": [0.1, 0.2]}}),
        json.dumps({**value, "method": "guess"}),
    ]
    for text in broken:
        (folder / "calibration.json").write_text(text)
        with pytest.raises(FnftgError, match="damaged: run fnftg calibrate again"):
            load(folder)
    for version in (1, 99):  # curves of the score, as they once were, and what may come
        older = {key: value[key] for key in value if key != "of"}
        (folder / "calibration.json").write_text(json.dumps({**older, "version": version}))
        for command in (["evaluate", calibrated], ["predict", calibrated, "--head", "0", "--relation", "0"]):
            result = here(*command)
            assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
            assert "by another version of fnftg: run fnftg calibrate again." in result.stderr
    assert here("calibrate", calibrated).returncode == 0 and load(folder) is not None
    (folder / "calibration.json").write_text(json.dumps({**value, "weights": "0" * 64}))
    with pytest.raises(FnftgError, match="fitted to weights with SHA-256"):
        load(folder)
    result = here("evaluate", calibrated)
    assert result.returncode == 1 and "fnftg calibrate again" in result.stderr
    (folder / "calibration.json").unlink()
    assert load(folder) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--k", "0"], "from 1 to"), (["--k", "10000000"], "from 1 to"), (["--split", "dev"], "it has train, val, test")],
)
def test_bad_wishes_get_one_sentence(calibrated: Path, here: Here, arguments: list[str], words: str) -> None:  # noqa: F811
    result = here("calibrate", calibrated, *arguments)
    assert result.returncode == 1 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr


# Answers


STEEP = 0.37  # of the curves below, by which a probability tells its margin: other for each relation, tails and heads


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    found = fnftg.load(made_run(tmp_path_factory.mktemp("probable"), random_model()))
    ids = found.relation_ids
    sides = [{id_: Platt(STEEP, shift + int(id_[1]), 1e3) for id_ in ids} for shift in (-3, -2.5)]
    return replace(found, calibration=Calibration("platt", 10, {}, Platt(STEEP, -1.0, 1e3), *sides, ids))


def logistic(margin: float, intercept: float) -> float:
    return 1 / (1 + math.exp(-STEEP * min(margin, 1e3) - intercept))


def expected(everything: list[Answer], intercept: float) -> dict[str, float]:
    """By all candidates, each compared with all others that are no known links."""
    return {
        one.id: logistic(
            one.score - max((a.score for a in everything if not a.known and a.id != one.id), default=-math.inf),
            intercept,
        )
        for one in everything
    }


def probabilities(answers: list[Answer]) -> dict[str, float]:
    """Of each answer, given that the query has one."""
    return {answer.id: answer.conditional for answer in answers}  # type: ignore[misc]


NEW = NewEntity("red thing of its own", [("r1", "e03"), ("r1", "e07")], [("r2", "e05")], id="new")
QUESTIONS = [
    (Question("e01", "r0"), -3),
    (Question("e02", "r2"), -1),
    (Question(relation="r1", tail="e07"), -1.5),
    (Question(NEW, "r1"), -2),
    (Question(relation="r2", tail=NEW), -0.5),
    (Question("e03", Relation("is new to")), -1),  # a relation without a curve
    (Question("e00", "r0"), -3),  # nearly all are known
]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_probabilities_are_those_of_every_candidate_against_all_others_whatever_k_is(
    predictor: Predictor, known: bool, indexed: bool
) -> None:
    if indexed:
        pytest.importorskip("faiss")
    asked = predictor.indexed() if indexed else predictor
    questions = [question for question, _ in QUESTIONS]
    every = predictor.many(questions, 100, known=True)
    assert sum(a.known for answers in every for a in answers) > 40 and every[3][-1].rank == 40
    longest = asked.many(questions, 100, known)
    for answers, everything, (question, intercept) in zip(longest, every, QUESTIONS, strict=True):
        assert len(answers) == sum(known or not a.known for a in everything), question
        whole = expected(everything, intercept)
        assert probabilities(answers) == pytest.approx({a.id: whole[a.id] for a in answers}, rel=1e-4), question
    for k in (1, 2, 3, 10):
        for answers, more in zip(asked.many(questions, k, known), longest, strict=True):
            assert len(answers) == min(k, len(more))
            said = [answer.conditional for answer in answers]
            assert said == pytest.approx([answer.conditional for answer in more[:k]], rel=1e-4)


def test_an_answer_is_as_likely_whatever_was_asked(predictor: Predictor) -> None:
    known = {tuple(triple) for triple in GRAPH.all_triples().tolist()}
    drawn_rows = np.random.default_rng(5).integers(0, [40, 3, 40], (9, 3)).tolist()
    new = [triple for triple in drawn_rows if tuple(triple) not in known and triple[0] != triple[2]]
    assert len(new) > 4
    for rows in new:
        head, relation, tail = GRAPH.entities.ids[rows[0]], GRAPH.relations.ids[rows[1]], GRAPH.entities.ids[rows[2]]
        of_tail = probabilities(predictor.tails(head, relation, 40))[tail]
        of_head = probabilities(predictor.heads(relation, tail, 40))[head]
        for k in (1, 3):
            for answer in predictor.relations(head, tail, k):
                other = probabilities(predictor.tails(head, answer.id, 40))[tail]
                assert answer.conditional == pytest.approx(other, rel=1e-4)
        for asked, said in (("tail", of_tail), ("head", of_head)):
            reasons = predictor.explain(head, relation, tail, asked, hide=False)  # type: ignore[arg-type]
            assert reasons.conditional == pytest.approx(said, rel=1e-4)


def test_curves_alone_say_nothing_about_a_missing_answer(predictor: Predictor) -> None:
    assert predictor.calibration is not None and predictor.probability is None
    answers = predictor.tails("e01", "r0", known=True)
    assert all(answer.probability is None and answer.conditional is not None for answer in answers)
    found = predictor.explain("e01", "r0", answers[0].id)
    assert found.probability is None and found.conditional is not None and found.queries == []
    assert predictor.missing_answers([Question("e01", "r0")]) == [None]
    with pytest.raises(FnftgError, match=r"has no probabilities of triples: run fnftg calibrate \S+ first\.$"):
        predictor.triple_probabilities([("e01", "r0", "e02")])


def test_new_and_known_triples_too_are_as_likely_whatever_was_asked(predictor: Predictor) -> None:
    grown = predictor.add(NEW)
    for head, tail in ((NEW, "e03"), (NEW, "e08"), ("e05", NEW), ("e00", "e04")):
        ids = ["new" if end is NEW else end for end in (head, tail)]
        graph = grown if NEW in (head, tail) else predictor
        answers = predictor.relations(head, tail, known=True)
        assert len(answers) == 3 and any(answer.known for answer in answers) == (tail != "e08")
        for answer in answers:
            found = next(one for one in graph.tails(ids[0], answer.id, 41, known=True) if one.id == ids[1])
            assert found.known == answer.known and answer.conditional == pytest.approx(found.conditional, rel=1e-4)
            reasons = predictor.explain(head, answer.id, tail, hide=False)
            assert reasons.conditional == pytest.approx(found.conditional, rel=1e-4)


def test_equals_are_equally_likely_and_what_has_no_rival_or_no_score_is_no_riddle(predictor: Predictor) -> None:
    first, second, third = predictor.tails("e01", "r0", 3)
    rows = [GRAPH.entities.find(answer.id) for answer in (first, second, third)]
    twins = np.array(predictor.table)
    twins[rows[1]] = twins[rows[0]]
    found = replace(predictor, table=twins).tails("e01", "r0", 3)
    assert found[0].conditional == found[1].conditional == pytest.approx(logistic(0, -3))
    assert found[2].conditional == pytest.approx(logistic(third.score - first.score, -3), rel=1e-4)
    for left, k in itertools.product((0, 1, 2), (1, 2, 10)):  # as many candidates have a score
        few = np.full_like(twins, np.nan)
        few[rows[:left]] = predictor.table[rows[:left]]
        asked = replace(predictor, table=few)
        said = [answer.conditional for answer in asked.tails("e01", "r0", k)]
        gap = first.score - second.score
        everyone = [[], [math.inf], [gap, -gap]][left]
        assert said == pytest.approx([logistic(margin, -3) for margin in everyone[:k]], rel=1e-4)
        if left:
            related = next(one for one in asked.relations("e01", first.id) if one.id == "r0")
            reasons = asked.explain("e01", "r0", first.id, hide=False)
            assert said[0] == pytest.approx(related.conditional, rel=1e-4)  # batches differ in their last bits
            assert said[0] == pytest.approx(reasons.conditional, rel=1e-4)
