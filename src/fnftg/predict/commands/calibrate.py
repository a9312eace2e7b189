"""`fnftg calibrate`: fit probabilities to scores."""

from __future__ import annotations

import argparse
from pathlib import Path

from fnftg.console import log, print_json
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, examples
from fnftg.kg.datasets import data_home

MOST = 1_000  # per query; lower ranks are almost all misses


def calibrate(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    from fnftg.ranking.calibration import FILE, LEAST, METHODS

    parser.description = f"""{parser.description}\n
Fits curves that map scores to probabilities, on the queries of a split whose answers are known.

Each query is ranked as in evaluation, under the protocol of the run: the target triple is hidden, and other known
answers are filtered out. Each of the k best candidates is a hit or a miss, and a monotone curve is fitted to them. A
relation has one curve for tails and one for heads; with fewer than {LEAST} queries it uses the curve of all queries.
The input of a curve is the margin: the score of a candidate minus the score of the best other candidate. The
probability is that of a candidate being the answer to a query that has an answer.

The curves are saved in the checkpoint as {FILE} and are valid for these weights only. Afterwards,
fnftg evaluate reports the expected calibration error over all k answers and over first answers, compared with a softmax
over the k scores, and fnftg report plots it."""
    parser.epilog = examples(
        "fnftg calibrate animals-run",
        "fnftg calibrate animals-run --method platt --k 20",
        "fnftg calibrate animals-run && fnftg evaluate animals-run",
    )
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="the folder of a run, or of a model (which needs --graph)"
    )
    parser.add_argument("--method", choices=METHODS, default="isotonic", help="the kind of curve (default: isotonic)")
    parser.add_argument("--k", type=int, default=10, help="candidates per query (default: 10)")
    parser.add_argument("--split", default="val", help="the split to fit the curves on (default: val)")
    parser.add_argument("--graph", help=f"use this graph instead of the training graph: {GRAPH_HELP}")
    parser.add_argument(
        "--memory", default="1GB", help="memory for ranking, besides the model and the graph (default: 1GB)"
    )
    add_json(parser)
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.k <= MOST:
        raise FnftgError(f"--k {chosen.k} is out of range: give a number from 1 to {MOST:,}.")
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
    found = predictions(model, graph, texts, chosen.split, rules, chosen.k, memory=memory)
    relations = graph.relations.ids.slice(0, len(graph.relations))
    about = {"split": chosen.split, "protocol": rules.name}
    calibration = fit(found.margins, found.hits, found.labels, relations, chosen.method, about)
    calibration.save(folder)
    values = measured(found, calibration)
    curves = {"tails": len(calibration.tails), "heads": len(calibration.heads), "of": len(relations)}
    if chosen.json:
        print_json({**calibration.about, "curves": curves, **values})
        return
    print_calibration(
        f"{run.path}: calibrated on {len(found.labels):,} queries of {chosen.split}, protocol {rules.name}",
        values,
        f"{values['predictions']:,} answers, the same that the curves were fitted on; fnftg evaluate measures the "
        f"error on others.\n{len(calibration.tails):,} of {len(relations):,} relations have their own curve for tails, "
        f"{len(calibration.heads):,} for heads; the others use the curve of all queries.",
    )
    log(f"Saved the curves to {folder / FILE}.")
