"""Decode a Parquet file in a separate process, which `parquet_rows.py` starts.

The decoder trusts the numbers in a file. A malformed file can make it panic, abort or allocate all memory.

Standard output is a sequence of messages: one letter, the length of the content in eight bytes, and the content.

    S   {"columns": {name: "text", "nested", …}, "rows": n} in JSON; then a line of {role: column} is read from stdin
    F   some rows in Arrow's IPC format, with the roles as columns
    E   an error message; the last message
    Z   empty; the last message
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
from collections.abc import Iterator

import polars as pl

ROWS = 1_000_000  # at a time
BYTES = 1 << 26  # of text at a time
MEMORY, MEMORY_OF_A_BYTE = 8 << 30, 4  # bytes that the process may map, plus so many for each byte of the file
NESTED = (pl.List, pl.Array, pl.Struct, pl.Object)


def decode(path: str) -> None:
    limit = MEMORY + MEMORY_OF_A_BYTE * os.path.getsize(path)
    with contextlib.suppress(ValueError, OSError):  # not every system has such a limit
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    schema = pl.scan_parquet(path).collect_schema()
    kinds = {name: "nested" if isinstance(kind, NESTED) else "text" for name, kind in schema.items()}
    rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    send(b"S", json.dumps({"columns": kinds, "rows": rows}).encode())
    roles = json.loads(sys.stdin.readline())
    selected = pl.scan_parquet(path).select(
        pl.col(column).cast(pl.String).alias(role) for role, column in roles.items()
    )
    for frame in selected.collect_batches(chunk_size=ROWS, maintain_order=True):
        for part in bounded_parts(frame):
            buffer = io.BytesIO()
            part.write_ipc_stream(buffer)
            send(b"F", buffer.getbuffer())
    send(b"Z", b"")


def bounded_parts(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the frame in parts of at most `BYTES` of text or one row. A small file can have many repeated texts."""
    lengths = pl.sum_horizontal(pl.all().str.len_bytes().cast(pl.Int64).fill_null(0))
    ends, first = frame.select(lengths.cum_sum()).to_series(), 0
    while first < len(frame):
        before = ends[first - 1] if first else 0
        last = max(ends.search_sorted(before + BYTES, side="right"), first + 1)
        yield frame[first:last]
        first = last


def send(letter: bytes, content: bytes | memoryview) -> None:
    sys.stdout.buffer.write(letter + len(content).to_bytes(8, "big"))
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        decode(sys.argv[1])
    except Exception as error:  # any error is about the file
        send(b"E", str(error).encode())
