"""`log.csv`: the learning curve of a run, readable while it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fnftg.files import new_file

COLUMNS = (
    *("step", "epoch", "seconds", "loss", "learning_rate", "triples_per_second"),
    *("val_mrr", "val_hits_at_1", "val_hits_at_10"),
)


class LogFile:
    """A CSV file that exists from the start and gets each row at once.

    The rows are also part of a restart point: a run that continues from there writes the file anew without the rows of
    steps that will be repeated.
    """

    def __init__(self, path: Path, rows: list[dict[str, Any]]):
        self.path = path
        with new_file(path, force=True) as partial:
            partial.write_text("".join([",".join(COLUMNS) + "\n", *map(csv_line, rows)]), encoding="utf-8")

    def append(self, row: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(csv_line(row))


def csv_line(row: dict[str, Any]) -> str:
    unknown = row.keys() - set(COLUMNS)
    assert not unknown, unknown
    return ",".join(str(row.get(column, "")) for column in COLUMNS) + "\n"
