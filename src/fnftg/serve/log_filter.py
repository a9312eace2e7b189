"""A log filter that suppresses repeated lines."""

from __future__ import annotations

import logging
import time

MOST_LINES, PERIOD = 5, 10.0  # lines of one kind per period; seconds


class RepetitionFilter(logging.Filter):
    """Passes a few lines of each kind per period. The first line of the next period says how many were suppressed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[str, str], tuple[float, int]] = {}  # start of the period, and lines since then

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = (record.name, str(record.msg)[:100]), time.monotonic()
        began, lines = self.seen.get(kind, (now, 0))
        left_out = 0
        if now - began >= PERIOD:
            began, left_out, lines = now, max(lines - MOST_LINES, 0), 0
        if len(self.seen) > 1000:
            self.seen.clear()
        self.seen[kind] = began, lines + 1
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} similar lines were suppressed.)", None
        return lines < MOST_LINES
