"""A budget of minutes for a whole table: how many epochs each cell may have, and a stop that comes in time."""

from __future__ import annotations

import math
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fnftg.kg.graph import KnowledgeGraph
from fnftg.training.run_config import RunConfig

STEPS = 6  # timed at most; the first one, which compiles, does not count
SAMPLES = (16, 144)  # test triples that are ranked, to tell what each costs from what the candidates cost
QUICK = 5.0  # seconds of a set-up that found everything in the cache
CAUTION = 0.85  # of the time is planned for, since a machine is not equally fast all the time


class OutOfTime(BaseException):
    """The budget is used up. Like a KeyboardInterrupt it is nobody's error, so nobody handles it on the way."""


class Budget:
    """The time that is left of a command's budget, less what writing the tables and drawing will need."""

    def __init__(self, minutes: float | None, started: float):
        seconds = math.inf if minutes is None else 60 * minutes
        self.limited = minutes is not None
        self.end = started + seconds - min(15.0, 0.1 * seconds) if self.limited else math.inf

    def left(self) -> float:
        return self.end - time.monotonic()

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raises OutOfTime in the block when the budget ends, whatever it is doing."""
        if not self.limited or threading.current_thread() is not threading.main_thread():
            yield
            return
        if self.left() <= 0:
            raise OutOfTime

        def end(number: int, frame: Any) -> None:
            raise OutOfTime

        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, self.left(), 10.0)  # again, should the first one be lost in a destructor
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Timing:
    """What a cell costs, in seconds."""

    first_set_up: float  # with the encoder's work, which the cache keeps
    set_up: float
    step: float
    candidates: float  # of each evaluation
    triple: float  # of each triple that is ranked

    def whole(self, graph: KnowledgeGraph, config: RunConfig, epochs: int, evaluations: int) -> float:
        """Of a run with so many epochs, validations and final evaluations included."""
        training = config.training
        steps = len(graph.triples("train")) // training.batch_size
        val, test = len(graph.triples("val")), len(graph.triples("test"))
        validation = self.candidates + self.triple * min(val, training.validation_triples or val) if val else 0.0
        validations = math.ceil(epochs / training.validate_every)
        ranking = evaluations * (self.candidates + self.triple * test)
        return self.set_up + epochs * steps * self.step + validations * validation + ranking


class EnoughError(Exception):
    """Ends a run that was only timed."""


def timing(graph: KnowledgeGraph, config: RunConfig, cache: Path, limit: float) -> Timing:
    """Times the set-up, a few steps (some `limit` / 2 seconds) and two small evaluations of a run that is thrown away.

    What the set-up computes for good (tokens, features of frozen texts) stays in the cache and is not counted.
    """
    from fnftg.training.loop import Run

    ends: list[float] = []

    def after_step(step: int, loss: float) -> None:
        ends.append(time.monotonic())
        if len(ends) > STEPS or (len(ends) > 1 and ends[-1] - ends[0] > limit / 2):
            raise EnoughError

    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        run = Run(graph, config, Path(folder) / "timed", cache, False, after_step)
        first_set_up = set_up = time.monotonic() - started
        if set_up > QUICK:
            set_up = seconds_of(lambda: Run(graph, config, Path(folder) / "again", cache, False, None))
        started = time.monotonic()
        with suppress(EnoughError):
            run.train()
    steps = sorted(later - earlier for earlier, later in pairwise(ends))
    step = steps[len(steps) // 2] if steps else ends[0] - started
    small, large = (min(sample, len(graph.triples("test"))) for sample in SAMPLES)
    few = seconds_of(lambda: rank(run, graph, small))
    if few < limit / 10:  # the first one may have compiled
        few = seconds_of(lambda: rank(run, graph, small))
    many = seconds_of(lambda: rank(run, graph, large)) if large > small else few
    triple = max(many - few, 0.0) / max(large - small, 1)
    return Timing(first_set_up, set_up, step, max(few - small * triple, 0.0), triple)


def rank(run: Any, graph: KnowledgeGraph, sample: int) -> None:
    from fnftg.ranking.evaluation import split_metrics
    from fnftg.ranking.protocols import protocol

    split_metrics(run.model, graph, run.texts, "test", protocol(run.config.training.protocol), sample)


def seconds_of(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def share_of_epochs(costs: Sequence[Callable[[float], float]], most: int, seconds: float) -> float:
    """The largest share of their epochs that all runs can have within some seconds, so that rows compare as equals.

    `costs` tells the seconds of each run for a share, `most` is the largest number of epochs; where not even the least
    share fits, it is that: as many runs as have room will have one epoch.
    """
    shares = (epochs / most for epochs in range(most, 0, -1))
    return next((share for share in shares if sum(cost(share) for cost in costs) <= seconds), 1 / most)


def epochs_of(share: float, config: RunConfig) -> int:
    return max(1, math.ceil(share * config.training.epochs - 1e-9))
