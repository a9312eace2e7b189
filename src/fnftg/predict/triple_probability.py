"""P(triple): the probability that a triple which the graph lacks is true.

A triple (h, r, t) answers two queries, (h, r, ?) and (?, r, t). For each query a logistic model estimates whether it
has a missing answer at all, from counts alone (`query_features.py`). A second logistic model combines these two
probabilities with the two margins: how far the score of the triple lies above or below the best other answer.

Both models are fitted to edges that are taken out of the graph at random (`probability_fitting.py`). What the graph
itself lacks is taken out by nobody, but looks the same. The fit therefore assumes a share of missing links: of the true
triples that the reduced graph lacks, only a part, `labelled`, was taken out and counts as a hit. In use fewer links are
missing than in the fit, which `shift` corrects. Entities without any edge, such as new ones described by a text, have
weights of their own, because all their links are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fnftg.arrays import BoolArray, Float64Array
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_file, sha256
from fnftg.json_files import read_json, write_json
from fnftg.predict.query_features import FEATURES, QueryFeatures

FILE, FORMAT, VERSION = "probability.json", "fnftg-probability", 1
TRIPLE_FEATURES = ("query", "inverse_query", "margin", "inverse_margin", "lag", "inverse_lag")
WIDEST = 3.0  # margins beyond ±WIDEST count as this one
STEPS, CLOSE, PENALTY = 60, 1e-8, 1e-3  # Fisher scoring: maximum number of steps, last step size, ridge
LIMIT = 30.0  # log-odds are clipped to ±LIMIT


@dataclass(frozen=True)
class Logistic:
    """A logistic model of standardised features, with a constant shift of the log-odds."""

    weights: Float64Array  # (F,)
    intercept: float
    shift: float = 0.0

    def logits(self, features: Float64Array) -> Float64Array:
        """Return the log-odds (n,) of features (n, F)."""
        return np.asarray(np.clip(features @ self.weights + self.intercept + self.shift, -LIMIT, LIMIT))

    def __call__(self, features: Float64Array) -> Float64Array:
        return sigmoid(self.logits(features))

    @classmethod
    def fitted(
        cls,
        features: Float64Array,
        hits: BoolArray,
        weights: Float64Array | None = None,
        labelled: float = 1.0,
        shift: float = 0.0,
    ) -> Logistic:
        """Fit by maximum likelihood with Fisher scoring and a small ridge penalty.

        Args:
            features: (n, F).
            hits: whether the example is labelled as true, (n,).
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
        return cls(scaled, float(solution[-1] - scaled @ mean), shift)


def sigmoid(logits: Float64Array) -> Float64Array:
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)))


@dataclass(frozen=True)
class TwoCases:
    """A logistic model for entities with edges, and one for entities without any."""

    linked: Logistic
    isolated: Logistic

    def logits(self, features: Float64Array, isolated: BoolArray) -> Float64Array:
        return np.where(isolated, self.isolated.logits(features), self.linked.logits(features))


@dataclass(frozen=True)
class TripleProbability:
    """The fitted probability of triples. `about` records how it was fitted."""

    query: TwoCases  # whether a query has a missing answer
    triple: TwoCases  # whether a triple is true
    screen: TwoCases  # the same without the inverse margin, which costs a search; to drop unlikely triples early
    about: Mapping[str, Any]

    def query_logits(self, features: QueryFeatures) -> Float64Array:
        """Return the log-odds (q,) that queries have a missing answer."""
        return self.query.logits(features.matrix(), features.isolated)

    def save(self, folder: Path) -> None:
        """Write the models into a checkpoint folder, with the checksum of its weights."""
        value = {
            "format": FORMAT,
            "version": VERSION,
            "weights": sha256(folder / "model.safetensors"),
            "about": dict(self.about),
            "features": {"query": list(FEATURES), "triple": list(TRIPLE_FEATURES)},
            **{
                name: {case: plain(getattr(getattr(self, name), case)) for case in ("linked", "isolated")}
                for name in ("query", "triple", "screen")
            },
        }
        with new_file(folder / FILE, owned=True) as partial:
            write_json(partial, value)


def triple_features(
    query: Float64Array, inverse_query: Float64Array, margin: Float64Array, inverse_margin: Float64Array
) -> Float64Array:
    """Return the features (n, 6) of triples from the log-odds of their two queries and their two margins."""
    margins = [np.clip(np.nan_to_num(one, nan=-WIDEST), -WIDEST, WIDEST) for one in (margin, inverse_margin)]
    return np.stack([query, inverse_query, *margins, *(np.minimum(one, 0) for one in margins)], axis=1)


def screen_features(query: Float64Array, inverse_query: Float64Array, margin: Float64Array) -> Float64Array:
    """Return the features (n, 4) of triples that are known before the inverse query is searched."""
    clipped = np.clip(np.nan_to_num(margin, nan=-WIDEST), -WIDEST, WIDEST)
    return np.stack([query, inverse_query, clipped, np.minimum(clipped, 0)], axis=1)


# Reading and writing


def plain(model: Logistic) -> dict[str, Any]:
    return {"weights": model.weights.tolist(), "intercept": model.intercept, "shift": model.shift}


def read_logistic(value: Mapping[str, Any], size: int) -> Logistic:
    weights = np.array(value["weights"], np.float64)
    found = Logistic(weights, float(value["intercept"]), float(value["shift"]))
    if weights.shape != (size,) or not np.isfinite([*weights, found.intercept, found.shift]).all():
        raise ValueError("no logistic model")
    return found


def read_cases(value: Mapping[str, Any], size: int) -> TwoCases:
    return TwoCases(read_logistic(value["linked"], size), read_logistic(value["isolated"], size))


def load(folder: Path) -> TripleProbability | None:
    """Read the probability of triples of a checkpoint folder; None if it was not fitted.

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
        features = {"query": list(FEATURES), "triple": list(TRIPLE_FEATURES)}
        if value["format"] != FORMAT or value["features"] != features:
            raise ValueError("another format")
        found = TripleProbability(
            read_cases(value["query"], len(FEATURES)),
            read_cases(value["triple"], len(TRIPLE_FEATURES)),
            read_cases(value["screen"], 4),
            dict(value["about"]),
        )
        weights = value["weights"]
    except (DamagedError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedError(f"{path} is damaged: run fnftg calibrate again.") from error
    if weights != sha256(Path(folder) / "model.safetensors"):
        raise FnftgError(f"{path} was fitted to other weights: run fnftg calibrate again.")
    return found
