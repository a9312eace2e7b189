"""The house is in order: linted, typed, and no room reaches where it may not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SOURCE = ROOT / "src" / "fnftg"
FOUNDATION = {"arrays", "errors", "console", "files", "memory", "version", "fnftg"}  # what every room may use
ROOMS = {  # what else of ours each room may use
    "kernels": set(),
    "kg": set(),
    "text": {"kg", "kernels"},
    "ego": {"kg", "text", "kernels"},
    "models": {"kg", "text", "ego", "kernels"},
    "ranking": {"kg", "text", "ego", "kernels", "models"},
    "training": {"kg", "text", "ego", "kernels", "models", "ranking"},
    "predict": {"kg", "text", "ego", "kernels", "models", "ranking"},
    "serve": {"kg", "models", "ranking", "predict"},
    "paper": {"kg", "text", "ego", "kernels", "models", "ranking", "training", "predict"},
}


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]],
    ids=" ".join,
)
def test_code_is_clean(command: list[str]) -> None:
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def imported_rooms(path: Path) -> set[str]:
    """The rooms of ours that a file imports from, also inside functions."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "fnftg" else [node.module]
        rooms |= {name.split(".")[1] if "." in name else name for name in names if name.split(".")[0] == "fnftg"}
    return rooms


@pytest.mark.parametrize("room", [path.name for path in SOURCE.iterdir() if path.is_dir() and path.name[0] not in "._"])
def test_room_reaches_only_where_it_may(room: str) -> None:
    for path in sorted((SOURCE / room).rglob("*.py")):
        beyond = imported_rooms(path) - FOUNDATION - ROOMS[room] - {room}
        assert not beyond, f"{path.relative_to(ROOT)} imports from {', '.join(sorted(beyond))}"
