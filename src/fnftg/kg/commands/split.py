"""`fnftg split inductive|random|fir|support`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import polars as pl

from fnftg.arrays import Int32Array
from fnftg.console import log, print_json
from fnftg.errors import FnftgError, shortened
from fnftg.files import check_not_source
from fnftg.kg.commands.inspection import print_statistics
from fnftg.kg.commands.shared_arguments import add_graph, add_json, add_output, examples
from fnftg.kg.formats.delimited_lines import parse
from fnftg.kg.formats.lines import line_blocks
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.kg.splits.fir import fir_split
from fnftg.kg.splits.support import support_split
from fnftg.kg.statistics import statistics
from fnftg.kg.strings import as_series


def inductive(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg split inductive people -o people-ind --val 0.05 --test 0.1",
        "fnftg split inductive people -o people-ind --types types.tsv --seed 7",
    )
    _add_common(parser)
    parser.add_argument("--val", type=float, default=0.1, help="share of entities for val (default: %(default)s)")
    parser.add_argument("--test", type=float, default=0.1, help="share of entities for test (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument(
        "--min-edges", type=int, default=100, help="triples that each relation keeps in train (default: %(default)s)"
    )
    parser.add_argument(
        "--types", metavar="FILE", type=Path, help="lines of entity, tab, type; the splits keep the types' proportions"
    )
    chosen = parser.parse_args(arguments)
    graph = open_graph(chosen.graph)
    types = read_types(graph, chosen.types) if chosen.types else None
    split = graph.split_inductive(chosen.val, chosen.test, chosen.seed, chosen.min_edges, types)
    recipe = split.report["recipes"][-1]
    if recipe["held_back"] < recipe["asked"]:
        log(
            f"Only {recipe['held_back']:,} of {recipe['asked']:,} entities could be held out without isolating another "
            "entity or leaving a relation with too few edges (--min-edges)."
        )
    _save(split, chosen)


def random(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg split random people -o people-random --val 0.05 --test 0.05 --seed 7")
    _add_common(parser)
    parser.add_argument("--val", type=float, default=0.05, help="share of triples for val (default: %(default)s)")
    parser.add_argument("--test", type=float, default=0.05, help="share of triples for test (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    _save(open_graph(chosen.graph).split_random(chosen.val, chosen.test, chosen.seed), chosen)


def fir(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg split fir wn18rr -o wn18rr-fir", "fnftg split fir wn18rr -o wn18rr-fir --cross")
    _add_common(parser)
    parser.add_argument(
        "--share", type=float, default=0.1, help="share of the training triples to remove (default: %(default)s)"
    )
    parser.add_argument("--cross", action="store_true", help="also remove the next relation, which exceeds the share")
    chosen = parser.parse_args(arguments)
    _save(fir_split(open_graph(chosen.graph), chosen.share, chosen.cross), chosen)


def support(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg split support wn18rr -o wn18rr-support --share 0.3",
        "fnftg evaluate run --graph wn18rr-support --protocol held-out",
    )
    _add_common(parser)
    parser.add_argument(
        "--share", type=float, default=0.5, help="share of a new entity's edges to make visible (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    _save(support_split(open_graph(chosen.graph), chosen.share, chosen.seed), chosen)


def read_types(graph: KnowledgeGraph, path: Path) -> Int32Array:
    """Read the type of each entity. The first type of an entity is used; entities without a type share one.

    Raises:
        FnftgError: if the file names an entity that the graph does not have.
    """
    lines = pl.concat(
        parse(block, "\t", width=2, needed=[0, 1]).with_columns(place=pl.lit(block.place))
        for block in line_blocks(path)
    )
    entities = as_series(graph.entities.ids).alias("0").to_frame()
    if len(unknown := lines.join(entities, on="0", how="anti")):
        id_, _, place = unknown.row(0)
        raise FnftgError(f"{place} or below: the graph has no entity {shortened(id_)}; remove the line.")
    types = entities.join(lines.unique("0", keep="first"), on="0", how="left", maintain_order="left")["1"]
    return types.rank("dense").fill_null(0).cast(pl.Int32).to_numpy()


def _add_common(parser: ArgumentParser) -> None:
    add_graph(parser)
    add_output(parser, "STORE", "the folder to create")
    add_json(parser)


def _save(graph: KnowledgeGraph, chosen: Namespace) -> None:
    check_not_source(chosen.output, chosen.graph)
    found = statistics(graph.save(chosen.output, chosen.force))
    print_json(found) if chosen.json else print_statistics(str(chosen.output), found)
