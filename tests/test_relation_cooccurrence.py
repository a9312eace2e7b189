"""Kinship with neighbours against plain sets of pairs; nothing that is hidden from a query may show in it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from fnftg.ego.parallels import Parallels
from fnftg.ego.votes import Votes
from fnftg.models.voting import VotesConfig
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import EGO, ENCODER, GRAPH, TEXT, random_model

from fnftg.ego.config import EgoConfig
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.link_predictor import GraphContext
from fnftg.models.text_inputs import relation_prints
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


def kinship(triples: list[Triple], centre: int, label: int) -> dict[int, float]:
    """By its definition: N(l, a) / √((N(l) + 1) (N(a) + 1)), of pairs without the centre."""
    edges = edges_of(triples)
    elsewhere = {(h, a, t) for h, a, t in edges if centre not in (h, t)}
    pairs = {a: {(h, t) for h, b, t in elsewhere if b == a} for a in range(2 * RELATIONS)}
    found: dict[int, float] = {}
    for h, a, t in edges:
        both = len(pairs[label] & pairs[a])
        if h == centre and t != centre and a != label and both:
            kin = both / math.sqrt((len(pairs[label]) + 1) * (len(pairs[a]) + 1))
            found[t] = found.get(t, 0) + kin
    return found


@settings(max_examples=200, deadline=None)
@given(TRIPLES, st.integers(0, 4))
def test_kinship_counts_the_pairs_that_labels_join(triples: list[Triple], limit: int) -> None:
    around = neighbours(triples)
    offsets, entities, found = Parallels.of(around)(around, CENTRES, LABELS, limit)
    for query, (centre, label) in enumerate(zip(CENTRES.tolist(), LABELS.tolist(), strict=True)):
        expected = kinship(triples, centre, label)
        part = slice(offsets[query], offsets[query + 1])
        assert len(entities[part]) == min(limit, len(expected))
        for entity, kin in zip(entities[part].tolist(), found[part].tolist(), strict=True):
            assert kin == pytest.approx(expected[entity], rel=1e-6)
        best = sorted(expected.values(), reverse=True)[:limit]
        assert found[part].tolist() == pytest.approx(best, rel=1e-6)


def test_a_value_worked_by_hand() -> None:
    # 0 and 1 are joined by both relations, 2 and 3 by the second alone; asked is (4, 0, ?), and 4 -1-> 3
    triples = [(0, 0, 1), (0, 1, 1), (2, 1, 3), (4, 1, 3)]
    around = neighbours(triples)
    offsets, entities, found = Parallels.of(around)(around, np.array([4], np.int32), np.array([0], np.int32), 5)
    assert offsets.tolist() == [0, 1] and entities.tolist() == [3]
    assert found[0] == pytest.approx(1 / math.sqrt((1 + 1) * (2 + 1)))  # of the second relation's three, one is its own


@settings(max_examples=150, deadline=None)
@given(TRIPLES, st.tuples(ENTITY, RELATION, ENTITY))
def test_what_is_asked_for_changes_no_kinship(triples: list[Triple], hidden: Triple) -> None:
    head, relation, tail = hidden
    centres, labels = np.array([head, tail], np.int32), np.array([relation, RELATIONS + relation], np.int32)
    without = [triple for triple in triples if triple != hidden]
    shown, unshown = (
        Parallels.of(around)(around, centres, labels, 9) for around in map(neighbours, ([*without, hidden], without))
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
    counted = Parallels.of(neighbours(old, RELATIONS - 1))
    found = counted.changed(neighbours(again), neighbours(again + more))
    whole = Parallels.of(neighbours(old + more))
    for name in ("keys", "pairs", "frequencies"):
        assert np.array_equal(getattr(found, name), getattr(whole, name)), name


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_neighbours_stand_beside_the_votes_each_once(data: st.DataObject) -> None:
    def some() -> list[dict[int, float]]:
        one = st.dictionaries(st.integers(0, 6), st.integers(1, 9).map(float), max_size=4)
        return [data.draw(one) for _ in range(3)]

    def ragged(parts: list[dict[int, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        flat = [item for part in parts for item in part.items()]
        values = np.array([value for _, value in flat], np.float32)
        return np.cumsum([0, *map(len, parts)]), np.array([row for row, _ in flat], np.int32), values

    voted, kin = some(), some()
    offsets, entities, mass = ragged(voted)
    both = Votes(offsets, entities, mass, 2 * mass, 0 * mass, *3 * [3 * mass]).beside("kinship", *ragged(kin))
    for query in range(3):
        part = slice(both.offsets[query], both.offsets[query + 1])
        rows = both.entities[part].tolist()
        assert rows[: len(voted[query])] == list(voted[query]) and sorted(rows) == sorted({*voted[query], *kin[query]})
        assert both.near[part].tolist() == [voted[query].get(row, 0) for row in rows]
        assert both.nearer[part].tolist() == [2 * voted[query].get(row, 0) for row in rows]
        assert both.kinship[part].tolist() == [kin[query].get(row, 0) for row in rows]
        assert both.mentioned[part].tolist() == [3 * voted[query].get(row, 0) for row in rows]


# In a model


def unmet(**votes: object) -> FnF:
    """As training begins, but for the relations that it would name."""
    torch.manual_seed(5)
    config = FnFConfig(text=TEXT, ego=EGO, score="cosine", votes=VotesConfig(**votes))  # type: ignore[arg-type]
    return FnF(config, ENCODER, len(GRAPH.relations)).eval()


def model_with(**votes: object) -> FnF:
    return random_model(score="cosine", votes=VotesConfig(parallels=True, weight=0.5, **votes))  # type: ignore[arg-type]


def test_parallels_change_ranks_but_where_the_pair_is_hidden() -> None:
    model, plain = model_with(lookalikes=4), random_model(score="cosine", votes=VotesConfig(lookalikes=4, weight=0.5))
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "bond_" not in name})
    texts = model.texts(GRAPH)
    ranks = {
        name: [rank_split(one, GRAPH, texts, "val", protocol(name)).ranks for one in (model, plain)]
        for name in ("cumulative", "strict")
    }
    assert not np.array_equal(*ranks["cumulative"])
    assert np.array_equal(*ranks["strict"])


def test_parallels_are_left_to_the_weighing_and_training_starts_as_without_them() -> None:
    model, plain = unmet(lookalikes=4, parallels=True), unmet(lookalikes=4)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in plain.state_dict().items())
    context = GraphContext.of(model, model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    in_training = context.votes(model.votes, heads, relations, training=True)
    later = context.votes(model.votes, heads, relations)
    assert in_training is not None and not in_training.kinship.any()
    assert later is not None and later.kinship.any()


def test_more_lookalikes_vote_in_evaluation_than_in_training() -> None:
    model = model_with(lookalikes=2, evaluation_lookalikes=9)
    context = GraphContext.of(model, model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    few, many = (context.votes(model.votes, heads, relations, "pair", training=training) for training in (True, False))
    assert few is not None and many is not None and many.near.sum() > few.near.sum()
    rows, _ = context.texts.nearest_texts(9)(heads)
    assert np.array_equal(context.texts.nearest_texts(2)(heads)[0], rows[:, :2])


def test_what_was_learned_of_some_relations_changes_no_weight_of_others() -> None:
    model = unmet(lookalikes=6, parallels=True)
    texts = model.texts(GRAPH)
    context = GraphContext.of(model, texts, GRAPH.triples("train"))
    triples = GRAPH.triples("train")
    votes = context.votes(model.votes, triples[:, 0].copy(), triples[:, 1].copy())
    assert votes is not None and model.voting is not None

    def added() -> torch.Tensor:
        with torch.no_grad():
            return model.added(texts, triples[:, 1], votes)

    before = added()
    relation = int(triples[0, 1])
    model.meet(texts, np.array([relation]))
    with torch.no_grad():
        for weight in model.voting.parameters():
            weight.normal_()
    of_it = torch.from_numpy((triples[:, 1] == relation)[votes.queries])
    assert of_it.any() and not of_it.all()
    assert torch.equal(added()[~of_it], before[~of_it]) and not torch.allclose(added()[of_it], before[of_it])


def test_weights_for_relations_that_were_never_trained_on_are_the_written_ones() -> None:
    model = unmet(lookalikes=6, parallels=True, mentions=True, precedents=True)
    texts, triples = model.texts(GRAPH), GRAPH.triples("train")
    mass = np.array([2.0, 0.5], np.float32)
    votes = Votes(np.array([0, 2]), np.array([1, 2], np.int32), *(factor * mass for factor in range(1, 7)))
    share = np.log(np.array([0.8, 0.2]) / 0.01 + 1)
    kin, mentioned, alike, usual = (np.log(factor * mass / 0.01 + 1) for factor in range(3, 7))
    with torch.no_grad():
        found = model.added(texts, triples[:1, 1], votes).numpy()
    features = np.log1p(5 * mass), share, kin, share, mentioned, alike, usual
    assert found == pytest.approx(0.25 * sum(features), rel=1e-5)


def test_relations_are_met_by_their_texts_whatever_their_place() -> None:
    turned = KnowledgeGraph.from_triples(
        {"train": [("a", "first", "b"), ("a", "second", "b"), ("b", "third", "a")]},
        {"a": "one", "b": "two"},
        {"first": "relation 2", "second": "relation 0", "third": "something else"},
    )
    model = unmet(lookalikes=2)
    model.meet(model.texts(GRAPH), np.array([GRAPH.relations.find(name) for name in ("r0", "r2")]))
    assert model.voting is not None
    prints = relation_prints(
        model.texts(turned), np.array([turned.relations.find(name) for name in ("first", "second", "third")])
    )
    assert np.isin(prints, model.voting.met.numpy()).tolist() == [True, True, False]


def test_parallels_of_edges_in_one_direction_are_refused() -> None:
    with pytest.raises(FnftgError, match="both directions"):
        random_model(votes=VotesConfig(parallels=True), ego=EgoConfig(directions="out"))
