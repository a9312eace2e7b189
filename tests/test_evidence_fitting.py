"""Votes are weighed on val alone, change nothing else, and the ranks looked at are those of ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fnftg.training.weighing import Case, can_be_weighed, weigh
from test_explain import GRAPH, voting_model

from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import PROTOCOLS, Protocol, protocol
from fnftg.training import weighing


@pytest.mark.parametrize("rules", PROTOCOLS.values(), ids=PROTOCOLS)
def test_ranks_that_are_looked_at_are_those_of_ranking(rules: Protocol) -> None:
    model = voting_model()
    texts = model.texts(GRAPH)
    ranks = rank_split(model, GRAPH, texts, "val", rules).ranks.ravel()
    with torch.no_grad():
        found = Case.of(model, GRAPH, texts, rules).reciprocal_ranks(model).numpy()
    other = np.tile(GRAPH.triples("val")[:, 0] != GRAPH.triples("val")[:, 2], 2)  # a loop may be refused
    assert np.allclose(found[other], 1 / ranks[other])
    assert (ranks > 1).any() and (ranks == 1).any()


def test_weights_are_fitted_on_val_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "RATE", 0.02)
    model = voting_model()
    with torch.no_grad():
        model.voting.common.copy_(-torch.ones(5))  # type: ignore[union-attr]  # as wrong as can be
    texts, before = model.texts(GRAPH), {name: value.clone() for name, value in model.state_dict().items()}
    found = weigh(model, GRAPH, texts, protocol("cumulative"), 10.0)
    assert found.steps and found.after > found.before
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(name.startswith("voting.") for name in changed)
    assert any(weight.requires_grad for weight in model.gt.parameters()), "it may be trained on"  # type: ignore[union-attr]
    again: Any = voting_model()
    again.load_state_dict(before)
    assert weigh(again, GRAPH, texts, protocol("cumulative"), 10.0) == found, "the same each time"


def test_weights_that_cannot_be_bettered_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "RATE", 0.0)
    model = voting_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = weigh(model, GRAPH, model.texts(GRAPH), protocol("cumulative"), 10.0)
    assert found.steps == 0 and found.after == found.before
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_relations_that_train_lacks_stay_unseen_when_votes_are_weighed() -> None:
    """Whatever val says of them, the weights are the same."""
    seen = GRAPH.triples("val")[:, 1] != 0
    train = GRAPH.triples("train")[GRAPH.triples("train")[:, 1] != 0]
    found = []
    for val in (GRAPH.triples("val"), GRAPH.triples("val")[seen]):
        graph = replace(GRAPH, splits={**GRAPH.splits, "train": train, "val": val})
        case = Case.of(voting_model(), graph, voting_model().texts(graph), protocol("strict"))
        found.append(case.labels % len(GRAPH.relations))
        assert can_be_weighed(graph)
    assert 0 < seen.sum() < len(seen) and np.array_equal(*found) and not (found[0] == 0).any()
    unseen = replace(GRAPH, splits={**GRAPH.splits, "train": train, "val": GRAPH.triples("val")[~seen]})
    assert not can_be_weighed(unseen)
