"""The few-shot prior against plain sets of triples; the target may not show in it, nor it in relations of training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import EGO, ENCODER, GRAPH, TEXT, random_model

from fnftg.ego.context import GraphContext
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.known_answers import ExtendedAnswers, KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.evidence import few_shot_prior
from fnftg.evidence.base import SMALLEST, QueryBatch
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.few_shot_prior import AnswerCounts, FewShotPrior
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import protocol
from fnftg.text.nearest_texts import TextKNN

ENTITIES, RELATIONS, LIKE = 6, 3, 3
Triple = tuple[int, int, int]
ENTITY, RELATION = st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)
TRIPLES = st.lists(st.tuples(ENTITY, RELATION, ENTITY), max_size=30)
UNSEEN = np.tile([True, False, True], 2)
COSINES = TextKNN.of(np.random.default_rng(3).normal(size=(ENTITIES, 4)).astype(np.float32), LIKE)
CENTRES = np.repeat(np.arange(ENTITIES, dtype=np.int32), 2 * RELATIONS)
LABELS = np.tile(np.arange(2 * RELATIONS, dtype=np.int32), ENTITIES)
Found = list[tuple[dict[int, float], dict[int, float]]]  # of each query: answer similarity, answer frequency


def rows(triples: list[Triple]) -> np.ndarray:
    return np.array(triples, np.int32).reshape(-1, 3)


def counted(triples: list[Triple], relations: int = RELATIONS) -> AnswerCounts:
    unseen = UNSEEN.reshape(2, -1)[:, :relations].ravel()
    return AnswerCounts.of(Neighbours.of(rows(triples), ENTITIES, relations), unseen)


def asked(
    triples: list[Triple], targets: np.ndarray | None, limit: int = ENTITIES, counts: AnswerCounts | None = None
) -> Found:
    known = KnownAnswers.of(rows(triples), ENTITIES, RELATIONS)
    context: Any = SimpleNamespace(known=known, nearest_texts=lambda k: COSINES, entities=ENTITIES, relations=RELATIONS)
    source = FewShotPrior(EvidenceConfig(["few_shot_prior"], LIKE, num_candidates=limit))
    queries = QueryBatch(CENTRES, LABELS, UNSEEN[LABELS], targets)
    candidates = source.candidates(counts or counted(triples), context, queries)
    masses = SMALLEST * np.expm1(candidates.features.astype(np.float64))
    found = []
    for query in range(len(CENTRES)):
        part = slice(candidates.offsets[query], candidates.offsets[query + 1])
        entities = candidates.entities[part].tolist()
        columns = (dict(zip(entities, mass[part].tolist(), strict=True)) for mass in masses.T)
        similar, frequent = ({entity: value for entity, value in column.items() if value} for column in columns)
        found.append((similar, frequent))
    return found


def expected(triples: list[Triple], centre: int, label: int, target: int) -> tuple[dict[int, float], dict[int, float]]:
    """By the definitions, of the graph without the target."""
    edges = {(h, r, t) for h, r, t in triples} | {(t, RELATIONS + r, h) for h, r, t in triples}
    edges -= {(centre, label, target)}
    if not UNSEEN[label]:
        return {}, {}
    own = {t for h, a, t in edges if (h, a) == (centre, label)}
    others = [t for h, a, t in edges if a == label and h != centre]
    near, cosines = COSINES(np.arange(ENTITIES, dtype=np.int32))
    similar = {
        entity: sum(max(cosines[answer][near[answer] == entity].sum(), 0) ** 4 for answer in own) / max(len(own), 1)
        for entity in range(ENTITIES)
    }
    frequent = {entity: others.count(entity) / (len(others) + 1) for entity in range(ENTITIES)}
    new = set(range(ENTITIES)) - own - {centre}
    return tuple({entity: kind[entity] for entity in new if kind[entity] > 0} for kind in (similar, frequent))  # type: ignore[return-value]


@settings(max_examples=200, deadline=None)
@given(
    TRIPLES, st.lists(st.integers(-1, ENTITIES - 1), min_size=len(CENTRES), max_size=len(CENTRES)), st.integers(1, 3)
)
def test_evidence_is_that_of_the_graph_without_the_target(
    triples: list[Triple], targets: list[int], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_shot_prior, "BLOCK", block)
        found = asked(triples, np.array(targets, np.int32))
    for query, target in enumerate(targets):
        for kind, wanted in zip(found[query], expected(triples, CENTRES[query], LABELS[query], target), strict=True):
            assert kind == pytest.approx(wanted, rel=1e-4, abs=1e-6)


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
            assert kind == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_shares_worked_by_hand() -> None:
    # 0 -0-> 1 and 2 -0-> 1, 3 -0-> 4; asked is (5, 0, ?), then (0, 0, ?) while its edge to 1 is hidden
    known = [(0, 0, 1), (2, 0, 1), (3, 0, 4)]
    queries = np.arange(len(CENTRES))[(LABELS == 0) & np.isin(CENTRES, [0, 5])]
    targets = np.where(CENTRES == 0, 1, -1).astype(np.int32)
    of_0, of_5 = (asked(known, targets)[query][1] for query in queries)
    assert of_5 == pytest.approx({1: 2 / 4, 4: 1 / 4}) and of_0 == pytest.approx({1: 1 / 3, 4: 1 / 3})


@settings(max_examples=100, deadline=None)
@given(TRIPLES, TRIPLES, TRIPLES, st.integers(1, ENTITIES))
def test_triples_added_later_count_as_in_the_whole_graph(
    triples: list[Triple], more: list[Triple], most: list[Triple], limit: int
) -> None:
    """With a relation that was not there before, too; and so do those that are added later still."""
    old = sorted({(h, min(r, RELATIONS - 2), t) for h, r, t in triples})
    counts, so_far = counted(old, RELATIONS - 1), old
    base = KnownAnswers.of(rows(old), ENTITIES, RELATIONS - 1)
    for added in (more, most):
        new = sorted(set(added) - set(so_far))
        so_far = so_far + new
        known = ExtendedAnswers.of(base, rows(so_far), ENTITIES, RELATIONS)
        context: Any = SimpleNamespace(known=known, added=rows(new), entities=ENTITIES, relations=RELATIONS)
        counts, whole = counts.extended(context, UNSEEN), counted(so_far)
        assert np.array_equal(counts.triples, whole.triples) and np.array_equal(counts.unseen, whole.unseen)
        nobody = np.full(len(CENTRES), -1, np.int32)
        for targets in (None, nobody):
            assert asked(so_far, targets, limit, counts) == asked(so_far, targets, limit)


# In a model


def model_with(*sources: str, seen: bool = False) -> FnF:
    """As training begins; all relations are new to it, or none."""
    evidence = EvidenceConfig([*sources], num_nearest=6)
    torch.manual_seed(5)
    config = FnFConfig(text=TEXT, ego=EGO, score="cosine", evidence=evidence)
    model = FnF(config, ENCODER, len(GRAPH.relations)).eval()
    if seen:
        context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
        model.register_seen(context, np.arange(len(GRAPH.relations)))
    return model


def test_only_relations_that_were_never_trained_on_are_ranked_by_their_answers() -> None:
    model, plain = model_with("text_knn", "few_shot_prior"), model_with("text_knn")
    texts, triples = model.texts(GRAPH), GRAPH.triples("val")
    seen = int(triples[0, 1])
    for one in (model, plain):
        one.register_seen(GraphContext.of(texts, GRAPH.triples("train")), np.array([seen]))
    scores, plain_scores = (
        rank_split(one, GRAPH, texts, "val", protocol("cumulative")).scores for one in (model, plain)
    )
    of_seen = triples[:, 1] == seen
    assert of_seen.any() and np.array_equal(scores[:, of_seen], plain_scores[:, of_seen])
    assert (scores[:, ~of_seen] >= plain_scores[:, ~of_seen]).all() and (scores > plain_scores).any()


@pytest.mark.parametrize("name", ["cumulative", "strict"])
def test_no_score_depends_on_whether_its_triple_is_visible(name: str) -> None:
    model: Any = model_with("text_knn", "few_shot_prior")
    texts, (head, relation, tail) = model.texts(GRAPH), GRAPH.triples("train")[7].tolist()
    others = GRAPH.triples("train")[(GRAPH.triples("train") != [head, relation, tail]).any(1)]
    centres, answers = np.array([head, tail], np.int32), np.array([tail, head], np.int32)
    labels = np.array([relation, relation + len(GRAPH.relations)], np.int32)
    shown, unshown = (
        model.evidence.table(GraphContext.of(texts, edges), centres, labels, protocol(name).hidden, answers)
        for edges in (np.concatenate([others, [[head, relation, tail]]]).astype(np.int32), others)
    )
    assert shown.features[:, shown.columns["few_shot_prior"]].any(axis=0).all()
    for column in ("offsets", "entities", "features", "unseen"):
        assert np.array_equal(getattr(shown, column), getattr(unshown, column)), column


def test_it_has_no_weights_to_be_learned_and_no_place_in_training() -> None:
    model: Any = model_with("text_knn", "few_shot_prior")
    assert set(model.state_dict()) == set(model_with("text_knn").state_dict())
    shapes = [
        {name: value.shape for name, value in one.state_dict().items()} for one in (model, model_with("text_knn"))
    ]
    assert shapes[0] == shapes[1]
    context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    in_training, later = (model.evidence.table(context, heads, relations, training=now) for now in (True, False))
    own = in_training.columns["few_shot_prior"]
    assert in_training.features.any() and not in_training.features[:, own].any()
    assert later.features[:, own].any(axis=0).all()


def test_relations_of_training_have_no_candidates() -> None:
    model: Any = model_with("few_shot_prior", seen=True)
    context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    assert not len(model.evidence.table(context, heads, relations).entities)


def test_edges_in_one_direction_are_refused() -> None:
    evidence = EvidenceConfig(["few_shot_prior"], num_nearest=2)
    with pytest.raises(FnftgError, match="both directions"):
        random_model(evidence=evidence, ego=EgoConfig(directions="out"))
