"""What every source of evidence promises, whichever it is; and the table and the weights that they share.

A new source is tested here as soon as `SOURCES` has it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fnftg.ego.context import ExtendedContext, GraphContext, VisibleGraph, relation_fingerprints
from fnftg.ego.known_answers import new_triples
from fnftg.errors import FnftgError
from fnftg.evidence.base import Candidates, EvidenceSource, Finding, QueryBatch
from fnftg.evidence.evidence import Evidence
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.relation_text import RelationText
from fnftg.evidence.sources import SOURCES, check_requirements, make_sources
from fnftg.evidence.table import EvidenceTable, source_columns
from fnftg.evidence.weights import EvidenceWeights
from fnftg.kg import KnowledgeGraph
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines
from fnftg.text.text_transformer import GraphTexts

TEXTS = [
    "alder, a tree beside birch and cedar",
    "birch, a white tree that alder and elm know",
    "cedar, a tall tree",
    "dahlia, a red flower under cedar",
    "elm, an old tree named after dahlia",
    "fern, a green plant below alder and cedar",
    "ginkgo, a tree older than fern and birch",  # from here on they are new
    "Cedar, a red plant that ginkgo and dahlia know",  # with the name of another entity
]
RELATION_TEXTS = ["grows beside", "shades", "is older than", "is eaten by"]  # the last one is new
OLD_ENTITIES, ENTITIES, OLD_RELATIONS, RELATIONS = 6, 8, 3, 4
SEEN, WITHOUT_EDGES = [0, 2], 1  # relations of training; an unseen one, which `many_edges` does not have
IDS, RELATION_IDS = [f"e{row}" for row in range(ENTITIES)], [f"r{row}" for row in range(RELATIONS)]
Triple = tuple[int, int, int]
Hiding = Literal["target", "pair"]


def graph_of(entities: int, relations: int) -> KnowledgeGraph:
    """The first of these entities and relations; no triples."""
    every = [("e0", relation, entity) for relation in RELATION_IDS[:relations] for entity in IDS[:entities]]
    texts = dict(zip(IDS[:entities], TEXTS, strict=False))
    graph = KnowledgeGraph.from_triples(
        {"train": every}, texts, dict(zip(RELATION_IDS[:relations], RELATION_TEXTS, strict=False))
    )
    assert [graph.entities.ids[row] for row in range(entities)] == IDS[:entities]
    assert [graph.relations.ids[row] for row in range(relations)] == RELATION_IDS[:relations]
    return graph


OLD_GRAPH, GRAPH = graph_of(OLD_ENTITIES, OLD_RELATIONS), graph_of(ENTITIES, RELATIONS)
ENCODER = load_encoder("scratch:L-1_H-32_A-2", GraphLines(GRAPH))
for weight in ENCODER.model.parameters():  # as it is made, all texts are nearly the same to it
    if weight.dim() == 2:
        torch.nn.init.normal_(weight, std=0.3, generator=torch.Generator().manual_seed(weight.shape[0]))
TEXT = TextConfig(encoder=ENCODER.name, width=16, training="frozen")
OLD, WHOLE = (GraphTexts.of(graph, ENCODER, TEXT) for graph in (OLD_GRAPH, GRAPH))


def rows(triples: list[Triple]) -> np.ndarray:
    return np.array(triples, np.int32).reshape(-1, 3)


def imported(triples: list[Triple]) -> GraphContext:
    """A graph that has all entities and relations and these triples."""
    return GraphContext.of(WHOLE, rows(triples))


def extended(
    base: GraphContext, triples: list[Triple], entities: int = ENTITIES, relations: int = RELATIONS
) -> ExtendedContext:
    """A graph with the triples and texts of a request."""
    new = np.arange(base.entities, entities)
    assert WHOLE.features is not None
    features = WHOLE.features.take(new)
    fingerprints = relation_fingerprints(WHOLE, np.arange(base.relations, relations))
    new_relations = RELATION_TEXTS[base.relations : relations]
    return ExtendedContext(
        base, rows(triples), TEXTS[base.entities : entities], lambda: features, new_relations, fingerprints
    )


def view(
    base: GraphContext, triples: list[Triple], entities: int = ENTITIES, relations: int = RELATIONS
) -> GraphContext:
    """A graph to which a predictor added triples and texts."""
    sizes = (base.entities, base.relations), (entities, relations)
    texts = base.texts.extended(viewed_graph(*sizes), ENCODER) if sizes[0] != sizes[1] else base.texts
    more = rows(triples)
    return GraphContext(
        texts,
        base.neighbours.extended(more, entities, relations),
        base.known.extended(more, entities, relations),
        base=base,
        added=new_triples(base.known, more),
        interactive=True,
    )


@cache
def viewed_graph(old: tuple[int, int], new: tuple[int, int]) -> KnowledgeGraph:
    def view_of(graph: KnowledgeGraph, first: tuple[int, int], last: tuple[int, int]) -> KnowledgeGraph:
        entities, relations = (range(start, stop) for start, stop in zip(first, last, strict=True))
        return graph.extended(
            {IDS[row]: TEXTS[row] for row in entities}, {RELATION_IDS[row]: RELATION_TEXTS[row] for row in relations}
        )

    oldest = (OLD_ENTITIES, OLD_RELATIONS)
    return view_of(view_of(OLD_GRAPH, oldest, old), old, new)


@cache
def evidence_of(name: str, limit: int = 64) -> Evidence:
    """With one source, and the relations of training."""
    config = EvidenceConfig([name], num_nearest=3, num_candidates=limit)
    evidence = Evidence(config, 4, RELATIONS)
    evidence.register_seen(imported([]), np.array(SEEN))
    return evidence


def batch(
    evidence: Evidence,
    context: VisibleGraph,
    centres: Any,
    labels: Any,
    targets: Any = None,
    hidden: Hiding = "target",
) -> QueryBatch:
    unseen = evidence.unseen(context)
    labels = np.asarray(labels, np.int32)
    return QueryBatch(
        np.asarray(centres, np.int32),
        labels,
        unseen[labels],
        None if targets is None else np.asarray(targets, np.int32),
        hidden,
    )


def candidates(
    name: str,
    context: VisibleGraph,
    centres: Any,
    labels: Any,
    targets: Any = None,
    hidden: Hiding = "target",
    limit: int = 64,
) -> Candidates:
    evidence = evidence_of(name, limit)
    [source] = evidence.sources
    queries = batch(evidence, context, centres, labels, targets, hidden)
    return source.candidates(evidence.counts(source, context), context, queries)


def by_entity(found: Candidates) -> list[dict[int, list[float]]]:
    """The features of each candidate of each query."""
    return [
        dict(zip(found.entities[start:stop].tolist(), found.features[start:stop].tolist(), strict=True))
        for start, stop in zip(found.offsets, found.offsets[1:], strict=False)
    ]


def assert_same(found: Candidates, expected: Candidates, exactly: bool = True) -> None:
    ours, theirs = by_entity(found), by_entity(expected)
    assert [sorted(one) for one in ours] == [sorted(one) for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for entity, features in other.items():
            assert one[entity] == (features if exactly else pytest.approx(features, rel=1e-5, abs=1e-6))


def many_edges() -> list[Triple]:
    """So many that every source speaks: an unseen relation has edges, and another one has none."""
    drawn = np.random.default_rng(0).integers(0, [ENTITIES, RELATIONS, ENTITIES], (60, 3))
    return [(h, r, t) for h, r, t in drawn.tolist() if r != WITHOUT_EDGES]


def every_query(entities: int, relations: int) -> tuple[np.ndarray, np.ndarray]:
    centres, labels = np.indices((entities, 2 * relations)).reshape(2, -1)
    return centres, labels


def triples_of(entities: int, relations: int, most: int = 30) -> st.SearchStrategy[list[Triple]]:
    entity = st.integers(0, entities - 1)
    return st.lists(st.tuples(entity, st.integers(0, relations - 1), entity), max_size=most, unique=True)


def dense_or_sparse(entities: int, relations: int) -> st.SearchStrategy[list[Triple]]:
    """A few triples, or so many that most entities are connected by several relations."""

    def many(seed: int) -> list[Triple]:
        random = np.random.default_rng(seed)
        drawn = random.integers(0, [entities, relations, entities], (random.integers(30, 120), 3))
        return sorted({(h, r, t) for h, r, t in drawn.tolist()})

    return st.one_of(triples_of(entities, relations), st.integers(0, 999).map(many))


TRIPLES, OLD_TRIPLES = dense_or_sparse(ENTITIES, RELATIONS), dense_or_sparse(OLD_ENTITIES, OLD_RELATIONS)
ENTITY, LABEL = st.integers(0, ENTITIES - 1), st.integers(0, 2 * RELATIONS - 1)
LIMIT = st.sampled_from([1, 2, 64])
HIDDEN = st.sampled_from(["target", "pair"])


def edge(centre: int, label: int, answer: int) -> Triple:
    """The triple that answers the query (centre, label, ·) so."""
    return (centre, label, answer) if label < RELATIONS else (answer, label - RELATIONS, centre)


def test_similarities_tell_the_texts_apart() -> None:
    """Else nearest texts would be the first ones."""
    _, cosines = WHOLE.nearest_texts(ENTITIES - 1)(np.arange(ENTITIES, dtype=np.int32))
    assert len(np.unique(cosines)) > ENTITIES


@pytest.mark.parametrize("name", SOURCES)
class TestEverySource:
    """What `EvidenceSource` promises."""

    def test_it_says_what_it_is(self, name: str) -> None:
        source = SOURCES[name]
        assert source.name == name and source.title and source.features
        assert len({feature.name for feature in source.features}) == len(source.features)
        assert all(np.isfinite([feature.initial or 0.0, feature.unseen]).all() for feature in source.features)

    def test_it_speaks_in_a_graph_with_many_edges(self, name: str) -> None:
        """Else all that follows would say nothing."""
        found = candidates(name, imported(many_edges()), *every_query(ENTITIES, RELATIONS))
        assert found.features.any(axis=0).all()

    # The leak rule

    @settings(max_examples=80, deadline=None)
    @given(triples=TRIPLES, centre=ENTITY, label=LABEL, target=ENTITY, other=ENTITY, hidden=HIDDEN, limit=LIMIT)
    def test_the_target_changes_nothing(
        self,
        name: str,
        triples: list[Triple],
        centre: int,
        label: int,
        target: int,
        other: int,
        hidden: Hiding,
        limit: int,
    ) -> None:
        """Whether it is there or not, and whichever entity it is."""
        without = [
            triple for triple in triples if triple not in (edge(centre, label, target), edge(centre, label, other))
        ]
        if hidden == "pair":  # whichever it is, all edges to it are hidden
            without = [(h, r, t) for h, r, t in without if {h, t} not in ({centre, target}, {centre, other})]
        expected = candidates(name, imported(without), [centre], [label], [target], hidden, limit)
        for answer in (target, other):
            shown = imported([*without, edge(centre, label, answer)])
            assert_same(candidates(name, shown, [centre], [label], [answer], hidden, limit), expected)

    @settings(max_examples=80, deadline=None)
    @given(triples=TRIPLES, target=st.tuples(ENTITY, st.integers(0, RELATIONS - 1), ENTITY), limit=LIMIT)
    def test_a_triple_changes_neither_of_its_two_queries(
        self, name: str, triples: list[Triple], target: Triple, limit: int
    ) -> None:
        """As ranking asks: for the tail and for the head, in one batch, other triples beside them."""
        asked = np.array([target, *triples])
        heads, relations, tails = asked.T
        queries = np.r_[heads, tails], np.r_[relations, relations + RELATIONS], np.r_[tails, heads]
        own = [0, len(asked)]
        shown, unshown = (
            candidates(name, imported(some), *queries, "target", limit)
            for some in ([*triples, target], [triple for triple in triples if triple != target])
        )
        for query in own:
            assert by_entity(shown)[query] == by_entity(unshown)[query]

    @settings(max_examples=80, deadline=None)
    @given(triples=TRIPLES, centre=ENTITY, label=LABEL, target=ENTITY, data=st.data(), limit=LIMIT)
    def test_where_the_pair_is_hidden_no_edge_between_the_two_changes_anything(
        self, name: str, triples: list[Triple], centre: int, label: int, target: int, data: st.DataObject, limit: int
    ) -> None:
        others = [(h, r, t) for h, r, t in triples if {h, t} != {centre, target}]
        between = data.draw(st.lists(LABEL.map(lambda some: edge(centre, some, target)), min_size=1, max_size=5))
        shown, unshown = (
            candidates(name, imported(some), [centre], [label], [target], "pair", limit)
            for some in ([*others, *between], others)
        )
        assert_same(shown, unshown)

    # Extending

    @settings(max_examples=60, deadline=None)
    @given(old=OLD_TRIPLES, new=triples_of(ENTITIES, RELATIONS, 8), targets=st.booleans(), hidden=HIDDEN, limit=LIMIT)
    def test_what_a_request_adds_counts_as_if_it_had_been_imported(
        self, name: str, old: list[Triple], new: list[Triple], targets: bool, hidden: Hiding, limit: int
    ) -> None:
        """New entities, relations and triples, in the context of a request and in a view."""
        centres, labels = every_query(ENTITIES, RELATIONS)
        asked = centres, labels, np.roll(centres, 3) if targets else None, hidden, limit
        expected = candidates(name, imported([*old, *new]), *asked)
        base = GraphContext.of(OLD, rows(old))
        for context in (extended(base, new), view(base, new)):
            assert_same(candidates(name, context, *asked), expected, exactly=False)

    @settings(max_examples=60, deadline=None)
    @given(
        old=OLD_TRIPLES,
        more=triples_of(OLD_ENTITIES + 1, OLD_RELATIONS, 8),
        most=triples_of(ENTITIES, RELATIONS, 8),
        limit=LIMIT,
    )
    def test_what_is_added_to_an_extended_graph_counts_too(
        self, name: str, old: list[Triple], more: list[Triple], most: list[Triple], limit: int
    ) -> None:
        """As where a predictor to which something was added is asked about something new."""
        asked = *every_query(ENTITIES, RELATIONS), None, "target", limit
        expected = candidates(name, imported([*old, *more, *most]), *asked)
        first = view(GraphContext.of(OLD, rows(old)), more, OLD_ENTITIES + 1, OLD_RELATIONS)
        for context in (extended(first, most), view(first, most)):
            assert_same(candidates(name, context, *asked), expected, exactly=False)

    @settings(max_examples=30, deadline=None)
    @given(old=OLD_TRIPLES, new=triples_of(OLD_ENTITIES, OLD_RELATIONS, 8))
    def test_triples_alone_may_be_added(self, name: str, old: list[Triple], new: list[Triple]) -> None:
        """Of which some are there already."""
        asked = every_query(OLD_ENTITIES, OLD_RELATIONS)
        base, again = GraphContext.of(OLD, rows(old)), [*new, *old[:2]]
        expected = candidates(name, GraphContext.of(OLD, rows([*old, *new])), *asked)
        for make in (extended, view):
            context = make(base, again, OLD_ENTITIES, OLD_RELATIONS)
            assert_same(candidates(name, context, *asked), expected, exactly=False)

    # Candidates

    @settings(max_examples=60, deadline=None)
    @given(old=OLD_TRIPLES, new=triples_of(ENTITIES, RELATIONS, 8), targets=st.booleans(), hidden=HIDDEN, limit=LIMIT)
    def test_candidates_are_ragged_arrays_with_each_entity_once(
        self, name: str, old: list[Triple], new: list[Triple], targets: bool, hidden: Hiding, limit: int
    ) -> None:
        centres, labels = every_query(ENTITIES, RELATIONS)
        asked = centres, labels, np.roll(centres, 1) if targets else None, hidden, limit
        for context in (imported([*old, *new]), extended(GraphContext.of(OLD, rows(old)), new)):
            found = candidates(name, context, *asked)
            assert (found.offsets.dtype, found.entities.dtype, found.features.dtype) == (np.int64, np.int32, np.float32)
            assert found.offsets[0] == 0 and found.offsets[-1] == len(found.entities)
            assert found.offsets.shape == (len(centres) + 1,) and (np.diff(found.offsets) >= 0).all()
            assert found.features.shape == (len(found.entities), len(SOURCES[name].features))
            assert np.isfinite(found.features).all()
            assert ((found.entities >= 0) & (found.entities < ENTITIES)).all()
            assert len(np.unique(found.queries * ENTITIES + found.entities)) == len(found.entities)

    @settings(max_examples=40, deadline=None)
    @given(triples=TRIPLES, targets=st.booleans(), hidden=HIDDEN, limit=LIMIT, data=st.data())
    def test_splitting_a_batch_changes_nothing(
        self, name: str, triples: list[Triple], targets: bool, hidden: Hiding, limit: int, data: st.DataObject
    ) -> None:
        context, (centres, labels) = imported(triples), every_query(ENTITIES, RELATIONS)
        asked = [centres, labels, *([np.roll(centres, 3)] if targets else [])]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(centres)), min_size=2, max_size=4)))
        whole, parts = by_entity(candidates(name, context, *asked, hidden=hidden, limit=limit)), []
        for start, stop in zip([0, *cuts], [*cuts, len(centres)], strict=True):
            part = [column[start:stop] for column in asked]
            parts += by_entity(candidates(name, context, *part, hidden=hidden, limit=limit))
        assert parts == whole

    # Explaining

    @settings(max_examples=60, deadline=None)
    @given(
        old=OLD_TRIPLES,
        new=triples_of(ENTITIES, RELATIONS, 8),
        centre=ENTITY,
        label=LABEL,
        answer=ENTITY,
        hide=st.booleans(),
    )
    def test_what_raises_an_answer_is_told_in_words_or_items_within_the_graph(
        self, name: str, old: list[Triple], new: list[Triple], centre: int, label: int, answer: int, hide: bool
    ) -> None:
        evidence = evidence_of(name)
        [source] = evidence.sources
        for context in (imported([*old, *new]), view(GraphContext.of(OLD, rows(old)), new)):
            query = batch(evidence, context, [centre], [label], [answer] if hide else None)
            finding = source.explain(evidence.counts(source, context), context, query, answer)
            assert finding is None or isinstance(finding, Finding)
            [found] = by_entity(candidates(name, context, [centre], [label], [answer] if hide else None))
            speaks = finding is not None and bool(finding.sentence or finding.items)
            assert speaks or not any(found.get(answer, ()))
            if finding is not None:
                finding.sentence.format(query="one", answer="another", items="some")
                assert all(item.entity is None or 0 <= item.entity < ENTITIES for item in finding.items)
                assert all(item.label is None or 0 <= item.label < 2 * RELATIONS for item in finding.items)
                assert all(item.entity is not None or item.label is not None for item in finding.items)
                assert all(item.value is None or finding.value_name for item in finding.items)
            told = evidence.findings(context, centre, label, answer, hide)
            assert told == ([(source, finding)] if speaks else [])


# What a model asks of the sources together


def sources_of(*names: str) -> list[EvidenceSource]:
    return make_sources(EvidenceConfig([*names]))


ALL = sources_of(*SOURCES)


@st.composite
def found_by_sources(draw: st.DrawFn, queries: int = 3, entities: int = 5) -> dict[str, list[dict[int, list[float]]]]:
    """What some of the sources found for each query: features by entity."""
    names = draw(st.lists(st.sampled_from([*SOURCES]), unique=True))
    return {
        name: [
            draw(
                st.dictionaries(
                    st.integers(0, entities - 1),
                    st.lists(st.integers(1, 9).map(float), min_size=width, max_size=width),
                    max_size=entities,
                )
            )
            for _ in range(queries)
        ]
        for name in names
        for width in [len(SOURCES[name].features)]
    }


def ragged(found: list[dict[int, list[float]]], width: int) -> Candidates:
    flat = [item for one in found for item in one.items()]
    return Candidates(
        np.cumsum([0, *map(len, found)]),
        np.array([entity for entity, _ in flat], np.int32),
        np.array([features for _, features in flat], np.float32).reshape(-1, width),
    )


def joined(found: dict[str, list[dict[int, list[float]]]], queries: int = 3, entities: int = 5) -> EvidenceTable:
    parts = {name: ragged(some, len(SOURCES[name].features)) for name, some in found.items()}
    return EvidenceTable.join(ALL, parts, np.arange(queries) % 2 == 0, entities)


@settings(max_examples=200, deadline=None)
@given(found_by_sources())
def test_a_table_has_what_the_sources_found_side_by_side(found: dict[str, list[dict[int, list[float]]]]) -> None:
    table = joined(found)
    columns, width = source_columns(ALL)
    assert table.columns == columns and table.features.shape == (len(table.entities), width)
    assert table.offsets.tolist()[0] == 0 and table.offsets[-1] == len(table.entities)
    assert (table.entities.dtype, table.features.dtype, table.offsets.dtype) == (np.int32, np.float32, np.int64)
    assert table.unseen.tolist() == [True, False, True]
    for query in range(3):
        part = slice(table.offsets[query], table.offsets[query + 1])
        expected = sorted({entity for some in found.values() for entity in some[query]})
        assert table.entities[part].tolist() == expected
        assert (table.queries[part] == query).all()
        for entity, features in zip(expected, table.features[part], strict=True):
            for source in ALL:
                nothing = [0.0] * len(source.features)
                wanted = found[source.name][query].get(entity, nothing) if source.name in found else nothing
                assert features[columns[source.name]].tolist() == wanted


@settings(max_examples=60, deadline=None)
@given(found_by_sources(), st.sampled_from([*SOURCES]))
def test_a_table_without_a_source_is_the_same_but_for_its_columns(
    found: dict[str, list[dict[int, list[float]]]], name: str
) -> None:
    table = joined(found)
    before = table.features.copy()
    without = table.without(name)
    assert not without.features[:, table.columns[name]].any() and np.array_equal(table.features, before)
    others = [column for other, own in table.columns.items() if other != name for column in range(own.start, own.stop)]
    assert np.array_equal(without.features[:, others], before[:, others])
    for column in ("offsets", "entities", "unseen"):
        assert getattr(without, column) is getattr(table, column)


@settings(max_examples=60, deadline=None)
@given(st.lists(found_by_sources(), min_size=1, max_size=3))
def test_combined_tables_have_the_queries_of_one_after_the_other(parts: list[Any]) -> None:
    tables = [joined(part) for part in parts]
    together = EvidenceTable.combined(tables)
    whole = {name: [one for part in parts for one in part.get(name, [{}] * 3)] for name in SOURCES}
    expected = joined(whole, 3 * len(parts))
    for column in ("offsets", "entities", "features", "queries"):
        assert np.array_equal(getattr(together, column), getattr(expected, column)), column
    assert together.unseen.tolist() == [True, False, True] * len(parts) and together.columns == expected.columns


def test_columns_are_in_the_order_of_the_sources() -> None:
    assert source_columns(sources_of("mentions", "text_knn")) == ({"text_knn": slice(0, 5), "mentions": slice(5, 7)}, 7)


def test_in_training_only_those_speak_that_take_part_in_it() -> None:
    evidence = Evidence(EvidenceConfig([*SOURCES], num_nearest=3), 4, RELATIONS)
    many = many_edges()
    centres, labels = (column.astype(np.int32) for column in every_query(ENTITIES, RELATIONS))
    for training in (True, False):
        table = evidence.table(imported(many), centres, labels, training=training)
        for source in evidence.sources:
            assert table.features[:, table.columns[source.name]].any() == (source.in_training or not training)


def test_a_graph_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is what a request adds to it."""
    counted: list[tuple[str, str]] = []
    for name, source in SOURCES.items():
        for method in ("count", "extend"):
            real = getattr(source, method)
            monkeypatch.setattr(
                source,
                method,
                lambda *given, real=real, name=name, method=method: counted.append((name, method)) or real(*given),
            )
    evidence = Evidence(EvidenceConfig([*SOURCES], num_nearest=3), 4, RELATIONS)
    base = GraphContext.of(OLD, rows([(0, 0, 1), (1, 1, 2)]))
    context = extended(base, [(6, 3, 1)])
    asked = np.array([1, 0], np.int32), np.array([0, 1], np.int32)
    for _ in range(2):
        evidence.table(context, *asked)
        evidence.table(base, *asked)
    assert sorted(counted) == sorted((name, method) for name in SOURCES for method in ("count", "extend"))


# Weights


def test_weights_of_relations_that_were_never_trained_on_are_the_written_ones() -> None:
    weights = EvidenceWeights(2, 3, ALL, 0.1)
    with torch.no_grad():  # whatever was learned
        for weight in weights.parameters():
            weight.normal_()
    of_features = [
        2.5,
        0,
        2.5,
        0,
        0,
        2.5,
        2.5,
        2.5,
        0,
        2.5,
        2.5,
        *(feature.unseen for feature in RelationText.features),
    ]
    features = np.arange(1, 37, dtype=np.float32).reshape(2, 18)
    features[0, 11:] = 0
    table = EvidenceTable(
        np.array([0, 1, 2]), np.array([4, 2], np.int32), features, np.array([True, True]), source_columns(ALL)[0]
    )
    with torch.no_grad():
        added = weights(torch.randn(2, 2), torch.tensor([0, 1]), table)
    assert added.tolist() == pytest.approx([0.1 * np.dot(row, of_features) for row in features], rel=1e-6)
    # 0.25 · (1 + 3 + 6 + 7 + 8 + 10 + 11)
    assert added[0].item() == pytest.approx(11.5)


def test_weights_of_relations_of_training_are_shifted_by_their_texts() -> None:
    """Worked by hand for two relations, of one feature each and then of all."""
    weights = EvidenceWeights(2, 3, ALL, 0.1)
    initial = [1, 1, 1, 1, 0, 3, 0, 1, 0]  # of text_knn, relation_cooccurrence and mentions; the others have none
    assert weights.common.tolist() == pytest.approx([0.1 * weight for weight in initial])
    assert weights.by_relation.shape == (9, 2) and not weights.by_relation.any()
    vectors = torch.tensor([[3.0, 1.0], [1.0, 3.0]])  # normalised: (1, -1) and (-1, 1)
    features = np.zeros((4, 18), np.float32)
    features[0, 0], features[1, 5], features[2, 0], features[3] = 2, 1, 2, 1
    table = EvidenceTable(
        np.array([0, 2, 4]), np.array([1, 3, 0, 2], np.int32), features, np.zeros(2, bool), source_columns(ALL)[0]
    )

    def added() -> list[float]:
        with torch.no_grad():
            found: list[float] = weights(vectors, torch.tensor([0, 1]), table).tolist()
        return found

    assert added() == pytest.approx([0.2, 0.3, 0.2, 0.8], rel=1e-6)
    with torch.no_grad():
        weights.by_relation[0] = torch.tensor([0.5, 0.25])  # the first relation's 0.25 more, the second's 0.25 less
    assert added() == pytest.approx([0.7, 0.3, -0.3, 0.55], rel=1e-4)


def test_seen_and_unseen_relations_are_weighed_apart_in_one_batch() -> None:
    sources = sources_of("few_shot_prior", "mentions")
    weights, columns = EvidenceWeights(2, 3, sources, 0.2), source_columns(sources)[0]
    features = np.ones((2, 4), np.float32)
    table = EvidenceTable(np.array([0, 1, 2]), np.array([1, 1], np.int32), features, np.array([False, True]), columns)
    with torch.no_grad():
        added = weights(torch.ones(1, 2), torch.tensor([0, 0]), table)
    assert added.tolist() == pytest.approx([0.2 * 1, 0.2 * (2.5 + 0 + 2.5 + 2.5)])


def test_relations_are_seen_once_they_are_registered() -> None:
    weights = EvidenceWeights(2, 3, ALL, 0.1)
    fingerprints = np.array([11, 22, 33])
    assert weights.unseen(fingerprints).all()
    weights.register_seen(np.array([2, 0]), fingerprints)
    assert weights.unseen(np.array([33, 22, 11, 44])).tolist() == [False, True, False, True]
    again = EvidenceWeights(2, 3, ALL, 0.5)
    again.load_state_dict(weights.state_dict())
    assert again.unseen(fingerprints).tolist() == [False, True, False]
    assert again.unseen_weights.tolist() == pytest.approx([5 * weight for weight in weights.unseen_weights.tolist()])


# What is refused


def sentence_of(error: pytest.ExceptionInfo[FnftgError]) -> str:
    told = str(error.value)
    assert told.endswith(".") and "\n" not in told and ". " not in told
    return told


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_nearest": 0}, "evidence.num_nearest is 0: it must be at least 1"),
        ({"evaluation_num_nearest": -3}, "evidence.evaluation_num_nearest is -3: it must be at least 1"),
        ({"num_candidates": 0}, "evidence.num_candidates is 0: it must be at least 1"),
        ({"mention_words": -1}, "evidence.mention_words is -1: it must not be negative"),
        ({"initial_weight": -0.1}, "evidence.initial_weight is -0.1: it must be finite and not negative"),
        ({"initial_weight": float("nan")}, "evidence.initial_weight is nan: it must be finite and not negative"),
        ({"initial_weight": float("inf")}, "evidence.initial_weight is inf: it must be finite and not negative"),
        ({"sources": ["mentions", "text_knn", "mentions"]}, "names a source twice: mentions, text_knn, mentions"),
    ],
    ids=str,
)
def test_values_that_make_no_sense_get_one_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(FnftgError) as error:
        EvidenceConfig(**values)
    assert words in sentence_of(error)


def test_a_source_that_does_not_exist_gets_one_sentence() -> None:
    with pytest.raises(FnftgError) as error:
        make_sources(EvidenceConfig(["text_knn", "votes"]))
    assert sentence_of(error) == (
        "There is no evidence source 'votes': choose from text_knn, relation_cooccurrence, mentions, few_shot_prior, relation_text."
    )


def test_sources_stand_in_their_own_order_whatever_the_config_says() -> None:
    turned = [source.name for source in sources_of(*reversed([*SOURCES]))]
    assert turned == [*SOURCES] and sources_of() == []


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_source_requires_is_told_in_one_sentence(name: str) -> None:
    config, requires = EvidenceConfig([name]), SOURCES[name].requires
    check_requirements(config, frozen_text=True, both_directions=True)
    for given_, requirement, words in (
        ({"frozen_text": False, "both_directions": True}, "frozen text", "set text.training to frozen"),
        ({"frozen_text": True, "both_directions": False}, "both directions", "set ego.directions to both"),
    ):
        if requirement not in requires:
            check_requirements(config, **given_)
            continue
        with pytest.raises(FnftgError) as error:
            check_requirements(config, **given_)
        told = sentence_of(error)
        assert words in told and f"The evidence source {name} needs" in told


def test_the_two_sentences_about_requirements() -> None:
    with pytest.raises(FnftgError) as error:
        check_requirements(EvidenceConfig(["text_knn"]), frozen_text=False, both_directions=True)
    assert str(error.value) == "The evidence source text_knn needs a frozen encoder: set text.training to frozen."
    with pytest.raises(FnftgError) as error:
        check_requirements(EvidenceConfig(["relation_cooccurrence"]), frozen_text=True, both_directions=False)
    assert str(error.value) == (
        "The evidence source relation_cooccurrence needs edges of both directions: set ego.directions to both."
    )


def test_texts_that_are_trained_need_no_nearest_texts_and_edges_of_one_direction_no_inverse() -> None:
    check_requirements(EvidenceConfig(["mentions"]), frozen_text=False, both_directions=False)
    check_requirements(EvidenceConfig(), frozen_text=False, both_directions=False)


def test_as_many_nearest_texts_are_looked_at_in_evaluation_unless_told_otherwise() -> None:
    assert EvidenceConfig(num_nearest=7).num_nearest_at_evaluation == 7
    assert EvidenceConfig(num_nearest=7, evaluation_num_nearest=9).num_nearest_at_evaluation == 9
