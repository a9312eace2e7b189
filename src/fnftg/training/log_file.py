"""`log.csv`: the learning curve of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fnftg.errors import FnftgError
from fnftg.files import new_file

COLUMNS = (
    *("step", "epoch", "seconds", "loss", "learning_rate", "triples_per_second"),
    *("val_mrr", "val_hits_at_1", "val_hits_at_10"),
)


class LogFile:
    """A CSV file to which each row is written immediately, so that it can be read during training.

    Restart points contain the rows too. A resumed run rewrites the file without the rows of steps that it repeats.
    """

    def __init__(self, path: Path, rows: list[dict[str, Any]]):
        self.path = path
        with new_file(path, owned=True) as partial:
            partial.write_text("".join([",".join(COLUMNS) + "\n", *map(csv_line, rows)]), encoding="utf-8")

    def append(self, row: dict[str, Any]) -> None:
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(csv_line(row))
        except OSError as error:
            reason = f"{error.strerror}; fix this and continue with: fnftg train --resume {self.path.parent}"
            raise FnftgError(f"{self.path} cannot be written: {reason}") from error


def csv_line(row: dict[str, Any]) -> str:
    unknown = row.keys() - set(COLUMNS)
    assert not unknown, unknown
    return ",".join(str(row.get(column, "")) for column in COLUMNS) + "\n"
