"""Soak test of the server: valid and invalid requests, slow clients and reloads at the same time.

    python benchmarks/soak.py RUN [--minutes 10] [--threads 2] [--json] [-o FILE]

The script starts `fnftg serve RUN` on a free port of this machine. First, 200 slow clients send single bytes with
pauses, and a normal client sends one query after another. Then valid requests to all routes, many kinds of invalid
requests, and reloads are added. The exit code is 1 if there is a 5xx response, if a valid request fails with anything
but 429, if memory grows by a tenth, or if the normal client waits for more than a second during the first part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import measuring
import numpy as np
from measuring import MEGABYTE, Figure
from serve import memory

from fnftg.console import log

LIBRARIES = ("fnftg", "fastapi", "uvicorn", "numpy", "numba", "torch", "transformers")
SLOW, SLOW_PAUSE = 200, 1.0  # slow clients, and seconds between two of their bytes
QUIET_SHARE, WARM_SHARE = 0.15, 0.3  # shares of the time until other clients start, and until memory is measured
RELOAD_SHARE = 20  # number of reloads in the whole time
PAUSE = 0.05  # seconds between two requests of a client
MOST_REQUESTS = 1_000_000
MOST_GROWTH, MOST_SECONDS = 1.1, 1.0
BUSY, SERVER_ERROR = 429, 500
JSON = {"Content-Type": "application/json"}


@dataclass
class SoakResult:
    """The counts and measurements of a soak test."""

    url: str
    end: float
    statuses: Counter[str] = field(default_factory=Counter)  # by kind and status
    closed: int = 0  # slow clients that the server disconnected
    broken: list[str] = field(default_factory=list)  # 5xx responses and valid requests that failed
    quiet: list[float] = field(default_factory=list)  # seconds per query of the normal client, with slow clients only
    busy: list[float] = field(default_factory=list)  # seconds per query of the normal client, with all clients
    memory: list[float] = field(default_factory=list)  # memory of the server after the warm-up, in bytes

    def going_on(self) -> bool:
        return time.perf_counter() < self.end and sum(self.statuses.values()) < MOST_REQUESTS

    def count(self, kind: str, status: int | str, text: str) -> None:
        self.statuses[f"{kind} {status}"] += 1
        failed = kind != "invalid" and status not in (200, BUSY)
        if failed or (isinstance(status, int) and status >= SERVER_ERROR):
            self.broken.append(f"{kind}: {status} {text[:200]}")


class Requests:
    """Generates random requests about the server's graph."""

    def __init__(self, seed: int, entities: list[str], relations: list[str]):
        self.random, self.entities, self.relations = random.Random(seed), entities, relations
        self.number = seed * 1_000_000

    def entity(self) -> Any:
        return self.random.choice(self.entities)

    def new(self, edges: int = 3) -> dict[str, Any]:
        self.number += 1
        links = [[self.relation(), self.entity()] for _ in range(self.random.randint(0, edges))]
        return {"text": f"a new thing, number {self.number}, which nobody knows", "edges": links}

    def relation(self) -> Any:
        return self.random.choice(self.relations)

    def known_query(self) -> dict[str, Any]:
        return {"queries": [{"head": self.entity(), "relation": self.relation()}]}

    def valid(self) -> tuple[str, str, Any]:
        """Return method, path and body of a valid request."""
        body: Any
        which = self.random.randrange(9)
        if which == 0:
            queries = [{"head": self.new(), "relation": self.relation()} for _ in range(self.random.randint(1, 3))]
            return "POST", "/v1/predict", {"queries": queries, "known": True}
        if which == 1:
            pair = {"head": self.entity(), "tail": self.random.choice([self.entity(), self.new()])}
            return "POST", "/v1/predict", {"queries": [pair], "k": self.random.randint(1, 1000)}
        if which == 2:
            relation = self.random.choice([self.relation(), {"text": f"is near to {self.number}"}])
            body = {"head": self.entity(), "relation": relation, "tail": self.entity(), "nearest": 2}
            return "POST", "/v1/explain", body
        if which == 3:
            return "POST", "/v1/embed", {"entities": [self.entity(), self.new()]}
        if which == 4:
            return "GET", f"/v1/entities?q={self.entity()[:3]}&limit=100", None
        if which == 5:
            return "GET", f"/v1/entities/{self.entity()}", None
        if which == 6:
            return "GET", self.random.choice(["/v1/relations", "/v1/model", "/", "/metrics", "/openapi.json"]), None
        return "POST", "/v1/predict", self.known_query()

    def invalid(self) -> tuple[str, str, dict[str, Any]]:
        """Return method, path and httpx arguments of an invalid request."""
        whole = json.dumps(self.known_query()).encode()
        which = self.random.randrange(9)
        path = self.random.choice(["/v1/predict", "/v1/explain", "/v1/embed"])
        if which == 0:  # mutated JSON
            content = bytearray(whole)
            for _ in range(self.random.randint(1, 5)):
                content[self.random.randrange(len(content))] = self.random.randrange(256)
            return "POST", path, {"content": bytes(content), "headers": JSON}
        if which == 1:
            wrong: list[Any] = [None, [], {}, 1, {"queries": 1}, {"queries": [{"head": 1}]}, {"entities": [[]]}]
            return "POST", path, {"json": self.random.choice(wrong)}
        if which == 2:  # a body of 3 MB
            return "POST", path, {"content": whole.ljust(3 << 20), "headers": JSON}
        if which == 3:  # too much work
            star = {"text": "x", "edges": [[{"text": f"r {number}"}, self.entity()] for number in range(64)]}
            return "POST", "/v1/predict", {"json": {"queries": [{"head": star, "relation": self.relation()}] * 32}}
        if which == 4:
            return "POST", "/v1/predict", {"content": whole, "headers": {**JSON, "Host": "evil.example"}}
        if which == 5:
            return "POST", "/v1/admin/reload", {"headers": {"Origin": "https://evil.example"}}
        if which == 6:
            return "GET", "/v1/model", {"headers": {"Cookie": 'fnftg="' + "\\" * 60_000 + '"'}}
        if which == 7:
            return self.random.choice(["DELETE", "PUT", "TRACE"]), path, {}
        odd = ["/v1/entities?limit=0", "/v1/entities/%00%ff", "/page/../app.py", "/" + "a" * 9000, "/v1/entities?x=1"]
        return "GET", self.random.choice(odd), {}


async def repeat(
    result: SoakResult, kind: str, ask: Callable[[httpx.AsyncClient, int], Awaitable[Any]], begin: float = 0.0
) -> None:
    """Run a client that sends one request after another, starting at the time `begin`."""
    await asyncio.sleep(max(begin - time.perf_counter(), 0))
    async with httpx.AsyncClient(base_url=result.url, timeout=60, trust_env=False) as client:
        number = 0
        while result.going_on():
            number += 1
            try:
                response = await ask(client, number)
                result.count(kind, response.status_code, response.text)
            except httpx.HTTPError as error:
                result.count(kind, type(error).__name__, str(error))
            await asyncio.sleep(PAUSE)


async def normal_client(result: SoakResult, requests: Requests, others: float) -> None:
    async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
        start = time.perf_counter()
        response = await client.post("/v1/predict", json=requests.known_query())
        (result.busy if start > others else result.quiet).append(time.perf_counter() - start)
        return response

    await repeat(result, "normal", ask)


async def slow_client(result: SoakResult, number: int) -> None:
    """Send single bytes of a header or a body with pauses, and reconnect when the server closes the connection."""
    address = httpx.URL(result.url)
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
    )
    while result.going_on():
        writer = None
        try:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(head if number % 2 else head[:30])
            while result.going_on() and not writer.transport.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(SLOW_PAUSE)
        except OSError:
            pass
        finally:
            if writer is not None:
                writer.close()
        result.closed += result.going_on()


async def reloads(result: SoakResult, pause: float, begin: float) -> None:
    async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
        await asyncio.sleep(pause)
        return await client.post("/v1/admin/reload", json={})

    await repeat(result, "reload", ask, begin)


async def watch_memory(result: SoakResult, process: int, warm: float) -> None:
    """Record the server's memory twice a second, as it returns freed memory only every ten seconds."""
    while result.going_on():
        await asyncio.sleep(0.5)
        if time.perf_counter() > warm:
            result.memory.append(memory(process))


async def soak(url: str, process: int, seconds: float) -> SoakResult:
    start = time.perf_counter()
    result, others = SoakResult(url, start + seconds), start + QUIET_SHARE * seconds
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        found = await asyncio.gather(*(client.get(f"/v1/entities?q={letter}&limit=100") for letter in "abcdefgh"))
        entities = [one["id"] for response in found for one in response.json()["entities"]]
        relations = [one["id"] for one in (await client.get("/v1/relations")).json()["relations"]]
    makers = [Requests(seed, entities, relations) for seed in range(8)]

    async def ask_valid(client: httpx.AsyncClient, number: int) -> httpx.Response:
        method, path, body = makers[number % 4].valid()
        return await client.request(method, path, json=body)

    async def ask_invalid(client: httpx.AsyncClient, number: int) -> httpx.Response:
        method, path, content = makers[4 + number % 4].invalid()
        return await client.request(method, path, **content)

    await asyncio.gather(
        *(repeat(result, "valid", ask_valid, others) for _ in range(3)),
        *(repeat(result, "invalid", ask_invalid, others) for _ in range(2)),
        *(slow_client(result, number) for number in range(SLOW)),
        normal_client(result, Requests(8, entities, relations), others),
        reloads(result, seconds / RELOAD_SHARE, others),
        watch_memory(result, process, start + WARM_SHARE * seconds),
    )
    return result


def measure(options: argparse.Namespace) -> list[Figure]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "NUMBA_NUM_THREADS": str(options.threads)}
    command = [sys.executable, "-m", "fnftg", "serve", str(options.run), "--port", "0"]
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(command, stderr=stderr, text=True, env=environment)
        try:
            url = ready(process, stderr)
            result = asyncio.run(soak(url, process.pid, 60 * options.minutes))
            alive = process.poll() is None
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
            stderr.seek(0)
            lines = stderr.read()
        finally:
            process.kill()
            process.wait()
    for line in result.broken[:20]:
        log(line)
    for name, count in sorted(result.statuses.items()):
        log(f"{count:>9,}  {name}")
    figures = figures_of(result, code if alive else -1, lines)
    if options.output:
        record = {"statuses": result.statuses, "broken": result.broken, "memory": result.memory}
        values = {figure.name: figure.value for figure in figures}
        options.output.write_text(json.dumps({**record, "figures": values}, indent=2), encoding="utf-8")
    return figures


def ready(process: subprocess.Popen[str], stderr: Any) -> str:
    end = time.perf_counter() + 600
    while time.perf_counter() < end:
        assert process.poll() is None, "the server exited: start it by hand to see why"
        stderr.seek(0)
        line = stderr.readline()
        try:
            if " on http" in line:
                url = line.split(" on ")[1].split(";")[0]
                if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                    return str(url)
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise TimeoutError("The server was not ready within ten minutes.")


def figures_of(result: SoakResult, code: int, lines: str) -> list[Figure]:
    counts = result.statuses
    server_errors = sum(count for name, count in counts.items() if name.split()[-1].startswith("5"))
    quiet, busy, used = result.quiet or [math.inf], result.busy or [math.inf], result.memory or [0.0]
    third = max(len(used) // 3, 1)
    before, after = float(np.median(used[:third])), float(np.median(used[-third:]))
    return [
        Figure("total requests", sum(counts.values()), ""),
        Figure("5xx responses", server_errors, "", limit=1),
        Figure("valid requests that failed, except with 429", len(result.broken), "", limit=1),
        Figure("valid requests that succeeded", counts["valid 200"] + counts["normal 200"], "", 1, at_least=True),
        Figure("reloads", counts["reload 200"], "", limit=1, at_least=True),
        Figure("disconnected slow clients", result.closed, ""),
        Figure("latency with slow clients, median", 1000 * float(np.percentile(quiet, 50)), "ms"),
        Figure("latency with slow clients, p99", 1000 * float(np.percentile(quiet, 99)), "ms", 1000 * MOST_SECONDS),
        Figure("latency with slow clients, maximum", 1000 * max(quiet), "ms", limit=1000 * MOST_SECONDS),
        Figure("latency with all clients, median", 1000 * float(np.percentile(busy, 50)), "ms"),
        Figure("latency with all clients, p99", 1000 * float(np.percentile(busy, 99)), "ms"),
        Figure("latency with all clients, maximum", 1000 * max(busy), "ms"),
        Figure("lowest memory in the first third", min(used[:third]) / MEGABYTE, "MB"),
        Figure("lowest memory in the last third", min(used[-third:]) / MEGABYTE, "MB"),
        Figure("median memory in the first third", before / MEGABYTE, "MB"),
        Figure("median memory in the last third", after / MEGABYTE, "MB", limit=MOST_GROWTH * before / MEGABYTE),
        Figure("exit code after SIGTERM", abs(code), "", limit=1),
        Figure("size of the log", len(lines) / 1000, "kB", limit=1000),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--minutes", type=float, default=10, help="duration (default: 10)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the server (default: 2)")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the counts and measurements")
    sys.exit(measuring.main(parser, (), measure, LIBRARIES))
