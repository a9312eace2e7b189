"""Time and memory of each step from files to answers, with the recipe for large graphs, at several sizes.

    python benchmarks/scale.py [--sizes 10000,100000,1000000,4600000] [--threads 2] [--keep FOLDER] [--json]

Each step is the command that a user runs, in a process of its own, on a synthetic graph with 64 words a text and 4.5
triples an entity, as Wikidata5M has. The slope of a step is that of its seconds per entity on logarithmic axes, between
the smallest and the largest size: 1 if its time is in proportion to the entities. Training has the same number of steps
at all sizes but the smallest. The largest size takes about an hour and 30 GB of disk. The exit code is 1 if a limit is
missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measuring
from measuring import GIGABYTE, Figure, run

from fnftg.console import log

LIBRARIES = ("fnftg", "numpy", "numba", "torch", "faiss-cpu")
TRIPLES, RELATIONS = 20_500_000 / 4_600_000, 822  # triples per entity and relations of Wikidata5M
ASKED = 100  # new entities
WHOLE = 4_600_000  # entities at which the limits apply


# Phases, each run in its own process


def command(threads: str, arguments: str) -> dict[str, float]:
    """Run fnftg with arguments (a list as JSON) and return its seconds and the peak memory of its processes."""
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "fnftg", *json.loads(arguments)], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024}


def texts(store: str, threads: str) -> dict[str, float]:
    """Tokenise and encode all texts."""
    import torch

    from fnftg.kg.datasets import data_home
    from fnftg.kg.graph_source import open_graph
    from fnftg.models.configs import from_dict
    from fnftg.text.encoders import load_encoder
    from fnftg.text.rows import GraphLines
    from fnftg.text.text_transformer import GraphTexts
    from fnftg.training.recipes import LARGE, recipe_fields
    from fnftg.training.run_config import RunConfig

    torch.set_num_threads(int(threads))
    config = from_dict(RunConfig, recipe_fields(LARGE)).model.text
    cache = data_home() / "texts"
    start = time.perf_counter()
    graph = open_graph(store)
    GraphTexts.of(graph, load_encoder(config.encoder, GraphLines(graph), cache=cache), config, cache)
    return {"seconds": time.perf_counter() - start}


def answers(run_folder: str, threads: str) -> dict[str, float]:
    """Embed all entities, build the index and ask about new entities; seconds of each, and milliseconds per answer."""
    import torch

    import fnftg
    from fnftg import NewEntity

    torch.set_num_threads(int(threads))
    start = time.perf_counter()
    predictor = fnftg.load(run_folder)
    embedded = time.perf_counter()
    predictor = predictor.indexed()
    built = time.perf_counter()
    graph, took = predictor.graph, []
    for number in range(ASKED):
        triple = graph.triples("test")[number % len(graph.triples("test"))].tolist()
        words = graph.entities.texts[triple[0]].split()
        entity = NewEntity(" ".join(reversed(words)))
        begin = time.perf_counter()
        predictor.tails(entity, graph.relations.ids[triple[1]])
        took.append(1000 * (time.perf_counter() - begin))
    assert predictor.index is not None
    return {
        "embedding": embedded - start,
        "index": built - embedded,
        "recall": predictor.index.recall,
        "milliseconds": statistics.median(took),
    }


def steps_of(size: int, folder: Path, threads: int) -> dict[str, tuple[float, float]]:
    """Run all steps at a size and return seconds and bytes of each; answers have milliseconds."""
    files, store, trained = folder / f"files-{size}", folder / f"graph-{size}", folder / f"run-{size}"

    def fnftg(*arguments: object) -> dict[str, float]:
        return run(command, threads, json.dumps([*map(str, arguments)]))

    counts = "--triples", str(round(size * TRIPLES)), "--relations", str(min(RELATIONS, size // 20))
    fnftg("data", "synth", "--entities", size, *counts, "--words", 64, "-o", files, "--force")
    found: dict[str, tuple[float, float]] = {}

    def did(name: str, figures: dict[str, float]) -> None:
        found[name] = figures["seconds"], figures.get("memory", figures["peak"])
        log(f"{size:,} entities, {name}: {found[name][0]:,.1f} s, {found[name][1] / GIGABYTE:.1f} GB")

    did("import", fnftg("import", files, "-o", store, "--force"))
    did("tokens and features", run(texts, store, threads))
    options = "--config", "frugal-large", "--training.candidates", "transfer", "--trainer.threads", threads
    shutil.rmtree(trained, ignore_errors=True)
    did("training, with its validation and test", fnftg("train", store, "-o", trained, *options))
    asked = run(answers, trained, threads)
    did("embedding all entities", {**asked, "seconds": asked["embedding"]})
    did("index", {**asked, "seconds": asked["index"]})
    did(f"answer about a new entity, median of {ASKED}", {**asked, "seconds": asked["milliseconds"] / 1000})
    log(f"{size:,} entities: the index finds {asked['recall']:.1%} of the ten best answers.")
    return found


def slope(small: int, large: int, first: float, last: float) -> float:
    return math.log(last / first) / math.log(large / small)


def measure(options: argparse.Namespace) -> list[Figure]:
    sizes = sorted(int(size) for size in options.sizes.split(","))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["FNFTG_HOME"] = str(folder / "home")
        kept = folder / "steps.json"
        every = {int(size): value for size, value in json.loads(kept.read_text()).items()} if kept.is_file() else {}
        for size in sizes:
            if size not in every:
                every[size] = steps_of(size, folder, options.threads)
                kept.write_text(json.dumps(every))
    figures = []
    for size in sizes:
        for name, (seconds, memory) in every[size].items():
            limit = 0.1 if name.startswith("answer") and size == WHOLE else None
            figures.append(Figure(f"{size:,} entities, {name}", seconds, "s", limit=limit))
            figures.append(
                Figure(
                    f"{size:,} entities, {name}, memory", memory / GIGABYTE, "GB", limit=12 if size == WHOLE else None
                )
            )
        whole = sum(seconds for name, (seconds, _) in every[size].items() if not name.startswith("answer"))
        figures.append(Figure(f"{size:,} entities, all steps", whole, "s", limit=3600 if size == WHOLE else None))
    if len(sizes) > 1:
        small, large = sizes[0], sizes[-1]
        for name in every[small]:
            first, last = every[small][name][0], every[large][name][0]
            figures.append(Figure(f"slope of {name}", slope(small, large, first, last), "", limit=1.1))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000,4600000", help="numbers of entities")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    parser.add_argument("--keep", metavar="FOLDER", help="folder in which to keep graphs, runs and finished sizes")
    sys.exit(measuring.main(parser, (command, texts, answers), measure, LIBRARIES))
