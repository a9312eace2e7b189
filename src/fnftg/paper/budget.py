"""A time budget for a whole table: it limits the epochs of each cell and stops the command in time."""

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

STEPS = 6  # steps timed at most; the first one compiles and does not count
SAMPLES = (16, 144)  # test triples to rank; two sizes separate the cost per triple from the cost of the candidates
QUICK = 5.0  # seconds; a faster set-up found everything in the cache
CAUTION = 0.85  # share of the time that is planned for, since the speed of a machine varies


class OutOfTime(BaseException):
    """The budget is used up. Like KeyboardInterrupt, this is not an error and must not be caught on the way."""


class Budget:
    """The remaining time of a command's budget, minus the time to write tables and figures."""

    def __init__(self, minutes: float | None, started: float):
        seconds = math.inf if minutes is None else 60 * minutes
        self.limited = minutes is not None
        self.end = started + seconds - min(15.0, 0.1 * seconds) if self.limited else math.inf

    def left(self) -> float:
        return self.end - time.monotonic()

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise OutOfTime in the block as soon as the budget ends."""
        if not self.limited or threading.current_thread() is not threading.main_thread():
            yield
            return
        if self.left() <= 0:
            raise OutOfTime

        def end(number: int, frame: Any) -> None:
            raise OutOfTime

        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, self.left(), 10.0)  # repeat in case the first signal is lost
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Timing:
    """The cost of a cell in seconds."""

    first_set_up: float  # includes encoding the texts, which is cached afterwards
    set_up: float
    step: float
    candidates: float  # per evaluation
    triple: float  # per ranked triple

    def whole(self, graph: KnowledgeGraph, config: RunConfig, epochs: int, evaluations: int) -> float:
        """Return the seconds of a run with this many epochs, including validation and final evaluation."""
        training = config.training
        steps = len(graph.triples("train")) // training.batch_size
        val, test = len(graph.triples("val")), len(graph.triples("test"))
        validation = self.candidates + self.triple * min(val, training.validation_triples or val) if val else 0.0
        validations = math.ceil(epochs / training.validate_every)
        ranking = evaluations * (self.candidates + self.triple * test)
        return self.set_up + epochs * steps * self.step + validations * validation + ranking


class EnoughError(Exception):
    """Ends a run that is only timed."""


def timing(graph: KnowledgeGraph, config: RunConfig, cache: Path, limit: float) -> Timing:
    """Time the set-up, a few steps (about `limit` / 2 seconds) and two small evaluations of a run, and discard it.

    Tokens and features of frozen texts stay in the cache, so their computation is not counted.
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
    if few < limit / 10:  # the first one may include compilation
        few = seconds_of(lambda: rank(run, graph, small))
    many = seconds_of(lambda: rank(run, graph, large)) if large > small else few
    triple = max(many - few, 0.0) / max(large - small, 1)
    return Timing(first_set_up, set_up, step, max(few - small * triple, 0.0), triple)


def rank(run: Any, graph: KnowledgeGraph, sample: int) -> None:
    from fnftg.ranking.evaluation import split_metrics

    split_metrics(run.model, graph, run.texts, "test", run.config.training.evaluation_protocol, sample)


def seconds_of(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def share_of_epochs(costs: Sequence[Callable[[float], float]], most: int, seconds: float) -> float:
    """Return the largest share of their epochs that all runs can have within the time.

    All rows get the same share, so that they are comparable. If not even the smallest share fits, it is returned, and
    as many runs as possible have one epoch.

    Args:
        costs: functions from a share to the seconds of each run.
        most: the largest number of epochs.
        seconds: the available time.
    """
    shares = (epochs / most for epochs in range(most, 0, -1))
    return next((share for share in shares if sum(cost(share) for cost in costs) <= seconds), 1 / most)


def epochs_of(share: float, config: RunConfig) -> int:
    return max(1, math.ceil(share * config.training.epochs - 1e-9))
