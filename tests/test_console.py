"""Progress where standard error is no terminal: a line every 30 seconds, and nothing for short steps."""

from __future__ import annotations

import pytest

from fnftg.console import Progress, duration, progress


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_long_step_prints_a_line_every_thirty_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("Encoding texts", 12_000, "texts", clock=clock) as shown:
        for _ in range(100):
            clock.now += 1
            shown.advance(120, "loss 0.5")
    assert capsys.readouterr().err.splitlines() == [
        f"Encoding texts: {done:,} of 12,000 texts, 120 texts/s, loss 0.5, {left} left"
        for done, left in ((3_600, "1 min 10 s"), (7_200, "40 s"), (10_800, "10 s"))
    ]


def test_short_step_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("Encoding texts", 29, "texts", clock=clock) as shown:
        for _ in range(29):
            clock.now += 1
            shown.advance(1)
    assert capsys.readouterr().err == ""


def test_step_that_was_continued_counts_only_its_own_speed(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("Training", 1_000, "triples", done=500, clock=clock) as shown:
        clock.now += 40
        shown.advance(100)
    assert capsys.readouterr().err == "Training: 600 of 1,000 triples, 2.5 triples/s, 2 min 40 s left\n"


def test_bytes_are_megabytes_and_a_total_may_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("Unpacking", None, clock=clock) as shown:
        clock.now += 30
        shown.advance(90_000_000)
    assert capsys.readouterr().err == "Unpacking: 90.0 MB, 3.0 MB/s\n"


def test_only_the_first_process_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FNFTG_PROGRESS_SECONDS", "0")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        with progress("Ranking", 10, "triples") as advance:
            advance(5)
        assert len(capsys.readouterr().err.splitlines()) == lines


def test_durations_are_read_at_a_glance() -> None:
    assert [duration(seconds) for seconds in (0.2, 59, 200, 7_500)] == ["0 s", "59 s", "3 min 20 s", "2 h 5 min"]
