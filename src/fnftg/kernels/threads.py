"""Run compiled loops on several threads.

The loops release Python's global lock, so plain threads work in parallel. Unlike numba's thread pools (OpenMP fails
after a fork, workqueue fails if two threads use it), they work from any thread of a server and in forked processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import torch

LEAST_WORK = 1 << 21  # operations, about 0.1 ms; with less work, another thread costs more than it saves
SHARES = 4  # parts per thread, so that a slow thread does not delay the others

_pools: list[ThreadPoolExecutor] = []
os.register_at_fork(after_in_child=_pools.clear)  # a forked process inherits the pool but not its threads


def in_parallel(work: Callable[[int, int], None], size: int, cost: int) -> None:
    """Call work(start, stop) on parts of range(size), on as many threads as torch uses.

    The parts depend on the number of threads, so results must not depend on the parts.

    Args:
        work: function of the start and the end of a part.
        size: number of items.
        cost: operations per item.
    """
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
            if not helper.cancel():  # a helper that has not started has nothing left to do
                helper.result()
        held.clear()  # frees the arrays of `work`, while a cancelled helper may stay in the queue


def _pool() -> ThreadPoolExecutor:
    if not _pools:
        _pools.append(ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fnftg-kernel"))
    return _pools[0]
