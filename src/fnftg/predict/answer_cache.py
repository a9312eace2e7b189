"""What answers need beside the model, made once for a run and a graph, and mapped into memory ever after.

RUN/answers/WEIGHTS-GRAPH/            named after checksums of both
    table.npy                         (entities, d): the candidates' vectors
    known.npy                         the known links, packed
    neighbours/                       the edges around every entity
    entity.names.…, relation.names.…  names in alphabetical order
    features.npy, features.index.npy  of an updated graph: the texts as the encoder reads them
    hnsw/                             an index, where one was asked for
RUN/answers/graph.json                of an updated graph: where it is
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.arrays import Float32Array, Int32Array
from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.files import new_file, new_folder, sha256
from fnftg.kg.datasets import data_home
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.store import write_array
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.pretrained import CHECKPOINT
from fnftg.predict.name_index import NameTable
from fnftg.ranking.embedding import candidate_table
from fnftg.ranking.evaluation import MEMORY
from fnftg.ranking.processes import Processes
from fnftg.text.features import FeatureStore, FlatTable
from fnftg.text.text_transformer import GraphTexts, pooling_of
from fnftg.text.tokens import TokenStore

ANSWERS, CURRENT = "answers", "graph.json"
TABLE, KNOWN, NEIGHBOURS, FEATURES, INDEX = "table.npy", "known.npy", "neighbours", "features.npy", "features.index.npy"


def folder_of(run: Path, graph: KnowledgeGraph) -> Path | None:
    """Where the answers of a run and a graph are kept; None where there is no place for them."""
    weights = run / CHECKPOINT / "model.safetensors"
    if graph.path is None or not weights.is_file():
        return None
    return run / ANSWERS / f"{sha256(weights)[:16]}-{sha256(graph.path / 'manifest.json')[:16]}"


def current_graph(run: Path) -> Path | None:
    """The store that `fnftg update` wrote last."""
    try:
        return Path(json.loads((run / ANSWERS / CURRENT).read_text(encoding="utf-8"))["graph"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def set_current_graph(run: Path, store: Path) -> None:
    with new_file(run / ANSWERS / CURRENT, force=True) as partial:
        partial.write_text(json.dumps({"graph": str(store.resolve())}, indent=2) + "\n", encoding="utf-8")


def get_or_create(folder: Path | None, make: Callable[[Path], None]) -> bool:
    """Whether the folder is there, made now if need be; a run that cannot be written to keeps nothing."""
    if folder is None:
        return False
    if folder.is_dir():
        return True
    if not os.access(folder.parents[1], os.W_OK):
        return False
    try:
        with new_folder(folder) as partial:
            make(partial)
    except FnftgError:
        if not folder.is_dir():  # else another process was faster
            raise
    for other in folder.parent.iterdir():  # what older weights left
        if other.is_dir() and other.name[0] != "." and other.name.split("-")[0] != folder.name.split("-")[0]:
            shutil.rmtree(other, ignore_errors=True)
    return True


def write_answers(folder: Path, graph: KnowledgeGraph, neighbours: Neighbours, known: KnownAnswers, table: Any) -> None:
    write_array(folder / TABLE, table)
    write_rest(folder, graph, neighbours, known)


def write_rest(folder: Path, graph: KnowledgeGraph, neighbours: Neighbours, known: KnownAnswers) -> None:
    """All but the table."""
    write_array(folder / KNOWN, known.packed)
    neighbours.save(folder / NEIGHBOURS)
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        NameTable.of(vocabulary).save(folder, kind)


def mapped(folder: Path, name: str) -> Any:
    """An array that is read as it is needed and never written, though numpy may: then in memory alone."""
    try:
        return np.load(folder / name, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FnftgError(
            f"The answers in {folder} are damaged: delete this folder, and they will be made anew."
        ) from error


@torch.inference_mode()
def embedded(model: LinkPredictor, context: GraphContext, rows: Int32Array) -> Float32Array:
    """The vectors of entities as candidates: (n, d)."""
    return candidate_table(model.eval(), context, rows, MEMORY, Processes())


def graph_texts(model: LinkPredictor, graph: KnowledgeGraph, folder: Path | None) -> GraphTexts:
    """The texts of a graph, with the encoder's features where the model needs them: kept ones if there are any."""
    cache, text = data_home() / "texts", model.config.text
    has_features = folder is not None and (folder / FEATURES).is_file()
    if folder is not None and has_features:
        tokens = TokenStore.of(graph, model.tt.encoder, text.words, cache)
        table = FlatTable(mapped(folder, FEATURES), mapped(folder, INDEX))
        pooling, budget = pooling_of(text, model.tt.encoder), text.token_budget
        features = FeatureStore(model.tt.encoder, tokens, pooling, table, budget, precision=text.precision)
        sizes = len(graph.entities), len(graph.relations)
        return GraphTexts(tokens, features, *sizes, vocabulary=graph.entities, cache=cache)
    if text.training != "finetune-centre":
        return model.texts(graph, cache)
    texts = GraphTexts.of(graph, model.tt.encoder, text, cache)  # and its features, by the weights it has now
    texts.features = FeatureStore.of(model.tt.encoder, texts.tokens, model.tt.pooling, cache, text.token_budget)
    return texts
