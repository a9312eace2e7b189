"""The server says what the predictor says, whoever asks beside; it refuses what is bad, and stays up."""

from __future__ import annotations

import json
import math
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
import torch
import uvicorn
from conftest import probability_by_hand
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from test_explain import assert_same as assert_same_reasons
from test_predict import GRAPH, TRIPLES, Here, here, run_of, small_model  # noqa: F401 (a fixture)

import fnftg
from fnftg.errors import FnftgError
from fnftg.kg.graph import Vocabulary
from fnftg.models.pretrained import save_pretrained
from fnftg.predict.commands.predict import read_question
from fnftg.predict.entity_linking import resolved
from fnftg.predict.name_index import NameIndex
from fnftg.predict.predictor import Predictor
from fnftg.predict.questions import Answer, NewEntity, Question, Relation
from fnftg.serve import batch_queue, model_manager
from fnftg.serve.app import make_app
from fnftg.serve.client import Client
from fnftg.serve.connection_table import make_table
from fnftg.serve.http_protocol import ServerConfig
from fnftg.serve.model_manager import newest_metrics
from fnftg.serve.options import Options
from fnftg.serve.schemas import MOST_BYTES, MOST_EDGES, MOST_QUERIES
from fnftg.serve.server import listening_socket

NEW = {"text": "of the first kind", "edges": [["_r_1", "e3"]], "incoming": [["_r_2", "Entity 5"]]}
QUERIES: list[dict[str, Any]] = [
    {"head": "e1", "relation": "_r_0"},
    {"head": NEW, "relation": "_r_1"},
    {"relation": "relation number 1", "tail": {**NEW, "id": "x"}},
    {"head": "Entity 3", "relation": {"text": "is far from"}},
    {"head": "e3", "tail": "e4"},
    {"head": "e3", "tail": {"text": "kind", "edges": [[{"text": "is near"}, "e3"]]}},
]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(small_model(), tmp_path_factory.mktemp("serve"))


@pytest.fixture
def own_run(run_folder: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    shutil.copytree(run_folder, tmp_path / "run")
    return tmp_path / "run"


@contextmanager
def serving(run: Path, **options: Any) -> Iterator[httpx.Client]:
    """A real server in a thread, ready; `state` of the client is the AppState that its routes share."""
    given = Options(str(run), **options)
    bound = listening_socket("127.0.0.1", 0, make_table(given.max_connections, given.behind_proxy))
    app = make_app(given)
    server = uvicorn.Server(ServerConfig(app, bound.table, log_level="error"))
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    headers = {"Authorization": f"Bearer {options['token']}"} if options.get("token") else {}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", headers=headers, timeout=30) as client:
            wait_for(lambda: client.get("/readyz").status_code == 200)
            client.state, client.server = app.state.shared, server  # type: ignore[attr-defined]
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def wait_for(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server(run_folder: Path) -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNFTG_HOME", str(run_folder.parent / "home"))
        with serving(run_folder) as client:
            yield client


@pytest.fixture
def predictor(run_folder: Path) -> Predictor:
    return fnftg.load(run_folder)


def assert_same(answers: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Within what the size of a batch may change in the last digits; there those with equal scores change places."""
    assert len(answers) == len(expected)
    scores = {answer["id"]: answer for answer in expected}
    for answer, other in zip(answers, expected, strict=True):
        assert answer["rank"] == other["rank"]
        assert answer["score"] == pytest.approx(other["score"], abs=1e-5, rel=1e-6)
        if answer["id"] in scores:
            same = scores[answer["id"]]
            assert {**answer, "rank": 0, "score": 0} == {**same, "rank": 0, "score": 0}
    assert sum(answer["id"] in scores for answer in answers) >= len(answers) - 1


def error_of(response: httpx.Response, status: int = 422) -> tuple[str, str, str | None]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"code", "message", "field"} and error["message"].endswith((".", "?"))
    return error["code"], error["message"], error["field"]


# Answers


def test_answers_are_those_of_the_command(server: httpx.Client, run_folder: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(query) + "\n" for query in QUERIES))
    for known in (False, True):
        printed = here("predict", run_folder, "--batch", file, "-k", 7, *(["--known"] if known else [])).stdout
        expected = [json.loads(line)["answers"] for line in printed.splitlines()]
        found = server.post("/v1/predict", json={"queries": QUERIES, "k": 7, "known": known}).json()["results"]
        assert [one["answers"] for one in found] == expected


def test_requests_answered_together_have_the_answers_of_each_alone(run_folder: Path) -> None:
    bodies = [
        {"queries": QUERIES[number % 3 : number % 3 + 1 + number % 4], "k": 1 + number % 9, "known": number % 2 == 0}
        for number in range(48)
    ]
    with serving(run_folder) as together, serving(run_folder, batching=False) as alone:
        with ThreadPoolExecutor(16) as threads:
            found = list(threads.map(lambda body: together.post("/v1/predict", json=body).json()["results"], bodies))
        for body, results in zip(bodies, found, strict=True):
            expected = alone.post("/v1/predict", json=body).json()["results"]
            for one, other in zip(results, expected, strict=True):
                assert_same(one["answers"], other["answers"])
        sizes = sample(together, "fnftg_batch_queries_sum") / sample(together, "fnftg_batch_queries_count")
        assert sizes > sample(alone, "fnftg_batch_queries_sum") / sample(alone, "fnftg_batch_queries_count")


def sample(client: httpx.Client, name: str, **labels: str) -> float:
    value = client.state.metrics.registry.get_sample_value(name, labels)  # type: ignore[attr-defined]
    assert value is not None
    return float(value)


@pytest.fixture(scope="module")
def probable_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With probabilities of triples."""
    run = run_of(small_model(), tmp_path_factory.mktemp("probable"))
    probability_by_hand().save(run / "checkpoint")
    return run


def as_question(query: dict[str, Any]) -> Question:
    """As the server reads it."""
    return read_question(json.dumps(query))


def test_answers_come_with_the_probabilities_of_the_predictor(probable_run: Path) -> None:
    predictor = fnftg.load(probable_run)
    questions = [as_question(query) for query in QUERIES]
    missing = predictor.missing_answers(questions)
    with serving(probable_run) as client:
        assert client.get("/v1/model").json()["calibrated"] is True
        found = client.post("/v1/predict", json={"queries": QUERIES, "k": 5, "known": True}).json()["results"]
        assert [one["missing_answer"] for one in found] == pytest.approx(missing, abs=1e-6)
        assert missing[4] is None is missing[5] and sum(one is not None for one in missing) == 4
        for one, answers in zip(found, predictor.many(questions, 5, known=True), strict=True):
            said = [answer["probability"] for answer in one["answers"]]
            assert said == pytest.approx([answer.probability for answer in answers], abs=1e-6)
            assert [value is None for value in said] == [answer["known"] for answer in one["answers"]]
        explained = client.post("/v1/explain", json={"head": "e1", "relation": "_r_0", "tail": "e9"}).json()
        expected = predictor.explain("e1", "_r_0", "e9")
        assert explained["probability"] == pytest.approx(expected.probability, abs=1e-6)
        assert [one["sentences"] for one in explained["queries"]] == [one.sentences for one in expected.queries]
        with Client(str(client.base_url)) as own:
            same = own.tails("e1", "_r_0", 5)
            assert [one.probability for one in same] == pytest.approx(
                [one.probability for one in predictor.tails("e1", "_r_0", 5)], abs=1e-6
            )


def test_questions_without_a_likely_answer_are_not_searched_if_so_wished(probable_run: Path) -> None:
    """And a wish of one request is none of another that is answered in the same batch."""
    predictor = fnftg.load(probable_run)
    queries = [resolved(as_question(query), predictor.entity_names, predictor.relation_names) for query in QUERIES]
    known = sorted(value for value in predictor.missing_answers([as_question(query) for query in QUERIES]) if value)
    least = (known[1] + known[2]) / 2
    loaded = model_manager.LoadedModel(predictor, {})
    wishes = [(least, 3), (0.0, 5), (1.0, 2)]
    works = [batch_queue.PredictRequest(loaded, queries, k, False, wish) for wish, k in wishes]
    together = [json.loads(part)["results"] for part in batch_queue.compute_together(works)]
    for results, (wish, k) in zip(together, wishes, strict=True):
        for one in results:
            searched = one["missing_answer"] is None or one["missing_answer"] >= wish
            assert (len(one["answers"]) > 0) == searched and len(one["answers"]) <= k
        assert [one["missing_answer"] for one in results] == [one["missing_answer"] for one in together[1]]
    assert [bool(one["answers"]) for one in together[0]].count(False) == 2
    assert [bool(one["answers"]) for one in together[2]] == [False] * 4 + [True] * 2, (
        "nothing is certain; relations are"
    )
    with serving(probable_run) as client:
        body = {"queries": QUERIES, "k": 3, "min_missing": least}
        alone = client.post("/v1/predict", json=body).json()["results"]
        assert [len(one["answers"]) for one in alone] == [len(one["answers"]) for one in together[0]]


def test_bad_question_harms_no_other_in_its_batch(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that fails only when it is computed."""
    real = batch_queue.answered

    def failing(predictor: Predictor, asked: Any, k: int, known: bool) -> Any:
        if any(one.delta.entities for one in asked):
            raise FnftgError("No.") if k < 9 else ZeroDivisionError
        return real(predictor, asked, k, known)

    monkeypatch.setattr(batch_queue, "answered", failing)
    bodies = [{"queries": [QUERIES[number % 2]]} for number in range(12)]
    with serving(run_folder) as client:
        with held(client, monkeypatch) as queue:
            waiting = queue.ask(*bodies)
            queue.release.set()
            assert [one.result().status_code for one in waiting] == [200, 500] * 6
        assert error_of(client.post("/v1/predict", json={"queries": [QUERIES[1]], "k": 5}))[1] == "No."
        assert client.get("/readyz").status_code == 200


def test_reasons_are_those_of_the_predictor(server: httpx.Client, predictor: Predictor) -> None:
    head, relation, tail = TRIPLES[0]
    found = server.post("/v1/explain", json={"head": head, "relation": relation, "tail": tail}).json()
    assert_same_reasons(found, predictor.explain(head, relation, tail).as_dict())
    assert found["in_graph"] and found["hidden"]
    body = {"head": NEW, "relation": {"text": "is near"}, "tail": "e7", "asked": "head", "hide": False, "nearest": 0}
    new = NewEntity(NEW["text"], [("_r_1", "e3")], [("_r_2", "e5")])  # type: ignore[arg-type]
    expected = predictor.explain(new, Relation("is near"), "e7", "head", False, 0).as_dict()
    assert_same_reasons(server.post("/v1/explain", json=body).json(), expected)


def test_vectors_are_those_that_answers_are_found_with(server: httpx.Client, predictor: Predictor) -> None:
    new = {**NEW, "id": "new"}
    found = server.post("/v1/embed", json={"entities": ["e3", new, "Entity 5", {"text": "alone"}]}).json()
    assert [one["id"] for one in found["vectors"]] == ["e3", "new", "e5", "new:1"] and found["width"] == 16
    vectors = np.array([one["vector"] for one in found["vectors"]], np.float32)
    assert np.array_equal(vectors[[0, 2]], predictor.table[[GRAPH.entities.find("e3"), GRAPH.entities.find("e5")]])
    entities = [
        NewEntity(NEW["text"], [("_r_1", "e3")], [("_r_2", "e5")], "new"),  # type: ignore[arg-type]
        NewEntity("alone", id="alone"),
    ]
    for entity, vector in zip(entities, vectors[[1, 3]], strict=True):
        grown = predictor.add(entity)
        row = grown.graph.entities.find(entity.id)  # type: ignore[arg-type]
        assert np.allclose(grown.table[row], vector, atol=1e-5)
    assert np.allclose(predictor.vectors(entities), vectors[[1, 3]], atol=1e-5)
    assert predictor.vectors([]).shape == (0, 16)


def test_entities_are_found_by_how_they_begin_then_by_how_they_are_spelled(server: httpx.Client) -> None:
    def found(**asked: Any) -> list[str]:
        return [one["id"] for one in server.get("/v1/entities", params=asked).json()["entities"]]

    assert found(q="entity 3", limit=3) == ["e3", "e30", "e31"]
    assert "e12" in found(q="entty 12") and found(q="ENTITY 12")[0] == "e12" and len(found(q="e", limit=100)) == 40
    assert found(q="%00\x00\ud7ff") == []
    first = server.get("/v1/entities", params={"q": "e3", "limit": 1}).json()["entities"][0]
    degree = sum(("e3" in (h, t)) + (h == t == "e3") for h, r, t in set(TRIPLES))
    assert first == {"id": "e3", "name": "Entity 3", "text": "Entity 3, of the first kind", "degree": degree}


def test_entity_comes_with_its_edges_both_ways(server: httpx.Client) -> None:
    found = server.get("/v1/entities/e3", params={"limit": 200}).json()
    edges = {(one["relation"]["id"], one["direction"], one["neighbour"]["id"]) for one in found["edges"]}
    own = set(TRIPLES)
    expected = {(r, "out", t) for h, r, t in own if h == "e3"} | {(r, "in", h) for h, r, t in own if t == "e3"}
    assert edges == expected and len(found["edges"]) == found["degree"] == len(expected)
    assert found["edges"][0]["relation"]["name"] and found["edges"][0]["neighbour"]["text"]
    assert len(server.get("/v1/entities/e3?limit=2").json()["edges"]) == 2
    assert error_of(server.get("/v1/entities/no/such%20one"), 404)[0] == "not_found"
    assert error_of(server.get("/v1/entities/e3?limit=201"))[2] == "limit"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/entities/e1", None),
        ("GET", "/v1/entities?q=e1", None),
        ("POST", "/v1/predict", {"queries": [{"head": "e1", "relation": "_r_0"}]}),
        ("POST", "/v1/explain", {"head": "e1", "relation": "_r_0", "tail": "e2"}),
        ("POST", "/v1/embed", {"entities": ["e1"]}),
    ],
)
def test_search_of_an_entity_does_not_block_the_event_loop(
    method: str, path: str, body: Any, server: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that hangs, as one of a memory map on a slow disk may, keeps no other request waiting."""
    release, started = threading.Event(), threading.Event()

    def slow(real: Callable[..., Any]) -> Callable[..., Any]:
        def search(*arguments: Any) -> Any:
            started.set()
            assert release.wait(20)
            return real(*arguments)

        return search

    monkeypatch.setattr(Vocabulary, "find", slow(Vocabulary.find))
    monkeypatch.setattr(NameIndex, "search", slow(NameIndex.search))
    with ThreadPoolExecutor(1) as pool:
        try:
            response = pool.submit(server.request, method, path, json=body)
            assert started.wait(20)
            assert httpx.get(server.base_url.join("/healthz"), timeout=5).json() == {"status": "ok"}
            assert not response.done()
        finally:
            release.set()
        assert response.result().status_code == 200


def test_relations_come_with_their_numbers(server: httpx.Client) -> None:
    found = server.get("/v1/relations").json()["relations"]
    counts = {relation: sum(r == relation for h, r, t in set(TRIPLES)) for relation in (f"_r_{i}" for i in range(4))}
    assert {one["id"]: one["triples"] for one in found} == counts
    assert [one["triples"] for one in found] == sorted(counts.values(), reverse=True)
    assert found[0]["text"] == "relation number 0"


def test_model_says_what_it_is(server: httpx.Client, run_folder: Path, tmp_path: Path) -> None:
    found = server.get("/v1/model").json()
    weights = run_folder / "checkpoint" / "model.safetensors"
    assert found["checkpoint"] == fnftg.files.sha256(weights) and found["version"] == fnftg.__version__  # type: ignore[attr-defined]
    assert found["graph"] == {"name": "graph", "entities": 40, "relations": 4, "triples": len(GRAPH.all_triples())}
    assert (found["system"], found["width"], found["calibrated"], found["metrics"]) == ("FnF-TG", 16, False, None)
    (tmp_path / "evaluations").mkdir()
    figures = {"mrr": 0.5, "hits@1": 0.4, "hits@3": 0.5, "hits@10": 0.6}
    results = {"key": ["sum", ""], "split": "test", "protocol": {"name": "cumulative"}, **figures, "seed": 1}
    (tmp_path / "evaluations" / "test-cumulative.json").write_text(json.dumps(results))
    (tmp_path / "evaluations" / "val-cumulative.json").write_text("[]")
    assert newest_metrics(tmp_path, "sum") == {"split": "test", "protocol": "cumulative", **figures}
    assert newest_metrics(tmp_path, "another") is None


def test_numbers_that_json_lacks_are_null(run_folder: Path) -> None:
    with serving(run_folder) as client:
        loaded = client.state.manager.current  # type: ignore[attr-defined]
        table = np.array(loaded.predictor.table)
        table[:5], table[5:10] = math.nan, math.inf
        spoilt = fnftg.predict.predictor.replace(loaded.predictor, table=table)  # type: ignore[attr-defined]
        client.state.manager.current = model_manager.LoadedModel(spoilt, loaded.info)  # type: ignore[attr-defined]
        found = client.post("/v1/predict", json={"queries": [QUERIES[0]], "k": 40, "known": True})
        scores = [
            answer["score"] for answer in json.loads(found.text, parse_constant=pytest.fail)["results"][0]["answers"]
        ]
        assert len(scores) >= 34 and scores[-5:] == [None] * 5
        vectors = json.loads(client.post("/v1/embed", json={"entities": ["e1"]}).text, parse_constant=pytest.fail)
        assert len(vectors["vectors"][0]["vector"]) == 16


def test_client_asks_what_the_predictor_is_asked(server: httpx.Client, predictor: Predictor) -> None:
    new = NewEntity("of the first kind", [("_r_1", "e3")], [("_r_2", "e5")], id="new")
    other = NewEntity("linked back", [("_r_0", new)], id="other")
    new.edges.append(("_r_0", other))  # type: ignore[attr-defined]
    with Client(str(server.base_url)) as client:
        for found, expected in [
            (client.tails(new, "_r_1", 5), predictor.tails(new, "_r_1", 5)),
            (client.heads("_r_1", "e3", 5, known=True), predictor.heads("_r_1", "e3", 5, known=True)),
            (client.relations_between("e3", "e4"), predictor.relations("e3", "e4")),
            (client.tails("e3", Relation("is near"), 1), predictor.tails("e3", Relation("is near"), 1)),
        ]:
            assert isinstance(found[0], Answer)
            assert_same([one.as_dict() for one in found], [one.as_dict() for one in expected])
        assert [len(answers) for answers in client.predict([Question("e1", "_r_0")] * 3, 2)] == [2, 2, 2]
        assert client.explain("e1", "_r_0", "e2")["relation"]["id"] == "_r_0"
        assert client.embed(["e1", new]).shape == (2, 16)
        assert client.entities("entity 3", 1)[0]["id"] == client.entity("e3")["id"] == "e3"
        assert len(client.relations()) == 4 and client.model()["width"] == 16
        with pytest.raises(FnftgError, match=r"queries.0.head: .*did you mean"):
            client.tails("entty 12", "_r_0")
        with pytest.raises(FnftgError, match="give it an id"):
            client.tails(NewEntity("a", [("_r_0", nameless), ("_r_1", nameless)]), "_r_0")
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(FnftgError, match="Cannot reach"):
        client.model()


nameless = NewEntity("nameless")


# Limits and bad requests


def query(**changes: Any) -> dict[str, Any]:
    return {"queries": [{"head": "e1", "relation": "_r_0", **changes}]}


def new(**fields: Any) -> dict[str, Any]:
    return query(head={"text": "new", **fields})


EDGE = ["_r_0", "e1"]
CASES: list[tuple[str, Any, str | None, str]] = [
    ("no queries", {"queries": []}, "queries", "invalid"),
    ("too many queries", {"queries": [QUERIES[0]] * (MOST_QUERIES + 1)}, "queries", "invalid"),
    ("no answers", {**query(), "k": 0}, "k", "invalid"),
    ("too many answers", {**query(), "k": 1001}, "k", "invalid"),
    ("k in words", {**query(), "k": "10"}, "k", "invalid"),
    ("k no whole number", {**query(), "k": 1.5}, "k", "invalid"),
    ("known as a number", {**query(), "known": 1}, "known", "invalid"),
    ("negative least", {**query(), "min_missing": -0.1}, "min_missing", "invalid"),
    ("least above one", {**query(), "min_missing": 1.5}, "min_missing", "invalid"),
    ("least in words", {**query(), "min_missing": "0.5"}, "min_missing", "invalid"),
    ("no least", {**query(), "min_missing": None}, "min_missing", "invalid"),
    ("unknown field", {**query(), "nearest": 1}, "nearest", "invalid"),
    ("unknown field of a query", query(rank=1), "queries.0.rank", "invalid"),
    ("unknown field of an entity", new(name="x"), "queries.0.head.name", "invalid"),
    ("one part", {"queries": [{"head": "e1"}]}, "queries.0", "invalid"),
    ("three parts", query(tail="e2"), "queries.0", "invalid"),
    ("the second query", {"queries": [QUERIES[0], {"head": "e1"}]}, "queries.1", "invalid"),
    ("entity as a number", query(head=3), "queries.0.head", "invalid"),
    ("entity without text", query(head={"edges": []}), "queries.0.head.text", "invalid"),
    ("empty text", query(head={"text": "  "}), "queries.0.head.text", "invalid"),
    ("long text", query(head={"text": "x" * 20_001}), "queries.0.head.text", "invalid"),
    ("long name", query(head="x" * 1001), "queries.0.head", "invalid"),
    ("long id", new(id="x" * 201), "queries.0.head.id", "invalid"),
    ("id of two lines", new(id="x\ny"), "queries.0.head.id", "invalid"),
    ("id that is taken", new(id="e1"), "queries.0", "invalid"),
    ("too many edges", new(edges=[EDGE] * (MOST_EDGES + 1)), "queries.0.head.edges", "invalid"),
    ("too many edges in all", new(edges=[EDGE] * 33, incoming=[EDGE] * 32), "queries.0.head", "invalid"),
    ("edge of three", new(edges=[["_r_0", "e1", "e2"]]), "queries.0.head.edges.0", "invalid"),
    ("edge to a number", new(edges=[["_r_0", 7]]), "queries.0.head.edges.0.1", "invalid"),
    ("unknown entity", query(head="nobody"), "queries.0.head", "unknown_entity"),
    ("unknown relation", query(relation="hates"), "queries.0.relation", "unknown_relation"),
    ("ambiguous name", query(head="twin"), "queries.0.head", "unknown_entity"),
    ("edge to nobody", new(edges=[EDGE, ["_r_0", "nobody"]]), "queries.0.head.edges.1.1", "unknown_entity"),
    ("edge of no relation", new(incoming=[["hates", "e1"]]), "queries.0.head.incoming.0.0", "unknown_relation"),
    ("blank name", query(head=" "), "queries.0.head", "unknown_entity"),
    ("a list", [], None, "invalid"),
    ("nothing", None, None, "invalid"),
]


@pytest.mark.parametrize(("body", "field", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_bad_body_is_refused_naming_the_field(body: Any, field: str | None, code: str, server: httpx.Client) -> None:
    found = error_of(server.post("/v1/predict", json=body))
    assert (found[0], found[2]) == (code, field), found
    assert len(found[1]) < 400


@pytest.mark.parametrize(
    "body",
    [
        {"queries": [QUERIES[0]] * MOST_QUERIES, "k": 312},
        {"queries": [QUERIES[0]] * 10, "k": 1000},
        query(head={"text": "x" * 20_000}),
        new(edges=[EDGE] * 32, incoming=[EDGE] * 32),
        new(id="x" * 200),
        query(relation={"text": "y" * 20_000}),
        query(tail=None),
        {**query(), "min_missing": 0},
        {**query(), "min_missing": 1.0},
    ],
)
def test_body_at_its_limits_is_answered(body: Any, server: httpx.Client) -> None:
    response = server.post("/v1/predict", json=body)
    assert response.status_code == 200, response.text


def test_other_routes_name_the_field_too(server: httpx.Client) -> None:
    def field(path: str, body: Any) -> str | None:
        return error_of(server.post(path, json=body))[2]

    triple = {"head": "e1", "relation": "_r_0", "tail": "e2"}
    assert field("/v1/explain", {**triple, "tail": "nobody"}) == "tail"
    assert field("/v1/explain", {**triple, "nearest": 51}) == "nearest"
    assert field("/v1/explain", {**triple, "asked": "relation"}) == "asked"
    assert field("/v1/explain", {"head": "e1", "relation": "_r_0"}) == "tail"
    assert server.post("/v1/explain", json={**triple, "nearest": 50}).status_code == 200
    assert field("/v1/embed", {"entities": ["e1", "nobody"]}) == "entities.1"
    assert field("/v1/embed", {"entities": ["e1"] * 33}) == field("/v1/embed", {"entities": []}) == "entities"
    assert server.post("/v1/embed", json={"entities": ["e1"] * 32}).status_code == 200
    assert field("/v1/admin/reload", {"run": "/etc"}) == "run"
    for wrong in ({"limit": 0}, {"limit": 101}, {"limit": "x"}):
        assert error_of(server.get("/v1/entities", params=wrong))[2] == "limit"
    assert error_of(server.get("/v1/entities", params={"q": "x" * 201}))[2] == "q"
    assert server.get("/v1/entities", params={"q": "x" * 200, "limit": 100}).status_code == 200
    assert error_of(server.get("/v1/entities", params={"like": "x"}))[2] == "like"
    assert error_of(server.get("/v2"), 404)[0] == "not_found"
    assert error_of(server.get("/v1/predict"), 405)[0] == "method_not_allowed"


def test_body_that_is_too_large_is_refused_while_it_is_read(server: httpx.Client) -> None:
    def chunks(size: int) -> Iterator[bytes]:
        for _ in range(size >> 16):
            yield b" " * (1 << 16)
        yield json.dumps(query()).encode()

    header = {"Content-Type": "application/json"}
    assert server.post("/v1/predict", content=chunks(MOST_BYTES - (1 << 16)), headers=header).status_code == 200
    fitting = json.dumps(query()).encode().ljust(MOST_BYTES)
    assert server.post("/v1/predict", content=fitting, headers=header).status_code == 200
    assert error_of(server.post("/v1/predict", content=fitting + b" ", headers=header), 413)[0] == "too_large"
    with socket.create_connection((server.base_url.host, server.base_url.port or 0)) as raw:
        raw.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        raw.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(500):  # without an end, and yet there is an answer
            raw.sendall(b"10000\r\n" + b" " * (1 << 16) + b"\r\n")
            if select.select([raw], [], [], 0.001)[0]:
                break
        assert raw.recv(20).startswith(b"HTTP/1.1 413")
    assert server.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"queries": [{"head": "e1", "relation": "_r_0"}], "k": NaN}', "application/json", 422),
        (b'{"queries": [{"head": "e1", "relation": "_r_0"}], "k": 1e999}', "application/json", 422),
        (b'{"queries": [{"head": "e1", "relation": "_r_0"}], "k": -Infinity}', "application/json", 422),
        (b'{"queries": ' + b"[" * 100_000, "application/json", 422),
        (b'{"queries": [{"head": ' + b'{"text": "a", "edges": [["_r_0", ' * 60 + b'"e1"', "application/json", 422),
        (b'{"queries": [{"head": "\xff", "relation": "_r_0"}]}', "application/json", 422),
        (b'{"queries": [{"head": "\\ud800", "relation": "_r_0"}]}', "application/json", 422),
        (b'{"k": ' + b"9" * 10_000 + b"}", "application/json", 422),
        (b"", "application/json", 422),
        (json.dumps(query()).encode(), "text/plain", 415),
        (json.dumps(query()).encode(), "application/x-www-form-urlencoded", 415),
        (json.dumps(query()).encode(), "", 415),
        (json.dumps(query()).encode("utf-16"), "application/json", 422),
    ],
)
def test_what_is_no_json_is_refused(content: bytes, kind: str, status: int, server: httpx.Client) -> None:
    response = server.post("/v1/predict", content=content, headers={"Content-Type": kind} if kind else {})
    error_of(response, status)


def test_new_entities_may_be_nested_but_not_without_end(server: httpx.Client) -> None:
    def nested(depth: int) -> Any:
        entity: Any = "e1"
        for _ in range(depth):
            entity = {"text": "one more", "edges": [["_r_0", entity]]}
        return server.post("/v1/predict", json=query(head=entity))

    assert nested(20).status_code == 200
    assert 400 <= nested(65).status_code < 500 and 400 <= nested(190).status_code < 500


def test_a_thousand_mutilated_bodies_break_nothing(server: httpx.Client) -> None:
    generator = random.Random(0)
    bodies = [json.dumps({"queries": QUERIES[1:3], "k": 3}), json.dumps({"entities": ["e1", NEW]})]
    bodies.append(json.dumps({"head": "e1", "relation": "_r_0", "tail": NEW, "asked": "tail"}))
    paths = ("/v1/predict", "/v1/embed", "/v1/explain")
    pieces = [
        b"\x00",
        b"\xff",
        b'"',
        b"{",
        b"]",
        b"null",
        b"-1",
        b"1e400",
        b"\\u0000",
        b"\\ud800",
        b'{"text":""}',
        b"[[]]",
    ]
    statuses = set()
    for number in range(1000):
        content = bytearray(bodies[number % 3].encode())
        for _ in range(generator.randint(1, 4)):
            place = generator.randrange(len(content))
            what = generator.randrange(4)
            if what == 0:
                content[place] = generator.randrange(256)
            elif what == 1:
                del content[place : place + generator.randint(1, 30)]
            elif what == 2:
                content[place:place] = generator.choice(pieces)
            else:
                content[place:place] = content[place : place + generator.randint(1, 60)]
        response = server.post(paths[number % 3], content=bytes(content), headers={"Content-Type": "application/json"})
        statuses.add(response.status_code)
        assert response.status_code < 500, (content, response.text)
    assert statuses == {200, 422}
    assert server.post("/v1/predict", json=query()).status_code == 200


schema = schemathesis.openapi.from_dict(make_app(Options("nowhere")).openapi())


@schema.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_openapi_says_what_the_server_does(case: Any, server: httpx.Client) -> None:
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
        negative_data_rejection,
    ]
    case.call_and_validate(base_url=str(server.base_url), checks=checks)


def test_every_body_has_an_example_in_openapi() -> None:
    described = make_app(Options("nowhere")).openapi()
    bodies = [
        operation["requestBody"]["content"]["application/json"]["schema"]
        for path in described["paths"].values()
        for operation in path.values()
        if "requestBody" in operation
    ]
    assert len(bodies) == 4
    for body in bodies:
        name = json.dumps(body).split("schemas/")[1].split('"')[0]
        assert described["components"]["schemas"][name]["examples"]


# Who may ask


def test_every_route_but_health_asks_for_the_token(run_folder: Path) -> None:
    with serving(run_folder, token="s3cret") as client:
        app = make_app(Options(str(run_folder), token="x"))
        paths = [
            (method, route.path) for route in app.routes if isinstance(route, APIRoute) for method in route.methods
        ]
        others = [("GET", route.path) for route in app.routes if not isinstance(route, APIRoute)]  # type: ignore[attr-defined]
        assert len(paths) >= 12 and ("GET", "/openapi.json") in others and ("GET", "/page") in others
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}, {"Cookie": "fnftg=x"}):
            for method, path in [*paths, *others, ("GET", "/page/page.js"), ("GET", "/nowhere"), ("OPTIONS", "/")]:
                response = httpx.request(method, f"{client.base_url}{path}", headers=wrong)
                if path in ("/healthz", "/readyz"):
                    assert response.status_code == 200
                else:
                    assert error_of(response, 401)[0] == "unauthorized"
        assert client.get("/v1/model").status_code == 200


def test_browser_gets_a_cookie_for_the_token(run_folder: Path) -> None:
    with serving(run_folder, token="s3cret") as client, httpx.Client(base_url=client.base_url) as browser:
        assert browser.get("/?token=wrong").status_code == 401 and not browser.cookies
        opened = browser.get("/?token=s3cret")
        assert opened.status_code == 303 and opened.headers["location"] == "/"
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "s3cret" not in cookie
        assert browser.get("/v1/model").status_code == 200
        assert browser.get("/").status_code in (200, 404)
        with Client(str(client.base_url), "s3cret") as own, Client(str(client.base_url), "other") as other:
            assert own.model()["width"] == 16
            with pytest.raises(FnftgError, match="token"):
                other.model()


def test_no_other_site_may_use_it(server: httpx.Client) -> None:
    response = server.get("/v1/model", headers={"Origin": "https://elsewhere.example"})
    assert not any(name.startswith("access-control") for name in response.headers)
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff" and response.headers["cache-control"] == "no-store"
    asked = server.options(
        "/v1/predict", headers={"Origin": "https://e.example", "Access-Control-Request-Method": "POST"}
    )
    assert asked.status_code == 403
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd"):
        assert error_of(server.get(path), 404)


# Under load


@dataclass
class Held:
    client: httpx.Client
    threads: ThreadPoolExecutor
    release: threading.Event
    started: threading.Event

    def ask(self, *bodies: Any) -> list[Future[httpx.Response]]:
        """Requests that wait in the queue."""
        before = len(self.client.state.batcher.waiting)  # type: ignore[attr-defined]
        asked = [self.threads.submit(self.client.post, "/v1/predict", json=body) for body in bodies]
        wait_for(lambda: len(self.client.state.batcher.waiting) == before + len(bodies))  # type: ignore[attr-defined]
        return asked


@contextmanager
def held(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """A first request is being computed until the event is set; others wait."""
    release, started, real = threading.Event(), threading.Event(), batch_queue.compute_batch

    def computed(works: Any) -> Any:
        started.set()
        assert release.wait(20)
        return real(works)

    with monkeypatch.context() as patch, ThreadPoolExecutor(16) as threads:
        patch.setattr(batch_queue, "compute_batch", computed)
        first = threads.submit(client.post, "/v1/predict", json={"queries": [QUERIES[0]]})
        try:
            assert started.wait(20)
            yield Held(client, threads, release, started)
        finally:
            release.set()
        first.result()


def test_full_queue_is_told_at_once(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(run_folder, queue=3, behind_proxy=True) as client:
        with held(client, monkeypatch) as queue:
            waiting = queue.ask(*[query()] * 3)
            refused = client.post("/v1/predict", json=query())
            assert error_of(refused, 429)[0] == "busy" and int(refused.headers["Retry-After"]) >= 1
            assert client.get("/v1/entities?q=e").status_code == 200, "looking up needs no queue"
            queue.release.set()
            assert [one.result().status_code for one in waiting] == [200] * 3
        assert client.post("/v1/predict", json=query()).status_code == 200


def test_request_whose_time_is_over_is_told_and_not_computed(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(run_folder, deadline=0.5) as client:
        with held(client, monkeypatch) as queue:
            asked = queue.ask(*[query()] * 4)
            assert {error_of(one.result(), 504)[0] for one in asked} == {"deadline"}
        wait_for(lambda: client.post("/v1/predict", json=query()).status_code == 200)
        assert sample(client, "fnftg_dropped_total", reason="deadline") == 4


def test_request_whose_client_is_gone_is_not_computed(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(run_folder) as client:
        with held(client, monkeypatch):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{client.base_url}/v1/predict", json=query(), timeout=0.5)
            wait_for(lambda: len(client.state.batcher.waiting) == 1)  # type: ignore[attr-defined]
        wait_for(lambda: not client.state.batcher.waiting)  # type: ignore[attr-defined]
        assert sample(client, "fnftg_dropped_total", reason="gone") == 1


def test_server_that_stops_answers_what_it_has_taken_on(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(run_folder) as client, held(client, monkeypatch) as queue:
        asked = queue.ask(*[query()] * 4)
        client.state.manager.stopping = True  # type: ignore[attr-defined]
        stopping = client.get("/readyz")
        assert (stopping.status_code, stopping.json()) == (503, {"status": "stopping"})
        client.server.should_exit = True  # type: ignore[attr-defined]
        time.sleep(0.3)
        queue.release.set()
        assert [one.result().status_code for one in asked] == [200] * 4


def test_server_is_alive_but_not_ready_while_it_loads(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, real = threading.Event(), model_manager.load_model
    monkeypatch.setattr(model_manager, "load_model", lambda options: release.wait(20) and real(options))
    app = make_app(Options(str(run_folder)))
    with TestClient(app, "http://localhost") as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert (client.get("/readyz").status_code, client.get("/readyz").json()) == (503, {"status": "loading"})
        assert error_of(client.post("/v1/predict", json=query()), 503)[0] == "loading"
        release.set()
        wait_for(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/predict", json=query()).status_code == 200


def test_batch_keeps_its_budget(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of words that have to be encoded; a request that is beyond it alone is computed alone."""
    sizes: list[int] = []
    real = batch_queue.answered

    def counted(predictor: Predictor, asked: Any, k: int, known: bool) -> Any:
        sizes.append(len(asked))
        return real(predictor, asked, k, known)

    monkeypatch.setattr(batch_queue, "answered", counted)
    with serving(run_folder, tokens=10) as client, held(client, monkeypatch) as queue:
        asked = queue.ask(new(text="word " * 30), *(new(text=f"{number} of four words") for number in range(8)))
        queue.release.set()
        assert {one.result().status_code for one in asked} == {200}
    assert sorted(sizes) == [1, 1, 2, 2, 2, 2]


def test_metrics_tell_what_happened(run_folder: Path) -> None:
    with serving(run_folder) as client:
        client.post("/v1/predict", json={"queries": QUERIES})
        client.post("/v1/predict", json={})
        client.get("/nowhere")
        text = client.get("/metrics").text
        for line in (
            'fnftg_requests_total{route="/v1/predict",status="200"} 1.0',
            'fnftg_requests_total{route="/v1/predict",status="422"} 1.0',
            'fnftg_requests_total{route="other",status="404"} 1.0',
            'fnftg_request_seconds_count{route="/v1/predict"} 2.0',
            "fnftg_batch_queries_sum 6.0",
            "fnftg_queue_length 0.0",
        ):
            assert line in text
        assert client.get("/v1/model").json()["checkpoint"] in text


# Exchanging the model


def exchange(run: Path, seed: int) -> str:
    """Another model in the run's folder, as training leaves it; its checksum."""
    torch.manual_seed(seed)
    model = small_model()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(seed))
    save_pretrained(model, run / "checkpoint", force=True)
    return fnftg.files.sha256(run / "checkpoint" / "model.safetensors")  # type: ignore[attr-defined, no-any-return]


def test_model_is_exchanged_under_load_without_a_failed_request(own_run: Path) -> None:
    stop, failed, done = threading.Event(), [], []
    with serving(own_run) as client, ThreadPoolExecutor(4) as threads:

        def ask(number: int) -> None:
            while not stop.is_set():
                response = client.post("/v1/predict", json={"queries": [QUERIES[number % 3]]})
                (done if response.status_code == 200 else failed).append(response.text)

        asking = [threads.submit(ask, number) for number in range(4)]
        try:
            for seed in range(10):
                checkpoint = exchange(own_run, seed)
                assert client.post("/v1/admin/reload", json={}).json() == {"checkpoint": checkpoint}
                assert client.get("/v1/model").json()["checkpoint"] == checkpoint
                found = client.post("/v1/predict", json={"queries": QUERIES}).json()["results"]
        finally:
            stop.set()
        for one in asking:
            one.result()
        assert not failed and len(done) > 20
        expected = fnftg.load(own_run).many([Question("e1", "_r_0")])[0]
        assert_same(found[0]["answers"], [one.as_dict() for one in expected])
        assert sample(client, "fnftg_reloads_total", outcome="done") == 10


def test_bad_checkpoint_is_refused_and_the_old_one_serves_on(own_run: Path) -> None:
    with serving(own_run) as client:
        before, about = client.post("/v1/predict", json=query()).json(), client.get("/v1/model").json()
        weights = own_run / "checkpoint" / "model.safetensors"
        whole = weights.read_bytes()
        for damaged in (whole[:-100], whole[: len(whole) // 2], b"", None):
            weights.unlink() if damaged is None else weights.write_bytes(damaged)
            code, message, _ = error_of(client.post("/v1/admin/reload"), 409)
            assert code == "checkpoint" and "damaged" in message and "continues with the old checkpoint" in message
            assert client.post("/v1/predict", json=query()).json() == before
            assert client.get("/v1/model").json() == about and client.get("/readyz").status_code == 200
        weights.write_bytes(whole)
        config = own_run / "checkpoint" / "config.json"
        config.write_text(config.read_text()[:-10])
        assert "config.json" in error_of(client.post("/v1/admin/reload", json={"run": None}), 409)[1]
        assert client.post("/v1/predict", json=query()).json() == before


# The command


@contextmanager
def command(run: Path, *options: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`fnftg serve …` in a process of its own, ready, and its address."""
    arguments = [sys.executable, "-m", "fnftg", "serve", str(run), "--port", "0", *map(str, options)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = line.split(" on ")[1].split(";")[0]
        wait_for(lambda: is_ready(url, process), 60)
        yield process, url
    finally:
        process.kill()
        process.wait()


def is_ready(url: str, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None and process.stderr is not None
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def test_signals_reload_and_stop_the_server(own_run: Path) -> None:
    with command(own_run, FNFTG_TOKEN="s3cret") as (process, url), Client(url, "s3cret") as client:
        checkpoint = exchange(own_run, 1)
        assert client.model()["checkpoint"] != checkpoint
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: client.model()["checkpoint"] == checkpoint)
        weights = own_run / "checkpoint" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        assert "Reloaded" in lines[0] and "Reload failed" in lines[1] and "damaged" in lines[1]
        assert client.model()["checkpoint"] == checkpoint and client.tails("e1", "_r_0")
        many = [Question("e1", "_r_0"), Question(NewEntity("long " * 24), "_r_1")] * 16
        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(Client(url, "s3cret").predict, many, 300) for _ in range(8)]
            time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            ended = [one.exception() or one.result() for one in asked]
        assert process.wait(30) == 0 and "Traceback" not in process.stderr.read()
        answered = [one for one in ended if isinstance(one, list)]
        refused = [one for one in ended if isinstance(one, Exception)]
        assert answered and all(len(one) == 32 for one in answered)
        assert all("Cannot reach" in str(error) for error in refused), "those that came too late"


def test_interrupt_ends_without_a_traceback(run_folder: Path) -> None:
    with command(run_folder) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_workers_share_the_port_and_reload_together(own_run: Path) -> None:
    with command(own_run, "--workers", 2) as (process, url):

        def checkpoints() -> set[str]:
            return {httpx.get(f"{url}/v1/model").json().get("checkpoint", "") for _ in range(12)}  # new connections

        for seed, reload in enumerate((lambda: process.send_signal(signal.SIGHUP), Client(url).reload), start=1):
            checkpoint = exchange(own_run, seed)
            reload()
            wait_for(lambda checkpoint=checkpoint: checkpoints() == {checkpoint})  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_bad_options_end_in_one_sentence(run_folder: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    old = signal.getsignal(signal.SIGTERM)
    for words, *options in [
        (f"Port {port} of 127.0.0.1 is in use", run_folder, "--port", port),
        ("not a folder", tmp_path / "nothing"),
        ("contains no model", tmp_path, "--port", 0),
        ("--port is 70000", run_folder, "--port", 70000),
        ("--queue is 0", run_folder, "--queue", 0),
        ("--deadline is nan", run_folder, "--deadline", "nan"),
        ("token is empty", run_folder, "--token", " "),
        ("printable ASCII", run_folder, "--token", "ünï"),
        ("not an address", run_folder, "--host", "no.such.host.invalid"),
        ("not an address", run_folder, "--host", "ä" * 70),  # no name of a host has so long a part
    ]:
        result = here("serve", *options)
        sentence = [line for line in result.stderr.splitlines() if not line.startswith(("Serving", "Warning"))]
        assert result.returncode == 1 and len(sentence) == 1 and words in sentence[0], result.stderr
    signal.signal(signal.SIGTERM, old)
    taken.close()


def test_open_server_without_a_token_is_warned_about(tmp_path: Path, here: Here) -> None:  # noqa: F811
    assert "Warning" in here("serve", tmp_path / "nothing", "--host", "0.0.0.0").stderr
    assert "Warning" not in here("serve", tmp_path / "nothing", "--host", "0.0.0.0", "--token", "x").stderr
