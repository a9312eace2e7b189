"""Many ranges of an array at once, without a loop over them."""

from __future__ import annotations

import numpy as np

from fnftg.arrays import Int64Array


def ranges(starts: Int64Array, counts: Int64Array) -> Int64Array:
    """starts[0], starts[0] + 1, …: so many places from each start on, one range after the other."""
    ends = np.cumsum(counts)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts))
