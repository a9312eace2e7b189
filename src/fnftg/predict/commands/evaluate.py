"""`fnftg evaluate`: ranking, discovery of held-out links, or classification of triples."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fnftg.console import print_json, print_table
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import add_json, examples
from fnftg.ranking import evaluate_commands

TASKS = ("ranking", "discovery", "classification")
SAMPLE = 2_000  # triples that are classified


def evaluate(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    first = argparse.ArgumentParser(prog=parser.prog, add_help=False)
    first.add_argument("--task", choices=TASKS, default="ranking")
    task = first.parse_known_args(arguments)[0].task
    parser.description = f"""{parser.description}\n
--task ranking ranks the true answer of each query of the split among all entities.
--task discovery hides the split, completes the graph and counts how many of the hidden triples are found. It needs
fnftg calibrate, and means most on a random split (fnftg split random).
--task classification separates the triples of the split from wrong ones, which the model itself finds likely.
The options below are those of --task {task}; fnftg evaluate --task TASK --help shows the others."""
    parser.add_argument("--task", choices=TASKS, default="ranking", help="what to evaluate (default: ranking)")
    {"ranking": evaluate_commands.evaluate, "discovery": discovery, "classification": classification}[task](
        parser, arguments
    )


def graph_with(chosen: Any, *splits: str) -> Any:
    """Open the graph; raise FnftgError if it has no triples in one of these splits."""
    from fnftg.kg.graph_source import open_graph
    from fnftg.ranking.runs import RunFolder

    graph = open_graph(chosen.graph) if chosen.graph else RunFolder(chosen.run).graph()
    for split in splits:
        if not len(graph.triples(split)):
            raise FnftgError(f"The graph has no triples in the split {split}: choose another with --split.")
    return graph


def without(chosen: Any, graph: Any, *splits: str) -> Any:
    """Return a predictor that does not see these splits of the graph."""
    from fnftg.predict.predictor import load

    rest = {name: triples for name, triples in graph.splits.items() if name not in splits}
    return load(chosen.run, graph.with_splits(rest, {"held_out": list(splits)}))


def add_common(parser: argparse.ArgumentParser) -> None:
    evaluate_commands.add_run(parser)
    add_json(parser)


def discovery(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg split random people -o people-random && fnftg train people-random -o run && fnftg calibrate run",
        "fnftg evaluate run --task discovery",
        "fnftg evaluate run --task discovery --without-relations similar_to,also_see --json",
    )
    add_common(parser)
    parser.add_argument(
        "--min-probability", type=float, metavar="P", default=0.02, help="leave out less likely triples (default: 0.02)"
    )
    parser.add_argument("--without-relations", metavar="R1,R2", help="leave these relations out of the list")
    chosen = parser.parse_args(arguments)
    from fnftg.predict.completion import Wanted, complete, needed
    from fnftg.predict.discovery import discovered, query_auc

    graph = graph_with(chosen, chosen.split)
    predictor = without(chosen, graph, chosen.split)
    relations = None
    if chosen.without_relations is not None:
        left_out = {predictor.relation_names.row(name) for name in chosen.without_relations.split(",")}
        relations = tuple(sorted(set(range(len(graph.relations))) - left_out))
    held_out = graph.triples(chosen.split)
    with TemporaryDirectory(prefix="fnftg-parts-") as folder:
        completed = complete(
            predictor, Wanted(relations=relations, min_probability=chosen.min_probability), Path(folder)
        )
    visible = predictor.graph
    if relations is not None:
        held_out = held_out[[relation in relations for relation in held_out[:, 1].tolist()]]
    found = {
        "task": "discovery",
        "split": chosen.split,
        "queries": completed.asked,
        "possible_queries": 2 * len(graph.entities) * len(graph.relations),
        **discovered(completed.triples, held_out, visible),
        "query_auc": query_auc(predictor.context, needed(predictor).query, held_out),
    }
    print_json(found) if chosen.json else print_discovery(str(chosen.run), found)


def print_discovery(run: str, found: dict[str, Any]) -> None:
    rows = [
        (f"first {int(first):,}", f"{value:.3f}", f"{found['frequency_baseline'][first]:.3f}")
        for first, value in found["precision_at"].items()
    ]
    note = (
        f"{found['hits']:,} of {found['held_out']:,} held-out triples of {found['split']} are among "
        f"{found['triples']:,} predicted ones (recall {found['recall']:.3f}, area under precision-recall "
        f"{found['area_under_precision_recall']:.3f}).\n{found['queries']:,} of {found['possible_queries']:,} queries "
        "were asked. Precision is a lower bound: a predicted triple may be true although it was not held out."
    )
    print_table(f"{run}: precision of the predicted triples", ["", "fnftg", "frequency baseline"], rows, note)
    columns = ["P(triple) at least", "triples", "expected hits", "found", "precision", "recall"]
    expected = [
        (
            f"{row['threshold']:.1f}",
            f"{row['triples']:,}",
            f"{row['expected']:,.0f}",
            f"{row['found']:,}",
            f"{row['precision']:.3f}",
            f"{row['recall']:.3f}",
        )
        for row in found["expected"]
    ]
    words = {"all": "all entities", "linked": "entities with edges", "isolated": "entities without edges"}
    said = ", ".join(f"{value:.3f} for {words[name]}" for name, value in found["query_auc"].items())
    about = f"AUC of the queries, with a missing answer against without one: {said}." if said else None
    print_table("expected and found", columns, expected, about)


def classification(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg evaluate animals-run --task classification")
    add_common(parser)
    parser.add_argument("--threshold-split", default="val", help="the split to choose the threshold on (default: val)")
    parser.add_argument(
        "--sample", type=int, metavar="N", default=SAMPLE, help=f"triples per split (default: {SAMPLE:,})"
    )
    chosen = parser.parse_args(arguments)
    if chosen.sample < 1:
        raise FnftgError(f"--sample {chosen.sample} is too small: give at least 1.")
    import numpy as np

    from fnftg.predict.classification import classified, labelled_probabilities
    from fnftg.predict.completion import needed

    if chosen.threshold_split == chosen.split:
        raise FnftgError(f"--threshold-split and --split are both {chosen.split}: choose two splits.")
    graph = graph_with(chosen, chosen.threshold_split, chosen.split)
    values = []
    for split, known, hidden in (  # the threshold is chosen as if test did not exist
        (chosen.threshold_split, graph.up_to(chosen.threshold_split), (chosen.threshold_split, chosen.split)),
        (chosen.split, graph, (chosen.split,)),
    ):
        predictor = without(chosen, known, *hidden)
        triples = np.unique(graph.triples(split), axis=0)
        rows = np.sort(np.random.default_rng(0).permutation(len(triples))[: chosen.sample])
        true = np.concatenate([predictor.graph.all_triples(), graph.triples(split)])
        values.append(labelled_probabilities(predictor, needed(predictor), triples[rows], true))
    found = {"task": "classification", "split": chosen.split, **classified(*values)}
    if chosen.json:
        print_json(found)
        return
    rows_shown = [
        (kind, f"{value['triples']:,}", f"{value['accuracy']:.3f}", f"{value['auc']:.3f}")
        for kind, value in (
            *found["against"].items(),
            ("both", {**found, "triples": sum(v["triples"] for v in found["against"].values())}),
        )
    ]
    note = (
        f"{found['triples']:,} true triples of {found['split']}; the threshold {found['threshold']:.4f} was chosen on "
        f"{chosen.threshold_split}."
    )
    print_table(f"{chosen.run}: true or false?", ["false triples", "number", "accuracy", "AUC"], rows_shown, note)
