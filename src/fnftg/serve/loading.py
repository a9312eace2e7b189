"""The model that answers, and how it is exchanged for a newer one while requests go on.

A request takes `Keeper.now` once and stays with it to its end; exchanging it is one assignment. What cannot be loaded
is refused, and the old one serves on.
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
from fnftg.serve.metrics import Metrics
from fnftg.serve.options import Options

logger = logging.getLogger("fnftg.serve")
LOOK = 1.0  # seconds between looks at the generation
SHOWN_METRICS = ("mrr", "hits@1", "hits@3", "hits@10")


@dataclass(frozen=True, eq=False)
class Served:
    """A predictor and what is said about it."""

    predictor: Predictor
    about: dict[str, Any]  # as /v1/model has it

    @property
    def checkpoint(self) -> str:
        return str(self.about["checkpoint"])


def loaded(options: Options) -> Served:
    """From the folder as it is now, tried out: what was compiled or opened by the first answer is there already."""
    weights = weights_of(Path(options.run))
    try:
        before = sha256(weights)
    except OSError:
        before = ""
    predictor = load(options.run, options.graph)
    if options.index:
        predictor = predictor.indexed()
    for names in (predictor.entity_names, predictor.relation_names):
        _ = names.table  # open: a newer checkpoint's answers take the place of these files
    _ = predictor.context.neighbours.frequencies
    _ = predictor.model.tt.encoder.model  # loaded now, not by the first new text
    if len(predictor.graph.entities) and len(predictor.graph.relations):
        predictor.many([Question(0, 0)], 1)
    if sha256(weights) != before:
        raise FnftgError(f"The checkpoint of {options.run} was exchanged while it was read: reload once more.")
    return Served(predictor, about(predictor, before))


def weights_of(run: Path) -> Path:
    folder = run / CHECKPOINT
    return (folder if folder.is_dir() else run) / "model.safetensors"


def about(predictor: Predictor, checkpoint: str) -> dict[str, Any]:
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
    """Of the evaluations that were stored for these weights the newest."""
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


class Keeper:
    """Has the model that answers now, none until the first is loaded."""

    def __init__(self, options: Options, metrics: Metrics):
        self.options, self.metrics = options, metrics
        self.now: Served | None = None
        self.stopping = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="fnftg-loading")
        self.turn = asyncio.Lock()
        self.generation = read_generation(options)

    async def load(self) -> Served:
        """Loads what is in the folder and lets it answer; raises `FnftgError` where that is no good."""
        async with self.turn:
            try:
                served = await asyncio.get_running_loop().run_in_executor(self.thread, loaded, self.options)
            except FnftgError:
                self.metrics.reloads.labels("refused").inc()
                raise
            except Exception as error:
                self.metrics.reloads.labels("refused").inc()
                logger.exception("The checkpoint could not be loaded")
                kind = type(error).__name__
                raise FnftgError(f"The checkpoint could not be loaded ({kind}): the log says more.") from error
            again, self.now = self.now is not None, served
            self.metrics.reloads.labels("done" if again else "first").inc()
            self.metrics.model.clear()
            facts = served.about
            self.metrics.model.labels(served.checkpoint, facts["system"], str(facts["graph"]["entities"])).set(1)
            if again:  # the old one goes when its last request ends; what it left in cycles goes now
                asyncio.get_running_loop().run_in_executor(self.thread, gc.collect)
            return served

    async def reload(self) -> Served:
        """Also in the other workers."""
        served = await self.load()
        if self.options.generation is not None:
            self.generation = bump_generation(Path(self.options.generation))
        return served

    async def reload_quietly(self) -> None:
        """For signals, whose sender sees only the log."""
        try:
            served = await self.load()
            logger.warning("Reloaded: checkpoint %s answers now.", served.checkpoint[:16])
        except FnftgError as error:
            logger.error("Not reloaded, the old checkpoint serves on: %s", error)

    async def watch(self) -> None:
        """Reloads when another worker, or the parent, did."""
        while True:
            await asyncio.sleep(LOOK)
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
    """Something that was never there before."""
    newest = datetime.now(timezone.utc).isoformat()
    partial = file.with_name(f"{file.name}.{id(newest)}")
    partial.write_text(newest)
    partial.replace(file)
    return newest
