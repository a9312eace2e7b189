"""Runs the app: in one process, or in several workers that share the port."""

from __future__ import annotations

import contextlib
import errno
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
from fnftg.serve.model_manager import bump_generation, load_model
from fnftg.serve.options import Options

BACKLOG = 2048
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "fnftg.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


def run(options: Options, host: str, port: int, workers: int = 1) -> None:
    """Runs until a signal: SIGTERM returns, Ctrl-C raises `KeyboardInterrupt`, both after the last request."""
    bound = listening_socket(host, port)
    shown = f"[{host}]" if ":" in host else host
    log(f"Serving {options.run} on http://{shown}:{bound.getsockname()[1]}; Ctrl-C stops.")
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises the signal again once it has stopped
    if workers == 1:
        run_in_process(options, bound)
    else:
        run_workers(options, bound, workers)


def listening_socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
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
            errno.EACCES: f"Port {port} needs privileges that you do not have: choose one above 1023 with --port.",
        }
        reason = reasons.get(error.errno or 0, unknown_address(host))
        raise FnftgError(reason) from error


def unknown_address(host: str) -> str:
    return f"{host} is not an address of this machine: give its host name or IP address."


def run_in_process(options: Options, bound: socket.socket) -> None:
    failures: list[FnftgError] = []

    def failed(error: FnftgError) -> None:
        failures.append(error)
        server.should_exit = True

    server = uvicorn.Server(uvicorn_config(make_app(options, failed)))
    server.run([bound])
    if failures:
        raise failures[0]


def run_workers(options: Options, bound: socket.socket, workers: int) -> None:
    load_model(options)  # once here: an error is reported once, and the workers find all caches filled
    with tempfile.TemporaryDirectory(prefix="fnftg-") as folder:
        generation = Path(folder) / "generation"
        bump_generation(generation)
        replace(options, generation=str(generation)).to_environment()
        parent = WorkerSupervisor(uvicorn_config("fnftg.serve.app:make_worker_app", workers), [bound], generation)
        parent.run()
    if parent.interrupted:
        raise KeyboardInterrupt


def uvicorn_config(app: object, workers: int = 1) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        factory=isinstance(app, str),
        workers=workers,
        log_config=LOGGING,
        access_log=False,  # it would show /?token=…
        server_header=False,
        backlog=BACKLOG,
    )


class WorkerSupervisor(Multiprocess):
    """Keeps the workers alive; on SIGHUP tells them to reload through a file."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], generation: Path):
        super().__init__(config, sockets)
        self.generation, self.interrupted = generation, False

    def handle_hup(self) -> None:
        with contextlib.suppress(OSError):
            bump_generation(self.generation)

    def handle_int(self) -> None:
        self.interrupted = True
        super().handle_int()
