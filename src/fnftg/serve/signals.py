"""SIGTERM and Ctrl-C: /readyz says "stopping" while the last requests end. SIGHUP: the checkpoint is loaded anew."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from fnftg.serve.loading import Keeper


@contextlib.contextmanager
def heard(keeper: Keeper) -> Iterator[None]:
    """In front of the handlers that are there already, which stop the server; none outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def stopping(number: int, frame: FrameType | None) -> None:
        keeper.stopping = True
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    def reload() -> None:
        task = loop.create_task(keeper.reload_quietly())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def hung_up(number: int, frame: FrameType | None) -> None:
        if keeper.options.generation is None:  # else the parent is told, and tells all workers
            loop.call_soon_threadsafe(reload)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)
    signal.signal(signal.SIGHUP, hung_up)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
