"""Nobody can silence the server, slow it down for others, or use up its files."""

from __future__ import annotations

import asyncio
import errno
import importlib
import itertools
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_request_work import several
from test_serve import (  # noqa: F401 (fixtures)
    NEW,
    QUERIES,
    error_of,
    held,
    is_ready,
    own_run,
    query,
    run_folder,
    server,
    serving,
    wait_for,
)

from fnftg.errors import FnftgError
from fnftg.serve import http_protocol, model_manager, request_body
from fnftg.serve.connection_table import ConnectionTable, ListeningSocket, client_of, make_table
from fnftg.serve.log_filter import MOST_LINES, RepetitionFilter

FILES = 256
MOST_SECONDS = 1.0  # for nearly every answer to a normal client beside slow ones; a busy machine may delay one


def raw(client: httpx.Client, *lines: str) -> socket.socket:
    """A connection that has sent these lines of a request's head."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=20)
    if lines:
        connection.sendall("\r\n".join([*lines, ""]).encode())
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed it; what it sent before is read."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


# Connections


@contextmanager
def limited_command(run: Path, log: Path, files: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`fnftg serve` in a process that may have only so many files open."""
    limited = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
    arguments = [*limited, sys.executable, "-m", "fnftg", "serve", str(run), "--port", "0"]
    with log.open("w") as stderr:
        process = subprocess.Popen(arguments, stderr=stderr, text=True)
    try:
        wait_for(lambda: " on http" in log.read_text() or process.poll() is not None)
        url = log.read_text().split(" on ")[1].split(";")[0]
        process.stderr = log.open()
        wait_for(lambda: is_ready(url, process), 60)
        yield process, url
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_idle_connections_use_up_neither_files_nor_the_log(run_folder: Path, tmp_path: Path) -> None:  # noqa: F811
    """300 of them, and more arrive all the time; normal clients, of the same address even, are answered."""
    log = tmp_path / "log"
    with limited_command(run_folder, log, FILES) as (process, url), ExitStack() as stack:
        address = httpx.URL(url).host, httpx.URL(url).port
        stop = threading.Event()

        def open_more() -> None:
            for number in itertools.count():
                if stop.wait(0.005 if number > 300 else 0):
                    return
                connection = stack.enter_context(socket.create_connection(address, timeout=5))
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n"[: number % 30])

        flood = threading.Thread(target=open_more)
        flood.start()
        try:
            time.sleep(0.5)
            took = []
            for _ in range(20):
                start = time.perf_counter()
                assert httpx.post(f"{url}/v1/predict", json=query(), timeout=10).status_code == 200
                took.append(time.perf_counter() - start)
                time.sleep(0.05)
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < FILES
            assert httpx.post(f"{url}/v1/admin/reload", timeout=30).status_code == 200, "files are left for a new model"
        finally:
            stop.set()
            flood.join()
        assert sorted(took)[-3] < MOST_SECONDS
        assert len(log.read_text()) < 5000


def test_too_few_files_end_in_one_sentence(run_folder: Path, tmp_path: Path) -> None:  # noqa: F811
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (140, before[1]))
        with pytest.raises(FnftgError, match="ulimit -n"):
            make_table(None, False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert (make_table(None, False).most, make_table(None, False).most_per_client) == (128, 64)
        assert make_table(20, True).most_per_client == 20
        with pytest.raises(FnftgError, match=r"--max-connections is 200.*allows 128"):
            make_table(200, False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_slow_heads_and_silent_connections_are_closed(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT", 0.5)
    with serving(run_folder) as client, raw(client) as silent, raw(client, "GET / HTTP/1.1", "Host: l") as slow:
        end = time.monotonic() + 5
        with pytest.raises(ConnectionError):  # a byte now and then gains no time
            while time.monotonic() < end:
                slow.sendall(b"x")
                time.sleep(0.1)
        wait_for(lambda: is_closed(silent), 2)
        with raw(client, "GET /healthz HTTP/1.1", "Host: localhost", "Content-Length: 100000", "") as endless:
            assert endless.recv(12) == b"HTTP/1.1 200"  # and then a body that nobody reads
            with pytest.raises(ConnectionError):
                while time.monotonic() < end + 5:
                    endless.sendall(b"x")
                    time.sleep(0.1)
        table: ConnectionTable = client.server.config.table  # type: ignore[attr-defined]
        client.close()
        wait_for(lambda: table.total == 0 and not table.waiting and not table.waiting_of and not table.open, 10)


def test_late_head_is_told(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT", 0.2)
    with serving(run_folder) as client, raw(client, "GET / HTTP/1.1") as slow:
        assert b"408" in slow.recv(1000)


def test_late_body_is_told(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(request_body, "BODY_TIMEOUT", 0.2)
    with (
        serving(run_folder) as client,
        raw(client, "POST /v1/predict HTTP/1.1", "Host: localhost", "Content-Length: 9", "") as slow,
    ):
        assert slow.recv(12) == b"HTTP/1.1 408"


def test_response_that_nobody_takes_is_given_up(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT", 0.2)
    monkeypatch.setattr(http_protocol, "RESPONSE_TIMEOUT", 0.5)
    body = json.dumps({**several(32, head="e1"), "k": 40})
    head = ["POST /v1/predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    with serving(run_folder) as client:
        table: ConnectionTable = client.server.config.table  # type: ignore[attr-defined]
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect((client.base_url.host, client.base_url.port or 0))
        asked = "\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode()
        with reader:
            reader.setblocking(False)
            with suppress(BlockingIOError):
                reader.sendall(asked * 200)  # until all buffers are full
            client.close()
            wait_for(lambda: table.total == 0, 20)


def test_a_client_gives_way_to_itself_and_not_to_others() -> None:
    class Waiting:
        def __init__(self, client: str):
            self.client, self.evicted = client, False

        def evict(self) -> None:
            self.evicted = True
            table.closed(self.client)

    table = ConnectionTable(4, 2)
    mine, yours = [Waiting("mine") for _ in range(2)], [Waiting("yours") for _ in range(2)]
    for one in (*yours, *mine):
        table.opened(one.client)
        table.set_waiting(one, True)
    assert table.is_full and table.is_full_for("mine") and table.evict("mine")
    assert [one.evicted for one in (*mine, *yours)] == [True, False, False, False]
    table.set_waiting(yours[0], False)  # it has a request now
    assert table.evict() and yours[1].evicted and not yours[0].evicted
    assert table.evict() and not table.evict() and not table.evict("yours")


def test_when_files_run_out_all_the_same_a_waiting_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other parts of the process have opened more files than were left for them."""

    class WaitingOne:
        client, evicted = "", False

        def evict(self) -> None:
            self.evicted = True

    def no_files(_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    table, waiting = ConnectionTable(9, 9), WaitingOne()
    table.set_waiting(waiting, True)
    monkeypatch.setattr(socket.socket, "accept", no_files)
    with ListeningSocket(socket.AF_INET, socket.SOCK_STREAM, table=table) as listening:
        with pytest.raises(BlockingIOError):
            listening.accept()
        assert waiting.evicted and not table.waiting
        with pytest.raises(OSError, match="Too many open files"):
            listening.accept()


def test_clients_are_told_apart_by_address() -> None:
    assert client_of(("192.0.2.1", 5)) == client_of(("::ffff:192.0.2.1", 7, 0, 0)) == "192.0.2.1"
    assert client_of(("2001:db8::1", 1, 0, 0)) == client_of(("2001:db8::2", 1, 0, 0)) != client_of(("2001:db8:1::1", 1))
    assert client_of(("fe80::1%eth0", 1)) and client_of(None) == client_of("") == ""


def test_busy_connections_of_one_client_leave_room_for_others(
    run_folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that it may have are busy: the next one is refused at once, another client is not."""
    with serving(run_folder, max_connections=8) as client:
        table: ConnectionTable = client.server.config.table  # type: ignore[attr-defined]
        with held(client, monkeypatch) as queue:
            wait_for(lambda: bool(queue.ask(*[query()] * 3)))
            with raw(client, "GET /healthz HTTP/1.1", "Host: localhost", "") as refused:
                assert refused.recv(12) in (b"HTTP/1.1 503", b"")
            other = socket.socket()
            other.bind(("127.0.0.2", 0))
            with other:
                other.connect((client.base_url.host, client.base_url.port or 0))
                other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                other.settimeout(10)
                assert other.recv(12) == b"HTTP/1.1 200"
            assert table.total <= table.most


def test_normal_client_is_answered_beside_200_slow_ones(run_folder: Path) -> None:  # noqa: F811
    with serving(run_folder) as client, ExitStack() as stack:
        heads = (
            ("GET / HTTP/1.1", "Host: local"),
            ("POST /v1/predict HTTP/1.1", "Host: localhost", "Content-Length: 9", ""),
        )
        slow = [stack.enter_context(raw(client, *heads[number % 2])) for number in range(200)]
        took = []
        for one in slow[::10]:
            one.sendall(b"x")
            took.append(client.post("/v1/predict", json=query()).elapsed.total_seconds())
        assert sorted(took)[-3] < MOST_SECONDS
        assert sum(not is_closed(one) for one in slow) > 150, "they are slow, and no more than that"
        start = time.monotonic()
        client.server.should_exit = True  # type: ignore[attr-defined]
        wait_for(lambda: not client.server.server_state.connections, 20)  # type: ignore[attr-defined]
        assert time.monotonic() - start < 15, "nor do they keep the server from stopping"


def test_repeated_log_lines_are_counted_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    now, kept, filtered = [0.0], [], RepetitionFilter()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for number in range(1000):
        record = logging.LogRecord("x", logging.WARNING, "", 0, "Refused %s", (number,), None)
        now[0] = number / 90
        if filtered.filter(record):
            kept.append(record.getMessage())
    assert len(kept) == 2 * MOST_LINES and kept[0] == "Refused 0" and "895 similar lines" in kept[MOST_LINES]
    assert filtered.filter(logging.LogRecord("x", logging.WARNING, "", 0, "Another %s", (1,), None))


def test_a_short_soak_breaks_no_promise(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """What benchmarks/soak.py does for ten minutes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    soak = importlib.import_module("soak")
    monkeypatch.setattr(soak, "SLOW", 50)
    monkeypatch.setattr(soak, "SLOW_PAUSE", 0.1)
    with serving(run_folder) as client:
        result = asyncio.run(soak.soak(str(client.base_url), os.getpid(), 6))
    assert not result.broken
    for kind in ("valid 200", "normal 200", "reload 200", "invalid 403", "invalid 413", "invalid 422", "invalid 431"):
        assert result.statuses[kind], result.statuses
    assert sorted(result.quiet)[-3:][0] < MOST_SECONDS


# Reloads


class Panic(BaseException):
    """As libraries that are not written in Python raise it."""


@pytest.mark.parametrize(
    "error", [FnftgError("It is damaged."), OSError(5, "Input/output error"), MemoryError(), Panic()]
)
def test_reload_that_fails_in_any_way_is_refused(
    error: BaseException,
    run_folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with serving(run_folder) as client:
        before = client.get("/v1/model").json()

        def failing(*_: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(model_manager, "load", failing)
            code, message, _ = error_of(client.post("/v1/admin/reload"), 409)
            assert code == "checkpoint" and "continues with the old checkpoint" in message
        assert client.get("/v1/model").json() == before and client.post("/v1/predict", json=query()).status_code == 200
        assert client.post("/v1/admin/reload").status_code == 200


def test_reloads_do_not_pile_up(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    release, started, real = threading.Event(), threading.Event(), model_manager.load_model

    def slow(options: Any) -> Any:
        started.set()
        assert release.wait(20)
        return real(options)

    with serving(run_folder) as client, ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(model_manager, "load_model", slow)
        first = threads.submit(client.post, "/v1/admin/reload")
        assert started.wait(20)
        assert error_of(client.post("/v1/admin/reload"), 429)[0] == "busy"
        assert client.post("/v1/predict", json={"queries": QUERIES}).status_code == 200
        release.set()
        assert first.result().status_code == 200
