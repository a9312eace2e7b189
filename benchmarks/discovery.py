"""Discovery of held-out links: fnftg, PyKEEN's ComplEx and RotatE, a rule miner, and the frequency baseline.

    fnftg split random WN18RR_IND -o wn --seed 0
    fnftg train wn -o run && fnftg calibrate run
    python benchmarks/discovery.py wn --run run --minutes 10 --cache peers

All systems see the triples of train and val and list the triples that they find likeliest. The table shows how many of
the first 100, 1,000 and 10,000 are in test. PyKEEN's models are trained for --minutes of CPU time each, and their lists
are restricted to heads and tails that a relation has elsewhere, which helps them. --cache keeps the trained models.

The rows of PyKEEN are not trustworthy yet: a RotatE whose loss fell as expected found no held-out triple at all on a
small graph, so check `by_pykeen` before you use them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.console import log, print_json, print_table
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.predict.completion import FOUND, Found, Wanted, best_first, complete
from fnftg.predict.discovery import frequent, is_held_out, packed, precision_at

PYKEEN = ("ComplEx", "RotatE")
SYSTEMS = ("fnftg", *PYKEEN, "rules", "frequency")
KEPT = 20_000  # triples of a list
DIMENSION, NEGATIVES, BATCH, LEARNING_RATE = 64, 16, 1024, 5e-3  # of PyKEEN's models
PATHS, LARGEST, SMOOTHING, SAMPLE = 20, 2_000_000, 5.0, 300  # of the rule miner


def visible(graph: KnowledgeGraph) -> KnowledgeGraph:
    splits = {name: triples for name, triples in graph.splits.items() if name != "test"}
    return graph.with_splits(splits, {"held_out": "test"})


def found_of(heads: Any, relations: Any, tails: Any, scores: Any) -> Found:
    found = np.empty(len(heads), FOUND)
    found["head"], found["relation"], found["tail"] = heads, relations, tails
    found["score"] = found["probability"] = scores
    return found


# PyKEEN


def trained(graph: KnowledgeGraph, name: str, minutes: float, cache: Path | None) -> Any:
    """Train one of PyKEEN's models, or load it from the cache."""
    from pykeen.losses import NSSALoss
    from pykeen.models import ComplEx, RotatE
    from pykeen.training import SLCWATrainingLoop
    from pykeen.training.callbacks import TrainingCallback
    from pykeen.triples import TriplesFactory
    from safetensors.torch import load_file, save_file

    triples = torch.from_numpy(graph.all_triples().astype(np.int64))
    entities, relations = ({str(row): row for row in range(len(part))} for part in (graph.entities, graph.relations))
    factory = TriplesFactory(triples, entities, relations)
    options: dict[str, Any] = {"regularizer": None}  # ComplEx has PyKEEN's default loss: with NSSALoss it did not learn
    if name == "RotatE":
        options = {"loss": NSSALoss(margin=9.0, adversarial_temperature=1.0)}
    torch.manual_seed(0)
    model = {"ComplEx": ComplEx, "RotatE": RotatE}[name](
        triples_factory=factory, embedding_dim=DIMENSION, random_seed=0, **options
    )
    file = None if cache is None else cache / f"{name}.safetensors"
    if file is not None and file.is_file():
        model.load_state_dict(load_file(file))
        return model.eval()
    started = time.process_time()  # so that other work on the machine does not shorten the training

    class TimeIsUpError(Exception):
        pass

    class Clock(TrainingCallback):
        def post_epoch(self, epoch: int, epoch_loss: float, **_: Any) -> None:
            seconds = time.process_time() - started
            if epoch % 10 == 1:
                log(f"{name}: epoch {epoch}, loss {float(epoch_loss):.3f}, {seconds:.0f} s")
            if seconds > 60 * minutes:
                raise TimeIsUpError

    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=optimizer,
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": NEGATIVES},
    )
    with contextlib.suppress(TimeIsUpError):
        loop.train(
            triples_factory=factory,
            num_epochs=100_000,
            batch_size=BATCH,
            use_tqdm=False,
            callbacks=Clock,
            num_workers=0,
            pin_memory=False,
        )
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({key: value.contiguous() for key, value in model.state_dict().items()}, file)
    return model.eval()


@torch.inference_mode()
def by_pykeen(graph: KnowledgeGraph, model: Any) -> Found:
    """Return the triples with the highest scores among the heads and tails that each relation has."""
    triples = graph.all_triples()
    known, best = packed(graph, *triples.T), np.empty(0, FOUND)
    for relation in np.unique(triples[:, 1]).tolist():
        own = triples[triples[:, 1] == relation]
        heads, tails = np.unique(own[:, 0]), np.unique(own[:, 2])
        step = max(4_000_000 // len(tails) // DIMENSION, 1)
        for start in range(0, len(heads), step):
            some = heads[start : start + step]
            queries = torch.from_numpy(np.stack([some, np.full_like(some, relation)], axis=1).astype(np.int64))
            scores = model.score_t(queries, tails=torch.from_numpy(tails.astype(np.int64))).numpy()
            floor = best["score"].min() if len(best) >= KEPT else -np.inf
            place, which = np.nonzero(scores > floor)
            part = found_of(some[place], relation, tails[which], scores[place, which])
            new = ~np.isin(packed(graph, part["head"], part["relation"], part["tail"]), known)
            best = np.concatenate([best, part[new & (part["head"] != part["tail"])]])
            if len(best) > 4 * KEPT:
                best = best[np.argsort(-best["score"], kind="stable")[:KEPT]]
    return best_first(best, len(graph.entities), len(graph.relations))


# Rules


def by_rules(graph: KnowledgeGraph) -> Found:
    """Mine rules with one or two body edges and return the triples that they predict, by the best rule's confidence.

    The confidence of a rule is the share of its predictions that are in the graph, smoothed for rare rules.
    """
    from scipy.sparse import csr_matrix

    triples, entities, relations = graph.all_triples(), len(graph.entities), len(graph.relations)
    edges = {}
    for relation in range(relations):
        own = triples[triples[:, 1] == relation]
        matrix = csr_matrix((np.ones(len(own)), (own[:, 0], own[:, 2])), (entities, entities))
        edges[relation], edges[relation + relations] = matrix, matrix.T.tocsr()
    random, parts = np.random.default_rng(0), [np.empty(0, FOUND)]
    around = csr_rows(triples, relations, entities)
    for relation in range(relations):
        target = edges[relation].astype(bool).astype(float)
        if not target.nnz:
            continue
        own = triples[triples[:, 1] == relation]
        sample = own[random.permutation(len(own))[:SAMPLE]]
        bodies: list[tuple[int, ...]] = [(label,) for label in edges if label != relation]
        bodies += common_paths(sample, around, relations)
        predicted: dict[int, float] = {}
        for body in bodies:
            matrix = edges[body[0]]
            if len(body) == 2:
                cost = float(np.diff(edges[body[1]].indptr)[matrix.indices].sum())
                if cost > LARGEST:
                    continue
                matrix = matrix @ edges[body[1]]
            matrix = matrix.astype(bool).astype(float)
            matrix.setdiag(0)
            matrix.eliminate_zeros()
            support = float(matrix.multiply(target).sum())
            confidence = support / (matrix.nnz + SMOOTHING)
            if confidence < 0.02:
                continue
            missing = (matrix - matrix.multiply(target)).tocoo()
            there = missing.data > 0.5
            for key in (missing.row[there].astype(np.int64) * entities + missing.col[there]).tolist():
                predicted[key] = max(predicted.get(key, 0.0), confidence)
        if predicted:
            keys = np.fromiter(predicted, np.int64, len(predicted))
            scores = np.fromiter(predicted.values(), np.float64, len(predicted))
            order = np.argsort(-scores, kind="stable")[:KEPT]
            parts.append(found_of(keys[order] // entities, relation, keys[order] % entities, scores[order]))
    return best_first(np.concatenate(parts), entities, relations)


def csr_rows(triples: Any, relations: int, entities: int) -> tuple[Any, Any, Any]:
    """Return offsets, other ends and labels of the edges of each entity."""
    centres = np.concatenate([triples[:, 0], triples[:, 2]])
    others = np.concatenate([triples[:, 2], triples[:, 0]])
    labels = np.concatenate([triples[:, 1], triples[:, 1] + relations])
    order = np.argsort(centres, kind="stable")
    return np.searchsorted(centres[order], np.arange(entities + 1)), others[order], labels[order]


def common_paths(sample: Any, rows: Any, relations: int) -> list[tuple[int, ...]]:
    """Return the most frequent paths of two edges between heads and tails of the sample."""
    offsets, others, labels = rows
    counts: dict[tuple[int, ...], int] = {}
    for head, _, tail in sample.tolist():
        ends = slice(offsets[head], offsets[head + 1]), slice(offsets[tail], offsets[tail + 1])
        if (ends[0].stop - ends[0].start) * (ends[1].stop - ends[1].start) > LARGEST:
            continue
        middle, first, second = np.intersect1d(others[ends[0]], others[ends[1]], return_indices=True)
        for place in range(len(middle)):
            if middle[place] in (head, tail):
                continue
            one = int(labels[ends[0]][first[place]])
            two = int(labels[ends[1]][second[place]])
            path = (one, (two + relations) % (2 * relations))
            counts[path] = counts.get(path, 0) + 1
    return sorted(counts, key=lambda path: -counts[path])[:PATHS]


# The table


def listed(system: str, graph: KnowledgeGraph, chosen: Any) -> Found:
    if system == "fnftg":
        from tempfile import TemporaryDirectory

        from fnftg.predict.predictor import load

        with TemporaryDirectory() as folder:
            wanted = Wanted(min_probability=chosen.min_probability)
            return complete(load(chosen.run, graph), wanted, Path(folder)).triples
    if system in PYKEEN:
        return by_pykeen(graph, trained(graph, system, chosen.minutes, chosen.cache))
    return by_rules(graph) if system == "rules" else frequent(graph)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="a store with a random split")
    parser.add_argument("--run", type=Path, help="the calibrated run of fnftg; needed for the system fnftg")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="systems (default: all)")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="RELATION", help="also measure without these relations"
    )
    parser.add_argument("--minutes", type=float, default=10, help="CPU time to train each PyKEEN model (default: 10)")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="folder for the trained PyKEEN models")
    parser.add_argument("--min-probability", type=float, default=0.02, help="of a triple of fnftg (default: 0.02)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    whole = open_graph(chosen.graph)
    graph, held_out = visible(whole), whole.triples("test")
    out = [row for row in map(graph.relations.find, chosen.without) if row is not None]
    results = []
    for system in chosen.systems:
        started = time.monotonic()
        found = listed(system, graph, chosen)
        row: dict[str, Any] = {"system": system, "triples": len(found)}
        row |= precision_at(is_held_out(found, held_out, graph))
        if out:
            rest = found[~np.isin(found["relation"], out)]
            row["without"] = precision_at(is_held_out(rest, held_out, graph))
        confident = found["probability"] >= 0.5
        if system == "fnftg":
            row["expected"] = float(found["probability"][confident].sum())
            row["found"] = int(is_held_out(found, held_out, graph)[confident].sum())
        row["seconds"] = round(time.monotonic() - started, 1)
        log(str(row))
        results.append(row)
    if chosen.json:
        print_json(results)
    else:
        columns = ["system", "100", "1000", "10000", "seconds"]
        rows = [
            [f"{row[name]:.3f}" if isinstance(row[name], float) else row[name] for name in columns] for row in results
        ]
        print_table(f"{len(held_out):,} held-out triples: precision of the first", columns, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
