"""Answers are those of the offline computation, whatever is asked, and bad questions get one sentence."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import subprocess
import tempfile
import unicodedata
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
from fnftg.ego.context import GraphContext
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.known_answers import ExtendedAnswers, KnownAnswers
from fnftg.errors import FnftgError
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.sources import SOURCES
from fnftg.kg import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.pretrained import save_pretrained
from fnftg.predict.index import NearestIndex
from fnftg.predict.name_index import NameIndex, NameTable, _plain, plain
from fnftg.predict.predictor import Predictor, load
from fnftg.predict.questions import Answer, NewEntity, Question, Relation
from fnftg.ranking.embedding import candidate_table
from fnftg.ranking.evidence_scores import evidence_scores
from fnftg.ranking.processes import Processes
from fnftg.ranking.search import pair_scores, top_answers
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


Here = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str]) -> Here:
    """Runs `fnftg …` in this process, which has loaded everything already."""

    def run_command(*arguments: object) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run_command


def assert_one_sentence(result: subprocess.CompletedProcess[str], words: str) -> None:
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and not result.stdout, result.stderr
    assert len(result.stderr) < 600
    assert re.search(words, result.stderr), result.stderr


# The best answers


@st.composite
def searches(draw: st.DrawFn) -> Any:
    queries, rows, k = draw(st.integers(0, 5)), draw(st.integers(0, 20)), draw(st.integers(1, 7))
    values = draw(st.sampled_from([[-1.0, 0.0, -0.0, 1.0, 2.0], [-1.0, 0.0, 1.0, math.nan, math.inf, -math.inf]]))
    vector = st.lists(st.sampled_from(values), min_size=3, max_size=3)
    query_embeddings = draw(st.lists(vector, min_size=queries, max_size=queries))
    table = draw(st.lists(vector, min_size=rows, max_size=rows))
    known = [draw(st.lists(st.integers(0, rows - 1), max_size=rows)) if rows else [] for _ in range(queries)]
    return (*(np.array(x, np.float32).reshape(-1, 3) for x in (query_embeddings, table)), known, k)


@given(searches(), st.sampled_from([1, 1 << 9, 1 << 28]), st.sampled_from(["L1", "product", "other"]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_top_answers_are_those_of_brute_force(search: Any, memory: int, score: str, on_disk: bool) -> None:
    query_embeddings, table, known, k = search
    by_distance = score == "L1"
    with np.errstate(all="ignore"):
        exact = (
            -np.abs(query_embeddings[:, None].astype(np.float64) - table).sum(2)
            if by_distance
            else (query_embeddings[:, None].astype(np.float64) * table).sum(2)
        )
    if on_disk and len(table):
        with tempfile.TemporaryFile() as file:
            table.tofile(file)
            file.flush()
            table = np.memmap(file, np.float32, "r", shape=table.shape)
    model: Any = SimpleNamespace(
        by_distance=by_distance,
        by_product=score == "product",
        device=torch.device("cpu"),
        similarity=lambda p, c: (p[:, None] * c).sum(2),
    )
    offsets = np.cumsum([0, *map(len, known)])
    rows = np.array([row for some in known for row in some], np.int64)
    scores, found = top_answers(model, query_embeddings, table, offsets, rows, k, memory)
    assert (
        scores.shape == found.shape == (len(query_embeddings), k)
        and scores.dtype == np.float32
        and found.dtype == np.int64
    )
    for query in range(len(query_embeddings)):
        there = [
            (-score, row)
            for row, score in enumerate(exact[query].tolist())
            if row not in known[query] and not math.isnan(score)
        ]
        best = sorted(there)[:k] + [(math.inf, -1)] * (k - len(there))
        assert found[query].tolist() == [row for _, row in best]
        assert scores[query].tolist() == [-score for score, _ in best]
        alone = pair_scores(model, query_embeddings, table, np.full(len(table), query), np.arange(len(table)))
        assert np.array_equal(alone, exact[query], equal_nan=True)


def test_each_query_has_its_own_filter_whatever_the_number_of_known_answers() -> None:
    generator = np.random.default_rng(0)
    query_embeddings, table = generator.normal(size=(30, 8)), generator.normal(size=(500, 8))
    query_embeddings, table = query_embeddings.astype(np.float32), table.astype(np.float32)
    known = [generator.choice(500, size, replace=False) for size in generator.integers(0, 500, 30)]
    offsets = np.cumsum([0, *map(len, known)])
    model: Any = SimpleNamespace(by_distance=True)
    scores, found = top_answers(model, query_embeddings, table, offsets, np.concatenate(known), 7, 1 << 14)
    for query in range(30):
        alone = top_answers(model, query_embeddings[[query]], table, np.array([0, len(known[query])]), known[query], 7)
        assert np.array_equal(scores[query], alone[0][0]) and np.array_equal(found[query], alone[1][0])


# The promise


def small_model(**changes: Any) -> FnF:
    text = TextConfig(encoder=ENCODER.name, width=16, training="frozen", query="vector")
    config = FnFConfig(text=text, ego=EgoConfig(num_neighbours=4, evaluation_num_neighbours=200))
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
    context = GraphContext.of(model.texts(graph), graph.all_triples(), model.ego.directions)
    table = candidate_table(model, context, np.arange(entities, dtype=np.int32), 1 << 28, Processes())
    head, relation, tail = question
    centre, row = graph.entities.find(head or tail), graph.relations.find(relation)
    label = np.array([row if head else row + relations], np.int32)
    centres = np.array([centre], np.int32)
    _, point = model(context.texts, centres, context.ego_graphs(model.ego, centres, None), label, False)
    scores = model.similarity(point.double(), torch.from_numpy(table).double())[0].float().numpy()
    evidence = evidence_scores(model, context, centres, label)
    scores[evidence.rows] += evidence.values
    true = {tuple(triple) for triple in graph.all_triples().tolist()}
    found = [
        (-score, candidate)
        for candidate, score in enumerate(scores.tolist())
        if (((centre, row, candidate) if head else (candidate, row, centre)) in true) <= (not filtered)
        and (candidate != centre or (centre, row, centre) in true)
    ]
    return [(graph.entities.ids[candidate], -score) for score, candidate in sorted(found)[:k]]


def assert_same(answers: list[Answer], expected: list[tuple[str, float]]) -> None:
    assert [answer.score for answer in answers] == pytest.approx([score for _, score in expected], abs=1e-5, rel=1e-6)
    scores = dict(expected)
    for answer in answers:  # those with nearly the same score may change places
        assert answer.score == pytest.approx(scores.get(answer.id, expected[-1][1]), abs=1e-5, rel=1e-6)
    assert [answer.rank for answer in answers] == list(range(1, len(answers) + 1))


def evidence_from(*sources: str, **options: Any) -> dict[str, Any]:
    """With texts whose similarities differ."""
    return {"score": "cosine", "text__pooling": "mean", "evidence": EvidenceConfig([*sources], **options)}


MODELS: dict[str, dict[str, Any]] = {
    "transe": {},
    "distmult": {"score": "distmult"},
    "complex": {"score": "complex"},
    "cosine": {"score": "cosine", "graph__label_histogram": True},
    "text_knn": evidence_from("text_knn", num_nearest=6, num_candidates=9),
    "relation_cooccurrence": evidence_from("relation_cooccurrence", initial_weight=1.0),
    "mentions": evidence_from("mentions", initial_weight=1.0),
    "mentions in whole texts": evidence_from("mentions", initial_weight=1.0, mention_words=0),
    "mentions in nine words": evidence_from("mentions", initial_weight=1.0, mention_words=9),
    "few_shot_prior": evidence_from("few_shot_prior", num_nearest=4, num_candidates=9),
    "relation_text": evidence_from("relation_text", num_nearest=4, num_candidates=9),
    "all of these": evidence_from(*SOURCES, num_nearest=3, evaluation_num_nearest=7, num_candidates=9),
    "outgoing": {"ego__directions": "out"},
    "drawn": {"ego__evaluation_num_neighbours": 3},
    "query texts": {"text__query": "text"},
    "fine-tuned": {"text__training": "finetune"},
    "centre": {"text__training": "finetune-centre"},
    "without ego-graphs": {"ego_graphs": False},
}


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_new_entity_has_the_answers_of_the_same_entity_imported(changes: dict[str, Any], tmp_path: Path) -> None:
    model = small_model(**changes)
    predictor = fnftg.load(run_of(model, tmp_path))
    other = NewEntity("a second one of the first kind", edges=[("_r_2", "e3")], id="other")
    linked = NewEntity("one of the first kind", [("_r_1", "e3"), ("_r_0", other)], [("_r_3", "e5")], id="new")
    other.edges.append(("_r_1", linked))  # type: ignore[attr-defined]
    naming = "Kind, which is a twin of Entity 3 and of entity 12"  # names others, and is in the texts of all others
    cases: list[tuple[NewEntity, dict[str, str], list[tuple[str, str, str]]]] = [
        (NewEntity(naming, [("_r_1", "e3")], id="new"), {"new": naming}, [("new", "_r_1", "e3")]),
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


@pytest.mark.parametrize("changes", [{}, {"score": "distmult"}, {"text__query": "text"}, MODELS["all of these"]])
def test_new_relation_has_the_answers_of_the_same_relation_imported(changes: dict[str, Any], tmp_path: Path) -> None:
    model = small_model(**changes)
    predictor = fnftg.load(run_of(model, tmp_path))
    text = "is the natural predator of"
    GRAPH.extended({"new": "one more"}, {"eats": text}, [("new", "eats", "e3"), ("e5", "_r_2", "new")]).save(
        tmp_path / "s"
    )
    entity = NewEntity("one more", [(Relation(text), "e3")], [("_r_2", "e5")], id="new")
    assert_same(predictor.tails(entity, Relation(text), 45), offline(model, tmp_path / "s", ("new", "eats", None), 45))
    assert_same(predictor.heads(Relation(text), entity, 45), offline(model, tmp_path / "s", (None, "eats", "new"), 45))
    GRAPH.extended({}, {"eats": text}).save(tmp_path / "alone")
    expected = offline(model, tmp_path / "alone", ("e2", "eats", None), 45)
    assert_same(predictor.tails("e2", Relation(text), 45), expected)
    assert len(predictor.relations(entity, "e3", 10, known=True)) == 5


@pytest.mark.parametrize("changes", [{}, MODELS["all of these"]], ids=["transe", "all evidence"])
def test_what_is_added_twice_has_the_answers_of_both_imported(changes: dict[str, Any], tmp_path: Path) -> None:
    """And so has a question about something new to a graph to which something was added."""
    model = small_model(**changes)
    predictor = fnftg.load(run_of(model, tmp_path))
    first = NewEntity("one of the first kind", [("_r_1", "e3")], [("_r_2", "e5")], id="first")
    second = NewEntity("a second one", [("_r_1", "e3"), ("_r_1", "first")], id="second")
    triples = [("first", "_r_1", "e3"), ("e5", "_r_2", "first"), ("second", "_r_1", "e3"), ("second", "_r_1", "first")]
    GRAPH.extended({"first": first.text, "second": second.text}, triples=triples).save(tmp_path / "store")
    grown = predictor.add(first)
    for asked in (grown, grown.add(second)):
        entity: Any = second if asked is grown else "second"
        for relation in ("_r_1", "_r_2"):
            expected = offline(model, tmp_path / "store", ("second", relation, None), 45)
            assert_same(asked.tails(entity, relation, 45), expected)
            expected = offline(model, tmp_path / "store", (None, relation, "second"), 45)
            assert_same(asked.heads(relation, entity, 45), expected)


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
    assert {answer.id for answer in marked if answer.known} == known and len(marked) == 39
    relations = {r for h, r, t in TRIPLES if (h, t) == ("e3", "e4")}
    assert relations and not relations & {answer.id for answer in predictor.relations("e3", "e4")}
    assert {a.id for a in predictor.relations("e3", "e4", known=True) if a.known} == relations


def test_equal_scores_come_in_the_order_of_rows(predictor: Predictor) -> None:
    flat = replace(predictor, table=np.zeros_like(predictor.table))
    others = [id_ for id_ in GRAPH.entities.ids.slice(0, 40) if id_ != "e3"]
    assert [answer.id for answer in flat.tails("e3", "_r_1", 40, known=True)] == others


def test_nothing_is_its_own_answer_unless_the_graph_says_so(predictor: Predictor) -> None:
    new = NewEntity("A new one", edges=[("_r_1", "e3")], id="new")
    for known in (False, True):
        for entity, id_ in (("e3", "e3"), (new, "new")):
            assert id_ not in {answer.id for answer in predictor.tails(entity, "_r_2", 50, known=known)}
            assert id_ not in {answer.id for answer in predictor.heads("_r_2", entity, 50, known=known)}
    looped = predictor.add(triples=[("e3", "_r_2", "e3")])
    assert "e3" not in {answer.id for answer in looped.tails("e3", "_r_2", 50)}
    assert "e3" in {answer.id for answer in looped.tails("e3", "_r_2", 50, known=True) if answer.known}


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
    base = KnownAnswers.of(old, 5, 2)
    grown, more = base.extended(new, 7, 3), ExtendedAnswers.of(base, new, 7, 3)
    assert np.array_equal(grown.packed, KnownAnswers.of(np.concatenate([old, new]), 7, 3).packed)
    centres, labels = (part.ravel().astype(np.int32) for part in np.indices((7, 6)))
    for one, other in zip(more(centres, labels), grown(centres, labels), strict=True):
        assert np.array_equal(one, other), "the same without a copy"


def test_second_loading_embeds_nothing(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fnftg.load(run_folder)
    monkeypatch.setattr("fnftg.predict.answer_cache.candidate_table", None)
    again = fnftg.load(run_folder)
    assert isinstance(again.table, np.memmap) and np.array_equal(first.table, again.table)


# Names


def test_names_are_found_as_people_write_them(predictor: Predictor) -> None:
    entities, relations = predictor.entity_names, predictor.relation_names
    assert entities.row("e7") == entities.row("Entity 7") == entities.row("ENTITY  7")
    assert entities.row(np.int32(7)) == entities.row(7) == 7  # type: ignore[arg-type]
    assert relations.row("r 0") == relations.row("_r_0") == relations.row("R_0") == relations.row("relation number 0")
    assert [GRAPH.entities.ids[row] for row in entities.search("entity 3", 3)] == ["e3", "e30", "e31"]
    with pytest.raises(FnftgError, match=r"'twin' is the name of 2 entities.* e8 \(Twin\), e9 \(Twin\)"):
        entities.row("twin")
    with pytest.raises(FnftgError, match=r"did you mean e12 \(Entity 12\)"):
        entities.row("entty 12")
    with pytest.raises(FnftgError, match="row 40"):
        entities.row(40)


def test_exact_case_tells_names_apart() -> None:
    graph = KnowledgeGraph.from_triples({"train": [("a", "r", "b")]}, {"a": "Polish", "b": "polish"})
    names = NameIndex(graph.entities, "entity")
    assert names.row("polish") == graph.entities.find("b") and names.row("Polish") == graph.entities.find("a")
    with pytest.raises(FnftgError, match="2 entities"):
        names.row("POLISH")


def test_a_name_is_found_in_whatever_unicode_form_it_is_typed_or_stored() -> None:
    composed, decomposed = "Zürich", unicodedata.normalize("NFD", "Zürich")
    graph = KnowledgeGraph.from_triples(
        {"train": [("a", "r", "b"), ("c", unicodedata.normalize("NFD", "naître"), "c")]},
        {
            "a": composed,
            "b": unicodedata.normalize("NFD", "Málaga, a town"),
            "c": unicodedata.normalize("NFD", "zürich"),
        },
    )
    names = NameIndex(graph.entities, "entity")
    assert names.row("málaga") == names.row(unicodedata.normalize("NFD", "MÁLAGA")) == graph.entities.find("b")
    assert names.row(composed) == names.row(decomposed) == graph.entities.find("a")  # c differs by its case
    assert (
        names.search("mála", 5) == names.search(unicodedata.normalize("NFD", "mála"), 5) == [graph.entities.find("b")]
    )
    assert NameIndex(graph.relations, "relation").row("naître") == graph.relations.find("r") + 1
    with pytest.raises(FnftgError, match="not Unicode text"):
        names.row("Z\udcfcrich")


@given(st.text())
@settings(max_examples=500, deadline=None)
def test_the_table_of_names_and_those_who_ask_it_spell_alike(name: str) -> None:
    found = plain(name)
    assert found == _plain(pl.Series([name]))[0] == plain(unicodedata.normalize("NFD", name))


def test_table_of_names_survives_the_disk(tmp_path: Path) -> None:
    made = NameTable.of(GRAPH.entities)
    made.save(tmp_path, "entity")
    found = NameTable.open(tmp_path, "entity", len(GRAPH.entities))
    names = [made.names[place] for place in range(len(made.names))]
    assert names == sorted(names, key=str.encode) == [found.names[place] for place in range(len(found.names))]
    assert np.array_equal(made.rows, found.rows)


# Growing


@pytest.fixture
def own_run(run_folder: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    shutil.copytree(run_folder, tmp_path / "run", ignore=shutil.ignore_patterns("answers"))
    return tmp_path / "run"


def written(path: Path, *lines: tuple[str, ...]) -> Path:
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    "changes", [{}, MODELS["all of these"], {"text__training": "finetune"}, {"text__training": "finetune-centre"}]
)
def test_updated_answers_are_those_of_embedding_everything_anew(
    changes: dict[str, Any], tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(small_model(**changes), tmp_path)
    new_texts = written(tmp_path / "new.txt", ("n1", "A new one of the first kind"), ("n2", "Another"))
    triples = written(tmp_path / "new.tsv", ("n1", "_r_1", "e3"), ("n2", "_r_0", "n1"), ("e3", "eats", "e5"))
    relations = written(tmp_path / "relations.txt", ("eats", "eats"), ("_r_0", "relation number 0"))
    encoded: list[int] = []
    real = fnftg.text.features.encode_rows  # type: ignore[attr-defined]

    def counted(model: Any, tokens: Any, rows: Any, *rest: Any, **options: Any) -> Any:
        encoded.append(len(rows))
        return real(model, tokens, rows, *rest, **options)

    monkeypatch.setattr("fnftg.text.features.encode_rows", counted)
    fnftg.load(run)
    encoded.clear()
    files = ("--triples", triples, "--texts", new_texts, "--relation-texts", relations)
    result = here("update", run, *files, "--json")
    assert result.returncode == 0, result.stderr
    done = json.loads(result.stdout)
    assert (done["entities"], done["relations"], done["triples"]) == (2, 1, 3)
    assert done["embedded"] == 4
    more = written(tmp_path / "more.tsv", ("e7", "eats", "e9"))
    assert here("update", run, "--triples", more).returncode == 0
    updated = fnftg.load(run)
    assert sum(encoded) <= 4, "no old text is encoded again"
    assert len(updated.graph.triples("added")) == 4 and len(list((run / "graphs").iterdir())) == 1
    shutil.copytree(run, tmp_path / "fresh", ignore=shutil.ignore_patterns("answers"))
    anew = load(tmp_path / "fresh", updated.graph.path)
    assert np.allclose(updated.table, anew.table, atol=1e-5)
    assert np.array_equal(updated.known.packed, anew.known.packed)
    for one, other in zip(
        (updated.context.neighbours.offsets, updated.context.neighbours.entities, updated.context.neighbours.labels),
        (anew.context.neighbours.offsets, anew.context.neighbours.entities, anew.context.neighbours.labels),
        strict=True,
    ):
        assert np.array_equal(one, other)
    question = Question(NewEntity("Another one", [("eats", "n1")]), "eats")
    expected = [(answer.id, answer.score) for answer in anew.many([question], 20)[0]]
    assert_same(updated.many([question], 20)[0], expected)


def test_an_update_given_twice_changes_nothing_the_second_time(own_run: Path, tmp_path: Path, here: Here) -> None:
    texts = written(tmp_path / "new.txt", ("n1", "A new one"))
    known = tuple(TRIPLES[0])
    triples = written(tmp_path / "new.tsv", ("n1", "_r_1", "e3"), known, ("e3", "_r_1", "n1"), ("n1", "_r_1", "e3"))
    files = ("--triples", triples, "--texts", texts)
    first = here("update", own_run, *files)
    assert first.returncode == 0 and "triples: 2;" in first.stderr and "2 triples were already in" in first.stderr

    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in own_run.rglob("*") if path.is_file()}

    before = state()
    again = here("update", own_run, *files)
    assert again.returncode == 0 and "Nothing is new" in again.stderr and "4 triples were already in" in again.stderr
    done = json.loads(here("update", own_run, *files, "--json").stdout)
    assert (done["entities"], done["triples"], done["known"], done["embedded"]) == (0, 0, 4, 0)
    assert state() == before
    graph = fnftg.load(own_run).graph
    assert done["graph"] == str(graph.path) and len(graph.triples("added")) == 2


def test_update_that_is_cut_short_leaves_the_old_graph_current(
    own_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Here
) -> None:
    before = fnftg.load(own_run).tails("e3", "_r_1", 40)
    texts = written(tmp_path / "new.txt", ("n1", "A new one"))
    for step in ("write_extended", "answer_cache.set_current_graph"):
        with monkeypatch.context() as patch:
            patch.setattr(f"fnftg.predict.graph_update.{step}", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                here("update", own_run, "--texts", texts)
        assert fnftg.load(own_run).tails("e3", "_r_1", 40) == before
    assert here("update", own_run, "--texts", texts).returncode == 0
    assert len(fnftg.load(own_run).graph.entities) == ENTITIES + 1
    assert len(list((own_run / "graphs").iterdir())) == 1, "nothing is left of those cut short"


@pytest.mark.parametrize(
    ("triples", "texts", "words"),
    [
        (
            [("e1", "_r_0", "nobody")],
            [],
            r"new.tsv, line 1: the graph has no entity 'nobody'; give its text with --texts",
        ),
        ([("e1", "_r_0", "e2"), ("e1", "hates", "e2")], [], r"line 2: .* no relation 'hates'; .*--relation-texts"),
        ([], [("e1", "Another text")], r"new.txt, line 1: the entity 'e1' already has another text"),
        ([("e1", "_r_0")], [], r"line 1: 2 tab-separated"),
    ],
)
def test_updates_that_make_no_sense_change_nothing(
    triples: Any, texts: Any, words: str, own_run: Path, tmp_path: Path, here: Here
) -> None:
    files = [("--triples", written(tmp_path / "new.tsv", *triples))] if triples else []
    files += [("--texts", written(tmp_path / "new.txt", *texts))] if texts else []
    assert_one_sentence(here("update", own_run, *(word for option in files for word in option)), words)
    assert not (own_run / "graphs").exists() and not (own_run / "answers" / "graph.json").exists()


# The index


@pytest.mark.parametrize("by_distance", [True, False])
def test_index_finds_nearly_all_and_scores_exactly(
    by_distance: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr("fnftg.kernels.vector_index.COMPRESSED", 0)
    generator = np.random.default_rng(0)
    base = generator.normal(size=(4, 12))
    table, query_embeddings = (generator.normal(size=(count, 4)) @ base for count in (3_000, 50))
    table, query_embeddings = table.astype(np.float32), query_embeddings.astype(np.float32)
    model: Any = SimpleNamespace(
        by_distance=by_distance,
        by_product=not by_distance,
        device=torch.device("cpu"),
        width=12,
        similarity=lambda p, c: p @ c.T,
    )
    built = NearestIndex.built(model, table, query_embeddings)
    assert built.recall >= 0.95 and built.queries == 50
    built.save(tmp_path / "index")
    index = NearestIndex.open(tmp_path / "index", 3_000)
    assert index is not None
    known = [generator.choice(3_000, 20, replace=False) for _ in range(50)]
    best = top_answers(model, query_embeddings, table, np.arange(51) * 20, np.concatenate(known), 10)
    scores, found = index.search(model, table, query_embeddings, np.arange(51) * 20, np.concatenate(known), 10)
    assert not any(set(rows) & set(some.tolist()) for rows, some in zip(found.tolist(), known, strict=True))
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), best[1].tolist(), strict=True)]) > 0.9
    exact = pair_scores(model, query_embeddings, table, np.repeat(np.arange(50), 10), found.ravel())
    assert np.array_equal(scores.ravel(), exact)
    changed = np.array([*range(100), *range(3_000, 3_050)])  # new vectors, in old rows and in new ones
    grown_table = np.concatenate([table, table[:50]])
    grown_table[changed] = (generator.normal(size=(150, 4)) @ base).astype(np.float32)
    grown = index.extended(model, grown_table, changed, query_embeddings)
    assert grown.recall >= 0.95 and len(grown.rows) == 3_150, "added, not built anew"
    _, found = grown.search(model, grown_table, grown_table[changed], np.zeros(151, np.int64), changed[:0], 1)
    if by_distance:
        assert np.mean(found[:, 0] == changed) > 0.95
    assert len(grown.extended(model, grown_table, np.arange(2_000), query_embeddings).rows) == 3_050, (
        "too much of it was skipped"
    )


def test_index_keeps_in_step_with_an_update(own_run: Path, tmp_path: Path, here: Here) -> None:
    pytest.importorskip("faiss")
    result = here("predict", own_run, "--head", "e3", "--relation", "_r_1", "--index", "--json")
    assert result.returncode == 0 and "100.0% of the ten best" in result.stderr
    exact = here("predict", own_run, "--head", "e3", "--relation", "_r_1", "--json")
    assert json.loads(result.stdout) == json.loads(exact.stdout)
    texts = written(tmp_path / "new.txt", ("n1", "A new one"))
    done = here("update", own_run, "--texts", texts, "--json")
    assert json.loads(done.stdout)["index_recall"] == 1.0
    predictor = fnftg.load(own_run)
    indexed = predictor.indexed()
    assert indexed.index is not None and len(indexed.index.rows) == ENTITIES + 1
    question = Question(NewEntity("One more", [("_r_1", "n1")]), "_r_0")
    assert indexed.many([question], 41) == predictor.many([question], 41)


# Commands


def test_predict_prints_a_table_or_json(run_folder: Path, here: Here, predictor: Predictor) -> None:
    table = here("predict", run_folder, "--head", "entity 3", "--relation", "r 1", "-k", 3)
    assert table.returncode == 0 and "entity 3 — r 1 — ?" in table.stdout, table.stderr
    found = json.loads(here("predict", run_folder, "--head", "e3", "--relation", "_r_1", "-k", 3, "--json").stdout)
    assert found["question"] == {"head": "e3", "relation": "_r_1", "tail": None}
    assert found["answers"] == [answer.as_dict() for answer in predictor.tails("e3", "_r_1", 3)]
    relations = here("predict", run_folder, "--head", "e3", "--tail", "e4", "--known", "--json")
    assert json.loads(relations.stdout)["answers"] == [a.as_dict() for a in predictor.relations("e3", "e4", known=True)]
    marked = here("predict", run_folder, "--head", "e3", "--relation", "_r_0", "--known", "-k", 40)
    assert "known" in marked.stdout


def test_predict_answers_for_what_does_not_exist_yet(run_folder: Path, tmp_path: Path, here: Here) -> None:
    predictor = fnftg.load(run_folder)
    new = ("--text", "One of the first kind", "--edge", "_r_1=e3", "--edge-from", "entity 5=_r_2", "--id", "new")
    entity = NewEntity("One of the first kind", [("_r_1", "e3")], [("_r_2", "e5")], id="new")
    store = tmp_path / "store"
    tails = here("predict", run_folder, *new, "--relation", "_r_0", "--save", store, "--json")
    assert json.loads(tails.stdout)["answers"] == [answer.as_dict() for answer in predictor.tails(entity, "_r_0")]
    assert KnowledgeGraph.open(store).entities.find("new") == ENTITIES
    heads = here("predict", run_folder, *new, "--ask", "heads", "--relation-text", "is near", "--json")
    assert json.loads(heads.stdout)["answers"] == [a.as_dict() for a in predictor.heads(Relation("is near"), entity)]
    both = here("predict", run_folder, *new, "--head", "e9", "--json")
    assert json.loads(both.stdout)["answers"] == [answer.as_dict() for answer in predictor.relations("e9", entity)]


def test_predict_gives_reasons_for_the_best_answer(run_folder: Path, here: Here, predictor: Predictor) -> None:
    new = NewEntity("a new thing", edges=[("_r_0", "e1")])
    for options, question in (
        (("--head", "e3", "--relation", "_r_1"), ("e3", "_r_1", None)),
        (("--relation", "_r_1", "--tail", "e3"), (None, "_r_1", "e3")),
        (("--head", "e3", "--tail", "e4"), ("e3", None, "e4")),
        (("--text", new.text, "--edge", "_r_0=e1", "--relation", "_r_1"), (new, "_r_1", None)),
    ):
        told = json.loads(here("predict", run_folder, *options, "--reasons", "--json").stdout)
        best = next(answer["id"] for answer in told["answers"] if not answer["id"].startswith("new:"))
        triple: Any = [best if part is None else part for part in question]
        found = predictor.explain(*triple, "head" if question[0] is None else "tail")
        assert told["reasons"]["score"] == pytest.approx(found.score, abs=1e-4)
        assert [told["reasons"][part]["id"] for part in ("head", "relation", "tail")] == [
            part.id for part in (found.head, found.relation, found.tail)
        ]
        table = here("predict", run_folder, *options, "--reasons")
        assert table.returncode == 0 and "Why " in table.stdout and "query words" in table.stdout


def test_batches_are_answered_line_by_line(
    run_folder: Path, tmp_path: Path, here: Here, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fnftg.predict.commands.predict.BLOCK", 2)
    new = {"text": "A new one", "edges": [["_r_1", {"text": "Another", "id": "x"}]], "incoming": [["_r_0", "e1"]]}
    lines = [{"head": "e1", "relation": "_r_0"}, {"relation": {"text": "near"}, "tail": 3}, {"head": new, "tail": "e2"}]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    result = here("predict", run_folder, "--batch", file, "-k", 4)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    entity = NewEntity("A new one", [("_r_1", NewEntity("Another", id="x"))], [("_r_0", "e1")])
    questions = [Question("e1", "_r_0"), Question(None, Relation("near"), 3), Question(entity, None, "e2")]
    for line, answers in zip(found, predictor.many(questions, 4), strict=True):
        assert_same(answers, [(answer["id"], answer["score"]) for answer in line["answers"]])
    piped = SimpleNamespace(buffer=io.BytesIO(file.read_bytes()))
    monkeypatch.setattr("sys.stdin", piped)
    assert here("predict", run_folder, "--batch", "-", "-k", 4).stdout == result.stdout


KNOWN = ("--head", "e3", "--relation", "_r_1")
BAD_QUESTIONS: dict[str, tuple[tuple[object, ...], str]] = {
    "unknown entity": (("--head", "entity 99", "--relation", "_r_1"), r"no entity 'entity 99': did you mean e\d+"),
    "unknown relation": (("--head", "e3", "--relation", "r 9"), "no relation 'r 9': did you mean _r_"),
    "ambiguous entity": (("--head", "twin", "--relation", "_r_1"), "name of 2 entities: give an id instead"),
    "empty entity": (("--head", " ", "--relation", "_r_1"), "The entity is empty"),
    "empty text": (("--text", " \n", "--relation", "_r_1"), "text of the new entity is empty"),
    "text that is not UTF-8": (("--text", "a\udcff", "--relation", "_r_1"), "is not UTF-8"),
    "entity that is not UTF-8": (("--head", "a\udcff", "--relation", "_r_1"), "is not UTF-8"),
    "text of 1 MB": (("--text", "long " * 200_000, "--relation", "_r_1"), "1,000,000 characters: give 20,000 at most"),
    "edge to nobody": (("--text", "a", "--edge", "_r_1=nobody", "--relation", "_r_1"), "no entity 'nobody'"),
    "edge of no relation": (("--text", "a", "--edge", "likes=e3", "--relation", "_r_1"), "no relation 'likes'"),
    "no edge": (("--text", "a", "--edge", "e3", "--relation", "_r_1"), "write RELATION=ENTITY"),
    "too many edges": (("--text", "a", *["--edge", "_r_1=e3"] * 65, "--relation", "_r_1"), "65 edges: give 64 at most"),
    "taken id": (("--text", "a", "--id", "e3", "--relation", "_r_1"), "already has an entity 'e3'"),
    "k of 0": ((*KNOWN, "-k", 0), "k is 0: ask for 1 to 10,000"),
    "k of a billion": ((*KNOWN, "-k", 10**9), "k is 1000000000"),
    "empty relation text": (("--head", "e3", "--relation-text", ""), "text of the new relation is empty"),
    "two relations": ((*KNOWN, "--relation-text", "a"), "exclude each other"),
    "nothing asked": (("--head", "e3"), "Give two of"),
    "all given": ((*KNOWN, "--tail", "e4"), "no probabilities of triples"),
    "three entities": (("--head", "e3", "--tail", "e4", "--text", "a"), "third entity"),
    "edge of nothing": ((*KNOWN, "--edge", "_r_1=e3"), "describe it with --text"),
    "ask for what is given": ((*KNOWN, "--ask", "heads"), "ask for tails"),
    "batch and question": ((*KNOWN, "--batch", "x"), "reads all questions from its file"),
    "batch that is not there": (("--batch", "/nowhere"), "/nowhere is not a file"),
    "graph that is not there": ((*KNOWN, "--graph", "/nowhere"), "/nowhere does not exist and is not a dataset"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD_QUESTIONS.values(), ids=BAD_QUESTIONS)
def test_bad_questions_get_one_sentence(
    run_folder: Path, here: Here, arguments: tuple[object, ...], words: str, predictor: Predictor
) -> None:
    assert_one_sentence(here("predict", run_folder, *arguments), words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"head": "e1", "relation": }', "line 2: the line is not JSON"),
        ('["e1", "_r_0"]', "line 2: a question is"),
        ('{"head": "e1"}', "line 2: A question must have two"),
        ('{"head": {"text": ""}, "relation": "_r_0"}', "line 2: The text of the new entity is empty"),
        ('{"head": {"text": "a", "edges": ["e1"]}, "relation": "_r_0"}', "line 2: .*list of .relation, entity. pairs"),
        ('{"head": {"name": "a"}, "relation": "_r_0"}', "line 2: .*is not an entity"),
        ('{"head": true, "relation": "_r_0"}', "line 2: 'true' is not an entity"),
        ('{"head": 400, "relation": "_r_0"}', "line 2: There is no entity in row 400"),
        ('{"head": "nobody", "relation": "_r_0"}', "line 2: The graph has no entity 'nobody'"),
        ("[" * 100_000, "line 2: "),
    ],
)
def test_bad_lines_are_named(line: str, words: str, run_folder: Path, tmp_path: Path, here: Here) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"head": "e1", "relation": "_r_0"}\n' + line + "\n")
    assert_one_sentence(here("predict", run_folder, "--batch", file), words)


def test_folders_that_are_gone_or_no_runs_are_told(own_run: Path, tmp_path: Path, here: Here) -> None:
    assert_one_sentence(here("predict", tmp_path / "nothing", *KNOWN), "contains no model")
    assert_one_sentence(here("predict", own_run / "checkpoint", *KNOWN), "name one with --graph")
    config = json.loads((own_run / "config.json").read_text())
    (own_run / "config.json").write_text(json.dumps({**config, "graph": str(tmp_path / "gone")}))
    assert_one_sentence(here("predict", own_run, *KNOWN), "is no longer at .*name the graph with --graph")
    named = here("predict", own_run / "checkpoint", *KNOWN, "--graph", config["graph"], "--json")
    assert len(json.loads(named.stdout)["answers"]) == 10
    table = next((own_run.parent / "run").glob("answers/*/table.npy"), None)
    assert table is None, "without its graph nothing is kept"


def test_damaged_answers_are_made_again_with_a_notice(own_run: Path, here: Here) -> None:
    predictor = fnftg.load(own_run)
    expected = here("predict", own_run, *KNOWN)
    assert predictor.folder is not None
    (predictor.folder / "table.npy").write_bytes(b"nonsense")
    found = here("predict", own_run, *KNOWN)
    assert found.stdout == expected.stdout and "The cached answers are computed again." in found.stderr
    assert found.stderr.count("\n") == 1
    assert here("predict", own_run, *KNOWN).stderr == ""


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "parquet", "tsv", "w2v", "txt"])
def test_embeddings_come_back_from_every_format(suffix: str, predictor: Predictor, tmp_path: Path, here: Here) -> None:
    path = tmp_path / f"vectors.{suffix}"
    result = here("embed", predictor.run, "-o", path)
    assert result.returncode == 0, result.stderr
    if suffix == "safetensors":
        from safetensors.numpy import load_file

        found = load_file(path)
        ids, vectors = bytes(found["ids"]).decode().splitlines(), found["vectors"]
        assert len(found["id_offsets"]) == ENTITIES + 1
    elif suffix == "npz":
        arrays = np.load(path, allow_pickle=False)
        ids, vectors = arrays["ids"].tolist(), arrays["vectors"]
    elif suffix == "parquet":
        frame = pl.read_parquet(path)
        ids, vectors = frame["id"].to_list(), frame["vector"].to_numpy()
        assert frame["name"][7] == GRAPH.entities.name(7)
    else:
        lines = path.read_text().splitlines()
        if suffix != "tsv":
            assert lines.pop(0) == f"{ENTITIES} {predictor.model.width}"
        cells = [line.split("\t" if suffix == "tsv" else " ") for line in lines]
        ids, vectors = [row[0] for row in cells], np.array([row[1:] for row in cells], np.float32)
    assert ids == GRAPH.entities.ids.slice(0, ENTITIES) and np.array_equal(vectors, predictor.table)
    assert_one_sentence(here("embed", predictor.run, "-o", path), "--force")


def test_projector_gets_a_pair_of_files(predictor: Predictor, tmp_path: Path, here: Here) -> None:
    assert here("embed", predictor.run, "-o", tmp_path / "projector", "--projector").returncode == 0
    vectors = np.loadtxt(tmp_path / "projector" / "vectors.tsv", np.float32, delimiter="\t")
    metadata = (tmp_path / "projector" / "metadata.tsv").read_text().splitlines()
    assert np.array_equal(vectors, predictor.table) and metadata[0] == "id\tname" and len(metadata) == ENTITIES + 1
    assert_one_sentence(here("embed", predictor.run, "-o", tmp_path / "vectors.bin"), r"\.safetensors, \.npz")
