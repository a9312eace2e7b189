"""Shared code of the benchmarks: measurements with limits, phases in separate processes, and facts about the machine.

A benchmark defines its phases, functions of strings that return a dict, and a function that runs them and returns a
list of `Figure`.
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
    """A measurement and its limit."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False  # whether the limit is a minimum

    @property
    def met(self) -> bool:
        return self.limit is None or (self.value >= self.limit if self.at_least else self.value < self.limit)

    def row(self) -> tuple[str, ...]:
        limit = "" if self.limit is None else f"{'≥' if self.at_least else '<'} {self.limit:,g} {self.unit}"
        verdict = "" if self.limit is None else "pass" if self.met else "FAIL"
        return self.name, f"{self.value:,.2f} {self.unit}", limit, verdict


def run(phase: Phase, *arguments: object) -> dict[str, float]:
    """Run a phase in a new process and return its results and its peak memory."""
    command = [sys.executable, sys.argv[0], "--phase", phase.__name__, *map(str, arguments)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(answer.splitlines()[-1])
    return figures


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes, including mapped files."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def fresh_peak() -> int:
    """Reset the peak memory, if the system supports it, and return the memory in use."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak_memory()


def machine(libraries: Sequence[str]) -> dict[str, Any]:
    """Return the system, cores, memory and versions of the libraries."""
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
    """Run a single phase if this process was started for one, else measure and print.

    Returns:
        The exit code: 1 if a limit is missed.
    """
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
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
