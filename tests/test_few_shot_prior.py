"""Precedents against plain sets of triples; what is asked for may not show in them, nor may they in trained relations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fnftg.ego.precedents import Precedents
from fnftg.ego.votes import Votes
from fnftg.models.voting import VotesConfig
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import EGO, ENCODER, GRAPH, TEXT, random_model

from fnftg.ego import precedents
from fnftg.ego.config import EgoConfig
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.link_predictor import GraphContext
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import protocol
from fnftg.text.nearest_texts import TextKNN

ENTITIES, RELATIONS, LIKE = 6, 3, 3
Triple = tuple[int, int, int]
ENTITY, RELATION = st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)
TRIPLES = st.lists(st.tuples(ENTITY, RELATION, ENTITY), max_size=30)
UNMET = np.tile([True, False, True], 2)
COSINES = TextKNN.of(np.random.default_rng(3).normal(size=(ENTITIES, 4)).astype(np.float32), LIKE)
CENTRES = np.repeat(np.arange(ENTITIES, dtype=np.int32), 2 * RELATIONS)
LABELS = np.tile(np.arange(2 * RELATIONS, dtype=np.int32), ENTITIES)
Found = list[tuple[dict[int, float], dict[int, float]]]  # of each query: alike, usual


def rows(triples: list[Triple]) -> np.ndarray:
    return np.array(triples, np.int32).reshape(-1, 3)


def counted(triples: list[Triple], relations: int = RELATIONS) -> Precedents:
    unmet = UNMET.reshape(2, -1)[:, :relations].ravel()
    return Precedents.of(Neighbours.of(rows(triples), ENTITIES, relations), unmet)


def asked(triples: list[Triple], targets: np.ndarray | None, limit: int = ENTITIES) -> Found:
    known = KnownAnswers.of(rows(triples), ENTITIES, RELATIONS)
    votes = counted(triples).beside(Votes.none(len(CENTRES)), COSINES, known, CENTRES, LABELS, targets, limit)
    found = []
    for query in range(len(CENTRES)):
        part = slice(votes.offsets[query], votes.offsets[query + 1])
        columns = (
            dict(zip(votes.entities[part].tolist(), mass[part].tolist(), strict=True))
            for mass in (votes.alike, votes.usual)
        )
        alike, usual = ({entity: value for entity, value in column.items() if value} for column in columns)
        found.append((alike, usual))
    return found


def expected(triples: list[Triple], centre: int, label: int, target: int) -> tuple[dict[int, float], dict[int, float]]:
    """By the definitions, of the graph without the target."""
    edges = {(h, r, t) for h, r, t in triples} | {(t, RELATIONS + r, h) for h, r, t in triples}
    edges -= {(centre, label, target)}
    if not UNMET[label]:
        return {}, {}
    own = {t for h, a, t in edges if (h, a) == (centre, label)}
    others = [t for h, a, t in edges if a == label and h != centre]
    near, cosines = COSINES(np.arange(ENTITIES, dtype=np.int32))
    alike = {
        entity: sum(max(cosines[answer][near[answer] == entity].sum(), 0) ** 4 for answer in own) / max(len(own), 1)
        for entity in range(ENTITIES)
    }
    usual = {entity: others.count(entity) / (len(others) + 1) for entity in range(ENTITIES)}
    new = set(range(ENTITIES)) - own - {centre}
    return tuple({entity: kind[entity] for entity in new if kind[entity] > 0} for kind in (alike, usual))  # type: ignore[return-value]


@settings(max_examples=200, deadline=None)
@given(
    TRIPLES, st.lists(st.integers(-1, ENTITIES - 1), min_size=len(CENTRES), max_size=len(CENTRES)), st.integers(1, 3)
)
def test_precedents_are_those_of_the_graph_without_the_target(
    triples: list[Triple], targets: list[int], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precedents, "BLOCK", block)
        found = asked(triples, np.array(targets, np.int32))
    for query, target in enumerate(targets):
        for kind, wanted in zip(found[query], expected(triples, CENTRES[query], LABELS[query], target), strict=True):
            assert kind == pytest.approx(wanted, rel=1e-5, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(TRIPLES, st.integers(1, 3))
def test_a_limit_leaves_the_heaviest_whatever_their_rows(triples: list[Triple], limit: int) -> None:
    nobody = np.full(len(CENTRES), -1, np.int32)
    for some, whole in zip(asked(triples, nobody, limit), asked(triples, nobody), strict=True):
        for few, all_ in zip(some, whole, strict=True):
            following = sorted(all_.values(), reverse=True)[limit : limit + 1]
            assert few == {entity: mass for entity, mass in all_.items() if not following or mass > following[0]}


@settings(max_examples=100, deadline=None)
@given(TRIPLES)
def test_known_answers_of_a_question_without_a_target_have_what_they_would_have_as_one(triples: list[Triple]) -> None:
    edges = {(h, r, t) for h, r, t in triples} | {(t, RELATIONS + r, h) for h, r, t in triples}
    for query, found in enumerate(asked(triples, None)):
        centre, label = int(CENTRES[query]), int(LABELS[query])
        for kind, place in zip(found, (0, 1), strict=True):
            wanted = expected(triples, centre, label, -1)[place]
            for answer in {t for h, a, t in edges if (h, a) == (centre, label) and t != centre}:
                mass = expected(triples, centre, label, answer)[place].get(answer)
                wanted |= {} if mass is None else {answer: mass}
            assert kind == pytest.approx(wanted, rel=1e-5, abs=1e-9)


def test_shares_worked_by_hand() -> None:
    # 0 -0-> 1 and 2 -0-> 1, 3 -0-> 4; asked is (5, 0, ?), then (0, 0, ?) while its edge to 1 is hidden
    known = [(0, 0, 1), (2, 0, 1), (3, 0, 4)]
    queries = np.arange(len(CENTRES))[(LABELS == 0) & np.isin(CENTRES, [0, 5])]
    targets = np.where(CENTRES == 0, 1, -1).astype(np.int32)
    of_0, of_5 = (asked(known, targets)[query][1] for query in queries)
    assert of_5 == pytest.approx({1: 2 / 4, 4: 1 / 4}) and of_0 == pytest.approx({1: 1 / 3, 4: 1 / 3})


@settings(max_examples=100, deadline=None)
@given(TRIPLES, TRIPLES)
def test_triples_counted_later_are_those_of_the_whole_graph(triples: list[Triple], more: list[Triple]) -> None:
    """With a relation that was not there before, too."""
    old = sorted({(h, min(r, RELATIONS - 2), t) for h, r, t in triples})
    new = sorted(set(more) - set(old))
    grown, whole = counted(old, RELATIONS - 1).grown(rows(new), UNMET), counted(old + new)
    for name in ("unmet", "offsets", "entities", "counts", "triples"):
        assert np.array_equal(getattr(grown, name), getattr(whole, name)), name


# In a model


def model_with(**votes: object) -> FnF:
    """As training begins, but for the relations that it would name."""
    torch.manual_seed(5)
    config = FnFConfig(text=TEXT, ego=EGO, score="cosine", votes=VotesConfig(lookalikes=6, **votes))  # type: ignore[arg-type]
    return FnF(config, ENCODER, len(GRAPH.relations)).eval()


def test_only_relations_that_were_never_trained_on_are_ranked_by_precedents() -> None:
    model, plain = model_with(precedents=True), model_with()
    texts, triples = model.texts(GRAPH), GRAPH.triples("val")
    met = int(triples[0, 1])
    for one in (model, plain):
        one.meet(texts, np.array([met]))
    scores, plain_scores = (
        rank_split(one, GRAPH, texts, "val", protocol("cumulative")).scores for one in (model, plain)
    )
    of_met = triples[:, 1] == met
    assert of_met.any() and np.array_equal(scores[:, of_met], plain_scores[:, of_met])
    assert (scores[:, ~of_met] >= plain_scores[:, ~of_met]).all() and (scores > plain_scores).any()


@pytest.mark.parametrize("name", ["cumulative", "strict"])
def test_no_score_depends_on_whether_its_triple_is_visible(name: str) -> None:
    model = model_with(precedents=True)
    texts, (head, relation, tail) = model.texts(GRAPH), GRAPH.triples("train")[7].tolist()
    others = GRAPH.triples("train")[(GRAPH.triples("train") != [head, relation, tail]).any(1)]
    centres, answers = np.array([head, tail], np.int32), np.array([tail, head], np.int32)
    labels = np.array([relation, relation + len(GRAPH.relations)], np.int32)
    shown, unshown = (
        GraphContext.of(model, texts, edges).votes(model.votes, centres, labels, protocol(name).hidden, answers)
        for edges in (np.concatenate([others, [[head, relation, tail]]]).astype(np.int32), others)
    )
    assert shown is not None and unshown is not None and shown.alike.any() and shown.usual.any()
    for column, value in vars(shown).items():
        assert np.array_equal(value, getattr(unshown, column)), column


def test_precedents_have_no_weights_to_be_learned_and_no_place_in_training() -> None:
    model, plain = model_with(precedents=True), model_with()
    assert set(model.state_dict()) == set(plain.state_dict())
    context = GraphContext.of(model, model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    in_training, later = (context.votes(model.votes, heads, relations, training=now) for now in (True, False))
    assert in_training is not None and not in_training.alike.any() and not in_training.usual.any()
    assert later is not None and later.usual.any()


def test_without_lookalikes_there_are_no_precedents() -> None:
    model = random_model(score="cosine", votes=VotesConfig(mentions=True, precedents=True))
    assert GraphContext.of(model, model.texts(GRAPH), GRAPH.triples("train")).precedents is None


def test_precedents_of_edges_in_one_direction_are_refused() -> None:
    with pytest.raises(FnftgError, match="both directions"):
        random_model(votes=VotesConfig(lookalikes=2, precedents=True), ego=EgoConfig(directions="out"))
