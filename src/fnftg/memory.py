"""Memory that was freed is kept for the next step: to hand it back and fetch it anew takes up to half of a step."""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # names of mallopt(3)


def keep_freed_memory() -> None:
    """From now on large blocks come from the heap, which never shrinks; where the C library is not glibc, nothing."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    set_option(MMAP_MAX, 0)
    set_option(TRIM_THRESHOLD, -1)
