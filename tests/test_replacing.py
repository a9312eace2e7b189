"""What `--force` replaces: what is of its own kind, or an empty folder; never what somebody else put there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_predict import assert_one_sentence, here, own_run, run_folder  # noqa: F401

from fnftg.errors import FnftgError
from fnftg.files import new_file, new_folder

Here = Callable[..., Any]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, which is the working folder, with triples in it and files that nobody may lose."""
    folder = tmp_path / "project" / "data"
    folder.mkdir(parents=True)
    (folder / "triples.tsv").write_text("a\tr\tb\nb\tr\tc\n" + "".join(f"a\ts\tx{n}\n" for n in range(40)))
    (folder / "thesis.tex").write_text("years of work")
    (folder.parent / "notes.txt").write_text("more of it")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("output", [".", "..", "../data", "{folder}", "{folder}/.."])
@pytest.mark.parametrize("source", ["triples.tsv", "."])
def test_import_never_replaces_the_working_folder_its_parents_or_the_source(
    output: str,
    source: str,
    own_folder: Path,
    here: Here,  # noqa: F811
) -> None:
    before = content(own_folder.parent)
    result = here("import", source, "-o", output.format(folder=own_folder), "--force", "--format", "tsv")
    assert_one_sentence(result, "not replaced")
    assert content(own_folder.parent) == before


@pytest.mark.parametrize("command", ["import", "export", "synth", "split", "embed", "report"])
def test_force_never_replaces_a_folder_of_somebody_else(
    command: str,
    own_folder: Path,
    run_folder: Path,  # noqa: F811
    tmp_path: Path,
    here: Here,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tmp_path / "project"
    monkeypatch.chdir(tmp_path)
    before = content(target)
    commands = {
        "import": ("import", own_folder / "triples.tsv", "--force"),
        "export": ("export", own_folder / "triples.tsv", "--format", "csv", "--force"),
        "synth": ("data", "synth", "--entities", 50, "--triples", 200, "--relations", 2, "--force"),
        "split": ("split", "fir", own_folder / "triples.tsv", "--force"),
        "embed": ("embed", run_folder, "--projector", "--force"),
        "report": ("report", run_folder),
    }
    assert_one_sentence(here(*commands[command], "-o", target), "not a folder that fnftg wrote")
    assert content(target) == before


def test_force_replaces_a_folder_of_its_own_kind_and_an_empty_one(
    own_folder: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    source, store, export = own_folder / "triples.tsv", tmp_path / "store", tmp_path / "export"
    export.mkdir()
    for _ in range(2):
        assert here("import", source, "-o", store, "--force").returncode == 0
        assert here("export", store, "--format", "csv", "-o", export, "--force").returncode == 0
    assert here("import", export, "-o", store, "--force").returncode == 0, "an export can be imported again"
    assert_one_sentence(here("import", source, "-o", export, "--force"), r"another kind \(export\)")
    assert_one_sentence(here("split", "fir", store, "-o", store, "--force"), "both the source and the output")


def test_force_does_not_replace_a_store_into_which_somebody_put_a_file(
    own_folder: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    source, store = own_folder / "triples.tsv", tmp_path / "store"
    assert here("import", source, "-o", store).returncode == 0
    (store / "mine").mkdir()
    (store / "mine" / "notes.txt").write_text("mine")
    before = content(store)
    assert_one_sentence(here("import", source, "-o", store, "--force"), "mine/notes.txt, which fnftg did not write")
    assert content(store) == before


def test_force_does_not_replace_a_part_of_a_model(run_folder: Path, here: Here) -> None:  # noqa: F811
    weights = run_folder / "checkpoint" / "model.safetensors"
    before = weights.read_bytes()
    assert_one_sentence(here("embed", run_folder, "-o", weights, "--force"), "is a part of")
    assert weights.read_bytes() == before


@pytest.mark.parametrize("linked", [False, True])
def test_only_what_fnftg_wrote_is_removed_from_a_run(
    linked: bool,
    own_run: Path,  # noqa: F811
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    shared = tmp_path / "shared"
    files = [
        *("answers/mydocs/thesis.tex", "answers/0123456789abcdef-0123456789abcdef/mine.txt"),
        *("graphs/2024/notes.txt", "graphs/00017/notes.txt", "graphs/²/notes.txt"),
    ]
    for file in files:
        (shared / file).parent.mkdir(parents=True)
        (shared / file).write_text("mine")
    for name in ("answers", "graphs"):
        (own_run / name).symlink_to(shared / name) if linked else shutil.copytree(shared / name, own_run / name)
    old = own_run / "answers" / f"{'a' * 16}-{'b' * 16}"
    with new_folder(old, "answers") as folder:
        (folder / "table.npy").touch()
    assert here("predict", own_run, "--head", "e3", "--relation", "_r_1").returncode == 0
    assert not old.exists(), "answers of older weights"
    for number in (1, 2):
        (tmp_path / "new.txt").write_text(f"n{number}\tA new one\n")
        assert here("update", own_run, "--texts", tmp_path / "new.txt").returncode == 0
    assert sorted(path.name for path in (own_run / "graphs").iterdir()) == ["00017", "00019", "2024", "²"]
    assert all((own_run / file).read_text() == "mine" for file in files)


def test_link_is_not_replaced_by_what_it_leads_to(tmp_path: Path) -> None:
    with new_folder(tmp_path / "real", "export") as folder:
        (folder / "x").touch()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(FnftgError, match="is a symbolic link"), new_folder(tmp_path / "link", "export", force=True):
        pass


def test_name_that_the_file_system_does_not_take_is_a_sentence(tmp_path: Path) -> None:
    for make in (lambda path: new_folder(path, "export"), new_file):
        with pytest.raises(FnftgError, match="cannot be written: File name too long"), make(tmp_path / ("x" * 300)):
            pass
        assert not any(tmp_path.iterdir())


def test_others_can_read_what_is_written(run_folder: Path, tmp_path: Path) -> None:  # noqa: F811
    for path in (run_folder / "checkpoint").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~current_umask(), path
    with new_folder(tmp_path / "folder", "export") as folder:
        (folder / "private").touch(0o600)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~current_umask()
    assert stat.S_IMODE((tmp_path / "folder" / "private").stat().st_mode) == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
