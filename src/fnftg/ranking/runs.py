"""The folder of a run, as ranking sees it: which model, trained on which graph, and what is known about it so far.

RUN/config.json                            graph and config, written when training begins
RUN/log.csv                                the learning curve
RUN/checkpoint/                            the model
RUN/evaluations/SPLIT-PROTOCOL.json        results, written by `fnftg evaluate` and `fnftg report`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fnftg.errors import FnftgError
from fnftg.files import new_file, sha256
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.models.pretrained import CHECKPOINT
from fnftg.ranking.protocols import Protocol

CONFIG, LOG, EVALUATIONS = "config.json", "log.csv", "evaluations"


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def is_run(self) -> bool:
        """Or else the folder of a model alone."""
        return (self.path / CHECKPOINT).is_dir()

    def started_with(self) -> dict[str, Any]:
        """{graph, config}"""
        try:
            values: dict[str, Any] = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
            return {"graph": values["graph"], "config": values["config"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FnftgError(f"{self.path} is not the folder of a run: it has no readable {CONFIG}.") from error

    def graph(self) -> KnowledgeGraph:
        """The graph that the run was trained on."""
        store = self.started_with()["graph"]
        if not store:
            raise FnftgError(f"{self.path} was trained on a graph that is no store: name the graph with --graph.")
        if not Path(store).exists():
            raise FnftgError(f"The graph of {self.path} is gone from {store}: name the graph with --graph.")
        return open_graph(store)

    def learning_curve(self) -> pl.DataFrame:
        """The columns of the log that hold something."""
        try:
            rows = pl.read_csv(self.path / LOG, infer_schema_length=None)
        except (OSError, pl.exceptions.PolarsError):
            return pl.DataFrame()
        return rows.select(column.name for column in rows if column.null_count() < len(column))

    def key(self, graph: KnowledgeGraph) -> list[str]:
        """Changes with the weights and with the graph: results of others are stale."""
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
        """The results of a split under a protocol: those in the folder if they are of these weights and this graph."""
        file = self.path / EVALUATIONS / f"{split}-{protocol.name}.json"
        key = self.key(graph)
        if not anew:
            try:
                found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
                if found.pop("key") == key:
                    return found
            except (OSError, ValueError, KeyError, AttributeError):
                pass
        found = compute()
        with new_file(file, force=True) as partial:
            partial.write_text(json.dumps({"key": key, **found}, indent=2) + "\n", encoding="utf-8")
        return found


def parse_size(words: str) -> int:
    """2GB, 512MB, or a number of bytes."""
    text = words.strip().upper().removesuffix("B").removesuffix("I")
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:], 1)
    try:
        size = int(float(text.rstrip("KMGT")) * factor)
    except (ValueError, OverflowError) as error:
        raise FnftgError(f"{words!r} is no size of memory: write 512MB or 2GB.") from error
    if not 1 << 24 <= size <= sys.maxsize:
        raise FnftgError(f"A memory of {words} is not between 16 MB and what can be addressed: write 512MB or 2GB.")
    return size
