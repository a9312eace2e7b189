"""Graph completion: the likeliest missing triples of a whole graph, searched part by part.

Only queries that may have a missing answer are asked (`link_search.py`), so a graph costs what its likely links cost,
not entities × relations. A part covers some entities. Finished parts are stored in a hidden folder beside the output,
so an interrupted command loses one part at most.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fnftg.arrays import Int32Array
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.files import new_file, sha256
from fnftg.json_files import read_json, write_json
from fnftg.kg.graph import Triples
from fnftg.models.pretrained import CHECKPOINT
from fnftg.part_files import read_part, write_part
from fnftg.predict.link_search import ROUND, FoundLinks, LinkSearch
from fnftg.predict.logistic import sigmoid
from fnftg.predict.query_features import NEAREST, has_nearest_texts, likely_queries
from fnftg.predict.triple_probability import TripleProbability
from fnftg.text.rows import texts_key

if TYPE_CHECKING:
    from fnftg.predict.predictor import Predictor

Found = npt.NDArray[np.void]  # (n,) with dtype FOUND
FOUND = np.dtype([("head", "<i4"), ("relation", "<i4"), ("tail", "<i4"), ("score", "<f4"), ("probability", "<f8")])
ENTITIES = 2_048  # per part
MANY = 1_000  # from this number of entities on, all nearest texts are computed in advance
ASK, SCREEN = 2, 4  # how far the probability of a query, or of the first look, may lie below that of a triple
DIGITS = 6  # of a written probability; --min-probability compares the rounded value
VERSION = 2  # of the format of the parts


@dataclass(frozen=True)
class Wanted:
    """What to complete.

    Args:
        k: maximum number of answers per query (an entity and a relation).
        relations: rows of the relations; None means all.
        entities: rows of the entities to query; None means all.
        min_probability: drop triples below this probability, and do not ask queries that are less likely to have a
            missing answer.
    """

    k: int = 10
    relations: tuple[int, ...] | None = None
    entities: tuple[int, ...] | None = None
    min_probability: float = 0.02


@dataclass(frozen=True)
class Completion:
    """The triples, likeliest first, and how many queries were asked to find them."""

    triples: Found
    asked: int


def complete(
    predictor: Predictor, wanted: Wanted, folder: Path, report: Callable[[Found], None] | None = None
) -> Completion:
    """Predict the missing triples, sorted by probability, then score, then rows.

    Parts already in the folder are reused if the request, the model and the graph are the same. `report` gets the
    triples of each part as soon as they are known, unsorted; a triple may come twice.

    Raises:
        FnftgError: if P(triple) was not fitted.
    """
    probability = needed(predictor)
    everyone = np.arange(len(predictor.graph.entities)) if wanted.entities is None else np.unique(wanted.entities)
    entities = everyone.astype(np.int32)
    search = PartSearch(predictor, probability, wanted)
    if len(entities) >= MANY and has_nearest_texts(predictor.context):
        predictor.context.texts.precompute_nearest_texts(NEAREST)
    with claimed(folder, key_of(predictor, wanted)), torch.inference_mode():
        found, asked = [np.empty(0, FOUND)], 0
        with progress("Completing", len(entities), "entities") as advance:
            for number, start in enumerate(range(0, len(entities), ENTITIES)):
                part = read_part(folder, f"{number:06}", FOUND)
                if part is None:
                    part, count = search(entities[start : start + ENTITIES])
                    asked += count
                    write_part(folder, f"{number:06}", part)
                found.append(part)
                if report is not None:
                    report(part)
                advance(len(entities[start : start + ENTITIES]))
    sizes = len(predictor.graph.entities), len(predictor.graph.relations)
    return Completion(best_first(np.concatenate(found), *sizes), asked)


def needed(predictor: Predictor) -> TripleProbability:
    """Return P(triple) of a predictor; raise FnftgError if it was not fitted."""
    if predictor.probability is None:
        raise FnftgError(f"{predictor.run} has no probabilities of triples: run fnftg calibrate {predictor.run} first.")
    return predictor.probability


class PartSearch:
    """Searches for the missing links of a block of entities."""

    def __init__(self, predictor: Predictor, probability: TripleProbability, wanted: Wanted):
        self.predictor, self.probability, self.wanted = predictor, probability, wanted
        self.search = LinkSearch(predictor, wanted.k)

    def __call__(self, entities: Int32Array) -> tuple[Found, int]:
        """Return the likely triples, each once, and the number of queries that were asked."""
        predictor, probability, wanted = self.predictor, self.probability, self.wanted
        centres, labels, features = likely_queries(predictor.context, entities)
        asked = sigmoid(probability.query_logits(features)) >= wanted.min_probability / ASK
        if wanted.relations is not None:
            asked &= np.isin(labels % len(predictor.graph.relations), wanted.relations)
        places = np.flatnonzero(asked)
        parts = []
        for start in range(0, len(places), ROUND):
            part = places[start : start + ROUND]
            found = self.search.candidates(centres[part], labels[part], features.take(part))
            first_look = sigmoid(probability.screen.logits(*found.screen(probability.query)))
            parts.append(found.take(first_look >= wanted.min_probability / SCREEN))
        if not parts:
            return np.empty(0, FOUND), 0
        links = FoundLinks.combined(parts)
        values = self.search.inputs(links).probabilities(probability).round(DIGITS)
        likely = values >= wanted.min_probability
        triples = np.empty(int(likely.sum()), FOUND)
        columns = links.heads, links.relations, links.tails, links.scores, values
        for name, column in zip(("head", "relation", "tail", "score", "probability"), columns, strict=True):
            triples[name] = np.asarray(column)[likely]
        return triples, len(places)


def best_first(found: Found, entities: int, relations: int) -> Found:
    """Sort the triples and remove duplicates."""
    order = np.lexsort((found["tail"], found["relation"], found["head"], -found["score"], -found["probability"]))
    found = found[order]
    packed = (found["head"].astype(np.int64) * relations + found["relation"]) * entities + found["tail"]
    return found[np.sort(np.unique(packed, return_index=True)[1])]


def expected_precision(found: Found, precision: float) -> Found:
    """Return the longest beginning of sorted triples whose mean probability is at least `precision`."""
    means = np.cumsum(found["probability"]) / np.arange(1, len(found) + 1)
    return found[: int((means >= precision).sum())]  # means do not rise, as the probabilities do not


def hits_among(found: Found, triples: Triples, first: int) -> int:
    """Count how many of the `first` best triples are among `triples`."""
    best = found[:first]
    rows = np.stack([best["head"], best["relation"], best["tail"]], axis=1)
    counts = np.unique(np.concatenate([rows, np.unique(triples, axis=0)]), axis=0, return_counts=True)[1]
    return int((counts > 1).sum())


# The folder of parts


def key_of(predictor: Predictor, wanted: Wanted) -> dict[str, Any]:
    """Return everything that the parts depend on, as JSON."""
    graph, run = predictor.graph, predictor.run
    checkpoint = run / CHECKPOINT if (run / CHECKPOINT).is_dir() else run
    files = [checkpoint / name for name in ("model.safetensors", "probability.json")]
    triples = hashlib.sha256(np.ascontiguousarray(graph.all_triples()).data).hexdigest()
    return {
        "version": VERSION,
        "files": [sha256(file) if file.is_file() else "" for file in files],
        "graph": [triples, texts_key(graph), len(graph.entities), len(graph.relations)],
        "wanted": json.loads(json.dumps(asdict(wanted))),
    }


@contextmanager
def claimed(folder: Path, key: dict[str, Any]) -> Iterator[None]:
    """Lock the folder of parts for this process, and check that its parts belong to this key."""
    about = folder / "about.json"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FnftgError(
                f"Another process is using {folder}: wait for it to finish, or choose another output."
            ) from error
        if not any(folder.glob("*.npy")):
            with new_file(about, owned=True) as partial:
                write_json(partial, key)
        try:
            same = read_json(about) == key
        except FnftgError:
            same = False
        if not same:
            raise FnftgError(
                f"{folder} holds unfinished parts of another command, model or graph: run that command again to "
                "finish it, delete the folder, or choose another output."
            )
        yield


def forget(folder: Path) -> None:
    """Delete the parts once the output is complete."""
    shutil.rmtree(folder, ignore_errors=True)
