"""P(triple): the probability that a triple which the graph lacks is true.

A triple (h, r, t) answers two queries, (h, r, ?) and (?, r, t). For each query a logistic model estimates whether it
has a missing answer at all, from counts alone (`query_features.py`). A small network combines these two probabilities
with the two margins (how far the score of the triple lies above or below the best other answer), with the statistics of
the relation, and with how often the other edges between h and t come with r.

Both models are fitted to edges that are taken out of the graph at random (`probability_fitting.py`). What the graph
itself lacks is taken out by nobody, but looks the same. The fit therefore assumes a share of missing links: of the true
triples that the reduced graph lacks, only a part, `labelled`, was taken out and counts as a hit. In use fewer links are
missing than in the fit, which `shift` corrects. Entities without any edge, such as new ones described by a text, have
weights of their own, because all their links are missing.

Relations differ in how complete they are. In the model of queries, each relation and direction has an offset, which is
fitted after the weights and shrunk towards 0, so that rare and unseen relations have almost none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fnftg.arrays import BoolArray, Float64Array, Int64Array
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_file, sha256
from fnftg.json_files import read_json, write_json
from fnftg.predict.logistic import Logistic
from fnftg.predict.query_features import FEATURES, QueryFeatures
from fnftg.predict.small_network import Network

FILE, FORMAT, VERSION = "probability.json", "fnftg-probability", 1
TRIPLE_FEATURES = (
    "query",
    "inverse_query",
    "margin",
    "inverse_margin",
    "lag",
    "inverse_lag",
    "triples",
    "holders",
    "inverse_holders",
    "answers_per_holder",
    "answers_per_inverse_holder",
    "log_implied",
    "implied",
)
SCREEN_FEATURES = 4
CASES = ("linked", "isolated")
WIDEST = 3.0  # margins beyond ±WIDEST count as this one


@dataclass(frozen=True)
class QueryModel:
    """Whether a query has a missing answer: a model for entities with edges, and one for entities without any."""

    linked: Logistic
    isolated: Logistic

    def logits(self, features: Float64Array, slots: Int64Array, isolated: BoolArray) -> Float64Array:
        """Return the log-odds (n,) of features (n, F), with the model of each example's case."""
        return np.where(isolated, self.isolated.logits(features, slots), self.linked.logits(features, slots))

    def of_queries(self, features: QueryFeatures) -> Float64Array:
        """Return the log-odds (q,) that queries have a missing answer."""
        return self.logits(features.matrix(), features.slots, features.isolated)

    def bound(self, places: Int64Array) -> QueryModel:
        """Return the models for other slots: slot i was `places[i]` before, or is new if that is -1."""

        def moved(model: Logistic) -> Logistic:
            return replace(model, offsets=np.append(model.offsets, 0.0)[places])

        return QueryModel(moved(self.linked), moved(self.isolated))


@dataclass(frozen=True)
class TripleModel:
    """Whether a triple is true: a network for triples whose ends have edges, and one for the others."""

    linked: Network
    isolated: Network

    def logits(self, features: Float64Array, isolated: BoolArray) -> Float64Array:
        """Return the log-odds (n,) of features (n, F), with the model of each example's case."""
        return np.where(isolated, self.isolated.logits(features), self.linked.logits(features))


@dataclass(frozen=True)
class TripleProbability:
    """The fitted probability of triples. `about` records how it was fitted."""

    query: QueryModel  # whether a query has a missing answer
    triple: TripleModel  # whether a triple is true
    screen: QueryModel  # the same without the inverse margin, which costs a search; to drop unlikely triples early
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
        query, screen = self.query.bound(places), self.screen.bound(places)
        return replace(self, query=query, screen=screen, relations=list(relations))

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
                name: {case: getattr(getattr(self, name), case).plain() for case in CASES}
                for name in ("query", "triple", "screen")
            },
        }
        with new_file(folder / FILE, owned=True) as partial:
            write_json(partial, value)


def triple_features(
    query: Float64Array, inverse_query: Float64Array, margin: Float64Array, inverse_margin: Float64Array
) -> Float64Array:
    """Return the features (n, 6) of triples that depend on the log-odds of their two queries and their two margins."""
    margins = [np.clip(np.nan_to_num(one, nan=-WIDEST), -WIDEST, WIDEST) for one in (margin, inverse_margin)]
    return np.stack([query, inverse_query, *margins, *(np.minimum(one, 0) for one in margins)], axis=1)


def screen_features(query: Float64Array, inverse_query: Float64Array, margin: Float64Array) -> Float64Array:
    """Return the features (n, 4) of triples that are known before the inverse query is searched."""
    clipped = np.clip(np.nan_to_num(margin, nan=-WIDEST), -WIDEST, WIDEST)
    return np.stack([query, inverse_query, clipped, np.minimum(clipped, 0)], axis=1)


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
        relations = [str(id_) for id_ in value["relations"]]
        slots = 2 * len(relations)
        found = TripleProbability(
            QueryModel(*(Logistic.read(value["query"][case], len(FEATURES), slots) for case in CASES)),
            TripleModel(*(Network.read(value["triple"][case], len(TRIPLE_FEATURES)) for case in CASES)),
            QueryModel(*(Logistic.read(value["screen"][case], SCREEN_FEATURES, slots) for case in CASES)),
            relations,
            dict(value["about"]),
        )
        weights = value["weights"]
    except (DamagedError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedError(f"{path} is damaged: run fnftg calibrate again.") from error
    if weights != sha256(Path(folder) / "model.safetensors"):
        raise FnftgError(f"{path} was fitted to other weights: run fnftg calibrate again.")
    return found
