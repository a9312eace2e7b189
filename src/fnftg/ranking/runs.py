"""The folder of a run.

RUN/config.json                            graph, its key and config, written when training starts
RUN/log.csv                                the learning curve
RUN/checkpoint/                            the best model
RUN/evaluations/SPLIT-PROTOCOL.json        results, written by `fnftg evaluate` and `fnftg report`
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fnftg.console import log
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_file, sha256
from fnftg.json_files import read_json, write_json
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.models.pretrained import CHECKPOINT
from fnftg.ranking.protocols import Protocol
from fnftg.text.rows import graph_key

CONFIG, LOG, EVALUATIONS = "config.json", "log.csv", "evaluations"


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and its files."""

    path: Path

    @property
    def is_run(self) -> bool:
        """Whether the folder is a run, not a model."""
        return (self.path / CHECKPOINT).is_dir()

    def started_with(self) -> dict[str, Any]:
        """Return the graph's path and key and the config of the run as {graph, graph_key, config}.

        The key is None in runs of fnftg 0.3 and older.
        """
        try:
            values = read_json(self.path / CONFIG)
        except DamagedError as error:
            if not (self.path / CONFIG).is_file():
                raise FnftgError(f"{self.path} is not the folder of a run: it has no {CONFIG}.") from error
            raise
        if not isinstance(values.get("graph"), str) or not isinstance(values.get("config"), dict):
            raise FnftgError(f"{self.path} is not the folder of a run: its {CONFIG} has no graph and config.")
        return {"graph": values["graph"], "graph_key": values.get("graph_key"), "config": values["config"]}

    @property
    def store(self) -> Path | None:
        """The path of the graph that the run was trained on, None if that was in memory."""
        store = self.started_with()["graph"]
        return Path(store) if store else None

    def graph(self) -> KnowledgeGraph:
        """Open the graph that the run was trained on. Raises an `FnftgError` if another graph is at its path."""
        store, key = self.store, self.started_with()["graph_key"]
        if store is None:
            raise FnftgError(f"{self.path} was trained on a graph in memory: name a graph with --graph.")
        if not store.exists():
            raise FnftgError(f"The graph of {self.path} is no longer at {store}: name the graph with --graph.")
        if not store.is_absolute():  # of fnftg 0.3 or older
            log(f"{self.path} names its graph by a relative path: using {store.resolve()}; --graph names another.")
        graph = open_graph(store)
        if key not in (None, graph_key(graph)):
            raise FnftgError(
                f"The graph at {store} is not the one that {self.path} was trained on: name the graph to use with "
                "--graph."
            )
        return graph

    def learning_curve(self) -> pl.DataFrame:
        """Read the log, without empty columns."""
        try:
            rows = pl.read_csv(self.path / LOG, infer_schema_length=None)
        except (OSError, pl.exceptions.PolarsError):
            return pl.DataFrame()
        return rows.select(column.name for column in rows if column.null_count() < len(column))

    def key(self, graph: KnowledgeGraph) -> list[str]:
        """Return a key of the weights and the graph, to detect stale results."""
        weights = sha256(self.path / CHECKPOINT / "model.safetensors")
        return [weights, sha256(graph.path / "manifest.json") if graph.path else ""]

    def get_or_create(
        self,
        graph: KnowledgeGraph,
        split: str,
        protocol: Protocol,
        compute: Callable[[], dict[str, Any]],
        anew: bool = False,
    ) -> dict[str, Any]:
        """Return the results of a split under a protocol, from the folder or by calling `compute`.

        Saved results are used only if they belong to the same weights and graph, and not with `anew`.
        """
        file = self.path / EVALUATIONS / f"{split}-{protocol.name}.json"
        key = self.key(graph)
        if not anew:
            try:
                found = read_json(file)
                if found.pop("key", None) == key:
                    return found
            except FnftgError as error:
                if file.is_file():
                    log(f"{error} The results are computed again.")
        found = compute()
        try:
            with new_file(file, owned=True) as partial:
                write_json(partial, {"key": key, **found})
        except (FnftgError, OSError) as error:
            log(f"The results were not saved: {error}")
        return found


def check_writable(folder: Path) -> None:
    """Raise FnftgError if a folder cannot be written to, before a long computation starts."""
    folder = folder.absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise FnftgError(f"{there} cannot be written to: change its permissions, or choose another folder.")
