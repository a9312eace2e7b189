"""MRR and Hits@k from the numbers of better and equal candidates.

With ties `mean`, an answer gets the mean rank of all candidates with its score, as is usual in the field (PyKEEN calls
this realistic). With `expected`, each metric is averaged over all orders of the tied candidates. If all n candidates
have the same score, the MRR is 2 / (n + 1) with `mean` and (1 + 1/2 + … + 1/n) / n, the paper's random baseline, with
`expected`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fnftg.arrays import Float64Array, Int64Array
from fnftg.errors import FnftgError

Ties = Literal["mean", "expected"]
KS = (1, 3, 10)
NAMES = ("mrr", *(f"hits@{k}" for k in KS))
RESAMPLES, AT_ONCE = 1_000, 1 << 21  # bootstrap samples, and triples drawn at a time


def mean_ranks(better: Int64Array, equal: Int64Array) -> Float64Array:
    """Return the mean rank among the tied candidates."""
    return 1 + better + equal / 2


def metric_values(better: Int64Array, equal: Int64Array, ties: Ties = "mean") -> Float64Array:
    """Return the metrics of each answer (…, 4), in the order of NAMES, from its counts (…)."""
    if ties not in ("mean", "expected"):
        raise FnftgError(f"ties is {ties!r}: it must be mean or expected.")
    if ties == "mean":
        ranks = mean_ranks(better, equal)
        return np.stack([1 / ranks, *(ranks <= k for k in KS)], axis=-1)
    tied = equal + 1
    sums = harmonic_numbers(int((better + tied).max(initial=1)))
    hits = (np.clip(k - better, 0, tied) / tied for k in KS)
    return np.stack([(sums[better + tied] - sums[better]) / tied, *hits], axis=-1)


def harmonic_numbers(most: int) -> Float64Array:
    """Return 1 + 1/2 + … + 1/n for n = 0, …, most."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, most + 1))])


def named(values: Float64Array) -> dict[str, float]:
    """Return the mean of each metric (…, 4) over all answers as {mrr, hits@1, hits@3, hits@10}."""
    means = values.reshape(-1, len(NAMES)).mean(axis=0)
    return dict(zip(NAMES, means.tolist(), strict=True))


def intervals(values: Float64Array, seed: int = 0) -> dict[str, list[float]]:
    """Return bootstrap 95 % intervals of the means as {mrr: [low, high], …}.

    The bootstrap resamples triples, whose values (m, 4) are the means of their two queries.
    """
    generator, step = np.random.default_rng(seed), max(1, AT_ONCE // len(values))
    means = np.concatenate(
        [
            values[generator.integers(0, len(values), (min(step, RESAMPLES - done), len(values)))].mean(axis=1)
            for done in range(0, RESAMPLES, step)
        ]
    )  # (resamples, 4)
    bounds = np.quantile(means, [0.025, 0.975], axis=0).T
    return dict(zip(NAMES, bounds.tolist(), strict=True))


def pykeen_metrics(better: Int64Array, equal: Int64Array, candidates: Int64Array) -> dict[str, Any]:
    """Return PyKEEN's nested results, {side: {rank type: {metric: value}}}.

    Args:
        better: better candidates of the tail queries, then of the head queries, (2, m).
        equal: candidates with the same score, (2, m).
        candidates: number of ranked candidates including the answer, (2, m).
    """
    result: dict[str, Any] = {}
    for side, rows in (("tail", slice(0, 1)), ("head", slice(1, 2)), ("both", slice(0, 2))):
        first, last = 1 + better[rows].ravel(), 1 + (better + equal)[rows].ravel()
        expected = (candidates[rows].mean() + 1) / 2
        result[side] = {
            "optimistic": _pykeen_side(first),
            "realistic": _pykeen_side((first + last) / 2, expected),
            "pessimistic": _pykeen_side(last),
        }
    return result


def _pykeen_side(ranks: Float64Array | Int64Array, expected: float | None = None) -> dict[str, float]:
    mean = float(ranks.mean())
    found = {
        "count": float(ranks.size),
        "arithmetic_mean_rank": mean,
        "median_rank": float(np.median(ranks)),
        "standard_deviation": float(ranks.std()),
        "harmonic_mean_rank": float(1 / (1 / ranks).mean()),
        "inverse_harmonic_mean_rank": float((1 / ranks).mean()),
        **{f"hits_at_{k}": float((ranks <= k).mean()) for k in (1, 3, 5, 10)},
    }
    if expected is not None:
        found["adjusted_arithmetic_mean_rank"] = mean / expected
        found["adjusted_arithmetic_mean_rank_index"] = 1 - (mean - 1) / (expected - 1) if expected > 1 else 0.0
    return found
