"""The progress of a run: loss, triples a second, time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class ProgressBar:
    """A bar on standard error, silent where that is no terminal; measures the speed in any case."""

    def __init__(self, steps: int, done: int, batch: int, shown: bool):
        self.steps, self.done, self.batch = steps, done, batch
        self.began, self.since = time.monotonic(), 0
        self.speed = 0.0  # triples a second
        self.bars: Any = None
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bars.add_task("", total=steps, completed=done)

    def __enter__(self) -> ProgressBar:
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None:
            self.bars.stop()

    def advance(self, loss: float) -> None:
        self.since += 1
        self.speed = round(self.since * self.batch / (time.monotonic() - self.began), 1)
        if self.bars is not None:
            self.bars.update(self.task, advance=1, description=f"loss {loss:.4f}  {self.speed:,.0f} triples/s")
