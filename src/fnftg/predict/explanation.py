"""Explanations of an answer: attention, and the effect of each edge, word and evidence source.

Every effect is exact. The score and the filtered rank are computed again without one edge of an ego-graph or one word
of a text, all variants in one batch. The other sampled edges and the evidence stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch

from fnftg.arrays import Float32Array, Float64Array, Int32Array, Int64Array
from fnftg.ego.sampling import NOTHING, EgoGraphs, Hidden
from fnftg.errors import FnftgError
from fnftg.evidence.base import EvidenceSource, Finding
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.predict.patched_table import PatchedTable
from fnftg.predict.probability_reasons import QueryReason
from fnftg.predict.state import PredictorState
from fnftg.ranking.calibration import margins
from fnftg.ranking.evidence_scores import EvidenceScores
from fnftg.ranking.metrics import mean_ranks
from fnftg.ranking.queries import no_self_answers
from fnftg.ranking.rank_counts import Counts
from fnftg.text.text_transformer import GraphTexts

EDGES = 1 << 17  # edges of the ego-graphs embedded at a time
NAMED_ITEMS = 4  # names listed in a sentence
MEMORY = 1 << 28  # bytes of candidates held in memory while counting ranks


@dataclass(frozen=True)
class NamedThing:
    id: str
    name: str
    text: str


@dataclass(frozen=True)
class Step:
    """A relation and its direction, seen from the centre."""

    relation: str
    direction: Literal["out", "in"]  # "in": the neighbour is the head of the triple


@dataclass(frozen=True)
class EdgeReason:
    """An edge of an ego-graph: the centre's attention to it, and its effect on score and rank."""

    neighbour: NamedThing
    edge: Step
    attention: list[float] | None  # per attention head; None for systems without attention
    effect: float  # score with the edge minus score without it
    score_without: float
    rank_without: float

    @property
    def mean_attention(self) -> float | None:
        return None if self.attention is None else sum(self.attention) / len(self.attention)


@dataclass(frozen=True)
class WordReason:
    word: str
    effect: float  # score with the word minus score without it
    score_without: float
    rank_without: float


@dataclass(frozen=True)
class Side:
    """The ego-graph and the text of the query entity or of the answer."""

    entity: NamedThing
    own_attention: list[float] | None  # attention of the centre to itself, per head
    edges: list[EdgeReason]  # by absolute effect, largest first
    words: list[WordReason]  # in the order of the text


@dataclass(frozen=True)
class EvidenceItem:
    """A single piece of evidence: an entity, an edge between query and answer, or both."""

    entity: NamedThing | None
    relation: Step | None
    value: float | None


@dataclass(frozen=True)
class EvidenceReason:
    """The effect of one evidence source on the score, with its explanation."""

    source: str
    title: str
    effect: float
    score_without: float  # without this source
    rank_without: float
    sentence: str
    value_name: str | None  # what the values of the items measure
    items: list[EvidenceItem]


@dataclass(frozen=True)
class Near:
    """A training triple with the same relation and similar head and tail."""

    head: NamedThing
    tail: NamedThing
    distance: float  # L1 distance of the heads' vectors plus L1 distance of the tails' vectors


@dataclass(frozen=True)
class Explanation:
    """The explanation of a triple: score, rank, effects of edges, words and evidence, nearest training triples."""

    head: NamedThing
    relation: NamedThing
    tail: NamedThing
    asked: Literal["tail", "head"]  # which end of the triple was predicted
    in_graph: bool
    hidden: bool  # the triple was removed from both ego-graphs, as in evaluation
    score: float
    rank: float  # filtered rank among all entities, as in evaluation
    candidates: int  # number of entities in the filtered ranking
    probability: float | None  # that the triple is true; None if the graph has it, or if it was not fitted
    conditional: float | None  # that this is the answer, given that the query has one
    queries: list[QueryReason]  # whether the two queries of the triple have missing answers
    query: Side
    candidate: Side
    evidence: list[EvidenceReason]  # sources that have evidence for the answer
    nearest: list[Near]

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as nested dicts and lists, ready for JSON."""
        return asdict(self)


@torch.inference_mode()
def explain(
    predictor: PredictorState,
    table: PatchedTable,
    head: int,
    relation: int,
    tail: int,
    asked: Literal["tail", "head"] = "tail",
    hide: bool = True,
    nearest: int = 5,
    probability: float | None = None,
    queries: Sequence[QueryReason] = (),
) -> Explanation:
    """Explain a triple, given by rows, as an answer to (head, relation, ?) or (?, relation, tail).

    `table` holds the candidate embeddings of the predictor's graph, `probability` and `queries` are P(triple) and its
    reasons.
    """
    model, graph, context = predictor.model.eval(), predictor.graph, predictor.context
    count = len(graph.relations)
    centre, answer = (head, tail) if asked == "tail" else (tail, head)
    labels = np.array([relation, relation + count], np.int32)
    labels = labels if asked == "tail" else labels[::-1].copy()
    centres = np.array([centre, answer], np.int32)
    hidden = Hidden(centres[::-1].copy() if hide else np.full(2, NOTHING, np.int32), labels)
    egos = context.ego_graphs(model.ego, centres, hidden)
    of_query, of_candidate = alone(egos, 0), alone(egos, 1)
    paid = attention(predictor, centres, egos, labels)
    vectors, query_embeddings = embedded(predictor, context.texts, centres, egos, labels)

    # One row per variant. The first is complete; each other lacks one edge or word of the query or of the candidate.
    view, words = without_words(predictor, centres)
    sizes = [1, len(of_query.neighbours), len(of_candidate.neighbours), len(words[0]), len(words[1])]
    starts = np.cumsum([0, *sizes])
    parts = [slice(start, stop) for start, stop in pairwise(starts)]
    of_queries = np.repeat(query_embeddings[:1], starts[-1], axis=0)
    of_vectors = np.repeat(vectors[1:], starts[-1], axis=0)
    rows = len(graph.entities) + np.arange(sizes[3] + sizes[4], dtype=np.int32)
    repeated = [np.full(size, centre, np.int32) for size, centre in zip(sizes[1:3], centres, strict=True)]
    asked_label = labels[:1]
    of_queries[parts[1]] = embedded(predictor, context.texts, repeated[0], without_each(of_query), asked_label)[1]
    of_vectors[parts[2]] = embedded(predictor, context.texts, repeated[1], without_each(of_candidate), None)[0]
    of_queries[parts[3]] = embedded(predictor, view, rows[: sizes[3]], tiled(of_query, sizes[3]), asked_label)[1]
    of_vectors[parts[4]] = embedded(predictor, view, rows[sizes[3] :], tiled(of_candidate, sizes[4]), None)[0]

    known = predictor.known(centres[:1], labels[:1])[1]
    in_graph = bool((known == answer).any())
    taken = np.union1d(known, [answer]).astype(np.int64)  # the answer itself is scored separately
    if not model.allow_self_answers and no_self_answers(graph)[labels[0]]:
        taken = np.union1d(taken, [centre])
    evidence = evidence_of(model)
    scores, reasons = EvidenceScores.nothing(1), []
    if evidence is not None:
        assert isinstance(model, EvidenceModel)
        found = evidence.table(context, centres[:1], labels[:1], targets=centres[1:] if hide else None)
        scores = EvidenceScores.of(model, context.texts, labels[:1], found)
    counts = table.counts(model, of_queries, of_vectors, answer, taken, scores, MEMORY)
    if evidence is not None:
        assert isinstance(model, EvidenceModel)
        for source, finding in evidence.findings(context, centre, int(labels[0]), answer, hide):
            less = EvidenceScores.of(model, context.texts, labels[:1], found.without(source.name))
            plain = table.counts(model, query_embeddings[:1], vectors[1:], answer, taken, less, MEMORY)
            without = float(plain.scores[0]), float(mean_ranks(plain.better, plain.equal)[0])
            reasons.append(evidence_reason(graph, source, finding, centre, answer, float(counts.scores[0]), *without))
    if not np.isfinite(counts.scores[0]):
        raise FnftgError("The score of this triple is not a number and cannot be explained: train the model again.")
    sides = [
        Side(
            named(graph, int(centres[place])),
            None if paid is None else paid[place][:, 0].tolist(),
            edge_reasons(graph, ego, None if paid is None else paid[place][:, 1:], counts, parts[1 + place]),
            word_reasons(words[place], counts, parts[3 + place]),
        )
        for place, ego in enumerate((of_query, of_candidate))
    ]
    calibration, ends = predictor.calibration, vectors if asked == "tail" else vectors[::-1]
    conditional = None
    if calibration is not None:
        rival = table.best(model, query_embeddings[:1], np.union1d(taken, [centre]), scores)  # (1, 1)
        conditional = float(calibration.probabilities(margins(counts.scores[:1, None], rival), labels[:1])[0, 0])
    return Explanation(
        named(graph, head),
        named_relation(graph, relation),
        named(graph, tail),
        asked,
        in_graph,
        hide and in_graph,
        float(counts.scores[0]),
        float(mean_ranks(counts.better, counts.equal)[0]),
        len(graph.entities) - len(taken) + 1,
        probability,
        conditional,
        list(queries),
        sides[0],
        sides[1],
        reasons,
        nearest_triples(graph, table, (head, relation, tail), ends, nearest),
    )


# Embedding


def embedded(
    predictor: PredictorState, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array | None
) -> tuple[Float32Array, Float32Array]:
    """Embed centres as candidates (n, d) and, given labels, as queries (n, d). One label applies to all centres."""
    model = predictor.model
    vectors = np.empty((len(centres), model.width), np.float32)
    query_embeddings = np.empty_like(vectors)
    most = max(int(np.diff(egos.offsets).max(initial=0)), 1)
    step = max(EDGES // most, 1)
    for start in range(0, len(centres), step):
        part = slice(start, min(start + step, len(centres)))
        own = None if labels is None else np.broadcast_to(labels, len(centres))[part].copy()
        found, asked = model(texts, centres[part], alone(egos, part), own, True)
        vectors[part] = found.float().cpu().numpy()
        if asked is not None:
            query_embeddings[part] = asked.float().cpu().numpy()
    return vectors, query_embeddings


def alone(egos: EgoGraphs, which: int | slice) -> EgoGraphs:
    """Select some of the ego-graphs."""
    part = slice(which, which + 1) if isinstance(which, int) else which
    offsets = egos.offsets[part.start : part.stop + 1]
    edges = slice(int(offsets[0]), int(offsets[-1]))
    return EgoGraphs(offsets - offsets[0], egos.neighbours[edges], egos.labels[edges])


def without_each(ego: EgoGraphs) -> EgoGraphs:
    """Return the n variants of an ego-graph of n edges that lack one edge each."""
    count = len(ego.neighbours)
    kept = np.tile(np.arange(count), (count, 1))[~np.eye(count, dtype=bool)]  # (n · (n - 1),)
    return taken_edges(ego, kept, count, count - 1)


def tiled(ego: EgoGraphs, times: int) -> EgoGraphs:
    """Repeat one ego-graph."""
    count = len(ego.neighbours)
    return taken_edges(ego, np.tile(np.arange(count), times), times, count)


def taken_edges(ego: EgoGraphs, edges: Int64Array, graphs: int, size: int) -> EgoGraphs:
    """Return ego-graphs of equal size, made of edges of one ego-graph."""
    return EgoGraphs(np.arange(graphs + 1) * size, ego.neighbours[edges], ego.labels[edges])


def without_words(predictor: PredictorState, entities: Int32Array) -> tuple[GraphTexts, list[list[str]]]:
    """Return the graph's texts extended by variants that lack one word each, and the words of the two entities.

    The variants of the first entity's text come first, then those of the second. A text of one word has no variants.
    """
    graph, texts = predictor.graph, predictor.context.texts
    limit = predictor.model.config.text.words
    words = [graph.entities.texts[int(row)].split()[:limit] for row in entities]
    words = [found if len(found) > 1 else [] for found in words]
    variants = {
        f"urn:fnftg:without-word:{side}:{place}": " ".join(found[:place] + found[place + 1 :])
        for side, found in enumerate(words)
        for place in range(len(found))
    }
    if not variants:
        return texts, words
    return texts.extended(graph.extended(entities=variants), predictor.model.tt.encoder), words


# Attention


def attention(
    predictor: PredictorState, centres: Int32Array, egos: EgoGraphs, labels: Int32Array
) -> list[Float64Array] | None:
    """Return the Graph Transformer's attention for the first centre as a query and the second as a candidate.

    Each array is (heads, 1 + neighbours), with the centre itself first. The heads of an ensemble's members are
    concatenated. Returns None for systems without attention over edges.
    """
    found = predictor.model.attention(predictor.context.texts, centres, egos, labels)
    if found is None:
        return None
    heads = [
        [weights[offsets[row] : offsets[row + 1]].T.double().cpu().numpy() for offsets, weights in found]
        for row in (2, 1)  # `found` has both centres as candidates, then both as queries
    ]
    return [np.concatenate(parts) for parts in heads]


# Conversion to names


def named(graph: KnowledgeGraph, row: int) -> NamedThing:
    return NamedThing(graph.entities.ids[row], graph.entities.name(row), graph.entities.texts[row])


def named_relation(graph: KnowledgeGraph, row: int) -> NamedThing:
    return NamedThing(graph.relations.ids[row], graph.relations.name(row), graph.relations.texts[row])


def edge_reasons(
    graph: KnowledgeGraph, ego: EgoGraphs, paid: Float64Array | None, counts: Counts, part: slice
) -> list[EdgeReason]:
    ranks = mean_ranks(counts.better, counts.equal)[part]
    found = [
        EdgeReason(
            named(graph, int(ego.neighbours[place])),
            step(graph, int(ego.labels[place])),
            None if paid is None else paid[:, place].tolist(),
            float(counts.scores[0] - score),
            float(score),
            float(rank),
        )
        for place, (score, rank) in enumerate(zip(counts.scores[part], ranks, strict=True))
    ]
    return sorted(found, key=lambda edge: -abs(edge.effect))


def word_reasons(words: list[str], counts: Counts, part: slice) -> list[WordReason]:
    ranks = mean_ranks(counts.better, counts.equal)[part]
    return [
        WordReason(word, float(counts.scores[0] - score), float(score), float(rank))
        for word, score, rank in zip(words, counts.scores[part], ranks, strict=True)
    ]


def evidence_reason(
    graph: KnowledgeGraph,
    source: EvidenceSource,
    finding: Finding,
    centre: int,
    answer: int,
    score: float,
    score_without: float,
    rank_without: float,
) -> EvidenceReason:
    """Convert the finding of a source, with names instead of rows."""
    items = [
        EvidenceItem(
            None if item.entity is None else named(graph, item.entity),
            None if item.label is None else step(graph, item.label),
            item.value,
        )
        for item in finding.items
    ]
    names = ", ".join(item.entity.name for item in items[:NAMED_ITEMS] if item.entity is not None)
    sentence = finding.sentence.format(
        query=graph.entities.name(centre), answer=graph.entities.name(answer), items=names
    )
    effect = score - score_without
    return EvidenceReason(
        source.name, source.title, effect, score_without, rank_without, sentence, finding.value_name, items
    )


def step(graph: KnowledgeGraph, label: int) -> Step:
    count = len(graph.relations)
    return Step(graph.relations.ids[label % count], "out" if label < count else "in")


def nearest_triples(
    graph: KnowledgeGraph, table: PatchedTable, triple: tuple[int, int, int], ends: Float32Array, count: int
) -> list[Near]:
    """Return the training triples of this relation whose head and tail vectors are nearest, by summed distance."""
    train = graph.triples("train")
    others = np.unique(train[train[:, 1] == triple[1]], axis=0)
    others = others[(others != np.array(triple)).any(axis=1)]
    distances = sum(table.distances(ends[end : end + 1], others[:, 2 * end]) for end in (0, 1))
    order = np.argsort(distances, kind="stable")[:count]
    return [
        Near(named(graph, int(head)), named(graph, int(tail)), float(distance))
        for (head, _, tail), distance in zip(others[order], np.asarray(distances)[order], strict=True)
    ]
