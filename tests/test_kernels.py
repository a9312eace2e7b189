"""The kernels room promises the values of plain torch and numpy, the same bits on any machine load, and few bytes."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fnftg.arrays import AnyArray, Float32Array
from fnftg.kernels import l1, ranks, threads
from fnftg.kernels.dropout import dropout
from fnftg.kernels.ego_attention import EgoInputs, ego_attention, ego_attention_weights
from fnftg.kernels.l1 import l1_distances
from fnftg.kernels.ranges import find_ranges
from fnftg.kernels.ranks import count_known, count_ranks, l1_pairs, top_k
from fnftg.kernels.segments import segment_softmax, segment_sum

NAN, INF = float("nan"), float("inf")
few = settings(max_examples=25, deadline=None)
sizes = st.integers(0, 20)


@pytest.fixture(autouse=True)
def many_small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Even the smallest input is shared among the threads, and plain torch works in many chunks."""
    monkeypatch.setattr(threads, "LEAST_WORK", 1)
    monkeypatch.setattr(ranks, "LEAST_WORK", 1)
    monkeypatch.setattr(l1, "CHUNK", 100)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def on_threads(number: int, function: Callable[[], Any]) -> Any:
    torch.set_num_threads(number)
    return function()


def vectors(rows: int, width: int, seed: int, digits: int = 1) -> Tensor:
    """Rounded, so that some coordinates, and whole vectors where the width is small, are equal; 0 has either sign."""
    drawn = np.random.default_rng((rows, width, seed)).normal(size=(rows, width)).round(digits)
    return torch.from_numpy(drawn.astype(np.float32))


def same_bits(left: Any, right: Any) -> bool:
    return np.asarray(left).tobytes() == np.asarray(right).tobytes()


def ragged(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int64)


# L1 distances


@few
@given(q=sizes, n=sizes, d=st.integers(0, 35), seed=st.integers(0, 9))
def test_distances_and_gradients_are_those_of_brute_force(q: int, n: int, d: int, seed: int) -> None:
    queries, candidates = vectors(q, d, seed).requires_grad_(), vectors(n, d, seed + 10).requires_grad_()
    upstream = vectors(q, n, seed, digits=3)
    distances = l1_distances(queries, candidates)
    distances.backward(upstream)
    gaps = (queries[:, None].double() - candidates.double()).detach()  # (q, n, d)
    pulls = upstream.double()[:, :, None] * gaps.sign()
    torch.testing.assert_close(distances.double(), gaps.abs().sum(2), rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(queries.grad.double(), pulls.sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(candidates.grad.double(), -pulls.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 3), (130, 17, 40), (9, 700, 16)])
def test_distances_and_gradients_are_those_of_cdist(shape: tuple[int, int, int]) -> None:
    q, n, d = shape
    upstream, results = vectors(q, n, 2), []
    for function in (l1_distances, lambda a, b: torch.cdist(a, b, p=1)):
        queries, candidates = vectors(q, d, 0).requires_grad_(), vectors(n, d, 1).requires_grad_()
        distances = function(queries, candidates)
        distances.backward(upstream)
        results.append((distances.detach(), queries.grad, candidates.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_and_infinity_go_through_as_in_cdist(dtype: torch.dtype) -> None:
    special = torch.tensor([0.0, -0.0, 1.0, NAN, INF, -INF], dtype=dtype)
    upstream, results = torch.arange(1, 37, dtype=dtype).reshape(6, 6), []
    for function in (l1_distances, lambda a, b: torch.cdist(a, b, p=1)):
        queries, candidates = special[:, None].clone().requires_grad_(), special[:, None].clone().requires_grad_()
        distances = function(queries, candidates)
        distances.backward(upstream)
        results.append((distances.detach(), queries.grad, candidates.grad))
    torch.testing.assert_close(results[0], results[1], equal_nan=True)


def test_no_sum_of_gradients_hides_a_nan_upstream() -> None:
    queries, candidates = vectors(3, 8, 0).requires_grad_(), vectors(4, 8, 1).requires_grad_()
    l1_distances(queries, candidates).backward(torch.full((3, 4), NAN))
    assert queries.grad.isnan().all() and candidates.grad.isnan().all()


def test_any_layout_gives_the_same_distances_and_gradients() -> None:
    wide = vectors(40, 60, 0)
    for queries in (wide[::2, ::3], wide.T[:30, :20], wide[:1, :20].expand(7, 20)):
        left, right = queries.detach().clone().requires_grad_(), queries.detach().requires_grad_()
        candidates = vectors(11, 20, 1)
        plain, strided = l1_distances(left, candidates), l1_distances(right, candidates)
        plain.sum().backward()  # its gradient is one number, expanded
        strided.backward(torch.ones(11, len(queries)).T)
        assert same_bits(plain.detach(), strided.detach()) and same_bits(left.grad, right.grad)


def test_only_the_gradients_that_are_needed_come_back() -> None:
    queries, candidates = vectors(3, 8, 0).requires_grad_(), vectors(4, 8, 1)
    l1_distances(queries, candidates).sum().backward()
    assert queries.grad is not None and candidates.grad is None


def test_half_precision_is_computed_in_float32() -> None:
    queries, candidates = vectors(6, 33, 0).bfloat16().requires_grad_(), vectors(5, 33, 1)
    with torch.autocast("cpu", torch.bfloat16):
        distances = l1_distances(queries, candidates)
    distances.sum().backward()
    assert distances.dtype == torch.float32 and queries.grad.dtype == torch.bfloat16
    assert same_bits(distances.detach(), l1_distances(queries.detach().float(), candidates))


def test_double_precision_passes_gradcheck() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(rows, 5, dtype=torch.float64, requires_grad=True) for rows in (4, 7)]
    assert torch.autograd.gradcheck(l1_distances, inputs)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"not \(2, 3\) and \(4, 5\)"):
        l1_distances(torch.zeros(2, 3), torch.zeros(4, 5))
    with pytest.raises(ValueError, match=r"not \(2, 3\) and \(4, 5\)"):
        count_ranks(np.zeros((2, 3)), np.zeros((4, 5)), np.zeros(2))


# The same bits


def test_number_of_threads_changes_no_bit() -> None:
    queries, candidates, upstream = vectors(37, 50, 0, 6), vectors(203, 50, 1, 6), vectors(37, 203, 2, 6)
    offsets, keys, values = ragged([0, 3, 50, 1, 0, 149]), vectors(203, 50, 3, 6), vectors(203, 50, 4, 6)

    def everything() -> list[Any]:
        q, c = queries.clone().requires_grad_(), candidates.clone().requires_grad_()
        distances = l1_distances(q, c)
        distances.backward(upstream)
        parts = queries[:6], queries[6:12], queries[12:18], keys[:90], values[:90], keys[90:95], values[90:95]
        leaves = [x.clone().requires_grad_() for x in parts]
        edges = torch.arange(203)
        attended = ego_attention(EgoInputs(*leaves, offsets, edges * 7 % 90, edges % 5), 2)
        attended.sum().backward()
        true = distances.detach()[:, 7]
        return [
            *(distances.detach(), q.grad, c.grad, attended.detach(), *[x.grad for x in leaves]),
            *(segment_softmax(keys, offsets), segment_sum(keys, offsets)),
            *(*count_ranks(queries, candidates, true), *top_k(queries, candidates, 9)),
            l1_pairs(queries, candidates, np.arange(37), np.arange(37)),
        ]

    alone = on_threads(1, everything)
    for number in (2, 3, 8):
        assert all(map(same_bits, alone, on_threads(number, everything)))


@few
@given(q=st.integers(1, 12), n=st.integers(1, 40), d=st.integers(1, 70), seed=st.integers(0, 9))
def test_a_distance_has_the_same_bits_wherever_it_is_computed(q: int, n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng((q, n, d, seed))
    queries, candidates = rng.normal(size=(q, d)).astype("f"), rng.normal(size=(n, d)).astype("f")
    block = l1.distances(queries, candidates)  # (q, n)
    rows, others = np.repeat(np.arange(q), n), np.tile(np.arange(n), q)
    assert same_bits(block, l1_pairs(queries, candidates, rows, others))
    assert same_bits(block, l1_pairs(queries, np.asfortranarray(candidates), rows, others, memory=1000))
    order, start = rng.permutation(n), int(rng.integers(n))
    assert same_bits(block[:, order], l1.distances(queries, candidates[order]))
    assert same_bits(block[:, start:], l1.distances(queries, candidates[start:]))
    assert same_bits(block.T, l1.distances(candidates, queries))
    nearest, places = top_k(queries, candidates, n, memory=4 * d * int(rng.integers(1, n + 1)))
    assert same_bits(nearest, np.take_along_axis(block, places, 1))


def test_a_vector_is_at_distance_zero_from_itself_only() -> None:
    rows = vectors(100, 24, 0, digits=6)
    assert (l1_distances(rows, rows) == 0).equal(torch.eye(100, dtype=torch.bool))


# Ranks


def oracle(distances: AnyArray, true: AnyArray) -> tuple[list[int], list[int]]:
    """A NaN candidate is worse than every number, a NaN answer worse than every candidate."""
    better, equal = [], []
    for row, bound in zip(distances, true, strict=True):
        if np.isnan(bound):
            better.append(len(row))
            equal.append(0)
        else:
            better.append(sum(1 for x in row if not np.isnan(x) and x < bound))
            equal.append(sum(1 for x in row if x == bound))
    return better, equal


numbers = st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.0, 2.0, NAN, INF, -INF])


@few
@given(data=st.data(), q=st.integers(1, 6), n=st.integers(0, 30), d=st.integers(0, 3), memory=st.integers(1, 200))
def test_ranks_are_those_of_the_oracle(data: st.DataObject, q: int, n: int, d: int, memory: int) -> None:
    def drawn(rows: int, width: int) -> Float32Array:
        values = data.draw(st.lists(numbers, min_size=rows * width, max_size=rows * width))
        return np.array(values, np.float32).reshape(rows, width)

    queries, candidates, answers = drawn(q, d), drawn(n, d), drawn(q, d)
    with np.errstate(invalid="ignore"):
        distances = np.abs(queries[:, None] - candidates).sum(2)  # exact: small multiples of one half
    true = l1_pairs(queries, answers, np.arange(q), np.arange(q))
    better, equal = count_ranks(queries, candidates, true, memory)
    assert (better.tolist(), equal.tolist()) == oracle(distances, true)

    known = [data.draw(st.lists(st.integers(0, n - 1), unique=True)) if n else [] for _ in range(q)]
    offsets, rows = np.cumsum([0, *map(len, known)]), np.array([row for own in known for row in own], np.int64)
    known_better, known_equal = count_known(queries, candidates, true, offsets, rows)
    for i, own in enumerate(known):
        rest = oracle(np.delete(distances[i : i + 1], own, axis=1), true[i : i + 1])
        assert ([better[i] - known_better[i]], [equal[i] - known_equal[i]]) == rest

    k = data.draw(st.integers(0, n + 2))
    nearest, places = top_k(queries, candidates, k, memory)
    expected = np.array([np.lexsort((np.arange(n), row))[:k] for row in distances], np.int64).reshape(q, min(k, n))
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(nearest, np.take_along_axis(distances, expected, 1))


def test_a_model_of_nothing_but_nan_gets_the_worst_rank_everywhere() -> None:
    broken = np.full((5, 8), NAN, np.float32)
    true = l1_pairs(broken, broken, np.arange(5), np.arange(5))
    own = count_known(broken, broken, true, np.arange(6), np.arange(5))
    better, equal = count_ranks(broken, broken, true)
    assert (better - own[0]).tolist() == [4] * 5 and (equal - own[1]).tolist() == [0] * 5


def test_a_model_of_constant_scores_ties_with_every_candidate() -> None:
    better, equal = count_ranks(torch.zeros(3, 20), torch.ones(50, 20), torch.full((3,), 20.0))
    assert better.tolist() == [0] * 3 and equal.tolist() == [50] * 3
    assert top_k(torch.zeros(3, 20), torch.ones(50, 20), 4)[1].tolist() == [[0, 1, 2, 3]] * 3


def test_rows_and_bounds_that_do_not_fit_are_refused() -> None:
    rows = np.zeros((3, 8), np.float32)
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match="there are 3 rows"):
            l1_pairs(rows, rows, np.array([0]), np.array([wrong]))
    with pytest.raises(ValueError, match=r"3 queries, not \(2,\)"):
        count_ranks(rows, rows, np.zeros(2))
    with pytest.raises(ValueError, match="1 query rows but 2"):
        l1_pairs(rows, rows, np.array([0]), np.array([0, 1]))


def test_ranking_holds_only_the_memory_it_is_granted() -> None:
    candidates = np.random.default_rng(0).normal(size=(20_000, 60))  # float64: 9.6 MB that must be copied to be used
    queries, true = candidates[:50], np.full(50, 60, np.float32)
    expected = [*count_ranks(queries, candidates, true), *top_k(queries, candidates, 3)]  # compiles, too
    tracemalloc.start()
    result = [*count_ranks(queries, candidates, true, 100_000), *top_k(queries, candidates, 3, 100_000)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000
    assert all(map(same_bits, expected, result))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_memory_mapped_file_does_not_become_resident(tmp_path: Path) -> None:
    def resident() -> int:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssFile")) * 1024

    rows = np.random.default_rng(0).normal(size=(1 << 18, 64)).astype("f")  # 64 MB
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    queries, true = rows[:2], np.full(2, 70, np.float32)
    expected = count_ranks(queries, rows, true)
    for candidates in (mapped, np.asarray(mapped), mapped[5:]):
        before = resident()
        counted = count_ranks(queries, candidates, true, memory=1 << 22)
        assert resident() - before < 1 << 23
        assert len(candidates) < len(rows) or all(map(same_bits, counted, expected))


# Many callers


def test_several_threads_may_call_at_once() -> None:
    torch.set_num_threads(3)
    queries, candidates = vectors(20, 30, 0), vectors(300, 30, 1)
    expected = l1_distances(queries, candidates)
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: on_threads(3, lambda: l1_distances(queries, candidates)), range(60)))
    assert all(same_bits(result, expected) for result in results)


def test_a_forked_process_may_call_too() -> None:
    script = """if True:
        import os, torch
        from fnftg.kernels import l1, threads
        torch.set_num_threads(2)
        threads.LEAST_WORK = 1
        rows = torch.randn(64, 16).numpy()
        before = l1.distances(rows, rows)
        child = os.fork()
        if child == 0:
            os._exit(0 if (l1.distances(rows, rows) == before).all() else 1)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_an_error_in_one_part_reaches_the_caller() -> None:
    def work(start: int, stop: int) -> None:
        if start <= 5 < stop:
            raise ZeroDivisionError

    for number in (1, 4):
        with pytest.raises(ZeroDivisionError):
            on_threads(number, lambda: threads.in_parallel(work, 100, 1))


# Segments

lengths = st.lists(st.integers(0, 5), max_size=8)


def per_segment(offsets: Tensor, function: Callable[[int, slice], Tensor]) -> list[Tensor]:
    return [function(s, slice(int(offsets[s]), int(offsets[s + 1]))) for s in range(len(offsets) - 1)]


def check_against(
    plain: Callable[..., Tensor], ours: Callable[..., Tensor], inputs: list[Tensor], dtype: torch.dtype
) -> None:
    """Values and gradients of ours in `dtype` against the plain way in float64."""
    exact = [x.double().requires_grad_() for x in inputs]
    given = [x.to(dtype).requires_grad_() for x in inputs]
    expected, result = plain(*exact), ours(*given)
    upstream = torch.randn(expected.shape, dtype=torch.float64)
    if expected.requires_grad:
        expected.backward(upstream)
    result.backward(upstream.to(dtype))
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    for left, right in zip(given, exact, strict=True):
        wanted = torch.zeros_like(right) if right.grad is None else right.grad
        torch.testing.assert_close(left.grad.double(), wanted, rtol=1e-4, atol=1e-5)


both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@both
@few
@given(lengths=lengths, shape=st.sampled_from([(), (1,), (7,), (2, 9)]))
def test_segment_sums_are_those_of_a_loop(dtype: torch.dtype, lengths: list[int], shape: tuple[int, ...]) -> None:
    offsets = ragged(lengths)

    def plain(values: Tensor) -> Tensor:
        return torch.stack([torch.zeros(shape).double(), *per_segment(offsets, lambda _, part: values[part].sum(0))])[
            1:
        ]

    check_against(plain, lambda values: segment_sum(values, offsets), [torch.randn(sum(lengths), *shape)], dtype)


@both
@few
@given(lengths=lengths, shape=st.sampled_from([(), (1,), (4,)]))
def test_segment_softmax_is_that_of_a_loop(dtype: torch.dtype, lengths: list[int], shape: tuple[int, ...]) -> None:
    offsets, scores = ragged(lengths), 9 * torch.randn(sum(lengths), *shape)
    check_against(
        lambda x: torch.cat([x[:0], *per_segment(offsets, lambda _, part: x[part].softmax(0))]),
        lambda x: segment_softmax(x, offsets),
        [scores],
        dtype,
    )


@both
@few
@given(lengths=lengths, heads=st.integers(1, 3), width=st.integers(1, 19))
def test_attention_over_an_ego_graph_is_that_of_torch(
    dtype: torch.dtype, lengths: list[int], heads: int, width: int
) -> None:
    offsets, centres, edges = ragged(lengths), len(lengths), sum(lengths)
    nodes, labels = torch.randint(0, 5, (edges,)), torch.randint(0, 3, (edges,))
    sizes = (centres, centres, centres, 5, 5, 3, 3)

    def plain(query: Tensor, own_keys: Tensor, own_values: Tensor, *shared: Tensor) -> Tensor:
        keys, values, key_factors, value_factors = shared

        def one(s: int, part: slice) -> Tensor:
            rows = [
                torch.cat([own[s : s + 1], others[nodes[part]] * factors[labels[part]]])
                for own, others, factors in ((own_keys, keys, key_factors), (own_values, values, value_factors))
            ]
            q, k, v = (x.view(-1, heads, width).transpose(0, 1) for x in (query[s : s + 1], *rows))  # (h, rows, dh)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).flatten()

        return torch.stack([query.new_zeros(heads * width), *per_segment(offsets, one)])[1:]

    inputs = [torch.randn(rows, heads * width) for rows in sizes]
    check_against(plain, lambda *given: ego_attention(EgoInputs(*given, offsets, nodes, labels), heads), inputs, dtype)


def test_attention_weights_are_those_that_the_values_are_summed_with() -> None:
    offsets, nodes, labels = ragged([2, 0, 3]), torch.tensor([0, 1, 3, 3, 2]), torch.tensor([1, 0, 0, 1, 1])
    inputs = [torch.randn(rows, 8) for rows in (3, 3, 3, 4, 4, 2, 2)]
    places, weights = ego_attention_weights(EgoInputs(*inputs, offsets, nodes, labels), 2)
    assert places.tolist() == [0, 3, 4, 8] and torch.allclose(segment_sum(weights, places), torch.ones(3, 2))
    own, values, factors = inputs[2], inputs[4], inputs[6]
    rows = [own[0], values[0] * factors[1], values[1] * factors[0], own[1]]
    rows += [own[2], values[3] * factors[0], values[3] * factors[1], values[2] * factors[1]]
    expected = segment_sum(weights.repeat_interleave(4, 1) * torch.stack(rows), places)
    assert torch.allclose(ego_attention(EgoInputs(*inputs, offsets, nodes, labels), 2), expected, atol=1e-6)


@both
def test_huge_scores_neither_overflow_nor_vanish(dtype: torch.dtype) -> None:
    scores = torch.tensor([1e30, 1e30, -1e30, -1e30, 3e38, -INF], dtype=dtype)
    weights = segment_softmax(scores, ragged([2, 2, 2]))
    assert weights.tolist() == [0.5, 0.5, 0.5, 0.5, 1.0, 0.0]
    assert segment_softmax(torch.tensor([NAN, 1.0, 2.0], dtype=dtype), ragged([2, 1])).isnan().tolist() == [1, 1, 0]


def test_segments_of_half_precision_are_computed_in_float32() -> None:
    values, offsets = torch.randn(30, 4).bfloat16().requires_grad_(), ragged([10, 20])
    segment_sum(segment_softmax(values, offsets), offsets).sum().backward()
    assert segment_sum(values, offsets).dtype == torch.float32 and values.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("offsets", [[0, 2], [1, 4], [0, 5, 4], [0, 5], [[0, 4]], []])
def test_offsets_that_do_not_fit_are_refused(offsets: list[Any]) -> None:
    for function in (segment_sum, segment_softmax):
        with pytest.raises(ValueError, match="Offsets"):
            function(torch.zeros(4, 2), torch.tensor(offsets, dtype=torch.int64))


def test_ego_graphs_that_do_not_fit_are_refused() -> None:
    rows = [torch.zeros(n, 4) for n in (2, 2, 2, 3, 3, 1, 1)]
    nodes, labels = torch.tensor([0, 2]), torch.tensor([0, 0])
    for name, wrong, message in (
        ("offsets", ragged([2]), "equally many"),
        ("offsets", ragged([1, 2]), "Offsets"),
        ("nodes", nodes + 1, "out of range: there are 3"),
        ("labels", labels - 1, "out of range: there are 1"),
        ("labels", labels[:1], "2 nodes but 1 labels"),
        ("values", torch.zeros(3, 5), "the width 4"),
    ):
        with pytest.raises((ValueError, IndexError), match=message):
            replace(EgoInputs(*rows, ragged([1, 1]), nodes, labels), **{name: wrong})


# Dropout


def test_dropout_keeps_the_mean_and_uses_one_mask_forward_and_backward() -> None:
    torch.manual_seed(0)
    x = torch.ones(2_000, 50, requires_grad=True)
    first, second = dropout(x, 0.2, True), dropout(x, 0.2, True)
    first.sum().backward()
    assert x.grad is not None and same_bits(first.detach(), x.grad)
    assert sorted(first.detach().unique().tolist()) == [0.0, 1.25]
    gone, again = first == 0, second == 0
    for share, expected in (
        (gone, 0.2),
        (gone & again, 0.04),  # masks are independent, as are neighbours in a row and in a column
        (gone[:, 1:] & gone[:, :-1], 0.04),
        (gone[1:] & gone[:-1], 0.04),
    ):
        assert abs(float(share.float().mean()) - expected) < 0.004  # three standard deviations
    assert abs(float(gone.float().mean(0).std()) - (0.16 / 2_000) ** 0.5) < 0.003
    assert abs(float(gone.float().mean(1).std()) - (0.16 / 50) ** 0.5) < 0.003


def test_dropout_depends_on_the_seed_of_torch_alone() -> None:
    def masked() -> Tensor:
        torch.manual_seed(5)
        return dropout(torch.ones(300, 700), 0.5, True)

    assert same_bits(on_threads(1, masked), on_threads(3, masked))
    x = torch.ones(3)
    assert dropout(x, 0.5, False) is x and dropout(x, 0.0, True) is x


@pytest.mark.parametrize("width", [5, 16])
def test_pairs_of_a_file_are_those_of_the_array(width: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    candidates = generator.normal(size=(100, width)).astype(np.float32)
    queries = generator.normal(size=(7, width)).astype(np.float32)
    rows, others = generator.integers(0, 7, 300), generator.integers(0, 100, 300)
    np.save(tmp_path / "candidates.npy", candidates)
    mapped = np.load(tmp_path / "candidates.npy", mmap_mode="r")
    expected = l1_pairs(queries, candidates, rows, others)
    for memory in (1, 1000, 1 << 20):
        assert np.array_equal(l1_pairs(queries, mapped, rows, others, memory), expected)
    none = np.zeros(0, np.int64)
    assert l1_pairs(queries, mapped, none, none).shape == (0,)


@few
@given(st.lists(st.integers(0, 60), unique=True), st.lists(st.integers(-5, 70), max_size=30), st.integers(1, 40))
def test_ranges_of_values_are_found_as_numpy_finds_them(values: list[int], first: list[int], span: int) -> None:
    ascending, asked = np.array(sorted(values), np.int64), np.array(first, np.int64)
    starts, counts = find_ranges(ascending, asked, span)
    assert np.array_equal(starts, np.searchsorted(ascending, asked))
    assert np.array_equal(starts + counts, np.searchsorted(ascending, asked + span))
