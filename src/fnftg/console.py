"""What people see in a terminal: progress on standard error, tables or JSON on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(description: str, total: int | None, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, silent where that is no terminal; yields the function that advances it."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(description, total=total)
        yield lambda amount: bars.advance(task, amount)


def log(message: str) -> None:
    """A line for the person at the terminal, kept out of standard output so that this can be piped."""
    print(message, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str | None = None) -> None:
    """A table: words left, figures right; whole numbers with thousands separators."""
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
