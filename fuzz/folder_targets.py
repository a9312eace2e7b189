"""Fuzz targets for the folders that fnftg writes: the fuzzer's bytes replace one file of an intact folder.

The first byte of an input chooses the file, and whether the folder's checksums are updated. With the old checksums, the
input tests the checksum verification; with updated checksums, it tests the readers behind it. The rest of the input is
the content of the file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

Target = Callable[[bytes], None]
LEGACY = Path(__file__).parents[1] / "tests" / "legacy"  # files of released versions
SEALED = 0x80  # bit of the first byte: update the checksums
NOT_READ = ("README.md", "metrics.json")
TRIPLES = {"train": [("ann", "knows", "bob"), ("bob", "likes", "cleo")], "test": [("cleo", "knows", "ann")]}
TEXTS = {"ann": "Ann, a baker", "bob": "Bob, her son", "cleo": "Cleo, a painter"}


def whole_files(folder: Path) -> list[Path]:
    """Return the files that an input can replace, in a fixed order."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name not in ("README.md", "metrics.json")
    )


def damaged(whole: Path, place: Path, use: Callable[[], object]) -> Target:
    """Return a target that copies the folder `whole` to `place`, replaces one file and calls `use`."""
    files = [path.relative_to(whole) for path in whole_files(whole)]

    def target(data: bytes) -> None:
        if not data:
            return
        name = files[(data[0] & ~SEALED) % len(files)]
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place)
        (place / name).write_bytes(data[1:])
        if data[0] & SEALED:
            seal(place / name)
        use()

    return target


def seal(path: Path) -> None:
    """Update the checksums of a file, so that it passes the verification."""
    from fnftg.checksums import CHECKSUMS, MANIFEST, write_checksums
    from fnftg.files import sha256
    from fnftg.json_files import write_json

    if path.suffix == ".json":
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict) and "checksum" in value:
            del value["checksum"]
            write_json(path, value)
    for folder in path.parents[:3]:
        if (folder / CHECKSUMS).is_file() and path.name != CHECKSUMS:
            kind = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))["format"].removeprefix("fnftg-")
            (folder / CHECKSUMS).unlink()
            write_checksums(folder, kind)
        if (folder / MANIFEST).is_file() and path.name != MANIFEST:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            manifest.pop("checksum", None)
            facts = {"bytes": path.stat().st_size, "sha256": sha256(path)}
            write_json(folder / MANIFEST, {**manifest, "files": {**manifest["files"], path.name: facts}})


def store(folder: Path) -> Target:
    """Fuzz the store of a graph."""
    from fnftg.kg.graph import KnowledgeGraph
    from fnftg.kg.graph_export import export_graph

    KnowledgeGraph.from_triples(TRIPLES, TEXTS).save(folder / "whole")

    def use() -> None:
        graph = KnowledgeGraph.open(folder / "place", verify=True)
        for vocabulary in (graph.entities, graph.relations):
            for row in range(len(vocabulary)):
                vocabulary.find(vocabulary.ids[row])
        graph.all_triples()
        shutil.rmtree(folder / "files", ignore_errors=True)
        export_graph(graph, folder / "files", "tsv")

    return damaged(folder / "whole", folder / "place", use)


def checkpoint(folder: Path) -> Target:
    """Fuzz a checkpoint with its encoder, written by a version without checksums."""
    from fnftg.models.pretrained import from_pretrained

    shutil.copytree(LEGACY / "checkpoint-version-3", folder / "whole")
    return damaged(folder / "whole", folder / "place", lambda: from_pretrained(folder / "place"))


def calibration(folder: Path) -> Target:
    """Fuzz the calibration curves."""
    import numpy as np

    from fnftg.ranking.calibration import Calibration, Isotonic, load

    (folder / "whole").mkdir()
    (folder / "whole" / "model.safetensors").write_bytes(b"weights")
    curve = Isotonic(np.array([-1.0, 0.5]), np.array([0.1, 0.9]))
    Calibration("isotonic", 10, {"split": "val"}, curve, {"knows": curve}, {}, ["knows"]).save(folder / "whole")

    def use() -> None:
        found = load(folder / "place")
        if found is not None:
            margins = np.array([[-np.inf, -2.0, 0.0, 3.0, np.nan]])
            values = [found.bound(["knows", "likes"]).probabilities(margins, np.array([label])) for label in range(4)]
            assert all(((value >= 0) & (value <= 1)).all() for value in values)

    return damaged(folder / "whole", folder / "place", use)


def probability(folder: Path) -> Target:
    """Fuzz the probabilities of triples."""
    import numpy as np

    from fnftg.predict.logistic import Logistic, sigmoid
    from fnftg.predict.small_network import HIDDEN, Network
    from fnftg.predict.triple_probability import (
        FEATURES,
        SCREEN_FEATURES,
        TRIPLE_FEATURES,
        QueryModel,
        TripleModel,
        TripleProbability,
        load,
    )

    def queries(size: int) -> QueryModel:
        return QueryModel(*(Logistic(np.full(size, 0.1), -1.0, np.full(2, 0.1), shift) for shift in (-0.5, 0.0)))

    size = len(TRIPLE_FEATURES)
    shapes = [(HIDDEN, size), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (1, HIDDEN), (1,)]
    layers = [[np.full(shape, 0.01) for shape in shapes] for _ in range(2)]
    networks = (Network(np.zeros(size), np.ones(size), layers, 1.0, -1.0, shift) for shift in (-0.5, 0.0))
    (folder / "whole").mkdir()
    (folder / "whole" / "model.safetensors").write_bytes(b"weights")
    made = queries(len(FEATURES)), TripleModel(*networks), queries(SCREEN_FEATURES), ["r"], {"share": 0.05}
    TripleProbability(*made).save(folder / "whole")

    def use() -> None:
        found = load(folder / "place")
        if found is not None:
            slots, isolated = np.array([0, 5]), np.array([False, True])
            values = [
                found.query.logits(np.full((2, len(FEATURES)), 0.5), slots, isolated),
                found.screen.logits(np.full((2, SCREEN_FEATURES), 0.5), slots, isolated),
                found.triple.logits(np.full((2, size), 0.5), isolated),
            ]
            assert all(((sigmoid(one) >= 0) & (sigmoid(one) <= 1)).all() for one in values)

    return damaged(folder / "whole", folder / "place", use)


def _run_and_graph(folder: Path) -> tuple[Path, Path]:
    from fnftg.kg.graph import KnowledgeGraph

    KnowledgeGraph.from_triples(TRIPLES, TEXTS).save(folder / "graph")
    shutil.copytree(LEGACY / "checkpoint-version-3", folder / "run" / "checkpoint")
    return folder / "run", folder / "graph"


def answers(folder: Path) -> Target:
    """Fuzz the answer cache of a run: vectors of all entities, names and edges."""
    import fnftg

    run, graph = _run_and_graph(folder)
    fnftg.load(run, graph).tails("ann", "knows")
    shutil.copytree(run / "answers", folder / "whole")
    return damaged(folder / "whole", run / "answers", lambda: fnftg.load(run, graph).tails("ann", "knows"))


def text_cache(folder: Path) -> Target:
    """Fuzz the text cache: tokens, features and nearest texts."""
    import os

    import fnftg

    run, graph = _run_and_graph(folder)
    home = Path(os.environ["FNFTG_HOME"])
    shutil.rmtree(home, ignore_errors=True)
    fnftg.load(run, graph).tails("ann", "knows")
    shutil.copytree(home, folder / "whole")

    def use() -> None:
        shutil.rmtree(run / "answers", ignore_errors=True)
        fnftg.load(run, graph).tails("ann", "knows")

    return damaged(folder / "whole", home, use)


def restart(folder: Path) -> Target:
    """Fuzz a restart point."""
    import torch

    from fnftg.training import restart as restart_point

    module = torch.nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    restart_point.save(folder / "whole", module, optimiser, restart_point.TrainingState("graph", log=[{"step": 1}]))

    def use() -> None:
        restart_point.load(folder / "place", module, optimiser)
        restart_point.load_cached(folder / "place")

    return damaged(folder / "whole", folder / "place", use)


def http(folder: Path) -> Target:
    """Fuzz HTTP requests: the first byte chooses the route, the rest is the body or the query string."""
    from urllib.parse import quote_from_bytes

    from fastapi.testclient import TestClient

    from fnftg.serve.app import make_app
    from fnftg.serve.options import Options

    run, graph = _run_and_graph(folder)
    client = TestClient(make_app(Options(str(run), str(graph))))
    client.__enter__()
    while client.get("/readyz").status_code != 200:
        pass
    posts = ["/v1/predict", "/v1/explain", "/v1/embed", "/v1/admin/reload"]
    gets = ["/v1/entities?q=", "/v1/entities?", "/v1/entities/", "/v1/relations?"]

    def target(data: bytes) -> None:
        if not data:
            return
        number = data[0] % 8
        if number < len(posts):
            response = client.post(posts[number], content=data[1:], headers={"Content-Type": "application/json"})
        else:
            response = client.get(gets[number - len(posts)] + quote_from_bytes(data[1:], safe="=&%"))
        assert response.status_code < 500 or response.status_code in (503, 504), response.text
        assert response.headers["content-type"].startswith("application/json") and response.json() is not None

    return target


FOLDER_TARGETS: dict[str, Callable[[Path], Target]] = {
    "store": store,
    "checkpoint": checkpoint,
    "calibration": calibration,
    "probability": probability,
    "answers": answers,
    "text-cache": text_cache,
    "restart": restart,
    "http": http,
}
