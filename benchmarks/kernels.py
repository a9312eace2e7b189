"""Speed of the kernels compared with plain torch: python benchmarks/kernels.py [--json].

Both sides run alternately, and their best times are compared, so that other load on the machine affects both alike. The
exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from fnftg.kernels.ego_attention import EgoInputs, ego_attention
from fnftg.kernels.l1 import l1_distances
from fnftg.kernels.ranks import count_ranks, l1_pairs, top_k
from fnftg.kernels.segments import segment_softmax, segment_sum

Work = Callable[[], Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--rounds", type=int, default=7, help="number of runs of each side (default: 7)")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = [*distance_rows(options.rounds), *ranking_rows(options.rounds), *segment_rows(options.rounds)]
    facts = machine()
    if options.json:
        print(json.dumps({"machine": facts, "results": rows}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in facts.items()))
        for row in rows:
            speed = f"{row['gops']:6.1f} Gop/s" if row["gops"] else " " * 12
            target = f"  (target {row['target']:g})" if row["target"] else ""
            times = f"{row['ours_ms']:9.2f} ms  {row['plain_ms']:9.2f} ms"
            print(f"{row['name']:<58}{times}  {speed}  {row['ratio']:7.1f} times {row['plain']}{target}")
    return int(any(row["target"] and row["ratio"] < row["target"] for row in rows))


def distance_rows(rounds: int) -> list[dict[str, Any]]:
    def both_ways(function: Callable[[Tensor, Tensor], Tensor]) -> Work:
        queries, candidates = torch.randn(1024, 256, requires_grad=True), torch.randn(1024, 256, requires_grad=True)
        upstream = torch.randn(1024, 1024)

        def step() -> None:
            queries.grad = candidates.grad = None
            function(queries, candidates).backward(upstream)  # type: ignore[no-untyped-call]

        return step

    queries, candidates = torch.randn(256, 256), torch.randn(41_000, 256)
    return [
        row(
            "L1 forward and backward, 1024 × 1024 × 256",
            both_ways(l1_distances),
            "torch.cdist",
            both_ways(cdist),
            rounds,
            operations=2 * 1024 * 1024 * 256,
            target=4,
        ),
        row(
            "L1 forward, 256 × 41,000 × 256",
            lambda: l1_distances(queries, candidates),
            "torch.cdist",
            lambda: cdist(queries, candidates),
            rounds,
            operations=256 * 41_000 * 256,
            target=8,
        ),
    ]


def ranking_rows(rounds: int) -> list[dict[str, Any]]:
    queries, candidates = torch.randn(256, 256), torch.randn(41_000, 256)
    rng = np.random.default_rng(0)
    true, operations = l1_pairs(queries, candidates, np.arange(256), np.arange(256)), 256 * 41_000 * 256
    pairs = rng.integers(256, size=200_000), rng.integers(41_000, size=200_000)

    def plain_counts() -> tuple[Tensor, Tensor]:
        distances, bounds = cdist(queries, candidates), torch.from_numpy(true)[:, None]
        return (distances < bounds).sum(1), (distances == bounds).sum(1)

    return [
        row(
            "count of better and equal, 256 × 41,000 × 256",
            lambda: count_ranks(queries, candidates, true),
            "torch.cdist and sums",
            plain_counts,
            rounds,
            operations,
        ),
        row(
            "10 nearest of 41,000, 256 queries × 256",
            lambda: top_k(queries, candidates, 10),
            "torch.cdist and topk",
            lambda: cdist(queries, candidates).topk(10, largest=False),
            rounds,
            operations,
        ),
        row(
            "200,000 pairs × 256",
            lambda: l1_pairs(queries, candidates, *pairs),
            "torch gather",
            lambda: (queries[pairs[0]] - candidates[pairs[1]]).abs().sum(1),
            rounds,
            operations=200_000 * 256,
        ),
    ]


def segment_rows(rounds: int) -> list[dict[str, Any]]:
    """Compare kernels on 20,000 segments of 0 to 20 edges, with 4 heads of width 64."""
    lengths = torch.randint(0, 21, (20_000,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    segments, edges = torch.repeat_interleave(torch.arange(20_000), lengths), int(lengths.sum())
    scores, upstream_scores = torch.randn(edges, 4, requires_grad=True), torch.randn(edges, 4)
    rows, upstream_rows = torch.randn(edges, 256, requires_grad=True), torch.randn(20_000, 256)
    leaves = [torch.randn(n, 256, requires_grad=True) for n in (20_000, 20_000, 20_000, 8_000, 8_000, 400, 400)]
    nodes, labels = torch.randint(0, 8_000, (edges,)), torch.randint(0, 400, (edges,))
    edges_of_centres: Any = offsets, nodes, labels
    inputs, upstream = EgoInputs(*leaves, *edges_of_centres), torch.randn(20_000, 256)

    def plain_sum(values: Tensor) -> Tensor:
        return torch.zeros(20_000, *values.shape[1:]).index_add(0, segments, values)

    def plain_softmax(scores: Tensor) -> Tensor:
        highest = torch.segment_reduce(scores.detach(), "max", offsets=offsets, axis=0)
        powers = torch.exp(scores - highest.index_select(0, segments))
        return powers / plain_sum(powers).index_select(0, segments)

    def plain_attention() -> Tensor:
        query, own_keys, own_values, keys, values, key_factors, value_factors = leaves
        segment = torch.cat([torch.arange(20_000), segments])  # the centres themselves, then their edges
        query = query.index_select(0, segment).view(-1, 4, 64)
        keys = torch.cat([own_keys, keys.index_select(0, nodes) * key_factors.index_select(0, labels)])
        values = torch.cat([own_values, values.index_select(0, nodes) * value_factors.index_select(0, labels)])
        powers = torch.exp((query * keys.view(-1, 4, 64)).sum(-1) / 8)
        totals = torch.zeros(20_000, 4).index_add(0, segment, powers)
        weighted = (powers / totals.index_select(0, segment)).unsqueeze(-1) * values.view(-1, 4, 64)
        return torch.zeros(20_000, 4, 64).index_add(0, segment, weighted).flatten(1)

    def step(function: Callable[[], Tensor], upstream: Tensor) -> Work:
        def work() -> None:
            for leaf in (scores, rows, *leaves):
                leaf.grad = None
            function().backward(upstream)  # type: ignore[no-untyped-call]

        return work

    return [
        row(
            "segment softmax, forward and backward, 4 heads",
            step(lambda: segment_softmax(scores, offsets), upstream_scores),
            "torch",
            step(lambda: plain_softmax(scores), upstream_scores),
            rounds,
        ),
        row(
            "segment sum, forward and backward, width 256",
            step(lambda: segment_sum(rows, offsets), upstream_rows),
            "index_add",
            step(lambda: plain_sum(rows), upstream_rows),
            rounds,
        ),
        row(
            "attention over ego-graphs, forward and backward, 4 × 64",
            step(lambda: ego_attention(inputs, 4), upstream),
            "torch",
            step(plain_attention, upstream),
            rounds,
        ),
    ]


def cdist(queries: Tensor, candidates: Tensor) -> Tensor:
    return torch.cdist(queries, candidates, p=1)


def row(
    name: str, ours: Work, plain_name: str, plain: Work, rounds: int, operations: int = 0, target: float = 0
) -> dict[str, Any]:
    """Time one comparison; an operation is one |q - c|, or one sign in a backward pass."""
    ours()  # compile
    times: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        for work, taken in zip((ours, plain), times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    best, plain_best = min(times[0]), min(times[1])
    return {
        "name": name,
        "plain": plain_name,
        "ours_ms": 1e3 * best,
        "plain_ms": 1e3 * plain_best,
        "gops": operations / best / 1e9,
        "ratio": plain_best / best,
        "target": target,
    }


def machine() -> dict[str, Any]:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())
