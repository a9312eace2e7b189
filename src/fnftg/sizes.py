"""Parse sizes such as 2GB."""

from __future__ import annotations

import sys

from fnftg.errors import FnftgError, shortened

LEAST = 1 << 24


def parse_size(words: str) -> int:
    """Return the number of bytes of a size: 2GB, 512MB, or a plain number.

    Raises:
        FnftgError: if it is not a size of at least 16 MB.
    """
    text = words.strip().upper().removesuffix("B").removesuffix("I")
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:], 1)
    try:
        size = int(float(text.rstrip("KMGT")) * factor)
    except (ValueError, OverflowError) as error:
        raise FnftgError(f"{shortened(words)} is not a size: write for example 512MB or 2GB.") from error
    if not LEAST <= size <= sys.maxsize:
        raise FnftgError(f"The size {words} is below 16 MB or too large: write for example 512MB or 2GB.")
    return size
