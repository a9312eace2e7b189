"""What is completed is what brute force finds, whatever happened on the way, in every format."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyoxigraph
import pytest
import torch
from test_explain import GRAPH, made_run, random_model, with_evidence  # noqa: F401 (a fixture)
from test_ranking import Here, here  # noqa: F401 (a fixture)

from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.predict import completion
from fnftg.predict.completion import Wanted, complete
from fnftg.predict.predictor import Predictor, load
from fnftg.predict.triple_files import PROBABILITY, SCORE
from fnftg.ranking.calibration import Calibration, Platt
from fnftg.ranking.evidence_scores import evidence_scores

KNOWN = {tuple(triple) for triple in GRAPH.all_triples().tolist()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("completed"), random_model())


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return load(run)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a curve that rises: what random weights would be fitted with is flat."""
    run = made_run(tmp_path_factory.mktemp("calibrated"), random_model())
    Calibration("platt", 10, {}, Platt(0.5, -1.0, 9.0), {}, {}, ["r0", "r1", "r2"]).save(run / "checkpoint")
    return run


def brute_force(predictor: Predictor, k: int, both: bool = False, types: bool = False) -> dict[Any, float]:
    """Every (entity, relation) alone: {triple: score}."""
    model, found = predictor.model, dict[Any, float]()
    table = torch.from_numpy(np.array(predictor.table))
    for label in range(6 if both else 3):
        usual = [{triple[end] for triple in KNOWN if triple[1] == label % 3} for end in (0, 2)]
        asked, answers = usual if label < 3 else usual[::-1]
        everyone = np.arange(40, dtype=np.int32)
        egos = predictor.context.ego_graphs(model.ego, everyone, None)
        with torch.no_grad():
            _, points = model(predictor.context.texts, everyone, egos, np.full(40, label, np.int32), False)
        similarities = model.similarity(points, table).numpy()
        evidence = evidence_scores(model, predictor.context, everyone, np.full(40, label, np.int32))
        similarities[evidence.queries, evidence.rows] += evidence.values
        for entity, scores in enumerate(similarities.tolist()):
            options = []
            for other, score in enumerate(scores):
                triple = (entity, label, other) if label < 3 else (other, label - 3, entity)
                if entity != other and triple not in KNOWN and (not types or (entity in asked and other in answers)):
                    options.append((score, triple))
            for score, triple in sorted(options, reverse=True)[:k]:
                found[triple] = max(score, found.get(triple, -np.inf))
    return found


def as_dict(found: Any) -> dict[Any, float]:
    return {(int(h), int(r), int(t)): float(score) for h, r, t, score, _ in found}


@pytest.mark.parametrize("choices", [{}, {"both": True}, {"types": True}, {"both": True, "types": True}], ids=str)
@pytest.mark.parametrize("kind", ["predictor", "with_evidence"])
def test_all_that_brute_force_finds_and_nothing_else(
    kind: str,
    choices: dict[str, bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    predictor = request.getfixturevalue(kind)
    for queries in (7, 4_096):
        monkeypatch.setattr(completion, "QUERIES", queries)
        found = complete(predictor, Wanted(k=4, **choices), tmp_path / f".parts-{queries}")  # type: ignore[arg-type]
        expected = brute_force(predictor, 4, **choices)
        assert set(as_dict(found)) == set(expected) and len(found) == len(expected)
        assert as_dict(found) == pytest.approx(expected, abs=1e-4)
        assert (np.diff(found["score"]) <= 0).all()


def test_chosen_entities_and_relations_and_thresholds(predictor: Predictor, tmp_path: Path) -> None:
    everything = brute_force(predictor, 4)
    found = complete(predictor, Wanted(k=4, relations=(2,), entities=(5, 1, 5)), tmp_path / "a")
    assert set(as_dict(found)) == {triple for triple in everything if triple[1] == 2 and triple[0] in (1, 5)}
    values = sorted(everything.values())
    gap = max(range(len(values) // 3, 2 * len(values) // 3), key=lambda place: values[place] - values[place - 1])
    bound = (values[gap - 1] + values[gap]) / 2  # far from every score
    found = complete(predictor, Wanted(k=4, min_score=bound), tmp_path / "b")
    assert set(as_dict(found)) == {triple for triple, score in everything.items() if score >= bound}


def test_fewer_candidates_than_k_are_all_there_are(predictor: Predictor, tmp_path: Path) -> None:
    found = complete(predictor, Wanted(k=1_000, relations=(0,), entities=(0, 1)), tmp_path / "parts")
    known = sum(head in (0, 1) and relation == 0 and tail != head for head, relation, tail in KNOWN)
    assert len(found) == 2 * 39 - known and np.isfinite(found["score"]).all()


def test_stopped_and_resumed_gives_the_same_bytes(
    run: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "QUERIES", 12)
    assert here("complete", run, "-o", tmp_path / "whole.tsv", "--both").returncode == 0
    real, searched = completion.Search.__call__, []

    def stopping(self: Any, entities: Any) -> Any:
        searched.append(len(entities))
        if len(searched) == 8:
            raise KeyboardInterrupt
        return real(self, entities)

    monkeypatch.setattr(completion.Search, "__call__", stopping)
    assert here("complete", run, "-o", tmp_path / "out.tsv", "--both").returncode == 130
    parts = tmp_path / ".out.tsv.parts"
    assert not (tmp_path / "out.tsv").exists() and len(list(parts.glob("*.npy"))) == 7
    other = here("complete", run, "-o", tmp_path / "out.tsv", "-k", 3)
    assert other.returncode == 1 and "another command" in other.stderr and other.stderr.count("\n") == 1
    assert len(searched) == 8
    assert here("complete", run, "-o", tmp_path / "out.tsv", "--both").returncode == 0
    assert len(searched) == 8 + 20 - 7, "what was found was not searched again"
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert not parts.exists()


def test_parts_of_other_weights_or_another_graph_are_refused(predictor: Predictor, tmp_path: Path) -> None:
    found = complete(predictor, Wanted(k=2), tmp_path / "parts")
    smaller = GRAPH.with_splits({"train": GRAPH.triples("train")}, {})
    changed = load(predictor.run, smaller)
    with pytest.raises(FnftgError, match="another command, model or graph"):
        complete(changed, Wanted(k=2), tmp_path / "parts")
    for damage in (lambda content: b"half a", lambda content: content[:-1] + bytes([content[-1] ^ 1])):
        part = next((tmp_path / "parts").glob("000000-*.npy"))
        part.write_bytes(damage(part.read_bytes()))
        assert complete(predictor, Wanted(k=2), tmp_path / "parts").tobytes() == found.tobytes(), "searched again"
    import fcntl

    with open(tmp_path / "parts" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FnftgError, match="Another process"):
            complete(predictor, Wanted(k=2), tmp_path / "parts")


def test_probabilities_sort_and_cut(calibrated: Path, tmp_path: Path, here: Here) -> None:  # noqa: F811
    everything = tmp_path / "all.parquet"
    assert here("complete", calibrated, "-o", everything).returncode == 0
    frame = pl.read_parquet(everything)
    assert frame.columns == ["head", "relation", "tail", "score", "probability"]
    assert frame["probability"].is_sorted(descending=True) and frame["probability"].is_between(0, 1).all()
    bound = float(frame["probability"][100])
    some = tmp_path / "some.jsonl"
    assert here("complete", calibrated, "-o", some, "--min-probability", bound).returncode == 0
    lines = [json.loads(line) for line in some.read_text().splitlines()]
    expected = frame.filter(pl.col("probability") >= bound).drop("score").to_dicts()
    assert 0 < len(lines) < len(frame)
    assert [{key: line[key] for key in line if key != "score"} for line in lines] == expected


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
        known = Counter((head, relation) for head, relation, tail in KNOWN if tail != head)
        assert summary["triples"] == len(frames[-1]) == 240 - sum(max(count - 37, 0) for count in known.values())
        assert not summary["calibrated"]
        assert frames[-1].columns == ["head", "relation", "tail", "score"], "without curves there are no probabilities"
    for other in frames[:2]:
        assert other.select("head", "relation", "tail").equals(frames[2].select("head", "relation", "tail"))
        assert np.allclose(other["score"], frames[2]["score"], rtol=1e-6)


@pytest.mark.parametrize("suffix", ["nt", "ttl"])
@pytest.mark.parametrize("annotation", ["rdf-star", "reification", "none"])
def test_rdf_comes_back_with_its_annotations(
    calibrated: Path,
    tmp_path: Path,
    here: Here,  # noqa: F811
    suffix: str,
    annotation: str,
) -> None:
    table, path = tmp_path / "out.parquet", tmp_path / f"out.{suffix}"
    choices = ("-k", 1, "--relations", "r1", "--entities", "e01,e02,e03")
    assert here("complete", calibrated, "-o", table, *choices).returncode == 0
    base = "http://example.org/a b".replace(" ", "/")
    result = here("complete", calibrated, "-o", path, *choices, "--annotation", annotation, "--base", f"{base}#")
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
    result = here("complete", run, "-o", tmp_path / "out.tsv", "-k", 40, "--hold-out", "test", "--json")
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
        (["--min-probability", "0.5"], "fnftg calibrate"),
        (["--min-probability", "2"], "from 0 to 1"),
        (["--base", "not an iri"], "--base"),
        (["--hold-out", "dev"], "it has train, val, test"),
        (["--memory", "lots"], "512MB"),
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
    assert here("complete", run, "-o", out, "--entities", tmp_path / "which.txt", "-k", 1).returncode == 0
    assert set(pl.read_csv(out, separator="\t")["head"]) == {"e01", "e02"}
    again = here("complete", run, "-o", out, "--entities", "e03", "-k", 1)
    assert again.returncode == 1 and "--force" in again.stderr
    assert here("complete", run, "-o", out, "--entities", "e03", "-k", 1, "--force").returncode == 0
    assert set(pl.read_csv(out, separator="\t")["head"]) == {"e03"}
