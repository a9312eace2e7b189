"""Repeatable computations with torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def deterministic() -> Iterator[None]:
    """Use deterministic algorithms, so that several threads sum gradients in a fixed order."""
    utilities: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled, utilities.fill_uninitialized_memory = utilities.fill_uninitialized_memory, False  # not needed
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        utilities.fill_uninitialized_memory = filled
