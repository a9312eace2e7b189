"""Nearest texts and what they answer, against plain loops; nothing of the query entity may show in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import GRAPH, random_model

from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.evidence.base import Candidates, QueryBatch
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.text_knn import TextKNNEvidence
from fnftg.kernels.vector_index import VectorIndex
from fnftg.text import nearest_texts as module
from fnftg.text.nearest_texts import TextKNN

ENTITIES, RELATIONS = 9, 2
Triple = tuple[int, int, int]
TRIPLES = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), max_size=30
)


def candidates(
    nearest: TextKNN, triples: list[Triple], centres: np.ndarray, labels: np.ndarray, limit: int
) -> Candidates:
    """What the source finds in a graph of these triples."""
    known = KnownAnswers.of(np.array(triples, np.int32).reshape(-1, 3), ENTITIES, RELATIONS)
    context: Any = SimpleNamespace(known=known, nearest_texts=lambda k: nearest, entities=ENTITIES)
    source = TextKNNEvidence(EvidenceConfig(["text_knn"], nearest.k, num_candidates=limit))
    return source.candidates(None, context, QueryBatch(centres, labels, np.zeros(len(labels), bool)))


def features(seed: int = 0, count: int = ENTITIES) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


@pytest.mark.parametrize("block", [1, 40, 1 << 25])
def test_nearest_texts_are_the_nearest_by_cosine_whatever_the_size_of_a_block(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    x = features()
    x[4] = 3 * x[2]  # as similar as can be, and of two equals the lower row comes first
    x[7] = x[2]
    rows, similarities = TextKNN.of(x, 4).precomputed_for_all()(np.arange(len(x), dtype=np.int32))
    unit = x.astype(np.float64) / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (unit @ unit.T).round(4)
    for row in range(len(x)):
        order = sorted((other for other in range(len(x)) if other != row), key=lambda o: (-cosines[row, o], o))[:4]
        assert rows[row].tolist() == order
        assert similarities[row] == pytest.approx(cosines[row, order], abs=1e-4)
    assert rows[2, :2].tolist() == [4, 7]


def test_nearest_texts_are_computed_once_and_read_from_the_cache_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone, cases = np.arange(ENTITIES, dtype=np.int32), [(0, 4), (1, 4), (0, 3)]
    expected = [TextKNN.of(features(seed), k).precomputed_for_all()(everyone) for seed, k in cases]
    for seed, k in cases:
        TextKNN.of(features(seed), k).precomputed_for_all(tmp_path)
    monkeypatch.setattr(TextKNN, "_compare", None)  # whoever compares again fails
    for (seed, k), (rows, cosines) in zip(cases, expected, strict=True):
        found = TextKNN.of(features(seed), k).precomputed_for_all(tmp_path)(everyone)
        assert np.array_equal(found[0], rows) and np.array_equal(found[1], cosines)
    monkeypatch.undo()
    for file in tmp_path.glob("nearest-texts-*/rows.npy"):
        file.write_bytes(b"x")
    for (seed, k), (rows, cosines) in zip(cases, expected, strict=True):
        assert TextKNN.of(features(seed), k).loaded(tmp_path).precomputed is None, "damaged"
        found = TextKNN.of(features(seed), k).precomputed_for_all(tmp_path)(everyone)
        assert np.array_equal(found[0], rows) and np.array_equal(found[1], cosines), "made again"


def test_nearest_texts_of_an_extended_graph_are_those_of_the_whole_one() -> None:
    x, asked = features(), np.array([8, 0, 6, 3], np.int32)
    whole, grown = TextKNN.of(x, 5), TextKNN.of(x[:5], 5).extended(x[5:7]).extended(x[7:])
    for one, other in zip(whole(asked), grown(asked), strict=True):
        assert np.array_equal(one, other)


def test_fewer_entities_than_asked_for_leave_places_empty() -> None:
    rows, _ = TextKNN.of(features(count=3), 5)(np.arange(3, dtype=np.int32))
    assert (rows[:, 2:] == -1).all() and (np.sort(rows[:, :2]) == [[1, 2], [0, 2], [0, 1]]).all()
    rows, _ = TextKNN.of(features(count=1), 2)(np.zeros(1, np.int32))
    assert (rows == -1).all()


def stored(x: np.ndarray) -> Any:
    """What stands for the features of a graph: rows are taken from it, and it has a key."""
    return SimpleNamespace(take=lambda rows: x[rows], key=str(x.tobytes()))


def clusters(count: int, width: int = 64) -> np.ndarray:
    random = np.random.default_rng(0)
    centres = random.normal(size=(60, width))
    return (centres[random.integers(60, size=count)] + 0.5 * random.normal(size=(count, width))).astype(np.float32)


def test_an_index_that_returns_all_texts_finds_what_comparing_all_finds() -> None:
    x = features(count=40)
    for k in (4, 39, 50):
        asked = np.array([3, 39, 0, 3], np.int32)
        exact, found = TextKNN.of(x, k), TextKNN.of_many(stored(x), 40, k)
        for one, other in zip(exact(asked), found(asked), strict=True):
            assert np.array_equal(one, other)
        more = features(1, 3)
        asked = np.array([41, 3, 42], np.int32)
        for one, other in zip(exact.extended(more)(asked), found.extended(more)(asked), strict=True):
            assert np.array_equal(one, other)


def test_an_index_finds_most_of_the_nearest_texts_with_their_exact_similarities(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fnftg.kernels.vector_index.COMPRESSED", 0)
    x, everyone = clusters(6_000), np.arange(0, 6_000, 7, dtype=np.int32)
    exact, found = TextKNN.of(x, 30), TextKNN.of_many(stored(x), len(x), 30)
    rows, cosines = found(everyone)
    assert found.index is not None and 0.95 <= found.index.recall <= 1
    assert "of the 100 nearest" in capsys.readouterr().err
    shared = [len(set(one) & set(other)) for one, other in zip(rows.tolist(), exact(everyone)[0].tolist(), strict=True)]
    assert np.mean(shared) >= 0.9 * 30
    assert (rows != everyone[:, None]).all() and (rows >= 0).all() and (np.diff(cosines) <= 0).all()
    pairs = np.repeat(everyone, 30), rows.ravel()
    assert np.allclose(cosines.ravel(), exact.similarities_of(*pairs), atol=1.1e-4)
    alone = [found(everyone[i : i + 1])[0][0] for i in range(5)]
    assert np.array_equal(alone, rows[:5]), "whatever else is asked"
    best = exact.nearest_to(x[5], 20)
    assert len(set(best) & set(found.nearest_to(x[5], 20))) >= 17 and found.nearest_to(x[5], 20)[0] == best[0] == 5
    assert np.allclose(found.similarities_to(x[5], best), exact.similarities_to(x[5], best), atol=1.1e-4)


def test_an_index_is_kept_in_the_cache_and_built_again_if_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, asked = clusters(3_000), np.arange(9, dtype=np.int32)
    rows, _ = TextKNN.of_many(stored(x), len(x), 5, tmp_path)(asked)
    monkeypatch.setattr(VectorIndex, "built", None)  # whoever builds again fails
    assert np.array_equal(TextKNN.of_many(stored(x), len(x), 5, tmp_path)(asked)[0], rows)
    monkeypatch.undo()
    for file in ("index.faiss", "about.json"):
        [path] = tmp_path.glob(f"text-index-*/{file}")
        path.write_bytes(path.read_bytes()[:99])
        assert np.array_equal(TextKNN.of_many(stored(x), len(x), 5, tmp_path)(asked)[0], rows)


def test_similar_entities_with_very_many_answers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest, centre, label = TextKNN.of(features(), ENTITIES - 1), np.array([0], np.int32), np.array([0], np.int32)
    triples = [(1, 0, other) for other in range(2, 6)] + [(2, 0, 7)]
    assert sorted(candidates(nearest, triples, centre, label, 9).entities) == [2, 3, 4, 5, 7]
    monkeypatch.setattr("fnftg.evidence.text_knn.MAX_ANSWERS", 3)
    assert candidates(nearest, triples, centre, label, 9).entities.tolist() == [7]


@settings(max_examples=60, deadline=None)
@given(triples=TRIPLES, seed=st.integers(0, 99), limit=st.integers(1, 5))
def test_features_are_sums_of_the_similarities_of_those_who_have_the_answer(
    triples: list[Triple], seed: int, limit: int
) -> None:
    nearest = TextKNN.of(features(seed), 4)
    centres = np.repeat(np.arange(ENTITIES, dtype=np.int32), 2 * RELATIONS)
    labels = np.tile(np.arange(2 * RELATIONS, dtype=np.int32), ENTITIES)
    found = candidates(nearest, triples, centres, labels, limit)
    edges = {(h, r, t) for h, r, t in triples} | {(t, RELATIONS + r, h) for h, r, t in triples}
    for query, (centre, label) in enumerate(zip(centres, labels, strict=True)):
        mass: dict[int, list[float]] = {}
        for other, similarity in zip(*(part[0] for part in nearest(np.array([centre]))), strict=True):
            for answer in (t for h, r, t in edges if (h, r) == (other, label) and t != centre):
                near, nearer = mass.get(answer, [0, 0])
                weight = max(float(similarity), 0)
                mass[answer] = [near + weight**4, nearer + weight**16]
        part = slice(found.offsets[query], found.offsets[query + 1])
        best = sorted(mass, key=lambda answer: (-np.prod(mass[answer]), answer))[:limit]
        assert sorted(found.entities[part].tolist()) == sorted(best) or len(mass) > limit
        assert len(found.entities[part]) == len(best)
        chosen = [mass[answer] for answer in found.entities[part].tolist()]
        whole = np.maximum(np.sum(chosen, axis=0), 1e-12) if chosen else None
        for (near, nearer), row in zip(chosen, found.features[part].tolist(), strict=True):
            shares = np.log(np.array([near, nearer]) / whole / 0.01 + 1)
            expected = [np.log(1 + 5 * near), np.log(1 + 50 * nearer) / 2, *shares, float(near > 0)]
            assert row == pytest.approx(expected, rel=1e-3, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(triples=TRIPLES, data=st.data())
def test_edges_of_the_query_entity_change_nothing(triples: list[Triple], data: st.DataObject) -> None:
    nearest = TextKNN.of(features(), ENTITIES - 1)
    centre = data.draw(st.integers(0, ENTITIES - 1))
    own = data.draw(st.lists(st.tuples(st.just(centre), st.integers(0, 1), st.integers(0, ENTITIES - 1)), max_size=4))
    own += [(t, r, h) for h, r, t in data.draw(st.just(own))]
    others = [(h, r, t) for h, r, t in triples if centre not in (h, t)]
    labels = np.arange(2 * RELATIONS, dtype=np.int32)
    centres = np.full(len(labels), centre, np.int32)
    without, with_them = (candidates(nearest, edges, centres, labels, 5) for edges in (others, others + own))
    for name in ("offsets", "entities", "features"):
        assert np.array_equal(getattr(without, name), getattr(with_them, name)), name


def test_more_texts_are_looked_at_in_evaluation_than_in_training() -> None:
    evidence = EvidenceConfig(["text_knn"], num_nearest=2, evaluation_num_nearest=9)
    model: Any = random_model(score="cosine", evidence=evidence)
    context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    few, many = (model.evidence.table(context, heads, relations, training=training) for training in (True, False))
    assert many.features[:, 0].sum() > few.features[:, 0].sum() > 0
    rows, _ = context.nearest_texts(9)(heads)
    assert np.array_equal(context.nearest_texts(2)(heads)[0], rows[:, :2])
