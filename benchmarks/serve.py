"""Throughput and latency of the server with and without batching, and under load while the model is reloaded.

    python benchmarks/serve.py --run RUN [--seconds 60] [--connections 64] [--threads 2] [--json]

RUN is a run on WN18RR_IND with a frozen MiniLM; it is copied first and not changed. Without it, a synthetic graph of
that size and an untrained model are used. Server and client run in separate processes and communicate over loopback.
Each connection sends its next query as soon as it has received an answer. Every other query is about a new entity with
a text and one edge, and no text is repeated. The exit code is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import measuring
import numpy as np
from measuring import MEGABYTE, Figure, run
from predict import make_run

from fnftg.console import log

LIBRARIES = ("fnftg", "fastapi", "uvicorn", "numpy", "numba", "torch", "transformers")
QUESTIONS, SEED = 20_000, 0
RELOADS, RELOADING = 10, 30  # number of reloads, and seconds of load with reloads
LEAST, SERVER_ERROR = 3.0, 500
WARM = 20  # seconds of load before the measurement


def load(folder: str, port: str, seconds: str, connections: str, reloads: str) -> dict[str, float]:
    """Measure requests per second, latencies and statuses of a server under load, with `reloads` of its model."""
    asked = questions(folder)
    return asyncio.run(measured(asked, int(port), float(seconds), int(connections), int(reloads)))


def questions(folder: str) -> list[bytes]:
    """Return complete HTTP requests, alternating between known and new entities."""
    from fnftg.ranking.runs import RunFolder

    graph = RunFolder(Path(folder)).graph()
    rows = np.random.default_rng(SEED).integers(0, len(graph.entities), (QUESTIONS, 2)).tolist()
    relations = graph.relations.ids.slice(0, len(graph.relations))
    made = []
    for number, (one, other) in enumerate(rows):
        relation = relations[number % len(relations)]
        words = graph.entities.texts[one].split()
        edge = [relations[0], graph.entities.ids[other]]
        new = {"text": " ".join([*words[::-1], str(number)]), "edges": [edge]}
        entity = new if number % 2 else graph.entities.ids[one]
        made.append(request("/v1/predict", {"queries": [{"head": entity, "relation": relation}], "k": 10}))
    return made


def request(path: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def measured(asked: list[bytes], port: int, seconds: float, connections: int, reloads: int) -> dict[str, float]:
    took: list[float] = []
    statuses: Counter[int] = Counter()
    following = iter(asked * 100)
    end = time.perf_counter() + seconds
    reloading = asyncio.create_task(reloaded(port, reloads, seconds))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end or not reloading.done():
            start = time.perf_counter()
            statuses[await sent(reader, writer, next(following))] += 1
            took.append(time.perf_counter() - start)
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(connections)))
    seconds = time.perf_counter() - start
    return {
        "rate": len(took) / seconds,
        "p50": 1000 * float(np.percentile(took, 50)),
        "p99": 1000 * float(np.percentile(took, 99)),
        "requests": len(took),
        "refused": sum(count for status, count in statuses.items() if 400 <= status < SERVER_ERROR),
        "broken": sum(count for status, count in statuses.items() if status >= SERVER_ERROR),
        "reloads": reloading.result(),
    }


async def reloaded(port: int, times: int, seconds: float) -> int:
    """Reload the model several times, evenly spread, and return the number of successful reloads."""
    if not times:
        return 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    done, start = 0, time.perf_counter()
    for number in range(times):
        await asyncio.sleep(max(start + number * seconds / times - time.perf_counter(), 0))
        done += await sent(reader, writer, request("/v1/admin/reload", {})) == 200
    writer.close()
    return done


async def sent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, content: bytes) -> int:
    """Send a request and return the status of the response."""
    writer.write(content)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    assert length is not None
    await reader.readexactly(int(length[1]))
    return int(head[9:12])


@contextmanager
def server(folder: Path, threads: int, *options: str) -> Iterator[tuple[int, int]]:
    """Start a server, wait until it is ready, and yield its process id and port."""
    command = [sys.executable, "-m", "fnftg", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)}
    )
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rsplit(":", 1)[1].split(";")[0])
        asyncio.run(ready(process, port))
        yield process.pid, port
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        assert code == 0, f"the server ended with {code}: {process.stderr.read()}"
    finally:
        process.kill()
        process.wait()


async def ready(process: subprocess.Popen[str], port: int) -> None:
    for _ in range(6000):
        assert process.poll() is None and process.stderr is not None, process.stderr and process.stderr.read()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if await sent(reader, writer, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200:
                return
            writer.close()
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise TimeoutError("The server was not ready within ten minutes.")


def memory(process: int) -> float:
    """Return the anonymous memory of a process in bytes, without mapped files."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return 1024 * float(found[1]) if found else 0.0


def measure(options: argparse.Namespace) -> list[Figure]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.run:
            shutil.copytree(options.run, folder / "run", ignore=shutil.ignore_patterns("restart"))
        else:
            log("Generating a graph of the size of WN18RR_IND …")
            run(make_run, folder)
        place, seconds, connections = folder / "run", options.seconds, options.connections
        with server(place, options.threads) as (process, port):
            log("Measuring with batching, after a warm-up …")
            run(load, place, port, min(WARM, seconds), connections, 0)  # until every batch shape has occurred
            before = memory(process)
            together = run(load, place, port, seconds, connections, 0)
            after = memory(process)
            log("Reloading the model under load …")
            reloading = run(load, place, port, min(RELOADING, seconds), connections, RELOADS)
            in_the_end = memory(process)
        with server(place, options.threads, "--no-batching") as (_, port):
            log("Measuring without batching …")
            run(load, place, port, min(WARM, seconds) / 4, connections, 0)
            alone = run(load, place, port, seconds, connections, 0)
    every = (together, reloading, alone)
    return [
        Figure(f"{connections} connections, with batching", together["rate"], "answers/s"),
        Figure("median latency, with batching", together["p50"], "ms"),
        Figure("99th percentile, with batching", together["p99"], "ms"),
        Figure(f"{connections} connections, without batching", alone["rate"], "answers/s"),
        Figure("median latency, without batching", alone["p50"], "ms"),
        Figure("99th percentile, without batching", alone["p99"], "ms"),
        Figure("throughput gain of batching", together["rate"] / alone["rate"], "×", limit=LEAST, at_least=True),
        Figure("total requests", sum(one["requests"] for one in every), ""),
        Figure("statuses 4xx", sum(one["refused"] for one in every), "", limit=1),
        Figure("statuses 5xx", sum(one["broken"] for one in every), "", limit=1),
        Figure("memory before the load", before / MEGABYTE, "MB"),
        Figure("memory after the load", after / MEGABYTE, "MB", limit=1.1 * before / MEGABYTE),
        Figure("reloads under load", reloading["reloads"], "", limit=RELOADS, at_least=True),
        Figure("throughput while reloading", reloading["rate"], "answers/s"),
        Figure("99th percentile while reloading", reloading["p99"], "ms"),
        Figure("memory after the reloads", in_the_end / MEGABYTE, "MB"),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run on WN18RR_IND (default: a synthetic graph)")
    parser.add_argument("--seconds", type=float, default=60, help="duration of each measurement (default: 60)")
    parser.add_argument("--connections", type=int, default=64, help="concurrent connections (default: 64)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the server (default: 2)")
    sys.exit(measuring.main(parser, (make_run, load), measure, LIBRARIES))
