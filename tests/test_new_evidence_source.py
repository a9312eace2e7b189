"""A new source of evidence is one class and one line: fitting, ranking, answers, reasons, HTTP and page know it at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fnftg
from fnftg.arrays import BoolArray
from fnftg.ego.context import VisibleGraph
from fnftg.evidence.base import Candidates, EvidenceSource, Feature, Finding, Item, QueryBatch
from fnftg.evidence.sources import SOURCES
from fnftg.models.pretrained import from_pretrained
from fnftg.predict.predictor import Predictor

WORDS = ["apple", "badger", "cedar", "drum", "ember", "falcon", "goose", "heron", "ibis", "jade", "kettle", "lemur"]
NAMES = [f"{word}-{number}" for number in range(20) for word in WORDS]


class SameFirstLetter(EvidenceSource):
    """What begins with the same letter as the query entity."""

    name: ClassVar[str] = "same_first_letter"
    title: ClassVar[str] = "names with the same first letter"
    features: ClassVar[tuple[Feature, ...]] = (Feature("same_letter", 1.0, 1.0),)

    def count(self, context: VisibleGraph, unseen: BoolArray) -> Any:
        return np.array([text[:1] for text in context.entity_texts()])

    def extend(self, counts: Any, context: VisibleGraph, unseen: BoolArray) -> Any:
        return np.concatenate([counts, [text[:1] for text in context.entity_texts(len(counts))]])

    def candidates(self, counts: Any, context: VisibleGraph, queries: QueryBatch) -> Candidates:
        same = counts[queries.centres][:, None] == counts  # (q, n)
        same[np.arange(len(queries)), queries.centres] = False
        query, entities = np.nonzero(same)
        offsets = np.searchsorted(query, np.arange(len(queries) + 1))
        return Candidates(offsets, entities.astype(np.int32), np.ones((len(entities), 1), np.float32))

    def explain(self, counts: Any, context: VisibleGraph, query: QueryBatch, answer: int) -> Finding | None:
        if counts[query.centres[0]] != counts[answer]:
            return Finding()
        return Finding("{query} and {answer} begin with the same letter", (Item(entity=answer, value=1.0),), "letters")


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    SOURCES[SameFirstLetter.name] = SameFirstLetter
    yield
    del SOURCES[SameFirstLetter.name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs on a graph whose links join names with the same first letter: one has the source, one has not."""
    folder, random = tmp_path_factory.mktemp("letters"), np.random.default_rng(0)
    triples = []
    for head in random.choice(NAMES, 700):
        tail = random.choice([name for name in NAMES if name[0] == head[0] and name != head])
        triples.append((str(head), str(random.choice(["near", "like"])), str(tail)))
    splits = {"train": triples[:500], "val": triples[500:600], "test": triples[600:]}
    graph = fnftg.KnowledgeGraph.from_triples(
        splits, {name: f"{name}, thing number {number}" for number, name in enumerate(NAMES)}, {}
    ).save(folder / "graph")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNFTG_HOME", str(folder / "home"))
        for name, sources in (("with", ["text_knn", "same_first_letter"]), ("without", ["text_knn"])):
            fields = {
                "model": {
                    "text": {"encoder": "scratch:L-1_H-32_A-2", "words": 4, "width": 16, "query": "vector"},
                    "evidence": {"sources": sources, "num_nearest": 3},
                    "score": "cosine",
                },
                "training": {"epochs": 1, "batch_size": 100, "loss": {"name": "infonce", "temperature": 0.05}},
            }
            fnftg.train(graph, fields, output=folder / name)
            found[name] = folder / name
    return found


@pytest.fixture(scope="module")
def predictors(runs: dict[str, Path]) -> dict[str, Predictor]:
    return {name: fnftg.load(run) for name, run in runs.items()}


def test_it_is_fitted_and_counts_in_training_metrics_and_evaluation(runs: dict[str, Path]) -> None:
    metrics = {name: json.loads((run / "checkpoint" / "metrics.json").read_text()) for name, run in runs.items()}
    assert metrics["with"]["evidence"]["steps"] > 0
    evidence: Any = from_pretrained(runs["with"]).evidence
    weight = float(evidence.weights.common.detach()[-1])
    assert weight != pytest.approx(0.1), "the weight it began with was fitted"
    graph = fnftg.KnowledgeGraph.open(runs["with"].parent / "graph")
    scores = {name: fnftg.evaluate(run, graph)["mrr"] for name, run in runs.items()}
    assert scores["with"] > 2 * scores["without"]
    assert scores["with"] == pytest.approx(metrics["with"]["test"]["mrr"], abs=1e-6)


@pytest.mark.parametrize(
    "head", ["badger-3", fnftg.NewEntity("bison-1, thing of the plains", edges=[("near", "ibis-2")])]
)
def test_known_and_new_entities_are_answered_with_it(head: Any, predictors: dict[str, Predictor]) -> None:
    first = predictors["with"].tails(head, "near", k=15, known=True)
    assert sum(answer.name.startswith("b") for answer in first) > 10
    assert sum(answer.name.startswith("b") for answer in predictors["without"].tails(head, "near", k=15)) < 10


@pytest.mark.parametrize("head", ["badger-3", fnftg.NewEntity("bison-1, thing of the plains")])
def test_explanation_has_its_words(head: Any, predictors: dict[str, Predictor]) -> None:
    spoken = {reason.source: reason for reason in predictors["with"].explain(head, "near", "badger-5").evidence}
    reason = spoken["same_first_letter"]
    assert reason.sentence.endswith("badger-5 begin with the same letter") and reason.effect > 0
    assert [(item.entity.id, item.value) for item in reason.items if item.entity] == [("badger-5", 1.0)]
    others = predictors["with"].explain(head, "near", "ibis-2").evidence
    assert "same_first_letter" not in {reason.source for reason in others}


def test_command_prints_it(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    from fnftg.cli import main

    assert main(["explain", str(runs["with"]), "badger-3", "near", "badger-5"]) == 0
    assert "badger-3 and badger-5 begin with the same letter" in capsys.readouterr().out
    assert main(["predict", str(runs["with"]), "--head", "badger-3", "--relation", "near", "-k", "1", "--reasons"]) == 0
    assert "begin with the same letter" in capsys.readouterr().out


def test_http_sends_it_and_the_page_draws_it(runs: dict[str, Path]) -> None:
    pytest.importorskip("fastapi")
    import httpx
    from test_page import CHROMIUM, FLAGS, asked_url, playwright_api, serving

    with serving(runs["with"]) as address:
        while httpx.get(f"{address}/readyz", timeout=60).status_code != 200:
            time.sleep(0.05)
        body = {"head": "badger-3", "relation": "near", "tail": "badger-5"}
        sent = httpx.post(f"{address}/v1/explain", json=body, timeout=60).json()["evidence"]
        said = next(record for record in sent if record["source"] == "same_first_letter")
        assert said["sentence"] == "badger-3 and badger-5 begin with the same letter"
        assert said["items"][0]["entity"]["id"] == "badger-5" and said["value_name"] == "letters"
        with playwright_api.sync_playwright() as playwright:
            flags = [f"--{flag}" for flag in FLAGS.split()]
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
            page = browser.new_page()
            page.goto(asked_url(address, "badger-3", relation="near"))
            page.locator(".answer-main", has_text="badger-").first.click()
            section = page.get_by_role("dialog").locator("section.evidence", has_text="same first letter")
            playwright_api.expect(section).to_contain_text("begin with the same letter", timeout=60_000)
            browser.close()
