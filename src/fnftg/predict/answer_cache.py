"""The cache of everything that prediction needs besides the model, computed once per run and graph.

RUN/answers/WEIGHTS-GRAPH/            named after the checksums of weights and graph
    table.npy                         candidate embeddings (entities, d)
    known.npy                         known triples, packed
    neighbours/                       the edges of every entity
    entity.names.…, relation.names.…  names in alphabetical order
    features.npy, features.index.npy  encoder features of the texts (updated graphs only)
    index/                            nearest-neighbour index (only if requested)
RUN/answers/graph.json                path of the current graph (updated graphs only)
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.array_files import load_array, write_array
from fnftg.arrays import Float32Array, Int32Array
from fnftg.checksums import is_folder_of, verify_folder
from fnftg.console import log
from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_file, new_folder, remove_leftovers, sha256
from fnftg.json_files import read_json, write_json
from fnftg.kg.datasets import data_home
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.pretrained import CHECKPOINT
from fnftg.predict.name_index import NameTable
from fnftg.ranking.embedding import candidate_table
from fnftg.ranking.evaluation import MEMORY
from fnftg.ranking.processes import Processes
from fnftg.text.features import FeatureStore, load_table
from fnftg.text.text_transformer import GraphTexts, pooling_of
from fnftg.text.tokens import TokenStore

ANSWERS, CURRENT = "answers", "graph.json"
NAME = re.compile(r"([0-9a-f]{16})-[0-9a-f]{16}")  # of a cache folder
TABLE, KNOWN, NEIGHBOURS, FEATURES, INDEX = "table.npy", "known.npy", "neighbours", "features.npy", "features.index.npy"


def folder_of(run: Path, graph: KnowledgeGraph) -> Path | None:
    """Return the cache folder of a run and a graph, or None if either is not stored on disk."""
    weights = run / CHECKPOINT / "model.safetensors"
    if graph.path is None or not weights.is_file():
        return None
    return run / ANSWERS / f"{sha256(weights)[:16]}-{sha256(graph.path / 'manifest.json')[:16]}"


def current_graph(run: Path) -> Path | None:
    """Return the store that the last `fnftg update` wrote, or None."""
    file = run / ANSWERS / CURRENT
    try:
        if not file.is_file():
            return None
        graph = read_json(file).get("graph")
    except PermissionError as error:
        raise FnftgError(f"{file} cannot be read: permission denied. Give the run's graph with --graph.") from error
    except DamagedError as error:
        raise FnftgError(f"{error} Give the graph that the last fnftg update wrote with --graph.") from error
    if not isinstance(graph, str):
        raise FnftgError(f"{file} names no graph: give the graph that the last fnftg update wrote with --graph.")
    return Path(graph)


def set_current_graph(run: Path, store: Path) -> None:
    with new_file(run / ANSWERS / CURRENT, owned=True) as partial:
        write_json(partial, {"graph": str(store.resolve())})


def is_whole(folder: Path | None) -> bool:
    """Return whether the folder exists and all its checksums match; log a line if it is damaged or unreadable."""
    try:
        if folder is None or not folder.is_dir():
            return False
        remove_leftovers(folder)
        remove_leftovers(folder.parent / CURRENT)
        verify_folder(folder, ANSWERS)
        return True
    except FnftgError as error:
        log(f"{error} The cached answers are computed again.")
    except OSError as error:
        log(f"{folder} cannot be read: {error.strerror}. The cached answers are computed again.")
    return False


@dataclass(frozen=True)
class Answers:
    """The data that prediction needs besides the model and the graph."""

    texts: GraphTexts
    neighbours: Neighbours
    known: KnownAnswers
    table: Float32Array  # (entities, d)


def get_or_create(folder: Path | None, model: LinkPredictor, graph: KnowledgeGraph) -> tuple[Answers, Path | None]:
    """Return the cached answers and their folder, and compute them first if they are missing or damaged.

    The returned folder is None if the run's folder is not writable.
    """
    if folder is not None and is_whole(folder):
        try:
            return _read(folder, model, graph, graph_texts(model, graph, folder)), folder
        except DamagedError as error:
            log(f"{error} The cached answers are computed again.")
    texts = graph_texts(model, graph, None)
    triples, sizes = graph.all_triples(), (len(graph.entities), len(graph.relations))
    neighbours, known = Neighbours.of(triples, *sizes, model.ego.directions), KnownAnswers.of(triples, *sizes)
    table = embedded(model, GraphContext(texts, neighbours), np.arange(sizes[0], dtype=np.int32))
    if folder is None or not _create(folder, lambda partial: write_answers(partial, graph, neighbours, known, table)):
        return Answers(texts, neighbours, known, table), None
    return _read(folder, model, graph, texts), folder


def _read(folder: Path, model: LinkPredictor, graph: KnowledgeGraph, texts: GraphTexts) -> Answers:
    sizes = len(graph.entities), len(graph.relations)
    neighbours = Neighbours.open(folder / NEIGHBOURS, *sizes)
    known = KnownAnswers.open(folder / KNOWN, *sizes)
    return Answers(texts, neighbours, known, load_vectors(folder, sizes[0], model.width))


def _create(folder: Path, make: Callable[[Path], None]) -> bool:
    """Write the folder unless this user may not; return whether it was written."""
    existing = (path for path in (folder.parents[1], folder.parent, folder) if os.path.lexists(path))
    if not all(os.access(path, os.R_OK | os.W_OK | os.X_OK) for path in existing):
        return False
    with new_folder(folder, ANSWERS, owned=True) as partial:
        make(partial)
    for other in folder.parent.iterdir():  # caches of older weights
        name = NAME.fullmatch(other.name)
        if name and not folder.name.startswith(name[1]) and is_folder_of(other, ANSWERS):
            shutil.rmtree(other, ignore_errors=True)
    return True


def write_answers(folder: Path, graph: KnowledgeGraph, neighbours: Neighbours, known: KnownAnswers, table: Any) -> None:
    write_array(folder / TABLE, table)
    write_rest(folder, graph, neighbours, known)


def write_rest(folder: Path, graph: KnowledgeGraph, neighbours: Neighbours, known: KnownAnswers) -> None:
    """Write everything except the table."""
    write_array(folder / KNOWN, known.packed)
    neighbours.write(folder / NEIGHBOURS)
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        NameTable.of(vocabulary).save(folder, kind)


def load_vectors(folder: Path, entities: int, width: int) -> Float32Array:
    """Open the candidate embeddings (entities, d) as a memory map."""
    return load_array(folder / TABLE, np.float32, (entities, width), mode="c")


@torch.inference_mode()
def embedded(model: LinkPredictor, context: GraphContext, rows: Int32Array) -> Float32Array:
    """Embed entities as candidates: (n, d)."""
    return candidate_table(model.eval(), context, rows, MEMORY, Processes())


def graph_texts(model: LinkPredictor, graph: KnowledgeGraph, folder: Path | None) -> GraphTexts:
    """Return the texts of a graph with the encoder features that the model needs, from the folder if it has them."""
    cache, text = data_home() / "texts", model.config.text
    has_features = folder is not None and (folder / FEATURES).is_file()
    if folder is not None and has_features:
        tokens = TokenStore.of(graph, model.tt.encoder, text.words, cache)
        table = load_table(folder, FEATURES, INDEX, model.tt.encoder.hidden, len(tokens))
        pooling, budget = pooling_of(text, model.tt.encoder), text.token_budget
        features = FeatureStore(model.tt.encoder, tokens, pooling, table, budget, precision=text.precision)
        sizes = len(graph.entities), len(graph.relations)
        return GraphTexts(tokens, features, *sizes, vocabulary=graph.entities, cache=cache)
    if text.training != "finetune-centre":
        return model.texts(graph, cache)
    texts = GraphTexts.of(graph, model.tt.encoder, text, cache)  # features are computed with the current weights
    texts.features = FeatureStore.of(model.tt.encoder, texts.tokens, model.tt.pooling, cache, text.token_budget)
    return texts
