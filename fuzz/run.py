"""Fuzz all targets, each in its own process.

    python fuzz/run.py [TARGET …]

FUZZ_SECONDS sets the seconds per target (default: 30). Inputs that crash are saved in fuzz/crashes/TARGET, and
tests/test_fuzz_corpus.py replays them. The exit code is 1 if a target crashes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from targets import TARGETS

HERE = Path(__file__).parent
SECONDS = int(os.environ.get("FUZZ_SECONDS", "30"))
TIMEOUT, MEMORY, LONGEST = 10, 3072, 8192  # limits of one input: seconds, megabytes of memory, bytes of length


def fuzz(name: str) -> bool:
    """Fuzz a target, print one line about it, with its output if it crashed, and return whether it passed."""
    crashes, started = HERE / "crashes" / name, time.monotonic()
    crashes.mkdir(parents=True, exist_ok=True)
    before = set(crashes.iterdir())
    options = [f"-max_total_time={SECONDS}", f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEMORY}", f"-max_len={LONGEST}"]
    options += [f"-artifact_prefix={crashes}/", "-print_final_stats=1"]
    with tempfile.TemporaryDirectory() as found:
        command = [sys.executable, str(HERE / "one.py"), name, *options, found, str(HERE / "corpus" / name)]
        result = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = result.stdout.decode(errors="replace")
    runs = re.findall(r"number_of_executed_units:\s*(\d+)", output) or re.findall(r"^#(\d+)", output, re.M) or [0]
    new = sorted(path for path in set(crashes.iterdir()) - before if not path.name.startswith("slow-unit"))
    crashed = result.returncode != 0 or bool(new)
    kept = ", ".join(str(path.relative_to(HERE.parent)) for path in new) or "see below"
    seconds = time.monotonic() - started
    print(f"{name:20}{runs[-1]:>10} runs {seconds:6.0f} s  {f'CRASHED: {kept}' if crashed else 'ok'}", flush=True)
    if crashed:
        said = [line for line in output.splitlines() if not re.match(r"#|INFO|WARNING|stat::|\t", line)]
        print("\n".join(f"    {line}" for line in said[-40:]), flush=True)
    elif not any(crashes.iterdir()):
        shutil.rmtree(crashes)
    return not crashed


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(TARGETS)
    if unknown:
        sys.exit(f"There is no target {', '.join(sorted(unknown))}: choose from {', '.join(TARGETS)}.")
    sys.exit(0 if min(map(fuzz, sys.argv[1:] or TARGETS)) else 1)
