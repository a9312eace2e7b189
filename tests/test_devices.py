"""Every system trains and embeds on the device of its weights.

There may be no GPU here, so a fake device stands in for it: tensors on it have shapes but no numbers, and an operation
on tensors of two devices is an error, as it is on a GPU. Where there is a GPU the same tests run on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from fnftg.ego.context import GraphContext
from fnftg.evidence.sources import SOURCES
from fnftg.kernels import ego_attention, l1, segments
from fnftg.kg import KnowledgeGraph
from fnftg.models.configs import from_dict
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.models.link_predictor import LinkPredictor, ScoredBatch
from fnftg.models.losses import LossConfig, RankingLoss
from fnftg.models.systems import SYSTEMS
from fnftg.text.encoders import load_encoder
from fnftg.text.rows import GraphLines
from fnftg.text.text_transformer import GraphTexts
from fnftg.training.batches import TrainingBatch
from fnftg.training.run_config import RunConfig

ENCODER = "scratch:L-1_H-32_A-2"
ENTITIES, RELATIONS = 12, 3
TRIPLES = np.random.default_rng(0).integers(0, [ENTITIES, RELATIONS, ENTITIES], (40, 3))
GRAPH = KnowledgeGraph.from_triples(
    {"train": [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in TRIPLES.tolist()]},
    {f"e{i}": f"thing {i} of the {'first' if i % 2 else 'second'} kind" for i in range(ENTITIES)},
    {f"r{i}": f"relation {i}" for i in range(RELATIONS)},
)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fnf": ("fnf", {"text": {"training": "finetune"}}),
    "fnf frugal": (
        "fnf",
        {
            "text": {"training": "frozen", "query": "vector"},
            "score": "cosine",
            "graph": {"heads": 4, "modulated_values": True, "label_histogram": True, "dropout": 0.1},
            "evidence": {"sources": list(SOURCES), "num_nearest": 4},
        },
    ),
    "fnf centre": ("fnf", {"text": {"training": "finetune-centre"}}),
    "fnf text only": ("fnf", {"ego_graphs": False, "relation_conditioning": False, "score": "complex"}),
    "fnf with projected relations": (
        "fnf",
        {"ego_graphs": False, "text": {"query": "vector"}, "relations": "projection"},
    ),
    "ensemble": (
        "ensemble",
        {
            "members": 2,
            "score": "cosine",
            "text": {"query": "vector"},
            "evidence": {"sources": ["text_knn"], "num_nearest": 4},
        },
    ),
    "bow": ("bow", {"text": {"training": "finetune"}}),
    "dkrl": ("dkrl", {"text": {"training": "finetune", "width": 32}, "relations": "text"}),
    "blp": ("blp", {"text": {"training": "finetune", "width": 32}, "score": "simple"}),
    "kepler": ("kepler", {}),
    "star": ("star", {"text": {"training": "finetune", "query": "text"}}),
    "star by distance": ("star", {"text": {"query": "vector"}, "rank_by": "distance"}),
    "statik": ("statik", {"text": {"training": "finetune-centre", "query": "text"}}),
    "statik deep": ("statik", {"text": {"query": "vector"}, "layers": 3, "relations": "text"}),
    "simkgc": ("simkgc", {"text": {"training": "finetune", "query": "text"}, "pre_batch": 10}),
    "simkgc frozen": ("simkgc", {"text": {"query": "vector"}, "pre_batch": 10, "self_negatives": False}),
}


class FakeDevice(FakeTensorMode):
    """Whatever touches a tensor of the fake device has no numbers; what stays in main memory is computed as ever."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        away = any(isinstance(leaf, torch.device) and leaf.type != "cpu" for leaf in leaves)
        if not away and not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return func(*args, **(kwargs or {}))
        # FakeTensorMode itself lets the indices of some operations be anywhere.
        devices = {tensor.device for tensor in tensors if tensor.dim() > 0}
        if len(devices) > 1 and func is not torch.ops.aten.copy_.default:
            raise RuntimeError(f"{func}: all tensors must be on one device, not on {sorted(map(str, devices))}.")
        found = super().__torch_dispatch__(func, types, args, kwargs)
        back = any(isinstance(tensor, Tensor) and tensor.device.type == "cpu" for tensor in tree_leaves(found))
        if back and any(device.type != "cpu" for device in devices):
            raise RuntimeError(f"{func}: a step waits for the device to bring numbers back from it.")
        return found


# Torch refuses a fake "cuda" where it was built without CUDA: gradients and indexing ask for its driver.
DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "meta")


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """Inside, `DEVICE` is there: a GPU, or a fake."""
    with nullcontext() if DEVICE.type == "cuda" else FakeDevice(allow_non_fake_inputs=True):
        yield


def made(case: str) -> tuple[LinkPredictor, GraphTexts]:
    system, fields = CASES[case]
    text = {"encoder": ENCODER, "dropout": 0.1, "pooling": "mean", **fields.get("text", {})}
    config = from_dict(RunConfig, {"system": system, "model": {**fields, "text": text}})
    torch.manual_seed(0)
    model = SYSTEMS[system].make(config.model, load_encoder(ENCODER, GraphLines(GRAPH)), RELATIONS)
    texts = model.texts(GRAPH)
    if model.reads_query_texts and texts.features is not None and model.config.text.training == "frozen":
        centres, labels = (part.reshape(-1) for part in np.mgrid[:ENTITIES, : 2 * RELATIONS])
        texts.features.add_pairs(centres, ENTITIES + labels)
    return model, texts


def scored(model: LinkPredictor, texts: GraphTexts) -> ScoredBatch:
    """A batch as training compares it, all of it on the device."""
    batch = TrainingBatch.of(GRAPH.triples("train")[:4], RELATIONS)
    context = GraphContext.of(texts, GRAPH.triples("train"))
    centres, labels = batch.queries.centres, batch.queries.labels
    egos = context.ego_graphs(model.ego, centres, batch.hidden("target"), training=model.training)
    assert len(egos.labels) or not model.ego.num_neighbours
    candidates, query_embeddings = model(texts, centres, egos, labels, True)
    assert candidates is not None and query_embeddings is not None
    assert candidates.device == query_embeddings.device == DEVICE
    negatives = batch.negatives(None, queue_ids=model.queue_ids())
    answers, against = (torch.from_numpy(part).to(DEVICE) for part in (batch.answers, negatives))
    return ScoredBatch(context, centres, labels, query_embeddings, candidates, batch.candidate_ids, answers, against)


def test_all_systems_are_tested() -> None:
    assert {system for system, _ in CASES.values()} == set(SYSTEMS)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("case", CASES)
def test_every_system_trains_on_the_device_of_its_weights(case: str) -> None:
    model, texts = made(case)
    losses = torch.nn.ModuleList(RankingLoss(LossConfig(name)) for name in ("margin", "infonce", "nll")).to(DEVICE)
    model.to(DEVICE).train()
    weights = [weight for weight in (*model.parameters(), *losses.parameters()) if weight.requires_grad]
    assert weights and all(weight.device == DEVICE for weight in weights)
    optimiser = torch.optim.AdamW(weights)
    for loss in losses:  # a step each; SimKGC has a queue from the second one on
        found = model.loss(scored(model, texts), loss)  # type: ignore[arg-type]
        assert found.shape == () and found.device == DEVICE
        optimiser.zero_grad()
        found.backward()
        given = [weight.grad for weight in weights if weight.grad is not None]
        assert given and all(gradient.device == DEVICE for gradient in given)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("case", CASES)
def test_every_system_embeds_and_scores_on_the_device_of_its_weights(case: str) -> None:
    model, texts = made(case)
    model.to(DEVICE).eval()
    everyone = np.arange(ENTITIES, dtype=np.int32)
    labels = everyone % (2 * RELATIONS)
    context = GraphContext.of(texts, GRAPH.triples("train"))
    egos = context.ego_graphs(model.ego, everyone, None)
    with torch.no_grad():
        candidates, no_queries = model(texts, everyone, egos, None, True)
        no_candidates, asked = model(texts, everyone, egos, labels, False)
        assert candidates is not None and asked is not None and no_queries is None and no_candidates is None
        scores = model.similarity(asked, candidates)
        assert candidates.device == asked.device == scores.device == DEVICE
        assert scores.shape == (ENTITIES, ENTITIES)
        evidence = evidence_of(model)
        if isinstance(model, EvidenceModel) and evidence is not None:
            evidence.register_seen(context, np.array([1]))
            table = evidence.table(context, everyone, labels)
            added = model.evidence_scores(texts, labels, table)
            assert added.device == DEVICE and added.shape == (len(table.entities),) and len(added)
        attention = model.attention(texts, everyone, egos, labels)
        if attention is not None:
            assert all(part.device == DEVICE for one in attention for part in one)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="the fake device is not in use")
@pytest.mark.usefixtures("elsewhere")
def test_the_fake_device_refuses_tensors_of_main_memory_and_gives_none_back() -> None:
    table, here = torch.ones(3, 2, device=DEVICE), torch.arange(3)
    operations = [
        lambda: table[here],
        lambda: table.index_select(0, here),
        lambda: torch.nn.functional.embedding(here, table),
        lambda: torch.where(here[:, None] > 0, table, table),
        lambda: table + here[:, None],
    ]
    for operation in operations:
        with pytest.raises(RuntimeError, match="one device"):
            operation()
    with pytest.raises(RuntimeError, match="waits"):
        table.cpu()
    assert (here + 1).tolist() == [1, 2, 3]


# Kernels: plain torch, which runs on any device, gives what the compiled loops do.


def both_ways(modules: Any, name: str, monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    fast = run()
    with monkeypatch.context() as patch:
        for module in modules:
            patch.setattr(module, name, lambda *tensors: False)
        plain = run()
    assert len(fast) == len(plain)
    for one, other in zip(fast, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_plain_torch_attends_as_the_compiled_loops_do(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    offsets, edges = torch.tensor([0, 3, 3, 4, 11]), torch.arange(11)
    rows = [torch.randn(n, 16, requires_grad=True) for n in (4, 4, 4, 5, 5, 3, 3)]
    scores, direction = torch.randn(11, 2, requires_grad=True), torch.randn(4, 16)

    def run() -> list[Tensor]:
        attended = ego_attention.ego_attention(ego_attention.EgoInputs(*rows, offsets, edges % 5, edges % 3), 2)
        softmax, sums = segments.segment_softmax(scores, offsets), segments.segment_sum(scores, offsets)
        total = (attended * direction).sum() + (softmax**2).sum() + (sums**2).sum()
        return [attended, softmax, sums, *torch.autograd.grad(total, (*rows, scores))]

    both_ways((segments, ego_attention), "is_compiled", monkeypatch, run)


@pytest.mark.parametrize("chunk", [1, 1 << 24])
def test_plain_torch_measures_l1_distances_as_the_compiled_loops_do(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    queries, candidates = torch.randn(7, 12, requires_grad=True), torch.randn(5, 12, requires_grad=True)
    direction = torch.randn(7, 5)
    monkeypatch.setattr(l1, "CHUNK", chunk)

    def run() -> list[Tensor]:
        distances = l1.l1_distances(queries, candidates)
        return [distances, *torch.autograd.grad((distances * direction).sum(), (queries, candidates))]

    both_ways((l1,), "compiled", monkeypatch, run)
