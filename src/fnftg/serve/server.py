"""Runs the app in one process, or in several workers that share the port."""

from __future__ import annotations

import contextlib
import errno
import math
import signal
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess

from fnftg.console import log
from fnftg.errors import FnftgError
from fnftg.serve.app import make_app
from fnftg.serve.connection_table import ConnectionTable, ListeningSocket, make_table
from fnftg.serve.http_protocol import BACKLOG, ServerConfig
from fnftg.serve.log_filter import RepetitionFilter
from fnftg.serve.model_manager import bump_generation, load_model
from fnftg.serve.options import Options

STOPPING = 5  # seconds beyond the deadline to answer the last requests while stopping
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "filters": {"repetitions": {"()": RepetitionFilter}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "filters": ["repetitions"]}},
    "loggers": {
        "asyncio": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "fnftg.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


def run(options: Options, port: int, workers: int = 1) -> None:
    """Run until a signal. After the last request, return on SIGTERM and raise `KeyboardInterrupt` on Ctrl-C."""
    table = make_table(options.max_connections, options.behind_proxy)
    bound = listening_socket(options.host, port, table)
    shown = f"[{options.host}]" if ":" in options.host else options.host
    log(f"Serving {options.run} on http://{shown}:{bound.getsockname()[1]}; press Ctrl-C to stop.")
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises the signal again after it has stopped
    if workers == 1:
        run_in_process(options, bound)
    else:
        run_workers(options, bound, workers)


def listening_socket(host: str, port: int, table: ConnectionTable) -> ListeningSocket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = ListeningSocket(family, kind, protocol, table=table)
    except (OSError, UnicodeError) as error:  # a UnicodeError for names that no host can have
        raise FnftgError(unknown_address(host)) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
        bound.set_inheritable(True)
        return bound
    except OSError as error:
        bound.close()
        reasons = {
            errno.EADDRINUSE: f"Port {port} of {host} is in use: choose another with --port.",
            errno.EACCES: f"You have no permission for port {port}: choose one above 1023 with --port.",
        }
        reason = reasons.get(error.errno or 0, unknown_address(host))
        raise FnftgError(reason) from error


def unknown_address(host: str) -> str:
    return f"{host} is not an address of this machine: give its host name or IP address."


def run_in_process(options: Options, bound: ListeningSocket) -> None:
    failures: list[FnftgError] = []

    def failed(error: FnftgError) -> None:
        failures.append(error)
        server.should_exit = True

    server = uvicorn.Server(server_config(options, bound, make_app(options, failed)))
    server.run([bound])
    if failures:
        raise failures[0]


def run_workers(options: Options, bound: ListeningSocket, workers: int) -> None:
    load_model(options)  # load once here, so that errors are reported once and the workers find all caches filled
    with tempfile.TemporaryDirectory(prefix="fnftg-") as folder:
        generation = Path(folder) / "generation"
        bump_generation(generation)
        replace(options, generation=str(generation)).to_environment()
        config = server_config(options, bound, "fnftg.serve.app:make_worker_app", workers)
        parent = WorkerSupervisor(config, [bound], generation)
        parent.run()
    if parent.interrupted:
        raise KeyboardInterrupt


def server_config(options: Options, bound: ListeningSocket, app: object, workers: int = 1) -> ServerConfig:
    return ServerConfig(
        app,
        bound.table,
        factory=isinstance(app, str),
        workers=workers,
        log_config=LOGGING,
        timeout_graceful_shutdown=math.ceil(options.deadline) + STOPPING,
    )


class WorkerSupervisor(Multiprocess):
    """Keeps the workers alive, and makes them reload on SIGHUP."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], generation: Path):
        super().__init__(config, sockets)
        self.generation, self.interrupted = generation, False

    def handle_hup(self) -> None:
        with contextlib.suppress(OSError):
            bump_generation(self.generation)

    def handle_int(self) -> None:
        self.interrupted = True
        super().handle_int()
