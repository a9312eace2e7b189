"""Each previous system does what its paper says, learns, and is saved, loaded and refused like any other."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fnftg.cli import main
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.models.configs import from_dict
from fnftg.models.kepler import KEPLER
from fnftg.models.link_predictor import GraphContext, LinkPredictor, ScoredBatch
from fnftg.models.losses import LossConfig, RankingLoss, nll_loss
from fnftg.models.pretrained import from_pretrained, save_pretrained
from fnftg.models.simkgc import SimKGC
from fnftg.models.star import StAR
from fnftg.models.statik import StATIK
from fnftg.models.systems import SYSTEMS
from fnftg.text.encoders import load_encoder, save_encoder
from fnftg.text.rows import GraphLines
from fnftg.text.stopwords import STOP_WORDS, ContentWords
from fnftg.text.text_transformer import GraphTexts
from fnftg.training.batches import TrainingBatch
from fnftg.training.loop import train_run
from fnftg.training.recipes import merge_fields
from fnftg.training.run_config import RunConfig

ENCODER = "scratch:L-1_H-32_A-2"
KINDS = ("red", "blue", "green")
NAMES = [f"{a}{b}" for a in ("ka", "mo", "ti", "lu", "ze") for b in ("no", "ra", "si", "du")][:17]
# 50 triples: of each name the red thing has a blue one, the blue a green one, the green a red one.
TURNS = [(kind, KINDS[(number + 1) % 3]) for number, kind in enumerate(KINDS)]
TRIPLES = [(f"{one} {name}", f"has {other}", f"{other} {name}") for name in NAMES for one, other in TURNS][:50]
ENTITY_TEXTS = {f"{kind} {name}": f"the {kind} thing of {name}, {name}" for kind in KINDS for name in NAMES}
RELATION_TEXTS = {f"has {kind}": f"has a {kind} one" for kind in KINDS}
SYSTEM_FIELDS: dict[str, dict[str, Any]] = {
    "fnf": {"text": {"training": "finetune"}},
    "ensemble": {"members": 2, "score": "cosine", "text": {"width": 64}},
    "bow": {"text": {"training": "finetune"}},
    "dkrl": {"text": {"training": "finetune", "width": 32}},
    "blp": {"text": {"training": "finetune", "width": 32}},
    "kepler": {},
    "star": {"text": {"training": "finetune", "query": "text"}, "rank_by": "distance"},
    "statik": {"text": {"training": "finetune-centre", "query": "text"}, "ego": {"num_neighbours": 4}},
    "simkgc": {"text": {"training": "finetune", "query": "text"}, "pre_batch": 60},
}
FROZEN_FNF_T = {"ego_graphs": False, "relation_conditioning": False, "text": {"training": "frozen", "query": "vector"}}
TEMPERATURES = {
    "kepler": 1.0,
    "fnf": 2.0,
    "statik": 2.0,
    "star": 0.1,
    "bow": 0.2,
    "dkrl": 0.2,
    "blp": 0.2,
    "simkgc": 0.05,
    "ensemble": 0.05,
}
TRAINING = {"epochs": 60, "batch_size": 25, "learning_rate": 0.01, "validate_every": 30, "log_every": 1}


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return KnowledgeGraph.from_triples(
        {"train": TRIPLES, "val": TRIPLES, "test": TRIPLES}, ENTITY_TEXTS, RELATION_TEXTS
    )


def configured(system: str, model: dict[str, Any] | None = None, **training: Any) -> RunConfig:
    loss = {"loss": {"name": "infonce", "temperature": TEMPERATURES[system]}}
    fields = {"text": {"encoder": ENCODER, "dropout": 0.0, "pooling": "mean"}}
    if system not in ("bow", "dkrl"):
        fields["text"]["words"] = 8
    fields = merge_fields(merge_fields(fields, SYSTEM_FIELDS[system]), model or {})
    config: RunConfig = from_dict(
        RunConfig, {"system": system, "model": fields, "training": {**TRAINING, **loss, **training}}
    )
    return config


def made(system: str, graph: KnowledgeGraph, **model: Any) -> tuple[Any, GraphTexts]:
    """An untrained model and the graph's texts."""
    config = configured(system, model)
    torch.manual_seed(1)
    encoder = load_encoder(ENCODER, GraphLines(graph))
    found = SYSTEMS[system].make(config.model, encoder, len(graph.relations)).eval()
    texts = found.texts(graph)
    return found, texts


def vectors(
    model: LinkPredictor,
    texts: GraphTexts,
    graph: KnowledgeGraph,
    triples: np.ndarray,  # type: ignore[type-arg]
) -> tuple[Tensor, Tensor, TrainingBatch]:
    """Candidates and points of a batch's heads and tails."""
    batch = TrainingBatch.of(triples, texts.relations)
    context = GraphContext(texts, Neighbours.of(graph.triples("train"), len(graph.entities), texts.relations))
    egos = context.ego_graphs(model.ego, batch.queries.centres, batch.hidden("target"))
    candidates, query_embeddings = model(texts, batch.queries.centres, egos, batch.queries.labels, True)
    assert candidates is not None and query_embeddings is not None
    return candidates, query_embeddings, batch


def compared(
    model: LinkPredictor,
    texts: GraphTexts,
    graph: KnowledgeGraph,
    negatives: np.ndarray | None = None,  # type: ignore[type-arg]
) -> ScoredBatch:
    candidates, query_embeddings, batch = vectors(model, texts, graph, graph.triples("train")[:4])
    if negatives is None:
        negatives = np.random.default_rng(0).random((8, 8 + len(model.queue_ids()))) < 0.6
        negatives[np.arange(8), batch.answers] = False
    answers = torch.from_numpy(batch.answers)
    columns, labels = batch.candidate_ids, batch.queries.labels
    against = torch.from_numpy(negatives)
    context = GraphContext.of(texts, graph.triples("train"))
    queries = batch.queries.centres, labels, query_embeddings
    return ScoredBatch(context, *queries, candidates, columns, answers, against)


# Each system's own equation


def test_an_ensemble_has_the_mean_of_its_members_scores_and_none_learns_from_another(graph: KnowledgeGraph) -> None:
    model, texts = made("ensemble", graph, evidence={"sources": ["text_knn"], "num_nearest": 4})
    given = compared(model, texts, graph)
    alone = [compared(member, texts, graph) for member in model.members]
    scores = [one.query_embeddings @ one.candidates.T for one in alone]
    assert torch.allclose(
        model.similarity(given.query_embeddings, given.candidates), (scores[0] + scores[1]) / 2, atol=1e-6
    )
    assert not torch.allclose(scores[0], scores[1], atol=1e-3), "two different members"
    ranking = RankingLoss(LossConfig("infonce", temperature=0.1))
    model.loss(given, ranking).backward()
    together = [weight.grad.clone() for weight in model.members[1].parameters() if weight.grad is not None]
    model.zero_grad()
    model.members[1].loss(compared(model.members[1], texts, graph), ranking).backward()
    own = [weight.grad for weight in model.members[1].parameters() if weight.grad is not None]
    assert together and all(torch.allclose(one, other / 2, atol=1e-6) for one, other in zip(together, own, strict=True))
    queries = np.arange(6, dtype=np.int32)
    table = model.evidence.table(GraphContext.of(texts, graph.triples("train")), queries, queries % 6)
    parts = [member.evidence_scores(texts, queries % 6, table) for member in model.members]
    found = model.evidence_scores(texts, queries % 6, table)
    assert len(found) and torch.allclose(found, (parts[0] + parts[1]) / 2)


def plain_words(model: Any, text: str) -> list[Tensor]:
    """The embeddings of the words that say something, word by word."""
    tokenizer = model.tt.encoder.tokenizer
    words = "".join(c if c.isalnum() or c == " " else " " for c in text).split()
    kept = [word for word in words if word not in STOP_WORDS] or words
    table = model.tt.encoder.model.get_input_embeddings().weight
    return [table[i] for word in kept for i in tokenizer(word, add_special_tokens=False)["input_ids"]]


def test_bow_is_the_mean_of_the_words_that_say_something(graph: KnowledgeGraph) -> None:
    graph = graph.extended({"stop": "has a one", "mark": "red-blue, (green)!"})
    model, texts = made("bow", graph)
    e = model.encode(texts, torch.arange(len(graph.entities)))
    for number in (0, 3, len(graph.entities) - 2, len(graph.entities) - 1):
        words = plain_words(model, str(graph.entities.texts[number]))
        assert torch.allclose(e[number], torch.stack(words).mean(0), atol=1e-6)
    h, r, t = graph.triples("train")[0]
    candidates, query_embeddings, _ = vectors(model, texts, graph, graph.triples("train")[:1])
    unit = functional.normalize(e, dim=-1)
    score = -(unit[h] + model.relation.table.weight[r] - unit[t]).abs().sum()
    assert model.similarity(query_embeddings, candidates)[0, 1].item() == pytest.approx(score.item(), abs=1e-5)


def test_stop_words_are_whole_words_and_texts_of_them_alone_are_kept() -> None:
    class Tokenizer:
        pieces = ("the", "##sis", "of", "cat", ",")

        def __len__(self) -> int:
            return len(self.pieces)

        def convert_ids_to_tokens(self, ids: Any) -> list[str]:
            return [self.pieces[i] for i in ids]

    texts = [[0, 1, 2, 0, 3, 4], [0, 2], [], [2, 0], [0, 3]]  # thesis of the cat, | the of | | of the | the cat
    lengths = np.array([len(text) for text in texts])
    kept = ContentWords(Tokenizer()).keep(np.array([token for text in texts for token in text]), lengths)
    assert kept.tolist() == [True, True, False, False, True, False, True, True, True, True, False, True]


def test_dkrl_convolves_pools_by_maximum_convolves_and_pools_by_mean(graph: KnowledgeGraph) -> None:
    long = "red blue green kano mora tisi lusi zepe kano red mora"
    graph = graph.extended({"long": long, "short": "red", "four": "red blue green kano"})
    model, texts = made("dkrl", graph)
    count = len(graph.entities)

    def weight(layer: Any) -> Tensor:
        return torch.cat([layer.own.weight, layer.next.weight], dim=1)

    found = model.encode(texts, torch.arange(count))
    for number in (0, count - 3, count - 2, count - 1):
        x = plain_words(model, str(graph.entities.texts[number]))
        zero = torch.zeros_like(x[0])
        pairs = [torch.cat([a, b]) for a, b in zip(x, [*x[1:], zero], strict=True)]
        first = [weight(model.first) @ pair + model.first.own.bias for pair in pairs]
        pooled = [torch.stack(first[i : i + 4]).amax(0).tanh() for i in range(0, len(first), 4)]
        pairs = [torch.cat([a, b]) for a, b in zip(pooled, [*pooled[1:], torch.zeros_like(pooled[0])], strict=True)]
        second = [weight(model.second) @ pair + model.second.own.bias for pair in pairs]
        assert torch.allclose(found[number], torch.stack(second).mean(0).tanh(), atol=1e-5)


@pytest.mark.parametrize("score", ["transe", "distmult", "complex", "simple"])
def test_blp_scores_projected_outputs_with_a_table_of_relations(score: str, graph: KnowledgeGraph) -> None:
    model, texts = made("blp", graph, score=score, text={"pooling": "cls"})
    triples = graph.triples("train")[:3]
    candidates, query_embeddings, batch = vectors(model, texts, graph, triples)
    ids, mask, types = texts.tokens.batch(np.arange(len(graph.entities)))
    states = model.tt.encoder.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    e = states[:, 0] @ model.tt.w.weight.T
    assert model.tt.w.bias is None and e.shape[1] == 32
    if score == "transe":
        e = e / e.norm(dim=-1, keepdim=True)
    found = model.similarity(query_embeddings, candidates)
    for i, (h, r, t) in enumerate(triples.tolist()):
        x, y, w = e[h], e[t], model.relation.table.weight[r]
        (a, b), (c, d), (u, v) = x.chunk(2), y.chunk(2), w.chunk(2)
        expected = {
            "transe": lambda x=x, y=y, w=w: -(x + w - y).abs().sum(),
            "distmult": lambda x=x, y=y, w=w: (x * w * y).sum(),
            "complex": lambda: (torch.complex(a, b) * torch.complex(u, v) * torch.complex(c, -d)).sum().real,  # noqa: B023
            "simple": lambda: ((a * u * d).sum() + (b * v * c).sum()) / 2,  # noqa: B023
        }[score]().item()
        assert found[i, batch.answers[i]].item() == pytest.approx(expected, abs=1e-4)
        assert found[3 + i, batch.answers[3 + i]].item() == pytest.approx(expected, abs=1e-4)


def test_fnf_t_with_a_table_of_relations_translates_by_its_vectors(graph: KnowledgeGraph, tmp_path: Path) -> None:
    text_alone = {"ego_graphs": False, "relation_conditioning": False}
    model, texts = made("fnf", graph, relations="table", **text_alone)
    triples = graph.triples("train")[:3]
    candidates, query_embeddings, batch = vectors(model, texts, graph, triples)
    found = model.similarity(query_embeddings, candidates)
    e = model.tt(texts, torch.arange(len(graph.entities)))
    for i, (h, r, t) in enumerate(triples.tolist()):
        expected = -(e[h] + model.relation.table.weight[r] - e[t]).abs().sum().item()
        assert found[i, batch.answers[i]].item() == pytest.approx(expected, abs=1e-4)
        assert found[3 + i, batch.answers[3 + i]].item() == pytest.approx(expected, abs=1e-4)
    save_pretrained(model, tmp_path / "model", {})
    again = from_pretrained(tmp_path / "model")
    assert torch.equal(again.state_dict()["relation.table.weight"], model.relation.table.weight)
    assert made("fnf", graph, **text_alone)[0].relation.table is None


def test_fnf_t_with_projected_relations_translates_by_a_linear_map_of_their_texts(
    graph: KnowledgeGraph, tmp_path: Path
) -> None:
    model, texts = made("fnf", graph, relations="projection", normalise=True, **FROZEN_FNF_T)
    assert not model.relation_tt.w.weight.any()  # before training, no relation translates
    torch.nn.init.normal_(model.relation_tt.w.weight)
    later = graph.extended({}, {"has pink": "has a pink one"})  # a relation that came after training
    texts = texts.extended(later, model.tt.encoder)
    triples = np.array([[0, 0, 1], [1, 2, 4], [0, 3, 1]], np.int32)
    candidates, query_embeddings, batch = vectors(model, texts, later, triples)
    found = model.similarity(query_embeddings, candidates)
    count = len(graph.entities)
    e = functional.normalize(model.tt(texts, torch.arange(count)), dim=-1)
    r = model.tt.features(texts, count + torch.arange(4)) @ model.relation_tt.w.weight.T
    for i, (head, relation, tail) in enumerate(triples.tolist()):
        expected = -(e[head] + r[relation] - e[tail]).abs().sum().item()
        assert found[i, batch.answers[i]].item() == pytest.approx(expected, abs=1e-4)
        assert found[3 + i, batch.answers[3 + i]].item() == pytest.approx(expected, abs=1e-4)
    assert not torch.allclose(r[3], r[:3], atol=1e-3)
    save_pretrained(model, tmp_path / "model", {})
    again = from_pretrained(tmp_path / "model")
    assert torch.equal(vectors(again, texts, later, triples)[1], query_embeddings)


def test_checkpoint_from_before_projected_relations_gives_the_same_scores(
    graph: KnowledgeGraph, tmp_path: Path
) -> None:
    """Up to 0.3, the config did not say where the relation vectors come from: from the TT."""
    model, texts = made("fnf", graph, **FROZEN_FNF_T)
    save_pretrained(model, tmp_path / "model", {})
    (tmp_path / "model" / "checksums.json").unlink()
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["model"].pop("relations") == "text"
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    again: Any = from_pretrained(tmp_path / "model")
    triples = graph.triples("train")[:3]
    assert again.relation_tt is None
    assert torch.equal(vectors(again, texts, graph, triples)[1], vectors(model, texts, graph, triples)[1])


def test_nll_is_that_of_true_and_of_corrupted_triples() -> None:
    scores = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, -3.0]])
    negatives = torch.tensor([[False, True, True], [True, False, False]])
    true = (math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(-0.0))) / 2
    false = (math.log(1 + math.exp(-1.0)) + math.log(1 + math.exp(2.0)) + math.log(1 + math.exp(1.0))) / 3
    assert nll_loss(scores, torch.tensor([0, 1]), negatives).item() == pytest.approx((true + false) / 2)
    shifted = RankingLoss(LossConfig("nll", margin=4.0))(scores - 4, torch.tensor([0, 1]), negatives)
    assert shifted.item() == pytest.approx((true + false) / 2)


def test_kepler_adds_the_loss_of_masked_words_to_that_of_links(
    graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, texts = made("kepler", graph, masked_weight=0.5)
    assert isinstance(model, KEPLER)
    batch = compared(model, texts, graph)
    tokenizer, bert = model.tt.encoder.tokenizer, model.tt.encoder.model

    def every_second(ids: Tensor) -> Tensor:
        special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
        return (torch.arange(ids.shape[1]) % 2 == 1) & ~special

    monkeypatch.setattr(model.words, "choose", every_second)
    monkeypatch.setattr(model.words, "corrupted", lambda ids, wanted: ids.masked_fill(wanted, tokenizer.mask_token_id))
    losses = []
    for entity in sorted(set(batch.centres.tolist())):
        ids = tokenizer(str(graph.entities.texts[entity]), return_tensors="pt")["input_ids"]
        wanted = [place for place in range(1, ids.shape[1] - 1) if place % 2]
        given = ids.clone()
        given[0, wanted] = tokenizer.mask_token_id
        states = bert(input_ids=given).last_hidden_state[0, wanted]
        head = model.words
        hidden = head.norm(functional.gelu(states @ head.dense.weight.T + head.dense.bias))
        logs = (hidden @ bert.get_input_embeddings().weight.T + head.bias).log_softmax(-1)
        losses += (-logs[torch.arange(len(wanted)), ids[0, wanted]]).tolist()
    ranking = RankingLoss(LossConfig("nll", margin=4.0))
    links = nll_loss(4 - torch.cdist(batch.query_embeddings, batch.candidates, p=1), batch.answers, batch.negatives)
    expected = links.item() + 0.5 * float(np.mean(losses))
    assert model.loss(batch, ranking).item() == pytest.approx(expected, abs=1e-4)


def test_kepler_masks_as_bert_does(graph: KnowledgeGraph) -> None:
    model, _ = made("kepler", graph, masked_share=0.3)
    special = torch.tensor(model.tt.encoder.tokenizer.all_special_ids)
    ids = torch.randint(0, len(model.tt.encoder.tokenizer), (200, 200))
    wanted = model.words.choose(ids)
    assert not torch.isin(ids[wanted], special).any()
    assert wanted[~torch.isin(ids, special)].float().mean() == pytest.approx(0.3, abs=0.02)
    given = model.words.corrupted(ids, wanted)
    assert torch.equal(given[~wanted], ids[~wanted])
    masked = (given == model.tt.encoder.tokenizer.mask_token_id)[wanted].float().mean()
    assert masked == pytest.approx(0.8, abs=0.03)
    assert (given == ids)[wanted].float().mean() == pytest.approx(0.1, abs=0.03)


def test_star_classifies_the_features_of_pairs_and_learns_their_distance(graph: KnowledgeGraph) -> None:
    model, texts = made("star", graph, classifier_weight=0.7, rank_by="classifier")
    assert isinstance(model, StAR)
    batch = compared(model, texts, graph)
    u, v = batch.query_embeddings, batch.candidates
    tokenizer, h = model.tt.encoder.tokenizer, graph.triples("train")[0, 0]
    pair = tokenizer(str(graph.entities.texts[h]), "has a blue one", return_tensors="pt")
    assert torch.allclose(
        u[0], model.tt.encoder.model(**pair).last_hidden_state[0].mean(0) @ model.tt.w.weight.T, atol=1e-5
    )
    logits = torch.stack([torch.stack([model.classifier(torch.cat([x, y, x - y, x * y]))[0] for y in v]) for x in u])
    assert torch.allclose(model.similarity(u, v), logits, atol=1e-4)
    by_distance, _ = made("star", graph, rank_by="distance")
    assert torch.allclose(by_distance.similarity(u, v), -(u[:, None] - v).norm(dim=-1), atol=1e-4)
    truth = torch.zeros_like(logits).scatter(1, batch.answers[:, None], 1.0)
    each = functional.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    classified = (each[truth > 0].mean() + each[batch.negatives].mean()) / 2
    distances = torch.stack([torch.stack([(x - y).pow(2).sum().sqrt() for y in v]) for x in u])
    hinge = (1 + distances.gather(1, batch.answers[:, None]) - distances).clamp(min=0)[batch.negatives].mean()
    found = model.loss(batch, RankingLoss(LossConfig("margin", margin=1.0)))
    assert found.item() == pytest.approx((hinge + 0.7 * classified).item(), abs=1e-4)


@pytest.mark.parametrize("training", ["finetune-centre", "frozen"])
def test_statik_passes_messages_in_both_directions_and_updates_edges(training: str, graph: KnowledgeGraph) -> None:
    ends = [("red kano", "has blue", "blue kano"), ("blue kano", "has green", "green kano")]
    known = {id_: ENTITY_TEXTS[id_] for id_ in ("red kano", "blue kano", "green kano")}
    kinds_of_edges = {id_: RELATION_TEXTS[id_] for id_ in ("has blue", "has green")}
    small = KnowledgeGraph.from_triples(
        {"train": [*ends, ("red kano", "has green", "green kano")]}, known, kinds_of_edges
    )
    model, texts = made("statik", small, text={"training": training})
    assert isinstance(model, StATIK)
    centres = np.arange(4, dtype=np.int32)  # three with neighbours, one without
    small = small.extended({"alone": "the pink thing"})
    texts = model.texts(small)
    egos = GraphContext(texts, Neighbours.of(small.triples("train"), 4, 2)).ego_graphs(model.ego, centres, None)
    candidates, _ = model(texts, centres, egos, None, True)
    f = [model.tt.features(texts, torch.tensor([i]))[0] for i in range(4 + 2)]  # of entities, then of relations

    def message(layer: Any, along: bool, sender: Tensor, edge: Tensor) -> Tensor:
        transform = layer.along if along else layer.against
        return transform(torch.cat([sender, edge, sender + edge, sender * edge]))

    for centre in range(4):
        edges = [
            (t if h == centre else h, r, h == centre) for h, r, t in small.triples("train").tolist() if centre in (h, t)
        ]
        own = model.entity_norm(model.entity_input(f[centre]))
        others = [model.entity_norm(model.entity_input(f[other])) for other, _, _ in edges]
        kinds = [
            model.relation_norm(functional.leaky_relu(model.relation_input(f[4 + r])))
            + model.direction.weight[int(not out)]
            for _, r, out in edges
        ]
        for number, layer in enumerate(model.layers):
            coming = [message(layer, not out, x, e) for x, e, (_, _, out) in zip(others, kinds, edges, strict=True)]
            going = [message(layer, out, own, e) for e, (_, _, out) in zip(kinds, edges, strict=True)]
            mean = torch.stack(coming).mean(0) if coming else torch.zeros_like(own)
            own = layer.norm(functional.leaky_relu(mean) + own)
            others = [layer.norm(functional.leaky_relu(m) + x) for m, x in zip(going, others, strict=True)]
            if number == 0:
                ends = [(own, x) if out else (x, own) for x, (_, _, out) in zip(others, edges, strict=True)]
                update = model.updates[0]
                kinds = [
                    update.norm(functional.leaky_relu(update.transform(torch.cat([h, e, t]))) + e)
                    for (h, t), e in zip(ends, kinds, strict=True)
                ]
        expected = model.graph_norm(own) + model.text_norm(f[centre] @ model.tt.w.weight.T)
        assert torch.allclose(candidates[centre], expected, atol=1e-4)


def test_simkgc_tells_answers_and_queries_apart_with_a_margin_and_a_queue(graph: KnowledgeGraph) -> None:
    model, texts = made("simkgc", graph, pre_batch=6, margin=0.1, pre_batch_weight=0.5)
    assert isinstance(model, SimKGC) and model.tt.encoder.model is not model.query.encoder.model
    queue = functional.normalize(torch.randn(3, model.width), dim=-1)
    model.keep(queue, np.array([5, 6, 7], np.int32))
    assert model.queue_ids().tolist() == [5, 6, 7]
    batch = compared(model, texts, graph)
    ranking = RankingLoss(LossConfig("infonce", temperature=0.05))
    x, y, answers = batch.query_embeddings, batch.candidates, batch.answers.tolist()
    assert torch.allclose(x.norm(dim=-1), torch.ones(8)) and torch.allclose(y.norm(dim=-1), torch.ones(8))
    total = 0.0
    for i, answer in enumerate(answers):
        true = math.exp((float(x[i] @ y[answer]) - 0.1) / 0.05)
        others = [math.exp(float(x[i] @ y[j]) / 0.05) for j in range(8) if batch.negatives[i, j]]
        older = [math.exp(0.5 * float(x[i] @ queue[k]) / 0.05) for k in range(3) if batch.negatives[i, 8 + k]]
        total -= math.log(true / (true + sum(others) + sum(older))) / 8
        queries = [math.exp(float(x[j] @ y[answer]) / 0.05) for j in range(8) if batch.negatives[j, answer]]
        total -= math.log(true / (true + sum(queries))) / 8
    model.train()
    assert model.loss(batch, ranking).item() == pytest.approx(total, abs=1e-3)
    assert model.queue_ids().tolist() == batch.candidate_ids.tolist()[:6]
    assert torch.equal(model.queue, y.detach()[:6])


# All of them


@pytest.mark.parametrize("score", ["transe", "distmult", "complex", "simple", "cosine"])
def test_ranking_is_told_the_truth_about_the_score(score: str, graph: KnowledgeGraph) -> None:
    """It has kernels for two kinds of scores, which never call `similarity`."""
    check_kind_of_score(made("fnf", graph, score=score)[0])


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in ("fnf", "ensemble")])
def test_ranking_is_told_the_truth_about_the_scores_of_other_systems(system: str, graph: KnowledgeGraph) -> None:
    check_kind_of_score(made(system, graph)[0])


def check_kind_of_score(model: LinkPredictor) -> None:
    u, v = torch.randn(3, model.width), torch.randn(4, model.width)
    with torch.no_grad():
        found = model.similarity(u, v)
    assert torch.allclose(found, -torch.cdist(u, v, p=1), atol=1e-4) == model.by_distance
    assert torch.allclose(found, u @ v.T, atol=1e-4) == model.by_product


@pytest.mark.parametrize("system", SYSTEMS)
def test_system_learns_fifty_triples_by_heart_and_is_the_same_when_loaded(
    system: str, graph: KnowledgeGraph, tmp_path: Path
) -> None:
    longer = {"star": {"epochs": 120, "learning_rate": 0.003, "validate_every": 60}, "simkgc": {"epochs": 90}}
    model = train_run(graph, configured(system, **longer.get(system, {})), tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "checkpoint" / "metrics.json").read_text())
    assert metrics["test"]["mrr"] == 1.0
    again = from_pretrained(tmp_path / "run")
    assert type(again) is SYSTEMS[system].model and again.config == model.config and again.relations == 3
    scores = []
    for each in (model, again):
        texts = each.texts(graph)
        with torch.inference_mode():
            candidates, query_embeddings, _ = vectors(each, texts, graph, graph.triples("train"))
            scores.append(each.similarity(query_embeddings, candidates))
    assert torch.equal(*scores)
    assert SYSTEMS[system].title in (tmp_path / "run" / "checkpoint" / "README.md").read_text()


@pytest.mark.parametrize("system", ["bow", "dkrl", "blp", "star", "statik", "simkgc"])
def test_system_learns_from_a_frozen_encoder_too(system: str, graph: KnowledgeGraph, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"text": {"training": "frozen", "query": "vector", "width": 32}}
    config = configured(system, fields, epochs=40, validate_every=40, negatives="tied")
    model = train_run(graph, config, tmp_path / "run")
    assert not any(name.startswith(("tt.bert", "query.bert", "tt.table")) for name in model.state_dict())
    metrics = json.loads((tmp_path / "run" / "checkpoint" / "metrics.json").read_text())
    assert metrics["test"]["mrr"] > 4 * sum(1 / rank for rank in range(1, 52)) / 51


@pytest.mark.parametrize("system", ["simkgc", "statik"])
def test_run_that_stops_between_two_steps_goes_on_bit_for_bit(
    system: str, graph: KnowledgeGraph, tmp_path: Path
) -> None:
    """What must outlast a stop: SimKGC's queue, and the features that StATIK's neighbours had."""
    config = configured(system, epochs=4, validate_every=4, batch_size=10, save_every=1, refresh_every=2)

    def stop(step: int, loss: float) -> None:
        if step == 8:
            raise KeyboardInterrupt

    whole = train_run(graph, config, tmp_path / "whole").state_dict()
    with pytest.raises(KeyboardInterrupt):
        train_run(graph, config, tmp_path / "stopped", after_step=stop)
    again = train_run(graph, config, tmp_path / "stopped", resume=True).state_dict()
    assert whole.keys() == again.keys() and all(torch.equal(whole[name], again[name]) for name in whole)
    assert system != "simkgc" or (whole["queued"] >= 0).all()


@pytest.mark.parametrize("system", ["bow", "blp", "statik"])
def test_relations_that_came_after_training_need_texts(system: str, graph: KnowledgeGraph) -> None:
    later = graph.extended({}, {"has pink": "has a pink one"})
    asked = np.array([[0, 3, 1]], np.int32)
    table, texts = made(system, graph)
    with pytest.raises(FnftgError, match=f"This {system} model has vectors only for the 3 relations .* text"):
        vectors(table, texts.extended(later, table.tt.encoder), later, asked)
    by_text, texts = made(system, graph, relations="text")
    texts = texts.extended(later, by_text.tt.encoder)
    assert by_text.relation.table is None
    assert torch.isfinite(vectors(by_text, texts, later, asked)[1]).all()


def test_negatives_are_two_sided_tied_or_drawn(graph: KnowledgeGraph) -> None:
    batch = TrainingBatch.of(graph.triples("train")[:6], 3)
    every = batch.negatives(None)
    assert every.sum(1).tolist() == [(batch.candidate_ids != answer).sum() for answer in batch.queries.answers]
    tied = batch.negatives(None, "tied")
    for i in range(12):
        side = range(6, 12) if i < 6 else range(6)
        assert np.flatnonzero(tied[i]).tolist() == [j for j in side if every[i, j]]
    drawn = batch.negatives(None, "drawn", 8, (1, 2, 3))
    assert (drawn.sum(1) <= 4).all() and drawn.sum() > 36 and (drawn <= every).all()
    assert not drawn[np.arange(6), np.arange(6)].any()  # never an entity of the same triple
    assert np.array_equal(drawn, batch.negatives(None, "drawn", 8, (1, 2, 3)))
    assert not np.array_equal(drawn, batch.negatives(None, "drawn", 8, (1, 2, 4)))
    earlier = np.array([batch.queries.answers[0], 40], np.int32)
    assert batch.negatives(None, "tied", queue_ids=earlier)[0, -2:].tolist() == [False, True]


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (2, r"has format version 2, written by an older version .*: train it again"),
        (4, r"version 4, .* newer .*: upgrade"),
    ],
)
def test_checkpoint_of_another_version_is_one_sentence(
    graph: KnowledgeGraph, tmp_path: Path, version: int, sentence: str
) -> None:
    model, _ = made("fnf", graph)
    save_pretrained(model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    assert (config["version"], config["system"], config["relations"]) == (3, "fnf", 3)
    path.write_text(json.dumps({**config, "version": version}))
    with pytest.raises(FnftgError, match=sentence):
        from_pretrained(tmp_path / "model")


# Word vectors


def test_word_vectors_of_a_file_are_an_encoder(graph: KnowledgeGraph, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    words = ["red", "blue", "green", "thing", *NAMES]
    numbers = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float32)
    lines = [" ".join([word, *map(str, row)]) for word, row in zip(words, numbers.tolist(), strict=True)]
    file.write_text(f"{len(words)} 8\n" + "\n".join(lines) + "\n")
    config = configured("bow", {"text": {"encoder": f"glove:{file}", "training": "finetune", "width": None}}, epochs=2)
    model: Any = train_run(graph, config, tmp_path / "run")
    file.unlink()
    again: Any = from_pretrained(tmp_path / "run")
    assert torch.equal(model.tt.vectors, again.tt.vectors) and again.width == 8
    encoder = again.tt.encoder
    assert encoder.tokenizer("Red thing, unheard-of", add_special_tokens=False)["input_ids"][:2] == [2, 5]
    save_encoder(encoder, tmp_path / "encoder")
    assert torch.equal(load_encoder(str(tmp_path / "encoder")).model.embeddings.weight, again.tt.vectors)


BAD_VECTORS = {"a 1 2\nb 1\n": "line 2: not a word and 2 numbers", "a 1 x\n": "line 1", "": "contains no word vectors"}


@pytest.mark.parametrize("content", BAD_VECTORS)
def test_bad_word_vectors_get_one_sentence(content: str, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(content)
    with pytest.raises(FnftgError, match=BAD_VECTORS[content]):
        load_encoder(f"glove:{file}")
    with pytest.raises(FnftgError, match="cannot be read"):
        load_encoder(f"glove:{tmp_path / 'none.txt'}")


# Bad input

BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "score": ("blp", {"score": "rotate"}, "model.score"),
    "relations": ("bow", {"relations": "graph"}, "model.relations"),
    "projected relations": (
        "fnf",
        {"relations": "projection", "text": {"training": "finetune"}},
        "model.relations projection needs a frozen encoder",
    ),
    "centre without ego-graphs": ("blp", {"text": {"training": "finetune-centre"}}, "centre needs ego-graphs"),
    "pool": ("dkrl", {"pool": 0}, "must be at least 1"),
    "kepler frozen": ("kepler", {"text": {"training": "frozen"}}, "KEPLER trains its encoder"),
    "kepler width": ("kepler", {"text": {"training": "finetune", "width": 64}}, "uses the encoder's hidden size"),
    "kepler share": ("kepler", {"masked_share": 1.5}, "masked_share"),
    "star": ("star", {"classifier_weight": 0.0}, "classifier_weight"),
    "statik fine-tuned": ("statik", {"text": {"training": "finetune"}}, "centre or frozen"),
    "simkgc": ("simkgc", {"pre_batch": -1}, "must not be negative"),
    "another system's field": ("blp", {"ego": {"num_neighbours": 3}}, "unknown field model.ego"),
    "no system": ("transformer", {}, "There is no system 'transformer': choose one of fnf, ensemble, bow"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_system_config_gets_one_sentence(case: str) -> None:
    system, model, sentence = BAD[case]
    with pytest.raises(FnftgError) as caught:
        from_dict(RunConfig, {"system": system, "model": model})
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_odd_width_and_missing_mask_are_refused(graph: KnowledgeGraph) -> None:
    with pytest.raises(FnftgError, match="even width"):
        made("blp", graph, score="complex", text={"width": 31})
    config = configured("kepler").model
    encoder = load_encoder(ENCODER, GraphLines(graph))
    encoder.tokenizer.mask_token = None
    with pytest.raises(FnftgError, match="no mask token"):
        SYSTEMS["kepler"].make(config, encoder, 2)
    with pytest.raises(FnftgError, match="BLPConfig, not a BOWConfig"):
        RunConfig(configured("bow").model, system="blp")


def test_command_line_has_the_fields_of_the_system(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--system", "simkgc", "--help"])
    printed = capsys.readouterr().out
    assert "--model.pre_batch" in printed and "--model.graph" not in printed and "candidates of earlier" in printed
    assert main(["train", "graph", "-o", str(tmp_path / "run"), "--system", "rotate"]) == 1
    assert "There is no system 'rotate'" in capsys.readouterr().err
    assert main(["train", "graph", "-o", str(tmp_path / "run"), "--system", "bow", "--config", "frugal-blp"]) == 1
    assert "is for the system blp, not bow" in capsys.readouterr().err


def test_trained_from_the_command_line(
    graph: KnowledgeGraph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph.save(tmp_path / "graph")
    options = {"text.encoder": ENCODER, "text.width": 16, "score": "distmult", "relations": "text"}
    command = [part for name, value in options.items() for part in (f"--model.{name}", str(value))]
    command += ["--training.epochs", "1", "--training.batch_size", "10", "--training.negatives", "drawn", "--json"]
    assert main(["train", str(tmp_path / "graph"), "-o", str(tmp_path / "run"), "--system", "blp", *command]) == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 1
    model = from_pretrained(tmp_path / "run")
    assert model.system == "blp" and model.config.score == "distmult" and model.width == 16
    assert replace(model.config, relations="table") != model.config
