"""`fnftg evaluate` and `fnftg report`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from fnftg.console import log, print_json, print_table
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, examples
from fnftg.kg.datasets import data_home
from fnftg.ranking.protocols import CHOICES, DEFAULT_PROTOCOL, PROTOCOLS, Protocol, protocol

SHOWN = 12  # relations in the table without --all
OVERRIDES = {
    "visible": "visible edges",
    "hidden": "hidden edges",
    "candidates": "candidates",
    "unseen_edges": "edges of relations that train lacks: visible (few-shot) or hidden (zero-shot)",
}


def evaluate(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg evaluate animals-run",
        "fnftg evaluate animals-run --protocol strict --save-ranks ranks.parquet",
        "fnftg evaluate animals-run --split val --hidden pair --json",
        "fnftg evaluate animals-run --protocol held-out",
        "fnftg evaluate animals-run --protocol held-out --candidates transfer",
        "fnftg evaluate fir-run --relations unseen",
        "fnftg evaluate fir-run --relations unseen --unseen-edges hidden",
        "fnftg evaluate fir-run --relations unseen --graph WN18RR_IND",
        "torchrun --standalone --nproc-per-node 2 -m fnftg evaluate animals-run",
    )
    add_run(parser)
    parser.add_argument(
        "--protocol", default=DEFAULT_PROTOCOL, help=f"one of {', '.join(PROTOCOLS)} (default: {DEFAULT_PROTOCOL})"
    )
    for name, choices in CHOICES.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, choices=choices, help=f"override the protocol's {OVERRIDES[name]}")
    parser.add_argument(
        "--relations", metavar="WHICH", help="rank only these relations: seen, unseen, or a list such as r1,r2"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="rank a fixed random sample of N triples")
    parser.add_argument(
        "--ties",
        choices=("mean", "expected"),
        default="mean",
        help="use the mean rank of tied candidates, or the expected value of each metric (default: mean)",
    )
    parser.add_argument("--save-ranks", type=Path, metavar="FILE", help="write the ranks to a Parquet file")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--all", action="store_true", help=f"show all relations, not only the first {SHOWN}")
    parser.add_argument("--pykeen", action="store_true", help="print JSON in the format of PyKEEN's results")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    if chosen.sample is not None and chosen.sample < 1:
        raise FnftgError(f"--sample {chosen.sample} is too small: give at least 1.")
    overrides = {name: getattr(chosen, name) for name in CHOICES if getattr(chosen, name)}
    run_evaluation(chosen, replace(protocol(chosen.protocol), **overrides))


def run_evaluation(chosen: Any, rules: Protocol) -> None:
    from fnftg.files import check_output_file
    from fnftg.ranking.evaluation import rank_split
    from fnftg.ranking.metrics import pykeen_metrics
    from fnftg.ranking.processes import Processes
    from fnftg.ranking.reliability import reliability_of
    from fnftg.ranking.results import results, save_ranks
    from fnftg.ranking.runs import check_writable
    from fnftg.sizes import parse_size

    if chosen.save_ranks:
        check_output_file(chosen.save_ranks, chosen.force, chosen.graph)
        check_writable(chosen.save_ranks.parent)
    memory, processes = parse_size(chosen.memory), Processes.started()
    run, model, graph = opened(chosen)
    of_training = chosen.relations in ("seen", "unseen") and chosen.graph and run.is_run
    relations = chosen_relations(graph, chosen.relations, run.graph() if of_training else graph)
    texts = model.texts(graph, data_home() / "texts")
    asked = (model, graph, texts, chosen.split, rules, chosen.sample, relations, memory)
    ranking = rank_split(*asked, processes)
    if processes.rank:
        return  # only the first process prints
    found = results(ranking, graph, chosen.ties)
    if calibrated := reliability_of(checkpoint_of(run), *asked):
        found["calibration"] = calibrated
    if run.is_run:
        found["seed"] = run.started_with()["config"]["training"]["seed"]
    whole = chosen.sample is None and relations is None and chosen.ties == "mean"
    if run.is_run and whole and not chosen.graph:
        run.get_or_create(graph, chosen.split, rules, lambda: found, anew=True)
    if chosen.save_ranks:
        save_ranks(ranking, graph, chosen.save_ranks, chosen.force)
        log(f"Wrote {ranking.ranks.size:,} ranks to {chosen.save_ranks}.")
    if chosen.pykeen:
        print_json(pykeen_metrics(ranking.better, ranking.equal, ranking.others + 1))
    elif chosen.json:
        print_json(found)
    else:
        print_results(str(run.path), found, chosen.all)


def report(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples("fnftg report animals-run", "fnftg report animals-run -o page --split val")
    add_run(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for the report (default: RUN/report)")
    chosen = parser.parse_args(arguments)
    from fnftg.ranking.reliability import reliability_of
    from fnftg.ranking.report import write_report
    from fnftg.ranking.results import evaluate as evaluate_model
    from fnftg.ranking.runs import check_writable
    from fnftg.sizes import parse_size

    memory = parse_size(chosen.memory)
    run, model, graph = opened(chosen)
    if not run.is_run:
        raise FnftgError(f"{run.path} is a model without its run: give the folder of the run that trained it.")
    folder = chosen.output or run.path / "report"
    check_writable(folder)
    texts = model.texts(graph, data_home() / "texts")
    found = {
        name: run.get_or_create(
            graph,
            chosen.split,
            rules,
            lambda rules=rules: evaluate_model(model, graph, rules, chosen.split, texts, memory=memory),
        )
        for name, rules in PROTOCOLS.items()
    }
    main = found[DEFAULT_PROTOCOL]
    asked = (model, graph, texts, chosen.split, PROTOCOLS[DEFAULT_PROTOCOL])
    calibrated = reliability_of(checkpoint_of(run), *asked, memory=memory, earlier=main.get("calibration"))
    if calibrated != main.get("calibration"):
        main["calibration"] = calibrated
        run.get_or_create(graph, chosen.split, PROTOCOLS[DEFAULT_PROTOCOL], lambda: main, anew=True)
    write_report(run, found, folder)
    log(f"Wrote the report to {folder / 'index.html'}.")


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run, or of a model (with --graph)")
    parser.add_argument("--graph", help=f"graph to use instead of the run's training graph: {GRAPH_HELP}")
    parser.add_argument("--split", default="test", help="split whose triples are ranked (default: test)")
    parser.add_argument(
        "--memory", default="1GB", help="memory for ranking, in addition to the model and the graph (default: 1GB)"
    )


def checkpoint_of(run: Any) -> Path:
    """Return the folder with the weights."""
    from fnftg.models.pretrained import CHECKPOINT

    folder: Path = run.path / CHECKPOINT if run.is_run else run.path
    return folder


def opened(chosen: Any) -> tuple[Any, Any, Any]:
    """Open the run, its model and the graph."""
    from fnftg.kg.graph_source import open_graph
    from fnftg.models.pretrained import from_pretrained
    from fnftg.ranking.runs import RunFolder

    run = RunFolder(chosen.run)
    if not chosen.graph and not run.is_run and run.path.is_dir():
        raise FnftgError(f"{run.path} is a model without its run: name a graph with --graph.")
    model = from_pretrained(chosen.run)
    return run, model, open_graph(chosen.graph) if chosen.graph else run.graph()


def chosen_relations(graph: Any, which: str | None, trained: Any) -> list[int] | None:
    """Return the rows of the relations to rank, None for all.

    Args:
        graph: the graph that is ranked.
        which: seen, unseen, or relation ids separated by commas; None for all.
        trained: the training graph; relations in its train split are seen.
    """
    import numpy as np

    if which is None:
        return None
    if which in ("seen", "unseen"):
        met = {trained.relations.ids[row] for row in np.unique(trained.triples("train")[:, 1]).tolist()}
        return [row for row, name in enumerate(graph.relations.ids) if (name in met) == (which == "seen")]
    rows = {name: graph.relations.find(name) for name in which.split(",")}
    for name, row in rows.items():
        if row is None:
            raise FnftgError(f"The graph has no relation {name!r}: fnftg data stats lists them.")
    return [row for row in rows.values() if row is not None]


def print_results(name: str, found: dict[str, Any], show_all: bool) -> None:
    columns = ["MRR", "Hits@1", "Hits@3", "Hits@10"]
    rules = found["protocol"]
    rows = [("model", *figures(found))] + [
        (f"{baseline} (no model)", *figures(values)) for baseline, values in found["baselines"].items()
    ]
    print_table(f"{name}: {found['split']}, protocol {rules['name']}", ["", *columns], rows, rules["words"])
    parts = [("tail queries", found["tails"]), ("head queries", found["heads"])]
    parts += [(f"{category} relations", values) for category, values in found["categories"].items()]
    parts += [(f"new entities: {ends}", values) for ends, values in found["new_ends"].items()]
    if len(found["relations_in_train"]) > 1:
        parts += [(f"relation {which} in train", values) for which, values in found["relations_in_train"].items()]
    rows = [(part, values["triples"], *figures(values)) for part, values in parts]
    print_table("breakdown", ["", "triples", *columns], rows)
    relations = found["relations"] if show_all else found["relations"][:SHOWN]
    rows = [(row["relation"], row["category"], row["triples"], *figures(row)) for row in relations]
    hidden = len(found["relations"]) - len(relations)
    note = f"{hidden:,} more with --all.\n\n" if hidden else ""
    seed = f"seed {found['seed']}, " if "seed" in found else ""
    note += (
        f"{found['queries']:,} queries, {found['candidates']:,} candidates, "
        f"{found['known_answers_filtered']:.1f} known answers filtered per query, {seed}{found['seconds']:.1f} s. "
        "Brackets: bootstrap 95 % intervals."
    )
    print_table("by relation", ["relation", "kind", "triples", *columns], rows, note)
    if "calibration" in found:
        said = f"{found['calibration']['predictions']:,} answers in 15 bins."
        print_calibration("calibration of the probabilities", found["calibration"], said)


def print_calibration(title: str, values: dict[str, Any], note: str) -> None:
    """Print the expected calibration error of the curves and of the softmax."""
    names = {"calibrated": f"calibrated ({values['method']})", "softmax": "uncalibrated (softmax of the scores)"}
    rows = [
        (words, f"{values[name]['expected_calibration_error']:.4f}", f"{values[name]['of_first_answers']:.4f}")
        for name, words in names.items()
    ]
    print_table(title, ["expected calibration error", f"first {values['k']} answers", "first answer"], rows, note)


def figures(values: dict[str, Any]) -> list[str]:
    """Format the MRR with its interval, then Hits@1, 3 and 10."""
    mrr = f"{values['mrr']:.4f}"
    if "intervals" in values:
        low, high = values["intervals"]["mrr"]
        mrr += f" ({low:.3f}–{high:.3f})"
    return [mrr, *(f"{values[f'hits@{k}']:.4f}" for k in (1, 3, 10))]
