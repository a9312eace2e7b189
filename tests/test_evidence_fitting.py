"""Evidence weights are fitted on two parts of val and measured on the third; nothing else changes."""

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
from fnftg.ranking.val_parts import PARTS, part_numbers, part_triples
from fnftg.training.evidence_fitting import ValQueries, fit_evidence, fits_evidence, has_parts_to_fit_on

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
        val = ValQueries.of(model, ALIKE, texts, rules)
        problem, table, queries = val.fitting_problem(ALIKE.triples("val"))
        found = problem.reciprocal_ranks(model.evidence_scores(texts, queries.labels, table)).numpy()
    other = np.tile(ALIKE.triples("val")[:, 0] != ALIKE.triples("val")[:, 2], 2)  # a loop may be refused
    assert np.allclose(found[other], 1 / ranks[other])
    assert val.mrr(ALIKE.triples("val")) == pytest.approx((1 / ranks).mean())
    assert (ranks > 1).any() and (ranks == 1).any()


def test_weights_are_fitted_on_val_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "RATE", 0.02)
    model = evidence_model()
    with torch.no_grad():
        model.evidence.weights.common.copy_(-torch.ones(5))  # type: ignore[union-attr]  # as wrong as can be
    texts, before = model.texts(ALIKE), {name: value.clone() for name, value in model.state_dict().items()}
    found = fit_evidence(model, ALIKE, texts, protocol("cumulative"), 10.0)
    assert found.steps and found.after > found.before
    ranking = rank_split(model, ALIKE, texts, "val", protocol("cumulative"))
    held_out = part_numbers(ALIKE, ranking.triples) == PARTS.index("held-out")
    assert found.after == pytest.approx((1 / ranking.ranks[:, held_out]).mean()), "the MRR that ranking gives"
    assert (found.held_out, found.fitted) == (held_out.sum(), (~held_out).sum())
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


def test_relations_that_train_lacks_stay_unseen_when_weights_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever val says of them, the weights are the same."""
    seen = GRAPH.triples("val")[:, 1] != 0
    train = GRAPH.triples("train")[GRAPH.triples("train")[:, 1] != 0]
    found: list[Any] = []
    monkeypatch.setattr(ValQueries, "fitting_problem", recorded(found, ValQueries.fitting_problem))
    monkeypatch.setattr(ValQueries, "mrr", recorded(found, ValQueries.mrr))
    for val in (GRAPH.triples("val"), GRAPH.triples("val")[seen]):
        graph = replace(GRAPH, splits={**GRAPH.splits, "train": train, "val": val})
        model = evidence_model()
        assert has_parts_to_fit_on(graph)
        fit_evidence(model, graph, model.texts(graph), protocol("strict"), 10.0)
    assert 0 < seen.sum() < len(seen) and all(map(np.array_equal, found[:3], found[3:]))
    assert len(found) == 6 and not any((triples[:, 1] == 0).any() for triples in found)
    unseen = replace(GRAPH, splits={**GRAPH.splits, "train": train, "val": GRAPH.triples("val")[~seen]})
    assert not has_parts_to_fit_on(unseen)


def recorded(found: list[Any], method: Any) -> Any:
    """The same method, which also records the triples that it is given."""

    def recording(self: Any, triples: Any) -> Any:
        found.append(triples)
        return method(self, triples)

    return recording


def test_triples_that_measure_the_fit_do_not_take_part_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(ValQueries, "fitting_problem", recorded(found, ValQueries.fitting_problem))
    monkeypatch.setattr(ValQueries, "mrr", recorded(found, ValQueries.mrr))
    model = evidence_model()
    fit_evidence(model, GRAPH, model.texts(GRAPH), protocol("cumulative"), 10.0)
    before, fitted, after = ({tuple(triple) for triple in triples.tolist()} for triples in found)
    assert (
        before == after == {tuple(triple) for triple in part_triples(GRAPH, GRAPH.triples("val"), "held-out").tolist()}
    )
    assert fitted and before and fitted | before == {tuple(triple) for triple in GRAPH.triples("val").tolist()}
    assert not {frozenset((h, t)) for h, _, t in fitted} & {frozenset((h, t)) for h, _, t in before}


def test_the_part_of_a_triple_depends_on_the_ids_of_its_entities_alone() -> None:
    triples = [
        (f"e{h}", f"r{h % 3}", f"e{t}") for h, t in np.random.default_rng(0).integers(0, 300, (2_000, 2)).tolist()
    ]
    parts = {}
    for order in (triples, triples[::-1], [(t, "other", h) for h, _, t in triples[:500]]):
        graph = KnowledgeGraph.from_triples({"val": order})
        numbers = part_numbers(graph, graph.triples("val")).tolist()
        for (h, _, t), number in zip(graph.triples("val").tolist(), numbers, strict=True):
            pair = frozenset((graph.entities.ids[h], graph.entities.ids[t]))
            assert parts.setdefault(pair, number) == number
    assert np.bincount(list(parts.values()), minlength=3).min() > 0.3 * len(parts)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_val_split_that_is_too_small_for_three_parts_fits_nothing(size: int) -> None:
    small = replace(GRAPH, splits={**GRAPH.splits, "val": GRAPH.triples("val")[:size]})
    assert not has_parts_to_fit_on(small) and has_parts_to_fit_on(GRAPH)


def test_only_models_that_use_evidence_and_may_fit_it_do() -> None:
    assert fits_evidence(evidence_model())
    assert not fits_evidence(random_model(score="cosine"))
    evidence = EvidenceConfig(["mentions"], fit=False)
    assert not fits_evidence(random_model(score="cosine", evidence=evidence))
