"""Each of the paper's equations against a few lines that say the same, and no score that has seen its own answer."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from fnftg.ego.config import EgoConfig
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import Hidden
from fnftg.ego.transformer import EgoEdges, GraphTransformer, GraphTransformerConfig
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.link_predictor import GraphContext
from fnftg.models.losses import LossConfig, RankingLoss, info_nce, margin_loss
from fnftg.models.scoring import SCORES, ScoreName, compose_queries, similarity
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines
from fnftg.text.transformer import GraphTexts
from fnftg.training.batches import TrainingBatch

WIDTH = 16


def plain_layer(layer: torch.nn.Module, x: Tensor, r: list[Tensor | None]) -> Tensor:
    """The paper's layer, quadratic: x (nodes, d) with the centre first; r[j] is the edge between it and node j."""
    normed = layer.before_attention(x)
    q, k, v = layer.query(normed), layer.key(normed), layer.value(normed)
    heads, d = layer.heads, x.shape[1] // layer.heads
    rows = []
    for i in range(len(x)):
        keys, values = [], []
        for j in range(len(x)):
            edge = r[max(i, j)] if 0 in (i, j) and i != j else None
            one = torch.ones(x.shape[1])
            modulated = edge is not None and layer.config.relations
            factor = one + layer.relation_norm(edge) @ layer.relation_key.weight.T if modulated else one
            value_factor = one
            if modulated and layer.config.modulated_values:
                value_factor = one + layer.relation_norm(edge) @ layer.relation_value.weight.T
            keys.append(k[j] * factor)
            values.append(v[j] * value_factor)
        parts = []
        for head in range(heads):
            cut = slice(head * d, (head + 1) * d)
            e = torch.stack([q[i][cut] @ key[cut] for key in keys]) / math.sqrt(d)
            parts.append(e.softmax(0) @ torch.stack([value[cut] for value in values]))
        rows.append(torch.cat(parts))
    x = x + torch.stack(rows) @ layer.output.weight.T
    gate, value = (layer.before_feed_forward(x) @ layer.feed_forward.gate_and_value.weight.T).chunk(2, dim=-1)
    return x + (functional.silu(gate) * value) @ layer.feed_forward.output.weight.T


def plain_transformer(
    gt: GraphTransformer, centre: Tensor, nodes: Tensor, labels: Tensor, edges: list[tuple[int, int]]
) -> Tensor:
    centre = centre + gt.centre
    if gt.signature is not None:
        around = [label for _, label in edges]
        counted = [math.log(1 + around.count(label)) * labels[label] for label in set(around)]
        centre = centre + gt.signature.feed_forward(gt.signature.norm(sum(counted, torch.zeros(WIDTH))))
    x = torch.cat([centre[None], *((nodes[node] + gt.neighbour)[None] for node, _ in edges)])
    for layer in gt.layers:
        x = plain_layer(layer, x, [None, *(labels[label] for _, label in edges)])
    return x[0]


@pytest.mark.parametrize(
    "config",
    [
        GraphTransformerConfig(),
        GraphTransformerConfig(heads=4, modulated_values=True),
        GraphTransformerConfig(relations=False, segments=False),
        GraphTransformerConfig(layers=2, heads=2, modulated_values=True),
        GraphTransformerConfig(heads=4, modulated_values=True, label_histogram=True),
    ],
    ids=["paper", "frugal", "ablated", "two layers", "signature"],
)
@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_linear_graph_transformer_equals_the_quadratic_formula(
    config: GraphTransformerConfig, sizes: list[int], seed: int
) -> None:
    torch.manual_seed(seed)
    gt = GraphTransformer(WIDTH, config)
    torch.nn.init.normal_(gt.centre), torch.nn.init.normal_(gt.neighbour)
    for name, weight in gt.named_parameters():
        if "relation" in name and weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.3)  # the modulation must show
    centres, nodes, labels = (torch.randn(n, WIDTH, requires_grad=True) for n in (len(sizes), 5, 3))
    ends = torch.randint(0, 5, (sum(sizes),)), torch.randint(0, 3, (sum(sizes),))
    offsets = torch.tensor([0, *np.cumsum(sizes).tolist()])
    ours = gt(centres, nodes, labels, EgoEdges(offsets, *ends))
    pairs = list(zip(ends[0].tolist(), ends[1].tolist(), strict=True))
    theirs = torch.stack(
        [
            plain_transformer(gt, centres[i], nodes, labels, pairs[offsets[i] : offsets[i + 1]])
            for i in range(len(sizes))
        ]
    )
    assert torch.allclose(ours, theirs, atol=1e-5)
    direction = torch.randn_like(ours)
    inputs = [centres, nodes, labels, *(p for p in gt.parameters() if p.requires_grad)]
    for one, other in zip(
        *(torch.autograd.grad((out * direction).sum(), inputs, allow_unused=True) for out in (ours, theirs)),
        strict=True,
    ):
        if one is not None and other is not None:
            assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)
        else:
            assert (one is None or not one.any()) and (other is None or not other.any())


def plain_score(score: ScoreName, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    if score == "transe":
        return -(h + r - t).abs().sum()
    if score == "distmult":
        return (h * r * t).sum()
    (h1, h2), (r1, r2), (t1, t2) = h.chunk(2), r.chunk(2), t.chunk(2)
    if score == "complex":
        return (torch.complex(h1, h2) * torch.complex(r1, r2) * torch.complex(t1, t2).conj()).sum().real
    return ((h1 * r1 * t2).sum() + (h2 * r2 * t1).sum()) / 2


@pytest.mark.parametrize("score", SCORES)
def test_both_directions_give_the_score_of_the_triple(score: ScoreName) -> None:
    h, r, t = torch.randn(3, 5, WIDTH)
    expected = torch.stack([plain_score(score, *triple) for triple in zip(h, r, t, strict=True)])
    for entity, other, inverse in ((h, t, False), (t, h, True)):
        query_embeddings = compose_queries(score, entity, r, torch.full((5,), inverse))
        assert torch.allclose(similarity(score, query_embeddings, other).diagonal(), expected, atol=1e-4)


def test_cosine_needs_queries_that_know_their_relation() -> None:
    with pytest.raises(FnftgError, match="relation_conditioning"):
        FnFConfig(score="cosine", relation_conditioning=False)


def test_margin_loss_is_the_mean_over_pairs_of_true_and_corrupted_triples() -> None:
    scores = torch.tensor([[0.0, -0.5, -3.0], [-2.0, -1.0, 1.0]])
    answers, negatives = torch.tensor([0, 1]), torch.tensor([[False, True, True], [True, False, True]])
    pairs = torch.tensor([1 - 0.0 - 0.5, 0.0, 1 + 1.0 - 2.0, 1 + 1.0 + 1.0])
    assert margin_loss(scores, answers, negatives, 1.0) == pytest.approx(pairs.mean().item())
    assert margin_loss(scores, answers, negatives, 1.0, "violating") == pytest.approx((0.5 + 3.0) / 2)
    assert margin_loss(scores, answers, negatives, 1.0, "hardest") == pytest.approx((0.5 + 3.0) / 2)
    masked = negatives & torch.tensor([[True, True, True], [True, True, False]])
    assert margin_loss(scores, answers, masked, 1.0) == pytest.approx((0.5 + 0 + 0) / 3)


def test_infonce_is_the_log_probability_of_the_answer_among_the_negatives() -> None:
    logits = torch.tensor([[1.0, 2.0, 5.0]])
    expected = -math.log(math.exp(1) / (math.exp(1) + math.exp(2)))
    loss = info_nce(logits, torch.tensor([0]), torch.tensor([[False, True, False]]))
    assert loss.item() == pytest.approx(expected)
    smooth = info_nce(logits, torch.tensor([0]), torch.tensor([[False, True, False]]), 0.2)
    other = -math.log(math.exp(2) / (math.exp(1) + math.exp(2)))
    assert smooth.item() == pytest.approx(0.9 * expected + 0.1 * other)
    learned = RankingLoss(LossConfig("infonce", temperature=2.0))
    assert learned.log_scale.exp().item() == pytest.approx(0.5) and learned.log_scale.requires_grad


# The whole model on small graphs

TRIPLES = [
    (f"e{h}", f"r{r}", f"e{t}") for h, r, t in np.random.default_rng(0).integers(0, [12, 3, 12], (60, 3)).tolist()
]
GRAPH = KnowledgeGraph.from_triples(
    {"train": TRIPLES},
    {f"e{i}": f"entity number {i} of the {'first' if i % 2 else 'second'} kind" for i in range(12)},
    {f"r{i}": f"relation {i}" for i in range(3)},
)
ENCODER = load_encoder("scratch:L-1_H-32_A-2", GraphLines(GRAPH))


def small_model(**changes: object) -> tuple[FnF, GraphTexts]:
    text = TextConfig(encoder=ENCODER.name, width=WIDTH, training="finetune")
    config = replace(FnFConfig(text=text, ego=EgoConfig(num_neighbours=4)), **changes)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = FnF(config, ENCODER).eval()
    return model, GraphTexts.of(GRAPH, ENCODER, config.text)


def scoring_vectors(
    model: FnF, texts: GraphTexts, triples: np.ndarray, target: np.ndarray, training: bool, what: str
) -> Tensor:  # type: ignore[type-arg]
    """All that scores the target, in both directions: points and candidates of its head and its tail."""
    context = GraphContext(texts, Neighbours.of(triples, 12, 3))
    batch = TrainingBatch.of(target[None], 3)
    key = (1, 2, 3)
    egos = context.ego_graphs(model.ego, batch.queries.centres, batch.hidden(what), key, training=training)
    with torch.no_grad():
        candidates, query_embeddings = model(texts, batch.queries.centres, egos, batch.queries.labels, True)
    assert candidates is not None and query_embeddings is not None
    return torch.cat([candidates, query_embeddings])


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("hops", [1, 2])
def test_target_leaks_into_no_vector_that_scores_it(training: bool, hops: int) -> None:
    model, texts = small_model(ego=EgoConfig(num_neighbours=4, hops=hops, second_limit=2))
    triples = np.unique(
        np.concatenate([GRAPH.triples("train"), [[3, 1, 3], [4, 0, 5], [5, 0, 4], [4, 1, 5]]]), axis=0
    ).astype(np.int32)
    for index in range(len(triples)):
        target = triples[index]
        without = np.delete(triples, index, axis=0)
        given = scoring_vectors(model, texts, triples, target, training, "target")
        for changed in (without, np.concatenate([triples, target[None]])):
            assert torch.equal(given, scoring_vectors(model, texts, changed, target, training, "target"))
        # Relabelled, the edge is another one between the same two entities: a pair hides that as well.
        relabelled = np.concatenate([without, [[target[0], (target[1] + 1) % 3, target[2]]]]).astype(np.int32)
        pair = scoring_vectors(model, texts, triples, target, training, "pair")
        assert torch.equal(pair, scoring_vectors(model, texts, relabelled, target, training, "pair"))


def test_ego_graph_and_relation_matter_unless_ablated() -> None:
    triples, centres = GRAPH.triples("train"), np.arange(4, dtype=np.int32)
    labels = np.array([0, 1, 3, 4], np.int32)

    def vectors(model: FnF, texts: GraphTexts, edges: np.ndarray, asked: np.ndarray) -> tuple[Tensor, Tensor]:  # type: ignore[type-arg]
        egos = GraphContext(texts, Neighbours.of(edges, 12, 3)).ego_graphs(model.ego, centres, None)
        with torch.no_grad():
            candidates, query_embeddings = model(texts, centres, egos, asked, True)
        assert candidates is not None and query_embeddings is not None
        return candidates, query_embeddings

    full, texts = small_model()
    plain, _ = small_model(ego_graphs=False, relation_conditioning=False)  # FnF-T
    with_edges, without_edges = (vectors(full, texts, edges, labels)[0] for edges in (triples, triples[:0]))
    assert not torch.allclose(with_edges, without_edges)
    assert torch.equal(*(vectors(plain, texts, edges, labels)[0] for edges in (triples, triples[:0])))
    candidates, query_embeddings = vectors(plain, texts, triples, labels)
    r = plain.tt(texts, texts.relation_row(torch.from_numpy(labels % 3).long()))
    sign = torch.tensor([1, 1, -1, -1])[:, None]
    assert torch.allclose(query_embeddings, candidates + sign * r, atol=1e-5)
    assert torch.allclose(candidates, plain.tt(texts, torch.arange(4)), atol=1e-5)


@pytest.mark.parametrize("query", ["text", "vector"])
def test_batch_composition_changes_no_embedding(query: str) -> None:
    model, texts = small_model()
    text = replace(model.config.text, query=query)
    model, _ = small_model(text=text)
    context = GraphContext(texts, Neighbours.of(GRAPH.triples("train"), 12, 3))
    centres, labels = np.arange(12, dtype=np.int32), (np.arange(12) % 6).astype(np.int32)
    hidden = Hidden(np.roll(centres, 1), labels)

    def embed(rows: np.ndarray) -> tuple[Tensor, Tensor]:  # type: ignore[type-arg]
        egos = context.ego_graphs(model.ego, centres[rows], Hidden(hidden.entities[rows], hidden.labels[rows]))
        with torch.no_grad():
            candidates, query_embeddings = model(texts, centres[rows], egos, labels[rows], True)
        assert candidates is not None and query_embeddings is not None
        return candidates, query_embeddings

    whole = embed(np.arange(12))
    for rows in (np.arange(6), np.array([11, 3, 3, 7]), np.array([5])):
        for all_rows, some in zip(whole, embed(rows), strict=True):
            assert torch.allclose(all_rows[torch.from_numpy(rows)], some, atol=1e-5)


def test_batch_of_several_processes_is_the_batch_of_one() -> None:
    triples = GRAPH.triples("train")[:8]
    one = TrainingBatch.of(triples, 3)
    for process in range(2):
        part = TrainingBatch.of(triples, 3, process, 2)
        assert np.array_equal(part.columns[part.answers], part.queries.answers)
        assert np.array_equal(one.queries.centres[part.streams], part.queries.centres)
        assert sorted(part.columns.tolist()) == sorted(one.columns.tolist())
    assert np.array_equal(one.columns[one.answers], one.queries.answers)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=30))
def test_known_answers_are_those_of_the_triples(triples: list[tuple[int, int, int]]) -> None:
    known = KnownAnswers.of(np.array(triples, np.int32), 6, 2)
    centres, labels = (part.reshape(-1).astype(np.int32) for part in np.mgrid[:6, :4])
    offsets, answers = known(centres, labels)
    columns = np.array([5, 0, 1, 1, 3], np.int32)
    among = known.among(centres, labels, columns)
    for i, (centre, label) in enumerate(zip(centres, labels, strict=True)):
        if label < 2:
            expected = {t for h, r, t in triples if (h, r) == (centre, label)}
        else:
            expected = {h for h, r, t in triples if (t, r) == (centre, label - 2)}
        assert answers[offsets[i] : offsets[i + 1]].tolist() == sorted(expected)
        assert among[i].tolist() == [entity in expected for entity in columns.tolist()]


def test_nonsense_configs_are_refused() -> None:
    for make in (
        lambda: GraphTransformerConfig(heads=0),
        lambda: EgoConfig(num_neighbours=-1),
        lambda: LossConfig("hinge"),  # type: ignore[arg-type]
        lambda: FnFConfig(score="rotate"),  # type: ignore[arg-type]
        lambda: GraphTransformer(10, GraphTransformerConfig(heads=3)),
    ):
        with pytest.raises(FnftgError):
            make()
