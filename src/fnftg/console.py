"""What people see in a terminal: progress on standard error, tables or JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

LINE_SECONDS = 30.0  # between two lines of progress; the environment variable FNFTG_PROGRESS_SECONDS sets another time


class Progress:
    """The progress of a long step on standard error: a bar in a terminal, elsewhere a line every 30 seconds.

    A step that takes less than 30 seconds prints no line, and only the first of several processes prints at all.

    Args:
        description: what is done.
        total: how much there is to do, if that is known.
        unit: what is counted.
        done: how much was done before.
        clock: tells the time in seconds.
    """

    def __init__(
        self,
        description: str,
        total: int | None,
        unit: str = "bytes",
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.description, self.total, self.unit, self.done = description, total, unit, done
        self.clock, self.start, self.done_before = clock, clock(), done
        self.seconds = line_seconds()
        self.next_line = self.start + self.seconds
        self.shown = is_first_process()
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if self.shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            count = DownloadColumn() if self.unit == "bytes" else MofNCompleteColumn()
            columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
            self.bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task(self.description, total=self.total, completed=self.done)
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    @property
    def rate(self) -> float:
        """How much was done in a second."""
        return (self.done - self.done_before) / max(self.clock() - self.start, 1e-9)

    def advance(self, amount: int, note: str = "") -> None:
        """Counts what was done; the note is shown beside it."""
        self.done += amount
        if self.bar is not None:
            self.bar.update(self.task, advance=amount, description=f"{self.description}  {note}".rstrip())
        elif self.shown and self.clock() >= self.next_line:
            log(self.line(note))
            self.next_line = self.clock() + self.seconds

    def line(self, note: str = "") -> str:
        """As in `Encoding texts: 9,000 of 12,000 texts, 300 texts/s, 10 s left`."""
        scale, unit, digits = (1e6, "MB", 1) if self.unit == "bytes" else (1, self.unit, 0)
        whole = "" if self.total is None else f" of {self.total / scale:,.{digits}f}"
        rate = f"{self.rate / scale:,.{0 if self.rate >= 10 * scale else 1}f} {unit}/s"
        left = [f"{duration((self.total - self.done) / self.rate)} left"] if self.total and self.rate else []
        parts = [f"{self.done / scale:,.{digits}f}{whole} {unit}", rate, *([note] if note else []), *left]
        return f"{self.description}: {', '.join(parts)}"


@contextmanager
def progress(description: str, total: int | None, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """Shows the progress of a long step; yields the function that advances it."""
    with Progress(description, total, unit) as shown:
        yield shown.advance


def line_seconds() -> float:
    """The seconds between two lines of progress."""
    try:
        return float(os.environ["FNFTG_PROGRESS_SECONDS"])
    except (KeyError, ValueError):
        return LINE_SECONDS


def is_first_process() -> bool:
    """Whether this is the process that prints, where torchrun or Lightning started several."""
    return not int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def duration(seconds: float) -> str:
    """As in 8 s, 3 min 20 s or 2 h 5 min."""
    whole = round(max(seconds, 0))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def log(message: str) -> None:
    """Prints a line on standard error, so that standard output can be piped."""
    print(message, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str | None = None) -> None:
    """A table: words on the left, numbers on the right; whole numbers with thousands separators."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    for position, column in enumerate(columns):
        figures = position > 0 and all(row[position][:1].isdigit() for row in cells)
        table.add_column(column, justify="right" if figures else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False)
    console.print(title, table, *([] if note is None else [note, ""]), sep="\n")
