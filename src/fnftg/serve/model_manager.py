"""Loads the model, and replaces it with a newer one while the server answers requests.

A request reads `ModelManager.current` once and uses that model to its end. Replacing the model is a single assignment.
If the new checkpoint cannot be loaded, the server continues with the old one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fnftg
from fnftg.errors import FnftgError
from fnftg.files import sha256
from fnftg.json_files import read_json
from fnftg.memory import hand_back_freed_memory
from fnftg.models.pretrained import CHECKPOINT
from fnftg.models.systems import title
from fnftg.predict.predictor import Predictor, load
from fnftg.predict.questions import Question
from fnftg.ranking.runs import EVALUATIONS
from fnftg.serve.options import Options
from fnftg.serve.server_metrics import Metrics

logger = logging.getLogger("fnftg.serve")
POLL = 1.0  # seconds between two checks of the generation file
SHOWN_METRICS = ("mrr", "hits@1", "hits@3", "hits@10")


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A predictor and its description for /v1/model."""

    predictor: Predictor
    info: dict[str, Any]  # the body of /v1/model

    @property
    def checkpoint(self) -> str:
        return str(self.info["checkpoint"])


def load_model(options: Options) -> LoadedModel:
    """Load the checkpoint and answer one query, so that everything is compiled and open before the first request."""
    weights = weights_of(Path(options.run))
    try:
        before = sha256(weights)
    except OSError:
        before = ""
    predictor = load(options.run, options.graph)
    if options.index:
        predictor = predictor.indexed()
    for names in (predictor.entity_names, predictor.relation_names):
        _ = names.table  # open it now: a newer checkpoint may replace the files
    _ = predictor.context.neighbours.frequencies
    _ = predictor.model.tt.encoder.model  # load it now instead of with the first new text
    if len(predictor.graph.entities) and len(predictor.graph.relations):
        predictor.many([Question(0, 0)], 1)
    if sha256(weights) != before:
        raise FnftgError(f"The checkpoint of {options.run} changed while it was being read: reload again.")
    return LoadedModel(predictor, model_info(predictor, before))


def load_or_explain(options: Options) -> LoadedModel:
    """Load the model; turn every error, including those of native libraries, into an `FnftgError`."""
    try:
        return load_model(options)
    except FnftgError:
        raise
    except BaseException as error:  # signals never arrive on this thread
        logger.exception("Failed to load the checkpoint")
        raise FnftgError(
            f"The checkpoint could not be loaded ({type(error).__name__}): see the server's log."
        ) from error


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
        "calibrated": predictor.probability is not None,
        "metrics": newest_metrics(predictor.run, checkpoint),
        "version": fnftg.__version__,
        "checkpoint": checkpoint,
        "loaded_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def newest_metrics(run: Path, checkpoint: str) -> dict[str, Any] | None:
    """Return the newest stored evaluation of these weights, if any."""
    folder = run / EVALUATIONS
    files = folder.glob("*.json") if folder.is_dir() else ()
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        try:
            found = read_json(file)
            if found["key"][0] == checkpoint:
                figures = {name: float(found[name]) for name in SHOWN_METRICS}
                return {"split": str(found["split"]), "protocol": str(found["protocol"]["name"]), **figures}
        except (FnftgError, ValueError, LookupError, TypeError):
            continue
    return None


def free_old_model() -> None:
    gc.collect()
    hand_back_freed_memory()


class ModelManager:
    """Holds the current model, which is None until the first one is loaded."""

    def __init__(self, options: Options, metrics: Metrics):
        self.options, self.metrics = options, metrics
        self.current: LoadedModel | None = None
        self.stopping = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="fnftg-loading")
        self.lock = asyncio.Lock()
        self.generation = read_generation(options)

    async def load(self) -> LoadedModel:
        """Load the checkpoint in the folder and make it the current model; raise `FnftgError` if that fails."""
        async with self.lock:
            try:
                model = await asyncio.get_running_loop().run_in_executor(self.thread, load_or_explain, self.options)
            except FnftgError:
                self.metrics.reloads.labels("refused").inc()
                raise
            again, self.current = self.current is not None, model
            self.metrics.reloads.labels("done" if again else "first").inc()
            self.metrics.model.clear()
            info = model.info
            self.metrics.model.labels(model.checkpoint, info["system"], str(info["graph"]["entities"])).set(1)
            if again:  # the last request frees the old model; free its reference cycles now
                asyncio.get_running_loop().run_in_executor(self.thread, free_old_model)
            return model

    async def reload(self) -> LoadedModel:
        """Load the newest checkpoint, and make the other workers reload, too."""
        model = await self.load()
        if self.options.generation is not None:
            try:
                self.generation = bump_generation(Path(self.options.generation))
            except OSError as error:
                logger.error("Could not notify the other workers to reload: %s", error)
        return model

    async def reload_quietly(self) -> None:
        """Reload after a signal, and log the outcome."""
        try:
            model = await self.load()
            logger.warning("Reloaded: now serving checkpoint %s.", model.checkpoint[:16])
        except FnftgError as error:
            logger.error("Reload failed, continuing with the old checkpoint: %s", error)

    async def watch(self) -> None:
        """Reload when another worker or the parent process requests it."""
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
    """Write a new value, which makes the workers reload."""
    newest = datetime.now(timezone.utc).isoformat()
    partial = file.with_name(f"{file.name}.{id(newest)}")
    partial.write_text(newest)
    partial.replace(file)
    return newest
