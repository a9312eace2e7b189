"""Calibration: monotone curves from margins to probabilities, fitted on validation queries and saved with the weights.

The margin of a candidate is its score minus the best score among the other candidates of its query. A score alone does
not show whether another candidate scores as well. Only the first answer of a query can have a margin above 0.

A probability estimates how many of the top-k candidates with this margin and relation are the missing answer of a query
that has one. Known links are not candidates. Tail queries and head queries of a relation have separate curves; those
with too few queries use a common curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np

from fnftg.arrays import AnyArray, BoolArray, Float64Array, Int64Array, IntArray
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_file, sha256
from fnftg.json_files import read_json, write_json

Method = Literal["isotonic", "platt"]
METHODS: tuple[Method, ...] = ("isotonic", "platt")
FILE, FORMAT, VERSION = "calibration.json", "fnftg-calibration", 2  # version 1 had curves of the score
OF = "margin"  # the input of the curves
LEAST = 100  # minimum number of tail (or head) queries for a curve of their own
STEPS, CLOSE = 100, 1e-10  # Newton's method: maximum number of steps, and the step size at which it stops
UNCERTAIN = 1e-9  # probabilities are clipped to [UNCERTAIN, 1 − UNCERTAIN]


def rivals(best: AnyArray, first: BoolArray) -> AnyArray:
    """Return the best score among the other candidates, for candidates (q, k).

    Args:
        best: the two best scores of each query, (q, 2).
        first: whether a candidate is the best of its query, (q, k).
    """
    return np.where(first, best[:, 1:2], best[:, :1])


def margins(scores: AnyArray, rivals: AnyArray) -> Float64Array:
    """Return scores minus the best rivals' scores, elementwise.

    The margin is NaN if there is no score (−∞ or NaN), ∞ if there is no rival, and 0 for equal scores.
    """
    own, other = scores.astype(np.float64), rivals.astype(np.float64)
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        found: Float64Array = np.where(own == other, 0.0, own - np.where(np.isnan(other), -np.inf, other))
    found[np.isnan(own) | (own == -np.inf)] = np.nan
    return found


@dataclass(frozen=True)
class Isotonic:
    """Isotonic regression: constant on intervals, linear between them, constant beyond the first and last knot."""

    knots: Float64Array  # (m,): ascending margins, both ends of each interval
    values: Float64Array  # (m,): non-decreasing probabilities

    def __call__(self, margins: Float64Array) -> Float64Array:
        return np.interp(margins, self.knots, self.values)

    @classmethod
    def fitted(cls, margins: Float64Array, hits: BoolArray) -> Isotonic:
        """Fit the curve, with an artificial miss at the highest margin and a hit at the lowest as smoothing."""
        distinct, place = np.unique(np.append(margins, [margins.max(), margins.min()]), return_inverse=True)
        hit = np.bincount(place, np.append(hits, [False, True]).astype(np.float64)).astype(np.float64)
        starts, values = pool_adjacent_violators(hit, np.bincount(place).astype(np.float64))
        stops = np.append(starts[1:], len(distinct)) - 1
        return cls(distinct[np.stack([starts, stops], axis=1).ravel()], np.repeat(values, 2))


@dataclass(frozen=True)
class Platt:
    """Platt scaling: 1 / (1 + exp(−slope · margin − intercept)), constant beyond the widest margin."""

    slope: float  # not negative
    intercept: float
    widest: float  # largest margin in the fit

    def __call__(self, margins: Float64Array) -> Float64Array:
        found = 0.5 * (1 + np.tanh((self.slope * np.minimum(margins, self.widest) + self.intercept) / 2))
        return np.clip(found, UNCERTAIN, 1 - UNCERTAIN)

    @classmethod
    def fitted(cls, margins: Float64Array, hits: BoolArray) -> Platt:
        """Fit by maximum likelihood with Newton's method and smoothed targets (Platt, 1999)."""
        positive = int(hits.sum())
        target = np.where(hits, (positive + 1) / (positive + 2), 1 / (len(hits) - positive + 2))
        mean, spread = float(margins.mean()), float(margins.std()) or 1.0
        design = np.stack([(margins - mean) / spread, np.ones(len(margins))], axis=1)  # (n, 2)
        start = float(target.mean())
        weights = np.array([0.0, math.log(start / (1 - start))])
        for _ in range(STEPS):
            found = 0.5 * (1 + np.tanh(design @ weights / 2))
            slopes = design.T @ (target - found)
            bends = (design * (found * (1 - found))[:, None]).T @ design + 1e-9 * np.eye(2)
            step = np.linalg.solve(bends, slopes)
            step *= min(1.0, 2.0 / float(np.abs(step).max() or 1.0))  # limits the step to avoid overshooting
            weights = weights + step
            if np.abs(step).max() < CLOSE:
                break
        if weights[0] < 0:  # a falling curve: use a constant instead
            weights = np.array([0.0, math.log(start / (1 - start))])
        slope = float(weights[0] / spread)
        return cls(slope, float(weights[1]) - slope * mean, float(margins.max()))


Curve = Isotonic | Platt
KINDS: dict[str, type[Isotonic] | type[Platt]] = {"isotonic": Isotonic, "platt": Platt}


@dataclass(frozen=True)
class Calibration:
    """The calibration curves of a model, by relation id and direction."""

    method: Method
    k: int  # number of candidates per query in the fit
    about: Mapping[str, Any]  # split, protocol and number of queries of the fit
    everything: Curve  # the curve of all queries
    tails: Mapping[str, Curve]
    heads: Mapping[str, Curve]
    relations: Sequence[str]  # the R relation ids, in the order of the labels

    def bound(self, relations: Sequence[str]) -> Calibration:
        """Return the same curves for a graph with other relations, matched by id."""
        return replace(self, relations=list(relations))

    def curve(self, label: int) -> Curve:
        """Return the curve of a label in [0, 2R)."""
        count = len(self.relations)
        curves = self.tails if label < count else self.heads
        return curves.get(self.relations[label % count], self.everything)

    def probabilities(self, margins: Float64Array, labels: IntArray) -> Float64Array:
        """Convert margins (q, k) of queries with labels (q,) to probabilities (q, k); NaN and −∞ become 0."""
        found = np.zeros(margins.shape)
        there = margins > -np.inf  # false for NaN
        for label in np.unique(labels):
            chosen = there & (labels == label)[:, None]
            found[chosen] = self.curve(int(label))(margins[chosen])
        return found

    def save(self, folder: Path) -> None:
        """Write the curves into a checkpoint folder, with the checksum of its weights."""
        sides = {"tails": self.tails, "heads": self.heads}
        value = {
            "format": FORMAT,
            "version": VERSION,
            "of": OF,
            "weights": sha256(folder / "model.safetensors"),
            "method": self.method,
            "k": self.k,
            "about": dict(self.about),
            "relations": list(self.relations),
            "everything": plain(self.everything),
            **{side: {id_: plain(curve) for id_, curve in curves.items()} for side, curves in sides.items()},
        }
        with new_file(folder / FILE, owned=True) as partial:
            write_json(partial, value)


def fit(
    margins: Float64Array,
    hits: BoolArray,
    labels: IntArray,
    relations: Sequence[str],
    method: Method = "isotonic",
    about: Mapping[str, Any] | None = None,
    least: int = LEAST,
) -> Calibration:
    """Fit calibration curves to the top-k candidates of queries.

    Args:
        margins: margins of the candidates, (q, k).
        hits: whether a candidate is the answer, (q, k).
        labels: labels of the queries, (q,).
        relations: ids of the relations.
        method: isotonic or platt.
        about: what to record about the fit, such as split and protocol.
        least: minimum number of queries for a separate curve.

    Raises:
        FnftgError: if the method is unknown or no query has two candidates.
    """
    if method not in METHODS:
        raise FnftgError(f"There is no calibration method {method!r}: choose {' or '.join(METHODS)}.")

    there = np.isfinite(margins)  # (q, k)
    if not there.any():
        raise FnftgError("No query has two candidates with finite scores: there is nothing to calibrate.")

    def fitted(rows: Any) -> Curve:
        return KINDS[method].fitted(margins[rows][there[rows]], hits[rows][there[rows]])

    common, count = np.unique(labels[there.any(axis=1)], return_counts=True)
    own = {int(label): fitted(labels == label) for label in common[count >= least]}
    ids = list(relations)
    return Calibration(
        method,
        margins.shape[1],
        {**(about or {}), "queries": len(labels)},
        fitted(slice(None)),
        {ids[label]: curve for label, curve in own.items() if label < len(ids)},
        {ids[label - len(ids)]: curve for label, curve in own.items() if label >= len(ids)},
        ids,
    )


@numba.njit(nogil=True, cache=True)
def pool_adjacent_violators(totals: Float64Array, weights: Float64Array) -> tuple[Int64Array, Float64Array]:
    """Return the start and mean of each interval of the non-decreasing least-squares fit to totals / weights (n,)."""
    starts = np.empty(len(totals), np.int64)
    sums, sizes = np.empty(len(totals)), np.empty(len(totals))
    count = 0
    for place in range(len(totals)):
        starts[count], sums[count], sizes[count] = place, totals[place], weights[place]
        count += 1
        while count > 1 and sums[count - 2] * sizes[count - 1] >= sums[count - 1] * sizes[count - 2]:
            count -= 1
            sums[count - 1] += sums[count]
            sizes[count - 1] += sizes[count]
    return starts[:count], sums[:count] / sizes[:count]


# Reading and writing


def plain(curve: Curve) -> dict[str, Any]:
    if isinstance(curve, Platt):
        return {"slope": curve.slope, "intercept": curve.intercept, "widest": curve.widest}
    return {"knots": curve.knots.tolist(), "values": curve.values.tolist()}


def load(folder: Path) -> Calibration | None:
    """Read the calibration of a checkpoint folder; None if it was not calibrated.

    Raises:
        DamagedError: if the file is damaged.
        FnftgError: if another version of fnftg wrote it, or it belongs to other weights.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    try:
        value = read_json(path)
        if value["format"] == FORMAT and value["version"] != VERSION:
            raise FnftgError(f"{path} was written by another version of fnftg: run fnftg calibrate again.")
        if (value["format"], value["of"]) != (FORMAT, OF):
            raise ValueError("another format")
        sides = {
            side: {id_: read_curve(value["method"], curve) for id_, curve in value[side].items()}
            for side in ("tails", "heads")
        }
        everything = read_curve(value["method"], value["everything"])
        relations = [str(id_) for id_ in value["relations"]]
        found = Calibration(
            value["method"], int(value["k"]), dict(value["about"]), everything, relations=relations, **sides
        )
        weights = value["weights"]
    except (DamagedError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedError(f"{path} is damaged: run fnftg calibrate again.") from error
    present = sha256(Path(folder) / "model.safetensors")
    if weights != present:
        raise FnftgError(
            f"{path} was fitted to weights with SHA-256 {str(weights)[:16]}…, but model.safetensors has "
            f"{present[:16]}…: run fnftg calibrate again if the weights are new, or restore them if they are damaged."
        )
    return found


def read_curve(method: str, value: Mapping[str, Any]) -> Curve:
    """Read a curve; raise ValueError if it is not non-decreasing or its values are not probabilities."""
    if method == "platt":
        numbers = [float(value[name]) for name in ("slope", "intercept", "widest")]
        if not all(map(math.isfinite, numbers)) or numbers[0] < 0:
            raise ValueError("no rising logistic curve")
        return Platt(*numbers)
    if method != "isotonic":
        raise ValueError("another method")
    knots, values = (np.array(value[name], np.float64) for name in ("knots", "values"))
    whole = knots.ndim == 1 and knots.shape == values.shape and len(knots) > 0
    whole = whole and bool(np.isfinite(knots).all() and np.isfinite(values).all())
    if not whole or (np.diff(knots) < 0).any() or (np.diff(values) < 0).any() or values[0] < 0 or values[-1] > 1:
        raise ValueError("no rising curve of probabilities")
    return Isotonic(knots, values)
