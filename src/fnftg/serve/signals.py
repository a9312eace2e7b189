"""Signal handlers: SIGTERM and Ctrl-C make /readyz return "stopping" while the last requests end; SIGHUP reloads."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from fnftg.serve.model_manager import ModelManager


@contextlib.contextmanager
def install_signal_handlers(manager: ModelManager) -> Iterator[None]:
    """Install handlers that run before uvicorn's, which stop the server. Do nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def stop(number: int, frame: FrameType | None) -> None:
        manager.stopping = True
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    def reload() -> None:
        task = loop.create_task(manager.reload_quietly())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def hang_up(number: int, frame: FrameType | None) -> None:
        if manager.options.generation is None:  # otherwise the parent process gets the signal and notifies all workers
            loop.call_soon_threadsafe(reload)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
