"""Write the seed inputs of all fuzz targets: python fuzz/make_corpus.py."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
from pathlib import Path

import polars as pl
import zstandard
from folder_targets import FOLDER_TARGETS, SEALED, whole_files

LONGEST_FILE = 8000  # bytes
CORPUS = Path(__file__).parent / "corpus"
EX, LABEL = "http://ex.org/", "http://www.w3.org/2000/01/rdf-schema#label"
TSV = "head\trelation\ttail\tsplit\nann\tparent_of\tbob\ttrain\nbob\tknows\tann\tdev\n\né\tknows\t😀\ttest\n"
CSV = 'head,relation,tail\r\n"a, the ""first""",r,b\r\né,r," b"\r\n'
TRIPLE = {"head": "a", "relation": "r", "tail": "b\u00e9"}
ROWS = [("a", "r", "b", "train"), ("b", "r", "c", "test")]
TURTLE = f"""@prefix ex: <{EX}> .
@base <http://base/> .
# a comment [[
ex:Bern ex:capitalOf ex:CH ; <{LABEL}> "Bern"@en , 'Berne'@fr , \"\"\"a "long"
text\"\"\" ; ex:area 41.5 , true .
[] ex:list ( <a> [ ex:r _:x ] "\\u00e9" ) .
ex:a\\(b ex:r <<( <a> <b> <c> )>> .
"""
N_TRIPLES = f"""<{EX}Bern> <{EX}capitalOf> <{EX}CH> .
_:b1 <{LABEL}> "Bern \\"so\\" \\u00e9"@en-GB . # comment
<{EX}CH> <{EX}area> "41285"^^<http://www.w3.org/2001/XMLSchema#integer> .
<{EX}a> <{EX}r> <<( <{EX}a> <{EX}b> <<( <{EX}a> <{EX}b> <{EX}c> )>> )>> .
<{EX}a> <{EX}r> <urn:fnftg:id:xa-20b> .
"""
RDF_XML = f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE rdf:RDF [ <!ENTITY ex "{EX}" > ]>
<!-- a <comment> -->
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
  xmlns:ex="&ex;"><rdf:Description rdf:about="&ex;Bern"><ex:capitalOf rdf:resource="{EX}CH"/>
  <rdfs:label xml:lang="en">Bern &amp; <![CDATA[<more>]]></rdfs:label>
  <ex:list rdf:parseType="Collection"><rdf:Description rdf:ID="x"/></ex:list>
  <ex:any rdf:parseType="Literal"><b>x</b></ex:any></rdf:Description></rdf:RDF>
"""
JSON_LD = {
    "@context": {
        "ex": EX,
        "label": {"@id": LABEL, "@language": "en"},
        "list": {"@id": "ex:list", "@container": "@list"},
    },
    "@graph": [
        {"@id": "ex:Bern", "ex:capitalOf": {"@id": "ex:CH"}, "label": "Bern", "list": [1, True, {"@value": "x"}]},
        {"@id": "urn:fnftg:split:test", "@graph": [{"@id": "ex:CH", "ex:in": {"@id": "_:b"}, "@type": "ex:T"}]},
    ],
}  # fmt: skip


def parquet(frame: pl.DataFrame, **options: object) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in (("graph/train.tsv", b"a\tr\tb\n"), ("graph/empty", b"")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("graph/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    return buffer.getvalue()


def import_seeds() -> dict[str, list[bytes | str]]:
    frame = pl.DataFrame(ROWS, schema=["head", "relation", "tail", "split"], orient="row")
    texts = {"id": "a", "name": "A", "text": "an a, \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")}
    return {
        "tsv": [TSV, "a\tr\tb\nb\tr\tc", "\ufeffa\tr\tb\r\n"],
        "csv": [CSV, "a,r,b\n"],
        "jsonl": [json.dumps(TRIPLE) + "\n\n" + json.dumps({**TRIPLE, "x": [1, {"y": None}]}) + "\n",
                  json.dumps({**TRIPLE, "split": "test"})],
        "parquet": [
            parquet(frame), parquet(frame, compression="uncompressed", statistics=False),
            parquet(frame.with_columns(pl.col("split").cast(pl.Categorical)), compression="snappy", row_group_size=1),
        ],
        "texts-tsv": ["a\tan a\nb\t a  b \n", "id\tname\ttext\na\tA\tan a\nb\t\t\n"],
        "texts-csv": ['id,text\na,"an\na"\n'],
        "texts-jsonl": [json.dumps(texts) + "\n" + json.dumps({"id": "b", "text": None}) + "\n"],
        "gzip": [gzip.compress(TSV.encode(), mtime=0), gzip.compress(b"a\tr\tb\n", mtime=0) * 2],
        "zstandard": [zstandard.compress(TSV.encode()), zstandard.compress(b"a\tr\tb\n") * 2],
        "blp": ["a\tan a\nb\tb\twith a tab\n\nc\tc\r\n"],
        "n-triples": [N_TRIPLES],
        "n-quads": [f"<{EX}a> <{EX}r> <{EX}b> <urn:fnftg:split:test> .\n<{EX}a> <{EX}r> <{EX}c> _:g .\n"],
        "turtle": [TURTLE, f"<{EX}a> <{EX}r> <{EX}b> ."],
        "rdf-xml": [RDF_XML],
        "json-ld": [json.dumps(JSON_LD), json.dumps({"@id": f"{EX}a", f"{EX}r": [{"@id": f"{EX}b"}]})],
        "archive": [tar(), gzip.compress(tar(), mtime=0)],
    }  # fmt: skip


def folder_seeds() -> dict[str, list[bytes | str]]:
    """Return every short file of an intact folder as a seed, with updated checksums."""
    found: dict[str, list[bytes | str]] = {}
    for target, prepare in FOLDER_TARGETS.items():
        if target == "http":
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FNFTG_HOME"] = f"{folder}/home"
            Path(folder, "work").mkdir()
            prepare(Path(folder, "work"))
            files = list(enumerate(whole_files(Path(folder, "work", "whole"))))
            short = [(number, path) for number, path in files if path.stat().st_size < LONGEST_FILE]
            found[target] = [bytes([number | SEALED]) + path.read_bytes() for number, path in short]
    return found


def http_seeds() -> list[bytes | str]:
    new = {"text": "Fay, a sister of Ann", "edges": [["knows", "ann"]], "incoming": [[{"text": "likes"}, "bob"]]}
    queries = [{"head": "ann", "relation": "knows"}, {"head": new, "relation": {"text": "is near"}}]
    bodies = [
        {"queries": queries, "k": 2, "known": True}, {"head": "ann", "relation": "knows", "tail": "bob"},
        {"entities": ["ann", new]}, {},
    ]  # fmt: skip
    posts = [bytes([number]) + json.dumps(body).encode() for number, body in enumerate(bodies)]
    return [*posts, b"\x04ann", b"\x05q=ann&limit=2", b"\x06ann?limit=1", b"\x07"]


def main() -> None:
    for target, seeds in {**import_seeds(), **folder_seeds(), "http": http_seeds()}.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / f"seed-{number}").write_bytes(seed.encode() if isinstance(seed, str) else seed)


if __name__ == "__main__":
    main()
