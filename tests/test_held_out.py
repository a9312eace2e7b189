"""Under `held-out` nothing of the ranked split is visible, so that no answer can be told by an edge that it lacks."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_evidence import ENCODER, ENTITIES, GRAPH, RELATIONS, SEEN, TEXT, TRIPLES, WHOLE, Triple, imported, rows
from test_ranking import Summing, cases, random_case, texts_of

from fnftg.ego.context import GraphContext
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.graph_transformer import GraphTransformerConfig
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.sources import SOURCES
from fnftg.kg import KnowledgeGraph
from fnftg.kg.splits.support import support_split
from fnftg.models.configs import from_dict
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.systems import system
from fnftg.ranking.embedding import candidate_table, triple_vectors
from fnftg.ranking.evaluation import MEMORY, rank_split
from fnftg.ranking.evidence_scores import evidence_scores
from fnftg.ranking.processes import Processes
from fnftg.ranking.protocols import PROTOCOLS, Protocol, protocol
from fnftg.ranking.queries import Queries
from fnftg.ranking.results import evaluate, results
from fnftg.training.loop import train_run
from fnftg.training.recipes import recipe_fields
from fnftg.training.run_config import RunConfig

PAIRS = 12


class FewestEdges(LinkPredictor):
    """Ranks candidates by how few visible edges of the query's relation they have. It reads no text."""

    def __init__(self, relations: int):
        super().__init__()
        self.relations = self.width = relations
        self.by_distance, self.ego = False, EgoConfig(num_neighbours=1000)

    def forward(self, texts, centres, egos, labels=None, candidates=True):  # type: ignore[no-untyped-def]
        centre = torch.repeat_interleave(torch.arange(len(centres)), torch.from_numpy(np.diff(egos.offsets)))
        counts = torch.zeros((len(centres), self.relations))
        counts.index_put_((centre, torch.from_numpy(egos.labels % self.relations)), torch.ones(1), accumulate=True)
        asked = None if labels is None else -torch.eye(self.relations)[labels % self.relations]
        return counts if candidates else None, asked

    def similarity(self, query_embeddings, candidates):  # type: ignore[no-untyped-def]
        return query_embeddings @ candidates.T


def one_to_one() -> KnowledgeGraph:
    """The test triples join each head to a tail of its own. Otherwise all entities are the same: a ring in train."""
    ids = [f"{end}{pair:02}" for pair in range(PAIRS) for end in ("head", "tail")]
    ring = [(one, "next", other) for one, other in zip(ids, [*ids[1:], ids[0]], strict=True)]
    return KnowledgeGraph.from_triples(
        {"train": ring, "test": [(f"head{pair:02}", "spouse", f"tail{pair:02}") for pair in range(PAIRS)]}
    )


@pytest.mark.parametrize("candidates", ["dynamic", "transfer"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_missing_edge_tells_the_answer_of_a_one_to_one_relation_unless_the_split_is_held_out(
    name: str, candidates: Any
) -> None:
    graph = one_to_one()
    ranking = rank_split(FewestEdges(2), graph, texts_of(graph), "test", replace(protocol(name), candidates=candidates))
    found, expected = results(ranking, graph), results(ranking, graph, "expected")
    assert (ranking.others == 2 * PAIRS - 1).all()
    if name == "held-out":
        assert not ranking.better.any() and (ranking.equal == ranking.others).all()
        by_chance = sum(1 / place for place in range(1, 2 * PAIRS + 1)) / (2 * PAIRS)
        for direction in ("tails", "heads"):
            assert expected[direction]["mrr"] == pytest.approx(by_chance, abs=1e-15)
            assert found[direction]["mrr"] == pytest.approx(2 / (2 * PAIRS + 1), abs=1e-15)  # of the mean rank
        assert expected["baselines"]["random"]["mrr"] == pytest.approx(by_chance, abs=1e-15)
    else:
        assert found["tails"]["mrr"] == found["heads"]["mrr"] == 1.0


# What is visible


def named(graph: KnowledgeGraph, triples: Any) -> set[tuple[str, str, str]]:
    return {(graph.entities.ids[h], graph.relations.ids[r], graph.entities.ids[t]) for h, r, t in triples.tolist()}


def test_support_and_earlier_splits_are_visible_and_the_ranked_split_is_not() -> None:
    old = [f"old{i}" for i in range(6)]
    new = {"val": ["v", "w"], "test": ["x", "y"]}
    splits = {split: [(one, "r", other) for one in ids for other in old] for split, ids in new.items()}
    splits["test"].append(("z", "r", "old0"))  # an only edge remains a query
    graph = support_split(KnowledgeGraph.from_triples({"train": [(one, "s", old[0]) for one in old], **splits}))
    rules = protocol("held-out")
    for split, names in {
        "val-support": ["train"],
        "val": ["train", "val-support"],
        "test": ["train", "val-support", "val", "test-support"],
    }.items():
        visible = rules.visible_triples(graph, split)
        assert visible.tolist() == np.concatenate([graph.splits[name] for name in names]).tolist(), split
        assert len(graph.triples(split)) and not named(graph, visible) & named(graph, graph.triples(split))
    test = graph.triples("test")
    without_edge = np.setdiff1d(test[:, [0, 2]], rules.visible_triples(graph, "test")[:, [0, 2]])
    assert [graph.entities.ids[int(row)] for row in without_edge] == ["z"]
    for candidates, expected in (("dynamic", np.unique(graph.all_triples()[:, [0, 2]])), ("transfer", test[:, [0, 2]])):
        found = replace(rules, candidates=candidates).candidate_entities(graph, "test")
        assert np.isin(without_edge, found).all() and np.array_equal(found, np.unique(expected))


def test_support_of_a_split_that_comes_later_by_name_is_not_visible() -> None:
    splits = {
        name: [("a", name, "b")] for name in ("b-support", "a", "b", "a-support", "train", "test-support", "test")
    }
    graph = KnowledgeGraph.from_triples(splits)
    rules, before = protocol("held-out"), ["train", "test-support", "test"]
    for split, names in {"a": [*before, "a-support"], "b": [*before, "a-support", "a", "b-support"]}.items():
        assert {triple[1] for triple in named(graph, rules.visible_triples(graph, split))} == set(names)


def test_what_a_query_hides_is_hidden_from_everybody() -> None:
    """A triple that an earlier split repeats, and with `pair` every other edge between two entities of a query."""
    train = [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "b"), ("a", "r", "c"), ("c", "s", "c")]
    graph = KnowledgeGraph.from_triples({"train": train, "test": [("a", "r", "b"), ("d", "r", "a"), ("c", "r", "c")]})
    for hidden, rest in (("target", train[1:]), ("pair", [train[3]])):
        rules = Protocol("before", hidden)  # type: ignore[arg-type]
        assert named(graph, rules.visible_triples(graph, "test")) == set(rest), hidden


@given(cases())
@settings(max_examples=60, deadline=None)
def test_nothing_is_taken_away_from_the_true_answer_alone(case: tuple[KnowledgeGraph, Summing]) -> None:
    """Its embedding is that of the candidate that it is for other queries, where splits repeat triples, too."""
    graph, model = case
    everybody = np.arange(len(graph.entities), dtype=np.int32)
    for hidden in ("target", "pair"):
        rules = Protocol("before", hidden)  # type: ignore[arg-type]
        context = GraphContext.of(texts_of(graph), rules.visible_triples(graph, "test"))
        table = candidate_table(model, context, everybody, MEMORY, Processes())
        triples = graph.triples("test")
        _, answers = triple_vectors(model, context, triples, rules.hidden, MEMORY)
        queries = Queries.of(triples, len(graph.relations))
        assert np.array_equal(answers, table[queries.answers], equal_nan=True)


def test_ranking_the_first_split_shows_no_edge() -> None:
    graph, model = random_case(True)
    alone = Summing(model.own, model.edge, True, ego_graphs=False)
    scores = [rank_split(one, graph, texts_of(graph), "train", protocol("held-out")).scores for one in (model, alone)]
    assert not len(protocol("held-out").visible_triples(graph, "train")) and np.array_equal(*scores)


# The scores of a model like `frugal`, with all sources of evidence


def frugal_model() -> FnF:
    torch.manual_seed(0)
    model = FnF(
        FnFConfig(
            text=TEXT,
            ego=EgoConfig(num_neighbours=4),
            graph=GraphTransformerConfig(label_histogram=True),
            score="cosine",
            evidence=EvidenceConfig([*SOURCES], num_nearest=3),
            allow_self_answers=False,
        ),
        ENCODER,
        RELATIONS,
    ).eval()
    model.register_seen(imported([]), np.array(SEEN))
    return model


FRUGAL = frugal_model()


def with_splits(earlier: list[Triple], ranked: list[Triple]) -> KnowledgeGraph:
    """The first half of the earlier triples is train, the second is the support split."""
    half = len(earlier) // 2
    splits = {"train": earlier[:half], "test-support": earlier[half:], "test": ranked}
    return GRAPH.with_splits({name: rows(triples) for name, triples in splits.items()}, {})


def scores_of(graph: KnowledgeGraph, triple: Triple, rules: Protocol) -> list[Any]:
    """The embeddings of all candidates, those of the two queries and of their answers, and the evidence."""
    context = GraphContext.of(WHOLE, rules.visible_triples(graph, "test"))
    queries = Queries.of(rows([triple]), RELATIONS)
    with torch.no_grad():
        table = candidate_table(FRUGAL, context, np.arange(ENTITIES, dtype=np.int32), MEMORY, Processes())
        vectors = triple_vectors(FRUGAL, context, rows([triple]), rules.hidden, MEMORY)
    evidence = evidence_scores(FRUGAL, context, queries.centres, queries.labels, rules.hidden, queries.answers)
    return [table, *vectors, evidence.offsets, evidence.rows, evidence.values]


@pytest.mark.parametrize("recipe", ["frugal-t", "frugal-blp", "frugal-simkgc"])
def test_scores_of_a_text_only_system_are_the_same_whatever_is_visible(recipe: str) -> None:
    """So benchmarks/protocols.py ranks them once for `own-split`, `cumulative` and `strict`."""
    fields = recipe_fields(recipe)
    fields["model"]["text"] = {"training": "frozen", "query": "vector"}
    config = from_dict(RunConfig, fields)
    torch.manual_seed(0)
    model = system(config.system).make(config.model, ENCODER, RELATIONS).eval()
    drawn = [tuple(row) for row in np.random.default_rng(1).integers(0, [8, 4, 8], (60, 3)).tolist()]
    graph = with_splits(drawn[:30], drawn[30:])
    names = ("own-split", "cumulative", "strict")
    found = [rank_split(model, graph, WHOLE, "test", protocol(name)) for name in names]
    assert found[0].scores.std() > 0
    for ranking in found[1:]:
        for name in ("better", "equal", "scores"):
            assert np.array_equal(getattr(ranking, name), getattr(found[0], name)), name


TARGET = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))


@given(earlier=TRIPLES, target=TARGET, some=TRIPLES, others=TRIPLES)
@settings(max_examples=60, deadline=None)
def test_no_score_depends_on_another_triple_of_the_ranked_split(
    earlier: list[Triple], target: Triple, some: list[Triple], others: list[Triple]
) -> None:
    """Triples are added, removed and relabelled. Earlier splits repeat none of them: they would lose it."""
    rules = protocol("held-out")
    relabelled = [(h, (r + 1) % RELATIONS, t) for h, r, t in some]
    ranked = [[target], [target, *some], [target, *others], [target, *relabelled]]
    earlier = [triple for triple in earlier if triple not in itertools.chain(*ranked)]
    alone, *more = (with_splits(earlier, triples) for triples in ranked)
    expected = scores_of(alone, target, rules)
    expected_scores = rank_split(FRUGAL, alone, WHOLE, "test", rules).scores[:, 0]
    for graph in more:
        assert all(map(np.array_equal, scores_of(graph, target, rules), expected))
        scores = rank_split(FRUGAL, graph, WHOLE, "test", rules).scores[:, 0]
        assert np.allclose(scores, expected_scores, atol=1e-5)


def test_scores_depend_on_other_triples_of_the_split_where_they_are_visible_and_on_support() -> None:
    """Else the test above would say nothing: each array differs under `cumulative`, or with other support edges."""
    drawn = [tuple(row) for row in np.random.default_rng(1).integers(0, [8, 4, 8], (60, 3)).tolist()]
    target, earlier, some = drawn[0], drawn[1:30], drawn[30:]
    for rules, graphs in (
        (protocol("cumulative"), (with_splits(earlier, [target]), with_splits(earlier, [target, *some]))),
        (protocol("held-out"), (with_splits(earlier, [target]), with_splits([*earlier, *some], [target]))),
    ):
        one, other = (scores_of(graph, target, rules) for graph in graphs)
        assert not any(map(np.array_equal, one, other)), rules.name


def test_a_run_may_be_trained_and_evaluated_under_held_out(tmp_path: Path) -> None:
    graph = support_split(random_case(True)[0].split_inductive(val=0.2, test=0.2)).save(tmp_path / "graph")
    fields = {
        "model": {"text": {"encoder": "scratch:L-1_H-16_A-2", "words": 8}},
        "training": {"epochs": 1, "batch_size": 50, "protocol": "held-out"},
    }
    train_run(graph, from_dict(RunConfig, fields), tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "checkpoint" / "metrics.json").read_text())
    assert metrics["protocol"] == "held-out"
    found = evaluate(tmp_path / "run", protocol="held-out")
    assert found["mrr"] == pytest.approx(metrics["test"]["mrr"]) != evaluate(tmp_path / "run")["mrr"]
