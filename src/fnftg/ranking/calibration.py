"""From margins to probabilities: monotone curves, fitted on validation queries and kept beside the weights.

A candidate's margin is its score less the best score among its query's other candidates: a score alone does not say
whether a rival is as good. Only first answers have a margin above 0, so that the curve there is theirs alone.

A probability here answers one question: of the candidates with this margin for this relation, in the top k of a query
that has an answer which is not known yet, how many are that answer? Known links are nobody's rivals. Tails and heads of
a relation have a curve each; one that was asked for too rarely has the curve of all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np

from fnftg.arrays import AnyArray, BoolArray, Float64Array, Int64Array, IntArray
from fnftg.errors import FnftgError
from fnftg.files import new_file, sha256

Method = Literal["isotonic", "platt"]
METHODS: tuple[Method, ...] = ("isotonic", "platt")
FILE, FORMAT, VERSION = "calibration.json", "fnftg-calibration", 2  # 1: curves of the score
OF = "margin"  # what curves are of
LEAST = 100  # queries from which on a relation's tails, or heads, have a curve of their own
STEPS, CLOSE = 100, 1e-10  # of Newton's method: at most, and the step after which it ends
UNCERTAIN = 1e-9  # the least probability that a curve gives, and 1 less it the most


def rivals(best: AnyArray, first: BoolArray) -> AnyArray:
    """The best score among the others, of candidates (q, k) of queries whose two best scores are given (q, 2): that of
    the second for the one that is `first` (q, k), that of the first for all others."""
    return np.where(first, best[:, 1:2], best[:, :1])


def margins(scores: AnyArray, rivals: AnyArray) -> Float64Array:
    """How far scores are above their best rivals', in one shape: NaN where there is no score (−∞, NaN), ∞ where there
    is a score but no rival, 0 between equals."""
    own, other = scores.astype(np.float64), rivals.astype(np.float64)
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        found: Float64Array = np.where(own == other, 0.0, own - np.where(np.isnan(other), -np.inf, other))
    found[np.isnan(own) | (own == -np.inf)] = np.nan
    return found


@dataclass(frozen=True)
class Isotonic:
    """The best monotone fit: flat stretches, joined by straight lines, and flat beyond the first and the last."""

    knots: Float64Array  # (m,): ascending margins, the two ends of every stretch
    values: Float64Array  # (m,): their probabilities, never falling

    def __call__(self, margins: Float64Array) -> Float64Array:
        return np.interp(margins, self.knots, self.values)

    @classmethod
    def fitted(cls, margins: Float64Array, hits: BoolArray) -> Isotonic:
        """Two answers are made up so that nothing is certain: one miss at the highest margin, one hit at the lowest."""
        distinct, place = np.unique(np.append(margins, [margins.max(), margins.min()]), return_inverse=True)
        hit = np.bincount(place, np.append(hits, [False, True]).astype(np.float64)).astype(np.float64)
        starts, values = pool_adjacent_violators(hit, np.bincount(place).astype(np.float64))
        stops = np.append(starts[1:], len(distinct)) - 1
        return cls(distinct[np.stack([starts, stops], axis=1).ravel()], np.repeat(values, 2))


@dataclass(frozen=True)
class Platt:
    """A logistic curve: 1 / (1 + exp(−slope · margin − intercept)), the slope not below 0; flat beyond the widest."""

    slope: float
    intercept: float
    widest: float  # margin that it was fitted on

    def __call__(self, margins: Float64Array) -> Float64Array:
        found = 0.5 * (1 + np.tanh((self.slope * np.minimum(margins, self.widest) + self.intercept) / 2))
        return np.clip(found, UNCERTAIN, 1 - UNCERTAIN)

    @classmethod
    def fitted(cls, margins: Float64Array, hits: BoolArray) -> Platt:
        """The likeliest curve for targets pulled in a little from 0 and 1 (Platt, 1999), by Newton's method."""
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
            step *= min(1.0, 2.0 / float(np.abs(step).max() or 1.0))  # far from the top it would overshoot
            weights = weights + step
            if np.abs(step).max() < CLOSE:
                break
        if weights[0] < 0:  # wider margins for worse answers: then the margin says nothing
            weights = np.array([0.0, math.log(start / (1 - start))])
        slope = float(weights[0] / spread)
        return cls(slope, float(weights[1]) - slope * mean, float(margins.max()))


Curve = Isotonic | Platt
KINDS: dict[str, type[Isotonic] | type[Platt]] = {"isotonic": Isotonic, "platt": Platt}


@dataclass(frozen=True)
class Calibration:
    """Curves of relations by their ids, tails and heads apart, and what they were fitted on."""

    method: Method
    k: int
    about: Mapping[str, Any]  # split, protocol, queries
    everything: Curve
    tails: Mapping[str, Curve]
    heads: Mapping[str, Curve]
    relations: Sequence[str]  # R ids: what the labels stand for

    def bound(self, relations: Sequence[str]) -> Calibration:
        """For another graph, with relations of its own or more of them: those with the same ids keep their curves."""
        return replace(self, relations=list(relations))

    def curve(self, label: int) -> Curve:
        """Of a relation label in [0, 2R)."""
        count = len(self.relations)
        curves = self.tails if label < count else self.heads
        return curves.get(self.relations[label % count], self.everything)

    def probabilities(self, margins: Float64Array, labels: IntArray) -> Float64Array:
        """(q, k) margins of the candidates of queries with these labels (q,): (q, k), 0 for NaN and −∞."""
        found = np.zeros(margins.shape)
        there = margins > -np.inf  # not so of NaN
        for label in np.unique(labels):
            chosen = there & (labels == label)[:, None]
            found[chosen] = self.curve(int(label))(margins[chosen])
        return found

    def save(self, folder: Path) -> None:
        """Beside the weights, which it names."""
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
        with new_file(folder / FILE, force=True) as partial:
            partial.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def fit(
    margins: Float64Array,
    hits: BoolArray,
    labels: IntArray,
    relations: Sequence[str],
    method: Method = "isotonic",
    about: Mapping[str, Any] | None = None,
    least: int = LEAST,
) -> Calibration:
    """From the top k candidates of queries: margins (q, k), which of them is the answer (q, k), and labels (q,)."""
    if method not in METHODS:
        raise FnftgError(f"There is no method {method!r} to calibrate by: choose {' or '.join(METHODS)}.")

    there = np.isfinite(margins)  # (q, k)
    if not there.any():
        raise FnftgError("No query has two candidates whose scores are numbers: nothing to calibrate.")

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
    """The never-falling means nearest to totals / weights (n,), in squares: where each stretch starts, its mean."""
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


# The file


def plain(curve: Curve) -> dict[str, Any]:
    if isinstance(curve, Platt):
        return {"slope": curve.slope, "intercept": curve.intercept, "widest": curve.widest}
    return {"knots": curve.knots.tolist(), "values": curve.values.tolist()}


def load(folder: Path) -> Calibration | None:
    """What `save` wrote into the folder of a checkpoint; None where there is nothing."""
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] == FORMAT and value["version"] != VERSION:
            raise FnftgError(f"{path} is of another version of fnftg: run fnftg calibrate again.")
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FnftgError(f"{path} is damaged: run fnftg calibrate again.") from error
    if weights != sha256(Path(folder) / "model.safetensors"):
        raise FnftgError(f"{path} was fitted to other weights than are here now: run fnftg calibrate again.")
    return found


def read_curve(method: str, value: Mapping[str, Any]) -> Curve:
    """A curve that is monotone and whose values are probabilities, or a ValueError."""
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
