"""P(triple): the probability that a triple which the graph lacks is true.

A triple (h, r, t) answers two queries, (h, r, ?) and (?, r, t). For each query a logistic model estimates whether it
has a missing answer at all, from counts alone (`query_features.py`). A second logistic model combines these two
probabilities with the two margins: how far the score of the triple lies above or below the best other answer.

Both models are fitted to edges that are taken out of the graph at random (`probability_fitting.py`). What the graph
itself lacks is taken out by nobody, but looks the same. The fit therefore assumes a share of missing links: of the true
triples that the reduced graph lacks, only a part, `labelled`, was taken out and counts as a hit. In use fewer links are
missing than in the fit, which `shift` corrects. Entities without any edge, such as new ones described by a text, have
weights of their own, because all their links are missing.

Relations differ in how complete they are. Each relation and direction has an offset, which is fitted after the weights
and shrunk towards 0, so that rare and unseen relations have almost none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int64Array
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_file, sha256
from fnftg.json_files import read_json, write_json
from fnftg.predict.query_features import FEATURES, QueryFeatures

FILE, FORMAT, VERSION = "probability.json", "fnftg-probability", 1
TRIPLE_FEATURES = ("query", "inverse_query", "margin", "inverse_margin", "lag", "inverse_lag")
WIDEST = 3.0  # margins beyond ±WIDEST count as this one
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


@dataclass(frozen=True)
class TwoCases:
    """A logistic model for entities with edges, and one for entities without any."""

    linked: Logistic
    isolated: Logistic

    def logits(self, features: Float64Array, slots: Int64Array, isolated: BoolArray) -> Float64Array:
        """Return the log-odds (n,) of features (n, F), with the model of each example's case."""
        return np.where(isolated, self.isolated.logits(features, slots), self.linked.logits(features, slots))

    def of_queries(self, features: QueryFeatures) -> Float64Array:
        """Return the log-odds (q,) that queries have a missing answer."""
        return self.logits(features.matrix(), features.slots, features.isolated)

    def bound(self, places: Int64Array) -> TwoCases:
        """Return the models for other slots: slot i was `places[i]` before, or is new if that is -1."""

        def moved(model: Logistic) -> Logistic:
            return replace(model, offsets=np.append(model.offsets, 0.0)[places])

        return TwoCases(moved(self.linked), moved(self.isolated))


@dataclass(frozen=True)
class TripleProbability:
    """The fitted probability of triples. `about` records how it was fitted."""

    query: TwoCases  # whether a query has a missing answer
    triple: TwoCases  # whether a triple is true
    screen: TwoCases  # the same without the inverse margin, which costs a search; to drop unlikely triples early
    relations: Sequence[str]  # the R relation ids, in the order of the slots
    about: Mapping[str, Any]

    def query_logits(self, features: QueryFeatures) -> Float64Array:
        """Return the log-odds (q,) that queries have a missing answer."""
        return self.query.of_queries(features)

    def bound(self, relations: Sequence[str]) -> TripleProbability:
        """Return the same probability for a graph with other relations, matched by id."""
        rows = {id_: row for row, id_ in enumerate(self.relations)}
        old = np.array([rows.get(id_, -1) for id_ in relations], np.int64)
        places = np.where(old[:, None] < 0, -1, 2 * old[:, None] + np.arange(2)).ravel()
        models = (model.bound(places) for model in (self.query, self.triple, self.screen))
        return TripleProbability(*models, list(relations), self.about)  # type: ignore[call-arg, arg-type]

    def save(self, folder: Path) -> None:
        """Write the models into a checkpoint folder, with the checksum of its weights."""
        value = {
            "format": FORMAT,
            "version": VERSION,
            "weights": sha256(folder / "model.safetensors"),
            "about": dict(self.about),
            "features": {"query": list(FEATURES), "triple": list(TRIPLE_FEATURES)},
            "relations": list(self.relations),
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
    return {
        "weights": model.weights.tolist(),
        "intercept": model.intercept,
        "shift": model.shift,
        "offsets": model.offsets.tolist(),
    }


def read_logistic(value: Mapping[str, Any], size: int, slots: int) -> Logistic:
    weights, offsets = (np.array(value[name], np.float64) for name in ("weights", "offsets"))
    found = Logistic(weights, float(value["intercept"]), offsets, float(value["shift"]))
    numbers = [*weights, *offsets, found.intercept, found.shift]
    if weights.shape != (size,) or offsets.shape != (slots,) or not np.isfinite(numbers).all():
        raise ValueError("no logistic model")
    return found


def read_cases(value: Mapping[str, Any], size: int, slots: int) -> TwoCases:
    return TwoCases(read_logistic(value["linked"], size, slots), read_logistic(value["isolated"], size, slots))


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
        if value["format"] != FORMAT or value["features"]["query"] != list(FEATURES):
            raise ValueError("another format")
        relations = [str(id_) for id_ in value["relations"]]
        slots = 2 * len(relations)
        found = TripleProbability(
            read_cases(value["query"], len(FEATURES), slots),
            read_cases(value["triple"], len(TRIPLE_FEATURES), slots),
            read_cases(value["screen"], 4, slots),
            relations,
            dict(value["about"]),
        )
        weights = value["weights"]
    except (DamagedError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path} is damaged: run fnftg calibrate again.") from error
    if weights != sha256(Path(folder) / "model.safetensors"):
        raise FnftgError(f"{path} was fitted to other weights: run fnftg calibrate again.")
    return found
