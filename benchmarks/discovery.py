"""Discovery of held-out links: fnftg, PyKEEN's ComplEx and RotatE, a rule miner, and the frequency baseline.

    fnftg split random WN18RR_IND -o wn --seed 0
    fnftg train wn -o run && fnftg calibrate run
    python benchmarks/discovery.py wn --run run --minutes 10 --cache peers

All systems see the triples of train and val and list the triples that they find likeliest. The table shows how many of
the first 100, 1,000 and 10,000 are in test. PyKEEN's models are trained for --minutes of CPU time each, and their lists
are restricted to heads and tails that a relation has elsewhere, which helps them; their MRR is that of PyKEEN's own
evaluator. --cache keeps the trained models.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pykeen_links
import rule_miner
import torch

from fnftg.console import log, print_json, print_table
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.predict.completion import Found, Wanted, complete
from fnftg.predict.discovery import frequent, is_held_out, precision_at

SYSTEMS = ("fnftg", *pykeen_links.PEERS, "rules", "frequency")
KEPT = 20_000  # triples of a list


def visible(graph: KnowledgeGraph) -> KnowledgeGraph:
    splits = {name: triples for name, triples in graph.splits.items() if name != "test"}
    return graph.with_splits(splits, {"held_out": "test"})


def listed(system: str, graph: KnowledgeGraph, chosen: Any) -> Found:
    if system == "fnftg":
        from tempfile import TemporaryDirectory

        from fnftg.predict.predictor import load

        with TemporaryDirectory() as folder:
            wanted = Wanted(min_probability=chosen.min_probability)
            return complete(load(chosen.run, graph), wanted, Path(folder)).triples
    return rule_miner.likeliest(graph, KEPT) if system == "rules" else frequent(graph)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="a store with a random split")
    parser.add_argument("--run", type=Path, help="the calibrated run of fnftg; needed for the system fnftg")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="systems (default: all)")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="RELATION", help="also measure without these relations"
    )
    parser.add_argument("--minutes", type=float, default=10, help="CPU time to train each PyKEEN model (default: 10)")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="folder for the trained PyKEEN models")
    parser.add_argument("--min-probability", type=float, default=0.02, help="of a triple of fnftg (default: 0.02)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    whole = open_graph(chosen.graph)
    graph, held_out = visible(whole), whole.triples("test")
    rows_of = {id_: graph.relations.find(id_) for id_ in chosen.without}
    out = [row for row in rows_of.values() if row is not None]
    if len(out) < len(rows_of):
        parser.error(f"the graph has no relation {next(id_ for id_, row in rows_of.items() if row is None)}")
    results = []
    for system in chosen.systems:
        started = time.monotonic()
        row: dict[str, Any] = {"system": system}
        if system in pykeen_links.PEERS:
            model = pykeen_links.trained(graph, system, chosen.minutes, chosen.cache)
            row["mrr"] = pykeen_links.mrr(model, graph, held_out)
            found = pykeen_links.likeliest(graph, model, KEPT)
        else:
            found = listed(system, graph, chosen)
        row["triples"] = len(found)
        row |= precision_at(is_held_out(found, held_out, graph))
        if out:
            rest = found[~np.isin(found["relation"], out)]
            row["without"] = precision_at(is_held_out(rest, held_out, graph))
        confident = found["probability"] >= 0.5
        if system == "fnftg":
            row["expected"] = float(found["probability"][confident].sum())
            row["found"] = int(is_held_out(found, held_out, graph)[confident].sum())
        row["seconds"] = round(time.monotonic() - started, 1)
        log(str(row))
        results.append(row)
    if chosen.json:
        print_json(results)
    else:
        columns = ["system", "100", "1000", "10000", "seconds"]
        rows = [
            [f"{row[name]:.3f}" if isinstance(row[name], float) else row[name] for name in columns] for row in results
        ]
        print_table(f"{len(held_out):,} held-out triples: precision of the first", columns, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
