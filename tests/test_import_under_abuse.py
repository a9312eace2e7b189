"""An import of hostile files ends in one sentence, soon, and within a bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import zstandard

from fnftg.cli import main
from fnftg.errors import FnftgError
from fnftg.kg import import_graph
from fnftg.kg.formats import compressed_files, guarded_file
from fnftg.kg.formats.nesting import DEEP, Nesting
from fnftg.kg.formats.specs import ReadOptions
from fnftg.kg.graph_builder import TriplePool
from fnftg.sizes import parse_size

MB, GB = 1 << 20, 1 << 30
RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


def quoted_triples(depth: int) -> str:
    return "<http://a> <http://b> " + "<<( <http://a> <http://b> " * depth + "<http://c>" + " )>>" * depth + " .\n"


def nested_objects(depth: int) -> str:
    return '{"http://b":' * depth + '{"@id":"http://a"}' + "}" * depth


def nested_elements(depth: int) -> str:
    return f"{RDF}{'<e:A><e:r>' * depth}{'</e:r></e:A>' * depth}</rdf:RDF>"


def nested_nodes(depth: int, opening: str, closing: str) -> str:
    return f"<http://a> <http://b> {opening * depth} <http://c> {closing * depth} ."


def with_entities(declarations: str, text: str) -> str:
    return (
        f'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [\n{declarations}\n]>\n{RDF}<rdf:Description rdf:about="http://e/a">'
        f'<e:r rdf:resource="http://e/b"/><e:q>{text}</e:q></rdf:Description></rdf:RDF>'
    )


LAUGHS = "".join(f'<!ENTITY {name} "{f"&{of};" * 10}">\n' for of, name in zip("abcdefgh", "bcdefghi", strict=True))

# name of the case: file, content, parts of the message
CASES: dict[str, tuple[str, str | Callable[[], str], list[str]]] = {
    "quoted triples in quoted triples": ("a.nt", lambda: quoted_triples(20_000), ["line 1", "500 levels deep"]),
    "quoted triples in a graph": ("a.nq", lambda: "\n\n" + quoted_triples(20_000), ["line 3", "500 levels deep"]),
    "quoted triples in Turtle": ("a.ttl", lambda: quoted_triples(20_000), ["500 levels deep"]),
    "old quoted triples in Turtle": (
        "a.ttl", lambda: "<< <a> <b> " * 20_000 + "<c>" + ">>" * 20_000, ["500 levels deep"],
    ),
    "blank nodes in blank nodes": ("a.ttl", lambda: nested_nodes(200_000, "[ <http://b> ", "]"), ["500 levels deep"]),
    "lists in lists": ("a.ttl", lambda: nested_nodes(200_000, "( ", ")"), ["500 levels deep"]),
    "JSON-LD, 5,000 deep": ("a.jsonld", lambda: nested_objects(5_000), ["128 levels deep"]),
    "JSON-LD, 100,000 deep": ("a.jsonld", lambda: nested_objects(100_000), ["128 levels deep"]),
    "elements in elements": ("a.rdf", lambda: nested_elements(100_000), ["1000 levels deep"]),
    "billion laughs": ("a.rdf", with_entities(f'<!ENTITY a "lol">{LAUGHS}', "&i;"), ["entity is too long"]),
    "a long entity": ("a.rdf", lambda: with_entities(f'<!ENTITY a "{"a" * MB}">', "&a;" * 20_000), ["entity is too long"]),
    "an entity of another file": (
        "a.rdf", with_entities('<!ENTITY a SYSTEM "file:///etc/passwd">', "&a;"), ["entity is too long"],
    ),
    "a parameter entity": ("a.rdf", with_entities('<!ENTITY % a "b">', ""), ["entity is too long"]),
    "many uses of short entities": (
        "a.rdf", lambda: with_entities(f'<!ENTITY a "{"a" * 900}">', "&a;" * 200_000), ["16 times its size"],
    ),
    "a long IRI": ("a.nt", lambda: f"<http://a> <http://b> <http://{'c' * (17 * MB)}> .", ["longer than 16 MiB"]),
    "a long text in Turtle": ("a.ttl", lambda: f'<http://a> <{LABEL}> "{"c" * (17 * MB)}" .', ["longer than 16 MiB"]),
    "a long text in JSON-LD": ("a.jsonld", lambda: f'{{"@id":"http://a","{LABEL}":"{"c" * (17 * MB)}"}}', ["longer than 16 MiB"]),
    "a long text in RDF/XML": ("a.rdf", lambda: with_entities("", "c" * (17 * MB)), ["line 5", "longer than 16 MiB"]),
    "JSON, 100,000 deep": ("a.jsonl", lambda: f'{{"head":{"[" * 100_000}{"]" * 100_000}}}\n', ["line 1", "too deep"]),
    "JSON, deep in a column that nobody reads": (
        "a.jsonl", lambda: '{"head":"a","relation":"r","tail":"b"}\n{"x":' + '{"a":' * 100_000 + "1" + "}" * 100_001, ["line 2", "too deep"],
    ),
    "first half of a character": ("a.jsonl", '{"head":"a","relation":"r","tail":"b"}\n{"head":"\\uD83d","relation":"r","tail":"b"}', ["line 2", "unpaired surrogate"]),
    "second half of a character": ("a.jsonl", '{"head":"\\\\\\uDE00","relation":"r","tail":"b"}', ["line 1", "unpaired surrogate"]),
    "halves in the wrong order": ("a.jsonl", '{"head":"\\ude00\\ud83d","relation":"r","tail":"b"}', ["line 1", "unpaired surrogate"]),
    "an open quote": ("a.csv", lambda: 'head,relation,tail\n"a,b,c' + "\n" * (70 * MB), ["line 2", "64 MiB"]),
    "quotes around all line breaks": ("a.csv", lambda: 'a,b,"' + '\n"x"' * (17 * MB), ["line 1", "64 MiB"]),
    "text that is no JSON": ("a.jsonl", '{"head":"\x01"}\n', ["line 1", "not JSON"]),
    "a folder as a file": ("a.tsv/b", "", ["a.tsv"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_hostile_file_gets_one_sentence_soon(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, content, parts = CASES[case]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content() if callable(content) else content)
    started = time.monotonic()
    assert main(["import", str(tmp_path / name.partition("/")[0]), "-o", str(tmp_path / "store")]) == 1
    assert time.monotonic() - started < 10
    captured = capsys.readouterr()
    assert captured.err.startswith("fnftg: ") and captured.err.count("\n") == 1 and len(captured.err) < 600
    for part in [*parts, name.partition("/")[0]]:
        assert part in captured.err
    assert not (tmp_path / "store").exists()


def test_what_ontologies_do_with_entities_is_read(tmp_path: Path) -> None:
    declarations = '<!ENTITY owl "http://www.w3.org/2002/07/owl#" >\n<!ENTITY e "http://e/">' + " " * 5_000
    content = with_entities(declarations, "&lt;&amp;").replace('"http://e/b"', '"&e;b"')
    (tmp_path / "a.rdf").write_text(content)
    assert import_graph(tmp_path / "a.rdf", tmp_path / "store").entities.ids.slice(0, 9) == ["http://e/a", "http://e/b"]


@pytest.mark.parametrize("cut", range(50, 160, 7))
def test_an_entity_is_seen_across_the_parts_of_a_file(
    cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_file, "PART", cut)
    (tmp_path / "a.rdf").write_text(with_entities(f'<!ENTITY a "lol">{LAUGHS}', "&i;"))
    with pytest.raises(FnftgError, match="entity is too long"):
        import_graph(tmp_path / "a.rdf", tmp_path / "store")
    (tmp_path / "b.rdf").write_text(with_entities('<!ENTITY e "http://e/">\n<!ENTITY f "f">', "&e;"))
    assert len(import_graph(tmp_path / "b.rdf", tmp_path / "store").entities) == 2


def test_as_deep_as_is_allowed_is_read(tmp_path: Path) -> None:
    for name, content in {
        "a.nt": quoted_triples(249) + "<http://a> <http://b> <http://c> .\n",
        "a.ttl": nested_nodes(499, "[ <http://b> ", "]"),
        "a.jsonld": nested_objects(127),
        "a.rdf": nested_elements(499),
    }.items():
        (tmp_path / name).write_text(content)
        import_graph(tmp_path / name, tmp_path / f"{name}-store")


@pytest.mark.parametrize(
    ("format", "text", "depth"),
    [
        ("ttl", "<a> <b> [ <c> ( 1 2 ", 2),
        ("ttl", '<a[> \'x((\' "[[" """[["" [\\"""" \'\'\'\'\'\' ex:a\\(b # [[\n {', 1),
        ("ttl", '<<<a> <b> <<( <c> "<<" <d> )>> >> <<( ', 2),
        ("jsonld", '{"a[[": [1, {"b": "\\"[["}, [', 3),
        ("rdfxml", '<?x <a> ?><!-- <a><b> -- > --><a b="<c>/>" c=\'>\'><b/><c d="/"><![CDATA[<d>]]]></c><e>', 2),
        ("rdfxml", '<!DOCTYPE a [<!ENTITY x "y"> <!ELEMENT a>]><a>', 1),
    ],
)
def test_brackets_in_texts_iris_and_comments_do_not_nest(format: str, text: str, depth: int) -> None:
    for size in (1, 2, 3, 1000):
        nesting = Nesting(format, 1000, MB)
        for start in range(0, len(text), size):
            assert nesting.add(text[start : start + size].encode()) == 0
        nesting.deepest = depth + 1
        more = {"ttl": b" [", "jsonld": b"[", "rdfxml": b"<z>"}[format]
        assert nesting.add(more) == 0 and nesting.add(more) == DEEP


# Compressed files


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, zstandard.compress])
def test_compressed_data_under_a_plain_name_are_never_unpacked(
    compress: Callable[[bytes], bytes], name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(compress(b"a\tr\tb\n" if name == "a.tsv" else b"a,r,b\n"))
    with pytest.raises(FnftgError, match=r"line 1: (this is compressed data|the byte 0x.. is not UTF-8)"):
        import_graph(tmp_path / name, tmp_path / "store", format="tsv" if name == "a.tsv" else None)


@pytest.mark.parametrize("start", ["x^", "x\x01"])
def test_texts_that_begin_as_compressed_data_do_are_read(start: str, tmp_path: Path) -> None:
    for name, separator in (("a.tsv", "\t"), ("a.csv", ",")):
        (tmp_path / name).write_text(
            separator.join([f"{start}.zst", "r", "b"]) + "\n" + "\n".join(separator.join("crd") for _ in range(9))
        )
        graph = import_graph(tmp_path / name, tmp_path / f"{name}-store")
        assert graph.entities.ids.slice(0, 9) == [f"{start}.zst", "b", "c", "d"]


def test_blank_lines_before_the_first_triple_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\n  \r\n\t\t\na\tr\tb\n")
    assert len(import_graph(tmp_path / "a.tsv", tmp_path / "store").triples("train")) == 1


def compressed(path: Path, line: bytes, size: int) -> Path:
    """A file of `size` bytes of the same line, which is a few kilobytes."""
    many = line * (MB // len(line))
    with open(path, "wb") as file:
        packer = (
            gzip.GzipFile(fileobj=file, mode="wb")
            if path.suffix == ".gz"
            else zstandard.ZstdCompressor().stream_writer(file)
        )
        with packer:
            for _ in range(size // len(many)):
                packer.write(many)
    return path


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused_unless_allowed(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compressed_files, "FREE_SIZE", 32 * MB)
    source = compressed(tmp_path / f"a.tsv{ending}", b"a\tr\tb\n", 64 * MB)
    arguments = ["import", str(source), "-o", str(tmp_path / "store")]
    assert main(arguments) == 1
    assert re.search(r"unpacks to more than .* GB and 100 times its size: .* --max-size 50GB", capsys.readouterr().err)
    assert not (tmp_path / "store").exists()
    assert main([*arguments, "--max-size", "48MB"]) == 1
    assert "raise --max-size" in capsys.readouterr().err
    assert main([*arguments, "--max-size", "1GB"]) == 0
    text = tmp_path / f"b.tsv{ending}"
    rows = "".join(f"{os.urandom(8).hex()}\tr\tb\n" for _ in range(1_000)).encode()
    text.write_bytes((gzip.compress if ending == ".gz" else zstandard.compress)(rows))
    monkeypatch.setattr(compressed_files, "FREE_SIZE", 1)
    assert main(["import", str(text), "-o", str(tmp_path / "other")]) == 0


def test_sizes_that_make_no_sense_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_size("50GB") == 50 * GB
    for size in ("much", "0GB", "nan", "1", "9e99TB"):
        assert main(["import", str(tmp_path), "-o", str(tmp_path / "store"), "--max-size", size]) == 1
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc")
def test_a_zstandard_bomb_needs_little_memory(tmp_path: Path) -> None:
    source = compressed(tmp_path / "a.tsv.zst", b"\n", 3 * GB)
    assert source.stat().st_size < MB
    code = "import sys; from fnftg.cli import main; print(main(sys.argv[1:])); print(open('/proc/self/status').read())"
    command = [sys.executable, "-c", code, "import", str(source), "-o", str(tmp_path / "store")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout.startswith("1\n") and "--max-size" in result.stderr and result.stderr.count("\n") == 1
    peak = re.search(r"VmHWM:\s*(\d+) kB", result.stdout)
    assert peak is not None and int(peak[1]) * 1024 < GB / 2  # 200 MB


def test_frames_of_zstandard_are_read_in_time_that_grows_with_their_number() -> None:
    frame, empty = zstandard.compress(b"a\tr\tb\n"), zstandard.compress(b"")
    packed = io.BytesIO(frame + 110_000 * empty + frame)
    started = time.perf_counter()
    assert compressed_files._ZstandardFile(packed).read() == 2 * b"a\tr\tb\n"
    assert time.perf_counter() - started < 1.5  # 0.2; 3 if the rest of the buffer is copied for each


def test_a_zstandard_window_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=30)
    data = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    (tmp_path / "a.tsv.zst").write_bytes(data.compress(b"a\tr\tb\n") + data.flush())
    with pytest.raises(FnftgError, match="128 MiB of memory to unpack: compress it without --long"):
        import_graph(tmp_path / "a.tsv.zst", tmp_path / "store")


def test_repeated_triples_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fnftg.kg.graph_builder.MANY_TRIPLES", 10)
    import numpy as np

    pool, rng = TriplePool(), np.random.default_rng(0)
    parts = [rng.integers(0, 2, (7, 3)).astype(np.int32) for _ in range(50)]
    for part in parts:
        pool.add(part.copy())
        assert pool.size <= 16 + 7
    assert pool.added == 350
    first = list(dict.fromkeys(map(tuple, np.concatenate(parts).tolist())))
    assert list(map(tuple, pool.take().tolist())) == first


# Parquet


def test_a_parquet_file_of_very_many_equal_rows_is_refused_by_its_footer(tmp_path: Path) -> None:
    rows = pl.repeat("a", 5_000_000, eager=True, dtype=pl.String)
    pl.DataFrame({"head": rows, "relation": rows, "tail": rows}).write_parquet(tmp_path / "a.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compressed_files, "FREE_SIZE", 200 * MB)
        with pytest.raises(FnftgError, match="--max-size"):
            import_graph(tmp_path / "a.parquet", tmp_path / "store")
        options = ReadOptions(max_size=GB)
        assert len(import_graph(tmp_path / "a.parquet", tmp_path / "store", options=options).triples("train")) == 1


def test_long_texts_that_parquet_stores_once_are_read_in_parts_and_limited(tmp_path: Path) -> None:
    text = "x" * MB
    frame = pl.DataFrame({"head": ["a"] * 500, "relation": ["r"] * 500, "tail": ["b"] * 500, "name": [text] * 500})
    frame.write_parquet(tmp_path / "a.parquet")
    options = ["--tail", "name", "--max-size"]
    assert main(["import", str(tmp_path / "a.parquet"), "-o", str(tmp_path / "store"), *options, "64MB"]) == 1
    assert main(["import", str(tmp_path / "a.parquet"), "-o", str(tmp_path / "store"), *options, "1GB"]) == 0


@pytest.mark.parametrize("size", [0, 3, 4, 8, 12, 40, -1, -5, -9, -30])
def test_damaged_parquet_gets_one_sentence(size: int, tmp_path: Path) -> None:
    pl.DataFrame({"head": ["a"], "relation": ["r"], "tail": ["b"]}).write_parquet(tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[:size])
    with pytest.raises(FnftgError, match=r"^[^\n]*a\.parquet[^\n]*\.$"):
        import_graph(tmp_path / "a.parquet", tmp_path / "store")


def test_nested_columns_of_parquet_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({"head": [["a"]], "relation": ["r"], "tail": ["b"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(FnftgError, match="'head' has lists or structs"):
        import_graph(tmp_path / "a.parquet", tmp_path / "store")


# The source itself


def test_a_source_that_cannot_be_read_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FnftgError, match="cannot be read: File name too long"):
        import_graph(tmp_path / ("x" * 300), tmp_path / "store")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "train.nt").write_text("<http://a> <http://b> <http://c> .\n")

    def forbidden(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(FnftgError, match=r"a' cannot be read: Permission denied\.$"):
        import_graph(tmp_path / "a", tmp_path / "store")


def test_control_characters_are_kept_and_pairs_of_surrogates_are_one_character(tmp_path: Path) -> None:
    line = {"head": "a\0b", "relation": "\x1b[31m", "tail": "\\ud800 \U0001f600"}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    graph = import_graph(tmp_path / "a.jsonl", tmp_path / "store")
    assert [*graph.entities.ids.slice(0, 9), *graph.relations.ids.slice(0, 9)] == [
        "a\0b",
        "\\ud800 \U0001f600",
        "\x1b[31m",
    ]
