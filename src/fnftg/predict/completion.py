"""Graph completion: the likeliest missing triples of a whole graph, searched part by part.

A part covers some entities and all requested relations, so that each text and ego-graph is encoded once. Finished parts
are stored in a hidden folder beside the output, so an interrupted command loses one part at most.
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
from fnftg.json_files import read_json, write_json
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.models.pretrained import CHECKPOINT
from fnftg.part_files import read_part, write_part
from fnftg.ranking.calibration import margins, rivals
from fnftg.ranking.embedding import parts as embedded_parts
from fnftg.ranking.evaluation import MEMORY
from fnftg.ranking.evidence_scores import EvidenceScores, best_with, evidence_scores
from fnftg.ranking.queries import Filter, Queries
from fnftg.ranking.search import top_answers
from fnftg.text.rows import texts_key

if TYPE_CHECKING:
    from fnftg.predict.predictor import Predictor

Found = npt.NDArray[np.void]  # (n,) with dtype FOUND
FOUND = np.dtype(
    [("head", "<i4"), ("relation", "<i4"), ("tail", "<i4"), ("score", "<f4"), ("probability", "<f8")]
)  # the probability is NaN if the model is not calibrated
QUERIES = 4_096  # per part
DIGITS = 6  # of a written probability; --min-probability compares the rounded value
VERSION = 1  # of the format of the parts


@dataclass(frozen=True)
class Wanted:
    """What to complete.

    Args:
        k: maximum number of answers per query (an entity and a relation).
        relations: rows of the relations; None means all.
        entities: rows of the entities to query; None means all.
        both: also predict heads; a triple found in both directions is kept once, with the better score.
        types: restrict each relation to heads and tails that it already has in the graph, both as query entities and as
            candidates.
        min_probability: drop triples below this probability; needs a calibrated model.
        min_score: drop triples below this score.
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
    """Queries that share their candidates: every entity combined with every label."""

    entities: Int32Array  # (e,)
    labels: Int32Array  # (l,): label r asks for tails of relation r, label R + r for its heads
    candidates: Int32Array | None  # (c,); None means all entities

    @property
    def size(self) -> int:
        return len(self.entities) * len(self.labels)

    def blocks(self) -> Iterator[Int32Array]:
        """Yield the entities of each part."""
        step = max(QUERIES // len(self.labels), 1)
        for start in range(0, len(self.entities), step):
            yield self.entities[start : start + step]


def complete(predictor: Predictor, wanted: Wanted, folder: Path, memory: int = MEMORY) -> Found:
    """Predict the missing triples, sorted by probability (if the model is calibrated), then score, then rows.

    Parts already in the folder are reused if the request, the model and the graph are the same.
    """
    groups = grouped(predictor.graph, wanted)
    with claimed(folder, key_of(predictor, wanted)), torch.inference_mode():
        found = [np.empty(0, FOUND)]
        with progress("Completing", sum(group.size for group in groups), "queries") as advance:
            number = 0
            for group in groups:
                search = Search(predictor, wanted, group, memory)
                for entities in group.blocks():
                    part = read_part(folder, f"{number:06}", FOUND)
                    if part is None:
                        part = search(entities)
                        write_part(folder, f"{number:06}", part)
                    found.append(part)
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
    """Search for the best answers to a group's queries, a block of entities at a time."""

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
        )  # at least two, for the margin of the best
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
        """Return the probabilities of the answers (q, k), or NaN if the model is not calibrated.

        Margins are computed over all entities even with `types`, so that a smaller candidate set does not raise the
        probabilities.
        """
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
        """Embed the queries: (q, d). An entity's queries are adjacent, so a batch encodes its ego-graph once."""
        model, context = self.predictor.model, self.predictor.context
        query_embeddings = np.empty((len(queries.centres), model.width), np.float32)
        for part in embedded_parts(model.ego, context, queries.centres, model.width, self.memory // 8):
            centres = queries.centres[part]
            egos = context.ego_graphs(model.ego, centres, None)
            _, asked = model(context.texts, centres, egos, queries.labels[part], False)
            query_embeddings[part] = asked.float().cpu().numpy()
        return query_embeddings


def best_first(found: Found, entities: int, relations: int) -> Found:
    """Sort the triples and remove duplicates."""
    value = np.where(np.isnan(found["probability"]), found["score"], found["probability"])
    order = np.lexsort((found["tail"], found["relation"], found["head"], -found["score"], -value))
    found = found[order]
    packed = (found["head"].astype(np.int64) * relations + found["relation"]) * entities + found["tail"]
    return found[np.sort(np.unique(packed, return_index=True)[1])]


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
