"""The fit of P(triple), from edges that are taken out of the graph at random. No labels are needed.

The graph is that of train and val; test is not used. Two reduced graphs are made: one lacks a share of its edges, the
other lacks all edges of some entities, which then look like new entities described by their texts alone. In each,
all likely queries are asked, and their answers are compared with what was taken out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from fnftg.arrays import BoolArray, Float64Array, Int32Array
from fnftg.console import progress
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.predict.link_search import ROUND, FoundLinks, LinkSearch
from fnftg.predict.logistic import Logistic, sigmoid
from fnftg.predict.query_features import QueryFeatures, likely_queries, query_features
from fnftg.predict.small_network import Network
from fnftg.predict.state import PredictorState
from fnftg.predict.triple_probability import QueryModel, TripleModel, TripleProbability

SHARE, MISSING = 0.05, 0.05  # of the edges: taken out, and assumed to be missing from the graph itself
ANSWERS = 10  # per query
MOST_ENTITIES = 2_000  # whose edges are all taken out
MOST_QUERIES = 60_000  # asked in each reduced graph
OTHERS = 50_000  # random queries without any evidence
ASK = 0.002  # queries that are less likely to have a missing answer are not asked
SCREEN = 0.002  # triples that are less likely at first sight are dropped
EXAMPLES = 500  # triples that are kept in any case
LEAST = 20  # edges that must be taken out
Reduced = Callable[[KnowledgeGraph], PredictorState]


@dataclass(frozen=True)
class TakenOut:
    """A reduced graph: the predictor that sees it, the triples that were taken out, and the queries to ask."""

    predictor: PredictorState
    triples: Triples
    centres: Int32Array  # (q,)
    labels: Int32Array  # (q,)
    features: QueryFeatures  # (q,)
    weights: Float64Array  # (q,): how many queries each one stands for

    @property
    def hits(self) -> BoolArray:
        """Whether an answer of the query was taken out, (q,)."""
        size, relations = len(self.predictor.graph.entities), len(self.predictor.graph.relations)
        heads, relation, tails = self.triples.astype(np.int64).T
        taken = np.concatenate([heads + relation * size, tails + (relation + relations) * size])
        return np.isin(self.centres + self.labels.astype(np.int64) * size, taken)


def fit(
    opened: Reduced, graph: KnowledgeGraph, share: float = SHARE, missing: float = MISSING, seed: int = 0
) -> TripleProbability:
    """Fit P(triple) to triples taken out of a graph.

    Args:
        opened: returns a predictor of the model and another graph.
        graph: the graph; of its splits, train and val are used, and their support splits.
        share: share of the triples to take out.
        missing: assumed share of the true triples that the graph lacks.
        seed: random seed of what is taken out.

    Raises:
        FnftgError: if the graph has too few triples.
    """
    if not 0 < share < 1 or not 0 < missing < 1:
        raise FnftgError(f"The shares {share} and {missing} must lie between 0 and 1.")
    triples = np.unique(graph.up_to("val").all_triples(), axis=0)
    random = np.random.default_rng(seed)
    chosen = random.random(len(triples)) < share
    if chosen.sum() < LEAST:
        raise FnftgError(
            f"The graph has {len(triples):,} triples in train and val: too few to estimate probabilities of triples "
            "from."
        )
    ends = np.unique(triples[:, [0, 2]])
    number = min(max(int(share * len(ends)), 1), MOST_ENTITIES)
    entities = np.sort(random.permutation(ends)[:number]).astype(np.int32)
    of_entities = np.isin(triples[:, 0], entities) | np.isin(triples[:, 2], entities)

    edges_out = taken_out(
        opened, graph, triples, chosen, np.unique(triples[~chosen][:, [0, 2]]).astype(np.int32), random
    )
    entities_out = taken_out(opened, graph, triples, of_entities, entities, random)
    unlabelled = missing / (1 - missing)  # relative to the edges of the graph
    labelled = share / (share + unlabelled)
    shift = float(np.log(unlabelled / (share + unlabelled)))
    isolated = partial(Logistic.fitted, size=2 * len(graph.relations))
    linked = partial(isolated, labelled=labelled, shift=shift)
    query = QueryModel(fit_queries(edges_out, linked), fit_queries(entities_out, isolated))
    network = partial(Network.fitted, labelled=labelled, shift=shift, seed=seed)
    models = [
        fit_triples(edges_out, query, linked, network, False, random),
        fit_triples(entities_out, query, isolated, partial(Network.fitted, seed=seed), True, random),
    ]
    about = {
        "share": share,
        "missing": missing,
        "seed": seed,
        "triples": int(chosen.sum()),
        "entities": len(entities),
        "triples_of_entities": int(of_entities.sum()),
    }
    screen, triple = QueryModel(models[0][0], models[1][0]), TripleModel(models[0][1], models[1][1])
    relations = graph.relations.ids.slice(0, len(graph.relations))
    return TripleProbability(query, triple, screen, relations, about)


def taken_out(
    opened: Reduced,
    graph: KnowledgeGraph,
    triples: Triples,
    chosen: BoolArray,
    entities: Int32Array,
    random: np.random.Generator,
) -> TakenOut:
    """Open the graph without the chosen triples; collect the likely queries of entities (n,), and some others."""
    predictor = opened(graph.with_splits({"train": triples[~chosen]}, {"split": "probability"}))
    context = predictor.context
    centres, labels, features = likely_queries(context, entities)
    size = 2 * len(graph.relations)
    drawn = np.unique(random.integers(0, max(len(entities) * size, 1), OTHERS))
    likely = np.searchsorted(entities, centres).astype(np.int64) * size + labels
    drawn = drawn[~np.isin(drawn, likely)]
    other_centres, other_labels = entities[drawn // size], (drawn % size).astype(np.int32)
    others = query_features(context, other_centres, other_labels)
    rest = max(len(entities) * size - len(likely), 0) / max(len(drawn), 1)
    return TakenOut(
        predictor,
        triples[chosen],
        np.concatenate([centres, other_centres]),
        np.concatenate([labels, other_labels]),
        QueryFeatures.combined([features, others]),
        np.concatenate([np.ones(len(centres)), np.full(len(drawn), rest)]),
    )


def fit_queries(reduced: TakenOut, fitted: Callable[..., Logistic]) -> Logistic:
    """Fit the probability that a query has a missing answer."""
    features = reduced.features
    return fitted(features.matrix(), reduced.hits, features.slots, weights=reduced.weights)


def fit_triples(
    reduced: TakenOut,
    query: QueryModel,
    fitted: Callable[..., Logistic],
    network: Callable[..., Network],
    isolated: bool,
    random: np.random.Generator,
) -> tuple[Logistic, Network]:
    """Ask the likely queries, and fit the screening model and the model of triples to their answers."""
    likely = sigmoid(query.of_queries(reduced.features))
    asked = np.flatnonzero((likely >= ASK) & (reduced.weights == 1) & (reduced.features.isolated == isolated))
    if len(asked) > MOST_QUERIES:
        asked = np.sort(random.permutation(asked)[:MOST_QUERIES])
    search = LinkSearch(reduced.predictor, ANSWERS)
    parts = []
    with torch.inference_mode(), progress("Asking about removed links", len(asked), "queries") as advance:
        for start in range(0, len(asked), ROUND):
            part = asked[start : start + ROUND]
            parts.append(search.candidates(reduced.centres[part], reduced.labels[part], reduced.features.take(part)))
            advance(len(part))
        if not parts:
            raise FnftgError("No query of the graph has evidence for a missing answer: P(triple) cannot be fitted.")
        found = FoundLinks.combined(parts)
        hits = is_among(found, reduced.triples, len(reduced.predictor.graph.entities))
        features, slots, ends = found.screen(query)
        usable = ends == isolated
        found, hits, features, slots = found.take(usable), hits[usable], features[usable], slots[usable]
        screen = fitted(features, hits, slots)
        if not len(hits):
            raise FnftgError("No query of the graph has an answer that it lacks: P(triple) cannot be fitted.")
        first_look = screen(features, slots)
        kept = first_look >= min(SCREEN, np.sort(first_look)[-min(EXAMPLES, len(hits))])
        inputs = search.inputs(found.take(kept))
    return screen, network(inputs.features(query), hits[kept])


def is_among(found: FoundLinks, triples: Triples, entities: int) -> BoolArray:
    """Return which of the found triples (n,) are among `triples`."""
    heads, relations, tails = triples.astype(np.int64).T
    count = int(max(relations.max(initial=0), found.relations.max(initial=0))) + 1
    keys = (found.heads * count + found.relations) * entities + found.tails
    return np.isin(keys, (heads * count + relations) * entities + tails)
