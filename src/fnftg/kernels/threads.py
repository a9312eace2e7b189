"""Running compiled loops on several threads.

The loops release Python's lock, so plain threads share the work. Unlike numba's own thread pools (OpenMP dies after a
fork, the workqueue when two threads enter it) these may be used from any thread of a server and in a forked worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import torch

LEAST_WORK = 1 << 21  # operations below which handing work to a thread costs more than it saves: about 0.1 ms
SHARES = 4  # parts per thread, so that a thread whose core is busy elsewhere does not hold up the others

_pools: list[ThreadPoolExecutor] = []
os.register_at_fork(after_in_child=_pools.clear)  # a forked child has the pool but not its threads


def in_parallel(work: Callable[[int, int], None], size: int, cost: int) -> None:
    """Calls work(start, stop) on parts of range(size), each item of which takes `cost` operations, on as many threads
    as torch would use here. Which parts there are depends on the threads, so no result may depend on the parts."""
    threads = max(torch.get_num_threads(), 1)
    part = max(-(-LEAST_WORK // max(cost, 1)), -(-size // (SHARES * threads)), 1)
    parts = -(-size // part)
    if threads == 1 or parts <= 1:
        if size > 0:
            work(0, size)
        return
    numbers, held = count(), [work]

    def share() -> None:
        while (number := next(numbers)) < parts:
            held[0](number * part, min((number + 1) * part, size))

    helpers = [_pool().submit(share) for _ in range(min(threads, parts) - 1)]
    try:
        share()
    finally:
        for helper in helpers:
            if not helper.cancel():  # one that still waits for a thread has nothing left to do
                helper.result()
        held.clear()  # a cancelled helper may stay in the queue for a while, the arrays of `work` need not


def _pool() -> ThreadPoolExecutor:
    if not _pools:
        _pools.append(ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fnftg-kernel"))
    return _pools[0]
