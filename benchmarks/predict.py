"""Latency of single queries for known and new entities, and among millions of candidates.

    python benchmarks/predict.py [--run RUN] [--candidates 4600000] [--keep FOLDER] [--threads 2] [--json]

RUN is a run on WN18RR_IND with a frozen MiniLM. Without it, a synthetic graph of that size and an untrained model are
used, as latency does not depend on the weights. RUN is copied first and not changed. The benchmark takes an hour, 10 GB
of disk and 16 GB of memory, mostly to build the index. With FOLDER, candidates and index are kept and reused. Each
phase runs in its own process. The exit code is 1 if a limit is missed.

The synthetic candidates vary in 24 directions, with noise in all 256 dimensions, like learned vectors. With uniform
noise no index would help. Queries are drawn from the same distribution.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import measuring
import numpy as np
import torch
from measuring import GIGABYTE, Figure, run

from fnftg.console import log

LIBRARIES = ("fnftg", "faiss-cpu", "numpy", "numba", "torch", "transformers")
ENTITIES, TRIPLES, RELATIONS = 40_943, 93_003, 11  # of WN18RR_IND
WIDTH, DIRECTIONS, NOISE, BLOCK, SEED = 256, 24, 0.5, 100_000, 0
INDEX = "index"
ASKED, EXACT, WARM = 101, 11, 5  # measurements of each latency, of the exact search, and warm-up queries


def make_run(folder: str) -> dict[str, float]:
    """Create a synthetic graph of WN18RR_IND's size and an untrained frugal model."""
    from fnftg.kg import import_graph
    from fnftg.kg.synthetic_graph import write_synthetic
    from fnftg.models.configs import from_dict
    from fnftg.models.fnf import FnF
    from fnftg.models.pretrained import save_pretrained
    from fnftg.text.encoders import load_encoder
    from fnftg.training.recipes import recipe_fields
    from fnftg.training.run_config import RunConfig

    place = Path(folder)
    write_synthetic(place / "files", ENTITIES, TRIPLES, RELATIONS, words=24)
    import_graph(place / "files", place / "graph")
    config: RunConfig = from_dict(RunConfig, recipe_fields("frugal"))
    model: Any = FnF(config.model, load_encoder(config.model.text.encoder))  # type: ignore[arg-type]
    (place / "run").mkdir()
    save_pretrained(model, place / "run" / "checkpoint")
    (place / "run" / "config.json").write_text(json.dumps({"graph": str(place / "graph"), "config": {}}))
    return {}


def single_answers(folder: str, threads: str) -> dict[str, float]:
    """Measure the milliseconds of single queries: known entities, new ones with text only, and with edges."""
    import fnftg
    from fnftg.predict.questions import NewEntity

    torch.set_num_threads(int(threads))
    start = time.perf_counter()
    predictor = fnftg.load(folder)
    first = time.perf_counter() - start
    start = time.perf_counter()
    predictor = fnftg.load(folder)
    again = time.perf_counter() - start
    generator = np.random.default_rng(SEED)
    rows, relation = generator.integers(0, len(predictor.graph.entities), (ASKED + WARM, 4)).tolist(), 0
    texts = [" ".join(predictor.graph.entities.texts[row[0]].split()[::-1]) for row in rows]  # texts of no entity

    def known(number: int) -> Any:
        return predictor.tails(rows[number][0], relation)

    def text_alone(number: int) -> Any:
        return predictor.tails(NewEntity(texts[number]), relation)

    def with_edges(number: int) -> Any:
        return predictor.tails(NewEntity(texts[number], [(relation, row) for row in rows[number][1:]]), relation)

    asked = {ask.__name__: median(ask, ASKED) for ask in (known, text_alone, with_edges)}
    return {**asked, "first_load": first, "load": again, "entities": float(len(predictor.graph.entities))}


def build_table(folder: str, candidates: str, threads: str) -> dict[str, float]:
    """Write the candidates' vectors to disk, block by block."""
    from fnftg.array_files import write_rows

    torch.set_num_threads(int(threads))
    count = int(candidates)
    if (Path(folder) / "table.npy").is_file() and len(np.load(Path(folder) / "table.npy", mmap_mode="r")) == count:
        return {}
    shutil.rmtree(Path(folder) / INDEX, ignore_errors=True)
    starts = range(0, count, BLOCK)
    parts = (drawn(start, min(BLOCK, count - start)) for start in starts)
    write_rows(Path(folder) / "table.npy", count, WIDTH, parts)
    return {}


def exact(folder: str, threads: str) -> dict[str, float]:
    from fnftg.ranking.search import top_answers

    torch.set_num_threads(int(threads))
    table, points, model = opened(folder)
    nobody, nothing = np.zeros(2, np.int64), np.zeros(0, np.int64)
    ask = median(lambda number: top_answers(model, points[[number]], table, nobody, nothing, 10), EXACT, warm=2)
    return {"milliseconds": ask}


def indexed(folder: str, threads: str) -> dict[str, float]:
    """Build the index, or open it, and measure its latency and its recall on queries that it was not tuned on."""
    import faiss

    from fnftg.predict.index import NearestIndex
    from fnftg.ranking.search import top_answers

    torch.set_num_threads(int(threads))
    faiss.omp_set_num_threads(int(threads))
    table, points, model = opened(folder)
    own, held_out = np.split(points, 2)
    place, timed = Path(folder) / INDEX, Path(folder) / "built.json"
    index = NearestIndex.open(place, len(table)) if place.is_dir() else None
    if index is None:
        start = time.perf_counter()
        index = NearestIndex.built(model, table, own)
        timed.write_text(json.dumps(time.perf_counter() - start))
        index.save(place)
    built = float(json.loads(timed.read_text()))
    nobody, nothing = np.zeros(len(held_out) + 1, np.int64), np.zeros(0, np.int64)
    best = top_answers(model, held_out, table, nobody, nothing, 10)[1]
    found = index.search(model, table, held_out, nobody, nothing, 10)[1]
    recall = float((best[:, :, None] == found[:, None, :]).any(2).mean())
    ask = median(lambda number: index.search(model, table, held_out[[number]], nobody[:2], nothing, 10), ASKED)
    return {
        "milliseconds": ask,
        "seconds": built,
        "recall": recall,
        "own_recall": index.recall,
        "effort": index.vectors.probes,
    }


def median(ask: Callable[[int], Any], times: int, warm: int = WARM) -> float:
    """Return the median milliseconds of ask(number), after some warm-up calls."""
    took = []
    for number in range(times + warm):
        start = time.perf_counter()
        ask(number)
        took.append(1000 * (time.perf_counter() - start))
    return statistics.median(took[warm:])


def drawn(seed: int, count: int) -> Any:
    directions = np.random.default_rng(SEED).normal(size=(DIRECTIONS, WIDTH)).astype(np.float32)
    generator = np.random.default_rng([SEED, seed, count])
    coordinates = generator.standard_normal((count, DIRECTIONS), np.float32)
    drawn = coordinates @ directions + np.float32(NOISE) * generator.standard_normal((count, WIDTH), np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def opened(folder: str) -> tuple[Any, Any, Any]:
    """Return the mapped table, query embeddings, and a model whose scores are cosines, as those of frugal."""
    table = np.load(Path(folder) / "table.npy", mmap_mode="c")
    return (
        table,
        drawn(1 << 40, 2 * (ASKED + WARM)),
        SimpleNamespace(
            by_distance=False, by_product=True, width=WIDTH, device=torch.device("cpu"), similarity=lambda p, c: p @ c.T
        ),
    )


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.run:
            shutil.copytree(options.run, folder / "run", ignore=shutil.ignore_patterns("answers"))
        else:
            log("Generating a graph of the size of WN18RR_IND …")
            run(make_run, folder)
        log("Querying known and new entities …")
        single = run(single_answers, folder / "run", options.threads)
        figures += [
            Figure("candidates of the run", single["entities"], ""),
            Figure("first load, embedding all entities", single["first_load"], "s"),
            Figure("later load", single["load"], "s"),
            Figure("known entity, top 10, median", single["known"], "ms", limit=60),
            Figure("new entity, text only, top 10, median", single["text_alone"], "ms", limit=60),
            Figure("new entity, text and 3 edges, top 10, median", single["with_edges"], "ms", limit=60),
        ]
        shutil.rmtree(folder / "run")
        if options.candidates:
            count = f"{options.candidates:,} × {WIDTH}"
            folder = options.keep or folder
            folder.mkdir(parents=True, exist_ok=True)
            log(f"Generating {count} candidates and searching them …")
            run(build_table, folder, options.candidates, options.threads)
            everything = run(exact, folder, options.threads)
            log("Building an index …")
            index = run(indexed, folder, options.threads)
            figures += [
                Figure(f"{count}: exact, median", everything["milliseconds"], "ms", limit=1500),
                Figure(f"{count}: index, median", index["milliseconds"], "ms", limit=20),
                Figure("recall@10 of the index, held-out queries", index["recall"], "", limit=0.95, at_least=True),
                Figure("recall@10 of the index, as reported to users", index["own_recall"], ""),
                Figure("speed relative to exact search", everything["milliseconds"] / index["milliseconds"], "×"),
                Figure("search effort of the index (lists that are read)", index["effort"], ""),
                Figure("building the index", index["seconds"], "s"),
                Figure("index: peak memory", index["peak"] / GIGABYTE, "GB"),
            ]
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run on WN18RR_IND (default: a synthetic graph)")
    parser.add_argument("--candidates", type=int, default=4_600_000, help="synthetic candidates; 0 skips this part")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder in which to keep candidates and index")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    phases = (make_run, single_answers, build_table, exact, indexed)
    sys.exit(measuring.main(parser, phases, measure, LIBRARIES))
