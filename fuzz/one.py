"""Fuzz one target until its time is up: python fuzz/one.py TARGET [libFuzzer options and folders]."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

SOURCE = Path(__file__).parents[1] / "src"


def compiled_modules() -> list[str]:
    """Return the modules that numba compiles from bytecode, which must not be instrumented."""
    paths = (path for path in (SOURCE / "fnftg").rglob("*.py") if "njit" in path.read_text(encoding="utf-8"))
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths]


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    os.fsync = lambda descriptor: None  # type: ignore[assignment]  # durability is not needed here
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        os.environ["FNFTG_HOME"] = f"{folder}/home"
        Path(folder, "work").mkdir()
        with atheris.instrument_imports(include=["fnftg"], exclude=compiled_modules()):
            from targets import TARGETS

            from fnftg.errors import FnftgError

            target = TARGETS[name](Path(folder, "work"))

            def test_one_input(data: bytes) -> None:
                try:
                    target(data)
                except FnftgError as error:
                    assert "\n" not in str(error) and len(str(error)) < 2000, f"not one sentence: {error!r}"

            for seed in (Path(__file__).parent / "corpus" / name).iterdir():
                test_one_input(seed.read_bytes())  # so that lazy imports happen now and are instrumented
        atheris.Setup([sys.argv[0], *options], test_one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
