"""A store is whole or not there, opens without reading, and views of it copy nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import FAMILY
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.array_files import write_array
from fnftg.errors import FnftgError
from fnftg.files import new_file, new_folder
from fnftg.kg import KnowledgeGraph, import_graph
from fnftg.kg.store import sorted_rows
from fnftg.kg.strings import ChainedStrings, Strings, as_series, search


def test_saved_graph_opens_equal_and_memory_mapped(family: KnowledgeGraph, tmp_path: Path) -> None:
    opened = family.save(tmp_path / "store")
    assert opened.equals(family) and opened.path == tmp_path / "store"
    assert isinstance(opened.triples("train"), np.memmap)
    assert isinstance(opened.entities.texts, Strings) and isinstance(opened.entities.texts.lines, np.memmap)


def test_opening_reads_no_data(tmp_path: Path) -> None:
    source = tmp_path / "graph.tsv"
    source.write_text("".join(f"entity-{i}\tknows\tentity-{i + 1}\n" for i in range(200_000)))
    import_graph(source, tmp_path / "store")
    probe = (
        "import sys; from fnftg.kg import KnowledgeGraph\n"
        "def read(): return int(open('/proc/self/io').read().split('rchar: ')[1].split()[0])\n"
        "before = read(); KnowledgeGraph.open(sys.argv[1]); print(read() - before)"
    )
    if not os.path.exists("/proc/self/io"):
        pytest.skip("no /proc/self/io here to count what is read")
    result = subprocess.run(
        [sys.executable, "-c", probe, tmp_path / "store"], capture_output=True, text=True, check=True
    )
    size = sum(path.stat().st_size for path in (tmp_path / "store").iterdir())
    assert size > 5_000_000 and int(result.stdout) < 100_000


def test_same_import_gives_the_same_bytes(family_folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        import_graph(family_folder, tmp_path / name)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_manifest_tells_counts_and_checksums(family: KnowledgeGraph, tmp_path: Path) -> None:
    family.save(tmp_path / "store")
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("fnftg-graph", 1)
    assert (manifest["entities"], manifest["relations"]) == (5, 2)
    assert manifest["triples"] == {split: len(triples) for split, triples in FAMILY.items()}
    assert set(manifest["files"]) == {path.name for path in (tmp_path / "store").iterdir()} - {"manifest.json"}


def test_graph_cannot_be_changed(family: KnowledgeGraph, tmp_path: Path) -> None:
    for graph in (family, family.save(tmp_path / "store")):
        with pytest.raises(ValueError, match="read-only"):
            graph.triples("train")[0, 0] = 1
        with pytest.raises(TypeError):
            graph.splits["train"] = graph.triples("val")  # type: ignore[index]
        with pytest.raises(AttributeError):
            graph.entities = graph.relations  # type: ignore[misc]


def test_view_adds_without_copying_and_leaves_the_graph_alone(family: KnowledgeGraph, tmp_path: Path) -> None:
    graph = family.save(tmp_path / "store")
    view = graph.extended(
        {"fay": "Fay, a cat"}, {"owns": "is the owner of"}, [("ann", "owns", "fay"), ("fay", "knows", "eve")]
    )
    assert view.triples("train") is graph.triples("train")
    assert isinstance(view.entities.texts, ChainedStrings) and view.entities.texts.parts[0] is graph.entities.texts
    fay = view.entities.find("fay")
    assert fay == len(graph.entities) == 5 and view.entities.texts[fay] == "Fay, a cat"
    assert view.entities.find("bob") == graph.entities.find("bob") and view.entities.find("gil") is None
    assert view.splits["added"].tolist() == [[0, 2, 5], [5, 1, 4]]
    assert graph.entities.find("fay") is None and "added" not in graph.splits
    again = view.extended({"gil": "Gil, a dog"}, triples=[("gil", "knows", "fay")])
    assert again.entities.ids.slice(3, 9) == ["dora", "eve", "fay", "gil"]
    assert len(again.splits["added"]) == 3 and len(view.splits["added"]) == 2
    assert again.save(tmp_path / "grown").equals(again)


@pytest.mark.parametrize(
    ("entities", "triples", "message"),
    [
        ({"ann": "another"}, [], "already"),
        ({"": "no id"}, [], "non-empty line"),
        ({"fay": "two\nlines"}, [], "one non-empty line"),
        ({"fay": " "}, [], "non-empty line"),
        ({}, [("ann", "knows", "nobody")], "no entity 'nobody'"),
        ({}, [("ann", "hates", "bob")], "no relation 'hates'"),
    ],
)
def test_view_refuses_what_does_not_fit(
    entities: dict[str, str], triples: list[tuple[str, str, str]], message: str, family: KnowledgeGraph
) -> None:
    with pytest.raises(FnftgError, match=message):
        family.extended(entities, triples=triples)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), unique=True, max_size=30), st.text(max_size=4))
def test_look_up_finds_each_string_and_no_other(strings: list[str], other: str) -> None:
    table = Strings.of(strings)
    order = sorted_rows(as_series(table))
    assert [search(table, order, string) for string in strings] == list(range(len(strings)))
    assert search(table, order, other) == (strings.index(other) if other in strings else None)
    assert table.slice(0, len(strings) + 5) == strings


def test_split_that_is_not_there_is_named(family: KnowledgeGraph) -> None:
    assert len(KnowledgeGraph.from_triples({"train": [("a", "r", "b")]}).triples("val")) == 0
    with pytest.raises(FnftgError, match="no split 'tset': it has train, val, test"):
        family.triples("tset")


def test_failure_leaves_the_old_folder_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with new_folder(target, "export") as folder:
        (folder / "old").touch()
    with pytest.raises(RuntimeError), new_folder(target, "export", force=True) as folder:
        (folder / "new").touch()
        raise RuntimeError
    assert sorted(path.name for path in target.iterdir()) == ["checksums.json", "old"]
    assert len(list(tmp_path.iterdir())) == 1
    with new_folder(target, "export", force=True) as folder:
        (folder / "new").touch()
        assert (target / "old").exists()
    assert sorted(path.name for path in target.iterdir()) == ["checksums.json", "new"]
    assert len(list(tmp_path.iterdir())) == 1


def test_failure_leaves_the_old_file_whole(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(RuntimeError), new_file(target, force=True) as path:
        path.write_text("new")
        raise RuntimeError
    assert target.read_text() == "old" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(FnftgError, match="already exists"), new_file(target):
        pass


def test_running_process_keeps_its_unfinished_folder(tmp_path: Path) -> None:
    with new_folder(tmp_path / "store", "graph") as mine:
        with new_folder(tmp_path / "store", "graph") as other:  # as another process with the same PID would
            (other / "x").touch()
        assert mine != other and mine.is_dir() and not other.exists()
        os.rename(tmp_path / "store", tmp_path / "moved")


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for name in ("store", "file", "x" * 250):
        for end, files in (("abcd_123", ("fnftg-partial", "content")), ("abcd_456", ())):
            left = tmp_path / f".{name[:120]}.partial-{end}"
            left.mkdir()
            for file in files:
                (left / file).touch()
    with (
        new_folder(tmp_path / "store", "graph"),
        new_file(tmp_path / "file") as file,
        new_file(tmp_path / ("x" * 250)) as long,
    ):
        file.touch()
        long.touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "store", "x" * 250]


def test_folder_that_is_only_named_like_an_unfinished_one_is_kept(tmp_path: Path) -> None:
    for end in ("mine", "abcd_123"):
        (tmp_path / f".store.partial-{end}").mkdir()
        (tmp_path / f".store.partial-{end}" / "thesis.tex").write_text("years of work")
    (tmp_path / ".store.partial-file_123").write_text("years of work")
    (tmp_path / ".store.partial-link_123").symlink_to(tmp_path / ".store.partial-mine")
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        with new_folder(tmp_path / "store", "graph", force=True):
            pass
    shutil.rmtree(tmp_path / "store")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("shape", [(0, 3), (4, 3), (5,)])
def test_arrays_are_written_as_numpy_reads_them(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    write_array(tmp_path / "array.npy", array)
    assert np.array_equal(np.load(tmp_path / "array.npy", mmap_mode="r"), array)
