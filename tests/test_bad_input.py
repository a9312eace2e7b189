"""Bad input ends in one sentence that names the place and the fix, exit code 1 and no traceback."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from conftest import Run

from fnftg.cli import main
from fnftg.files import new_file, new_folder
from fnftg.json_files import read_json, write_json
from fnftg.kg import import_graph


def put(folder: Path, name: str, content: bytes | str) -> None:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def truncated(compress: Callable[[bytes], bytes]) -> bytes:
    return compress(os.urandom(2_000).hex().encode())[:-100]


def only_triples(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


Spoil = Callable[[Path], None]
TRAIN = "ann\tparent_of\tbob\n"

# name of the case: what is done to the good folder, further arguments, parts of the message
FOLDER_CASES: dict[str, tuple[Spoil, list[str], list[str]]] = {
    "empty file": (lambda f: put(f, "ind-train.tsv", ""), [], ["ind-train.tsv", "is empty"]),
    "blank lines only": (lambda f: put(f, "ind-train.tsv", "\n \n"), [], ["ind-train.tsv", "is empty"]),
    "two columns": (lambda f: put(f, "ind-train.tsv", TRAIN + "ann\tbob\n"), [], ["line 2", "2 ", "instead of 3"]),
    "four columns": (lambda f: put(f, "ind-dev.tsv", TRAIN * 3 + "a\tb\tc\td\n"), [], ["line 4", "4 ", "instead of 3"]),
    "empty column": (lambda f: put(f, "ind-train.tsv", TRAIN + "ann\t\tbob\n"), [], ["line 2", "column 2 is empty"]),
    "bad encoding": (lambda f: put(f, "ind-train.tsv", TRAIN.encode() + b"a\xff\tb\tc\n"), [], ["line 2", "0xff", "UTF-8"]),
    "bad encoding of a text": (lambda f: put(f, "entity2text.txt", b"ann\tAnn\nbob\t\xe9\n"), [], ["line 2", "UTF-8"]),
    "text line without tab": (lambda f: put(f, "entity2text.txt", "ann\tAnn\nbob Bob\n"), [], ["line 2", "tab"]),
    "entity without text": (lambda f: put(f, "entity2text.txt", "ann\tAnn\n"), ["--strict"], ["entity 'bob'", "no text"]),
    "relation without text": (lambda f: put(f, "relation2text.txt", "knows\tknows\n"), ["--strict"], ["relation 'parent_of'"]),
    "truncated gzip": (
        lambda f: ((f / "ind-dev.tsv").unlink(), put(f, "ind-dev.tsv.gz", truncated(gzip.compress)))[1],
        [], ["ind-dev.tsv.gz", "truncated"],
    ),
    "truncated zstandard": (
        lambda f: ((f / "ind-dev.tsv").unlink(), put(f, "ind-dev.tsv.zst", truncated(zstandard.compress)))[1],
        [], ["ind-dev.tsv.zst", "truncated"],
    ),
    "not gzip at all": (
        lambda f: ((f / "ind-dev.tsv").unlink(), put(f, "ind-dev.tsv.gz", TRAIN))[1],
        [], ["ind-dev.tsv.gz", "not gz data"],
    ),
    "no training triples": (lambda f: (f / "ind-train.tsv").unlink(), ["--format", "blp"], ["add the training triples"]),
    "split with an odd name": (lambda f: put(f, "ind-a b.tsv", TRAIN), [], ["'a b'", "not a valid split name"]),
    "nothing known in the folder": (only_triples, [], ["--format"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDER_CASES)
def test_bad_folder_gets_one_sentence_and_no_store(
    case: str, family_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, arguments, parts = FOLDER_CASES[case]
    spoil(family_folder)
    assert main(["import", str(family_folder), "-o", str(tmp_path / "store"), *arguments]) == 1
    assert_one_sentence(capsys, parts)
    assert [path.name for path in tmp_path.iterdir()] == ["family"]


# name of the case: file, content, further arguments, parts of the message
FILE_CASES: dict[str, tuple[str, bytes | str, list[str], list[str]]] = {
    "missing file": ("", "", [], ["does not exist"]),
    "unknown ending": ("graph.docx", TRAIN, [], ["--format"]),
    "two columns": ("graph.tsv", "ann\tbob\n", [], ["line 1", "instead of 3"]),
    "column of a carriage return": ("graph.tsv", TRAIN + "a\t\r\tb\n", [], ["line 2", "column 2 is empty"]),
    "four columns later": ("graph.tsv", TRAIN + "a\tb\tc\td\n", [], ["line 2", "instead of 3"]),
    "csv with too few": ("graph.csv", 'head,relation,tail\n"a, b",knows,c\nx,y\n', [], ["line 3", "instead of 3"]),
    "csv with an open quote": ("graph.csv", 'head,relation,tail\n"a,knows,c\nx,y,z\n', [], ["line 2"]),
    "csv with open quotes everywhere": ("graph.csv", 'a,r,"b\n' * 6, [], ["line 1", "check its quotes"]),
    "superscript as column": ("graph.tsv", TRAIN, ["--head", "²", "--relation", "2", "--tail", "3"], ["no column '²'"]),
    "digits of another script": ("graph.tsv", TRAIN, ["--head", "१"], ["no column '१'"]),
    "column with thousands of digits": ("graph.tsv", TRAIN, ["--head", "1" * 5000], ["no column '111"]),
    "too many splits": (
        "graph.tsv", "head\trelation\ttail\tsplit\n" + "".join(f"a\tr\tb\ts{n}\n" for n in range(30_000)), [],
        ["more than 100 splits", "--split"],
    ),
    "column that is not there": ("graph.csv", "a,b,c\n1,2,3\n", ["--head", "subject"], ["'subject'", "'a'"]),
    "column number that is not there": ("graph.tsv", TRAIN, ["--head", "9"], ["column 9", "there are 3"]),
    "not JSON": ("graph.jsonl", '{"head":"a","relation":"b","tail":"c"}\n{"head":\n', [], ["line 2", "not JSON"]),
    "JSON without a key": ("graph.jsonl", '{"head":"a","relation":"b"}\n', [], ["line 1", "'tail'"]),
    "not Parquet": ("graph.parquet", "PAR", [], ["graph.parquet", "Parquet"]),
    "id with a line break": ("graph.jsonl", '{"head":"a\\nb","relation":"b","tail":"c"}\n', [], ["line 1", "line breaks"]),
    "id of blanks": ("graph.jsonl", '{"head":" ","relation":"b","tail":"c"}\n', [], ["line 1", "blank"]),
    "malformed Turtle": ("graph.ttl", "@prefix e: <http://e/> .\ne:a e:b e:c .\ne:a e:b .\ne:d e:b e:e .\n", [], ["graph.ttl", "line 3"]),
    "empty Turtle": ("graph.ttl", "", [], ["graph.ttl", "empty"]),
    "bad encoding in Turtle": ("graph.ttl", b"<http://a> <http://b> \"\xff\" .\n", [], ["graph.ttl"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FILE_CASES)
def test_bad_file_gets_one_sentence_and_no_store(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, content, arguments, parts = FILE_CASES[case]
    if name:
        put(tmp_path, name, content)
    source = tmp_path / (name or "nowhere.tsv")
    assert main(["import", str(source), "-o", str(tmp_path / "store"), *arguments]) == 1
    assert_one_sentence(capsys, [*parts, source.name])
    assert not (tmp_path / "store").exists()


def assert_one_sentence(capsys: pytest.CaptureFixture[str], parts: list[str]) -> None:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fnftg: ") and captured.err.count("\n") == 1, captured.err
    for part in parts:
        assert part in captured.err


NOT_UTF8 = "n\udcff\udcfe"  # as Python represents the bytes n, 0xff, 0xfe of an argument
COMMANDS = {
    "import from": ["import", f"{NOT_UTF8}.tsv", "-o", "out"],
    "import to": ["import", "good.tsv", "-o", NOT_UTF8],
    "export": ["export", "good.tsv", "--format", "csv", "-o", NOT_UTF8],
    "complete": ["complete", "run", "-o", f"{NOT_UTF8}.tsv"],
    "embed": ["embed", "run", "-o", f"{NOT_UTF8}.npz"],
    "data get": ["data", "get", "wordnet-animals", "-o", NOT_UTF8],
    "distill": ["distill", "good.tsv", "-o", NOT_UTF8],
    "train": ["train", "good.tsv", "-o", NOT_UTF8],
    "predict": ["predict", "run", "--head", NOT_UTF8, "--relation", "r"],
    "serve": ["serve", "run", "--host", NOT_UTF8],
    "no command": [NOT_UTF8],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_argument_that_is_not_utf8_gets_one_sentence(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "good.tsv", TRAIN)
    assert main(COMMANDS[case]) == 1
    assert_one_sentence(capsys, [r"n\udcff\udcfe", "is not UTF-8"])
    assert [path.name for path in tmp_path.iterdir()] == ["good.tsv"]


def test_folder_whose_name_is_not_utf8_can_be_worked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NOT_UTF8).mkdir()
    monkeypatch.chdir(tmp_path / NOT_UTF8)
    value = {"graph": str(Path("graph").resolve()), "text": "Zürich"}
    with new_file(tmp_path / NOT_UTF8 / "value.json") as file:
        write_json(file, value)
    assert read_json(tmp_path / NOT_UTF8 / "value.json") == value
    with new_folder(tmp_path / f"{NOT_UTF8}2", "export"):
        pass


def flip_a_byte(store: Path) -> None:
    path = store / "entities.texts.txt"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def change_manifest(**changes: object) -> Spoil:
    def change(store: Path) -> None:
        path = store / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest.pop("checksum", None)
        path.write_text(json.dumps({**manifest, **changes}))

    return change


STORE_CASES: dict[str, tuple[Spoil, list[str]]] = {
    "flipped byte": (flip_a_byte, ["entities.texts.txt", "checksum", "import it again"]),
    "newer version": (change_manifest(version=99), ["version 99", "upgrade"]),
    "another format": (change_manifest(format="zip"), ["not a graph store"]),
    "truncated file": (lambda s: put(s, "triples.train.npy", b"x"), ["triples.train.npy", "1 bytes"]),
    "missing file": (lambda s: (s / "entities.ids.txt").unlink(), ["entities.ids.txt", "missing"]),
    "broken manifest": (lambda s: put(s, "manifest.json", "{"), ["manifest.json"]),
}


@pytest.mark.parametrize("case", STORE_CASES)
@pytest.mark.parametrize(
    "command", [["data", "stats"], ["audit"], ["split", "fir", "-o", "out"], ["export", "--format", "csv", "-o", "out"]]
)
def test_damaged_store_is_never_used(
    case: str, command: list[str], family_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, parts = STORE_CASES[case]
    import_graph(family_folder, tmp_path / "store")
    spoil(tmp_path / "store")
    assert main([*command, str(tmp_path / "store")]) == 1
    assert_one_sentence(capsys, parts)


def test_existing_output_is_kept_unless_forced(
    family_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    import_graph(family_folder, store)
    before = (store / "manifest.json").read_text()
    (family_folder / "ind-train.tsv").write_text("zoe\tknows\tann\n")
    assert main(["import", str(family_folder), "-o", str(store)]) == 1
    assert_one_sentence(capsys, ["already exists", "--force"])
    assert (store / "manifest.json").read_text() == before
    assert main(["import", str(family_folder), "-o", str(store), "--force"]) == 0
    assert (store / "manifest.json").read_text() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["family", "store"]


def test_full_disk_gets_one_sentence_and_leaves_nothing(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "graph.tsv"
    source.write_text("".join(f"entity-{i}\tknows\tentity-{i + 1}\n" for i in range(50_000)))
    limit = 200_000  # bytes a file may have: stands for a full disk

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    result = run("import", source, "-o", tmp_path / "store", preexec_fn=limited)
    assert result.returncode == 1
    assert "was not written: the disk is full" in result.stderr and result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["graph.tsv"]


@pytest.mark.parametrize("kill_with", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_import_leaves_no_store_and_the_next_one_cleans_up(
    kill_with: signal.Signals, tmp_path: Path, run: Run
) -> None:
    source = tmp_path / "graph.tsv"
    source.write_text("".join(f"entity-{i}\tknows\tentity-{i * 7 % 400_000}\n" for i in range(400_000)))
    command = [sys.executable, "-m", "fnftg", "import", str(source), "-o", str(tmp_path / "store")]
    killed = 0
    for delay in (0.0, 0.1, 0.3):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        started = time.monotonic()
        while time.monotonic() < started + 30 and process.poll() is None:
            if any(tmp_path.glob(".store.partial-*")):
                time.sleep(delay)
                break
            time.sleep(0.005)
        process.send_signal(kill_with)
        process.wait()
        if process.returncode != 0:
            killed += 1
            assert not (tmp_path / "store").exists()
            if kill_with != signal.SIGKILL:
                assert not any(tmp_path.glob(".store.partial-*"))
        else:
            break
    assert killed
    assert run("import", source, "-o", tmp_path / "store", "--force").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.tsv", "store"]


def test_unknown_command_and_option_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["imprt"]) == 2
    with pytest.raises(SystemExit) as exit_:
        main(["audit", "wordnet", "--colour"])
    assert exit_.value.code == 2
    assert main(["data", "stats", "no-such-graph"]) == 1
    assert "fnftg data list" in capsys.readouterr().err
