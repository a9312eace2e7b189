"""Ranks are those of a brute-force reading of the protocol."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from test_models import ENCODER, small_model

from fnftg.ego.answers import KnownAnswers
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import Hidden
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.models.fnf import FnF
from fnftg.models.predictor import Visible
from fnftg.models.scoring import SCORES, ScoreName
from fnftg.ranking import evaluation
from fnftg.ranking.evaluation import Queries, evaluate, filtered_ranks, metrics
from fnftg.ranking.protocols import PROTOCOLS, Protocol, protocol
from fnftg.text.transformer import GraphTexts

RANDOM = np.random.default_rng(1)
TRIPLES = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in RANDOM.integers(0, [14, 3, 14], (80, 3)).tolist()]
GRAPH = KnowledgeGraph.from_triples(
    {"train": TRIPLES[:50], "val": TRIPLES[50:60], "test": TRIPLES[60:]},
    {f"e{i}": f"entity number {i} of the {'first' if i % 2 else 'second'} kind" for i in range(14)},
    {f"r{i}": f"relation {i}" for i in range(3)},
)


def oracle(model: FnF, texts: GraphTexts, protocol: Protocol, split: str) -> list[float]:
    """One query after the other, one candidate after the other."""
    neighbours = Neighbours.of(protocol.visible_triples(GRAPH, split), 14, 3)
    visible, ranks = Visible(texts, neighbours), []
    true = {tuple(triple) for triple in GRAPH.all_triples().tolist()}

    @cache
    def embed(centre: int, hidden: tuple[int, int] | None, label: int | None) -> torch.Tensor:
        centres = np.array([centre], np.int32)
        hide = None if hidden is None else Hidden(*(np.array([x], np.int32) for x in hidden), protocol.hidden)
        labels = None if label is None else np.array([label], np.int32)
        with torch.no_grad():
            candidates, points = model(
                texts, centres, visible.ego_graphs(model.ego, centres, hide), labels, label is None
            )
        return (candidates if points is None else points)[0]

    for direction in ("tail", "head"):
        for h, r, t in GRAPH.triples(split).tolist():
            centre, answer, label = (h, t, r) if direction == "tail" else (t, h, r + 3)
            inverse = r + 3 if direction == "tail" else r
            point, own = embed(centre, (answer, label), label), embed(answer, (centre, inverse), None)
            score = model.similarity(point[None], own[None]).item()
            better = equal = 0
            for candidate in protocol.candidate_entities(GRAPH, split).tolist():
                triple = (h, r, candidate) if direction == "tail" else (candidate, r, t)
                if triple not in true:
                    other = model.similarity(point[None], embed(candidate, None, None)[None]).item()
                    better, equal = better + (other > score), equal + (other == score)
            ranks.append(1 + better + equal / 2)
    return ranks


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_ranks_are_those_of_the_oracle(name: str, score: ScoreName) -> None:
    model, _ = small_model(score=score)
    texts = GraphTexts.of(GRAPH, ENCODER, model.config.text)
    for candidates in ("dynamic", "transfer"):
        chosen = replace(protocol(name), candidates=candidates)  # type: ignore[arg-type]
        expected = oracle(model, texts, chosen, "test")
        found = evaluate(model, GRAPH, texts, "test", chosen)
        assert found["mrr"] == pytest.approx(float(np.mean(1 / np.array(expected))), abs=1e-6)
        assert found["queries"] == len(expected) == 40
        assert found["hits@3"] == pytest.approx(float(np.mean(np.array(expected) <= 3)))


def test_batch_size_changes_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = small_model()
    texts = GraphTexts.of(GRAPH, ENCODER, model.config.text)
    whole = evaluate(model, GRAPH, texts, "test", protocol("statik"))
    monkeypatch.setattr(evaluation.parts, "__defaults__", (3,))
    assert evaluate(model, GRAPH, texts, "test", protocol("statik")) == whole


class Constant(FnF):
    """A model that knows nothing, or returns no number at all."""

    value = 0.0

    def forward(self, texts, centres, egos, labels=None, candidates=True):  # type: ignore[no-untyped-def]
        vectors = torch.full((len(centres), self.width), self.value)
        return (vectors if candidates else None), (None if labels is None else vectors)


@pytest.mark.parametrize("score", ["transe", "distmult"])
def test_constant_scores_get_the_mean_rank_and_nan_the_worst(score: ScoreName) -> None:
    template, _ = small_model(score=score)
    texts = GraphTexts.of(GRAPH, ENCODER, template.config.text)
    model = Constant(template.config, ENCODER)
    queries = Queries.of(GRAPH.triples("test"), 3)
    visible = Visible(texts, Neighbours.of(GRAPH.triples("train"), 14, 3))
    known, everyone = KnownAnswers.of(GRAPH.all_triples(), 14, 3), np.arange(14, dtype=np.int32)
    offsets, _ = known(queries.centres, queries.labels)
    others = 14 - np.diff(offsets)  # candidates that are no known answer
    assert np.allclose(filtered_ranks(model, visible, queries, everyone, known, "target"), 1 + others / 2)
    model.value = float("nan")
    assert np.allclose(filtered_ranks(model, visible, queries, everyone, known, "target"), 1 + others)


def test_metrics_worked_by_hand() -> None:
    found = metrics(np.array([1.0, 2.0, 4.0, 20.0]))
    assert found == pytest.approx({"mrr": (1 + 0.5 + 0.25 + 0.05) / 4, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75})


def test_unknown_protocol_and_empty_split_are_refused() -> None:
    with pytest.raises(FnftgError, match="paper, statik, strict"):
        protocol("lenient")
    model, _ = small_model()
    texts = GraphTexts.of(GRAPH, ENCODER, model.config.text)
    with pytest.raises(FnftgError, match="no triples in val"):
        evaluate(model, GRAPH.with_splits({"train": GRAPH.triples("train")}, {}), texts, "val", protocol("paper"))
