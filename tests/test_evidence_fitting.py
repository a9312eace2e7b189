"""Evidence weights are fitted on val alone, nothing else changes, and the ranks looked at are those of ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from test_explain import GRAPH, evidence_model, random_model

from fnftg.evidence import fitting
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.kg import KnowledgeGraph
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import PROTOCOLS, Protocol, protocol
from fnftg.training.evidence_fitting import can_fit_evidence, fit_evidence, fitting_problem

KINDS = ("red", "blue", "green", "old")
OF_KIND = [
    (f"e{i:02}", f"r{r}", f"e{other:02}")
    for i in range(4, 40)
    for r, other in ((0, i % 4), (1, (i + 1) % 4), (2, (7 * i) % 40))
]
SHUFFLED = [OF_KIND[place] for place in np.random.default_rng(0).permutation(len(OF_KIND))]
ALIKE = KnowledgeGraph.from_triples(  # where entities with similar texts have the same answers
    {"train": SHUFFLED[:70], "val": SHUFFLED[70:95], "test": SHUFFLED[95:]},
    {f"e{i:02}": f"{3 * (KINDS[i % 4] + ' ')}thing {i}" for i in range(40)},
    {f"r{i}": f"relation {i}" for i in range(3)},
)


@pytest.mark.parametrize("rules", PROTOCOLS.values(), ids=PROTOCOLS)
def test_ranks_that_are_looked_at_are_those_of_ranking(rules: Protocol) -> None:
    model = evidence_model()
    texts = model.texts(ALIKE)
    ranks = rank_split(model, ALIKE, texts, "val", rules).ranks.ravel()
    with torch.no_grad():
        problem, table, queries = fitting_problem(model, ALIKE, texts, rules)
        found = problem.reciprocal_ranks(model.evidence_scores(texts, queries.labels, table)).numpy()
    other = np.tile(ALIKE.triples("val")[:, 0] != ALIKE.triples("val")[:, 2], 2)  # a loop may be refused
    assert np.allclose(found[other], 1 / ranks[other])
    assert (ranks > 1).any() and (ranks == 1).any()


def test_weights_are_fitted_on_val_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "RATE", 0.02)
    model = evidence_model()
    with torch.no_grad():
        model.evidence.weights.common.copy_(-torch.ones(5))  # type: ignore[union-attr]  # as wrong as can be
    texts, before = model.texts(ALIKE), {name: value.clone() for name, value in model.state_dict().items()}
    found = fit_evidence(model, ALIKE, texts, protocol("cumulative"), 10.0)
    assert found.steps and found.after > found.before
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(name.startswith("evidence.weights.") for name in changed)
    assert any(weight.requires_grad for weight in model.gt.parameters()), "it may be trained on"  # type: ignore[union-attr]
    again: Any = evidence_model()
    again.load_state_dict(before)
    assert fit_evidence(again, ALIKE, texts, protocol("cumulative"), 10.0) == found, "the same each time"


def test_weights_that_cannot_be_bettered_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "RATE", 0.0)
    model = evidence_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = fit_evidence(model, GRAPH, model.texts(GRAPH), protocol("cumulative"), 10.0)
    assert found.steps == 0 and found.after == found.before
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_relations_that_train_lacks_stay_unseen_when_weights_are_fitted() -> None:
    """Whatever val says of them, the weights are the same."""
    seen = GRAPH.triples("val")[:, 1] != 0
    train = GRAPH.triples("train")[GRAPH.triples("train")[:, 1] != 0]
    found = []
    for val in (GRAPH.triples("val"), GRAPH.triples("val")[seen]):
        graph = replace(GRAPH, splits={**GRAPH.splits, "train": train, "val": val})
        model = evidence_model()
        _, _, queries = fitting_problem(model, graph, model.texts(graph), protocol("strict"))
        found.append(queries.labels % len(GRAPH.relations))
        assert can_fit_evidence(model, graph)
    assert 0 < seen.sum() < len(seen) and np.array_equal(*found) and not (found[0] == 0).any()
    unseen = replace(GRAPH, splits={**GRAPH.splits, "train": train, "val": GRAPH.triples("val")[~seen]})
    assert not can_fit_evidence(model, unseen)


def test_only_models_that_use_evidence_and_may_fit_it_do() -> None:
    assert can_fit_evidence(evidence_model(), GRAPH)
    assert not can_fit_evidence(random_model(score="cosine"), GRAPH)
    evidence = EvidenceConfig(["mentions"], fit=False)
    assert not can_fit_evidence(random_model(score="cosine", evidence=evidence), GRAPH)
