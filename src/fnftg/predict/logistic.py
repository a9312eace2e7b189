"""Logistic regression with an offset for each relation and direction, fitted to partly labelled examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int64Array

STEPS, CLOSE, PENALTY = 60, 1e-8, 1e-3  # Fisher scoring: maximum number of steps, last step size, ridge
LIMIT = 30.0  # log-odds are clipped to ±LIMIT
OFFSET_SPREAD = 1.0  # standard deviation that offsets are assumed to have before the fit


@dataclass(frozen=True)
class Logistic:
    """A logistic model with an offset for each relation and direction, and a constant shift of the log-odds."""

    weights: Float64Array  # (F,)
    intercept: float
    offsets: Float64Array  # (2R,): by slot; later slots, those of new relations, have none
    shift: float = 0.0

    def logits(self, features: Float64Array, slots: Int64Array) -> Float64Array:
        """Return the log-odds (n,) of features (n, F) of queries with these slots (n,)."""
        found = (
            features @ self.weights
            + self.intercept
            + self.shift
            + np.append(self.offsets, 0.0)[np.minimum(slots, len(self.offsets))]
        )
        return np.asarray(np.clip(found, -LIMIT, LIMIT))

    def __call__(self, features: Float64Array, slots: Int64Array) -> Float64Array:
        return sigmoid(self.logits(features, slots))

    def plain(self) -> dict[str, Any]:
        """Return the model as JSON values."""
        return {
            "weights": self.weights.tolist(),
            "intercept": self.intercept,
            "shift": self.shift,
            "offsets": self.offsets.tolist(),
        }

    @classmethod
    def read(cls, value: Mapping[str, Any], size: int, slots: int) -> Logistic:
        """Read what `plain` returned, for these numbers of features and slots; raise ValueError if it is no model."""
        weights, offsets = (np.array(value[name], np.float64) for name in ("weights", "offsets"))
        found = cls(weights, float(value["intercept"]), offsets, float(value["shift"]))
        numbers = [*weights, *offsets, found.intercept, found.shift]
        if weights.shape != (size,) or offsets.shape != (slots,) or not np.isfinite(numbers).all():
            raise ValueError("no logistic model")
        return found

    @classmethod
    def fitted(
        cls,
        features: Float64Array,
        hits: BoolArray,
        slots: Int64Array,
        size: int,
        weights: Float64Array | None = None,
        labelled: float = 1.0,
        shift: float = 0.0,
    ) -> Logistic:
        """Fit by maximum likelihood with Fisher scoring and a small ridge penalty.

        Args:
            features: (n, F).
            hits: whether the example is labelled as true, (n,).
            slots: slot of each example, (n,).
            size: number of slots, 2R.
            weights: weight of each example, (n,).
            labelled: share of the true examples that are labelled; the others look false.
            shift: constant added to the log-odds in use.
        """
        amount = np.ones(len(hits)) if weights is None else weights
        whole = max(float(amount.sum()), 1e-9)
        mean = (amount[:, None] * features).sum(axis=0) / whole
        spread = np.sqrt((amount[:, None] * (features - mean) ** 2).sum(axis=0) / whole)
        spread = np.where(spread > 1e-9, spread, 1.0)
        design = np.concatenate([(features - mean) / spread, np.ones((len(features), 1))], axis=1)  # (n, F + 1)
        share = min(max(float((amount * hits).sum()) / whole / labelled, 1e-6), 1 - 1e-6)
        solution = np.zeros(design.shape[1])
        solution[-1] = math.log(share / (1 - share))
        ridge = PENALTY * np.eye(len(solution)) * max(float((amount * hits).sum()), 1.0)
        ridge[-1, -1] = 1e-9
        for _ in range(STEPS):
            true = sigmoid(np.clip(design @ solution, -LIMIT, LIMIT))
            seen = np.clip(labelled * true, 1e-12, 1 - 1e-12)
            slope = labelled * true * (1 - true)
            gradient = design.T @ (amount * (hits - seen) * slope / (seen * (1 - seen))) - ridge @ solution
            information = (design * (amount * slope**2 / (seen * (1 - seen)))[:, None]).T @ design + ridge
            step = np.linalg.solve(information + 1e-9 * np.eye(len(solution)), gradient)
            step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))  # limits the step to avoid overshooting
            solution = solution + step
            if np.abs(step).max() < CLOSE:
                break
        scaled = solution[:-1] / spread
        offsets = fitted_offsets(design @ solution, hits, slots, size, amount, labelled)
        return cls(scaled, float(solution[-1] - scaled @ mean), offsets, shift)


def fitted_offsets(
    logits: Float64Array, hits: BoolArray, slots: Int64Array, size: int, weights: Float64Array, labelled: float
) -> Float64Array:
    """Return the offset of each slot (size,), fitted to examples with these log-odds and shrunk towards 0."""
    offsets = np.zeros(size)
    for _ in range(STEPS):
        true = sigmoid(np.clip(logits + offsets[slots], -LIMIT, LIMIT))
        seen = np.clip(labelled * true, 1e-12, 1 - 1e-12)
        slope = labelled * true * (1 - true)
        factor = weights * slope / (seen * (1 - seen))
        gradient = np.bincount(slots, factor * (hits - seen), size) - offsets / OFFSET_SPREAD**2
        step = np.clip(gradient / (np.bincount(slots, factor * slope, size) + 1 / OFFSET_SPREAD**2), -1.0, 1.0)
        offsets += step
        if np.abs(step).max(initial=0.0) < CLOSE:
            break
    return offsets


def sigmoid(logits: Float64Array) -> Float64Array:
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)))
