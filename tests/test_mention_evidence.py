"""Names in texts, and how much they say, against plain loops; nothing that is hidden from a query may show in it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import EGO, ENCODER, TEXT

from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.mention_prior import MentionPrior
from fnftg.kg.graph import KnowledgeGraph, Vocabulary
from fnftg.kg.strings import Strings
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import protocol
from fnftg.text import mentions
from fnftg.text.encoders import load_encoder
from fnftg.text.mentions import NAMED, NAMES, Mentions
from fnftg.text.rows import GraphLines
from fnftg.text.text_transformer import GraphTexts

ENTITIES, RELATIONS = 5, 3
Triple = tuple[int, int, int]
ENTITY, RELATION = st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)
TRIPLES = st.lists(st.tuples(ENTITY, RELATION, ENTITY), max_size=30)
WORDS = st.lists(st.sampled_from(["a", "B", "b", "c-d", "ß", "e.", "7"]), max_size=7).map(" ".join)
NAME = st.lists(st.sampled_from(["a", "b", "c", "C d", "ß", "7"]), min_size=1, max_size=6).map(" ".join)


def vocabulary(named: list[tuple[str, str]]) -> Vocabulary:
    """Entities by name and text."""
    names, texts = zip(*named, strict=True)
    return Vocabulary(Strings.of([f"e{i}" for i in range(len(named))]), Strings.of(texts), Strings.of(names))


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def has(text: str, name: str) -> bool:
    """Whether the words of the name stand in a row in the text."""
    words, wanted = words_of(text), words_of(name)
    return any(words[place : place + len(wanted)] == wanted for place in range(len(words) - len(wanted) + 1))


def naming_pairs(named: list[tuple[str, str]], common: int = 300, words: int = 100) -> set[tuple[int, int]]:
    """(one, other) for each one whose text, among its first words behind its own name, has the other's."""
    read = [[" ".join(string.split()[:words]) for string in pair] for pair in named]
    texts = [text.removeprefix(name) for name, text in read]
    pairs = set()
    for other, (name, _) in enumerate(named):
        bearers = [name for name, _ in named if words_of(name) == words_of(named[other][0])]
        having = [one for one, text in enumerate(texts) if has(text, name)]
        if 0 < len(words_of(name)) <= 5 and len(having) <= common and len(bearers) <= common:
            pairs |= {(one, other) for one in having if one != other}
    return pairs


def assert_mentions(found: Mentions, pairs: set[tuple[int, int]], count: int) -> None:
    offsets, others, kinds = found.around(np.arange(count))
    for one in range(count):
        row = slice(offsets[one], offsets[one + 1])
        expected = [
            (other, NAMES * ((one, other) in pairs) + NAMED * ((other, one) in pairs)) for other in range(count)
        ]
        assert list(zip(others[row].tolist(), kinds[row].tolist(), strict=True)) == [o for o in expected if o[1]]
    ones, others = (part.ravel() for part in np.indices((count, count)))
    kinds = [NAMES * (pair in pairs) + NAMED * (pair[::-1] in pairs) for pair in zip(ones, others, strict=True)]
    assert found.between(ones, others).tolist() == kinds


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(NAME, WORDS), min_size=1, max_size=8), st.integers(0, 4), st.integers(0, 8))
def test_texts_name_whose_name_they_have_word_by_word(named: list[tuple[str, str]], common: int, words: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mentions, "COMMON", common)
        assert_mentions(Mentions.of(vocabulary(named), words), naming_pairs(named, common, words or 100), len(named))


def test_a_name_is_found_whatever_its_case_but_not_within_a_word() -> None:
    named = [
        ("Ada Lovelace", "Ada Lovelace -- Ada worked with charles BABBAGE."),
        ("Charles Babbage", "Charlesbabbage"),
    ]
    assert naming_pairs(named) == {(0, 1)}
    assert_mentions(Mentions.of(vocabulary(named), 0), {(0, 1)}, 2)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(NAME, WORDS), min_size=2, max_size=8), st.data())
def test_more_entities_mention_as_if_they_had_been_there(named: list[tuple[str, str]], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(named)))
    second = data.draw(st.integers(first, len(named)))
    words = data.draw(st.integers(0, 8))
    found = Mentions.of(vocabulary(named[:first]), words)
    for more in (named[first:second], named[second:]):
        found = found.extended([text for _, text in more], pl.Series([name for name, _ in more], dtype=pl.String))
    assert_mentions(found, naming_pairs(named, words=words or 100), len(named))


def test_mentions_are_found_in_the_words_that_the_encoder_reads_unless_told_otherwise() -> None:
    """An entity is named in the seventh word of a text of which the encoder reads four."""
    named = {"ann": "ann, a very good friend of bob", "bob": "bob, a baker"}
    graph = KnowledgeGraph.from_triples({"train": [("ann", "knows", "bob")]}, named)
    encoder = load_encoder("scratch:L-1_H-16_A-2", GraphLines(graph))
    texts = GraphTexts.of(graph, encoder, replace(TEXT, encoder=encoder.name, words=4))
    one, other = np.array([0]), np.array([1])
    assert texts.mentions(None).between(one, other).tolist() == [0]
    assert texts.mentions(7).between(one, other).tolist() == texts.mentions(0).between(one, other).tolist() == [NAMES]
    assert texts.mentions(6).between(one, other).tolist() == [0]


# How much a mention says

NAMED_BY = st.lists(st.sets(ENTITY, max_size=3), min_size=ENTITIES, max_size=ENTITIES)
CENTRES = np.repeat(np.arange(ENTITIES, dtype=np.int32), 2 * RELATIONS)
LABELS = np.tile(np.arange(2 * RELATIONS, dtype=np.int32), ENTITIES)


def of_texts(named: list[set[int]]) -> Mentions:
    """Of entities whose texts name these others."""
    return Mentions.of(
        vocabulary([(f"n{one}", " ".join(f"n{other}" for other in named[one])) for one in range(len(named))]), 0
    )


def prior(mentions: Mentions, triples: list[Triple], relations: int = RELATIONS) -> MentionPrior:
    nothing = MentionPrior(np.zeros(0, np.int64), np.zeros((2, 0), np.int64))
    return nothing.extended(mentions, rows(sorted(set(triples))), relations)


def rows(triples: list[Triple]) -> np.ndarray:
    return np.array(triples, np.int32).reshape(-1, 3)


def asked(
    named: list[set[int]], triples: list[Triple], centres: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, ...]:
    known, mentions = KnownAnswers.of(rows(triples), ENTITIES, RELATIONS), of_texts(named)
    return prior(mentions, triples).lookup(mentions, known, centres, labels)


@settings(max_examples=200, deadline=None)
@given(NAMED_BY, TRIPLES)
def test_a_mention_says_as_much_as_the_share_of_triples_that_have_it(
    named: list[set[int]], triples: list[Triple]
) -> None:
    offsets, entities, mass = asked(named, triples, CENTRES, LABELS)
    named = [others - {one} for one, others in enumerate(named)]
    edges = {(h, r, t) for h, r, t in triples} | {(t, RELATIONS + r, h) for h, r, t in triples}
    for query, (centre, label) in enumerate(zip(CENTRES.tolist(), LABELS.tolist(), strict=True)):
        elsewhere = [(h, t) for h, a, t in edges if a == label and centre not in (h, t)]
        names = sum(t in named[h] for h, t in elsewhere) / (len(elsewhere) + 1)
        is_named = sum(h in named[t] for h, t in elsewhere) / (len(elsewhere) + 1)
        expected = {
            other: names * (other in named[centre]) + is_named * (centre in named[other]) for other in range(ENTITIES)
        }
        row = slice(offsets[query], offsets[query + 1])
        found = dict(zip(entities[row].tolist(), mass[row].tolist(), strict=True))
        assert found == pytest.approx({other: share for other, share in expected.items() if share}, rel=1e-6)


def test_a_share_worked_by_hand() -> None:
    # 0's text names 1, and 0 -0-> 1; 2 -0-> 3 without a mention; 4's text names 3, and (4, 0, ?) is asked
    found = asked([{1}, set(), set(), set(), {3}], [(0, 0, 1), (2, 0, 3)], *np.array([[4], [0]], np.int32))
    assert [part.tolist() for part in found] == [[0, 1], [3], pytest.approx([1 / 3])]


@settings(max_examples=150, deadline=None)
@given(NAMED_BY, TRIPLES, st.tuples(ENTITY, RELATION, ENTITY))
def test_what_is_asked_for_changes_no_mention(named: list[set[int]], triples: list[Triple], hidden: Triple) -> None:
    head, relation, tail = hidden
    centres, labels = np.array([head, tail], np.int32), np.array([relation, RELATIONS + relation], np.int32)
    without = [triple for triple in triples if triple != hidden]
    shown, unshown = (asked(named, some, centres, labels) for some in ([*without, hidden], without))
    for one, other in zip(shown, unshown, strict=True):
        assert np.array_equal(one, other)


@settings(max_examples=100, deadline=None)
@given(NAMED_BY, TRIPLES, TRIPLES)
def test_triples_counted_later_are_those_of_the_whole_graph(
    named: list[set[int]], triples: list[Triple], more: list[Triple]
) -> None:
    """With a relation that was not there before, too."""
    found = of_texts(named)
    old = {(h, min(r, RELATIONS - 2), t) for h, r, t in triples}
    new = sorted(set(more) - old)
    extended = prior(found, sorted(old), RELATIONS - 1).extended(found, rows(new), RELATIONS)
    whole = prior(found, sorted(old | set(new)))
    assert np.array_equal(extended.mentioning, whole.mentioning)
    assert np.array_equal(extended.frequencies, whole.frequencies)


# In a model

TEXTS = {f"e{i:02}": f"thing{i}, beside thing{(7 * i + 1) % 40} and thing{(3 * i) % 40}" for i in range(40)}
ROWS = np.random.default_rng(4).integers(0, [40, 3, 40], (220, 3)).tolist()
LINKED = [(f"e{i:02}", "r0", f"e{(7 * i + 1) % 40:02}") for i in range(40)]
TRIPLES_BY_ID = [*LINKED, *((f"e{h:02}", f"r{r}", f"e{t:02}") for h, r, t in ROWS)]
GRAPH = KnowledgeGraph.from_triples(
    {"train": TRIPLES_BY_ID[10:200], "val": [*LINKED[:10], *TRIPLES_BY_ID[200:]]},
    TEXTS,
    {f"r{i}": f"relation {i}" for i in range(3)},
)


def model_with(*sources: str) -> FnF:
    torch.manual_seed(5)
    evidence = EvidenceConfig([*sources], num_nearest=4, initial_weight=0.5)
    return FnF(FnFConfig(text=TEXT, ego=EGO, score="cosine", evidence=evidence), ENCODER, len(GRAPH.relations)).eval()


@pytest.mark.parametrize("name", ["cumulative", "strict"])
def test_mentions_raise_what_they_speak_for_also_where_the_pair_is_hidden(name: str) -> None:
    model, plain = model_with("mentions"), model_with()
    texts = model.texts(GRAPH)
    ranks, plain_ranks = (rank_split(one, GRAPH, texts, "val", protocol(name)).ranks for one in (model, plain))
    linked = np.isin(GRAPH.triples("val")[:, 1], GRAPH.relations.find("r0"))
    assert (1 / ranks[:, linked]).mean() > (1 / plain_ranks[:, linked]).mean()


def test_mentions_are_left_to_the_fit_and_training_starts_as_without_them() -> None:
    model: Any = model_with("text_knn", "mentions")
    plain: Any = model_with("text_knn")
    for name, value in plain.state_dict().items():
        own = model.state_dict()[name]
        assert torch.equal(value, own[: len(value)] if name.startswith("evidence.weights.") else own), name
    context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
    heads, relations = GRAPH.triples("train")[:, 0].copy(), GRAPH.triples("train")[:, 1].copy()
    in_training, later = (model.evidence.table(context, heads, relations, training=now) for now in (True, False))
    own = in_training.columns["mentions"]
    assert in_training.features.any() and not in_training.features[:, own].any()
    assert later.features[:, own].any()
