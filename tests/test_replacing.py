"""What `--force` replaces: what is of its own kind, or an empty folder; never what somebody else put there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_predict import assert_one_sentence, here, own_run, run_folder, run_of, small_model  # noqa: F401

from fnftg.errors import FnftgError
from fnftg.files import new_file, new_folder
from fnftg.kg import import_graph

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


ONE = ("e3", "_r_1", "e5")
FILE_OUTPUTS = {  # commands that write a file, up to its name
    "complete": ("complete", "{run}", "-k", 1, "--force", "-o"),
    "embed": ("embed", "{run}", "--force", "-o"),
    "evaluate": ("evaluate", "{run}", "--force", "--save-ranks"),
    "explain": ("explain", "{run}", *ONE, "--force", "--svg"),
}


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may not be written is refused before a model is loaded."""
    for place in ("fnftg.predict.predictor.from_pretrained", "fnftg.models.pretrained.from_pretrained"):
        monkeypatch.setattr(place, lambda *_: 1 / 0)


def asked(command: str, run: Path) -> list[Any]:
    return [str(word).format(run=run) for word in FILE_OUTPUTS[command]]


@pytest.mark.parametrize("part", ["config.json", "log.csv", "notes.tsv", "evaluations/test-own-split.tsv"])
@pytest.mark.parametrize("command", FILE_OUTPUTS)
@pytest.mark.usefixtures("nothing_computed")
def test_force_never_replaces_a_file_of_a_run(
    command: str,
    part: str,
    own_run: Path,  # noqa: F811
    here: Here,  # noqa: F811
) -> None:
    named = command in ("complete", "embed") and not part.endswith(".tsv")  # by the ending these tell the format
    file = own_run / (f"{part}.tsv" if named else part)
    file.parent.mkdir(exist_ok=True)
    if not file.exists():
        file.write_text("of the run")
    before = content(own_run)
    assert_one_sentence(here(*asked(command, own_run), file), f"is a part of {own_run}, so it is not replaced")
    assert content(own_run) == before


def test_a_run_without_a_config_is_a_run_too(own_run: Path) -> None:  # noqa: F811
    (own_run / "config.json").unlink()
    (own_run / "log.csv").write_text("of the run")
    with pytest.raises(FnftgError, match="is a part of"), new_file(own_run / "log.csv", force=True):
        pass


def test_a_folder_with_a_config_of_others_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "config.json").write_text('{"graph": 1, "config": {}}')
    (tmp_path / "out.tsv").write_text("old")
    with new_file(tmp_path / "out.tsv", force=True) as file:
        file.write_text("new")
    assert (tmp_path / "out.tsv").read_text() == "new"


@pytest.mark.parametrize(
    ("graph", "output", "words"),
    [
        ("t.tsv", "t.tsv", "both the source and the output"),
        ("t.tsv", "link.tsv", "both the source and the output"),
        ("source", "source/ind-train.tsv", "inside the source"),
        ("source", "source/new.tsv", "inside the source"),
        ("store", "store/new.tsv", "inside the source"),
    ],
)
@pytest.mark.parametrize("command", FILE_OUTPUTS)
@pytest.mark.usefixtures("nothing_computed")
def test_force_never_replaces_the_source(
    command: str,
    graph: str,
    output: str,
    words: str,
    run_folder: Path,  # noqa: F811
    family_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: Here,  # noqa: F811
) -> None:
    monkeypatch.chdir(tmp_path)
    family_folder.rename(tmp_path / "source")
    import_graph("source", "store")
    (tmp_path / "t.tsv").write_text("a\tr\tb\n")
    (tmp_path / "link.tsv").symlink_to("t.tsv")
    before = content(tmp_path)
    assert_one_sentence(here(*asked(command, run_folder), output, "--graph", graph), words)
    assert content(tmp_path) == before


def test_force_never_replaces_a_list_that_is_read_nor_an_exported_source(
    run_folder: Path,  # noqa: F811
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    (tmp_path / "entities.tsv").write_text("e3\n")
    files = ("--entities", tmp_path / "entities.tsv", "-o", tmp_path / "entities.tsv")
    assert_one_sentence(here("complete", run_folder, *files, "--force"), "both the source and the output")
    export = tmp_path / "export"
    assert here("export", run_folder.parent / "graph", "--format", "csv", "-o", export).returncode == 0
    before = content(tmp_path)
    again = here("export", export, "--format", "csv", "-o", export, "--force")
    assert_one_sentence(again, "both the source and the output")
    assert content(tmp_path) == before


def test_update_never_replaces_a_graph_of_its_run(
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    run, graph, other = run_of(small_model(), tmp_path), tmp_path / "graph", tmp_path / "other"
    before = content(graph)
    for number, output in enumerate((graph, other, graph, other)):
        (tmp_path / "new.txt").write_text(f"n{number}\tA new one\n")
        result = here("update", run, "--texts", tmp_path / "new.txt", "-o", output, "--force")
        if number == 1:  # then it is the run's current graph
            assert result.returncode == 0, result.stderr
            updated = content(other)
        else:
            assert_one_sentence(result, "both the source and the output")
    assert content(graph) == before and content(other) == updated


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/null")], ids=["pipe", "device"])
@pytest.mark.parametrize("command", FILE_OUTPUTS)
@pytest.mark.usefixtures("nothing_computed")
def test_force_never_replaces_a_device_or_a_pipe(
    command: str,
    make: Callable[[Path], None],
    run_folder: Path,  # noqa: F811
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    make(tmp_path / "node.tsv")
    before = os.lstat(tmp_path / "node.tsv")
    assert_one_sentence(here(*asked(command, run_folder), tmp_path / "node.tsv"), "is a device or a pipe")
    assert os.lstat(tmp_path / "node.tsv") == before


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
