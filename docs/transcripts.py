"""Write the real output of every command into the tutorials and examples: make transcripts.

    python docs/transcripts.py [--folder DIR] [PAGE …]

The code of all pages runs in order, in one new folder, with one training run (`animals-run`, trained by the tour).

- A block with a title is a file. It is written before the commands of its page run.
- A `sh` block runs; of blocks in tabs, the first one. Variables that are exported last until the end of the page.
  `fnftg serve` runs until the next server or the end of the page. A `python` block runs if an output follows it.
- A `text` or `json` block right after a block is its output, which this script replaces.

A comment in front of a block changes this:

    <!-- not run -->                the block does not run
    <!-- output of: COMMAND -->     the block is the output of this command; on README.md nothing else runs
    <!-- output: from A; to B -->   the output is shown from the first line that contains A to the next that contains B
    <!-- output: items 1 -->        lists in JSON keep 1 item
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

DOCS = Path(__file__).resolve().parent
NAMES = ("docs/tour.md", "README.md", "docs/tutorial-csv.md", "docs/tutorial-ontology.md", "docs/tutorial-service.md")
PAGES = [DOCS.parent / name for name in (*NAMES, "docs/http.md", "docs/predicting.md")]  # the first trains the model
BLOCK = re.compile(
    r'^(?:<!-- (?P<note>[^\n]*?) -->\n+)?(?P<indent> *)```(?P<language>\w+)(?: title="(?P<title>.+?)")?\n'
    r"(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
BETWEEN_TABS = re.compile(r"===|    |<!--|\s*$")  # lines that may stand between a block and its output
PROGRESS = re.compile(r"^[\w ]+: [\d,]+ of [\d,]+ .* left\n", re.MULTILINE)  # which a terminal shows in one line
WIDTH, LONGEST_TEXT = 92, 56  # of JSON, as wide as a page
PORT = "8000"  # on the pages; commands get one that is free


@dataclass
class Step:
    """A piece of code to run, and the block that shows its output, if there is one."""

    code: str
    language: str = "sh"
    end: int = 0
    in_tab: bool = False
    output: re.Match[str] | None = None


def steps(text: str, only_notes: bool = False) -> list[Step]:
    """What a page runs, in order."""
    found: list[Step] = []
    last: Step | None = None  # the code whose output may come next
    for block in BLOCK.finditer(text):
        note, language, in_tab = block["note"] or "", block["language"], bool(block["indent"])
        if last and not all(BETWEEN_TABS.match(line) for line in text[last.end : block.start()].splitlines()):
            last = None
        if note.startswith("output of: "):
            found.append(Step(note.removeprefix("output of: "), output=block))
        elif only_notes or block["title"] or note == "not run":
            last = None
        elif language in ("text", "json"):
            if last:
                last.output = block
            last = None
        elif language in ("sh", "python") and not (last and last.in_tab and in_tab):
            code = re.sub(rf"^{block['indent']}", "", block["body"], flags=re.MULTILINE)
            last = Step(code, language, block.end(), in_tab)
            found.append(last)
    return [step for step in found if step.language == "sh" or step.output]


class Shell:
    """Runs code in one folder and gives what it prints, without paths of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: subprocess.Popen[str] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        commands = folder / "bin"
        commands.mkdir(parents=True)
        for name, arguments in {"fnftg": "-m fnftg ", "python": ""}.items():
            (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
            (commands / name).chmod(0o755)
        settings = {"FNFTG_HOME": str(folder / "home"), "PATH": f"{commands}:{os.environ['PATH']}"}
        settings |= {
            "OMP_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }  # the same bits each time
        self.process: dict[str, Any] = {"cwd": folder, "env": {**os.environ, **settings}, "text": True}

    def run(self, step: Step) -> str:
        print(step.code.rstrip(), file=sys.stderr)
        code = step.code if step.language == "sh" else f"python - <<'END'\n{step.code}\nEND\n"
        code = f"set -e\n[ ! -f .exported ] || . ./.exported\n{code.replace(PORT, self.port)}\nexport -p > .exported\n"
        serving = re.sub(r"(?m)^fnftg serve .*", rf"export -p > .exported\nexec \g<0> --port {self.port}", code)
        return self.finish(code) if serving == code else self.serve(serving)

    def finish(self, code: str) -> str:
        to_pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(["bash", "-c", code], check=False, **to_pipe, **self.process)
        if done.returncode:
            raise SystemExit(f"The command failed:\n{done.stdout}")
        return self.cleaned(done.stdout)

    def serve(self, code: str) -> str:
        """Start a server and give what it prints until it answers."""
        self.stop()
        log = self.folder / ".server"
        with log.open("w") as file:
            to_file: dict[str, Any] = {"stdout": file, "stderr": file, "start_new_session": True}
            self.server = subprocess.Popen(["bash", "-c", code], **to_file, **self.process)
        while self.server.poll() is None:
            with contextlib.suppress(URLError, ConnectionError), urlopen(f"http://127.0.0.1:{self.port}/readyz"):
                return self.cleaned(log.read_text())
            time.sleep(0.2)
        raise SystemExit(f"The server ended:\n{log.read_text()}")

    def stop(self) -> None:
        """End the server, if there is one."""
        if self.server is not None and self.server.poll() is None:
            os.killpg(self.server.pid, signal.SIGTERM)
            self.server.wait()

    def forget(self) -> None:
        """Forget the variables that were exported."""
        (self.folder / ".exported").unlink(missing_ok=True)

    def cleaned(self, output: str) -> str:
        output = PROGRESS.sub("", output).replace(str(self.folder / "home"), "~/.cache/fnftg")
        output = output.replace(f"{self.folder}/", "").replace(self.port, PORT)
        return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", output, flags=re.MULTILINE)).strip("\n") + "\n"


def excerpt(output: str, note: str) -> str:
    """The part of an output that its note asks for."""
    given = dict(part.split(" ", 1) for part in note.removeprefix("output: ").split("; ")) if "output: " in note else {}
    lines = output.splitlines()
    first = next((number for number, line in enumerate(lines) if given.get("from", "") in line), None)
    ends = [number for number, line in enumerate(lines) if "to" in given and given["to"] in line]
    last = next((number for number in ends if number >= (first or 0)), None)
    if first is None or ("to" in given and last is None):
        raise SystemExit(f"The output has no lines for '{note}':\n{output}")
    return "\n".join(lines[first : None if last is None else last + 1]).strip("\n") + "\n"


def shortened(value: Any, items: int) -> Any:
    """A JSON value with long texts cut, long lists too, and four digits behind the point."""
    if isinstance(value, dict):
        return {key: cut(one) if key == "text" else shortened(one, items) for key, one in value.items()}
    if isinstance(value, list):
        return [shortened(one, items) for one in value[:items]] + ["…"] * (len(value) > items)
    return round(value, 4) if isinstance(value, float) else value


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rstrip()}…"


def laid_out(value: Any, depth: int = 0, name: str = "") -> str:
    """JSON in lines of at most WIDTH characters, as full as they can be, indented by depth."""
    flat = json.dumps(value, ensure_ascii=False).replace('"…"', "…")
    if depth + len(name + flat) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return name + flat
    named = value if isinstance(value, dict) else {}
    parts = [(f"{json.dumps(key)}: ", one) for key, one in named.items()] or [("", one) for one in value]
    lines = [""]
    for part in (laid_out(one, depth + 1, key) for key, one in parts):
        if lines[-1] and ("\n" in part or depth + 1 + len(f"{lines[-1]} {part},") > WIDTH):
            lines.append("")
        lines[-1] += f" {part}," if lines[-1] else f"{part},"
        lines += [""] if "\n" in part else []
    text = f"\n{' ' * (depth + 1)}".join(line for line in lines if line).rstrip(",")
    return f"{name}{{{text}}}" if named else f"{name}[{text}]"


def shown(block: re.Match[str], output: str) -> str:
    """An output as its block shows it."""
    note = block["note"] or ""
    if block["language"] == "text":
        return excerpt(output, note)
    items = re.search(r"items (\d+)", note)
    return laid_out(shortened(json.loads(output), int(items[1]) if items else 10)) + "\n"


def transcribed(text: str, shell: Shell, only_notes: bool = False) -> str:
    """A page with the outputs that its code has now."""
    for block in BLOCK.finditer(text):
        if block["title"] and not only_notes:
            (shell.folder / block["title"]).write_text(block["body"], encoding="utf-8")
    outputs = [(step.output, shell.run(step)) for step in steps(text, only_notes)]
    shell.stop()
    shell.forget()
    for place, output in reversed(outputs):
        if place:
            text = text[: place.start("body")] + shown(place, output) + text[place.end("body") :]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, metavar="DIR", help="a new folder to work in, which is kept")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES, metavar="PAGE", help="default: all pages")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        shell = Shell((chosen.folder or Path(temporary) / "pages").resolve())
        try:
            read = [(page, page.read_text(encoding="utf-8")) for page in chosen.pages]
            made = [(page, transcribed(text, shell, page.name == "README.md")) for page, text in read]
        finally:
            shell.stop()
    for page, text in made:
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
