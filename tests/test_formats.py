"""What a file holds is what the graph holds, in every format, and back again."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import zstandard
from conftest import FAMILY, RELATION_TEXTS, TEXTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fnftg.kg import KnowledgeGraph, import_graph
from fnftg.kg.formats import lines
from fnftg.kg.formats.lines import line_blocks
from fnftg.kg.formats.specs import ReadOptions, TableOptions
from fnftg.kg.graph_builder import IdPool
from fnftg.kg.graph_export import export_graph
from fnftg.kg.readable_ids import readable
from fnftg.kg.row_table import HashCollisionError
from fnftg.kg.strings import Strings

TABLE_FORMATS = ["blp", "tsv", "csv", "jsonl"]
numbers = itertools.count()


def triples_of(graph: KnowledgeGraph, split: str) -> list[tuple[str, str, str]]:
    entities, relations = graph.entities.ids, graph.relations.ids
    return [(entities[h], relations[r], entities[t]) for h, r, t in graph.triples(split).tolist()]


def texts_of(graph: KnowledgeGraph) -> dict[str, str]:
    return {graph.entities.ids[row]: graph.entities.texts[row] for row in range(len(graph.entities))}


def test_blp_folder_gives_the_triples_texts_and_splits(family_folder: Path, tmp_path: Path) -> None:
    graph = import_graph(family_folder, tmp_path / "store", strict=True)
    for split, triples in FAMILY.items():
        assert triples_of(graph, split) == triples
    assert texts_of(graph) == TEXTS
    assert {graph.relations.ids[row]: graph.relations.texts[row] for row in range(2)} == RELATION_TEXTS
    assert graph.report["self_loops"] == 1 and not graph.report["left_out"]


def test_ids_are_numbered_by_first_appearance(family: KnowledgeGraph) -> None:
    assert family.entities.ids.slice(0, 9) == ["ann", "bob", "cleo", "dora", "eve"]


def test_long_texts_are_preferred_and_short_ones_are_names(family_folder: Path, tmp_path: Path) -> None:
    (family_folder / "entity2textlong.txt").write_text("ann\tAnn bakes bread in Basel.\n")
    graph = import_graph(family_folder, tmp_path / "store")
    row = graph.entities.find("ann")
    assert row is not None and graph.entities.texts[row] == "Ann bakes bread in Basel."
    assert graph.entities.names is not None and graph.entities.names[row] == "Ann, a baker"
    assert graph.report["filled_texts"]["entities"] == 4


def test_compressed_files_are_read_directly(family_folder: Path, family: KnowledgeGraph, tmp_path: Path) -> None:
    for name, compress, ending in (
        ("ind-train.tsv", gzip.compress, ".gz"),
        ("entity2text.txt", zstandard.compress, ".zst"),
    ):
        path = family_folder / name
        middle = len(path.read_bytes()) // 2
        members = compress(path.read_bytes()[:middle]) + compress(path.read_bytes()[middle:])
        (family_folder / f"{name}{ending}").write_bytes(members)
        path.unlink()
    assert import_graph(family_folder, tmp_path / "store").equals(family)


def test_duplicates_go_self_loops_stay_and_both_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "graph.tsv"
    source.write_text("a\tr\tb\na\tr\tb\nb\tr\tb\n\na\tr\tb\n")
    graph = import_graph(source, tmp_path / "store")
    assert triples_of(graph, "train") == [("a", "r", "b"), ("b", "r", "b")]
    assert graph.report["left_out"] == {"repeated triples in train": 2}
    assert graph.report["self_loops"] == 1
    assert graph.report["filled_texts"] == {"entities": 2, "relations": 1}


def test_texts_in_no_triple_are_left_out_and_counted_or_kept(family_folder: Path, tmp_path: Path) -> None:
    with open(family_folder / "entity2text.txt", "a") as file:
        file.write("zoe\tZoe, whom nobody knows\nann\tanother Ann\n")
    graph = import_graph(family_folder, tmp_path / "one")
    assert graph.entities.find("zoe") is None and texts_of(graph) == TEXTS
    assert sorted(graph.report["left_out"].values()) == [1, 1]
    assert import_graph(family_folder, tmp_path / "two", keep_isolated=True).entities.find("zoe") == 5


def test_columns_are_found_by_header_by_name_and_by_number(tmp_path: Path, family: KnowledgeGraph) -> None:
    rows = [(split, t, h, r) for split, triples in FAMILY.items() for h, r, t in triples]
    pl.DataFrame(rows, schema=["part", "object", "subject", "predicate"], orient="row").write_csv(tmp_path / "t.csv")
    pl.DataFrame({"what": list(TEXTS.values()), "who": list(TEXTS)}).write_parquet(tmp_path / "e.parquet")
    (tmp_path / "r.jsonl").write_text('{"who":"knows","what":"knows"}\n{"who":"parent_of","what":"is a parent of"}\n')
    tables = TableOptions(
        "subject", "predicate", "object", "part", tmp_path / "e.parquet", tmp_path / "r.jsonl", id="who", text="what"
    )
    assert import_graph(tmp_path / "t.csv", tmp_path / "by-name", options=ReadOptions(tables)).equals(family)
    numbered = replace(tables, head="3", relation="4", tail="2", split="1")
    (tmp_path / "n.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    assert import_graph(tmp_path / "n.tsv", tmp_path / "by-number", options=ReadOptions(numbered)).equals(family)


def test_quoted_line_breaks_and_windows_line_ends_and_byte_order_marks_are_understood(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_bytes(b'\xef\xbb\xbfhead,relation,tail\r\n"a, the first",r,b\r\n"c ""d""",r,b\r\n')
    (tmp_path / "e.csv").write_bytes(b'id,text\r\nb,"two\r\n\tlines "\r\n')
    options = ReadOptions(TableOptions(entities=tmp_path / "e.csv"))
    graph = import_graph(tmp_path / "g.csv", tmp_path / "store", options=options)
    assert triples_of(graph, "train") == [("a, the first", "r", "b"), ('c "d"', "r", "b")]
    assert texts_of(graph)["b"] == "two lines"


@pytest.mark.parametrize("size", [16, 50, 1 << 20])
def test_block_size_changes_nothing(
    size: int, family_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small_blocks(path: Path, quotes: bool = False, max_size: int | None = None) -> Iterator[lines.LineBlock]:
        return line_blocks(path, quotes, size, max_size)

    monkeypatch.setattr("fnftg.kg.formats.blp_folder.line_blocks", small_blocks)
    graph = import_graph(family_folder, tmp_path / "store")
    assert [triples_of(graph, split) for split in FAMILY] == list(FAMILY.values())
    assert texts_of(graph) == TEXTS


def test_line_numbers_count_over_blocks(family_folder: Path) -> None:
    path = family_folder / "ind-train.tsv"
    path.write_text("a\tr\tb\n" * 7 + 'x\t"\n"\ty\n' + "a\tr\tb")
    blocks = list(line_blocks(path, size=10))
    assert b"".join(block.data for block in blocks) == path.read_bytes()
    assert [number for block in blocks for number, _ in block.lines()] == list(range(1, 11))
    assert all(block.data.count(b'"') % 2 == 0 for block in line_blocks(path, quotes=True, size=10))


def test_readable_part_of_an_id() -> None:
    examples = {
        "http://dbpedia.org/resource/Saxony_(state)": "Saxony (state)",
        "http://dbpedia.org/ontology/birthPlace": "birth Place",
        "https://e.org/Caf%C3%A9/": "Café",
        "http://e.org/x#partOf": "part Of",
        "urn:isbn:123": "123",
        "_has_part": "has part",
        "/film/film/release_date_s": "film film release date s",
        "dog.n.01": "dog.n.01",
        "___": "___",
        "Q42": "Q42",
    }
    assert readable(pl.Series(list(examples))).to_list() == list(examples.values())


def test_two_ids_with_one_hash_start_the_import_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_keys = IdPool.keys

    def colliding(self: IdPool, ids: pl.Series) -> pl.Series:
        keys = first_keys(self, ids)
        return keys % 3 if self.seed == 0 else keys

    monkeypatch.setattr(IdPool, "keys", colliding)
    pool, names = IdPool(0), pl.Series(list("abcdefgh"))
    with pytest.raises(HashCollisionError):
        pool.add("", names)
    source = tmp_path / "graph.tsv"
    source.write_text("a\tr\tb\nc\tr\td\ne\tr\tf\n")
    graph = import_graph(source, tmp_path / "store")
    assert triples_of(graph, "train") == [("a", "r", "b"), ("c", "r", "d"), ("e", "r", "f")]


# Round trips

ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    entities = draw(st.lists(ids, min_size=2, max_size=6, unique=True))
    relations = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    triple = st.tuples(st.sampled_from(entities), st.sampled_from(relations), st.sampled_from(entities))
    splits = {name: draw(st.lists(triple, min_size=1, max_size=8)) for name in ("train", "test", "val-support")}
    graph = KnowledgeGraph.from_triples(
        splits, {id_: draw(texts) for id_ in entities}, {id_: draw(texts) for id_ in relations}
    )
    if draw(st.booleans()):
        name = st.text(st.characters(categories=["L", "N", "P"]), max_size=8)
        names = Strings.of([draw(name) for _ in range(len(graph.entities))])
        graph = replace(graph, entities=replace(graph.entities, names=names))
    return graph


@pytest.mark.parametrize("format", TABLE_FORMATS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs())
def test_export_and_import_give_an_equal_graph(format: str, graph: KnowledgeGraph, tmp_path: Path) -> None:
    check_round_trip(format, graph, tmp_path)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs())
def test_export_to_parquet_and_import_give_an_equal_graph(graph: KnowledgeGraph, tmp_path: Path) -> None:
    check_round_trip("parquet", graph, tmp_path)  # which starts a process for each of its files


def check_round_trip(format: str, graph: KnowledgeGraph, tmp_path: Path) -> None:
    folder = tmp_path / str(next(numbers))
    export_graph(graph, folder / "files", format)
    again = import_graph(folder / "files", folder / "store", keep_isolated=True, strict=True)
    assert graph.equals(again) and again.equals(graph)


def test_unequal_graphs_are_told_apart(family: KnowledgeGraph) -> None:
    assert family.equals(KnowledgeGraph.from_triples(FAMILY, TEXTS, RELATION_TEXTS))
    reordered = {split: triples[::-1] for split, triples in reversed(FAMILY.items())}
    assert family.equals(KnowledgeGraph.from_triples(reordered, TEXTS, RELATION_TEXTS))
    swapped = {**FAMILY, "val": [("ann", "parent_of", "dora")]}
    assert not family.equals(KnowledgeGraph.from_triples(swapped, TEXTS, RELATION_TEXTS))
    assert not family.equals(KnowledgeGraph.from_triples(FAMILY, {**TEXTS, "ann": "Anna"}, RELATION_TEXTS))
    fewer = {"train": FAMILY["train"], "test": [*FAMILY["val"], *FAMILY["test"]]}
    assert not family.equals(KnowledgeGraph.from_triples(fewer, TEXTS, RELATION_TEXTS))


def test_pykeen_and_back_give_an_equal_graph(family: KnowledgeGraph) -> None:
    factories = family.to_pykeen()
    assert factories["train"].num_entities == 5 and factories["train"].num_relations == 2
    again = KnowledgeGraph.from_pykeen(factories["train"], factories["val"], factories["test"], TEXTS, RELATION_TEXTS)
    assert family.equals(again)
