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
from fnftg.text.nearest_texts import unit
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
    "twins": "TWIN, a town",
}
RELATIONS = {"capital": "country capital city", "spoken": "country official language", "height": "mountain height"}
ROWS = {name: row for row, name in enumerate(ENTITIES)}
CAPITAL, SPOKEN, HEIGHT = 0, 1, 2


@pytest.fixture(scope="module")
def texts() -> GraphTexts:
    triples = [("nepal", "capital", "kathmandu"), ("nepal", "spoken", "nepali"), ("everest", "height", "thai")]
    triples += [("thailand", "capital", "thai"), ("twin", "capital", "other"), ("twins", "capital", "other")]
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
    columns = [feature.name for feature in source.features]
    return {
        names[entity]: dict(zip(columns, values, strict=True))
        for entity, values in zip(found.entities.tolist(), found.features.tolist(), strict=True)
    }


def cosine(texts: GraphTexts, one: str, other: str) -> float:
    """Of any two texts, by the frozen encoder."""
    assert texts.features is not None
    vectors = unit(texts.features.encode_texts([one, other]))
    return float(vectors[0] @ vectors[1])


def test_the_last_words_of_a_relation_name_its_tails_and_the_first_its_heads(texts: GraphTexts) -> None:
    tails = asked(texts, [], "everest", SPOKEN)
    heads = asked(texts, [], "everest", SPOKEN + 3)
    assert {"nepali", "thai"} == set(sorted(tails, key=lambda name: -tails[name]["answer_words"])[:2])
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


def test_mentions_of_both_texts_count(texts: GraphTexts) -> None:
    found = asked(texts, [], "nepal", SPOKEN)
    assert found["nepali"]["mentions"] == 1 and found["thai"]["mentions"] == 0
    assert asked(texts, [], "kathmandu", SPOKEN)["nepal"]["mentions"] == 1
    assert asked(texts, [], "twin", SPOKEN)["other"]["mentions"] == 2


def test_an_edge_counts_as_much_as_its_relation_is_similar(texts: GraphTexts) -> None:
    """The best one counts if there are several; the words are those for the answer as seen from the query entity."""
    found = asked(texts, [("nepal", CAPITAL, "kathmandu")], "nepal", SPOKEN)
    similarity = cosine(texts, "country capital city", "country official language")
    assert 0.1 < similarity < 0.9
    assert found["kathmandu"]["similar_edge"] == pytest.approx(similarity, abs=1e-4)
    assert found["nepali"]["similar_edge"] == found["thai"]["similar_edge"] == 0
    both = asked(texts, [("nepal", CAPITAL, "kathmandu"), ("kathmandu", HEIGHT, "nepal")], "nepal", SPOKEN)
    other = cosine(texts, "mountain height", "country official language")
    assert both["kathmandu"]["similar_edge"] == pytest.approx(max(similarity, other), abs=1e-4)


def test_a_common_neighbour_counts_by_its_degree(texts: GraphTexts) -> None:
    """Nepal and Everest share Kathmandu, which has three neighbours; edges of the relation itself do not count."""
    edges = [("nepal", CAPITAL, "kathmandu"), ("everest", HEIGHT, "kathmandu"), ("thai", HEIGHT, "kathmandu")]
    found = asked(texts, [*edges, ("kathmandu", HEIGHT, "everest")], "nepal", SPOKEN)
    assert found["everest"]["common_neighbours"] == pytest.approx(np.log1p(100 / 3), rel=1e-5)
    assert found["kathmandu"]["common_neighbours"] == 0
    target = [("nepal", SPOKEN, "kathmandu"), *edges[1:]]
    assert not any(values["common_neighbours"] for values in asked(texts, target, "nepal", SPOKEN).values())
    assert asked(texts, [*edges, target[0]], "nepal", SPOKEN) == asked(texts, edges, "nepal", SPOKEN)


def test_another_entity_with_the_same_name_is_a_candidate(texts: GraphTexts) -> None:
    found = asked(texts, [], "twin", SPOKEN)
    assert [name for name, values in found.items() if values["same_name"]] == ["twins"]


def test_an_answer_of_similar_relations_has_the_right_type(texts: GraphTexts) -> None:
    """Worked by hand: the mean of the similarities⁴ and one more edge, which has the mean of the four other labels."""
    labels = ["country capital city"] * 2 + ["mountain height"] * 2
    powers = [max(cosine(texts, words, "country official language"), 0) ** 4 for words in labels]
    mean = sum(powers) / 4
    edges = [("thailand", CAPITAL, "thai"), ("everest", HEIGHT, "thai"), ("thailand", HEIGHT, "nepali")]
    found = asked(texts, [*edges, ("nepal", CAPITAL, "nepali")], "nepal", SPOKEN)
    assert found["thai"]["answer_type"] == pytest.approx((powers[0] + powers[2] + mean) / 3, rel=0.01)
    assert found["nepali"]["answer_type"] == pytest.approx((powers[2] + mean) / 2, rel=0.01)  # not of the query entity
    assert found["kathmandu"]["answer_type"] == pytest.approx(mean, rel=0.01)
    assert powers[0] > 2 * mean / 3 > 0


def test_the_target_does_not_count_towards_too_many_edges(texts: GraphTexts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_text, "MAX_EDGES", 1)
    edges = [("nepal", CAPITAL, "kathmandu")]
    assert asked(texts, [*edges, ("nepal", SPOKEN, "nepali")], "nepal", SPOKEN) == asked(texts, edges, "nepal", SPOKEN)
    assert asked(texts, edges, "nepal", SPOKEN)["kathmandu"]["similar_edge"] > 0
    assert asked(texts, [*edges, ("nepal", CAPITAL, "thai")], "nepal", SPOKEN)["kathmandu"]["similar_edge"] == 0


def test_common_neighbours_with_too_many_edges_do_not_count(texts: GraphTexts, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [("nepal", CAPITAL, "kathmandu"), ("everest", HEIGHT, "kathmandu")]
    for most, counts in ((2, True), (1, False)):
        monkeypatch.setattr(relation_text, "MAX_EDGES", most)
        for some in (edges, [*edges, ("nepal", SPOKEN, "kathmandu")]):
            found = asked(texts, some, "nepal", SPOKEN).get("everest", {"common_neighbours": 0})
            assert (found["common_neighbours"] > 0) == counts


def test_a_hidden_pair_has_no_edges(texts: GraphTexts) -> None:
    target = np.array([ROWS["kathmandu"]], np.int32)
    edges = [("nepal", CAPITAL, "kathmandu"), ("everest", HEIGHT, "kathmandu")]
    found = asked(texts, edges, "nepal", SPOKEN, targets=target, hidden="pair")
    assert not any(values["similar_edge"] or values["common_neighbours"] for values in found.values())
    assert found["kathmandu"] == asked(texts, edges[1:], "nepal", SPOKEN)["kathmandu"]


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


def test_the_reasons_say_what_the_edges_show(texts: GraphTexts) -> None:
    edges = [("nepal", CAPITAL, "kathmandu"), ("everest", HEIGHT, "kathmandu")]
    context = GraphContext.of(texts, np.array([(ROWS[h], r, ROWS[t]) for h, r, t in edges], np.int32))
    source = RelationText(EvidenceConfig(["relation_text"], num_nearest=2))
    counts = source.count(context, np.ones(6, bool))

    def reason(centre: str, answer: str) -> str:
        query = QueryBatch(np.array([ROWS[centre]], np.int32), np.array([SPOKEN], np.int32), np.array([True]))
        finding = source.explain(counts, context, query, ROWS[answer])
        assert finding is not None
        return finding.sentence

    assert "an edge of a relation with similar words connects {query} and {answer}" in reason("nepal", "kathmandu")
    assert "{query} and {answer} have common neighbours" in reason("nepal", "everest")
    assert "{query} and {answer} have the same name" in reason("twin", "twins")
    assert "have common neighbours" not in reason("nepal", "kathmandu")
    assert "an edge of" not in reason("twin", "twins")
