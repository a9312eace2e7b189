"""`fnftg calibrate`: fit the probabilities of answers and of triples."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fnftg.console import log, print_json
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, examples
from fnftg.kg.datasets import data_home

if TYPE_CHECKING:
    from fnftg.kg.graph import KnowledgeGraph
    from fnftg.ranking.val_parts import Part

MOST = 1_000  # per query; lower ranks are almost all misses


def calibrate(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    from fnftg.predict.triple_probability import FILE as PROBABILITY_FILE
    from fnftg.ranking.calibration import FILE, LEAST, METHODS

    parser.description = f"""{parser.description}\n
Fits two kinds of probabilities and saves them in the checkpoint. They are valid for these weights only.

P(triple) is the probability that a triple which the graph lacks is true ({PROBABILITY_FILE}). It is fitted to edges
that are taken out of train and val at random, so it needs no labels; test is not used. The model itself was trained on
train, and its evidence weights were fitted on val, with these edges. --share is the share of the edges to take out. The
graph itself lacks links, too: --missing is the share of the true links that it is assumed to lack. A higher share makes
all probabilities higher. fnftg evaluate --task discovery measures them.

P(answer, given that the query has one) is a monotone curve of the margin: the score of a candidate minus the score of
the best other candidate ({FILE}). It is fitted to the queries of a split, ranked as in evaluation. Where evidence
weights were fitted on val, only the third of val that was held out from their fit is used. A relation has one curve for
tails and one for heads; with fewer than {LEAST} queries it uses the curve of all queries. fnftg evaluate reports the
expected calibration error, compared with a softmax over the k scores, and fnftg report plots it."""
    parser.epilog = examples(
        "fnftg calibrate animals-run",
        "fnftg calibrate animals-run --missing 0.2",
        "fnftg calibrate animals-run --method platt --k 20",
        "fnftg calibrate animals-run && fnftg evaluate animals-run",
    )
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="the folder of a run, or of a model (which needs --graph)"
    )
    parser.add_argument("--method", choices=METHODS, default="isotonic", help="the kind of curve (default: isotonic)")
    parser.add_argument("--k", type=int, default=10, help="candidates per query (default: 10)")
    parser.add_argument("--split", default="val", help="the split to fit the curves on (default: val)")
    parser.add_argument(
        "--missing", type=float, default=0.05, help="share of the true links that the graph lacks (default: 0.05)"
    )
    parser.add_argument(
        "--share", type=float, default=0.05, help="share of the edges to take out for P(triple) (default: 0.05)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the edges to take out (default: 0)")
    parser.add_argument("--graph", help=f"use this graph instead of the training graph: {GRAPH_HELP}")
    parser.add_argument(
        "--memory", default="1GB", help="memory for ranking, besides the model and the graph (default: 1GB)"
    )
    add_json(parser)
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.k <= MOST:
        raise FnftgError(f"--k {chosen.k} is out of range: give a number from 1 to {MOST:,}.")
    for option, value in (("--missing", chosen.missing), ("--share", chosen.share)):
        if not 0 < value < 1:
            raise FnftgError(f"{option} {value} is out of range: give a share between 0 and 1.")
    from fnftg.ranking.calibration import fit
    from fnftg.ranking.evaluate_commands import checkpoint_of, opened, print_calibration
    from fnftg.ranking.protocols import DEFAULT_PROTOCOL, protocol
    from fnftg.ranking.reliability import measured, predictions
    from fnftg.ranking.runs import check_writable
    from fnftg.sizes import parse_size

    memory = parse_size(chosen.memory)
    run, model, graph = opened(chosen)
    folder = checkpoint_of(run)
    check_writable(folder)
    rules = protocol(run.started_with()["config"]["training"]["protocol"] if run.is_run else DEFAULT_PROTOCOL)
    texts = model.texts(graph, data_home() / "texts")
    part = part_to_calibrate_on(folder) if chosen.split == "val" else None
    found = predictions(model, graph, texts, chosen.split, rules, chosen.k, memory=memory, part=part)
    relations = graph.relations.ids.slice(0, len(graph.relations))
    described = {"split": chosen.split, "part": part or "all", "protocol": rules.name}
    calibration = fit(found.margins, found.hits, found.labels, relations, chosen.method, described)
    calibration.save(folder)
    values = measured(found, calibration)
    try:
        about = fitted_probability(chosen, graph, folder)
    except FnftgError as error:
        log(f"P(triple) was not fitted. {error}")
        about = None
    curves = {"tails": len(calibration.tails), "heads": len(calibration.heads), "of": len(relations)}
    if chosen.json:
        print_json({**calibration.about, "curves": curves, **values, "probability": about})
        return
    print_calibration(
        f"{run.path}: calibrated on {len(found.labels):,} queries of {chosen.split}, protocol {rules.name}",
        values,
        ("The queries are those of the third of val that the evidence weights were not fitted on.\n" if part else "")
        + f"{values['predictions']:,} answers, the same that the curves were fitted on; fnftg evaluate measures the "
        f"error on others.\n{len(calibration.tails):,} of {len(relations):,} relations have their own curve for tails, "
        f"{len(calibration.heads):,} for heads; the others use the curve of all queries.",
    )
    if about is not None:
        log(
            f"P(triple) is fitted to {about['triples']:,} triples, and to the {about['triples_of_entities']:,} triples "
            f"of {about['entities']:,} entities, that were taken out of the graph; see {folder / PROBABILITY_FILE}."
        )
    log(f"Saved the curves to {folder / FILE}.")


def part_to_calibrate_on(folder: Path) -> Part | None:
    """Return the part of val that the evidence weights of a checkpoint were not fitted on; None for the whole split."""
    from fnftg.models.pretrained import read_metrics

    fit = read_metrics(folder).get("evidence")
    if not isinstance(fit, dict):
        return None
    if "held_out" not in fit:
        log(
            "An older version of fnftg fitted the evidence weights of this model on all of val, so that the "
            "probabilities of answers may be too high: train the model again."
        )
        return None
    return "held-out"


def fitted_probability(chosen: argparse.Namespace, graph: KnowledgeGraph, folder: Path) -> dict[str, Any]:
    """Fit P(triple), save it in the checkpoint and return how it was fitted."""
    from fnftg.predict.predictor import load
    from fnftg.predict.probability_fitting import fit
    from fnftg.predict.triple_probability import FILE

    (folder / FILE).unlink(missing_ok=True)  # of an earlier fit, perhaps of other weights
    probability = fit(lambda view: load(chosen.run, view), graph, chosen.share, chosen.missing, chosen.seed)
    probability.save(folder)
    return dict(probability.about)
