"""Scores with evidence for listed candidates, against one candidate after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.evidence_scores import EvidenceScores, best_with, counts_with
from fnftg.ranking.rank_counts import filtered_counts
from fnftg.ranking.search import top_answers

MEMORY = 1 << 20
SCORES = [(True, False), (False, True), (False, False)]  # L1 distance, inner product, and one without a kernel


class Plain(LinkPredictor):
    def __init__(self, by_distance: bool, by_product: bool = False):
        super().__init__()
        self.by_distance, self.by_product = by_distance, by_product

    def forward(self, *_: Any) -> Any: ...

    def similarity(self, query_embeddings, candidates):  # type: ignore[no-untyped-def]
        return -torch.cdist(query_embeddings, candidates, p=1) if self.by_distance else query_embeddings @ candidates.T


def ragged(lists: list[list[int]]) -> tuple[Any, Any]:
    return np.cumsum([0, *map(len, lists)]), np.array([row for rows in lists for row in rows], np.int64)


@st.composite
def cases(draw: st.DrawFn) -> Any:
    """Whole numbers, so that there are ties; known rows and listed rows overlap."""
    queries, size = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    whole = st.integers(-2, 2)
    query_embeddings, true, table = (
        np.array(draw(st.lists(st.tuples(whole, whole), min_size=n, max_size=n)), np.float32).reshape(n, 2)
        for n in (queries, queries, size)
    )
    rows = st.lists(st.integers(0, size - 1), unique=True, max_size=size)
    known = [sorted({*draw(rows), draw(st.integers(0, size - 1))}) for _ in range(queries)]
    targets = np.array([draw(st.sampled_from(row)) for row in known])
    listed = [draw(rows) for _ in range(queries)]
    values = [[draw(st.integers(-3, 3)) for _ in row] for row in listed]
    offsets, flat = ragged(listed)
    evidence = EvidenceScores(offsets, flat, np.array([v for row in values for v in row], np.float32))
    return (
        Plain(*draw(st.sampled_from(SCORES))),
        query_embeddings,
        true,
        targets,
        table,
        known,
        listed,
        values,
        evidence,
    )


def plain_score(model: Plain, point: Any, vector: Any) -> float:
    return float(-np.abs(point - vector).sum() if model.by_distance else point @ vector)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_counts_with_evidence_are_those_of_one_candidate_after_the_other(case: Any) -> None:
    model, query_embeddings, true, targets, table, known, listed, values, evidence = case
    found = counts_with(evidence, model, query_embeddings, true, targets, table, *ragged(known), MEMORY)
    for query, point in enumerate(query_embeddings):
        added = dict(zip(listed[query], values[query], strict=True))
        own = plain_score(model, point, true[query]) + added.get(int(targets[query]), 0)
        others = [
            plain_score(model, point, vector) + added.get(row, 0)
            for row, vector in enumerate(table)
            if row not in known[query]
        ]
        assert found.scores[query] == own
        assert found.better[query] == sum(other > own for other in others)
        assert found.equal[query] == sum(other == own for other in others)


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 6))
def test_best_answers_with_evidence_are_those_of_a_full_sort(case: Any, k: int) -> None:
    model, query_embeddings, _, _, table, known, listed, values, evidence = case
    search = partial(top_answers, model, query_embeddings, table, k=k, memory=MEMORY)
    scores, rows = best_with(evidence, model, query_embeddings, table, *ragged(known), search)
    for query, point in enumerate(query_embeddings):
        added = dict(zip(listed[query], values[query], strict=True))
        expected = sorted(
            (-plain_score(model, point, vector) - added.get(row, 0), row)
            for row, vector in enumerate(table)
            if row not in known[query]
        )[:k]
        assert rows[query].tolist() == [row for _, row in expected] + [-1] * (k - len(expected))
        assert scores[query, : len(expected)].tolist() == [-score for score, _ in expected]


@pytest.mark.parametrize("score", SCORES)
def test_nothing_listed_changes_nothing(score: tuple[bool, bool]) -> None:
    random = np.random.default_rng(0)
    query_embeddings, true, table = (random.normal(size=(n, 3)).astype(np.float32) for n in (5, 5, 40))
    known, model = ragged([[i] for i in range(5)]), Plain(*score)
    nothing = EvidenceScores(np.zeros(6, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    plain = filtered_counts(model, query_embeddings, true, table, *known, MEMORY)
    found = counts_with(nothing, model, query_embeddings, true, np.arange(5), table, *known, MEMORY)
    for name in ("better", "equal", "scores"):
        assert np.array_equal(getattr(plain, name), getattr(found, name))
