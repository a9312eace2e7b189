"""Relation co-occurrence against plain sets of pairs; nothing that is hidden from a query may show in it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import EGO, ENCODER, GRAPH, TEXT, random_model

from fnftg.ego.context import GraphContext, relation_fingerprints
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.relation_cooccurrence import CooccurrenceCounts
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import protocol

ENTITIES, RELATIONS = 5, 3
Triple = tuple[int, int, int]
ENTITY, RELATION = st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)
TRIPLES = st.lists(st.tuples(ENTITY, RELATION, ENTITY), max_size=30)
CENTRES = np.repeat(np.arange(ENTITIES, dtype=np.int32), 2 * RELATIONS)
LABELS = np.tile(np.arange(2 * RELATIONS, dtype=np.int32), ENTITIES)


def neighbours(triples: list[Triple], relations: int = RELATIONS) -> Neighbours:
    return Neighbours.of(np.array(triples, np.int32).reshape(-1, 3), ENTITIES, relations)


def edges_of(triples: list[Triple]) -> set[Triple]:
    return {(h, r, t) for h, r, t in triples} | {(t, RELATIONS + r, h) for h, r, t in triples}


def cooccurrence(triples: list[Triple], centre: int, label: int) -> dict[int, float]:
    """By its definition: N(l, a) / √((N(l) + 1) (N(a) + 1)), of pairs without the centre."""
    edges = edges_of(triples)
    elsewhere = {(h, a, t) for h, a, t in edges if centre not in (h, t)}
    pairs = {a: {(h, t) for h, b, t in elsewhere if b == a} for a in range(2 * RELATIONS)}
    found: dict[int, float] = {}
    for h, a, t in edges:
        both = len(pairs[label] & pairs[a])
        if h == centre and t != centre and a != label and both:
            mass = both / math.sqrt((len(pairs[label]) + 1) * (len(pairs[a]) + 1))
            found[t] = found.get(t, 0) + mass
    return found


@settings(max_examples=200, deadline=None)
@given(TRIPLES, st.integers(0, 4))
def test_mass_counts_the_pairs_that_labels_connect(triples: list[Triple], limit: int) -> None:
    around = neighbours(triples)
    offsets, entities, found = CooccurrenceCounts.of(around).cooccurring(around, CENTRES, LABELS, limit)
    for query, (centre, label) in enumerate(zip(CENTRES.tolist(), LABELS.tolist(), strict=True)):
        expected = cooccurrence(triples, centre, label)
        part = slice(offsets[query], offsets[query + 1])
        assert len(entities[part]) == min(limit, len(expected))
        for entity, mass in zip(entities[part].tolist(), found[part].tolist(), strict=True):
            assert mass == pytest.approx(expected[entity], rel=1e-6)
        best = sorted(expected.values(), reverse=True)[:limit]
        assert found[part].tolist() == pytest.approx(best, rel=1e-6)


def test_a_value_worked_by_hand() -> None:
    # 0 and 1 are connected by both relations, 2 and 3 by the second alone; asked is (4, 0, ?), and 4 -1-> 3
    triples = [(0, 0, 1), (0, 1, 1), (2, 1, 3), (4, 1, 3)]
    around = neighbours(triples)
    offsets, entities, found = CooccurrenceCounts.of(around).cooccurring(
        around, np.array([4], np.int32), np.array([0], np.int32), 5
    )
    assert offsets.tolist() == [0, 1] and entities.tolist() == [3]
    assert found[0] == pytest.approx(1 / math.sqrt((1 + 1) * (2 + 1)))  # of the second relation's three, one is its own


@settings(max_examples=150, deadline=None)
@given(TRIPLES, st.tuples(ENTITY, RELATION, ENTITY))
def test_what_is_asked_for_changes_no_mass(triples: list[Triple], hidden: Triple) -> None:
    head, relation, tail = hidden
    centres, labels = np.array([head, tail], np.int32), np.array([relation, RELATIONS + relation], np.int32)
    without = [triple for triple in triples if triple != hidden]
    shown, unshown = (
        CooccurrenceCounts.of(around).cooccurring(around, centres, labels, 9)
        for around in map(neighbours, ([*without, hidden], without))
    )
    for one, other in zip(shown, unshown, strict=True):
        assert np.array_equal(one, other)


@settings(max_examples=150, deadline=None)
@given(TRIPLES, TRIPLES)
def test_pairs_counted_again_are_those_of_the_whole_graph(triples: list[Triple], more: list[Triple]) -> None:
    """With a relation that was not there before, too."""
    joined = {(h, t) for h, _, t in more} | {(t, h) for h, _, t in more}
    old = [(h, min(r, RELATIONS - 2), t) for h, r, t in triples]
    again = [(h, r, t) for h, r, t in old if (h, t) in joined]
    counted = CooccurrenceCounts.of(neighbours(old, RELATIONS - 1))
    found = counted.changed(neighbours(again), neighbours(again + more))
    whole = CooccurrenceCounts.of(neighbours(old + more))
    for name in ("keys", "pairs", "frequencies"):
        assert np.array_equal(getattr(found, name), getattr(whole, name)), name


# In a model


def untrained(*sources: str) -> Any:
    """As training begins, but for the relations that it would name."""
    torch.manual_seed(5)
    evidence = EvidenceConfig([*sources], num_nearest=6)
    return FnF(FnFConfig(text=TEXT, ego=EGO, score="cosine", evidence=evidence), ENCODER, len(GRAPH.relations)).eval()


def test_cooccurrence_changes_ranks_but_where_the_pair_is_hidden() -> None:
    model, plain = (
        random_model(score="cosine", evidence=EvidenceConfig(sources, num_nearest=4, initial_weight=0.5))
        for sources in (["text_knn", "relation_cooccurrence"], ["text_knn"])
    )
    plain.load_state_dict(
        {
            name: value[:5] if name in ("evidence.weights.common", "evidence.weights.by_relation") else value
            for name, value in model.state_dict().items()
        }
    )
    texts = model.texts(GRAPH)
    ranks = {
        name: [rank_split(one, GRAPH, texts, "val", protocol(name)).ranks for one in (model, plain)]
        for name in ("cumulative", "strict")
    }
    assert not np.array_equal(*ranks["cumulative"])
    assert np.array_equal(*ranks["strict"])


def test_cooccurrence_is_left_to_the_fit_and_training_starts_as_without_it() -> None:
    model, plain = untrained("text_knn", "relation_cooccurrence"), untrained("text_knn")
    for name, value in plain.state_dict().items():
        own = model.state_dict()[name]
        assert torch.equal(value, own[: len(value)] if name.startswith("evidence.weights.") else own), name
    context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    in_training, later = (model.evidence.table(context, heads, relations, training=now) for now in (True, False))
    own = in_training.columns["relation_cooccurrence"]
    assert in_training.features.any() and not in_training.features[:, own].any()
    assert later.features[:, own].any()


def test_what_was_learned_of_some_relations_changes_no_weight_of_others() -> None:
    model, triples = untrained("text_knn", "relation_cooccurrence"), GRAPH.triples("train")
    texts = model.texts(GRAPH)
    context = GraphContext.of(texts, triples)
    table = model.evidence.table(context, triples[:, 0].copy(), triples[:, 1].copy())

    def added() -> torch.Tensor:
        """By what the model has been trained on by now."""
        now = model.evidence.table(GraphContext.of(texts, triples), triples[:, 0].copy(), triples[:, 1].copy())
        assert np.array_equal(now.features, table.features)
        with torch.no_grad():
            found: torch.Tensor = model.evidence_scores(texts, triples[:, 1], now)
        return found

    before = added()
    relation = int(triples[0, 1])
    model.register_seen(context, np.array([relation]))
    with torch.no_grad():
        for weight in model.evidence.weights.parameters():
            weight.normal_()
    of_it = torch.from_numpy((triples[:, 1] == relation)[table.queries])
    assert of_it.any() and not of_it.all()
    assert torch.equal(added()[~of_it], before[~of_it]) and not torch.allclose(added()[of_it], before[of_it])


def test_relations_are_recognised_by_their_texts_whatever_their_place() -> None:
    turned = KnowledgeGraph.from_triples(
        {"train": [("a", "first", "b"), ("a", "second", "b"), ("b", "third", "a")]},
        {"a": "one", "b": "two"},
        {"first": "relation 2", "second": "relation 0", "third": "something else"},
    )
    model = untrained("text_knn")
    context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
    model.register_seen(context, np.array([GRAPH.relations.find(name) for name in ("r0", "r2")]))
    asked = np.array([turned.relations.find(name) for name in ("first", "second", "third")])
    unseen = model.evidence.weights.unseen(relation_fingerprints(model.texts(turned), asked))
    assert unseen.tolist() == [False, False, True]
    of_labels = model.evidence.unseen(GraphContext.of(model.texts(turned), turned.triples("train")))
    assert of_labels[asked].tolist() == of_labels[asked + 3].tolist() == [False, False, True]


def test_edges_in_one_direction_are_refused() -> None:
    with pytest.raises(FnftgError, match="both directions"):
        random_model(evidence=EvidenceConfig(["relation_cooccurrence"]), ego=EgoConfig(directions="out"))
