"""`fnftg data stats` and `fnftg audit`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from fnftg.console import print_json, print_table
from fnftg.kg.audit import audit
from fnftg.kg.commands.shared_arguments import add_graph, add_json, examples
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.kg.statistics import statistics

SHOWN = 12  # relations in a table without --all


def stats(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg data stats wordnet-animals", "fnftg data stats ../WN18RR_IND --json")
    add_graph(parser)
    add_json(parser)
    chosen = parser.parse_args(arguments)
    found = statistics(open_graph(chosen.graph))
    print_json(found) if chosen.json else print_statistics(chosen.graph, found)


def print_statistics(name: str, found: dict[str, Any]) -> None:
    print_table(
        f"{name}: {found['relations']:,} relations, {found['entities']:,} entities, {found['triples']:,} triples",
        ["split", "entities", "triples", "relations", "ego-graph", "self-loops"],
        [
            (
                split,
                facts["entities"],
                facts["triples"],
                facts["relations"],
                f"{facts['ego_graph_mean']:.2f} ± {facts['ego_graph_std']:.2f}",
                facts["self_loops"],
            )
            for split, facts in found["splits"].items()
        ],
        "Entities of val and test: those that are not in train. Ego-graph: mean ± σ of an entity's outgoing edges in "
        "the split.",
    )
    print_table(
        "Words per text",
        ["of", "mean", "median", "longest"],
        [(kind, f"{w['mean']:.1f}", f"{w['median']:.0f}", w["longest"]) for kind, w in found["words"].items()],
    )


def audit_graph(parser: ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg audit wordnet-animals", "fnftg audit wn18rr --visible own-split --json")
    add_graph(parser)
    parser.add_argument(
        "--visible",
        choices=["cumulative", "own-split", "before"],
        default="cumulative",
        help="edges that a model may see: own-split for those of the split itself, cumulative for those of all earlier "
        "splits as well, before for those of earlier splits alone (default: %(default)s)",
    )
    parser.add_argument("--all", action="store_true", help=f"show every relation, not only the {SHOWN} most frequent")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    graph = open_graph(chosen.graph)
    found = audit(graph, chosen.visible)
    print_json({"visible": chosen.visible, "splits": found}) if chosen.json else print_audit(graph, found, chosen)


def print_audit(graph: KnowledgeGraph, found: dict[str, Any], chosen: Any) -> None:
    def part(count: int, whole: int) -> str:
        return f"{count:,} ({count / whole:.1%})" if whole else "0"

    rows: list[tuple[Any, ...]] = []
    for label, value in (
        ("triples", lambda facts: facts["triples"]),
        ("reverse edge elsewhere", lambda facts: part(facts["reverse"], facts["triples"])),
        ("any other edge between the pair", lambda facts: part(facts["other_edge"], facts["triples"])),
        ("the same triple in an earlier split", lambda facts: part(facts["repeated"], facts["triples"])),
        ("one end new", lambda facts: part(facts["ends_new"]["1"], facts["triples"])),
        ("both ends new", lambda facts: part(facts["ends_new"]["2"], facts["triples"])),
        ("candidates", lambda facts: facts["candidates"]),
        ("candidates with no visible edge", lambda facts: part(facts["candidates_without_edge"], facts["candidates"])),
        (
            "ends with no visible edge once the target is hidden",
            lambda facts: part(facts["ends_without_edge_when_target_hidden"], 2 * facts["triples"]),
        ),
    ):
        rows.append((label, *(value(facts) for facts in found.values())))
    print_table(f"{chosen.graph}: leaks through visible edges ({chosen.visible})", ["", *found], rows)
    for split, facts in found.items():
        if split == "train" and len(found) > 1:
            continue
        relations = facts["relations"] if chosen.all else facts["relations"][:SHOWN]
        hidden = len(facts["relations"]) - len(relations)
        print_table(
            f"{split}, by relation",
            ["relation", "triples", "reverse", "other edge"],
            [
                (
                    row["relation"],
                    row["triples"],
                    part(row["reverse"], row["triples"]),
                    part(row["other_edge"], row["triples"]),
                )
                for row in relations
            ],
            f"{hidden:,} more relations with --all" if hidden else None,
        )
