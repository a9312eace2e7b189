"""`fnftg update`: add entities and triples to the graph of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from fnftg.console import log, print_json
from fnftg.kg.commands.shared_arguments import add_json, examples


def update(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg update animals-run --triples new.tsv --texts new.txt",
        "fnftg update animals-run --triples new.tsv --texts new.txt --relation-texts relations.txt -o animals-2",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a run")
    parser.add_argument(
        "--triples",
        type=Path,
        metavar="FILE",
        help="new triples: head, relation and tail on each line, separated by tabs",
    )
    parser.add_argument(
        "--texts", type=Path, metavar="FILE", help="new entities: id and text on each line, separated by a tab"
    )
    parser.add_argument(
        "--relation-texts",
        type=Path,
        metavar="FILE",
        help="new relations: id and text on each line, separated by a tab",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="STORE",
        help="where to write the extended graph (default: the run's folder)",
    )
    parser.add_argument("--force", action="store_true", help="replace STORE if it exists, in one step")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    from fnftg.predict.graph_update import check_updatable
    from fnftg.predict.graph_update import update as update_run
    from fnftg.predict.predictor import load

    if chosen.run.is_dir():
        check_updatable(chosen.run)
    done = update_run(
        load(chosen.run), chosen.triples, chosen.texts, chosen.relation_texts, chosen.output, chosen.force
    )
    recall = None if done.index is None else done.index.recall
    if chosen.json:
        counts = {name: getattr(done, name) for name in ("entities", "relations", "triples", "known", "embedded")}
        print_json({"graph": str(done.store), **counts, "index_recall": recall})
        return
    known = f" {done.known:,} triples were already in the graph." if done.known else ""
    if not done.entities and not done.relations and not done.triples:
        log(f"Nothing is new, and nothing was changed.{known}")
        return
    log(
        f"Added entities: {done.entities:,}, relations: {done.relations:,}, triples: {done.triples:,}; embedded "
        f"entities: {done.embedded:,}. {chosen.run} now uses the graph {done.store}.{known}"
    )
    if recall is not None:
        log(f"The index finds {recall:.1%} of the ten best answers.")
