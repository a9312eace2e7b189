"""The likeliest missing triples of a whole graph, found part by part so that a stop costs one part at most.

A part asks for some entities with all relations wanted, an entity's text and ego-graph serving all of them. What it
found lies in a hidden folder beside the output until the output is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fnftg.arrays import Float32Array, Float64Array, Int32Array, Int64Array
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.files import new_file, sha256
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.models.pretrained import CHECKPOINT
from fnftg.ranking.calibration import margins, rivals
from fnftg.ranking.embedding import parts as embedded_parts
from fnftg.ranking.evaluation import MEMORY
from fnftg.ranking.evidence_scores import EvidenceScores, best_with, evidence_scores
from fnftg.ranking.queries import Filter, Queries
from fnftg.ranking.search import top_answers
from fnftg.text.rows import texts_key

if TYPE_CHECKING:
    from fnftg.predict.predictor import Predictor

Found = npt.NDArray[np.void]  # (n,) of FOUND
FOUND = np.dtype(
    [("head", "<i4"), ("relation", "<i4"), ("tail", "<i4"), ("score", "<f4"), ("probability", "<f8")]
)  # the probability is NaN where the model was not calibrated
QUERIES = 4_096  # of a part
DIGITS = 6  # of a probability, so that those that are written can be asked for
VERSION = 1  # of the parts' format


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Args:
        k: answers at most of each query, an entity with a relation.
        relations: rows; all of them if none is given.
        entities: rows that are asked about; all of them if none is given.
        both: heads are asked for too; a triple that is found both ways stands once, with the better of the two.
        types: a relation's usual heads and tails: only entities that are its head (tail) in the graph already are
            asked for its tails (heads), and only those that are its tail (head) already are candidates.
        min_probability: of the triples that are kept; the model must be calibrated.
        min_score: of the triples that are kept.
    """

    k: int = 10
    relations: tuple[int, ...] | None = None
    entities: tuple[int, ...] | None = None
    both: bool = False
    types: bool = False
    min_probability: float | None = None
    min_score: float | None = None


@dataclass(frozen=True)
class Group:
    """Queries that share their candidates: every entity with every label."""

    entities: Int32Array  # (e,)
    labels: Int32Array  # (l,): a relation r asks for tails, R + r for heads
    candidates: Int32Array | None  # (c,); None: all entities

    @property
    def size(self) -> int:
        return len(self.entities) * len(self.labels)

    def blocks(self) -> Iterator[Int32Array]:
        """The entities of each part."""
        step = max(QUERIES // len(self.labels), 1)
        for start in range(0, len(self.entities), step):
            yield self.entities[start : start + step]


def complete(predictor: Predictor, wanted: Wanted, folder: Path, memory: int = MEMORY) -> Found:
    """The triples found, best first: by probability where the model was calibrated, then by score, then by rows.

    Parts that the folder has already, of the same question to the same model and graph, are not searched again.
    """
    groups = grouped(predictor.graph, wanted)
    with claimed(folder, key_of(predictor, wanted)), torch.inference_mode():
        found = [np.empty(0, FOUND)]
        with progress("Completing", sum(group.size for group in groups), "queries") as advance:
            number = 0
            for group in groups:
                search = Search(predictor, wanted, group, memory)
                for entities in group.blocks():
                    path = folder / f"{number:06}.npy"
                    if not path.is_file():
                        with new_file(path) as partial, open(partial, "wb") as file:
                            np.save(file, search(entities), allow_pickle=False)
                    found.append(read_part(path))
                    advance(len(entities) * len(group.labels))
                    number += 1
    return best_first(np.concatenate(found), len(predictor.graph.entities), len(predictor.graph.relations))


def grouped(graph: KnowledgeGraph, wanted: Wanted) -> list[Group]:
    count = len(graph.relations)
    relations = np.arange(count) if wanted.relations is None else np.unique(wanted.relations)
    labels = np.concatenate([relations, relations + count] if wanted.both else [relations]).astype(np.int32)
    chosen = np.arange(len(graph.entities)) if wanted.entities is None else np.unique(wanted.entities)
    entities = chosen.astype(np.int32)
    if not wanted.types:
        return [Group(entities, labels, None)]
    triples = graph.all_triples()
    groups = []
    for label in labels:
        of_relation = triples[triples[:, 1] == label % count]
        asked, answers = (0, 2) if label < count else (2, 0)
        usual = np.intersect1d(entities, of_relation[:, asked]).astype(np.int32)
        groups.append(Group(usual, np.array([label], np.int32), np.unique(of_relation[:, answers])))
    return [group for group in groups if group.size]


class Search:
    """The best answers of the queries of a group, some of its entities at a time."""

    def __init__(self, predictor: Predictor, wanted: Wanted, group: Group, memory: int):
        self.predictor, self.wanted, self.group, self.memory = predictor, wanted, group, memory
        everyone = np.arange(len(predictor.graph.entities), dtype=np.int32)
        self.candidates = everyone if group.candidates is None else group.candidates
        self.filter = Filter.of(predictor.known, self.candidates, no_self_answers=True)
        in_memory = 4 * len(self.candidates) * predictor.model.width <= memory // 2
        table = predictor.table if group.candidates is None else predictor.table[group.candidates]
        self.table: Float32Array = np.array(table) if in_memory else table

    def __call__(self, entities: Int32Array) -> Found:
        labels = self.group.labels
        queries = Queries(np.repeat(entities, len(labels)), np.tile(labels, len(entities)), entities[:0])
        query_embeddings, k = (
            self.query_embeddings(queries),
            max(self.wanted.k, 2),
        )  # two, so that the first has a rival
        model, memory = self.predictor.model, self.memory // 4
        evidence = evidence_scores(model, self.predictor.context, queries.centres, queries.labels)
        search = partial(top_answers, model, query_embeddings, self.table, k=k, memory=memory)
        among = evidence.among(self.filter.row_of)
        scores, rows = best_with(
            among, model, query_embeddings, self.table, *self.filter(queries), search
        )  # (q, k) each
        probabilities = self.probabilities(queries, query_embeddings, evidence, scores, rows)
        kept = (rows >= 0) & (np.arange(k) < self.wanted.k)
        if self.wanted.min_score is not None:
            kept &= scores >= self.wanted.min_score
        if self.wanted.min_probability is not None:
            kept &= probabilities >= self.wanted.min_probability
        query, place = np.nonzero(kept)
        answers, centres = self.candidates[rows[query, place]], queries.centres[query]
        relations = len(self.predictor.graph.relations)
        for_heads = queries.labels[query] >= relations
        found = np.empty(len(query), FOUND)
        found["head"], found["tail"] = np.where(for_heads, answers, centres), np.where(for_heads, centres, answers)
        found["relation"] = queries.labels[query] % relations
        found["score"], found["probability"] = scores[query, place], probabilities[query, place]
        return found

    def probabilities(
        self,
        queries: Queries,
        query_embeddings: Float32Array,
        evidence: EvidenceScores,
        scores: Float32Array,
        rows: Int64Array,
    ) -> Float64Array:
        """Of what was found (q, k), NaN where the model was not calibrated. Rivals are among all entities, whatever the
        types: an answer is no likelier because few were to choose from."""
        predictor, calibration = self.predictor, self.predictor.calibration
        if calibration is None:
            return np.full(scores.shape, np.nan)
        best, best_answers = scores, rows
        if self.group.candidates is not None:
            offsets, known = predictor.known.with_itself(queries.centres, queries.labels)
            search = partial(
                top_answers, predictor.model, query_embeddings, predictor.table, k=2, memory=self.memory // 4
            )
            best, best_answers = best_with(
                evidence, predictor.model, query_embeddings, predictor.table, offsets, known.astype(np.int64), search
            )
        over = margins(scores, rivals(best, self.candidates[rows] == best_answers[:, :1]))
        return calibration.probabilities(over, queries.labels).round(DIGITS)

    def query_embeddings(self, queries: Queries) -> Float32Array:
        """(q, d); the queries of an entity stand together, so that a batch reads its text and its neighbours once."""
        model, context = self.predictor.model, self.predictor.context
        query_embeddings = np.empty((len(queries.centres), model.width), np.float32)
        for part in embedded_parts(model.ego, context, queries.centres, model.width, self.memory // 8):
            centres = queries.centres[part]
            egos = context.ego_graphs(model.ego, centres, None)
            _, asked = model(context.texts, centres, egos, queries.labels[part], False)
            query_embeddings[part] = asked.float().cpu().numpy()
        return query_embeddings


def best_first(found: Found, entities: int, relations: int) -> Found:
    """Sorted, each triple once."""
    value = np.where(np.isnan(found["probability"]), found["score"], found["probability"])
    order = np.lexsort((found["tail"], found["relation"], found["head"], -found["score"], -value))
    found = found[order]
    packed = (found["head"].astype(np.int64) * relations + found["relation"]) * entities + found["tail"]
    return found[np.sort(np.unique(packed, return_index=True)[1])]


def hits_among(found: Found, triples: Triples, first: int) -> int:
    """How many of the first triples found are among these."""
    best = found[:first]
    rows = np.stack([best["head"], best["relation"], best["tail"]], axis=1)
    counts = np.unique(np.concatenate([rows, np.unique(triples, axis=0)]), axis=0, return_counts=True)[1]
    return int((counts > 1).sum())


# The folder of parts


def key_of(predictor: Predictor, wanted: Wanted) -> dict[str, Any]:
    """What parts depend on."""
    graph, run = predictor.graph, predictor.run
    checkpoint = run / CHECKPOINT if (run / CHECKPOINT).is_dir() else run
    files = [checkpoint / name for name in ("model.safetensors", "calibration.json")]
    triples = hashlib.sha256(np.ascontiguousarray(graph.all_triples()).data).hexdigest()
    return {
        "version": VERSION,
        "files": [sha256(file) if file.is_file() else "" for file in files],
        "graph": [triples, texts_key(graph), len(graph.entities), len(graph.relations)],
        "wanted": json.loads(json.dumps(asdict(wanted))),
    }


@contextmanager
def claimed(folder: Path, key: dict[str, Any]) -> Iterator[None]:
    """Holds the folder of parts, made for this key, against a second process."""
    about = folder / "about.json"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FnftgError(
                f"Another process is working in {folder}: wait for it, or choose another output."
            ) from error
        if not any(folder.glob("*.npy")):
            with new_file(about, force=True) as partial:
                partial.write_text(json.dumps(key), encoding="utf-8")
        try:
            same = json.loads(about.read_text(encoding="utf-8")) == key
        except (OSError, ValueError):
            same = False
        if not same:
            raise FnftgError(
                f"The unfinished parts in {folder} are of another command, model or graph: repeat that command to "
                "finish it, remove the folder to forget it, or choose another output."
            )
        yield


def read_part(path: Path) -> Found:
    try:
        found: Found = np.load(path, allow_pickle=False)
        if found.dtype != FOUND:
            raise ValueError("another format")
    except (OSError, ValueError, EOFError) as error:
        raise FnftgError(f"{path} is damaged: remove it and run the command again.") from error
    return found


def forget(folder: Path) -> None:
    """Once the output is whole."""
    shutil.rmtree(folder, ignore_errors=True)
