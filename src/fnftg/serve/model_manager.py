"""Loads the model that answers, and replaces it by a newer one while the server answers requests.

A request reads `ModelManager.current` once and uses that model to its end; replacing it is one assignment. If the new
checkpoint cannot be loaded, the server continues with the old one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fnftg
from fnftg.errors import FnftgError
from fnftg.files import sha256
from fnftg.models.pretrained import CHECKPOINT
from fnftg.models.systems import title
from fnftg.predict.predictor import Predictor, load
from fnftg.predict.questions import Question
from fnftg.ranking.runs import EVALUATIONS
from fnftg.serve.options import Options
from fnftg.serve.server_metrics import Metrics

logger = logging.getLogger("fnftg.serve")
POLL = 1.0  # seconds between two checks of the generation
SHOWN_METRICS = ("mrr", "hits@1", "hits@3", "hits@10")


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A predictor and the information that /v1/model gives about it."""

    predictor: Predictor
    info: dict[str, Any]  # the JSON of /v1/model

    @property
    def checkpoint(self) -> str:
        return str(self.info["checkpoint"])


def load_model(options: Options) -> LoadedModel:
    """Loads the checkpoint and answers one query, so that all is compiled and opened before the first request."""
    weights = weights_of(Path(options.run))
    try:
        before = sha256(weights)
    except OSError:
        before = ""
    predictor = load(options.run, options.graph)
    if options.index:
        predictor = predictor.indexed()
    for names in (predictor.entity_names, predictor.relation_names):
        _ = names.table  # opened now: a newer checkpoint may replace these files
    _ = predictor.context.neighbours.frequencies
    _ = predictor.model.tt.encoder.model  # loaded now, not by the first new text
    if len(predictor.graph.entities) and len(predictor.graph.relations):
        predictor.many([Question(0, 0)], 1)
    if sha256(weights) != before:
        raise FnftgError(f"The checkpoint of {options.run} changed while it was read: reload again.")
    return LoadedModel(predictor, model_info(predictor, before))


def weights_of(run: Path) -> Path:
    folder = run / CHECKPOINT
    return (folder if folder.is_dir() else run) / "model.safetensors"


def model_info(predictor: Predictor, checkpoint: str) -> dict[str, Any]:
    model, graph = predictor.model, predictor.graph
    return {
        "name": predictor.run.resolve().name,
        "system": title(model.system, model.config),
        "encoder": model.config.text.encoder,
        "width": model.width,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "graph": {
            "name": None if graph.path is None else graph.path.name,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "triples": sum(len(triples) for triples in graph.splits.values()),
        },
        "calibrated": predictor.calibration is not None,
        "metrics": newest_metrics(predictor.run, checkpoint),
        "version": fnftg.__version__,
        "checkpoint": checkpoint,
        "loaded_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def newest_metrics(run: Path, checkpoint: str) -> dict[str, Any] | None:
    """The newest stored evaluation of these weights."""
    folder = run / EVALUATIONS
    files = folder.glob("*.json") if folder.is_dir() else ()
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["key"][0] == checkpoint:
                figures = {name: float(found[name]) for name in SHOWN_METRICS}
                return {"split": str(found["split"]), "protocol": str(found["protocol"]["name"]), **figures}
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return None


class ModelManager:
    """Holds the model that answers; None until the first one is loaded."""

    def __init__(self, options: Options, metrics: Metrics):
        self.options, self.metrics = options, metrics
        self.current: LoadedModel | None = None
        self.stopping = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="fnftg-loading")
        self.lock = asyncio.Lock()
        self.generation = read_generation(options)

    async def load(self) -> LoadedModel:
        """Loads the checkpoint in the folder and makes it the current model; raises `FnftgError` if that fails."""
        async with self.lock:
            try:
                model = await asyncio.get_running_loop().run_in_executor(self.thread, load_model, self.options)
            except FnftgError:
                self.metrics.reloads.labels("refused").inc()
                raise
            except Exception as error:
                self.metrics.reloads.labels("refused").inc()
                logger.exception("The checkpoint could not be loaded")
                kind = type(error).__name__
                raise FnftgError(f"The checkpoint could not be loaded ({kind}): see the log.") from error
            again, self.current = self.current is not None, model
            self.metrics.reloads.labels("done" if again else "first").inc()
            self.metrics.model.clear()
            info = model.info
            self.metrics.model.labels(model.checkpoint, info["system"], str(info["graph"]["entities"])).set(1)
            if again:  # the old model is freed with its last request; its reference cycles are freed now
                asyncio.get_running_loop().run_in_executor(self.thread, gc.collect)
            return model

    async def reload(self) -> LoadedModel:
        """Loads, and tells the other workers to reload."""
        model = await self.load()
        if self.options.generation is not None:
            self.generation = bump_generation(Path(self.options.generation))
        return model

    async def reload_quietly(self) -> None:
        """Loads after a signal: the outcome goes to the log."""
        try:
            model = await self.load()
            logger.warning("Reloaded: checkpoint %s is in use.", model.checkpoint[:16])
        except FnftgError as error:
            logger.error("Not reloaded, the server continues with the old checkpoint: %s", error)

    async def watch(self) -> None:
        """Reloads when another worker or the parent process asks for it."""
        while True:
            await asyncio.sleep(POLL)
            newest = read_generation(self.options)
            if newest != self.generation:
                self.generation = newest
                await self.reload_quietly()


def read_generation(options: Options) -> str:
    try:
        return "" if options.generation is None else Path(options.generation).read_text()
    except OSError:
        return ""


def bump_generation(file: Path) -> str:
    """Writes a new value, which tells the workers to reload."""
    newest = datetime.now(timezone.utc).isoformat()
    partial = file.with_name(f"{file.name}.{id(newest)}")
    partial.write_text(newest)
    partial.replace(file)
    return newest
