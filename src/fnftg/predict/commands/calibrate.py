"""`fnftg calibrate`: probabilities that mean something."""

from __future__ import annotations

import argparse
from pathlib import Path

from fnftg.console import log, print_json
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, examples
from fnftg.kg.datasets import data_home

MOST = 1_000  # candidates of a query: more would only add misses


def calibrate(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    from fnftg.ranking.calibration import FILE, LEAST, METHODS

    parser.description = f"""{parser.description}\n
Turns scores into probabilities, from the queries of a split whose answers are known.

Each query is asked as in evaluation, under the protocol that the run was trained with: the triple hidden, other known
answers left out. Its k best candidates are hits or misses, and a monotone curve is fitted to them: one for the tails of
each relation and one for its heads, or that of all queries where there are fewer than {LEAST}. The curve is one of the
margin, the candidate's score less that of the best other one: a first answer is the likelier the farther it is ahead,
another one the less likely the farther it is behind. A probability is that of a candidate being the answer of a query
that has one.

The curves are kept in the checkpoint as {FILE}, and belong to these weights alone; fnftg evaluate then
reports the expected calibration error, over all k answers and over first answers, beside that of the softmax over the k
scores, and fnftg report draws it."""
    parser.epilog = examples(
        "fnftg calibrate animals-run",
        "fnftg calibrate animals-run --method platt --k 20",
        "fnftg calibrate animals-run && fnftg evaluate animals-run",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a run, or of a model (then with --graph)")
    parser.add_argument("--method", choices=METHODS, default="isotonic", help="the kind of curve (default: isotonic)")
    parser.add_argument("--k", type=int, default=10, help="candidates of each query (default: 10)")
    parser.add_argument("--split", default="val", help="the split whose queries are asked (default: val)")
    parser.add_argument("--graph", help=f"instead of the graph that it was trained on: {GRAPH_HELP}")
    parser.add_argument("--memory", default="1GB", help="for ranking, beside the model and the graph (default: 1GB)")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.k <= MOST:
        raise FnftgError(f"--k {chosen.k} candidates cannot be calibrated on: give a number from 1 to {MOST:,}.")
    from fnftg.ranking.calibration import fit
    from fnftg.ranking.evaluate_commands import checkpoint_of, opened, print_calibration
    from fnftg.ranking.protocols import DEFAULT_PROTOCOL, protocol
    from fnftg.ranking.reliability import measured, predictions
    from fnftg.ranking.runs import parse_size

    memory = parse_size(chosen.memory)
    run, model, graph = opened(chosen)
    rules = protocol(run.started_with()["config"]["training"]["protocol"] if run.is_run else DEFAULT_PROTOCOL)
    texts = model.texts(graph, data_home() / "texts")
    found = predictions(model, graph, texts, chosen.split, rules, chosen.k, memory=memory)
    relations = graph.relations.ids.slice(0, len(graph.relations))
    about = {"split": chosen.split, "protocol": rules.name}
    calibration = fit(found.margins, found.hits, found.labels, relations, chosen.method, about)
    folder = checkpoint_of(run)
    calibration.save(folder)
    values = measured(found, calibration)
    curves = {"tails": len(calibration.tails), "heads": len(calibration.heads), "of": len(relations)}
    if chosen.json:
        print_json({**calibration.about, "curves": curves, **values})
        return
    print_calibration(
        f"{run.path}: calibrated on {len(found.labels):,} queries of {chosen.split}, protocol {rules.name}",
        values,
        f"{values['predictions']:,} answers, on which the curves were fitted: fnftg evaluate tells how well they hold "
        f"elsewhere.\nOf {len(relations):,} relations {len(calibration.tails):,} have a curve of their own for tails, "
        f"{len(calibration.heads):,} for heads; the others have that of all.",
    )
    log(f"The curves are in {folder / FILE}.")
