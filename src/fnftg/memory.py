"""Control how glibc reuses freed memory.

Training keeps freed memory for the next step, because returning and requesting it again takes up to half of a step. The
server returns it to the system from time to time. All functions do nothing if the C library is not glibc.
"""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8  # names of mallopt(3)


def keep_freed_memory() -> None:
    """Allocate large blocks from the heap, and never shrink the heap."""
    _set_options({MMAP_MAX: 0, TRIM_THRESHOLD: -1})


def share_free_memory() -> None:
    """Let all threads share two heaps, so that memory freed by one thread is available to the others.

    Call this before threads are started.
    """
    _set_options({ARENA_MAX: 2})


def hand_back_freed_memory() -> None:
    """Return freed memory to the system, including free pages between blocks in use."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)


def _set_options(values: dict[int, int]) -> None:
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in values.items():
        set_option(option, value)
