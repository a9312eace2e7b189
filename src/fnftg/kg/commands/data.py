"""`fnftg data list|get|synth`."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path

from fnftg.console import log, print_json, print_table
from fnftg.kg.commands.inspection import print_statistics
from fnftg.kg.commands.shared_arguments import add_json, add_output, examples
from fnftg.kg.datasets import DATASETS, get, store_path
from fnftg.kg.statistics import statistics
from fnftg.kg.store import is_store
from fnftg.kg.synthetic_graph import write_synthetic


def list_datasets(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg data list", "fnftg data list --json")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    here = {name: is_store(store_path(name)) for name in DATASETS}
    if chosen.json:
        print_json({name: {**asdict(record), "here": here[name]} for name, record in DATASETS.items()})
        return
    print_table(
        "Datasets",
        ["name", "entities", "relations", "triples", "here", "origin", "licence"],
        [
            (
                name,
                record.entities,
                record.relations,
                sum(record.triples.values()) if "train" in record.triples else "unknown",
                "yes" if here[name] else "",
                record.origin,
                record.licence,
            )
            for name, record in DATASETS.items()
        ],
        "Run fnftg data get NAME to download or build a dataset. wordnet and wordnet-animals need no network.",
    )


def get_dataset(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg data get wordnet-animals",
        "fnftg data get WN18RR_IND --from ~/Downloads/WN18RR",
    )
    parser.add_argument("name", metavar="NAME", help="name of a dataset (fnftg data list)")
    parser.add_argument("--from", dest="source", metavar="DIR", type=Path, help="import a local folder or .tar.gz file")
    parser.add_argument(
        "-o", "--output", metavar="STORE", type=Path, help="the folder to create (default: in the data home)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing store")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    graph = get(chosen.name, chosen.source, chosen.output, chosen.force)
    log(f"{chosen.name} is at {graph.path}")
    found = statistics(graph)
    print_json(found) if chosen.json else print_statistics(chosen.name, found)


def synthesise(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg data synth --entities 4600000 --triples 20500000 --relations 822 -o synthetic")
    parser.add_argument("--entities", type=int, default=100_000, help="number of entities (default: %(default)s)")
    parser.add_argument("--triples", type=int, default=500_000, help="number of triples (default: %(default)s)")
    parser.add_argument("--relations", type=int, default=100, help="number of relations (default: %(default)s)")
    parser.add_argument("--words", type=int, default=64, help="mean number of words in a text (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    add_output(parser, "FOLDER", "the folder to create, in BLP's layout")
    chosen = parser.parse_args(arguments)
    write_synthetic(
        chosen.output, chosen.entities, chosen.triples, chosen.relations, chosen.seed, chosen.words, chosen.force
    )
