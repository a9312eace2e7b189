"""Time and memory of `fnftg import` on a synthetic graph of Wikidata5M's size, and speed compared with PyKEEN.

    python benchmarks/import.py [--entities 4600000 --triples 20500000 --relations 822] [--keep FOLDER] [--json]

The benchmark takes several minutes and about 7 GB of disk. Each phase runs in its own process, so that its peak memory
is measured separately. The exit code is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import measuring
from measuring import GIGABYTE, MEGABYTE, Figure, peak_memory, run

from fnftg.console import log

LIBRARIES = ("fnftg", "polars", "numpy", "numba", "pykeen", "pandas", "torch")
COMPARED_TRIPLES, ROUNDS = 2_000_000, 3


# Phases, each run in its own process: arguments are strings, results a dict. Libraries are imported before the clock
# starts.


def synthesise(folder: str, entities: str, triples: str, relations: str) -> dict[str, float]:
    from fnftg.kg.synthetic_graph import write_synthetic

    start = time.perf_counter()
    write_synthetic(folder, int(entities), int(triples), int(relations), force=True)
    return {"seconds": time.perf_counter() - start}


def import_with_fnftg(source: str, store: str) -> dict[str, float]:
    from fnftg.kg import import_graph

    for module in ("graph_builder", "formats.blp_folder", "formats.table_files"):  # otherwise imported lazily
        importlib.import_module(f"fnftg.kg.{module}")
    start = time.perf_counter()
    import_graph(source, store, force=True)
    return {"seconds": time.perf_counter() - start}


def import_with_pykeen(source: str) -> dict[str, float]:
    from pykeen.triples import TriplesFactory

    start = time.perf_counter()
    TriplesFactory.from_path(source)
    return {"seconds": time.perf_counter() - start}


def open_store(store: str) -> dict[str, float]:
    from fnftg.kg import KnowledgeGraph

    start = time.perf_counter()
    graph = KnowledgeGraph.open(store)
    opened = time.perf_counter()
    resident = peak_memory()
    wanted, train = graph.entities.ids[len(graph.entities) // 2], graph.triples("train")
    asked = time.perf_counter()
    row = graph.entities.find(wanted)
    assert row is not None and graph.entities.texts[row] and len(train[len(train) // 2]) == 3
    return {"seconds": opened - start, "resident": resident, "look_up": time.perf_counter() - asked}


def measure(folder: Path, entities: int, triples: int, relations: int) -> list[Figure]:
    files, store, first = folder / "files", folder / "store", folder / "first.tsv"
    log(f"Generating {entities:,} entities and {triples:,} triples …")
    synth = run(synthesise, files, entities, triples, relations)
    log("Importing them …")
    imported = run(import_with_fnftg, files, store)
    opened = run(open_store, store)
    figures = [
        Figure("generating the files", synth["seconds"], "s"),
        Figure("generating the files: peak memory", synth["peak"] / GIGABYTE, "GB"),
        Figure("import", imported["seconds"], "s", limit=600),
        Figure("import: peak memory", imported["peak"] / GIGABYTE, "GB", limit=8),
        Figure("opening the store", opened["seconds"], "s", limit=1),
        Figure("opening the store: memory of the process", opened["resident"] / MEGABYTE, "MB", limit=300),
        Figure("looking up one id, one text and one triple", opened["look_up"] * 1000, "ms"),
    ]
    with open(files / "ind-train.tsv", "rb") as train, open(first, "wb") as file:
        file.writelines(islice(train, COMPARED_TRIPLES))
    compared = min(triples, COMPARED_TRIPLES)
    log(f"Comparing with PyKEEN on {compared:,} triples …")
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(run(import_with_pykeen, first)["seconds"])
        ours.append(run(import_with_fnftg, first, folder / "first-store")["seconds"])
    return [
        *figures,
        Figure(f"{compared:,} triples: PyKEEN, best of {ROUNDS}", min(theirs), "s"),
        Figure(f"{compared:,} triples: fnftg, best of {ROUNDS}", min(ours), "s"),
        Figure("speed relative to PyKEEN", min(theirs) / min(ours), "×", limit=3, at_least=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=4_600_000)
    parser.add_argument("--triples", type=int, default=20_500_000)
    parser.add_argument("--relations", type=int, default=822)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder in which to keep the files and the store")

    def measure_all(options: argparse.Namespace) -> list[Figure]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.keep or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            return measure(folder, options.entities, options.triples, options.relations)

    phases = (synthesise, import_with_fnftg, import_with_pykeen, open_store)
    return measuring.main(parser, phases, measure_all, LIBRARIES)


if __name__ == "__main__":
    sys.exit(main())
