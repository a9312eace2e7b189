"""Results of a ranking: metrics with intervals, breakdowns and baselines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fnftg.arrays import BoolArray, Float64Array, Int32Array
from fnftg.ego.known_answers import KnownAnswers
from fnftg.errors import FnftgError
from fnftg.files import new_file
from fnftg.kg.datasets import data_home
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.graph_source import open_graph
from fnftg.kg.statistics import entities_of
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.pretrained import from_pretrained
from fnftg.ranking.baselines import degree_counts, frequency_counts, random_values
from fnftg.ranking.evaluation import MEMORY, Ranking, rank_split
from fnftg.ranking.metrics import Ties, intervals, metric_values, named
from fnftg.ranking.protocols import DEFAULT_PROTOCOL, Protocol
from fnftg.ranking.protocols import protocol as protocol_named
from fnftg.ranking.queries import Filter
from fnftg.ranking.runs import RunFolder
from fnftg.text.text_transformer import GraphTexts

CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
MANY = 1.5  # mean heads per tail (or tails per head) above which a relation is n-1 (or 1-n), as usual in the field


def evaluate(
    model: LinkPredictor | str | os.PathLike[str],
    graph: KnowledgeGraph | str | os.PathLike[str] | None = None,
    protocol: Protocol | str = DEFAULT_PROTOCOL,
    split: str = "test",
    texts: GraphTexts | None = None,
    sample: int | None = None,
    relations: Sequence[int] | None = None,
    ties: Ties = "mean",
    memory: int = MEMORY,
) -> dict[str, Any]:
    """Rank the triples of a split and return metrics with intervals, breakdowns and baselines as a nested dict.

    Args:
        model: a model, or the folder of a run or of a model.
        graph: a graph, the folder of a store or the name of a dataset; by default the training graph of the run.
        protocol: own-split, cumulative, strict, held-out, or a `Protocol`.
        split: the split whose triples are ranked.
        texts: the texts of the graph, if `model.texts(graph)` was called before.
        sample: rank a fixed random sample of this many triples.
        relations: rank only triples of these relations (rows of `graph.relations`).
        ties: mean gives tied candidates their mean rank; expected averages each metric over all orders of the ties.
        memory: bytes for ranking, in addition to the model and the graph.

    Returns:
        The fields of `fnftg evaluate --json`, such as mrr, hits@10, intervals, relations and baselines.

    Raises:
        FnftgError: if the graph is not given and cannot be found, or there are no triples to rank.

    Examples:
        >>> results = fnftg.evaluate("animals-run", protocol="strict")
        >>> results["mrr"], results["intervals"]["mrr"], results["baselines"]["frequency"]["mrr"]
    """
    chosen = protocol_named(protocol) if isinstance(protocol, str) else protocol
    if graph is None:
        if isinstance(model, LinkPredictor):
            raise FnftgError("A model is not tied to a graph: pass the graph, or the folder of a run.")
        graph = RunFolder(Path(model)).graph()
    elif not isinstance(graph, KnowledgeGraph):
        graph = open_graph(graph)
    if not isinstance(model, LinkPredictor):
        model = from_pretrained(model)
    texts = texts or model.texts(graph, data_home() / "texts")
    ranking = rank_split(model, graph, texts, split, chosen, sample, relations, memory)
    return results(ranking, graph, ties)


def results(ranking: Ranking, graph: KnowledgeGraph, ties: Ties = "mean") -> dict[str, Any]:
    """Return the results of a ranking, as `evaluate` does."""
    graph = graph.up_to(ranking.split)
    values = metric_values(ranking.better, ranking.equal, ties)  # (2, m, 4)
    by_triple = values.mean(axis=0)  # (m, 4)
    train = graph.triples("train")
    relation = ranking.triples[:, 1]
    categories = relation_categories(graph.all_triples(), len(graph.relations))
    seen = np.isin(np.arange(len(graph.relations)), train[:, 1])
    head_new, tail_new = (np.isin(ranking.triples[:, end], entities_of(train), invert=True) for end in (0, 2))
    ends = {
        "both": head_new & tail_new,
        "head": head_new & ~tail_new,
        "tail": ~head_new & tail_new,
        "neither": ~(head_new | tail_new),
    }
    return {
        "split": ranking.split,
        "protocol": ranking.protocol.described(),
        "ties": ties,
        "triples": len(ranking.triples),
        "queries": ranking.ranks.size,
        "candidates": len(ranking.candidates),
        "known_answers_filtered": float(ranking.known.mean()),
        **group(by_triple),
        "tails": group(values[0]),
        "heads": group(values[1]),
        "categories": grouped(by_triple, {name: categories[relation] == name for name in CATEGORIES}),
        "new_ends": grouped(by_triple, ends),
        "relations_in_train": grouped(by_triple, {"seen": seen[relation], "unseen": ~seen[relation]}),
        "relations": [
            {
                "relation": graph.relations.ids[int(row)],
                "category": str(categories[row]),
                "seen": bool(seen[row]),
                **group(by_triple[relation == row]),
                "tails": named(values[0][relation == row]),
                "heads": named(values[1][relation == row]),
            }
            for row in by_frequency(relation)
        ],
        "rank_histogram": rank_histogram(ranking.ranks),
        "baselines": baselines(ranking, graph, ties),
        "seconds": round(ranking.seconds, 2),
    }


def rank_histogram(ranks: Float64Array) -> dict[str, int]:
    """Count the answers with rank 1, 2 to 3, 4 to 10, 11 to 30, …, by the upper bound: {"1": …, "3": …}."""
    bounds = [lead * 10**power for power in range(len(str(int(ranks.max()))) + 1) for lead in (1, 3)]
    bounds = bounds[: int(np.searchsorted(bounds, ranks.max())) + 1]
    counts = np.bincount(np.searchsorted(bounds, ranks.ravel()), minlength=len(bounds))
    return {str(bound): int(count) for bound, count in zip(bounds, counts, strict=True)}


def group(values: Float64Array) -> dict[str, Any]:
    """Return the metrics of some triples (m, 4) with their intervals."""
    return {**named(values), "intervals": intervals(values), "triples": len(values)}


def grouped(values: Float64Array, masks: dict[str, BoolArray]) -> dict[str, Any]:
    """Return the metrics of each non-empty group of triples."""
    return {name: group(values[mask]) for name, mask in masks.items() if mask.any()}


def by_frequency(relation: Int32Array) -> list[int]:
    """Return the distinct relations, most frequent first."""
    rows, counts = np.unique(relation, return_counts=True)
    return [int(row) for row in rows[np.argsort(-counts, kind="stable")]]


def relation_categories(triples: Triples, relations: int) -> npt.NDArray[np.str_]:
    """Return 1-1, 1-n, n-1 or n-n for each relation, by its mean number of tails per head and of heads per tail."""
    distinct = np.unique(triples, axis=0)
    counts = np.bincount(distinct[:, 1], minlength=relations)
    heads, tails = (np.bincount(np.unique(distinct[:, [1, end]], axis=0)[:, 0], minlength=relations) for end in (0, 2))
    many_heads, many_tails = (counts > MANY * np.maximum(ends, 1) for ends in (tails, heads))
    return np.asarray(np.array(CATEGORIES)[2 * many_heads + many_tails])


def baselines(ranking: Ranking, graph: KnowledgeGraph, ties: Ties) -> dict[str, Any]:
    """Return the metrics of the baselines without a model."""
    protocol, relations = ranking.protocol, len(graph.relations)
    context = protocol.visible_triples(graph, ranking.split)
    known = KnownAnswers.of(graph.all_triples(), len(graph.entities), relations)
    filter = Filter.of(known, ranking.candidates)
    asked = (ranking.triples, context, filter, ranking.candidates)
    return {
        "random": named(random_values(ranking.others)),
        "degree": named(metric_values(*degree_counts(*asked, protocol.hidden, relations), ties)),
        "frequency": named(metric_values(*frequency_counts(*asked, relations), ties)),
    }


def save_ranks(ranking: Ranking, graph: KnowledgeGraph, path: Path, force: bool = False) -> None:
    """Write the ranks to a Parquet file with one row per query."""
    heads, relations, tails = ranking.triples.T
    columns = {
        "head": [graph.entities.ids[int(row)] for row in heads],
        "relation": [graph.relations.ids[int(row)] for row in relations],
        "tail": [graph.entities.ids[int(row)] for row in tails],
    }
    frames = [
        pl.DataFrame(
            {
                **columns,
                "asked": [asked] * len(heads),
                "rank": ranking.ranks[row],
                "better": ranking.better[row],
                "equal": ranking.equal[row],
                "score": ranking.scores[row],
                "filtered": ranking.known[row],
                "candidates": ranking.others[row] + 1,
            }
        )
        for row, asked in enumerate(("tail", "head"))
    ]
    with new_file(path, force) as partial:
        pl.concat(frames).write_parquet(partial)
