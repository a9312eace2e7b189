"""Probabilities mean what they say where the truth is known, and are kept with the weights that they belong to."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ranking import Here, here, random_case, texts_of, trained  # noqa: F401 (fixtures)

from fnftg.errors import FnftgError
from fnftg.ranking.calibration import LEAST, METHODS, Isotonic, Method, fit, load, pool_adjacent_violators
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import PROTOCOLS
from fnftg.ranking.reliability import predictions, reliability, softmax

# Synthetic answers whose probability is known: tails of relation a by one curve, its heads by another.


def true_probability(scores: Any, labels: Any) -> Any:
    shift = np.where(labels == 0, 1.0, -3.0)[:, None]
    return 1 / (1 + np.exp(-(2 * scores + shift)))


def drawn(seed: int, queries: int = 6_000) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    scores = -np.sort(generator.normal(0, 1.5, (queries, 10)).astype(np.float32), axis=1)[:, ::-1]
    labels = generator.integers(0, 2, queries) * 3  # of three relations: tails of the first, heads of the first
    return scores, generator.random(scores.shape) < true_probability(scores, labels), labels


@pytest.mark.parametrize("method", METHODS)
def test_known_distribution_is_found_again(method: Method) -> None:
    calibration = fit(*drawn(0), ["a", "b", "c"], method)
    scores, hits, labels = drawn(1)
    said = calibration.probabilities(scores, labels)
    assert np.abs(said - true_probability(scores, labels)).mean() < (0.02 if method == "isotonic" else 0.005)
    error, bins = reliability(said.ravel(), hits.ravel())
    assert error < 0.015 and len(bins) == 15
    uncalibrated, _ = reliability(softmax(scores).ravel(), hits.ravel())
    assert error < uncalibrated / 3
    both_as_one = fit(*drawn(0), ["a", "b", "c"], method, least=10**9)
    assert np.abs(both_as_one.probabilities(scores, labels) - true_probability(scores, labels)).mean() > 0.2, (
        "tails and heads differ"
    )


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
def test_the_answer_stands_where_ranking_puts_it(by_distance: bool) -> None:
    graph, model = random_case(by_distance)
    for rules in PROTOCOLS.values():
        ranking = rank_split(model, graph, texts_of(graph), "test", rules)
        found = predictions(model, graph, texts_of(graph), "test", rules, k=7)
        last = (1 + ranking.better + ranking.equal).ravel()  # behind its equals
        place = np.where(found.hits.any(axis=1), found.hits.argmax(axis=1) + 1, 99)
        assert np.array_equal(place, np.where(last <= 7, last, 99))
        assert np.array_equal(found.scores[found.hits], ranking.scores.ravel()[last <= 7])
        assert (np.diff(found.scores, axis=1) <= 0).all()


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
    assert found["method"] == "platt" and found["k"] == 5 and found["protocol"] == "statik"
    assert found["calibrated"]["expected_calibration_error"] < found["softmax"]["expected_calibration_error"]
    here("report", calibrated, "-o", tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 6 and (tmp_path / "page" / "reliability.png").is_file()
    after = json.loads(here("evaluate", calibrated, "--json").stdout)
    assert after["calibration"]["predictions"] == after["queries"] * 5
    assert {**after, "seconds": 0, "calibration": 0} == {**before, "seconds": 0, "calibration": 0}
    assert "do probabilities mean" in here("evaluate", calibrated).stdout
    kept = json.loads((calibrated / "evaluations" / "test-statik.json").read_text())
    assert kept["calibration"] == after["calibration"]


def test_curves_of_other_weights_and_damaged_ones_are_refused(calibrated: Path, here: Here) -> None:  # noqa: F811
    folder = calibrated / "checkpoint"
    here("calibrate", calibrated)
    whole = (folder / "calibration.json").read_text()
    value = json.loads(whole)
    assert isinstance(load(folder).everything, Isotonic)  # type: ignore[union-attr]
    broken: list[Any] = [
        whole[: len(whole) // 2],
        json.dumps([]),
        json.dumps({**value, "version": 99}),
        json.dumps({**value, "everything": {"knots": [1, 0], "values": [0.1, 0.2]}}),
        json.dumps({**value, "everything": {"knots": [0, 1], "values": [0.3, 0.2]}}),
        json.dumps({**value, "everything": {"knots": [0, 1], "values": [0.3, 1.2]}}),
        json.dumps({**value, "method": "platt", "everything": {"slope": -1.0, "intercept": 0.0}}),
        json.dumps({**value, "method": "guess"}),
    ]
    for text in broken:
        (folder / "calibration.json").write_text(text)
        with pytest.raises(FnftgError, match="damaged: run fnftg calibrate again"):
            load(folder)
    (folder / "calibration.json").write_text(json.dumps({**value, "weights": "0" * 64}))
    with pytest.raises(FnftgError, match="other weights"):
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
