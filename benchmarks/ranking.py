"""Time and memory of ranking: compared with PyKEEN, on a trained run, and with candidates that do not fit into memory.

    python benchmarks/ranking.py [--run RUN] [--pykeen-queries 1000] [--large 4600000] [--json]

RUN is a run on WN18RR_IND; without it, that part is skipped. The benchmark takes several minutes and 5 GB of disk. Each
phase runs in its own process, so that its peak memory is measured separately. The exit code is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
from measuring import GIGABYTE, MEGABYTE, Figure, fresh_peak, peak_memory, run

from fnftg.console import log
from fnftg.ego.ego_config import EgoConfig
from fnftg.kg import KnowledgeGraph
from fnftg.models.link_predictor import LinkPredictor

LIBRARIES = ("fnftg", "numpy", "numba", "pykeen", "torch")
ENTITIES, RELATIONS, WIDTH, SEED = 41_000, 11, 256, 0
LARGE_QUERIES, LARGE_KNOWN, BUDGET = 1_000, 50, 512 * MEGABYTE


class Fixed(LinkPredictor):
    """TransE with fixed vectors, which both evaluators rank."""

    def __init__(self, entities: torch.Tensor, relations: torch.Tensor):
        super().__init__()
        self.entities, self.labels = entities, torch.cat([relations, -relations])  # (N, d), (2R, d)
        self.by_distance, self.width, self.ego = True, entities.shape[1], EgoConfig(num_neighbours=0)

    def forward(
        self, texts: Any, centres: Any, egos: Any, labels: Any, candidates: bool
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        x = self.entities[centres]
        return x if candidates else None, None if labels is None else x + self.labels[labels]

    def similarity(self, points: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        return -torch.cdist(points, candidates, p=1)


def made_up(queries: int) -> tuple[dict[str, np.ndarray[Any, Any]], torch.Tensor, torch.Tensor]:
    """Return synthetic triples of WN18RR_IND's size, with half as many test triples as queries, and vectors."""
    generator = np.random.default_rng(SEED)
    sizes = {"train": 69_585, "val": 11_381, "test": queries // 2}
    triples = {
        split: np.unique(generator.integers(0, [ENTITIES, RELATIONS, ENTITIES], (size, 3)), axis=0).astype(np.int32)
        for split, size in sizes.items()
    }
    every = np.arange(ENTITIES, dtype=np.int32)  # a chain, so that every entity is a candidate
    chain = np.stack([every, 0 * every, np.roll(every, 1)], axis=1)
    triples["train"] = np.unique(np.concatenate([chain, triples["train"]]), axis=0)
    vectors = generator.normal(size=(ENTITIES + RELATIONS, WIDTH)).astype(np.float32)
    return triples, torch.from_numpy(vectors[:ENTITIES]), torch.from_numpy(vectors[ENTITIES:])


# Phases, each run in its own process


def rank_with_pykeen(queries: str) -> dict[str, float]:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import TransE
    from pykeen.triples import CoreTriplesFactory

    triples, entities, relations = made_up(int(queries))
    mapped = {split: torch.from_numpy(rows.astype(np.int64)) for split, rows in triples.items()}
    factory = CoreTriplesFactory(mapped["train"], ENTITIES, RELATIONS)
    model = TransE(triples_factory=factory, embedding_dim=WIDTH, scoring_fct_norm=1, random_seed=SEED)
    with torch.no_grad():
        for vectors, representation in (
            (entities, model.entity_representations[0]),
            (relations, model.relation_representations[0]),
        ):
            next(representation.parameters()).copy_(vectors)
    before, start = fresh_peak(), time.perf_counter()
    found = RankBasedEvaluator(filtered=True).evaluate(
        model, mapped["test"], additional_filter_triples=[mapped["train"], mapped["val"]], use_tqdm=False, batch_size=32
    )
    return {
        "seconds": time.perf_counter() - start,
        "grown": peak_memory() - before,
        **{name: found.get_metric(name) for name in ("mrr", "hits@1", "hits@3", "hits@10")},
    }


def rank_with_fnftg(queries: str) -> dict[str, float]:
    from fnftg.ranking.evaluation import split_metrics
    from fnftg.ranking.protocols import protocol
    from fnftg.text.text_transformer import GraphTexts

    triples, entities, relations = made_up(int(queries))
    ids, relation_ids = {f"e{row:05}": "" for row in range(ENTITIES)}, {f"r{row:02}": "" for row in range(RELATIONS)}
    graph = KnowledgeGraph.from_triples({"train": [("e00000", "r00", "e00001")]}, ids, relation_ids)
    assert [graph.entities.ids[row] for row in range(ENTITIES)] == list(ids), "rows are those of the vectors"
    graph = graph.with_splits(triples, {})
    model, nothing = Fixed(entities, relations), GraphTexts(None, None, ENTITIES, RELATIONS)  # type: ignore[arg-type]
    split_metrics(model, graph, nothing, "test", protocol("cumulative"), sample=8)  # compile
    before, start = fresh_peak(), time.perf_counter()
    found = split_metrics(model, graph, nothing, "test", protocol("cumulative"))
    return {
        "seconds": time.perf_counter() - start,
        "grown": peak_memory() - before,
        **{name: found[name] for name in ("mrr", "hits@1", "hits@3", "hits@10")},
    }


def rank_run(run_folder: str) -> dict[str, float]:
    """Rank the test split of a trained run, whose text features are cached."""
    from fnftg.kg.datasets import data_home
    from fnftg.models.pretrained import from_pretrained
    from fnftg.ranking.evaluation import rank_split
    from fnftg.ranking.protocols import protocol
    from fnftg.ranking.runs import RunFolder

    graph, model = RunFolder(Path(run_folder)).graph(), from_pretrained(run_folder)
    texts = model.texts(graph, data_home() / "texts")
    ranking = rank_split(model, graph, texts, "test", protocol("cumulative"))
    mrr = float((1 / ranking.ranks).mean())
    return {
        "seconds": ranking.seconds,
        "queries": ranking.ranks.size,
        "candidates": len(ranking.candidates),
        "mrr": mrr,
    }


def rank_large(folder: str, candidates: str) -> dict[str, float]:
    """Rank queries with several known answers each against candidates in a file."""
    from fnftg.ranking.rank_counts import filtered_counts

    count, path = int(candidates), Path(folder) / "candidates.f32"
    generator = np.random.default_rng(SEED)
    with open(path, "wb") as file:
        for first in range(0, count, 100_000):
            generator.normal(size=(min(100_000, count - first), WIDTH)).astype(np.float32).tofile(file)
    true = generator.integers(0, count, LARGE_QUERIES)
    vectors = np.array(np.memmap(path, np.float32, "r", shape=(count, WIDTH))[true])
    points = vectors + generator.normal(0, 0.5, (LARGE_QUERIES, WIDTH)).astype(np.float32)
    steps = np.arange(LARGE_KNOWN + 1) * (count // (LARGE_KNOWN + 1))
    known = np.sort((true[:, None] + steps) % count)  # spread over the file, including the true answer
    offsets = np.arange(LARGE_QUERIES + 1) * (LARGE_KNOWN + 1)
    model = Fixed(torch.zeros(1, WIDTH), torch.zeros(1, WIDTH))
    filtered_counts(model, points[:8], vectors[:8], vectors, offsets[:9] * 0, known[:0].ravel(), BUDGET)  # compile
    table = np.memmap(path, np.float32, "r", shape=(count, WIDTH))
    before, start = fresh_peak(), time.perf_counter()
    found = filtered_counts(model, points, vectors, table, offsets, known.ravel(), BUDGET // 4)  # as ranking does
    seconds, grown = time.perf_counter() - start, peak_memory() - before
    path.unlink()
    return {"seconds": seconds, "grown": grown, "mrr": float((1 / (1 + found.better + found.equal / 2)).mean())}


def measure(options: argparse.Namespace) -> list[Figure]:
    queries = options.pykeen_queries
    log(f"Ranking {queries:,} queries with PyKEEN and with fnftg …")
    theirs, ours = run(rank_with_pykeen, queries), run(rank_with_fnftg, queries)
    difference = max(abs(theirs[name] - ours[name]) for name in ("mrr", "hits@1", "hits@3", "hits@10"))
    figures = [
        Figure(f"{queries:,} queries: PyKEEN", theirs["seconds"], "s"),
        Figure(f"{queries:,} queries: fnftg", ours["seconds"], "s"),
        Figure("speed relative to PyKEEN", theirs["seconds"] / ours["seconds"], "×", limit=25, at_least=True),
        Figure("largest difference in MRR or Hits@1, 3, 10", difference * 1e6, "millionths", limit=1),
        Figure("memory for ranking: PyKEEN", theirs["grown"] / MEGABYTE, "MB"),
        Figure("memory for ranking: fnftg", ours["grown"] / MEGABYTE, "MB"),
    ]
    if options.run:
        log(f"Ranking the test split of {options.run} …")
        found = run(rank_run, options.run)
        name = f"{found['queries']:,.0f} queries, {found['candidates']:,.0f} candidates of a run"
        figures += [
            Figure(name, found["seconds"], "s", limit=25),
            Figure("peak memory of the whole process", found["peak"] / GIGABYTE, "GB", limit=2),
        ]
    log(f"Ranking {LARGE_QUERIES:,} queries against {options.large:,} candidates in a file …")
    with tempfile.TemporaryDirectory() as folder:
        found = run(rank_large, folder, options.large)
    budget = BUDGET / MEGABYTE
    return [
        *figures,
        Figure(f"{LARGE_QUERIES:,} queries, {options.large:,} candidates in a file", found["seconds"], "s"),
        Figure(f"memory for ranking, budget {budget:.0f} MB", found["grown"] / MEGABYTE, "MB", limit=budget),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run on WN18RR_IND")
    parser.add_argument("--pykeen-queries", type=int, default=1_000, help="queries to rank with PyKEEN and fnftg")
    parser.add_argument("--large", type=int, default=4_600_000, help="candidates in the file")
    return measuring.main(parser, (rank_with_pykeen, rank_with_fnftg, rank_run, rank_large), measure, LIBRARIES)


if __name__ == "__main__":
    sys.exit(main())
