"""What is completed is what brute force finds, whatever happened on the way, in every format."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyoxigraph
import pytest
from conftest import probability_by_hand
from test_explain import GRAPH, made_run, random_model, with_evidence  # noqa: F401 (a fixture)
from test_ranking import Here, here  # noqa: F401 (a fixture)

from fnftg.ego.graph_transformer import GraphTransformerConfig
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.models.pretrained import save_pretrained
from fnftg.predict import completion, link_search, query_features, triple_inputs
from fnftg.predict.completion import ASK, FOUND, Wanted, complete, expected_precision
from fnftg.predict.predictor import Predictor, load
from fnftg.predict.questions import Question
from fnftg.predict.triple_files import PROBABILITY, SCORE

ALONE = {"x40": "a red thing without edges", "x41": "blue and old, and without edges as well"}
GROWN = GRAPH.extended(ALONE)
KNOWN = {tuple(triple) for triple in GRAPH.all_triples().tolist()}
ENTITIES, RELATIONS = len(GROWN.entities), len(GROWN.relations)
CLOSE = {"predictor": 1e-5, "with_evidence": 1e-6}  # distances of random weights are large, cosines are not


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With probabilities of triples; random weights would be fitted flat ones."""
    run = made_run(tmp_path_factory.mktemp("completed"), random_model())
    probability_by_hand().save(run / "checkpoint")
    return run


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    """On the graph with two entities that have no edges."""
    return load(run, GROWN)


def likely_labels(predictor: Predictor, entity: int, nearest: int) -> set[int]:
    """Labels with evidence for a missing answer: of the entity, of its nearest texts, and those that its edges imply."""
    edges = {(h, r, t) for h, r, t in KNOWN} | {(t, r + RELATIONS, h) for h, r, t in KNOWN}
    own = {label for centre, label, _ in edges if centre == entity}
    features = predictor.context.texts.features.take(np.arange(ENTITIES)).astype(np.float64)  # type: ignore[union-attr]
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = [round(float(units[entity] @ units[other]), 4) for other in range(ENTITIES)]
    near = sorted((other for other in range(ENTITIES) if other != entity), key=lambda other: (-cosines[other], other))
    found = own | {label for centre, label, _ in edges if centre in near[:nearest]}
    for label in range(2 * RELATIONS):
        for other in own:
            both = sum((h, label, t) in edges for h, own_label, t in edges if own_label == other)
            if label != other and both / (sum(r == other % RELATIONS for _, r, _ in KNOWN) + 1) >= 0.05:
                found.add(label)
    return found


def brute_force(
    predictor: Predictor, k: int, least: float, nearest: int = 100, close: float = 1e-5
) -> tuple[dict[Any, Any], int]:
    """Every likely query asked for its answers: {triple: (probability, scores)}, and how many were asked."""
    ids, names = GROWN.entities.ids, GROWN.relations.ids
    likely = [(entity, label) for entity in range(ENTITIES) for label in likely_labels(predictor, entity, nearest)]
    questions = [
        Question(ids[entity], names[label])
        if label < RELATIONS
        else Question(relation=names[label - RELATIONS], tail=ids[entity])
        for entity, label in likely
    ]
    missing = predictor.missing_answers(questions)
    asked = [place for place, value in enumerate(missing) if value is not None and value >= least / ASK]
    answers = predictor.many([questions[place] for place in asked], k)
    for place in range(0, len(asked), 50):  # in one batch as one by one
        alone = predictor.many([questions[asked[place]]], k)[0]
        assert [one.id for one in alone] == [one.id for one in answers[place]]
        said, again = ([one.probability for one in some] for some in (alone, answers[place]))
        assert said == pytest.approx(again, abs=close)
    found: dict[Any, Any] = {}
    for place, some in zip(asked, answers, strict=True):
        entity, label = likely[place]
        for answer in some:
            other = GROWN.entities.find(answer.id)
            triple = (entity, label, other) if label < RELATIONS else (other, label - RELATIONS, entity)
            assert answer.probability is not None and abs(answer.probability - least) > 2 * close, "far from the bound"
            if answer.probability >= least:
                found.setdefault(triple, ([], []))
                found[triple][0].append(answer.probability)
                found[triple][1].append(answer.score)
    named = [(ids[head], names[relation], ids[tail]) for head, relation, tail in found]
    for said, whole in zip(found.values(), predictor.triple_probabilities(named), strict=True):
        assert said[0] == pytest.approx([whole] * len(said[0]), abs=close), "whichever end was asked"
    return {triple: (said[0][0], said[1]) for triple, said in found.items()}, len(asked)


def rows_of(found: Any) -> list[tuple[int, int, int]]:
    return [(int(one["head"]), int(one["relation"]), int(one["tail"])) for one in found]


@pytest.mark.parametrize("kind", ["predictor", "with_evidence"])
def test_all_that_brute_force_finds_and_nothing_else(
    kind: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    predictor = request.getfixturevalue(kind)
    if kind == "with_evidence":
        predictor = replace(load(predictor.run, GROWN), probability=probability_by_hand())
    for place, (nearest, least) in enumerate(((100, 0.21), (1, 0.12))):
        monkeypatch.setattr(query_features, "NEAREST", nearest)
        expected, asked = brute_force(predictor, 4, least, nearest, CLOSE[kind])
        assert len(expected) > 100 and any(triple[0] >= 40 or triple[2] >= 40 for triple in expected)
        assert asked < 2 * RELATIONS * ENTITIES if nearest == 1 else asked > 100
        for size in (19, 4_096):  # of parts and of batches
            monkeypatch.setattr(completion, "ENTITIES", size)
            for module in (completion, link_search, triple_inputs):
                monkeypatch.setattr(module, "ROUND", size + 2)
            completed = complete(predictor, Wanted(k=4, min_probability=least), tmp_path / f"parts-{place}-{size}")
            found = completed.triples
            assert completed.asked == asked and len(found) == len(expected)
            assert set(rows_of(found)) == set(expected) and not set(rows_of(found)) & KNOWN
            for triple, one in zip(rows_of(found), found, strict=True):
                probability, scores = expected[triple]
                assert one["probability"] == pytest.approx(probability, abs=CLOSE[kind])
                assert min(abs(one["score"] - score) for score in scores) < 1e-4
            assert (np.diff(found["probability"]) <= 0).all()


def test_chosen_entities_and_relations_and_thresholds(predictor: Predictor, tmp_path: Path) -> None:
    everything, _ = brute_force(predictor, 4, 0.15)
    chosen, few = Wanted(k=4, relations=(2,), entities=(5, 1, 5), min_probability=0.15), {1, 5}
    found = complete(predictor, chosen, tmp_path / "a").triples
    assert set(rows_of(found)) <= {t for t in everything if t[1] == 2 and few & {t[0], t[2]}} and len(found) > 3
    assert any(triple[2] in few and triple[0] not in few for triple in rows_of(found)), "asked for heads as well"
    values = sorted(probability for probability, _ in everything.values())
    gap = max(range(len(values) // 3, 2 * len(values) // 3), key=lambda place: values[place] - values[place - 1])
    bound = (values[gap - 1] + values[gap]) / 2  # far from every probability
    found = complete(predictor, Wanted(k=4, min_probability=bound), tmp_path / "b").triples
    assert set(rows_of(found)) == {triple for triple, (probability, _) in everything.items() if probability >= bound}


def test_fewer_candidates_than_k_are_all_there_are(predictor: Predictor, tmp_path: Path) -> None:
    wanted = Wanted(k=1_000, relations=(0,), entities=(0, 1), min_probability=0)
    found = complete(predictor, wanted, tmp_path / "parts").triples
    possible = {(end, 0, other) for end in (0, 1) for other in range(ENTITIES) if end != other}
    possible |= {(tail, 0, head) for head, _, tail in possible}
    assert set(rows_of(found)) == possible - KNOWN and len(found) == len(possible - KNOWN)
    assert np.isfinite(found["score"]).all()


def test_what_the_first_look_finds_unlikely_is_dropped_and_not_searched(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []
    real = link_search.inverse_margins

    def counted(batch: Any, requests: Any, *others: Any) -> Any:
        searched.append(len(requests))
        return real(batch, requests, *others)

    monkeypatch.setattr(link_search, "inverse_margins", counted)
    sizes = []
    for screen in (9.0, -9.0):
        asked = replace(predictor, probability=probability_by_hand(screen))
        sizes.append(len(complete(asked, Wanted(k=4), tmp_path / str(screen)).triples))
    assert sizes[0] > 100 and sizes[1] == 0 and searched[0] > 100 and sum(searched[1:]) == 0


def test_a_graph_whose_queries_have_no_missing_answer_is_complete(predictor: Predictor, tmp_path: Path) -> None:
    sure = probability_by_hand()
    never = replace(sure.query, linked=replace(sure.query.linked, shift=-25.0))
    asked = replace(predictor, probability=replace(sure, query=replace(never, isolated=never.linked)))
    completed = complete(asked, Wanted(), tmp_path / "parts")
    assert len(completed.triples) == 0 == completed.asked and completed.triples.dtype == FOUND


def test_stopped_and_resumed_gives_the_same_bytes(
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "ENTITIES", 4)
    assert here("complete", run, "-o", tmp_path / "whole.tsv").returncode == 0
    real, searched = completion.PartSearch.__call__, []

    def stopping(self: Any, entities: Any) -> Any:
        searched.append(len(entities))
        if len(searched) == 8:
            raise KeyboardInterrupt
        return real(self, entities)

    monkeypatch.setattr(completion.PartSearch, "__call__", stopping)
    assert here("complete", run, "-o", tmp_path / "out.tsv").returncode == 130
    parts = tmp_path / ".out.tsv.parts"
    assert not (tmp_path / "out.tsv").exists() and len(list(parts.glob("*.npy"))) == 7
    for other in (("-k", 3), ("--min-probability", 0.5), ("--relations", "r1")):
        result = here("complete", run, "-o", tmp_path / "out.tsv", *other)
        assert result.returncode == 1 and "another command" in result.stderr and result.stderr.count("\n") == 1
    assert len(searched) == 8
    assert here("complete", run, "-o", tmp_path / "out.tsv").returncode == 0
    assert len(searched) == 8 + 10 - 7, "what was found was not searched again"
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert len((tmp_path / "out.tsv").read_text().splitlines()) > 100 and not parts.exists()


def test_parts_of_other_weights_probabilities_or_another_graph_are_refused(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    found = complete(predictor, Wanted(k=2), tmp_path / "parts").triples
    smaller = GROWN.with_splits({"train": GROWN.triples("train")}, {})
    shutil.copytree(run, tmp_path / "refitted")
    probability_by_hand(lower=1.0).save(tmp_path / "refitted" / "checkpoint")
    shutil.copytree(run, tmp_path / "retrained")
    shutil.rmtree(tmp_path / "retrained" / "checkpoint")
    save_pretrained(random_model(graph=GraphTransformerConfig(heads=1)), tmp_path / "retrained" / "checkpoint")
    probability_by_hand().save(tmp_path / "retrained" / "checkpoint")
    others = [load(predictor.run, smaller), load(tmp_path / "refitted", GROWN), load(tmp_path / "retrained", GROWN)]
    for changed in others:
        with pytest.raises(FnftgError, match="another command, model or graph"):
            complete(changed, Wanted(k=2), tmp_path / "parts")
    for damage in (lambda content: b"half a", lambda content: content[:-1] + bytes([content[-1] ^ 1])):
        part = next((tmp_path / "parts").glob("000000-*.npy"))
        part.write_bytes(damage(part.read_bytes()))
        again = complete(predictor, Wanted(k=2), tmp_path / "parts").triples
        assert again.tobytes() == found.tobytes(), "searched again"
    import fcntl

    with open(tmp_path / "parts" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FnftgError, match="Another process"):
            complete(predictor, Wanted(k=2), tmp_path / "parts")


def test_probabilities_sort_and_cut(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    everything = tmp_path / "all.parquet"
    assert here("complete", run, "-o", everything).returncode == 0
    frame = pl.read_parquet(everything)
    assert frame.columns == ["head", "relation", "tail", "score", "probability"]
    assert frame["probability"].is_sorted(descending=True) and frame["probability"].is_between(0.01, 1).all()
    bound = float(frame["probability"][100])
    some = tmp_path / "some.jsonl"
    assert here("complete", run, "-o", some, "--min-probability", bound).returncode == 0
    lines = [json.loads(line) for line in some.read_text().splitlines()]
    expected = frame.filter(pl.col("probability") >= bound).drop("score").to_dicts()
    assert 0 < len(lines) < len(frame)
    assert [{key: line[key] for key in line if key != "score"} for line in lines] == expected


def test_expected_precision_stops_where_the_mean_falls_below(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    found = np.zeros(4, FOUND)
    found["probability"] = [0.9, 0.7, 0.5, 0.2]  # the means are 0.9, 0.8, 0.7, 0.575
    lengths = {0: 4, 0.57: 4, 0.58: 3, 0.69: 3, 0.71: 2, 0.79: 2, 0.81: 1, 0.9: 1, 0.91: 0, 1: 0}
    assert {bound: len(expected_precision(found, bound)) for bound in lengths} == lengths
    assert len(expected_precision(found[:0], 0.5)) == 0
    assert here("complete", run, "-o", tmp_path / "all.parquet").returncode == 0
    everything = pl.read_parquet(tmp_path / "all.parquet")
    bound = round(everything["probability"].head(len(everything) // 2).mean(), 3)  # type: ignore[arg-type, type-var]
    result = here("complete", run, "-o", tmp_path / "some.parquet", "--expected-precision", bound, "--json")
    some, summary = pl.read_parquet(tmp_path / "some.parquet"), json.loads(result.stdout)
    assert some.equals(everything.head(len(some))) and 0 < len(some) < len(everything)
    assert some["probability"].mean() >= bound > everything["probability"].head(len(some) + 1).mean()  # type: ignore[operator]
    assert summary["triples"] == len(some) and summary["expected"] == pytest.approx(some["probability"].sum())


def test_a_stream_prints_every_triple_as_a_line_of_json(
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "ENTITIES", 9)
    assert here("complete", run, "-o", tmp_path / "quiet.jsonl", "--min-probability", 0.3).returncode == 0
    result = here("complete", run, "-o", tmp_path / "out.jsonl", "--min-probability", 0.3, "--stream")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "quiet.jsonl").read_bytes()
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(written) > 50 and all(line in lines for line in written), "as it is in the file"

    def triples(some: list[dict[str, Any]]) -> list[tuple[str, ...]]:
        return [(one["head"], one["relation"], one["tail"]) for one in some]

    assert set(triples(lines)) == set(triples(written))
    assert triples(lines) != triples(written), "as they are found, not sorted"


def test_review_writes_a_page_with_the_triples_and_their_reasons(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    page, out = tmp_path / "review.html", tmp_path / "out.parquet"
    result = here("complete", run, "-o", out, "--review", page, "--min-probability", 0.3)
    assert result.returncode == 0 and f"Open {page}" in result.stderr, result.stderr
    text = page.read_text(encoding="utf-8")
    value = json.loads(text.split('id="data">')[1].split("</script>")[0])
    frame = pl.read_parquet(out)
    assert value["title"] == f"Missing links of {run}"
    assert [tuple(one["triple"]) for one in value["triples"]] == frame.select("head", "relation", "tail").rows()
    assert [one["probability"] for one in value["triples"]] == frame["probability"].to_list()
    first = value["triples"][0]
    assert first["names"][1].startswith("relation ") and first["texts"][0] in GRAPH.entities.texts.slice(0, 40)
    predictor = load(run)
    for reason, one in zip(first["reasons"], predictor.explain(*first["triple"]).queries, strict=True):
        assert reason == f"Missing {one.asked} ({one.probability:.0%}): {' '.join(one.sentences)}"
    again = here("complete", run, "-o", tmp_path / "other.tsv", "--review", page)
    assert again.returncode == 1 and "--force" in again.stderr and not (tmp_path / "other.tsv").exists()


def test_tables_of_every_format_hold_the_same(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    frames = []
    for suffix in ("tsv", "jsonl", "parquet"):
        path = tmp_path / f"out.{suffix}"
        result = here("complete", run, "-o", path, "-k", 2, "--json")
        summary = json.loads(result.stdout)
        readers: dict[str, Any] = {
            "tsv": lambda p: pl.read_csv(p, separator="\t"),
            "jsonl": pl.read_ndjson,
            "parquet": pl.read_parquet,
        }
        frames.append(readers[suffix](path))
        assert summary["triples"] == len(frames[-1]) > 100 and 0 < summary["queries"] <= 240
        assert frames[-1].columns == ["head", "relation", "tail", "score", "probability"]
    for other in frames[:2]:
        columns = ("head", "relation", "tail", "probability")
        assert other.select(columns).equals(frames[2].select(columns))
        assert np.allclose(other["score"], frames[2]["score"], rtol=1e-6)


@pytest.mark.parametrize("suffix", ["nt", "ttl"])
@pytest.mark.parametrize("annotation", ["rdf-star", "reification", "none"])
def test_rdf_comes_back_with_its_annotations(
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
    suffix: str,
    annotation: str,
) -> None:
    table, path = tmp_path / "out.parquet", tmp_path / f"out.{suffix}"
    choices = ("-k", 1, "--relations", "r1", "--entities", "e01,e02,e03", "--min-probability", 0.001)
    assert here("complete", run, "-o", table, *choices).returncode == 0
    base = "http://example.org/a b".replace(" ", "/")
    result = here("complete", run, "-o", path, *choices, "--annotation", annotation, "--base", f"{base}#")
    assert result.returncode == 0, result.stderr
    syntax = pyoxigraph.RdfFormat.N_TRIPLES if suffix == "nt" else pyoxigraph.RdfFormat.TURTLE
    quads = list(pyoxigraph.parse(path.read_bytes(), syntax))
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    expected = {}
    for head, relation, tail, score, probability in pl.read_parquet(table).iter_rows():
        nodes = tuple(pyoxigraph.NamedNode(f"{base}#{id_}") for id_ in (head, relation, tail))
        expected[nodes] = (pytest.approx(score, rel=1e-6), pytest.approx(probability, abs=1e-6))
    plain = {(q.subject, q.predicate, q.object) for q in quads if isinstance(q.subject, pyoxigraph.NamedNode)}
    assert plain == set(expected)
    about: dict[Any, dict[str, Any]] = {}
    for quad in quads:
        if isinstance(quad.subject, pyoxigraph.BlankNode):
            about.setdefault(quad.subject, {})[quad.predicate.value] = quad.object
    found = {}
    for said in about.values():
        if annotation == "rdf-star":
            term = said[f"{rdf}reifies"]
            nodes = (term.subject, term.predicate, term.object)
        else:
            assert said[f"{rdf}type"].value == f"{rdf}Statement"
            nodes = tuple(said[f"{rdf}{end}"] for end in ("subject", "predicate", "object"))
        found[nodes] = (float(said[SCORE].value), float(said[PROBABILITY].value))
    assert found == ({} if annotation == "none" else expected)


def test_iris_stay_iris_and_other_ids_are_those_that_import_reads(tmp_path: Path, here: Here) -> None:  # noqa: F811
    ids = ["http://example.org/ä", "plain id", "urn:x:1", "c"]
    triples = [(ids[0], "http://example.org/p", ids[1]), (ids[2], "q r", ids[0]), (ids[3], "q r", ids[2])]
    graph = KnowledgeGraph.from_triples({"train": triples}, {id_: f"thing {id_}" for id_ in ids})
    run = made_run(tmp_path, random_model(), graph)
    probability_by_hand().save(run / "checkpoint")
    assert here("complete", run, "-o", tmp_path / "out.nt", "--annotation", "none").returncode == 0
    assert here("complete", run, "-o", tmp_path / "out.tsv").returncode == 0
    back = here("import", tmp_path / "out.nt", "-o", tmp_path / "back")
    assert back.returncode == 0, back.stderr
    read = KnowledgeGraph.open(tmp_path / "back")
    found = {
        (read.entities.ids[h], read.relations.ids[r], read.entities.ids[t])
        for h, r, t in read.triples("train").tolist()
    }
    frame = pl.read_csv(tmp_path / "out.tsv", separator="\t", quote_char=None)
    assert found == set(frame.select("head", "relation", "tail").iter_rows()) and len(found) > 0


def test_held_out_triples_are_unknown_and_counted(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    result = here(
        "complete", run, "-o", tmp_path / "out.tsv", "-k", 40, "--min-probability", 0, "--hold-out", "test", "--json"
    )
    held = json.loads(result.stdout)["held_out"]
    frame = pl.read_csv(tmp_path / "out.tsv", separator="\t")
    rows = [
        (GRAPH.entities.ids[h], GRAPH.relations.ids[r], GRAPH.entities.ids[t])
        for h, r, t in GRAPH.triples("test").tolist()
    ]
    seen = {
        (GRAPH.entities.ids[h], GRAPH.relations.ids[r], GRAPH.entities.ids[t])
        for split in ("train", "val")
        for h, r, t in GRAPH.triples(split).tolist()
    }
    found = list(frame.select("head", "relation", "tail").iter_rows())
    assert held["found"] == len(set(found[:1000]) & set(rows)) > 0 and held["first"] == 1000
    assert set(rows) - seen <= set(found) and not seen & set(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "out.xml"], ".tsv, .jsonl"),
        (["-k", "0"], "k is 0"),
        (["-k", "1000000000"], "k is 1000000000"),
        (["--relations", "r1,likes"], "'likes'"),
        (["--entities", "e01,nobody"], "'nobody'"),
        (["--entities", "EMPTY"], "contains no entity"),
        (["--min-probability", "2"], "from 0 to 1"),
        (["--min-probability", "nan"], "from 0 to 1"),
        (["--expected-precision", "-0.1"], "from 0 to 1"),
        (["--stream", "--json"], "choose one of them"),
        (["--review", "EMPTY"], "--force"),
        (["--base", "not an iri"], "--base"),
        (["--hold-out", "dev"], "it has train, val, test"),
        (["--graph", "/nowhere"], "/nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_wishes_get_one_sentence(
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").write_text("\n\n")
    result = here("complete", run, "-o", "out.tsv", *arguments)
    assert result.returncode == 1 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["EMPTY"], "nothing is left behind"


def test_entities_may_come_from_a_file_and_output_is_not_overwritten(run: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    (tmp_path / "which.txt").write_text("e01\n\ne02\n")
    out = tmp_path / "out.tsv"

    def ends() -> list[set[str]]:
        return [{head, tail} for head, tail in pl.read_csv(out, separator="\t").select("head", "tail").rows()]

    assert here("complete", run, "-o", out, "--entities", tmp_path / "which.txt", "-k", 1).returncode == 0
    assert all(two & {"e01", "e02"} for two in ends()) and {"e01", "e02"} <= set.union(*ends())
    again = here("complete", run, "-o", out, "--entities", "e03", "-k", 1)
    assert again.returncode == 1 and "--force" in again.stderr
    assert here("complete", run, "-o", out, "--entities", "e03", "-k", 1, "--force").returncode == 0
    assert all("e03" in two for two in ends()) and not all(two & {"e01", "e02"} for two in ends())
