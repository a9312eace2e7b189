"""Every seed of the fuzzer and every input that once crashed a reader: it works or gets one sentence, and soon."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from fnftg.errors import FnftgError

FUZZ = ROOT / "fuzz"
sys.path.insert(0, str(FUZZ))
TARGETS = importlib.import_module("targets").TARGETS

SECONDS = 10  # for an input


def inputs(target: str) -> list[Path]:
    return sorted(path for kind in ("corpus", "crashes") for path in (FUZZ / kind / target).glob("*"))


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_fuzzer_tried_works_or_gets_one_sentence(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FNFTG_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    read = TARGETS[target](tmp_path / "work")
    assert inputs(target)
    for path in inputs(target):
        started = time.monotonic()
        try:
            read(path.read_bytes())
        except FnftgError as error:
            assert "\n" not in str(error) and len(str(error)) < 2000, path
        assert time.monotonic() - started < SECONDS, path


def test_all_that_is_kept_belongs_to_a_target() -> None:
    kept = {path.name for kind in ("corpus", "crashes") for path in (FUZZ / kind).iterdir() if path.is_dir()}
    assert kept <= set(TARGETS)
