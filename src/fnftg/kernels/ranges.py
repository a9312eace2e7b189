"""Concatenated ranges of integers without a Python loop."""

from __future__ import annotations

import numpy as np

from fnftg.arrays import Int64Array


def ranges(starts: Int64Array, counts: Int64Array) -> Int64Array:
    """Return the concatenated ranges starts[i], …, starts[i] + counts[i] - 1."""
    ends = np.cumsum(counts)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts))
