"""Read a Parquet file as frames of strings, in parts of bounded size."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import polars as pl

from fnftg.errors import FnftgError, one_line, shortened
from fnftg.kg.formats import parquet_process
from fnftg.kg.formats.compressed_files import check_unpacked
from fnftg.kg.formats.lines import LONGEST_LINE
from fnftg.kg.formats.specs import OPTIONAL, Wanted

BYTES_OF_A_CELL = 16  # in memory, in addition to its text


def read_parquet(path: Path, wanted: Wanted, max_size: int | None) -> Iterator[tuple[pl.DataFrame, str]]:
    with decoder(path) as process:
        assert process.stdin is not None and process.stdout is not None
        facts = json.loads(receive(path, process.stdout))
        roles = choose_roles(path, facts["columns"], wanted)
        # A few bytes can encode any number of equal rows, and many rows are in memory at once.
        packed = path.stat().st_size
        check_unpacked(path, packed, facts["rows"] * len(roles) * BYTES_OF_A_CELL, max_size)
        process.stdin.write(json.dumps(roles).encode() + b"\n")
        process.stdin.flush()
        start = unpacked = 0
        while content := receive(path, process.stdout):
            frame = pl.read_ipc_stream(io.BytesIO(content))
            unpacked += check_rows(path, frame, roles, start)
            check_unpacked(path, packed, unpacked, max_size)
            yield frame, f"{path}, row {start + 1}"
            start += len(frame)
    if not start:
        raise FnftgError(f"{path} is empty: nothing to import.")


@contextmanager
def decoder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with open(path, "rb"):  # raises if the file cannot be read
        pass
    # The process uses the same import path as this one, and loads only Polars.
    run = f"runpy.run_path({parquet_process.__file__!r}, run_name='__main__')"
    code = f"import runpy, sys; sys.path[:] = {sys.path!r}; {run}"
    command = [sys.executable, "-c", code, str(path.absolute())]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def receive(path: Path, pipe: IO[bytes]) -> bytes:
    """Return the content of the next message, which is empty for the last one."""
    letter = pipe.read(1)
    content = pipe.read(int.from_bytes(pipe.read(8), "big")) if letter else b""
    if letter == b"E":
        raise FnftgError(f"{path} cannot be read as Parquet: {one_line(content.decode(errors='replace'))}.")
    if not letter:
        raise FnftgError(f"{path} cannot be read as Parquet: it is damaged or needs too much memory; write it again.")
    return content


def choose_roles(path: Path, columns: dict[str, str], wanted: Wanted) -> dict[str, str]:
    """Return the column of each role. Raises if a required or requested column is missing."""
    roles = {role: column or role for role, column in wanted.items()}
    for role, column in list(roles.items()):
        if column in columns:
            if columns[column] == "nested":
                raise FnftgError(f"{path}: column {shortened(column)} has lists or structs; choose a column of texts.")
            continue
        if role not in OPTIONAL or wanted[role] is not None:
            found = ", ".join(map(shortened, list(columns)[:20])) or "none"
            raise FnftgError(f"{path}: no column {shortened(column)}; there are {found}; choose one with --{role}.")
        del roles[role]
    return roles


def check_rows(path: Path, frame: pl.DataFrame, roles: dict[str, str], start: int) -> int:
    """Return the number of bytes of the rows' texts. Raises for a row with an empty required cell or too much text."""
    for role, column in roles.items():
        if role not in OPTIONAL | {"text"} and frame[role].null_count():
            row = start + int(frame[role].is_null().arg_max() or 0) + 1
            raise FnftgError(f"{path}, row {row}: column {shortened(column)} is empty; fix the row.")
    lengths = frame.select(pl.sum_horizontal(pl.all().str.len_bytes().cast(pl.Int64).fill_null(0))).to_series()
    if (lengths > LONGEST_LINE).any():
        row = start + int(lengths.arg_max() or 0) + 1
        raise FnftgError(f"{path}, row {row}: longer than {LONGEST_LINE >> 20} MiB; is this the right file?")
    return int(lengths.sum())
