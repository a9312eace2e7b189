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
from fnftg.errors import FnftgError
from fnftg.evidence.base import Candidates, QueryBatch
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.text_knn import TextKNNEvidence
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


def test_too_many_entities_are_refused_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTITIES", 3)
    with pytest.raises(FnftgError, match="limited to 3 entities, but the graph has 4"):
        TextKNN.of(features(count=4), 2)


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
