"""What the benchmarks share: figures with limits, phases in processes of their own, and what machine it was.

A benchmark names its phases (functions of strings that return figures) and a function that measures with them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fnftg.console import print_json, print_table

MEGABYTE, GIGABYTE = 10**6, 10**9
Phase = Callable[..., dict[str, float]]


@dataclass(frozen=True)
class Figure:
    """One measurement, and the limit that it must keep."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False  # the limit is a lower one

    @property
    def met(self) -> bool:
        return self.limit is None or (self.value >= self.limit if self.at_least else self.value < self.limit)

    def row(self) -> tuple[str, ...]:
        limit = "" if self.limit is None else f"{'≥' if self.at_least else '<'} {self.limit:,g} {self.unit}"
        verdict = "" if self.limit is None else "pass" if self.met else "FAIL"
        return self.name, f"{self.value:,.2f} {self.unit}", limit, verdict


def run(phase: Phase, *arguments: object) -> dict[str, float]:
    """The phase's figures and its peak memory, from a fresh process."""
    command = [sys.executable, sys.argv[0], "--phase", phase.__name__, *map(str, arguments)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(answer.splitlines()[-1])
    return figures


def peak_memory() -> int:
    """The most bytes that this process ever had in memory, its mapped files included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def fresh_peak() -> int:
    """Forgets the peak so far, where the system can, and returns the memory that is in use."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak_memory()


def machine(libraries: Sequence[str]) -> dict[str, Any]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory": f"{memory / GIGABYTE:.0f} GB",
        "python": platform.python_version(),
        **{library: importlib.metadata.version(library) for library in libraries},
    }


def main(
    parser: argparse.ArgumentParser,
    phases: Sequence[Phase],
    measure: Callable[[argparse.Namespace], list[Figure]],
    libraries: Sequence[str],
) -> int:
    """Runs a phase where this process was started for one, else measures and prints; 1 where a limit is not met."""
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--phase", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        name, *arguments = options.phase
        figures = {phase.__name__: phase for phase in phases}[name](*arguments)
        print(json.dumps({**figures, "peak": peak_memory()}))
        return 0
    measured = measure(options)
    if options.json:
        figures_ = [{**asdict(figure), "met": figure.met} for figure in measured]
        print_json({"machine": machine(libraries), "figures": figures_})
    else:
        note = ", ".join(f"{name} {value}" for name, value in machine(libraries).items())
        title = (parser.description or "").splitlines()[0]
        print_table(title, ("what", "measured", "limit", ""), [figure.row() for figure in measured], note)
    return 0 if all(figure.met for figure in measured) else 1
