"""Ranks and best candidates by inner product are those of all scores, however close these are and however computed."""

from __future__ import annotations

import math
import tempfile
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.arrays import AnyArray, Float32Array
from fnftg.kernels import products
from fnftg.kernels.products import count_greater, count_known_greater, product_pairs, top_products

ODD = [0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, 1e-30, math.inf, -math.inf, math.nan]


def all_scores(queries: AnyArray, candidates: AnyArray) -> Float32Array:
    """The scores by definition: sums in double precision, of every eighth dimension first, then rounded."""
    with np.errstate(all="ignore"):
        terms = queries[:, None].astype(np.float64) * candidates.astype(np.float64)  # (q, n, d), exact
        lanes = np.zeros((*terms.shape[:2], 8))
        for k in range(0, terms.shape[2], 8):
            lanes[..., : terms.shape[2] - k] += terms[..., k : k + 8]
        fours = lanes[..., :4] + lanes[..., 4:]
        return np.asarray((fours[..., 0] + fours[..., 2]) + (fours[..., 1] + fours[..., 3]), np.float32)


def vectors(kind: str, rows: int, width: int, generator: np.random.Generator) -> Float32Array:
    if kind == "equal":
        return np.full((rows, width), np.float32(0.1))
    if kind == "near":  # scores that single precision cannot tell apart
        steps = generator.integers(-1, 2, (rows, width)) * 2.0**-24
        return (0.1 * (1 + steps)).astype(np.float32)
    if kind == "odd":
        found = generator.normal(size=(rows, width))
        places = generator.random((rows, width)) < 0.1
        found[places] = generator.choice(ODD, int(places.sum()))
        return found.astype(np.float32)
    if kind == "whole":  # many ties
        return generator.integers(-1, 2, (rows, width)).astype(np.float32)
    scale = 10.0 ** generator.integers(-30, 18, (rows, 1)) if kind == "scaled" else 1
    return (scale * generator.normal(size=(rows, width))).astype(np.float32)


kinds = st.sampled_from(["equal", "near", "odd", "whole", "scaled", "normal"])


@st.composite
def cases(draw: st.DrawFn) -> Any:
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    q, n, d = draw(st.integers(1, 9)), draw(st.integers(0, 60)), draw(st.sampled_from([1, 2, 5, 8, 24]))
    queries, candidates = vectors(draw(kinds), q, d, generator), vectors(draw(kinds), n, d, generator)
    if n and draw(st.booleans()):  # equal vectors in several rows
        candidates = candidates[generator.integers(0, n, n)]
    known = [np.unique(generator.integers(0, n, generator.integers(0, n + 1))) if n else [] for _ in range(q)]
    offsets = np.cumsum([0, *map(len, known)])
    rows = np.concatenate([np.zeros(0, np.int64), *map(generator.permutation, known)]).astype(np.int64)
    blocks = draw(st.sampled_from([(1, 1), (3, 8), (2, 17), (512, 1024)]))
    return queries, candidates, offsets, rows, blocks, draw(st.sampled_from([1, 1 << 10, 1 << 28])), generator


@given(cases(), st.integers(1, 7), st.sampled_from([1, 2]), st.booleans())
@settings(max_examples=400, deadline=None)
def test_counts_and_best_candidates_are_those_of_all_scores(case: Any, k: int, threads: int, on_disk: bool) -> None:
    queries, candidates, offsets, known, blocks, memory, generator = case
    scores = all_scores(queries, candidates)
    if scores.size:  # the true answer has the score of a candidate, one next to it, or any other
        true = scores[np.arange(len(queries)), generator.integers(0, len(candidates), len(queries))]
        steps = generator.choice([0, math.inf, -math.inf], len(queries)).astype(np.float32)
        true = np.where(steps == 0, true, np.nextafter(true, steps))
    else:
        true = generator.normal(size=len(queries)).astype(np.float32)
    if on_disk and len(candidates):
        file = tempfile.TemporaryFile()  # noqa: SIM115 (mapped below)
        candidates.tofile(file)
        file.flush()
        candidates = np.memmap(file, np.float32, "r", shape=candidates.shape)

    before, threads_before = (products.QUERIES, products.CANDIDATES, products.LEAST_WORK), torch.get_num_threads()
    products.QUERIES, products.CANDIDATES, products.LEAST_WORK = *blocks, 1
    torch.set_num_threads(threads)
    try:
        query, row = (part.ravel() for part in np.indices(scores.shape))
        pairs = product_pairs(queries, candidates, query, row, memory).reshape(scores.shape)
        greater, equal = count_greater(queries, candidates, true, memory)
        known_greater, known_equal = count_known_greater(queries, candidates, true, offsets, known, memory)
        best, found = top_products(queries, candidates, k, offsets, known, memory)
    finally:
        products.QUERIES, products.CANDIDATES, products.LEAST_WORK = before
        torch.set_num_threads(threads_before)

    assert np.array_equal(pairs, scores, equal_nan=True)
    for place in range(len(queries)):
        bound, own = true[place], known[offsets[place] : offsets[place + 1]]
        higher = (scores[place] > bound) | np.isnan(bound)
        assert greater[place] == higher.sum() and equal[place] == (scores[place] == bound).sum()
        assert known_greater[place] == higher[own].sum()
        assert known_equal[place] == (scores[place][own] == bound).sum()
        left = [row for row in range(len(candidates)) if row not in own and not np.isnan(scores[place, row])]
        expected = sorted(left, key=lambda row: (-scores[place, row], row))[:k]
        assert found[place].tolist() == expected + [-1] * (k - len(expected))
        assert best[place].tolist() == [*scores[place, expected].tolist(), *[-math.inf] * (k - len(expected))]


@pytest.mark.parametrize("kind", ["normal", "near", "equal", "odd"])
def test_bound_on_the_error_holds(kind: str) -> None:
    generator = np.random.default_rng(0)
    queries, candidates = vectors(kind, 64, 256, generator), vectors(kind, 500, 256, generator)
    estimates = products.Estimates(queries)
    errors = estimates.errors(candidates)
    found = estimates.of(slice(0, 64), candidates)
    if kind == "odd":
        assert np.isinf(errors).all()
        return
    exact = queries.astype(np.float64) @ candidates.T.astype(np.float64)
    assert (np.abs(found - exact) < errors[:, None]).all()
    assert (errors < 1e-4 * estimates.norms * products.Estimates(candidates).norms.max()).all(), "it is of use"


def test_few_scores_are_computed_unless_many_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the estimates would save nothing; and if they save nothing, no time is lost on single doubts."""
    generator = np.random.default_rng(0)
    computed: list[int] = []
    real = products.count_products
    monkeypatch.setattr(products, "count_products", lambda *rest: computed.append(rest[-1]) or real(*rest))
    for kind, expected in (("normal", 0), ("equal", 20)):
        computed.clear()
        queries, candidates = vectors(kind, 20, 64, generator), vectors(kind, 1_000, 64, generator)
        count_greater(queries, candidates, all_scores(queries, candidates[:1])[:, 0])
        assert sum(computed) == expected


def test_reduced_precision_of_matrix_products_changes_no_rank() -> None:
    generator = np.random.default_rng(0)
    queries, candidates = vectors("near", 20, 64, generator), vectors("near", 300, 64, generator)
    true = all_scores(queries, candidates[:1])[:, 0]
    expected = count_greater(queries, candidates, true)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = count_greater(queries, candidates, true)
    finally:
        torch.set_float32_matmul_precision(before)
    assert np.array_equal(expected, found)


def test_too_many_candidates_are_refused() -> None:
    empty: Any = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (1 << 31, 8), (0, 4))
    with pytest.raises(ValueError, match="too many"):
        top_products(np.zeros((1, 8), np.float32), empty, 1, np.zeros(2, np.int64), np.zeros(0, np.int64))
