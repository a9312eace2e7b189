"""`fnftg complete`: predict the likeliest missing triples of a graph."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from fnftg.console import log, print_json, print_table, print_text
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, add_output, examples

SHOWN, MEASURED = 10, 1_000  # triples in the printed table; best triples compared with the held-out split


def complete(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.description = f"""{parser.description}\n
Writes the triples that the graph lacks and that are probably true, likeliest first, with their probabilities. Only
queries that may have a missing answer are asked, so the command takes as long as the likely links take, not as all
pairs of entities and relations would. It needs a run with probabilities of triples (fnftg calibrate).

The probabilities assume that a share of the true links is missing (fnftg calibrate --missing). --expected-precision 0.8
stops where the mean probability of the triples falls below 0.8, so that about 80 % of them should be true.

--review writes a web page on which a person accepts or rejects the triples with the keyboard and exports the accepted
ones. If the command is interrupted, run it again to continue; the output is the same, byte for byte."""
    parser.epilog = examples(
        "fnftg complete animals-run -o missing.tsv",
        "fnftg complete animals-run -o missing.parquet --expected-precision 0.8",
        "fnftg complete animals-run -o dogs.jsonl --relations hypernym --entities dog,poodle --min-probability 0.001",
        "fnftg complete animals-run -o missing.ttl --annotation reification --base http://example.org/id/",
        "fnftg complete animals-run -o missing.tsv --review review.html",
        "fnftg complete animals-run -o check.tsv --hold-out test",
    )
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="the folder of a run, or of a model (which needs --graph)"
    )
    add_output(parser, "FILE", "the file to write: .tsv, .jsonl, .parquet, .nt or .ttl")
    parser.add_argument(
        "-k", type=int, default=10, help="maximum number of triples per entity and relation (default: 10)"
    )
    parser.add_argument("--relations", metavar="R1,R2", help="only these relations, by id or name")
    parser.add_argument(
        "--entities", metavar="E1,E2", help="only these entities, by id or name, or a file with one per line"
    )
    parser.add_argument(
        "--min-probability", type=float, metavar="P", default=0.02, help="leave out less likely triples (default: 0.02)"
    )
    parser.add_argument(
        "--expected-precision", type=float, metavar="P", help="stop where the mean probability falls below P"
    )
    parser.add_argument(
        "--stream", action="store_true", help="also print triples as JSON lines when they are found, unsorted"
    )
    parser.add_argument("--review", type=Path, metavar="HTML", help="also write a page for reviewing the triples")
    parser.add_argument(
        "--annotation",
        choices=("rdf-star", "reification", "none"),
        default="rdf-star",
        help="how RDF output stores probabilities (default: rdf-star)",
    )
    parser.add_argument(
        "--base", metavar="IRI", help="prefix in RDF for ids that are not IRIs (default: urn:fnftg:id:x)"
    )
    parser.add_argument(
        "--hold-out", metavar="SPLIT", help="treat these triples as unknown, and count how many are found"
    )
    parser.add_argument("--graph", help=f"use this graph instead of the training graph: {GRAPH_HELP}")
    add_json(parser)
    run_completion(parser.parse_args(arguments))


def run_completion(chosen: Any) -> None:
    from fnftg.files import check_output_file, new_file
    from fnftg.predict.completion import complete as search
    from fnftg.predict.completion import expected_precision, forget, hits_among
    from fnftg.predict.review_page import review_page
    from fnftg.predict.triple_files import format_of, frames, nodes_under, write_triples

    started, output = time.perf_counter(), chosen.output
    format = format_of(output)
    for path in filter(None, (output, chosen.review)):
        check_output_file(path, chosen.force, chosen.graph, chosen.entities)
    if chosen.stream and chosen.json:
        raise FnftgError("--stream and --json both print JSON: choose one of them.")
    if chosen.base is not None:
        nodes_under(chosen.base)
    check_share(chosen.min_probability, "--min-probability")
    check_share(chosen.expected_precision, "--expected-precision")
    predictor, held_out = opened(chosen)
    wanted = wanted_of(chosen, predictor)
    folder = output.absolute().with_name(f".{output.name}.parts")

    def stream(found: Any) -> None:
        for frame in frames(predictor.graph, found):
            print_text(frame.write_ndjson().rstrip()) if len(frame) else None

    completed = search(predictor, wanted, folder, stream if chosen.stream else None)
    found = completed.triples
    if chosen.expected_precision is not None:
        found = expected_precision(found, chosen.expected_precision)
    with new_file(output, chosen.force) as partial:
        write_triples(predictor.graph, found, partial, format, chosen.annotation, chosen.base)
    if chosen.review is not None:
        with new_file(chosen.review, chosen.force) as partial:
            partial.write_text(review_page(predictor, found, str(chosen.run)), encoding="utf-8")
    forget(folder)
    likely = float(found["probability"].sum())
    summary: dict[str, Any] = {
        "triples": len(found),
        "expected": likely,
        "queries": completed.asked,
        "output": str(output),
    }
    if held_out is not None:
        first = min(MEASURED, len(found))
        hits = hits_among(found, held_out, first)
        summary["held_out"] = {
            "triples": len(held_out),
            "first": first,
            "found": hits,
            "precision": hits / max(first, 1),
        }
    summary["seconds"] = round(time.perf_counter() - started, 1)
    if chosen.json:
        print_json(summary)
    else:
        print_summary(predictor, found, summary)
        if chosen.review is not None:
            log(f"Open {chosen.review} in a browser to review the triples.")


def check_share(value: float | None, option: str) -> None:
    if value is not None and not 0 <= value <= 1:
        raise FnftgError(f"{option} {value} is not a probability: give a number from 0 to 1.")


def opened(chosen: Any) -> tuple[Any, Any]:
    """Return the predictor and the held-out triples, which it does not see."""
    from fnftg.predict.predictor import load

    if chosen.hold_out is None:
        return load(chosen.run, chosen.graph), None
    from fnftg.kg.graph_source import open_graph
    from fnftg.ranking.runs import RunFolder

    graph = open_graph(chosen.graph) if chosen.graph else RunFolder(chosen.run).graph()
    held_out = graph.triples(chosen.hold_out)
    if not len(held_out):
        raise FnftgError(
            f"The graph has no triples in the split {chosen.hold_out}: give another split with --hold-out."
        )
    rest = {name: triples for name, triples in graph.splits.items() if name != chosen.hold_out}
    return load(chosen.run, graph.with_splits(rest, {"held_out": chosen.hold_out})), held_out


def wanted_of(chosen: Any, predictor: Any) -> Any:
    from fnftg.predict.completion import Wanted
    from fnftg.predict.questions import checked_k

    relations = entities = None
    if chosen.relations is not None:
        relations = tuple(sorted({predictor.relation_names.row(name) for name in chosen.relations.split(",")}))
    if chosen.entities is not None:
        entities = tuple(sorted({predictor.entity_names.row(name) for name in listed(chosen.entities)}))
    return Wanted(checked_k(chosen.k), relations, entities, chosen.min_probability)


def listed(words: str) -> list[str]:
    """Return the lines of a file, or the items of a comma-separated list."""
    path = Path(words)
    try:
        if not path.is_file():
            return words.split(",")
        names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise FnftgError(f"Cannot read entities from {path}: give a text file with one entity per line.") from error
    if not names:
        raise FnftgError(f"{path} contains no entity: write one entity per line.")
    return names


def print_summary(predictor: Any, found: Any, summary: dict[str, Any]) -> None:
    graph = predictor.graph
    rows = [
        (
            f"{one['probability']:.3f}",
            graph.entities.name(int(one["head"])),
            graph.relations.name(int(one["relation"])),
            graph.entities.name(int(one["tail"])),
        )
        for one in found[:SHOWN]
    ]
    note = (
        f"{summary['triples']:,} triples, {summary['expected']:,.0f} of which are expected to be true; "
        f"{summary['queries']:,} queries, {summary['seconds']:.1f} s."
    )
    if held := summary.get("held_out"):
        note += (
            f"  {held['found']:,} of the first {held['first']:,} are among the {held['triples']:,} held-out triples: "
            f"precision {held['precision']:.3f}."
        )
    print_table("the likeliest missing triples", ["probability", "head", "relation", "tail"], rows, note)
    log(f"Saved all triples to {summary['output']}.")
