"""Opens a graph from any source: a store, a named dataset, or files that were not imported."""

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
    """A store (its checksums compared), a dataset by name, or a source that is read into memory as `import` would."""
    path = Path(source)
    if is_store(path):
        return KnowledgeGraph.open(path, verify=True)
    if path.exists():
        with tempfile.TemporaryDirectory() as folder:
            return KnowledgeGraph(**vars(in_memory(import_graph(path, Path(folder) / "store"))))
    if str(source) in DATASETS:
        return dataset(str(source))
    raise FnftgError(f"{source} is neither a store, nor a source, nor a dataset: see fnftg data list.")
