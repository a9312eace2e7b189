"""Open a graph from a store, a named dataset, or files that have not been imported."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fnftg.errors import FnftgError
from fnftg.kg.datasets import DATASETS, dataset
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_import import import_graph
from fnftg.kg.store import in_memory, is_store


def open_graph(source: str | os.PathLike[str]) -> KnowledgeGraph:
    """Open a store after verifying its checksums, a dataset by name, or files, which are imported into memory."""
    path = Path(source)
    if is_store(path):
        return KnowledgeGraph.open(path, verify=True)
    if path.exists():
        with tempfile.TemporaryDirectory() as folder:
            return KnowledgeGraph(**vars(in_memory(import_graph(path, Path(folder) / "store"))))
    if str(source) in DATASETS:
        return dataset(str(source))
    raise FnftgError(f"{source} does not exist and is not a dataset: check the path, or see fnftg data list.")
