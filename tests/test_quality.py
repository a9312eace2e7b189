"""The code is linted and typed, no room imports what it may not, nothing imports in a circle, names are the field's."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from conftest import ROOT

SOURCE = ROOT / "src" / "fnftg"
FOUNDATION = {  # what every room may use
    *(
        "array_files",
        "arrays",
        "checksums",
        "console",
        "errors",
        "files",
        "fnftg",
        "json_files",
        "memory",
        "part_files",
    ),
    *("sizes", "version"),
}
ROOMS = {  # what else of ours each room may use
    "kernels": set(),
    "kg": set(),
    "text": {"kg", "kernels"},
    "ego": {"kg", "text", "kernels"},
    "evidence": {"kg", "text", "ego", "kernels"},
    "models": {"kg", "text", "ego", "kernels", "evidence"},
    "ranking": {"kg", "text", "ego", "kernels", "evidence", "models"},
    "training": {"kg", "text", "ego", "kernels", "evidence", "models", "ranking"},
    "predict": {"kg", "text", "ego", "kernels", "evidence", "models", "ranking"},
    "serve": {"kg", "models", "ranking", "predict"},
    "paper": {"kg", "text", "ego", "kernels", "evidence", "models", "ranking", "training", "predict"},
}
# Private words for which the field has others.
# fmt: off
OLD_WORDS = {  # as a part of any name, in any case
    "vote", "votes", "voter", "voters", "voting", "extras", "lookalike", "lookalikes", "parallels", "kinship",
    "naming", "bonds", "precedent", "precedents", "weigh", "weighed", "weighing", "unmet", "meet", "prints",
    "signature", "heard", "rooms", "keeper", "refusal", "grown", "beside",
}
OLD_NAMES = {  # as a whole name: parts of them are plain English
    "Visible", "Compared", "Asked", "Addition", "Meaning", "Own", "Served", "taken_in", "compare_all",
    "recall_all", "figures_of_the_paper", "surroundings",
}
OLD_MODULES = {  # as the name of a file: a module is a noun
    "asking", "batching", "guarding", "running", "loading", "importing", "exporting", "opening", "comparing",
    "building", "making", "explaining", "updating", "completing", "keeping", "growing", "resolving", "answering",
    "reading",
}
# fmt: on
OLD_FUNCTIONS = {"say", "kept"}  # as the name of a function: a variable `kept`, a mask of rows, is plain English
ALLOWED = {  # (word, file): why it stays
    ("signature", "kernels/loops.py"): "LLVM's and numba's word for the types of a function",
    ("signature", "text/encoder.py"): "inspect.signature of the standard library",
    ("signature", "text/hub.py"): "inspect.signature of the standard library",
}
# Not tested, as they are plain English in most places: near, added, met, alike, usual, mentioned, columns, earlier, draws,
# clip, limit, batch, loops, points, rows.


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


def modules() -> dict[str, Path]:
    """Every module of the package by its name with dots."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("fnftg", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_modules(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, also inside functions and under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else node.module for name in names}
    return found & set(known)


def test_no_module_imports_in_a_circle() -> None:
    known = modules()
    graph = {name: imported_modules(path, known) - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


def test_no_two_classes_have_the_same_name() -> None:
    places = defaultdict(list)
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def names_in(path: Path) -> Iterator[tuple[str, bool]]:
    """Every name in a file, and whether it names a function: of Python the identifiers and the strings that could be a
    key or an option, of other files all words outside comments."""
    text = path.read_text()
    if path.suffix != ".py":
        text = re.sub(r"/\*.*?\*/|//[^\n]*|<!--.*?-->|^\s*#[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
        yield from ((name, False) for name in re.findall(r"[A-Za-z_]\w*", text))
        return
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.string, before == "def"
        before = token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.-]+", node.value):
            yield from ((name, False) for name in re.findall(r"[A-Za-z_]\w*", node.value))


def old_word(name: str, is_function: bool) -> str | None:
    """The word of the private vocabulary that a name has in it."""
    if name in OLD_NAMES or (is_function and name in OLD_FUNCTIONS):
        return name
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    return next((part for part in parts if part in OLD_WORDS), None)


def test_no_two_modules_share_a_name() -> None:
    names = Counter(path.stem for path in SOURCE.rglob("*.py") if path.stem != "__init__")
    assert [name for name, count in names.items() if count > 1] == []


def test_names_are_words_of_the_field() -> None:
    suffixes = {".py", ".js", ".html", ".css", ".yaml", ".json"}
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(path for path in SOURCE.rglob("*") if path.suffix in suffixes):
        place = str(path.relative_to(SOURCE))
        if path.stem in OLD_MODULES or old_word(path.stem, False):
            found[place].add(path.name)
        for name, is_function in names_in(path):
            word = old_word(name, is_function)
            if word is not None and (word, place) not in ALLOWED:
                found[place].add(name)
    assert not found, "\n".join(f"{place}: {', '.join(sorted(names))}" for place, names in found.items())
