"""Reasons are what is computed again without them, and the triple itself is none of them."""

from __future__ import annotations

import copy
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from test_ranking import Here, here  # noqa: F401 (a fixture)

from fnftg.ego.context import GraphContext
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.graph_transformer import GraphTransformerConfig
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.sampling import Hidden
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.table import source_columns
from fnftg.kg import KnowledgeGraph
from fnftg.models.bow import BOW, BOWConfig
from fnftg.models.ensemble import Ensemble, EnsembleConfig
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.pretrained import save_pretrained
from fnftg.models.statik import StATIK, StATIKConfig
from fnftg.predict.explanation import EvidenceReason, Explanation
from fnftg.predict.explanation_drawing import DRAWN, drawing
from fnftg.predict.predictor import Predictor, load
from fnftg.predict.questions import NewEntity, Relation
from fnftg.ranking.evaluation import rank_split
from fnftg.ranking.protocols import protocol
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines

KINDS = ("red", "blue", "green", "old")
TEXTS = {f"e{i:02}": f"{KINDS[i % 4]} thing {'<b>&' if i == 3 else ''} number {i} & so on" for i in range(40)}
TEXTS["e05"] = "lonely"
DRAWN_ROWS = np.random.default_rng(4).integers(0, [40, 3, 40], (220, 3)).tolist()
HUB = [(0, 0, other) for other in range(1, 40)]  # more neighbours than are drawn
NAMED = [(f"e{h:02}", f"r{r}", f"e{t:02}") for h, r, t in [*HUB, *DRAWN_ROWS]]
GRAPH = KnowledgeGraph.from_triples(
    {"train": NAMED[:200], "val": NAMED[200:230], "test": NAMED[230:]},
    TEXTS,
    {f"r{i}": f"relation {i}" for i in range(3)},
)
ENCODER = load_encoder("scratch:L-1_H-32_A-2", GraphLines(GRAPH))
TEXT = TextConfig(encoder=ENCODER.name, width=16, training="frozen", words=4, pooling="mean")
EGO = EgoConfig(num_neighbours=4, evaluation_num_neighbours=1_000)


def made_run(folder: Path, model: Any, graph: KnowledgeGraph = GRAPH) -> Path:
    """A run as training would leave it, with random weights."""
    store = graph.save(folder / "graph")
    save_pretrained(model, folder / "run" / "checkpoint")
    config = {"training": {"protocol": "cumulative", "seed": 1}}
    (folder / "run" / "config.json").write_text(json.dumps({"graph": str(store.path), "config": config}))
    return folder / "run"


def random_model(**changes: Any) -> FnF:
    torch.manual_seed(0)
    config = FnFConfig(text=TEXT, ego=EGO, graph=GraphTransformerConfig(heads=2, modulated_values=True))
    model = FnF(replace(config, **changes), ENCODER, len(GRAPH.relations)).eval()
    for weight in model.parameters():
        if weight.dim() == 2 and weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    context = GraphContext.of(model.texts(GRAPH), GRAPH.triples("train"))
    model.register_seen(context, np.arange(len(GRAPH.relations), dtype=np.int32))
    return model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("explained"), random_model())


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return load(run)


@pytest.fixture(scope="module")
def with_evidence(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """With the evidence of similar texts, and without an entity among its own answers."""
    return load(made_run(tmp_path_factory.mktemp("evidence"), evidence_model()))


def evidence_model() -> FnF:
    evidence = EvidenceConfig(sources=["text_knn"], num_nearest=8, num_candidates=6, initial_weight=0.3)
    return random_model(score="cosine", evidence=evidence, allow_self_answers=False)


def explained(predictor: Predictor, *triple: int, **options: Any) -> Explanation:
    return predictor.explain(*triple, **options)  # type: ignore[arg-type]


def score_of(
    predictor: Predictor, triple: Any, query: Any, candidate: Any, texts: Any = None, asked: str = "tail"
) -> float:
    """The score by the model alone, one pass for each end, each with edges (n, 3) of its own."""
    model, h, r, t = predictor.model, *triple
    centre, answer, label = (h, t, r) if asked == "tail" else (t, h, r + 3)
    vectors = []
    for place, edges in ((centre, query), (answer, candidate)):
        context = GraphContext(texts or predictor.context.texts, Neighbours.of(edges, 40, 3))
        other = np.array([answer if place == centre else centre], np.int32)
        own_label = label if place == centre else (label + 3) % 6
        hidden = Hidden(other, np.array([own_label], np.int32))
        egos = context.ego_graphs(model.ego, np.array([place], np.int32), hidden)
        with torch.no_grad():
            found = model(context.texts, np.array([place], np.int32), egos, np.array([label], np.int32), True)
        vectors.append(found[1] if place == centre and not vectors else found[0])
    return float(model.similarity(vectors[0], vectors[1]))


TRIPLES = [tuple(map(int, row)) for row in GRAPH.triples("test")[[0, 5, 9, 14]]]


@pytest.mark.parametrize("kind", ["predictor", "with_evidence"])
@pytest.mark.parametrize("asked", ["tail", "head"])
def test_score_and_rank_are_those_of_ranking(kind: str, asked: Any, request: pytest.FixtureRequest) -> None:
    predictor = request.getfixturevalue(kind)
    ranking = rank_split(predictor.model, GRAPH, predictor.context.texts, "test", protocol("cumulative"))
    row = 0 if asked == "tail" else 1
    for place, triple in enumerate(ranking.triples.tolist()[:12]):
        found = explained(predictor, *triple, asked=asked)
        assert found.rank == ranking.ranks[row, place] and found.in_graph and found.hidden
        assert found.score == pytest.approx(float(ranking.scores[row, place]), abs=1e-4)
        assert found.candidates == ranking.others[row, place] + 1


@pytest.mark.parametrize("asked", ["tail", "head"])
def test_every_edge_left_out_is_what_one_by_one_recomputation_finds(predictor: Predictor, asked: Any) -> None:
    edges = np.unique(GRAPH.all_triples(), axis=0)
    for triple in TRIPLES[:2]:
        found = explained(predictor, *triple, asked=asked)
        assert found.score == pytest.approx(score_of(predictor, triple, edges, edges, asked=asked), abs=1e-4)
        for name, side in (("query", found.query), ("candidate", found.candidate)):
            centre = GRAPH.entities.find(side.entity.id)
            assert side.edges, "there is something to look at"
            for edge in side.edges:
                step, other = edge.edge, GRAPH.entities.find(edge.neighbour.id)
                ends = (centre, other) if step.direction == "out" else (other, centre)
                removed = (ends[0], GRAPH.relations.find(step.relation), ends[1])
                assert removed != triple, "the triple is none of its own reasons"
                rest = edges[(edges != np.array(removed)).any(axis=1)]
                given = (rest, edges) if name == "query" else (edges, rest)
                score = score_of(predictor, triple, *given, asked=asked)
                if ends[0] != ends[1]:  # of a loop the recomputation loses both directions
                    assert edge.score_without == pytest.approx(score, abs=1e-4)
                assert edge.effect == pytest.approx(found.score - edge.score_without, abs=1e-4)


def test_every_word_left_out_is_what_a_graph_without_it_gives(predictor: Predictor) -> None:
    edges = np.unique(GRAPH.all_triples(), axis=0)
    pairs = edges[:, [0, 2]]
    h, r, t = next(  # neither end is a neighbour of the other or of itself, where its text would be read too
        triple
        for triple in edges.tolist()
        if np.isin(pairs, [triple[0], triple[2]]).all(axis=1).sum() == 1 and triple[0] and triple[0] != triple[2]
    )
    found = explained(predictor, h, r, t)
    for side, row in ((found.query, h), (found.candidate, t)):
        id_ = GRAPH.entities.ids[row]
        words = TEXTS[id_].split()[:4]  # as many as the model reads
        assert [word.word for word in side.words] == words
        for place, word in enumerate(side.words):
            changed = {**TEXTS, id_: " ".join(words[:place] + words[place + 1 :])}
            named = {split: [names(triple) for triple in triples] for split, triples in GRAPH.splits.items()}
            other = KnowledgeGraph.from_triples(named, changed, {f"r{i}": f"relation {i}" for i in range(3)})
            assert other.entities.find(id_) == row
            texts = predictor.model.texts(other)
            score = score_of(predictor, (h, r, t), edges, edges, texts)
            assert word.score_without == pytest.approx(score, abs=1e-4)


def names(triple: Any) -> tuple[str, str, str]:
    h, r, t = (int(row) for row in triple)
    return GRAPH.entities.ids[h], GRAPH.relations.ids[r], GRAPH.entities.ids[t]


def test_ranks_without_an_edge_are_counted_among_the_other_candidates(predictor: Predictor) -> None:
    found = explained(predictor, *TRIPLES[2])
    h, r, t = TRIPLES[2]
    known = {int(tail) for head, relation, tail in GRAPH.all_triples() if (head, relation) == (h, r)} - {t}
    others = [row for row in range(40) if row not in known | {t}]
    egos = predictor.context.ego_graphs(
        predictor.model.ego, np.array([h], np.int32), Hidden(np.array([t], np.int32), np.array([r], np.int32))
    )
    with torch.no_grad():
        _, point = predictor.model(
            predictor.context.texts, np.array([h], np.int32), egos, np.array([r], np.int32), False
        )
    scores = predictor.model.similarity(point, torch.from_numpy(np.array(predictor.table)))[0].numpy()[others]
    for edge in found.candidate.edges:  # the query is the same, so are the others' scores
        assert edge.rank_without == pytest.approx(1 + (scores > edge.score_without).sum(), abs=0.5)


# What evidence adds


def reason(found: Explanation, source: str) -> EvidenceReason:
    [only] = [one for one in found.evidence if one.source == source]
    return only


def silent(predictor: Predictor, source: str) -> Predictor:
    """The same, but that what a source finds weighs nothing."""
    model: Any = copy.deepcopy(predictor.model)
    columns = range(*source_columns(model.evidence.sources)[0][source].indices(100))
    weights = model.evidence.weights
    with torch.no_grad():
        for place, column in enumerate(weights.learned):
            if column in columns:
                weights.common[place], weights.by_relation[place] = 0, 0
        weights.unseen_weights[list(columns)] = 0
    return replace(predictor, model=model)


def assert_adds(found: Explanation, without: Explanation, source: str) -> EvidenceReason | None:
    """That what a source adds is what is missing without it; None and nothing where it does not speak."""
    if source not in {one.source for one in found.evidence}:
        assert found.score == pytest.approx(without.score, abs=1e-6)
        return None
    told = reason(found, source)
    assert told.sentence or told.items
    assert told.score_without == pytest.approx(without.score, abs=1e-6)
    assert told.effect == pytest.approx(found.score - without.score, abs=1e-6)
    assert told.rank_without == without.rank
    return told


def test_items_of_text_knn_are_the_nearest_texts_with_the_answer_and_it_adds_what_is_missing_without_it(
    with_evidence: Predictor,
) -> None:
    model: Any = copy.deepcopy(with_evidence.model)
    model.evidence = None
    alone = replace(with_evidence, model=model)
    known = {tuple(triple) for triple in GRAPH.all_triples().tolist()}
    shown = 0
    for triple in GRAPH.triples("test").tolist()[:20]:
        found, without = explained(with_evidence, *triple), explained(alone, *triple)
        assert without.evidence == []
        told = assert_adds(found, without, "text_knn")
        rows, cosines = with_evidence.context.texts.nearest_texts(8)(np.array(triple[:1], np.int32))
        expected = [
            (GRAPH.entities.ids[int(row)], float(cosine))
            for row, cosine in zip(rows[0], cosines[0], strict=True)
            if (int(row), *triple[1:]) in known
        ]
        assert (told is not None) == bool(expected), "where no similar text has the answer it does not speak"
        if told is not None:
            assert [(item.entity and item.entity.id, item.value) for item in told.items] == expected
            assert told.value_name == "similarity" and all(item.relation is None for item in told.items)
            shown += 1
    assert shown, "some have"


def test_what_connects_the_two_already_is_named_with_what_it_adds(tmp_path: Path) -> None:
    sources = ["text_knn", "relation_cooccurrence"]
    evidence = EvidenceConfig(sources=sources, num_nearest=4, initial_weight=0.3)
    predictor = load(made_run(tmp_path, random_model(score="cosine", evidence=evidence)))
    shown = 0
    for head, relation, tail in GRAPH.triples("test").tolist()[:40]:
        found = explained(predictor, head, relation, tail)
        alone = explained(silent(predictor, "relation_cooccurrence"), head, relation, tail)
        expected = {
            (GRAPH.relations.ids[r], "out" if (h, t) == (head, tail) else "in")
            for h, r, t in GRAPH.all_triples().tolist()
            if {h, t} == {head, tail} and (h, r, t) != (head, relation, tail) and head != tail
        }
        assert [one.source for one in found.evidence] in (sources, sources[:1], sources[1:], [])
        told = assert_adds(found, alone, "relation_cooccurrence")
        assert (told is not None) == bool(expected), "where nothing connects them it does not speak"
        if told is not None:
            steps = [item.relation for item in told.items if item.relation]
            assert {(step.relation, step.direction) for step in steps} == expected
            assert all(item.entity is None for item in told.items)
            shown += told.effect > 0
    assert shown, "something does"


def test_that_a_text_names_the_other_end_is_told_with_what_it_adds(tmp_path: Path) -> None:
    texts = TEXTS | {"e00": "red thing, and Lonely", "e01": "blue thing, never lonely"}  # which e05 is called
    graph = KnowledgeGraph.from_triples(
        {"train": [*NAMED[:200], ("e01", "r0", "e05")], "val": NAMED[200:230], "test": NAMED[230:]},
        texts,
        {f"r{i}": f"relation {i}" for i in range(3)},
    )
    triple = graph.rows("e00", "r0", "e05")
    model: Any = random_model(score="cosine", evidence=EvidenceConfig(sources=["mentions"], initial_weight=0.3))
    torch.nn.init.zeros_(model.evidence.weights.by_relation)
    predictor = load(made_run(tmp_path, model, graph))
    found, alone = (explained(one, *triple) for one in (predictor, silent(predictor, "mentions")))
    told = assert_adds(found, alone, "mentions")
    assert told is not None and told.effect > 0 and not told.items
    assert told.sentence == "the text of red thing names lonely"
    swapped = reason(explained(predictor, *triple, asked="head"), "mentions")
    assert swapped.sentence == "the text of red thing names lonely", "whichever of the two is asked for"
    assert explained(predictor, *graph.rows("e00", "r0", "e07")).evidence == [], "whom no text names"


def test_answers_of_a_relation_that_is_new_are_told_with_what_they_add(tmp_path: Path) -> None:
    sources = ["text_knn", "few_shot_prior"]
    evidence = EvidenceConfig(sources=sources, num_nearest=12, initial_weight=0.3)
    model: Any = random_model(score="cosine", evidence=evidence)
    model.evidence.weights.seen.zero_()
    predictor: Any = load(made_run(tmp_path, model))
    triples = {tuple(triple) for triple in GRAPH.all_triples().tolist()}
    similar = 0
    for head, relation, tail in GRAPH.triples("test").tolist()[:20]:
        found = explained(predictor, head, relation, tail)
        told = assert_adds(
            found, explained(silent(predictor, "few_shot_prior"), head, relation, tail), "few_shot_prior"
        )
        others = sum((r, t) == (relation, tail) and h != head for h, r, t in triples)
        if told is None:
            assert not others
            continue
        counted = re.search(r"(\d+) other (?:entity has|entities have) the answer", told.sentence)
        assert others == (int(counted[1]) if counted else 0)
        own = {GRAPH.entities.ids[t] for h, r, t in triples if (h, r) == (head, relation) and t != tail}
        assert {item.entity.id for item in told.items if item.entity} <= own
        assert [item.value for item in told.items] == sorted((item.value for item in told.items), reverse=True)  # type: ignore[type-var]
        assert bool(told.items) == ("is similar to" in told.sentence)
        assert (told.effect > 0) == bool(told.items or others)
        similar += len(told.items)
    assert similar
    predictor.model.register_seen(predictor.context, np.arange(3))
    seen = replace(predictor, context=GraphContext(predictor.context.texts, predictor.context.neighbours))
    assert "few_shot_prior" not in {one.source for one in explained(seen, head, relation, tail).evidence}


# Attention


@pytest.mark.parametrize("kind", ["predictor", "ensemble"])
def test_attention_of_query_and_candidate_sums_to_one(kind: str, predictor: Predictor, tmp_path: Path) -> None:
    if kind == "ensemble":
        predictor = load(made_run(tmp_path, ensemble()))
    found = explained(predictor, *TRIPLES[0])
    for side in (found.query, found.candidate):
        paid = np.array([side.own_attention, *(edge.attention for edge in side.edges)])  # (1 + edges, heads)
        assert np.allclose(paid.sum(axis=0), 1, atol=1e-5) and (paid >= 0).all()
        assert paid.shape == (1 + len(side.edges), 2 if kind == "predictor" else 6) and side.edges


def ensemble() -> Ensemble:
    """Three members with random weights of their own."""
    config = EnsembleConfig(text=TEXT, ego=EGO, graph=GraphTransformerConfig(heads=2), score="cosine", members=3)
    torch.manual_seed(0)
    model = Ensemble(config, ENCODER, len(GRAPH.relations)).eval()
    for weight in model.parameters():
        if weight.dim() == 2 and weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def test_an_ensemble_shows_what_each_member_paid(tmp_path: Path) -> None:
    """The heads of the members stand one after the other, as each member alone would show them."""
    model = ensemble()
    whole = load(made_run(tmp_path, model))
    found = explained(whole, *TRIPLES[0])
    heads: list[list[float]] = [[], []]
    for member in model.each():
        alone = replace(whole, model=member, table=np.zeros((40, member.width), np.float32))
        of_member = explained(alone, *TRIPLES[0])
        for place, side in enumerate((of_member.query, of_member.candidate)):
            assert side.own_attention is not None
            heads[place] += side.own_attention
    assert found.query.own_attention == pytest.approx(heads[0], abs=1e-6)
    assert found.candidate.own_attention == pytest.approx(heads[1], abs=1e-6)
    assert len({round(share, 6) for share in heads[0]}) == 6, "no two pay the same"


def test_a_triple_that_is_not_hidden_shows_and_one_that_is_not_there_is_explained_too(predictor: Predictor) -> None:
    h, r, t = TRIPLES[0]
    shown = explained(predictor, h, r, t, hide=False)
    ends = {(edge.neighbour.id, edge.edge.relation, edge.edge.direction) for edge in shown.query.edges}
    assert (GRAPH.entities.ids[t], GRAPH.relations.ids[r], "out") in ends and not shown.hidden and shown.in_graph
    known = {tuple(row) for row in GRAPH.all_triples().tolist()}
    absent = next((h, 1, other) for other in range(40) if (h, 1, other) not in known)
    found = explained(predictor, *absent)
    assert not found.in_graph and not found.hidden and 1 <= found.rank <= found.candidates


def test_nearest_triples_are_those_of_brute_force(predictor: Predictor) -> None:
    h, r, t = (int(row) for row in GRAPH.triples("train")[50])
    found = explained(predictor, h, r, t)
    ends = []
    for place, other, label in ((h, t, r), (t, h, r + 3)):
        hidden = Hidden(np.array([other], np.int32), np.array([label], np.int32))
        egos = predictor.context.ego_graphs(predictor.model.ego, np.array([place], np.int32), hidden)
        with torch.no_grad():
            ends.append(
                predictor.model(predictor.context.texts, np.array([place], np.int32), egos, None, True)[0][0].numpy()
            )
    table = np.array(predictor.table)
    others = {tuple(row) for row in GRAPH.triples("train").tolist() if row[1] == r} - {(h, r, t)}
    by_hand = sorted(float(np.abs(ends[0] - table[a]).sum() + np.abs(ends[1] - table[b]).sum()) for a, _, b in others)
    assert [near.distance for near in found.nearest] == pytest.approx(by_hand[:5], abs=1e-3)


@pytest.mark.parametrize("kind", ["fnf-t", "bow", "statik", "ensemble", "query text"])
def test_systems_give_the_reasons_that_they_have(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    models: dict[str, Any] = {
        "fnf-t": lambda: random_model(ego_graphs=False, relation_conditioning=False),
        "bow": lambda: BOW(BOWConfig(text=replace(TEXT, training="finetune", width=None)), ENCODER, 3),
        "statik": lambda: StATIK(StATIKConfig(text=TEXT, ego=EGO), ENCODER, 3),
        "ensemble": ensemble,
        "query text": lambda: random_model(text=replace(TEXT, training="finetune", query="text")),
    }
    predictor = load(made_run(tmp_path, models[kind]().eval()))
    found = explained(predictor, *TRIPLES[0])
    ranking = rank_split(predictor.model, GRAPH, predictor.context.texts, "test", protocol("cumulative"))
    assert found.rank == ranking.ranks[0, 0] and found.query.words
    assert bool(found.query.edges) == (kind not in ("fnf-t", "bow"))
    assert (found.query.own_attention is not None) == (kind in ("ensemble", "query text"))
    ElementTree.fromstring(drawing(found))


# The drawing and the command


def words_in(svg: str) -> str:
    return " ".join("".join(element.itertext()) for element in ElementTree.fromstring(svg).iter())


def test_drawing_is_well_formed_escaped_and_sums_up_what_is_too_much(predictor: Predictor) -> None:
    h, r, t = next(tuple(map(int, row)) for row in GRAPH.triples("train") if row[0] == 0 and row[2] == 3)
    found = explained(predictor, h, r, t)
    svg = drawing(found)
    assert len(found.query.edges) > DRAWN and f"and {len(found.query.edges) - DRAWN} more" in words_in(svg)
    assert "<b>&" in words_in(svg) and "<b>" not in svg
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg" and root[0].get("fill") == "#FFFFFF"
    lines = [line for line in root.iter(f"{space}line") if line.get("marker-end")]
    assert len(lines) == sum(min(len(side.edges), DRAWN) for side in (found.query, found.candidate))
    widths = sorted((float(str(line.get("stroke-width"))) for line in lines), reverse=True)
    effects = sorted(
        (abs(edge.effect) for side in (found.query, found.candidate) for edge in side.edges[:DRAWN]), reverse=True
    )
    assert widths == pytest.approx([1 + 8 * effect / effects[0] for effect in effects], abs=0.01)


def test_control_characters_do_not_break_a_drawing(predictor: Predictor) -> None:
    found = explained(predictor, *TRIPLES[0])
    odd: Explanation = replace(found, head=replace(found.head, name="a\x00\x1b\ud800<&>\"'"))
    ElementTree.fromstring(drawing(odd).encode())


def test_explain_prints_tables_json_and_a_file(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    h, r, t = (GRAPH.entities.ids[TRIPLES[0][0]], GRAPH.relations.ids[TRIPLES[0][1]], GRAPH.entities.ids[TRIPLES[0][2]])
    table = here("explain", run, h, r, t)
    assert table.returncode == 0 and "hidden, as in evaluation" in table.stdout and "rank without it" in table.stdout
    assert "nearest training triples" in table.stdout and "attention" in table.stdout.lower()
    result = here("explain", run, h, r, t, "--json", "--svg", tmp_path / "why.svg")
    found = json.loads(result.stdout)
    assert found["hidden"] and found["asked"] == "tail" and found["probability"] is None and found["query"]["edges"]
    ElementTree.parse(tmp_path / "why.svg")
    again = here("explain", run, h, r, t, "--svg", tmp_path / "why.svg")
    assert again.returncode == 1 and "--force" in again.stderr
    shown = json.loads(here("explain", run, h, r, t, "--json", "--no-hide-target", "--asked", "head").stdout)
    assert not shown["hidden"] and shown["in_graph"] and shown["asked"] == "head"


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """What a nested value holds, by where."""
    if not isinstance(value, (dict, list)):
        return {place: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: leaf for name, part in parts for key, leaf in leaves(part, f"{place}.{name}").items()}


def assert_same(found: Any, expected: Any) -> None:
    """But for rounding."""
    ours, theirs = leaves(found), leaves(expected)
    assert ours.keys() == theirs.keys()
    for place, value in theirs.items():
        assert ours[place] == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value), place


def test_reasons_for_something_new_are_those_of_a_graph_that_has_it(
    run: Path,
    predictor: Predictor,
    tmp_path: Path,
    here: Here,  # noqa: F811
) -> None:
    new = NewEntity("green thing that is new", edges=[("r1", "e02"), ("r0", "e07")], incoming=[("r2", "e09")], id="new")
    store = predictor.add(new).save(tmp_path / "store").path
    for relation, tail, asked in (("r0", "e07", "tail"), ("r1", "e11", "tail"), ("r0", "e07", "head")):
        found = predictor.explain(new, relation, tail, asked)  # type: ignore[arg-type]
        offline = load(run, store).explain("new", relation, tail, asked)  # type: ignore[arg-type]
        assert_same(found.as_dict(), offline.as_dict())
        assert found.hidden == (tail == "e07") and len(found.candidate.edges if asked == "head" else found.query.edges)
    options = ("--text", new.text, "--edge", "r1=e02", "--edge", "r0=e07", "--edge-from", "e09=r2", "--id", "new")
    told = json.loads(here("explain", run, "-", "r0", "e07", *options, "--json").stdout)
    assert_same(told, predictor.explain(new, "r0", "e07").as_dict())
    worded = predictor.explain("e01", Relation("is fond of"), "e02")
    told = json.loads(here("explain", run, "e01", "-", "e02", "--relation-text", "is fond of", "--json").stdout)
    assert_same(told, worded.as_dict())
    assert told["relation"]["text"] == "is fond of"
    assert not told["in_graph"] and not told["nearest"]


def test_bad_questions_get_one_sentence(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    for arguments, words in (
        (("nobody", "r0", "e01"), "nobody"),
        (("e01", "likes", "e02"), "likes"),
        (("e01", "r0", " "), "empty"),
        (("-", "r0", "e01"), "--text"),
        (("e01", "-", "e01"), "--relation-text"),
        (("e01", "r0", "e02", "--text", "something"), "HEAD or TAIL"),
        (("e01", "r0", "e02", "--edge", "r0=e01"), "--text"),
        (("-", "r0", "e01", "--text", " "), "empty"),
        (("-", "r0", "e01", "--text", "new", "--edge", "r0=nobody"), "nobody"),
    ):
        result = here("explain", run, *arguments)
        assert result.returncode == 1 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "config.json").write_text(json.dumps({"graph": str(tmp_path / "gone"), "config": {}}))
    result = here("explain", copy, "e01", "r0", "e02")
    assert result.returncode == 1 and "is no longer at" in result.stderr and result.stderr.count("\n") == 1
