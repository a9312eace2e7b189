"""Texts per second of the static encoder and of MiniLM, in turns, with one thread.

    python benchmarks/encoders.py [GRAPH] [--json]

The seconds are CPU time, so that other work on the machine matters little. The exit code is 1 if the ratio is too low.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import measuring
from measuring import Figure, run

LIBRARIES = ("fnftg", "numpy", "torch", "transformers")
TEXTS, ROUNDS, SEED = 2_048, 3, 0  # texts for MiniLM


def encode(graph_name: str) -> dict[str, float]:
    import numpy as np
    import torch

    from fnftg.kg.datasets import data_home
    from fnftg.kg.graph_source import open_graph
    from fnftg.text.encoders import load_encoder
    from fnftg.text.features import encode_rows
    from fnftg.text.rows import GraphLines
    from fnftg.text.tokens import TokenStore

    torch.set_num_threads(1)
    graph, cache = open_graph(graph_name), data_home() / "texts"
    speeds: dict[str, list[float]] = {"minilm": [], "static": [], "tokens": []}

    def timed(what: str, count: int, do: Any, *arguments: Any) -> Any:
        start = time.process_time()
        found = do(*arguments)
        speeds[what].append(count / (time.process_time() - start))
        return found

    encoders = {name: load_encoder(name, GraphLines(graph), cache=cache) for name in ("minilm", "static")}
    count = len(graph.entities) + 2 * len(graph.relations)
    for number in range(ROUNDS):
        for name, encoder in encoders.items():
            tokens = timed("tokens", count, TokenStore.of, graph, encoder, 24)
            rows = np.arange(count)
            if name == "minilm":
                rows = np.random.default_rng([SEED, number]).permutation(count)[:TEXTS]
            timed(name, len(rows), encode_rows, encoder.model, tokens, rows, None, encoder.pooling)
    return {what: statistics.median(found) for what, found in speeds.items()}


def measure(options: argparse.Namespace) -> list[Figure]:
    found = run(encode, options.graph)
    static = 1 / (1 / found["static"] + 1 / found["tokens"])
    minilm = 1 / (1 / found["minilm"] + 1 / found["tokens"])
    return [
        Figure("tokenising", found["tokens"], "texts/s"),
        Figure("MiniLM, float32", found["minilm"], "texts/s"),
        Figure("static", found["static"], "texts/s"),
        Figure("static against MiniLM", found["static"] / found["minilm"], "×", limit=30, at_least=True),
        Figure("with tokenising", static / minilm, "×", limit=30, at_least=True),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", nargs="?", default="WN18RR_IND", help="a store or the name of a dataset")
    sys.exit(measuring.main(parser, (encode,), measure, LIBRARIES))
