"""Ranks are those of a brute-force reading of the protocol, and nothing but the protocol moves them."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_models import ENCODER, small_model

from fnftg.cli import main
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.kernels.ranks import top_k
from fnftg.kg import KnowledgeGraph
from fnftg.models.link_predictor import GraphContext, LinkPredictor
from fnftg.models.scoring import SCORES, ScoreName
from fnftg.ranking import embedding, evaluation
from fnftg.ranking.embedding import candidate_table
from fnftg.ranking.evaluate_commands import chosen_relations
from fnftg.ranking.evaluation import rank_split, split_metrics
from fnftg.ranking.metrics import intervals, metric_values, named, pykeen_metrics
from fnftg.ranking.processes import Processes
from fnftg.ranking.protocols import CHOICES, PROTOCOLS, Protocol, protocol
from fnftg.ranking.queries import Filter
from fnftg.ranking.results import baselines, relation_categories, results
from fnftg.sizes import parse_size
from fnftg.text.text_transformer import GraphTexts

EVERY_PROTOCOL = [Protocol(*choices) for choices in itertools.product(*CHOICES.values())]  # type: ignore[arg-type]


class Summing(LinkPredictor):
    """An entity is its own row plus those of its visible neighbours: whole numbers, so that ties are exact and every
    visible edge shows."""

    def __init__(self, own: Any, edge: Any, by_distance: bool, ego_graphs: bool = True):
        super().__init__()
        self.own, self.edge = (torch.tensor(np.asarray(rows, np.float32)) for rows in (own, edge))  # (N, d), (2R, d)
        self.by_distance, self.by_product, self.width = by_distance, not by_distance, self.own.shape[1]
        self.ego = EgoConfig(num_neighbours=1000 if ego_graphs else 0)
        self.embedded = 0

    def forward(self, texts, centres, egos, labels=None, candidates=True):  # type: ignore[no-untyped-def]
        self.embedded += len(centres)
        count = torch.from_numpy(np.diff(egos.offsets))
        around = self.own[egos.neighbours] + self.edge[egos.labels]  # (edges, d)
        sums = torch.zeros((len(centres), self.width))
        sums.index_add_(0, torch.repeat_interleave(torch.arange(len(centres)), count), around)
        x = self.own[centres] + sums
        return x if candidates else None, None if labels is None else x + self.edge[labels]

    def similarity(self, query_embeddings, candidates):  # type: ignore[no-untyped-def]
        return -torch.cdist(query_embeddings, candidates, p=1) if self.by_distance else query_embeddings @ candidates.T


def texts_of(graph: KnowledgeGraph) -> Any:
    """`Summing` reads none."""
    return GraphTexts(None, None, len(graph.entities), len(graph.relations))  # type: ignore[arg-type]


def oracle(model: Summing, graph: KnowledgeGraph, rules: Protocol, split: str) -> list[float]:
    """One query after the other, one candidate after the other, in double precision."""
    own, edge, relations = model.own.double().numpy(), model.edge.double().numpy(), len(graph.relations)
    edges = {tuple(triple) for triple in rules.visible_triples(graph, split).tolist()}
    splits = ("train", "val", "test")
    so_far = splits[: splits.index(split) + 1]  # what a later split says is not known yet
    true, ranks = {tuple(triple) for name in so_far for triple in graph.triples(name).tolist()}, []
    loops = {r for h, r, t in graph.triples("train").tolist() if h == t}

    def embed(centre: int, seen: set[Any]) -> Any:
        out = [own[t] + edge[r] for h, r, t in seen if h == centre]
        return own[centre] + sum(out + [own[h] + edge[r + relations] for h, r, t in seen if t == centre])

    def score(point: Any, vector: Any) -> float:
        return float(-np.abs(point - vector).sum() if model.by_distance else point @ vector)

    for tail, (h, r, t) in itertools.product((True, False), graph.triples(split).tolist()):
        pair = {triple for triple in edges if {triple[0], triple[2]} == {h, t}}
        seen = edges - (pair if rules.hidden == "pair" else {(h, r, t)})
        point = embed(h if tail else t, seen) + edge[r if tail else r + relations]
        of_answer, better, equal = score(point, embed(t if tail else h, seen)), 0, 0
        loopless = not model.allow_self_answers and r not in loops
        for candidate in rules.candidate_entities(graph, split).tolist():
            if loopless and candidate == (h if tail else t):
                continue
            if ((h, r, candidate) if tail else (candidate, r, t)) not in true:
                other = score(point, embed(candidate, edges))
                last = math.isnan(of_answer) or (loopless and h == t)
                better, equal = better + (other > of_answer or last), equal + (other == of_answer and not last)
        ranks.append(1 + better + equal / 2)
    return ranks


numbers = st.sampled_from([-2, -1, 0, 0, 1, 1, 2, 3])
odd_numbers = st.one_of(numbers, st.sampled_from([math.nan, math.inf, -math.inf]))


@st.composite
def cases(draw: st.DrawFn) -> tuple[KnowledgeGraph, Summing]:
    """A graph of few entities, so with self-loops, triples repeated across splits and many answers to a query; and a
    model with ties, some of whose numbers are none."""
    entities, relations = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    end = st.integers(0, entities - 1)
    triple = st.tuples(end, st.integers(0, relations - 1), end)
    splits = {split: draw(st.lists(triple, min_size=1, max_size=9)) for split in ("train", "val", "test")}
    named_splits = {split: [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in triples] for split, triples in splits.items()}
    graph = KnowledgeGraph.from_triples(named_splits)
    elements = draw(st.sampled_from([numbers, odd_numbers]))
    row = st.lists(elements, min_size=2, max_size=2)
    own = draw(st.lists(row, min_size=len(graph.entities), max_size=len(graph.entities)))
    edge = [[draw(numbers), draw(numbers)] for _ in range(2 * len(graph.relations))]
    return graph, Summing(own, edge, draw(st.booleans()))


@given(cases())
@settings(max_examples=60, deadline=None)
def test_ranks_are_those_of_the_oracle_under_every_protocol(case: tuple[KnowledgeGraph, Summing]) -> None:
    graph, model = case
    for rules, model.allow_self_answers, split in itertools.product(EVERY_PROTOCOL, (True, False), ("val", "test")):
        with np.errstate(all="ignore"):
            expected = oracle(model, graph, rules, split)
        found = rank_split(model, graph, texts_of(graph), split, rules).ranks.ravel().tolist()
        assert found == expected, (rules, split)


def test_zero_shot_means_that_no_edge_of_an_unseen_relation_is_visible() -> None:
    """Edges of these relations may come, go or lead elsewhere: no score changes."""
    seen = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d")]
    test = [("a", "new", "c"), ("b", "new", "d"), ("b", "r", "d")]
    texts, scores = {name: name for name in "abcd"}, {}
    rules = replace(protocol("cumulative"), unseen_edges="hidden")
    for name, val in {
        "none": [],
        "some": [("a", "new", "d"), ("c", "new", "c")],
        "others": [("d", "new", "a")],
    }.items():
        graph = KnowledgeGraph.from_triples({"train": seen, "val": val, "test": test}, entity_texts=texts)
        own = [[float(ord(name)), 1.0] for name in graph.entities.ids]
        model = Summing(own, [[5.0, 1.0], [2.0, 3.0], [7.0, 2.0], [4.0, 4.0]], True)
        scores[name] = rank_split(model, graph, texts_of(graph), "test", rules).scores
        visible = {tuple(row) for row in rules.visible_triples(graph, "test").tolist()}
        assert visible == {tuple(row) for row in [*graph.triples("train").tolist(), graph.triples("test").tolist()[2]]}
        few_shot = rank_split(model, graph, texts_of(graph), "test", protocol("cumulative")).scores
        assert (few_shot != scores[name]).any()
    assert np.array_equal(scores["none"], scores["some"]) and np.array_equal(scores["none"], scores["others"])
    assert (
        rules.name == "cumulative-zero-shot" and "no edge of a relation that train lacks" in rules.described()["words"]
    )


def random_case(by_distance: bool, entities: int = 60, seed: int = 3) -> tuple[KnowledgeGraph, Summing]:
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, [entities, 3, entities], (300, 3)).tolist()
    triples = [(f"e{h:03}", f"r{r}", f"e{t:03}") for h, r, t in rows]
    every = [(f"e{e:03}", "r0", f"e{(e + 1) % entities:03}") for e in range(entities)]
    graph = KnowledgeGraph.from_triples(
        {"train": every + triples[:200], "val": triples[200:250], "test": triples[250:]}
    )
    own = generator.integers(-2, 3, (entities, 5))
    return graph, Summing(own, generator.integers(-2, 3, (6, 5)), by_distance)


@pytest.mark.parametrize("score", ["distance", "product", "other"])
def test_neither_blocks_nor_batches_nor_threads_nor_disk_change_a_rank(
    score: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, model = random_case(score == "distance")
    model.by_product = score == "product"
    ranks = {}
    for rules in PROTOCOLS.values():
        ranks[rules] = rank_split(model, graph, texts_of(graph), "test", rules).ranks
    threads = torch.get_num_threads()
    for centres, queries, round_, number in ((1, 1, 1, 1), (7, 3, 11, 2), (1000, 1000, 1000, 4)):
        monkeypatch.setattr(embedding, "MOST_CENTRES", centres)
        monkeypatch.setattr("fnftg.ranking.rank_counts.QUERIES", queries)
        monkeypatch.setattr("fnftg.kernels.products.QUERIES", queries)
        monkeypatch.setattr("fnftg.kernels.products.CANDIDATES", centres)
        monkeypatch.setattr(evaluation, "ROUND", round_)
        torch.set_num_threads(number)
        for rules, expected in ranks.items():
            assert np.array_equal(rank_split(model, graph, texts_of(graph), "test", rules).ranks, expected)
    torch.set_num_threads(threads)
    monkeypatch.setattr(embedding, "COPIES", 1 << 24)  # of an edge: so that every batch has one centre
    real = embedding.candidate_table
    monkeypatch.setattr(evaluation, "candidate_table", lambda *arguments: on_disk(real(*arguments)))
    for rules, expected in ranks.items():
        assert np.array_equal(rank_split(model, graph, texts_of(graph), "test", rules, memory=1 << 24).ranks, expected)


def on_disk(table: Any) -> Any:
    """As a table is that does not fit into the memory granted."""
    file = tempfile.TemporaryFile()  # noqa: SIM115
    table.tofile(file)
    file.flush()
    return np.memmap(file, np.float32, "r", shape=table.shape)


def test_table_beyond_the_memory_is_mapped_from_a_file() -> None:
    graph, model = random_case(True)
    context = GraphContext(texts_of(graph), Neighbours.of(graph.triples("train"), 60, 3))
    everyone = np.arange(60, dtype=np.int32)
    in_memory = candidate_table(model, context, everyone, 1 << 24, Processes())
    mapped = candidate_table(model, context, everyone, 60 * 5 * 4, Processes())
    assert not isinstance(in_memory, np.memmap) and isinstance(mapped, np.memmap)
    assert np.array_equal(in_memory, mapped)


@pytest.mark.parametrize("by_distance", [True, False])
def test_order_of_entities_and_triples_changes_no_rank(by_distance: bool) -> None:
    graph, model = random_case(by_distance)
    generator = np.random.default_rng(0)
    new_row, triple_order = generator.permutation(60), generator.permutation(len(graph.triples("test")))
    ids = [graph.entities.ids[int(row)] for row in range(60)]
    splits = {
        split: [
            (ids[h], graph.relations.ids[int(r)], ids[t])
            for h, r, t in (triples[triple_order] if split == "test" else triples[::-1]).tolist()
        ]
        for split, triples in graph.splits.items()
    }
    order = np.argsort(new_row)
    shuffled = KnowledgeGraph.from_triples(splits, {ids[int(row)]: "" for row in order})
    rows = [graph.entities.find(shuffled.entities.ids[row]) for row in range(60)]
    assert rows != list(range(60)), "the entities have another order"
    relation_rows = [graph.relations.find(shuffled.relations.ids[row]) for row in range(3)]
    edge = model.edge.numpy()[[*relation_rows, *(3 + row for row in relation_rows)]]  # type: ignore[operator]
    other = Summing(model.own.numpy()[rows], edge, by_distance)
    for rules in EVERY_PROTOCOL:
        expected = rank_split(model, graph, texts_of(graph), "test", rules).ranks[:, triple_order]
        assert np.array_equal(rank_split(other, shuffled, texts_of(shuffled), "test", rules).ranks, expected)


@pytest.mark.parametrize("rules", EVERY_PROTOCOL, ids=lambda rules: rules.name)
@pytest.mark.parametrize("by_distance", [True, False])
def test_constant_scores_get_the_closed_form_of_chance(rules: Protocol, by_distance: bool) -> None:
    graph, _ = random_case(by_distance)
    model = Summing(np.ones((60, 5)), np.zeros((6, 5)), by_distance, ego_graphs=False)
    ranking = rank_split(model, graph, texts_of(graph), "test", rules)
    places = ranking.others + 1
    random = results(ranking, graph)["baselines"]["random"]
    by_hand = np.mean([sum(1 / place for place in range(1, n + 1)) / n for n in places.ravel().tolist()])
    assert random["mrr"] == pytest.approx(by_hand, abs=1e-12)
    assert named(metric_values(ranking.better, ranking.equal, "expected")) == pytest.approx(random, abs=1e-6)
    assert named(metric_values(ranking.better, ranking.equal))["mrr"] == pytest.approx(
        np.mean(2 / (places + 1)), abs=1e-6
    )


@pytest.mark.parametrize("by_distance", [True, False])
def test_nan_is_the_worst_rank_and_never_a_hit(by_distance: bool) -> None:
    graph, _ = random_case(by_distance)
    model = Summing(np.full((60, 5), math.nan), np.zeros((6, 5)), by_distance)
    ranking = rank_split(model, graph, texts_of(graph), "test", protocol("cumulative"))
    assert np.array_equal(ranking.ranks, 1.0 + ranking.others)


def test_each_candidate_is_embedded_once_and_each_end_of_a_triple_once_more() -> None:
    graph, model = random_case(True)
    for rules in EVERY_PROTOCOL:
        model.embedded = 0
        ranking = rank_split(model, graph, texts_of(graph), "test", rules)
        assert model.embedded == len(ranking.candidates) + 2 * len(ranking.triples)


@pytest.mark.parametrize("candidates", ["dynamic", "transfer"])
def test_the_ith_score_belongs_to_the_ith_candidate(candidates: Any) -> None:
    """Entity e stands at e on a line, so distances tell who is who."""
    graph, _ = random_case(True)
    rules = Protocol("cumulative", "target", candidates)
    model = Summing(np.arange(60)[:, None], np.zeros((6, 1)), True, ego_graphs=False)
    everyone = rules.candidate_entities(graph, "test")
    assert (len(everyone) == 60) == (candidates == "dynamic")
    context = GraphContext(texts_of(graph), Neighbours.of(graph.triples("train"), 60, 3))
    table = candidate_table(model, context, everyone, 1 << 24, Processes())
    assert np.array_equal(table[:, 0], everyone)
    _, nearest = top_k(everyone[:, None].astype(np.float32), table, 1)
    assert np.array_equal(everyone[nearest[:, 0]], everyone)
    ranking = rank_split(model, graph, texts_of(graph), "test", rules)
    true = {tuple(triple) for triple in graph.all_triples().tolist()}
    for place, (h, r, t) in enumerate(ranking.triples.tolist()):
        others = [e for e in everyone.tolist() if (h, r, e) not in true]
        assert ranking.better[0, place] == sum(abs(e - h) < abs(t - h) for e in others)
        assert ranking.equal[0, place] == sum(abs(e - h) == abs(t - h) for e in others)


RANDOM = np.random.default_rng(1)
TRIPLES = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in RANDOM.integers(0, [14, 3, 14], (80, 3)).tolist()]
GRAPH = KnowledgeGraph.from_triples(
    {"train": TRIPLES[:50], "val": TRIPLES[50:60], "test": TRIPLES[60:]},
    {f"e{i}": f"entity number {i} of the {'first' if i % 2 else 'second'} kind" for i in range(14)},
    {f"r{i}": f"relation {i}" for i in range(3)},
)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("rules", PROTOCOLS.values(), ids=PROTOCOLS)
def test_ranks_of_the_real_model_are_those_of_one_query_at_a_time(rules: Protocol, score: ScoreName) -> None:
    model, _ = small_model(score=score)
    texts = GraphTexts.of(GRAPH, ENCODER, model.config.text)
    whole = rank_split(model, GRAPH, texts, "test", rules).ranks
    singly = []
    for triple in GRAPH.triples("test"):
        context = GraphContext(texts, Neighbours.of(rules.visible_triples(GRAPH, "test"), 14, 3))
        everyone = rules.candidate_entities(GRAPH, "test")
        filter = Filter.of(KnownAnswers.of(GRAPH.all_triples(), 14, 3), everyone)
        counts = evaluation.rank_triples(model, context, triple[None], everyone, filter, rules.hidden)
        singly.append(1 + counts.better + counts.equal / 2)
    assert np.allclose(whole, np.array(singly).T)


def test_only_the_ranked_triples_depend_on_the_chosen_relations() -> None:
    graph, model = random_case(True)
    whole = rank_split(model, graph, texts_of(graph), "test", protocol("cumulative"))
    part = rank_split(model, graph, texts_of(graph), "test", protocol("cumulative"), relations=[1])
    assert np.array_equal(part.ranks, whole.ranks[:, whole.triples[:, 1] == 1])
    with pytest.raises(FnftgError, match="chosen relations"):
        rank_split(model, graph, texts_of(graph), "test", protocol("cumulative"), relations=[])


# Metrics


def test_metrics_worked_by_hand() -> None:
    found = named(metric_values(np.array([0, 1, 3, 18]), np.array([0, 0, 0, 2])))
    assert found == pytest.approx({"mrr": (1 + 0.5 + 0.25 + 0.05) / 4, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75})


@given(st.integers(0, 12), st.integers(0, 12))
def test_expected_ties_are_the_mean_over_all_orders(better: int, equal: int) -> None:
    places = [better + 1 + place for place in range(equal + 1)]
    expected = [np.mean([1 / p for p in places]), *(np.mean([p <= k for p in places]) for k in (1, 3, 10))]
    assert metric_values(np.array(better), np.array(equal), "expected") == pytest.approx(expected)


def test_intervals_are_those_of_the_normal_law_for_many_triples() -> None:
    values = np.random.default_rng(5).random((4_000, 4))
    low, high = intervals(values)["mrr"]
    width = 1.96 * values[:, 0].std() / math.sqrt(4_000)
    assert low == pytest.approx(values[:, 0].mean() - width, abs=0.2 * width)
    assert high == pytest.approx(values[:, 0].mean() + width, abs=0.2 * width)
    assert intervals(values) == intervals(values)


def test_baselines_are_those_of_a_reading_one_by_one() -> None:
    graph, model = random_case(True, entities=12)
    true = {tuple(triple) for triple in graph.all_triples().tolist()}
    for rules in EVERY_PROTOCOL:
        ranking = rank_split(model, graph, texts_of(graph), "test", rules)
        edges = {tuple(triple) for triple in rules.visible_triples(graph, "test").tolist()}
        ranks: dict[str, list[float]] = {"degree": [], "frequency": []}
        for side, (h, r, t) in itertools.product((2, 0), ranking.triples.tolist()):
            hidden = {e for e in edges if {e[0], e[2]} == {h, t}} if rules.hidden == "pair" else {(h, r, t)}
            answer = t if side == 2 else h

            def score(name: str, entity: int, seen: Any, side: int = side, r: int = r) -> int:
                if name == "degree":
                    return sum((e[0] == entity) + (e[2] == entity) for e in seen)
                return sum(e[1] == r and e[side] == entity for e in seen)

            for name, found in ranks.items():
                own = score(name, answer, edges - hidden)
                others = [
                    score(name, candidate, edges)
                    for candidate in ranking.candidates.tolist()
                    if ((h, r, candidate) if side == 2 else (candidate, r, t)) not in true
                ]
                found.append(1 + sum(o > own for o in others) + sum(o == own for o in others) / 2)
        for name, found in ranks.items():
            assert baselines(ranking, graph, "mean")[name]["mrr"] == pytest.approx(np.mean(1 / np.array(found)))


def test_relations_have_their_categories() -> None:
    one, many = [(0, 0, 1), (2, 0, 3)], [(0, 1, 1), (0, 1, 2), (0, 1, 3)]
    turned = [(t, 2, h) for h, _, t in many]
    both = [(h, 3, t) for h in range(2) for t in range(2, 4)]
    assert relation_categories(np.array(one + many + turned + both), 4).tolist() == ["1-1", "1-n", "n-1", "n-n"]


def test_parts_add_up_to_the_whole() -> None:
    graph, model = random_case(True)
    found = results(rank_split(model, graph, texts_of(graph), "test", protocol("cumulative")), graph)
    for part in ("categories", "new_ends", "relations_in_train"):
        triples = sum(group["triples"] for group in found[part].values())
        mean = sum(group["mrr"] * group["triples"] for group in found[part].values()) / triples
        assert triples == found["triples"] and mean == pytest.approx(found["mrr"])
    assert (found["tails"]["mrr"] + found["heads"]["mrr"]) / 2 == pytest.approx(found["mrr"])
    assert sum(found["rank_histogram"].values()) == found["queries"]
    assert json.loads(json.dumps(found)) == found


def test_pykeen_finds_the_same_ranks_and_writes_the_same_result() -> None:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import TransE
    from pykeen.triples import CoreTriplesFactory

    graph, _ = random_case(True)
    generator = np.random.default_rng(2)
    own, edge = generator.normal(size=(60, 8)).astype(np.float32), generator.normal(size=(3, 8)).astype(np.float32)
    model = Summing(own, np.concatenate([edge, -edge]), True, ego_graphs=False)
    ranking = rank_split(model, graph, texts_of(graph), "test", protocol("cumulative"))
    factories = {
        split: CoreTriplesFactory(torch.tensor(np.array(triples), dtype=torch.long), 60, 3)
        for split, triples in graph.splits.items()
    }
    pykeen_model = TransE(triples_factory=factories["train"], embedding_dim=8, scoring_fct_norm=1, random_seed=0)
    with torch.no_grad():
        pykeen_model.entity_representations[0]._embeddings.weight.copy_(torch.from_numpy(own))
        pykeen_model.relation_representations[0]._embeddings.weight.copy_(torch.from_numpy(edge))
    found = RankBasedEvaluator(filtered=True).evaluate(
        pykeen_model,
        factories["test"].mapped_triples,
        additional_filter_triples=[factories["train"].mapped_triples, factories["val"].mapped_triples],
        use_tqdm=False,
    )
    ours = pykeen_metrics(ranking.better, ranking.equal, ranking.others + 1)
    theirs = found.to_dict()
    for side, kinds in ours.items():
        for kind, values in kinds.items():
            for name, value in values.items():
                assert value == pytest.approx(theirs[side][kind][name], rel=1e-5), (side, kind, name)


# The command


Here = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str]) -> Here:
    """Runs `fnftg …` in this process, which has loaded everything already."""

    def run_command(*arguments: object) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run_command


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a small graph, trained for one epoch."""
    from fnftg.models.configs import from_dict
    from fnftg.training.loop import train_run
    from fnftg.training.run_config import RunConfig

    folder = tmp_path_factory.mktemp("ranked")
    graph = GRAPH.save(folder / "graph")
    fields = {
        "model": {"text": {"encoder": "scratch:L-1_H-16_A-2", "words": 8}},
        "training": {"epochs": 1, "batch_size": 10, "log_every": 1},
    }
    train_run(graph, from_dict(RunConfig, fields), folder / "run")
    return folder / "run"


def test_evaluate_prints_saves_and_agrees_with_training(trained: Path, tmp_path: Path, here: Here) -> None:
    table = here("evaluate", trained)
    assert table.returncode == 0, table.stderr
    assert "random (no model)" in table.stdout and "frequency" in table.stdout and "every edge" not in table.stdout
    ranks = tmp_path / "ranks.parquet"
    result = here("evaluate", trained, "--json", "--save-ranks", ranks)
    found = json.loads(result.stdout)
    after_training = json.loads((trained / "checkpoint" / "metrics.json").read_text())["test"]
    assert found["mrr"] == pytest.approx(after_training["mrr"]) and found["seed"] == 73
    frame = pl.read_parquet(ranks)
    assert len(frame) == found["queries"] == 40 and (1 / frame["rank"]).mean() == pytest.approx(found["mrr"])
    assert frame.columns[:5] == ["head", "relation", "tail", "asked", "rank"]
    again = here("evaluate", trained, "--save-ranks", ranks)
    assert again.returncode == 1 and "--force" in again.stderr
    pykeen = json.loads(here("evaluate", trained, "--pykeen").stdout)
    assert pykeen["both"]["realistic"]["inverse_harmonic_mean_rank"] == pytest.approx(found["mrr"])
    strict = json.loads(here("evaluate", trained, "--hidden", "pair", "--json").stdout)
    assert strict["protocol"]["name"] == "strict" and "every edge" in strict["protocol"]["words"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--protocol", "lenient"], "own-split, cumulative, strict, held-out"),
        (["--protocol", "statik"], "is now called cumulative"),
        (["--split", "dev"], "it has train, val, test"),
        (["--memory", "lots"], "512MB"),
        (["--memory", "3"], "16 MB"),
        (["--sample", "0"], "at least 1"),
        (["--relations", "r1,likes"], "'likes'"),
        (["--graph", "/nowhere"], "/nowhere"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_bad_questions_get_one_sentence(trained: Path, here: Here, arguments: list[str], words: str) -> None:
    result = here("evaluate", trained, *arguments)
    assert result.returncode == 1 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("name", PROTOCOLS)
def test_results_and_their_file_are_named_after_the_protocol_and_its_candidates(
    trained: Path, here: Here, name: str
) -> None:
    for candidates, expected in (("dynamic", name), ("transfer", f"{name}-transfer")):
        found = json.loads(here("evaluate", trained, "--protocol", name, "--candidates", candidates, "--json").stdout)
        assert found["protocol"]["name"] == expected and found["protocol"]["candidates"] == candidates
        kept = json.loads((trained / "evaluations" / f"test-{expected}.json").read_text())
        assert kept["mrr"] == found["mrr"] and kept["protocol"] == found["protocol"]


def test_protocols_have_different_names() -> None:
    assert len({rules.name for rules in EVERY_PROTOCOL}) == len(EVERY_PROTOCOL)
    assert Protocol("before", "pair", "transfer", "hidden").name == "before-pair-transfer-zero-shot"


def test_a_folder_that_is_no_run_and_a_graph_that_is_gone_are_told(trained: Path, tmp_path: Path, here: Here) -> None:
    assert "contains no model" in here("evaluate", tmp_path, "--graph", trained.parent / "graph").stderr
    assert "--graph" in here("evaluate", trained / "checkpoint").stderr
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "graph": str(tmp_path / "gone")}))
    assert "does not match: restore the file" in here("evaluate", copy).stderr
    (copy / "config.json").write_text(json.dumps({"graph": str(tmp_path / "gone"), "config": config["config"]}))
    assert "is no longer at" in here("evaluate", copy).stderr


def test_processes_share_the_queries_and_find_the_same(trained: Path, here: Here) -> None:
    alone = json.loads(here("evaluate", trained, "--json").stdout)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    shared = subprocess.run(
        [*command, "-m", "fnftg", "evaluate", str(trained), "--json"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert shared.returncode == 0, shared.stderr
    together = json.loads(shared.stdout)
    assert {**together, "seconds": 0} == {**alone, "seconds": 0}


def test_report_is_one_page_that_needs_nothing_else(trained: Path, tmp_path: Path, here: Here) -> None:
    result = here("report", trained, "-o", tmp_path / "page")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 5 and "http" not in page
    for name in ("learning", "protocols", "baselines", "relations", "ranks"):
        assert (tmp_path / "page" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    strict = json.loads((trained / "evaluations" / "test-strict.json").read_text())
    assert strict.pop("checksum")
    assert f"{strict['mrr']:.4f}" in page and "<td>held-out</td>" in page
    (trained / "evaluations" / "test-strict.json").write_text(json.dumps({**strict, "mrr": 0.12345}))
    here("report", trained, "-o", tmp_path / "page")
    assert "0.1235" in (tmp_path / "page" / "index.html").read_text(), "what is known is not ranked again"
    (trained / "evaluations" / "test-strict.json").write_text(json.dumps({**strict, "mrr": 0.5432, "key": []}))
    here("report", trained, "-o", tmp_path / "page")
    assert "0.5432" not in (tmp_path / "page" / "index.html").read_text(), "unless it is of other weights"


def test_sizes_are_read_as_people_write_them() -> None:
    assert parse_size("2GB") == parse_size("2 gib") == 2 << 30 and parse_size("512M") == 512 << 20


def test_unknown_protocol_and_empty_split_are_refused() -> None:
    with pytest.raises(FnftgError, match="own-split, cumulative, strict, held-out"):
        protocol("lenient")
    with pytest.raises(FnftgError, match=r"^The protocol 'statik' is now called cumulative\.$"):
        protocol("statik")
    with pytest.raises(FnftgError, match="own-split or cumulative or before"):
        replace(protocol("own-split"), visible="all")  # type: ignore[arg-type]
    graph, model = random_case(True)
    without = graph.with_splits({"train": graph.triples("train")}, {})
    with pytest.raises(FnftgError, match="no triples in val"):
        split_metrics(model, without, texts_of(without), "val", protocol("own-split"))


def test_unseen_relations_are_those_of_training_in_whatever_graph_they_are_asked_for() -> None:
    texts, relations = {"a": "one", "b": "two"}, {"r": "first", "s": "second", "t": "third"}
    triples = [("a", "t", "b"), ("a", "s", "b"), ("b", "r", "a")]
    whole = KnowledgeGraph.from_triples({"train": triples}, texts, relations)
    trained = KnowledgeGraph.from_triples({"train": [("a", "r", "b")], "test": triples[:2]}, texts, relations)
    rows = {name: whole.relations.find(name) for name in relations}
    assert chosen_relations(whole, "unseen", trained) == sorted([rows["s"], rows["t"]])  # type: ignore[type-var]
    assert chosen_relations(whole, "seen", trained) == [rows["r"]]
    assert chosen_relations(whole, "unseen", whole) == []
