"""`fnftg complete`: predict the likeliest missing triples of a graph."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from fnftg.console import log, print_json, print_table
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, add_output, examples

SHOWN, MEASURED = 10, 1_000  # triples in the printed table; best triples compared with the held-out split


def complete(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.description = f"""{parser.description}\n
Predicts the tails of every entity and relation, and writes the likeliest triples that the graph does not have, best
first. All entities are queried and all are candidates, unless --types or --entities restricts them.

A probability is that of an answer to a query that has an answer. Most entities have no tail for most relations, and a
score cannot tell that a query has no answer. --types leaves out entities that were never a head, or a tail, of the
relation.

If the command is interrupted, run it again to continue; the output is the same, byte for byte. --memory limits the
search. Sorting needs about 60 more bytes for each triple found; use -k, --min-probability and --min-score to keep
fewer."""
    parser.epilog = examples(
        "fnftg complete animals-run -o missing.tsv",
        "fnftg complete animals-run -o missing.parquet -k 3 --both --types --min-probability 0.5",
        "fnftg complete animals-run -o dogs.jsonl --relations hypernym --entities dog,poodle",
        "fnftg complete animals-run -o missing.ttl --annotation reification --base http://example.org/id/",
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
    parser.add_argument("--both", action="store_true", help="also predict heads; triples found twice are written once")
    parser.add_argument(
        "--types", action="store_true", help="only heads and tails that the relation already has in the graph"
    )
    parser.add_argument("--min-probability", type=float, metavar="P", help="leave out triples below this probability")
    parser.add_argument("--min-score", type=float, metavar="S", help="leave out triples below this score")
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
    parser.add_argument("--memory", default="1GB", help="memory for the search (default: 1GB)")
    add_json(parser)
    run_completion(parser.parse_args(arguments))


def run_completion(chosen: Any) -> None:
    from fnftg.files import check_output_file, new_file
    from fnftg.predict.completion import complete as search
    from fnftg.predict.completion import forget, hits_among
    from fnftg.predict.triple_files import format_of, nodes_under, write_triples
    from fnftg.sizes import parse_size

    started, output = time.perf_counter(), chosen.output
    format, memory = format_of(output), parse_size(chosen.memory)
    check_output_file(output, chosen.force, chosen.graph, chosen.entities)
    if chosen.base is not None:
        nodes_under(chosen.base)
    predictor, held_out = opened(chosen)
    wanted = wanted_of(chosen, predictor)
    folder = output.absolute().with_name(f".{output.name}.parts")
    found = search(predictor, wanted, folder, memory)
    calibrated = predictor.calibration is not None
    with new_file(output, chosen.force) as partial:
        write_triples(predictor.graph, found, partial, format, calibrated, chosen.annotation, chosen.base)
    forget(folder)
    summary: dict[str, Any] = {"triples": len(found), "output": str(output), "calibrated": calibrated}
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

    if chosen.min_probability is not None:
        if not 0 <= chosen.min_probability <= 1:
            raise FnftgError(
                f"--min-probability {chosen.min_probability} is not a probability: give a number from 0 to 1."
            )
        if predictor.calibration is None:
            raise FnftgError(f"{chosen.run} is not calibrated: run fnftg calibrate first, or use --min-score.")
    relations = entities = None
    if chosen.relations is not None:
        relations = tuple(sorted({predictor.relation_names.row(name) for name in chosen.relations.split(",")}))
    if chosen.entities is not None:
        entities = tuple(sorted({predictor.entity_names.row(name) for name in listed(chosen.entities)}))
    return Wanted(
        checked_k(chosen.k),
        relations,
        entities,
        chosen.both,
        chosen.types,
        chosen.min_probability,
        chosen.min_score,
    )


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
    graph, calibrated = predictor.graph, summary["calibrated"]
    rows = [
        (
            f"{one['probability']:.3f}" if calibrated else f"{one['score']:.3f}",
            graph.entities.name(int(one["head"])),
            graph.relations.name(int(one["relation"])),
            graph.entities.name(int(one["tail"])),
        )
        for one in found[:SHOWN]
    ]
    note = f"{summary['triples']:,} triples, {summary['seconds']:.1f} s."
    if held := summary.get("held_out"):
        note += (
            f"  {held['found']:,} of the first {held['first']:,} are among the {held['triples']:,} held-out triples: "
            f"precision {held['precision']:.3f}."
        )
    if not calibrated:
        note += "  Scores are not probabilities: run fnftg calibrate to get them."
    print_table(
        "the likeliest triples", ["probability" if calibrated else "score", "head", "relation", "tail"], rows, note
    )
    log(f"Saved all triples to {summary['output']}.")
