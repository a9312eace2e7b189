"""Answers are those of the offline computation, whatever is asked, and bad questions get one sentence."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fnftg
from fnftg.cli import main
from fnftg.ego.answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.predictor import EgoConfig, LinkPredictor, Visible
from fnftg.models.pretrained import save_pretrained
from fnftg.predict.growing import grown_answers
from fnftg.predict.index import NearestIndex
from fnftg.predict.naming import Names, NameTable
from fnftg.predict.predictor import Predictor, load
from fnftg.predict.questions import Answer, NewEntity, Question, Relation
from fnftg.ranking.answers import pair_scores, top_answers
from fnftg.ranking.embedding import candidate_table
from fnftg.ranking.processes import Processes
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines

ENTITIES = 40
RANDOM = np.random.default_rng(4)
ROWS = RANDOM.integers(0, [ENTITIES, 4, ENTITIES], (90, 3)).tolist()
TRIPLES = [(f"e{h}", f"_r_{r}", f"e{t}") for h, r, t in ROWS] + [(f"e{i}", "_r_0", f"e{i + 1}") for i in range(39)]
GRAPH = KnowledgeGraph.from_triples(
    {"train": TRIPLES[:80], "val": TRIPLES[80:100], "test": TRIPLES[100:]},
    {f"e{i}": f"Entity {i}, of the {'first' if i % 2 else 'second'} kind" for i in range(ENTITIES)}
    | {"e8": "Twin, the first", "e9": "Twin, the second"},
    {f"_r_{i}": f"relation number {i}" for i in range(4)},
)
ENCODER = load_encoder("scratch:L-1_H-32_A-2", GraphLines(GRAPH))


# The best answers


@st.composite
def searches(draw: st.DrawFn) -> Any:
    queries, rows, k = draw(st.integers(0, 5)), draw(st.integers(0, 20)), draw(st.integers(1, 7))
    values = draw(st.sampled_from([[-1.0, 0.0, -0.0, 1.0, 2.0], [-1.0, 0.0, 1.0, math.nan, math.inf, -math.inf]]))
    vector = st.lists(st.sampled_from(values), min_size=3, max_size=3)
    points = draw(st.lists(vector, min_size=queries, max_size=queries))
    table = draw(st.lists(vector, min_size=rows, max_size=rows))
    known = [draw(st.lists(st.integers(0, rows - 1), max_size=rows)) if rows else [] for _ in range(queries)]
    return (*(np.array(x, np.float32).reshape(-1, 3) for x in (points, table)), known, k)


@given(searches(), st.sampled_from([1, 1 << 9, 1 << 28]), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_top_answers_are_those_of_brute_force(search: Any, memory: int, by_distance: bool, on_disk: bool) -> None:
    points, table, known, k = search
    with np.errstate(all="ignore"):
        exact = (
            -np.abs(points[:, None].astype(np.float64) - table).sum(2)
            if by_distance
            else (points[:, None].astype(np.float64) * table).sum(2)
        )
    if on_disk and len(table):
        with tempfile.TemporaryFile() as file:
            table.tofile(file)
            file.flush()
            table = np.memmap(file, np.float32, "r", shape=table.shape)
    model: Any = SimpleNamespace(by_distance=by_distance, similarity=lambda p, c: (p[:, None] * c).sum(2))
    offsets = np.cumsum([0, *map(len, known)])
    rows = np.array([row for some in known for row in some], np.int64)
    scores, found = top_answers(model, points, table, offsets, rows, k, memory)
    assert scores.shape == found.shape == (len(points), k) and scores.dtype == np.float32 and found.dtype == np.int64
    for query in range(len(points)):
        there = [
            (-score, row)
            for row, score in enumerate(exact[query].tolist())
            if row not in known[query] and not math.isnan(score)
        ]
        best = sorted(there)[:k] + [(math.inf, -1)] * (k - len(there))
        assert found[query].tolist() == [row for _, row in best]
        assert scores[query].tolist() == [-score for score, _ in best]
        alone = pair_scores(model, points, table, np.full(len(table), query), np.arange(len(table)))
        assert np.array_equal(alone, exact[query], equal_nan=True)


def test_each_query_has_its_own_filter_whatever_the_number_of_known_answers() -> None:
    generator = np.random.default_rng(0)
    points, table = generator.normal(size=(30, 8)), generator.normal(size=(500, 8))
    points, table = points.astype(np.float32), table.astype(np.float32)
    known = [generator.choice(500, size, replace=False) for size in generator.integers(0, 500, 30)]
    offsets = np.cumsum([0, *map(len, known)])
    model: Any = SimpleNamespace(by_distance=True)
    scores, found = top_answers(model, points, table, offsets, np.concatenate(known), 7, 1 << 14)
    for query in range(30):
        alone = top_answers(model, points[[query]], table, np.array([0, len(known[query])]), known[query], 7)
        assert np.array_equal(scores[query], alone[0][0]) and np.array_equal(found[query], alone[1][0])


# The promise


def small_model(**changes: Any) -> FnF:
    text = TextConfig(encoder=ENCODER.name, width=16, training="frozen", query="vector")
    config = FnFConfig(text=text, ego=EgoConfig(limit=4, evaluation_limit=200))
    for name, value in changes.items():
        part, _, field = name.partition("__")
        config = replace(config, **{part: replace(getattr(config, part), **{field: value}) if field else value})
    torch.manual_seed(0)
    return FnF(config, ENCODER).eval()


def run_of(model: LinkPredictor, folder: Path) -> Path:
    """The folder of a run, as training leaves it."""
    GRAPH.save(folder / "graph")
    (folder / "run").mkdir()
    save_pretrained(model, folder / "run" / "checkpoint")
    config = {"graph": str(folder / "graph"), "config": {}}
    (folder / "run" / "config.json").write_text(json.dumps(config))
    return folder / "run"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(small_model(), tmp_path_factory.mktemp("predict"))


@pytest.fixture
def predictor(run_folder: Path) -> Predictor:
    return fnftg.load(run_folder)


@torch.inference_mode()
def offline(model: LinkPredictor, store: Path, question: tuple[Any, str, Any], k: int, filtered: bool = True) -> Any:
    """Everything embedded anew from the store, every candidate compared one by one: [(id, score)]."""
    graph = KnowledgeGraph.open(store)
    entities, relations = len(graph.entities), len(graph.relations)
    neighbours = Neighbours.of(graph.all_triples(), entities, relations, model.ego.directions)
    visible = Visible(model.texts(graph), neighbours)
    table = candidate_table(model, visible, np.arange(entities, dtype=np.int32), 1 << 28, Processes())
    head, relation, tail = question
    centre, row = graph.entities.find(head or tail), graph.relations.find(relation)
    label = np.array([row if head else row + relations], np.int32)
    centres = np.array([centre], np.int32)
    _, point = model(visible.texts, centres, visible.ego_graphs(model.ego, centres, None), label, False)
    scores = model.similarity(point.double(), torch.from_numpy(table).double())[0].float().tolist()
    true = {tuple(triple) for triple in graph.all_triples().tolist()}
    found = [
        (-score, candidate)
        for candidate, score in enumerate(scores)
        if not filtered or ((centre, row, candidate) if head else (candidate, row, centre)) not in true
    ]
    return [(graph.entities.ids[candidate], -score) for score, candidate in sorted(found)[:k]]


def assert_same(answers: list[Answer], expected: list[tuple[str, float]]) -> None:
    assert [answer.score for answer in answers] == pytest.approx([score for _, score in expected], abs=1e-5, rel=1e-6)
    scores = dict(expected)
    for answer in answers:  # those with nearly the same score may change places
        assert answer.score == pytest.approx(scores.get(answer.id, expected[-1][1]), abs=1e-5, rel=1e-6)
    assert [answer.rank for answer in answers] == list(range(1, len(answers) + 1))


MODELS: dict[str, dict[str, Any]] = {
    "transe": {},
    "distmult": {"score": "distmult"},
    "complex": {"score": "complex"},
    "two hops": {"ego__hops": 2, "ego__second_limit": 200},
    "outgoing": {"ego__directions": "out"},
    "outgoing, two hops": {"ego__directions": "out", "ego__hops": 2, "ego__second_limit": 200},
    "drawn": {"ego__evaluation_limit": 3},
    "drawn, two hops": {"ego__evaluation_limit": 3, "ego__hops": 2, "ego__second_limit": 2},
    "rare": {"ego__evaluation_limit": 3, "ego__method": "rare"},
    "rare, two hops": {"ego__evaluation_limit": 3, "ego__method": "rare", "ego__hops": 2, "ego__second_limit": 2},
    "query texts": {"text__query": "text"},
    "fine-tuned": {"text__training": "finetune"},
    "centre": {"text__training": "centre"},
    "without ego-graphs": {"ego_graphs": False},
}


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_new_entity_has_the_answers_of_the_same_entity_imported(changes: dict[str, Any], tmp_path: Path) -> None:
    model = small_model(**changes)
    predictor = fnftg.load(run_of(model, tmp_path))
    other = NewEntity("a second one of the first kind", edges=[("_r_2", "e3")], id="other")
    linked = NewEntity("one of the first kind", [("_r_1", "e3"), ("_r_0", other)], [("_r_3", "e5")], id="new")
    other.edges.append(("_r_1", linked))  # type: ignore[attr-defined]
    cases: list[tuple[NewEntity, dict[str, str], list[tuple[str, str, str]]]] = [
        (NewEntity("a third kind", id="new"), {"new": "a third kind"}, []),
        (
            NewEntity("Entity of the first kind", [("_r_1", "e3"), ("_r_1", "e4")], id="new"),
            {"new": "Entity of the first kind"},
            [("new", "_r_1", "e3"), ("new", "_r_1", "e4")],
        ),
        (
            linked,
            {"new": "one of the first kind", "other": "a second one of the first kind"},
            [
                ("new", "_r_1", "e3"),
                ("new", "_r_0", "other"),
                ("e5", "_r_3", "new"),
                ("other", "_r_2", "e3"),
                ("other", "_r_1", "new"),
            ],
        ),
    ]
    for number, (entity, texts, triples) in enumerate(cases):
        store = tmp_path / f"store{number}"
        GRAPH.extended(texts, triples=triples).save(store)
        for k in (3, 45):
            expected = offline(model, store, ("new", "_r_1", None), k)
            assert_same(predictor.tails(entity, "_r_1", k), expected)
            assert_same(predictor.heads("_r_1", entity, k), offline(model, store, (None, "_r_1", "new"), k))
        grown = predictor.add(entity)
        assert_same(grown.tails("new", "_r_1", 45), expected)
        assert_same(grown.heads("_r_0", "e3", 45), offline(model, store, (None, "_r_0", "e3"), 45))
        everything = offline(model, store, ("new", "_r_1", None), 45, filtered=False)
        assert_same(predictor.tails(entity, "_r_1", 45, known=True), everything)
        scores = dict(everything)
        for tail in ("e3", "e7"):
            answer = next(a for a in predictor.relations(entity, tail, known=True) if a.id == "_r_1")
            assert answer.score == pytest.approx(scores[tail], abs=1e-5)
            assert answer.known == (("new", "_r_1", tail) in triples)


@pytest.mark.parametrize("changes", [{}, {"score": "distmult"}, {"text__query": "text"}])
def test_new_relation_has_the_answers_of_the_same_relation_imported(changes: dict[str, Any], tmp_path: Path) -> None:
    model = small_model(**changes)
    predictor = fnftg.load(run_of(model, tmp_path))
    text = "is the natural predator of"
    GRAPH.extended({"new": "one more"}, {"eats": text}, [("new", "eats", "e3"), ("e5", "_r_2", "new")]).save(tmp_path / "s")
    entity = NewEntity("one more", [(Relation(text), "e3")], [("_r_2", "e5")], id="new")
    assert_same(predictor.tails(entity, Relation(text), 45), offline(model, tmp_path / "s", ("new", "eats", None), 45))
    assert_same(predictor.heads(Relation(text), entity, 45), offline(model, tmp_path / "s", (None, "eats", "new"), 45))
    GRAPH.extended({}, {"eats": text}).save(tmp_path / "alone")
    expected = offline(model, tmp_path / "alone", ("e2", "eats", None), 45)
    assert_same(predictor.tails("e2", Relation(text), 45), expected)
    assert len(predictor.relations(entity, "e3", 10, known=True)) == 5


def test_known_entities_have_the_answers_of_the_offline_computation(predictor: Predictor, run_folder: Path) -> None:
    store = run_folder.parent / "graph"
    for question in (("e3", "_r_0", None), (None, "_r_2", "e7")):
        expected = offline(predictor.model, store, question, 45)
        head, relation, tail = question
        assert_same(predictor.many([Question(head, relation, tail)], 45)[0], expected)


def test_many_questions_have_the_answers_of_one_by_one(predictor: Predictor) -> None:
    shared = [("_r_1", "e3")]
    questions = [
        Question("e1", "_r_0"),
        Question(NewEntity("of the first kind", shared), "_r_1"),
        Question(relation="_r_1", tail=NewEntity("of the second kind", shared, id="x")),
        Question("e3", "_r_2"),
        Question(NewEntity("first", shared, id="x"), Relation("is near")),
        Question("e3", Relation("is far from")),
        Question("e3", None, NewEntity("kind", [(Relation("is far from"), "e3")])),
        Question("e3", tail="e4"),
        Question(relation="_r_3", tail="e3"),
    ]
    for known in (False, True):
        together = predictor.many(questions, 12, known)
        for question, answers in zip(questions, together, strict=True):
            alone = predictor.many([question], 12, known)[0]
            assert_same(answers, [(answer.id, answer.score) for answer in alone])
            assert {a.id: a.known for a in answers} == {a.id: a.known for a in alone}
    assert predictor.many([], 5) == []


def test_known_links_are_left_out_or_marked(predictor: Predictor) -> None:
    known = {t for h, r, t in TRIPLES if (h, r) == ("e3", "_r_0")}
    assert not known & {answer.id for answer in predictor.tails("e3", "_r_0", 40)}
    marked = predictor.tails("e3", "_r_0", 40, known=True)
    assert {answer.id for answer in marked if answer.known} == known and len(marked) == 40
    relations = {r for h, r, t in TRIPLES if (h, t) == ("e3", "e4")}
    assert relations and not relations & {answer.id for answer in predictor.relations("e3", "e4")}
    assert {a.id for a in predictor.relations("e3", "e4", known=True) if a.known} == relations


def test_equal_scores_come_in_the_order_of_rows(predictor: Predictor) -> None:
    flat = replace(predictor, table=np.zeros_like(predictor.table))
    assert [answer.id for answer in flat.tails("e3", "_r_1", 40, known=True)] == GRAPH.entities.ids.slice(0, 40)


def test_nothing_is_written_unless_asked(predictor: Predictor, run_folder: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run_folder.parent.rglob("*")}
    grown = predictor.add(NewEntity("a new one", [("_r_1", "e3")], id="new"), triples=[("e1", "_r_2", "new")])
    assert len(grown.graph.entities) == ENTITIES + 1 and len(predictor.graph.entities) == ENTITIES
    assert {path: path.stat().st_mtime_ns for path in run_folder.parent.rglob("*")} == before
    stored = grown.save(tmp_path / "store")
    assert stored.equals(grown.graph)
    again = load(run_folder, tmp_path / "store")
    assert_same(again.tails("new", "_r_0", 20), [(a.id, a.score) for a in grown.tails("new", "_r_0", 20)])
    assert grown.entity_names.row("a new one") == ENTITIES


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_grown_known_answers_are_those_of_all_triples(data: st.DataObject) -> None:
    rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 4)), max_size=8)
    more = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), max_size=8)
    old, new = (np.array(data.draw(some), np.int32).reshape(-1, 3) for some in (rows, more))
    grown = grown_answers(KnownAnswers.of(old, 5, 2), new, 7, 3)
    assert np.array_equal(grown.packed, KnownAnswers.of(np.concatenate([old, new]), 7, 3).packed)


def test_second_loading_embeds_nothing(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fnftg.load(run_folder)
    monkeypatch.setattr("fnftg.predict.keeping.candidate_table", None)
    again = fnftg.load(run_folder)
    assert isinstance(again.table, np.memmap) and np.array_equal(first.table, again.table)


# Names


def test_names_are_found_as_people_write_them(predictor: Predictor) -> None:
    entities, relations = predictor.entity_names, predictor.relation_names
    assert entities.row("e7") == entities.row("Entity 7") == entities.row("ENTITY  7") == entities.row(7) == 7
    assert entities.row(np.int32(7)) == 7  # type: ignore[arg-type]
    assert relations.row("r 0") == relations.row("_r_0") == relations.row("R_0") == relations.row("relation number 0") == 0
    assert [GRAPH.entities.ids[row] for row in entities.search("entity 3", 3)] == ["e3", "e30", "e31"]
    with pytest.raises(FnftgError, match=r"'twin' is the name of 2 entities.* e8 \(Twin\), e9 \(Twin\)"):
        entities.row("twin")
    with pytest.raises(FnftgError, match=r"did you mean e12 \(Entity 12\)"):
        entities.row("entty 12")
    with pytest.raises(FnftgError, match="row 40"):
        entities.row(40)


def test_exact_case_tells_names_apart() -> None:
    graph = KnowledgeGraph.from_triples({"train": [("a", "r", "b")]}, {"a": "Polish", "b": "polish"})
    names = Names(graph.entities, "entity")
    assert names.row("polish") == graph.entities.find("b") and names.row("Polish") == graph.entities.find("a")
    with pytest.raises(FnftgError, match="2 entities"):
        names.row("POLISH")


def test_table_of_names_survives_the_disk(tmp_path: Path) -> None:
    made = NameTable.of(GRAPH.entities)
    made.save(tmp_path, "entity")
    found = NameTable.open(tmp_path, "entity")
    names = [made.names[place] for place in range(len(made.names))]
    assert names == sorted(names, key=str.encode) == [found.names[place] for place in range(len(found.names))]
    assert np.array_equal(made.rows, found.rows)
