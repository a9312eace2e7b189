"""`fnftg import` and `fnftg export`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fnftg.console import print_json, print_table
from fnftg.files import check_not_source
from fnftg.kg.commands.shared_arguments import add_graph, add_json, add_output, examples
from fnftg.kg.formats.specs import FORMATS, RdfOptions, ReadOptions, TableOptions
from fnftg.kg.graph_export import export_graph
from fnftg.kg.graph_import import import_graph
from fnftg.kg.graph_source import open_graph
from fnftg.sizes import parse_size

FORMAT_HELP = "; ".join(f"{name}: {format.description}" for name, format in FORMATS.items())


def import_source(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg import WN18RR_IND/ -o wn18rr            # BLP's folder layout",
        "fnftg import triples.csv --head subject --relation predicate --tail object \\",
        "    --entities people.csv --id qid --text description -o people",
        "fnftg import dump.nt.zst --language de -o dump",
    )
    parser.add_argument(
        "source", metavar="SOURCE", type=Path, help="a file or a folder; .gz and .zst files are read directly"
    )
    add_output(parser, "STORE", "the folder to create")
    parser.add_argument("--format", choices=FORMATS, metavar="FORMAT", help=f"default: detected. {FORMAT_HELP}")
    parser.add_argument("--strict", action="store_true", help="fail if a text is missing; by default the id is used")
    parser.add_argument("--keep-isolated", action="store_true", help="keep entities that have a text but no triple")
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        type=parse_size,
        help="largest unpacked size of a compressed file, e.g. 50GB (default: 2 GB or 100 times its size)",
    )
    add_json(parser)
    tables = parser.add_argument_group(
        "tables", "Columns are given by name or by number from 1. By default they are found by their usual names."
    )
    tables.add_argument("--head", metavar="COLUMN", help="head column of the triples (default: head, else the first)")
    tables.add_argument(
        "--relation", metavar="COLUMN", help="relation column of the triples (default: relation, else the second)"
    )
    tables.add_argument("--tail", metavar="COLUMN", help="tail column of the triples (default: tail, else the third)")
    tables.add_argument(
        "--split", metavar="COLUMN", help="column of the triples with train, val or test (default: split, if present)"
    )
    tables.add_argument("--entities", metavar="FILE", type=Path, help="a table of entity texts")
    tables.add_argument("--relations", metavar="FILE", type=Path, help="a table of relation texts")
    tables.add_argument("--id", metavar="COLUMN", help="id column of the texts (default: id, else the first)")
    tables.add_argument("--text", metavar="COLUMN", help="text column of the texts (default: text, else the second)")
    tables.add_argument(
        "--name", metavar="COLUMN", help="column of the texts with a short name (default: name, if present)"
    )
    rdf = parser.add_argument_group(
        "RDF", "Choose the literals to use as texts. The predicate options can be repeated."
    )
    defaults = RdfOptions()
    rdf.add_argument(
        "--name-predicate",
        metavar="IRI",
        action="append",
        help=f"predicate of names (default: {', '.join(defaults.name_predicates)})",
    )
    rdf.add_argument(
        "--description-predicate",
        metavar="IRI",
        action="append",
        help=f"predicate of descriptions (default: {', '.join(defaults.description_predicates)})",
    )
    rdf.add_argument(
        "--language", default=defaults.language, metavar="TAG", help="preferred language (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    options = ReadOptions(
        TableOptions(
            chosen.head, chosen.relation, chosen.tail, chosen.split,
            chosen.entities, chosen.relations, chosen.id, chosen.text, chosen.name,
        ),
        RdfOptions(
            tuple(chosen.name_predicate or defaults.name_predicates),
            tuple(chosen.description_predicate or defaults.description_predicates),
            chosen.language,
        ),
        chosen.max_size,
    )  # fmt: skip
    graph = import_graph(
        chosen.source, chosen.output, chosen.format, options, chosen.strict, chosen.keep_isolated, chosen.force
    )
    print_json(dict(graph.report)) if chosen.json else print_report(graph.report, chosen.output)


def print_report(report: Mapping[str, Any], store: Path) -> None:
    """Print what was imported, and what was left out and why."""
    rows: list[tuple[str, int]] = [("entities", report["entities"]), ("relations", report["relations"])]
    rows += [(f"triples in {split}", count) for split, count in report["triples"].items()]
    rows += [("self-loops (kept)", report["self_loops"])]
    rows += [(f"{kind} without text (derived from the id)", count) for kind, count in report["filled_texts"].items()]
    rows += [(f"left out: {reason}", count) for reason, count in report["left_out"].items()]
    print_table(f"{report['source']} ({report['format']}) → {store}", ["", "count"], rows)


def export_store(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg export wn18rr --format ttl -o wn18rr-rdf",
        "fnftg export wordnet-animals --format csv -o animals-csv",
    )
    add_graph(parser)
    add_output(parser, "FOLDER", "the folder to create")
    parser.add_argument("--format", choices=FORMATS, metavar="FORMAT", required=True, help=FORMAT_HELP)
    chosen = parser.parse_args(arguments)
    check_not_source(chosen.output, chosen.graph)
    export_graph(open_graph(chosen.graph), chosen.output, chosen.format, chosen.force)
