"""The command line as people meet it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import ROOT, Run

from fnftg.cli import COMMANDS, main


def test_help_lists_every_command_with_its_description_and_starts_fast(run: Run) -> None:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        result = run("--help")
        times.append(time.perf_counter() - started)
    assert result.returncode == 0
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.summary)}$", result.stdout, re.MULTILINE)
    assert min(times) < 0.5


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys; from fnftg.cli import main; main(['--help'])\n"
        "assert not {'numpy', 'polars', 'torch', 'rich', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", probe], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*name.split(), "--help"])
    printed = capsys.readouterr().out
    assert exit_.value.code == 0
    assert COMMANDS[name].summary in printed
    assert f"examples:\n  fnftg {name}" in printed


def test_group_of_commands_lists_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "split fir" in printed and "audit" not in printed
    assert main([]) == 2 and main(["split"]) == 2
    assert "split fir" in capsys.readouterr().err


def test_json_output_can_be_piped(family_folder: Path, tmp_path: Path, run: Run) -> None:
    store = tmp_path / "store"
    report = json.loads(run("import", family_folder, "-o", store, "--json").stdout)
    assert report["triples"] == {"train": 4, "val": 1, "test": 2} and report["self_loops"] == 1
    assert json.loads(run("data", "stats", store, "--json").stdout)["splits"]["test"]["entities"] == 2
    found = json.loads(run("audit", store, "--json").stdout)
    assert found["splits"]["test"]["reverse"] == 2 and found["splits"]["test"]["other_edge"] == 2
    assert "wordnet-animals" in json.loads(run("data", "list", "--json").stdout)
    assert run("audit", store).stdout.count("\n") > 10


def test_closed_pipe_is_no_error(family_folder: Path) -> None:
    command = f"{sys.executable} -m fnftg audit {shlex.quote(str(family_folder))} | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in result.stderr and "BrokenPipe" not in result.stderr


def test_commands_make_what_they_say(family_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "store")
    assert main(["import", str(family_folder), "-o", store]) == 0
    assert "triples in train" in capsys.readouterr().out
    assert main(["split", "inductive", store, "-o", str(tmp_path / "ind"), "--min-edges", "0", "--test", "0.3"]) == 1
    assert "No entity can be held out" in capsys.readouterr().err
    assert main(["split", "fir", store, "-o", str(tmp_path / "fir"), "--cross"]) == 0
    assert main(["data", "stats", str(tmp_path / "fir")]) == 0
    assert main(["export", store, "--format", "csv", "-o", str(tmp_path / "csv")]) == 0
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == [
        "checksums.json",
        "entities.csv",
        "relations.csv",
        "triples.csv",
    ]
    sizes = ["--entities", "300", "--triples", "1000", "--relations", "5"]
    assert main(["data", "synth", *sizes, "-o", str(tmp_path / "synth")]) == 0
    assert main(["data", "get", "wordnet-animals"]) == 0
    assert main(["audit", "wordnet-animals", "--visible", "own-split"]) == 0


def readme() -> str:
    return (ROOT / "README.md").read_text()


def readme_commands() -> list[str]:
    """The lines of the README's shell blocks, continued ones joined."""
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", readme(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def test_commands_of_the_readme_run_as_written(tmp_path: Path) -> None:
    """Shell and Python in the order of the page. make and pip are what CI itself runs."""
    found = re.findall(r"```(sh|python)\n(.*?)```", readme(), re.DOTALL)
    assert [language for language, _ in found].count("python") == 1
    ran = 0
    for language, block in found:
        if language == "python":
            assert len([line for line in block.splitlines() if line]) <= 10
            subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True)
            continue
        for line in block.replace("\\\n", " ").splitlines():
            command = shlex.split(line, comments=True)
            if not command or command[0] in ("make", "pip"):
                continue
            assert command[0] == "fnftg"
            arguments = [sys.executable, "-m", *command]
            if command[1] == "serve":
                assert_serves_until_told_to_stop([*arguments, "--port", "0"], tmp_path)
            else:
                result = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
                assert result.returncode == 0, f"{line}\n{result.stderr}"
            ran += 1
    assert ran == 3


def assert_serves_until_told_to_stop(arguments: list[str], folder: Path) -> None:
    with subprocess.Popen(arguments, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = re.search(r"http://[\d.:]+", server.stderr.readline())
        assert address is not None
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{address[0]}/readyz") as answer:
                    assert json.load(answer) == {"status": "ready"}
                break
            except urllib.error.URLError:  # also 503, while the model is being loaded
                time.sleep(0.1)
        else:
            raise AssertionError("the server was never ready")
        server.terminate()
        assert server.wait(30) == 0


def test_set_up_of_the_readme_is_what_ci_runs() -> None:
    assert "make test" in readme_commands() and "make demo" in readme_commands()
    assert "make test" in (ROOT / ".ci" / "run").read_text()
