"""Each of the paper's equations against a few lines that say the same, and no score that has seen its own answer."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.graph_transformer import EgoEdges, GraphLayer, GraphTransformer, GraphTransformerConfig
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.label_histogram import LabelCounts, count_labels
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import Hidden
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.link_predictor import GraphContext
from fnftg.models.losses import LossConfig, RankingLoss, info_nce, margin_loss
from fnftg.models.scoring import SCORES, ScoreName, compose_queries, similarity
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines
from fnftg.text.text_transformer import GraphTexts
from fnftg.training.batches import TrainingBatch

WIDTH = 16


def quadratic_layer(layer: GraphLayer, centres: Tensor, neighbours: Tensor, labels: Tensor, edges: EgoEdges) -> Tensor:
    """The centres (n, d) after the paper's whole layer: every node of every ego-graph, padded, attends to every other.

    neighbours (edges, d), distinct labels (p, d).
    """
    counts = edges.offsets.diff()
    graph = torch.repeat_interleave(torch.arange(len(counts)), counts)  # (edges,)
    place = torch.arange(len(neighbours)) - edges.offsets[:-1][graph] + 1  # the centre stands at 0
    size = int(counts.max()) + 1
    x = centres.new_zeros(len(centres), size, WIDTH).index_put((graph, place), neighbours)  # (n, size, d)
    x = torch.cat([centres[:, None], x[:, 1:]], dim=1)
    there = torch.arange(size) <= counts[:, None]  # (n, size)
    normed = layer.before_attention(x)
    query, key, value = (
        heads(part(normed), layer.heads) for part in (layer.query, layer.key, layer.value)
    )  # (n, size, h, …)
    # r_ij (n, size, size, h, dh): only edges have labels, and each has the centre at one end; elsewhere it is 1.
    factors = [x.new_ones(len(x), size, size, WIDTH) for _ in range(2)]
    for number, of_label in enumerate(layer.modulation(labels)):
        for ends in ((torch.zeros_like(place), place), (place, torch.zeros_like(place))):
            factors[number] = factors[number].index_put((graph, *ends), of_label[edges.labels])
    of_keys, of_values = (heads(x, layer.heads) for x in factors)
    scores = torch.einsum("nihd,nijhd,njhd->nijh", query, of_keys, key) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~there[:, None, :, None], -torch.inf).softmax(2)
    attended = torch.einsum("nijh,nijhd,njhd->nihd", weights, of_values, value)
    return layer.after_attention(x, attended.flatten(2))[:, 0]


def heads(x: Tensor, number: int) -> Tensor:
    """(…, d) → (…, heads, d / heads)."""
    return x.view(*x.shape[:-1], number, -1)


def quadratic_transformer(
    gt: GraphTransformer, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges
) -> Tensor:
    centres = centres + gt.centre
    if gt.label_histogram is not None:
        sums = []
        for start, stop in itertools.pairwise(edges.offsets.tolist()):
            around = edges.labels[start:stop].tolist()
            counted = [math.log(1 + around.count(label)) * labels[label] for label in set(around)]
            sums.append(sum(counted, torch.zeros(WIDTH)))
        centres = centres + gt.label_histogram.feed_forward(gt.label_histogram.norm(torch.stack(sums)))
    return quadratic_layer(gt.layer, centres, nodes[edges.nodes] + gt.neighbour, labels, edges)


@pytest.mark.parametrize(
    "config",
    [
        GraphTransformerConfig(),
        GraphTransformerConfig(heads=4, modulated_values=True),
        GraphTransformerConfig(relations=False, segments=False),
        GraphTransformerConfig(heads=4, modulated_values=True, label_histogram=True),
    ],
    ids=["paper", "frugal", "ablated", "label histogram"],
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
    counted = map(torch.from_numpy, count_labels(offsets.numpy(), ends[1].numpy()))
    edges = EgoEdges(offsets, *ends, LabelCounts(*counted, len(sizes)))
    ours, theirs = gt(centres, nodes, labels, edges), quadratic_transformer(gt, centres, nodes, labels, edges)
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


@pytest.mark.parametrize("config", [{}, {"heads": 4, "modulated_values": True, "label_histogram": True}])
def test_attention_is_what_the_layer_reads_its_values_with(config: dict[str, object]) -> None:
    model, texts = small_model(graph=GraphTransformerConfig(**config))  # type: ignore[arg-type]
    centres, labels = np.arange(5, dtype=np.int32), np.array([0, 1, 2, 3, 4], np.int32)
    egos = GraphContext(texts, Neighbours.of(GRAPH.triples("train"), 12, 3)).ego_graphs(model.ego, centres, None)
    assert model.gt is not None
    seen: list[Tensor] = []
    model.gt.layer.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))  # what was attended
    with torch.no_grad():
        model(texts, centres, egos, labels, True)
        attention = model.attention(texts, centres, egos, labels)
        assert attention is not None
        [(offsets, weights)] = attention
        x, around = model.graph_inputs(texts, centres, egos, labels, True)
        assert around is not None
        nodes, label_rows, edges = around
        inputs = [model.gt.layer.before_attention(rows) for rows in model.gt.inputs(x, nodes, label_rows, edges)]
        own, others = (model.gt.layer.value(rows) for rows in inputs)
        factors = model.gt.layer.modulation(label_rows)[1]
    assert offsets.diff().tolist() == (1 + np.tile(np.diff(egos.offsets), 2)).tolist()
    assert weights.shape == (int(offsets[-1]), model.config.graph.heads)
    assert len(seen) == 1, "asking for the attention runs no layer"
    for row, (start, stop) in enumerate(itertools.pairwise(offsets.tolist())):
        assert torch.allclose(weights[start:stop].sum(0), torch.ones(weights.shape[1]))
        around_it = slice(start - row, stop - row - 1)
        values = others[edges.nodes[around_it]] * (1 if factors is None else factors[edges.labels[around_it]])
        values = heads(torch.cat([own[row : row + 1], values]), model.gt.layer.heads)  # (1 + neighbours, h, dh)
        assert torch.allclose(
            torch.einsum("eh,ehd->hd", weights[start:stop], values).flatten(), seen[0][row], atol=1e-5
        )
    plain, _ = small_model(ego_graphs=False)
    assert plain.attention(texts, centres, egos, labels) is None


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
    for relations in ("table", "projection"):
        with pytest.raises(FnftgError, match=r"set model\.relations to text"):
            FnFConfig(TextConfig(training="frozen"), score="cosine", relations=relations)  # type: ignore[arg-type]


def test_margin_loss_is_the_mean_over_pairs_of_true_and_corrupted_triples() -> None:
    scores = torch.tensor([[0.0, -0.5, -3.0], [-2.0, -1.0, 1.0]])
    answers, negatives = torch.tensor([0, 1]), torch.tensor([[False, True, True], [True, False, True]])
    pairs = torch.tensor([1 - 0.0 - 0.5, 0.0, 1 + 1.0 - 2.0, 1 + 1.0 + 1.0])
    assert margin_loss(scores, answers, negatives, 1.0) == pytest.approx(pairs.mean().item())
    masked = negatives & torch.tensor([[True, True, True], [True, True, False]])
    assert margin_loss(scores, answers, masked, 1.0) == pytest.approx((0.5 + 0 + 0) / 3)


def test_infonce_is_the_log_probability_of_the_answer_among_the_negatives() -> None:
    logits = torch.tensor([[1.0, 2.0, 5.0]])
    expected = -math.log(math.exp(1) / (math.exp(1) + math.exp(2)))
    loss = info_nce(logits, torch.tensor([0]), torch.tensor([[False, True, False]]))
    assert loss.item() == pytest.approx(expected)
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
    """All that scores the target, in both directions: query and candidate embeddings of its head and its tail."""
    context = GraphContext(texts, Neighbours.of(triples, 12, 3))
    batch = TrainingBatch.of(target[None], 3)
    key = (1, 2, 3)
    egos = context.ego_graphs(model.ego, batch.queries.centres, batch.hidden(what), key, training=training)
    with torch.no_grad():
        candidates, query_embeddings = model(texts, batch.queries.centres, egos, batch.queries.labels, True)
    assert candidates is not None and query_embeddings is not None
    return torch.cat([candidates, query_embeddings])


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_target_leaks_into_no_vector_that_scores_it(training: bool) -> None:
    model, texts = small_model()
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
        assert np.array_equal(part.candidate_ids[part.answers], part.queries.answers)
        assert np.array_equal(one.queries.centres[part.streams], part.queries.centres)
        assert sorted(part.candidate_ids.tolist()) == sorted(one.candidate_ids.tolist())
    assert np.array_equal(one.candidate_ids[one.answers], one.queries.answers)


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
