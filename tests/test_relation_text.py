"""Relation text: what is said of the answers of a relation without visible edges."""

from __future__ import annotations

import numpy as np
import pytest

import fnftg
from fnftg.ego.context import ExtendedContext, GraphContext, relation_fingerprints
from fnftg.evidence import relation_text
from fnftg.evidence.base import QueryBatch
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.relation_text import RelationText
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.text_transformer import GraphTexts

ENTITIES = {
    "nepal": "Nepal, a country in the Himalayas; people there speak nepali",
    "nepali": "Nepali, an Indo-Aryan language",
    "kathmandu": "Kathmandu, a city, the capital of nepal",
    "everest": "Everest, a mountain",
    "thai": "Thai, a language of South East Asia",
    "thailand": "Thailand, a country of South East Asia",
    "twin": "Twin, of which other is the second",
    "other": "Other, which has a twin",
}
RELATIONS = {"capital": "country capital city", "spoken": "country official language", "height": "mountain height"}
ROWS = {name: row for row, name in enumerate(ENTITIES)}
CAPITAL, SPOKEN = 0, 1


@pytest.fixture(scope="module")
def texts() -> GraphTexts:
    triples = [("nepal", "capital", "kathmandu"), ("nepal", "spoken", "nepali"), ("everest", "height", "thai")]
    triples += [("thailand", "capital", "thai"), ("twin", "capital", "other")]
    graph = fnftg.KnowledgeGraph.from_triples({"train": triples}, ENTITIES, RELATIONS)
    order = [graph.entities.ids[row] for row in range(len(ENTITIES))]
    ROWS.update({name: row for row, name in enumerate(order)})
    assert [graph.relations.ids[row] for row in range(3)] == list(RELATIONS)
    return GraphTexts.of(graph, load_encoder("minilm"), TextConfig())


def asked(texts: GraphTexts, edges: list[tuple[str, int, str]], centre: str, label: int, **more: object) -> dict:
    """The features of each candidate, where these edges are visible."""
    triples = np.array([(ROWS[h], r, ROWS[t]) for h, r, t in edges], np.int32).reshape(-1, 3)
    context = GraphContext.of(texts, triples)
    source = RelationText(EvidenceConfig(["relation_text"], num_nearest=2))
    query = QueryBatch(np.array([ROWS[centre]], np.int32), np.array([label], np.int32), np.array([True]), **more)  # type: ignore[arg-type]
    found = source.candidates(source.count(context, np.ones(6, bool)), context, query)
    names = {row: name for name, row in ROWS.items()}
    return {
        names[entity]: values for entity, values in zip(found.entities.tolist(), found.features.tolist(), strict=True)
    }


def test_the_last_words_of_a_relation_name_its_tails_and_the_first_its_heads(texts: GraphTexts) -> None:
    tails = asked(texts, [], "everest", SPOKEN)
    heads = asked(texts, [], "everest", SPOKEN + 3)
    assert {"nepali", "thai"} == set(sorted(tails, key=lambda name: -tails[name][0])[:2])
    context = GraphContext.of(texts, np.zeros((0, 3), np.int32))
    assert context.answer_words(np.array([SPOKEN, SPOKEN + 3])) == ["country official language"] * 2
    assert "nepal" in heads and "everest" not in heads


def test_a_long_name_has_different_ends(texts: GraphTexts) -> None:
    base = GraphContext.of(texts, np.zeros((0, 3), np.int32))
    new = ["film film release date s. film release distribution medium, a description"]
    context = ExtendedContext(
        base, base.added, [], lambda: np.zeros((0, 384)), new, relation_fingerprints(texts, np.arange(1))
    )
    label = base.relations
    assert context.answer_words(np.array([label, label + context.relations])) == [
        "release distribution medium",
        "film film release",
    ]


def test_it_is_silent_where_another_entity_has_an_edge_of_the_relation(texts: GraphTexts) -> None:
    assert asked(texts, [("thailand", SPOKEN, "thai")], "nepal", SPOKEN) == {}
    assert asked(texts, [("nepal", SPOKEN, "nepali")], "nepal", SPOKEN)
    assert asked(texts, [("thailand", CAPITAL, "thai")], "nepal", SPOKEN)


def test_other_edges_and_mentions_are_told_apart(texts: GraphTexts) -> None:
    found = asked(texts, [("nepal", CAPITAL, "kathmandu")], "nepal", SPOKEN)
    assert [found[name][2:] for name in ("kathmandu", "nepali", "thai")] == [[1, 1], [0, 1], [0, 0]]
    both = asked(texts, [], "kathmandu", SPOKEN)
    assert both["nepal"][3] == 1 and asked(texts, [], "twin", SPOKEN)["other"][3] == 2


def test_the_target_does_not_count_towards_too_many_edges(texts: GraphTexts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_text, "MAX_EDGES", 1)
    edges = [("nepal", CAPITAL, "kathmandu")]
    assert asked(texts, [*edges, ("nepal", SPOKEN, "nepali")], "nepal", SPOKEN) == asked(texts, edges, "nepal", SPOKEN)
    assert asked(texts, edges, "nepal", SPOKEN)["kathmandu"][2] == 1
    assert asked(texts, [*edges, ("nepal", CAPITAL, "thai")], "nepal", SPOKEN)["kathmandu"][2] == 0


def test_a_hidden_pair_has_no_edges(texts: GraphTexts) -> None:
    target = np.array([ROWS["kathmandu"]], np.int32)
    found = asked(texts, [("nepal", CAPITAL, "kathmandu")], "nepal", SPOKEN, targets=target, hidden="pair")
    assert all(values[2] == 0 for values in found.values())


def test_relations_of_training_are_not_its_business(texts: GraphTexts) -> None:
    context = GraphContext.of(texts, np.zeros((0, 3), np.int32))
    source = RelationText(EvidenceConfig(["relation_text"]))
    query = QueryBatch(np.array([0], np.int32), np.array([SPOKEN], np.int32), np.array([False]))
    assert not len(source.candidates(source.count(context, np.zeros(6, bool)), context, query).entities)


def test_the_reasons_name_the_words(texts: GraphTexts) -> None:
    context = GraphContext.of(texts, np.zeros((0, 3), np.int32))
    source = RelationText(EvidenceConfig(["relation_text"], num_nearest=2))
    query = QueryBatch(np.array([ROWS["nepal"]], np.int32), np.array([SPOKEN], np.int32), np.array([True]))
    finding = source.explain(source.count(context, np.ones(6, bool)), context, query, ROWS["nepali"])
    assert finding is not None and "“country official language”" in finding.sentence
    assert "one of the two texts names the other entity" in finding.sentence
