"""Terminal output: progress on standard error; text, tables and JSON on standard output.

Ids, names, texts and file names are untrusted and may contain terminal control sequences. All output goes through this
module, which escapes them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

# C0 and C1 control characters, line and paragraph separators, bidirectional marks, surrogates
UNSAFE = (
    *(*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F)),
    *(*range(0x2066, 0x206A), *range(0xD800, 0xE000)),
)
ESCAPED = {code: chr(code).encode("unicode_escape").decode() for code in UNSAFE}  # e.g. \x1b or \u202e
ESCAPED_IN_LINES = {code: ESCAPED[code] for code in UNSAFE if chr(code) not in "\n\t"}
ESCAPED_IN_JSON = {code: f"\\u{code:04x}" for code in ESCAPED_IN_LINES}
LINE_SECONDS = 30.0  # between two progress lines; the environment variable FNFTG_PROGRESS_SECONDS overrides it


class Progress:
    """Progress of a long step on standard error: a bar in a terminal, otherwise a line every 30 seconds.

    A step that takes less than 30 seconds prints no line. In distributed runs, only the first process prints.

    Args:
        description: name of the step.
        total: amount of work, if known.
        unit: unit of the amounts.
        done: amount that was done before.
        clock: function that returns the time in seconds.
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
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeRemainingColumn())
            self.bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task(harmless(self.description), total=self.total, completed=self.done)
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    @property
    def rate(self) -> float:
        """Amount done per second."""
        return (self.done - self.done_before) / max(self.clock() - self.start, 1e-9)

    def advance(self, amount: int, note: str = "") -> None:
        """Add `amount` to the work done. The note is shown next to the progress."""
        self.done += amount
        if self.bar is not None:
            shown = harmless(f"{self.description}  {note}".rstrip())
            self.bar.update(self.task, advance=amount, description=shown)
        elif self.shown and self.clock() >= self.next_line:
            log(self.line(note))
            self.next_line = self.clock() + self.seconds

    def line(self, note: str = "") -> str:
        """Return a progress line, e.g. `Encoding texts: 9,000 of 12,000 texts, 300 texts/s, 10 s left`."""
        scale, unit, digits = (1e6, "MB", 1) if self.unit == "bytes" else (1, self.unit, 0)
        whole = "" if self.total is None else f" of {self.total / scale:,.{digits}f}"
        rate = f"{self.rate / scale:,.{0 if self.rate >= 10 * scale else 1}f} {unit}/s"
        left = [f"{duration((self.total - self.done) / self.rate)} left"] if self.total and self.rate else []
        parts = [f"{self.done / scale:,.{digits}f}{whole} {unit}", rate, *([note] if note else []), *left]
        return f"{self.description}: {', '.join(parts)}"


@contextmanager
def progress(description: str, total: int | None, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """Show the progress of a long step. Yields the function that advances it."""
    with Progress(description, total, unit) as shown:
        yield shown.advance


def line_seconds() -> float:
    """Return the seconds between two progress lines."""
    try:
        return float(os.environ["FNFTG_PROGRESS_SECONDS"])
    except (KeyError, ValueError):
        return LINE_SECONDS


def is_first_process() -> bool:
    """Return whether this is the first of the processes that torchrun or Lightning started."""
    return not int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def duration(seconds: float) -> str:
    """Format a duration, e.g. 8 s, 3 min 20 s or 2 h 5 min."""
    whole = round(max(seconds, 0))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def harmless(text: str) -> str:
    """Escape the control characters of a text, e.g. as \\x1b, except line breaks and tabs."""
    return text.translate(ESCAPED_IN_LINES)


def log(message: str) -> None:
    """Print a line on standard error, so that standard output can be piped."""
    print(harmless(message), file=sys.stderr, flush=True)


def print_text(text: str) -> None:
    print(harmless(text))


def print_json(value: Any, indent: int | None = 2) -> None:
    print(json.dumps(value, indent=indent, ensure_ascii=False).translate(ESCAPED_IN_JSON))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str | None = None) -> None:
    """Print a table. Text is left-aligned, numbers are right-aligned, and integers have thousands separators."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    cells = [[cell.translate(ESCAPED) for cell in row] for row in cells]
    for position, column in enumerate(columns):
        figures = position > 0 and all(row[position][:1].isdigit() for row in cells)
        table.add_column(harmless(column), justify="right" if figures else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False, emoji=False)
    console.print(harmless(title), table, *([] if note is None else [harmless(note), ""]), sep="\n")
