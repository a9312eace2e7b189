"""What is killed at any time leaves nothing behind that the next try stumbles over."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from conftest import ROOT


def test_a_killed_command_does_what_an_undisturbed_one_does() -> None:
    """A little of what benchmarks/kills.py does with every command."""
    command = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--commands", "import", "train", "--json"]
    done = subprocess.run([*command, "--kills", "2"], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["command"]: row for row in json.loads(done.stdout)}
    assert rows.keys() == {"import", "train"} and sum(row["kills"] for row in rows.values()) >= 3
    assert not any(row["wrong"] or row["leftovers"] for row in rows.values())
