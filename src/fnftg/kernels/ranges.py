"""Many ranges of an array at once, without a loop over them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """starts[0], starts[0] + 1, …: so many places from each start on, one range after the other."""
    ends = np.cumsum(counts)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts))
