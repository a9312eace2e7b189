"""Speed of training FnF-TG relative to a plain implementation, to fine-tuning, and to returning freed memory.

    python benchmarks/training.py [--data FOLDER_OF_DATASETS] [--cache FOLDER] [--steps 3] [--json]

The plain implementation of the same model encodes every text of every ego-graph with padding, uses padded quadratic
attention, and torch.cdist. Both have the same weights and must compute the same loss. The exit code is 1 if a limit is
missed.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnftg.console import log, print_json, print_table
from fnftg.ego.context import GraphContext
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.graph_transformer import EgoEdges, GraphTransformer, GraphTransformerConfig
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import EgoGraphs
from fnftg.kg import KnowledgeGraph, open_graph
from fnftg.memory import keep_freed_memory
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.losses import LossConfig
from fnftg.models.scoring import compose_queries
from fnftg.text.encoder import pooled
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines
from fnftg.text.text_transformer import GraphTexts
from fnftg.training.batches import TrainingBatch, epoch_order
from fnftg.training.objective import Objective, StepInputs

SCRATCH = "scratch:L-2_H-128_A-2"


class PlainFnF(FnF):
    """A plain implementation with the same weights."""

    def encode_all(self, texts: GraphTexts, rows: Tensor, second: Tensor | None = None) -> Tensor:
        """Encode every text, padded to the longest, even if it occurs several times."""
        batch = texts.tokens.batch(rows.numpy(), None if second is None else second.numpy())
        vectors: Tensor = self.tt.w1(
            torch.nn.functional.silu(self.tt.w0(pooled(self.tt.encoder.model, batch, self.tt.pooling)))
        )
        return vectors

    def forward(
        self, texts: GraphTexts, centres: Any, egos: EgoGraphs, labels: Any = None, candidates: bool = True
    ) -> tuple[Tensor, Tensor]:
        assert self.gt is not None
        rows, label_rows = torch.from_numpy(centres).long(), texts.relation_row(torch.from_numpy(labels).long())
        own, query = self.encode_all(texts, rows), self.encode_all(texts, rows, label_rows)
        counts = np.diff(egos.offsets)
        graph = torch.from_numpy(np.repeat(np.arange(len(centres)), counts))
        place = torch.from_numpy(np.arange(len(graph)) - np.repeat(egos.offsets[:-1], counts))
        size = int(counts.max()) + 1
        nodes = own.new_zeros(len(own), size, own.shape[1])
        factors = own.new_ones(nodes.shape)
        there = torch.zeros(nodes.shape[:2], dtype=torch.bool)
        there[:, 0] = True
        layer: Any = self.gt.layer
        if len(graph):
            nodes[graph, place + 1] = (
                self.encode_all(texts, torch.from_numpy(egos.neighbours).long()) + self.gt.neighbour
            )
            edges = self.encode_all(texts, texts.relation_row(torch.from_numpy(egos.labels).long()))
            factors[graph, place + 1] = 1 + layer.relation_key(layer.relation_norm(edges))
            there[graph, place + 1] = True
        read = []
        for centre in (own, query):
            x = nodes.clone()
            x[:, 0] = centre + self.gt.centre
            normed = layer.before_attention(x)
            queries, keys, values = layer.query(normed), layer.key(normed), layer.value(normed)
            scores = queries @ keys.transpose(1, 2)  # (n, size, size)
            scores[:, 0] = torch.einsum("nd,njd->nj", queries[:, 0], keys * factors)
            scores[:, :, 0] = torch.einsum("nid,nd->ni", queries * factors, keys[:, 0])
            weights = (scores / x.shape[-1] ** 0.5).masked_fill(~there[:, None], -torch.inf).softmax(-1)
            read.append(layer.after_attention(x, weights @ values)[:, 0])
        relation = self.encode_all(texts, texts.relation_row(torch.from_numpy(labels % texts.relations).long()))
        inverse = torch.from_numpy(labels >= texts.relations)
        return read[0], compose_queries(self.config.score, read[1], relation, inverse)

    def similarity(self, points: Tensor, candidates: Tensor) -> Tensor:
        return -torch.cdist(points, candidates, p=1)


def steps(
    graph: KnowledgeGraph, config: FnFConfig, plain: bool, batch_size: int, cache: Path
) -> Callable[[int], float]:
    """Return a function that takes the i-th training step and returns its loss."""
    encoder = load_encoder(config.text.encoder, GraphLines(graph))
    torch.manual_seed(0)
    model = (PlainFnF if plain else FnF)(config, encoder)
    objective = Objective(model, LossConfig())
    texts = GraphTexts.of(graph, encoder, config.text, cache)
    triples = graph.triples("train")
    sizes = len(graph.entities), len(graph.relations)
    context, known = GraphContext(texts, Neighbours.of(triples, *sizes)), KnownAnswers.of(triples, *sizes)
    optimiser = torch.optim.RAdam([p for p in objective.parameters() if p.requires_grad], lr=1e-5)
    order = epoch_order(len(triples), 0, 0)
    objective.train()
    if config.text.training != "frozen":
        encoder.model.eval()  # no dropout, so that both compute the same loss

    def step(index: int) -> float:
        batch = TrainingBatch.of(triples[order[index * batch_size : (index + 1) * batch_size]], sizes[1])
        egos = context.ego_graphs(
            config.ego, batch.queries.centres, batch.hidden("target"), (0, 0, index), training=True
        )
        loss = objective(StepInputs(context, batch, egos, batch.negatives(known)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step


def seconds(step: Callable[[int], float], first: int, count: int) -> float:
    started = time.perf_counter()
    for index in range(first, first + count):
        step(index)
    return (time.perf_counter() - started) / count


def plain_against_ours(graph: KnowledgeGraph, neighbours: int, count: int, cache: Path) -> dict[str, float]:
    text = TextConfig(encoder=SCRATCH, training="finetune", query="text", pooling="cls")
    config = FnFConfig(text=text, ego=EgoConfig(num_neighbours=neighbours))
    ours, plain = (steps(graph, config, written_plainly, 128, cache) for written_plainly in (False, True))
    difference = abs(ours(0) - plain(0))
    assert difference < 1e-3, f"not the same model: the losses differ by {difference}"
    ours(1)
    times = [(seconds(ours, 2 + turn, 1), seconds(plain, 2 + turn, 1)) for turn in range(count)]
    best = [min(column) for column in zip(*times, strict=True)]
    return {"ours_s": best[0], "plain_s": best[1], "ratio": best[1] / best[0]}


def frozen_against_finetuned(graph: KnowledgeGraph, count: int, cache: Path) -> dict[str, float]:
    """Measure triples per second with MiniLM, frozen (with features computed in advance) and fine-tuned."""
    text = TextConfig(encoder="minilm", training="frozen", query="vector", width=256)
    config = FnFConfig(text=text, ego=EgoConfig(num_neighbours=10))
    frozen = steps(graph, config, False, 512, cache)
    finetuned = steps(graph, replace(config, text=replace(text, training="finetune")), False, 32, cache)
    frozen(0), finetuned(0)
    fast = 512 / min(seconds(frozen, 1 + turn, 2) for turn in range(count))
    slow = 32 / min(seconds(finetuned, 1 + turn, 1) for turn in range(max(count // 3, 1)))
    return {"frozen_triples_s": fast, "finetuned_triples_s": slow, "ratio": fast / slow}


def kept_against_returned(graph: KnowledgeGraph, count: int, cache: Path) -> dict[str, float]:
    """Measure a step before and after `keep_freed_memory`, which cannot be undone; run this last."""
    text = TextConfig(encoder="minilm", training="frozen", query="vector", width=256)
    step = steps(graph, FnFConfig(text=text, ego=EgoConfig(num_neighbours=30)), False, 512, cache)
    step(0)
    returned = min(seconds(step, 1 + turn, 2) for turn in range(count))
    keep_freed_memory()
    step(0)
    kept = min(seconds(step, 1 + turn, 2) for turn in range(count))
    return {"kept_s": kept, "returned_s": returned, "ratio": returned / kept}


def growth(sizes: tuple[int, ...] = (10, 100, 1_000, 10_000)) -> dict[int, float]:
    """Measure the milliseconds of a forward and backward pass of the GT, by the number of neighbours."""
    gt = GraphTransformer(128, GraphTransformerConfig())
    times = {}
    for size in sizes:
        centre, nodes, labels = (torch.randn(n, 128, requires_grad=True) for n in (1, size, 10))
        edges = EgoEdges(torch.tensor([0, size]), torch.arange(size), torch.arange(size) % 10)
        best = float("inf")
        for _ in range(7):
            started = time.perf_counter()
            gt(centre, nodes, labels, edges).sum().backward()
            best = min(best, time.perf_counter() - started)
        times[size] = 1000 * best
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="folder with WN18RR_IND and FB15k-237_IND (default: from fnftg data get)"
    )
    parser.add_argument("--cache", type=Path, help="folder for tokens and features (default: a temporary folder)")
    parser.add_argument("--steps", type=int, default=3, help="number of measurements (default: 3)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    names = {name: str(chosen.data / name) if chosen.data else name for name in ("WN18RR_IND", "FB15k-237_IND")}
    found: dict[str, Any] = {
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
    }
    with tempfile.TemporaryDirectory() as folder:
        cache = chosen.cache or Path(folder)
        for name, neighbours in (("WN18RR_IND", 10), ("FB15k-237_IND", 40)):
            log(f"{name}: ours and plain …")
            found[f"{name} against plain"] = plain_against_ours(
                open_graph(names[name]), neighbours, chosen.steps, cache
            )
            log(f"{found[f'{name} against plain']}")
        log("WN18RR_IND: frozen and fine-tuned …")
        found["frozen against fine-tuned"] = frozen_against_finetuned(
            open_graph(names["WN18RR_IND"]), chosen.steps, cache
        )
        found["GT milliseconds by neighbours"] = growth()
        log("FB15k-237_IND: freed memory kept and returned …")
        found["memory kept against returned"] = kept_against_returned(
            open_graph(names["FB15k-237_IND"]), chosen.steps, cache
        )
    limits = {
        "WN18RR_IND against plain": 2.5,
        "FB15k-237_IND against plain": 5.0,
        "frozen against fine-tuned": 50.0,
        "memory kept against returned": 1.0,
    }
    met = {name: found[name]["ratio"] >= limit for name, limit in limits.items()}
    if chosen.json:
        print_json({**found, "met": met})
    else:
        rows = [
            (name, f"{found[name]['ratio']:.1f}", f"≥ {limit}", "pass" if met[name] else "FAIL")
            for name, limit in limits.items()
        ]
        print_table(f"Training speed ({found['machine']})", ["", "ratio", "limit", ""], rows)
        print_table(
            "GT, forward and backward", ["neighbours", "ms"], [(f"{k:,}", f"{v:.2f}") for k, v in growth().items()]
        )
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
