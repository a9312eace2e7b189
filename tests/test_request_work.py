"""The work of one request is bounded, whatever its fields multiply to; heavy requests leave room for others."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_serve import NEW, error_of, held, query, run_folder, server, serving  # noqa: F401 (fixtures)

from fnftg.memory import hand_back_freed_memory
from fnftg.serve import batch_queue, http_protocol, query_resolution, request_body
from fnftg.serve.batch_queue import Batcher
from fnftg.serve.connection_table import MOST_CONNECTIONS, OTHER_FILES
from fnftg.serve.query_resolution import MOST_PAIR_SCORES
from fnftg.serve.schemas import MOST_NEW_EDGES, MOST_NEW_PAIRS, MOST_NEW_TEXTS, MOST_TOTAL_ANSWERS, MOST_VALUES
from fnftg.serve.server_metrics import Metrics


def new_entity(edges: int = 0, relations: int = 0, text: str = "new") -> dict[str, Any]:
    pairs: list[Any] = [["_r_0", f"e{number % 40}"] for number in range(edges - relations)]
    return {"text": text, "edges": pairs + [[{"text": f"relation {number}"}, "e1"] for number in range(relations)]}


def several(count: int, **parts: Any) -> dict[str, Any]:
    return {"queries": [{"relation": "_r_0", **parts}] * count}


def nested(count: int) -> dict[str, Any]:
    return {"text": "root", "edges": [["_r_0", new_entity()] for _ in range(count - 1)]}


PAIR = {"relation": None, "tail": "e2"}
HALF = MOST_NEW_TEXTS // 2
AT_MOST: list[tuple[str, str, Any, Any]] = [
    ("new entities", "/v1/predict", several(1, head=nested(HALF)), several(3, head=nested(HALF))),
    ("new relations", "/v1/predict", several(1, head=new_entity(63, 63)), several(1, head=new_entity(64, 64))),
    (
        "relations of all queries",
        "/v1/predict",
        several(2, head=new_entity(31, 31)),
        several(2, head=new_entity(32, 32)),
    ),
    ("new and known", "/v1/predict", several(32, head=NEW, relation={"text": "r"}), several(32, head=new_entity(2, 2))),
    (
        "edges",
        "/v1/predict",
        several(32, head=new_entity(64)),
        several(32, head=NEW | {"edges": [["_r_0", new_entity(64)]]}),
    ),
    ("answers", "/v1/predict", {**several(10, head="e1"), "k": 1000}, {**several(11, head="e1"), "k": 1000}),
    ("pairs", "/v1/predict", several(MOST_NEW_PAIRS, head=NEW, **PAIR), several(MOST_NEW_PAIRS + 1, head=NEW, **PAIR)),
    ("embed", "/v1/embed", {"entities": [nested(2)] * 32}, {"entities": [nested(3)] * 32}),
    (
        "explain",
        "/v1/explain",
        {"head": nested(32), "relation": "_r_0", "tail": nested(32)},
        {"head": nested(32), "relation": "_r_0", "tail": nested(33)},
    ),
]


@pytest.mark.parametrize(
    ("path", "allowed", "beyond"), [case[1:] for case in AT_MOST], ids=[case[0] for case in AT_MOST]
)
def test_work_of_a_request_is_bounded(path: str, allowed: Any, beyond: Any, server: httpx.Client) -> None:  # noqa: F811
    response = server.post(path, json=allowed)
    assert response.status_code == 200, response.text
    code, message, _ = error_of(server.post(path, json=beyond))
    assert code == "invalid" and "at most" in message and len(message) < 200


def test_queries_for_a_relation_are_bounded_by_the_relations_of_the_graph(
    server: httpx.Client,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them scores all relations."""
    monkeypatch.setattr(query_resolution, "MOST_PAIR_SCORES", 8)  # of a graph with 4 relations
    assert server.post("/v1/predict", json=several(2, head="e1", **PAIR)).status_code == 200
    _, message, field = error_of(server.post("/v1/predict", json=several(3, head="e1", **PAIR)))
    assert field == "queries" and "send 2 at most" in message
    monkeypatch.setattr(query_resolution, "MOST_PAIR_SCORES", 1)
    assert server.post("/v1/predict", json=several(1, head="e1", **PAIR)).status_code == 200


def test_large_bodies_are_refused_in_no_time(server: httpx.Client) -> None:  # noqa: F811
    """Whatever they are made of: relations, unknown fields, wrong values. The best of five, for a busy machine."""
    relations = itertools.count()
    many = [
        {"text": "x", "edges": [[{"text": f"relation {next(relations)}"}, "e1"] for _ in range(63)]} for _ in range(320)
    ]
    star = {"text": "x", "edges": [["_r_0", one] for one in many[:63]]}
    bodies = {
        "20,160 relations": {"queries": [{"head": one, "relation": "_r_0"} for one in many]},
        "relations in a star": {"queries": [{"head": star, "relation": "_r_0"}] * 5},
        "unknown fields": {f"field {number}": 1 for number in range(100_000)},
        "wrong values": {"queries": [1] * 500_000},
        "wrong edges": {"queries": [{"head": {"text": "x", "edges": [[1, 1]] * 100_000}, "relation": "_r_0"}]},
    }
    for name, body in bodies.items():
        content = json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(5):
            waits: list[float] = []
            with ThreadPoolExecutor(1) as threads:
                asked = threads.submit(
                    server.post, "/v1/predict", content=content, headers={"Content-Type": "application/json"}
                )
                while not asked.done():
                    waits.append(server.get("/healthz").elapsed.total_seconds())
            assert asked.result().status_code in (413, 422), name
            if asked.result().elapsed.total_seconds() < 1 and max(waits, default=0) < 0.5:
                break
            assert attempt < 4, (name, asked.result().elapsed, max(waits, default=0))
    assert MOST_VALUES > 3 * MOST_NEW_EDGES and MOST_TOTAL_ANSWERS >= 10_000


def test_light_request_waits_for_one_heavy_request_only(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    heavy = several(1, head=nested(32))
    with serving(run_folder, queue=40) as client, held(client, monkeypatch) as queue:
        order: list[str] = []
        real = client.post

        def recorded(path: str, json: Any) -> httpx.Response:
            response = real(path, json=json)
            order.append("heavy" if json is heavy else "light")
            return response

        monkeypatch.setattr(client, "post", recorded)
        asked = queue.ask(*[heavy] * 6)
        asked += queue.ask(query(), query())
        queue.release.set()
        assert {one.result().status_code for one in asked} == {200}
        assert order.index("light") <= 2 and order.count("heavy") == 6


def test_heavy_requests_leave_most_of_the_queue_to_others(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    heavy = several(1, head=nested(32))
    with serving(run_folder, queue=8, behind_proxy=True) as client, held(client, monkeypatch) as queue:
        asked = queue.ask(heavy, heavy)
        assert error_of(client.post("/v1/predict", json=heavy), 429)[0] == "busy"
        assert error_of(client.post("/v1/explain", json={"head": "e1", "relation": "_r_0", "tail": "e2"}), 429)
        asked += queue.ask(query(), query())
        queue.release.set()
        assert {one.result().status_code for one in asked} == {200}


def test_clients_take_turns() -> None:
    """A client with many requests in the queue delays another by one of them."""

    async def order() -> list[str]:
        batcher = Batcher(Metrics(), 100, 30, 100, batching=False)

        async def stays() -> bool:
            return False

        done: list[str] = []
        tasks = [
            asyncio.create_task(batcher.submit(lambda name=name: done.append(name), stays, name))  # type: ignore[misc]
            for name in ["a"] * 5 + ["b"] * 2 + ["c"]
        ]
        await asyncio.sleep(0)
        running = asyncio.create_task(batcher.run())
        await asyncio.gather(*tasks)
        await batcher.stop(running)
        return done

    assert asyncio.run(order()) == ["a", "b", "c", "a", "b", "a", "a", "a"]


def test_one_client_has_half_of_the_queue(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    with serving(run_folder, queue=8) as client, held(client, monkeypatch) as queue:
        asked = queue.ask(*[query()] * 3)
        refused = client.post("/v1/predict", json=query())
        assert error_of(refused, 429)[0] == "busy" and refused.headers["Retry-After"] == "1"
        assert client.get("/healthz").status_code == 200
        queue.release.set()
        assert {one.result().status_code for one in asked} == {200}


def test_freed_memory_is_handed_back_now_and_then(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Otherwise what requests have freed stays with the process: 0.4 GB grow to 0.9 GB within minutes."""
    calls: list[float] = []
    monkeypatch.setattr(batch_queue, "HAND_BACK_PERIOD", 0.2)
    monkeypatch.setattr(batch_queue, "hand_back_freed_memory", lambda: calls.append(time.monotonic()))
    with serving(run_folder) as client:
        start = time.monotonic()
        while time.monotonic() < start + 1 or (len(calls) < 2 and time.monotonic() < start + 20):
            assert client.post("/v1/predict", json=query()).status_code == 200
    assert 2 <= len(calls) <= 1 + (time.monotonic() - start) / 0.2
    hand_back_freed_memory()


def test_limits_are_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "http.md").read_text(encoding="utf-8")
    numbers = (MOST_NEW_TEXTS, MOST_NEW_EDGES, MOST_TOTAL_ANSWERS, MOST_VALUES, MOST_CONNECTIONS, OTHER_FILES)
    times = (http_protocol.HEAD_TIMEOUT, request_body.BODY_TIMEOUT, http_protocol.IDLE_TIMEOUT)
    times += (http_protocol.HEAD_TIMEOUT + http_protocol.RESPONSE_TIMEOUT,)
    limits = page[page.index("## Limits") :]
    assert [number for number in numbers if f"{number:,}" not in limits] == []
    assert [seconds for seconds in times if f"{seconds:g} s" not in limits] == []
    assert f"{MOST_PAIR_SCORES:,}" in limits and f"{MOST_NEW_PAIRS} |" in limits
    parser_help = subprocess.run(
        [sys.executable, "-m", "fnftg", "serve", "--help"], capture_output=True, text=True
    ).stdout
    for option in ("--max-connections", "--allowed-hosts", "--behind-proxy", "--behind-https"):
        assert option in parser_help and option in (Path(__file__).parents[1] / "docs" / "deployment.md").read_text()
