"""Reasons for an answer: what the model looked at, and what would change without it.

Every effect is exact: the score and the filtered rank are computed again without one edge of an ego-graph, or without
one word of a text, all of them in one batch. The other edges stay as they were drawn, and who votes stays the same.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from fnftg.arrays import Float32Array, Float64Array, Int32Array, Int64Array
from fnftg.ego.precedents import OWN
from fnftg.ego.sampling import NOTHING, EgoGraphs, Hidden
from fnftg.ego.transformer import EgoEdges, GraphLayer, modulated, with_centre_first
from fnftg.ego.votes import Votes
from fnftg.errors import FnftgError
from fnftg.kernels.segments import segment_softmax
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.fnf import FnF
from fnftg.predict.patched_table import PatchedTable
from fnftg.ranking.calibration import margins
from fnftg.ranking.evidence_scores import Extras
from fnftg.ranking.metrics import mean_ranks
from fnftg.ranking.queries import no_self_answers
from fnftg.ranking.rank_counts import Counts
from fnftg.text.mentions import NAMED, NAMES
from fnftg.text.transformer import GraphTexts

if TYPE_CHECKING:
    from fnftg.predict.predictor import Predictor

EDGES = 1 << 17  # of the ego-graphs that are embedded at a time
MEMORY = 1 << 28  # bytes of candidates that are held while ranks are counted


@dataclass(frozen=True)
class Named:
    id: str
    name: str
    text: str


@dataclass(frozen=True)
class Step:
    """A relation on the way from the centre to a neighbour."""

    relation: str
    direction: Literal["out", "in"]  # in: the neighbour is the head of the triple


@dataclass(frozen=True)
class EdgeReason:
    """An edge of an ego-graph: what the centre paid of its attention, and what the edge adds to score and rank."""

    neighbour: Named
    steps: list[Step]  # one, or two of a neighbour's neighbour
    attention: list[float] | None  # of each head; of systems that have any
    effect: float  # the score with the edge, less the score without it
    score_without: float
    rank_without: float

    @property
    def mean_attention(self) -> float | None:
        return None if self.attention is None else sum(self.attention) / len(self.attention)


@dataclass(frozen=True)
class WordReason:
    word: str
    effect: float  # the score with the word, less the score without it
    score_without: float
    rank_without: float


@dataclass(frozen=True)
class Side:
    """The entity that is asked about, or the answer: its ego-graph and its text."""

    entity: Named
    own_attention: list[float] | None  # what the centre paid to itself, of each head
    edges: list[EdgeReason]  # the strongest effect first
    words: list[WordReason]  # in the order of the text


@dataclass(frozen=True)
class Voter:
    """A lookalike of the entity that is asked about, which has the answer itself."""

    entity: Named
    similarity: float  # of both texts: a cosine


@dataclass(frozen=True)
class VotesReason:
    """What lookalikes add to the score of the answer that they have too."""

    effect: float
    score_without: float  # without any votes
    rank_without: float
    voters: list[Voter]  # the most similar first


@dataclass(frozen=True)
class ParallelsReason:
    """What edges that join the entity with the answer already add to its score."""

    effect: float
    score_without: float  # without any parallels
    rank_without: float
    edges: list[Step]  # but the one asked for


@dataclass(frozen=True)
class MentionsReason:
    """What it adds to the score that one of the two texts names the other entity."""

    effect: float
    score_without: float  # without any mentions
    rank_without: float
    names: bool  # the text of the entity that is asked about names the answer
    named: bool  # the text of the answer names the entity


@dataclass(frozen=True)
class PrecedentsReason:
    """What it adds to the score, of a relation that was never trained on, that there are other such answers."""

    effect: float
    score_without: float  # without any precedents
    rank_without: float
    alike: list[Voter]  # other answers of the entity that is asked about, of which the answer is a lookalike
    others: int  # entities that have the same answer; 0 where so many others are more usual that it does not count


@dataclass(frozen=True)
class Near:
    """A triple of the training split with the same relation, both of whose ends are near."""

    head: Named
    tail: Named
    distance: float  # L1, of the two heads' vectors plus of the two tails'


@dataclass(frozen=True)
class Explanation:
    """The reasons for a triple: how it scores, what its two sides add to that, and what in training is like it."""

    head: Named
    relation: Named
    tail: Named
    asked: Literal["tail", "head"]  # which of the two was to be found
    in_graph: bool
    hidden: bool  # the triple itself was taken out of both ego-graphs, as in evaluation
    score: float
    rank: float  # among all entities that are no other known answers, as in evaluation
    candidates: int  # how many that are
    probability: float | None
    query: Side
    candidate: Side
    votes: VotesReason | None  # of systems that count any
    parallels: ParallelsReason | None
    mentions: MentionsReason | None
    precedents: PrecedentsReason | None  # of relations that were never trained on
    nearest: list[Near]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@torch.inference_mode()
def explain(
    predictor: Predictor,
    table: PatchedTable,
    head: int,
    relation: int,
    tail: int,
    asked: Literal["tail", "head"] = "tail",
    hide: bool = True,
    nearest: int = 5,
) -> Explanation:
    """The reasons for the triple (rows of the graph) as the answer of (head, relation, ·) or of (·, relation, tail),
    among the candidates of a table that fits the predictor's graph."""
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

    # One row for each variant: of all but the first something is left out, on the query's side or on the candidate's.
    view, words = without_words(predictor, centres)
    sizes = [1, len(of_query.neighbours), len(of_candidate.neighbours), len(words[0]), len(words[1])]
    starts = np.cumsum([0, *sizes])
    parts = [slice(start, stop) for start, stop in pairwise(starts)]
    of_points = np.repeat(query_embeddings[:1], starts[-1], axis=0)
    of_vectors = np.repeat(vectors[1:], starts[-1], axis=0)
    rows = len(graph.entities) + np.arange(sizes[3] + sizes[4], dtype=np.int32)
    repeated = [np.full(size, centre, np.int32) for size, centre in zip(sizes[1:3], centres, strict=True)]
    asked_label = labels[:1]
    of_points[parts[1]] = embedded(predictor, context.texts, repeated[0], without_each(of_query), asked_label)[1]
    of_vectors[parts[2]] = embedded(predictor, context.texts, repeated[1], without_each(of_candidate), None)[0]
    of_points[parts[3]] = embedded(predictor, view, rows[: sizes[3]], tiled(of_query, sizes[3]), asked_label)[1]
    of_vectors[parts[4]] = embedded(predictor, view, rows[sizes[3] :], tiled(of_candidate, sizes[4]), None)[0]

    known = predictor.known(centres[:1], labels[:1])[1]
    in_graph = bool((known == answer).any())
    taken = np.union1d(known, [answer]).astype(np.int64)  # the answer itself is scored apart
    if not model.allow_self_answers and no_self_answers(graph)[labels[0]]:
        taken = np.union1d(taken, [centre])
    votes = context.votes(model.votes, centres[:1], labels[:1], targets=centres[1:] if hide else None)
    extras = Extras.nothing(1) if votes is None else Extras.of(model, context.texts, labels[:1], votes)
    counts = table.counts(model, of_points, of_vectors, answer, taken, extras, MEMORY)
    of_votes, of_parallels, of_mentions, of_precedents = None, None, None, None
    if votes is not None:

        def without(*columns: str) -> tuple[float, float, float]:
            """The effect of some of what was counted, the score without it, the rank."""
            less = Extras.of(model, context.texts, labels[:1], votes.without(*columns))
            plain = table.counts(model, query_embeddings[:1], vectors[1:], answer, taken, less, MEMORY)
            score = float(plain.scores[0])
            return float(counts.scores[0]) - score, score, float(mean_ranks(plain.better, plain.equal)[0])

        if model.votes.lookalikes:
            of_votes = votes_reason(predictor, without("near", "nearer"), centre, answer, labels[:1])
        if model.votes.parallels:
            of_parallels = parallels_reason(predictor, without("kinship"), centre, answer, int(labels[0]))
        if context.naming is not None:
            kind = int(context.naming.mentions.between(np.array([centre]), np.array([answer]))[0])
            of_mentions = MentionsReason(*without("mentioned"), bool(kind & NAMES), bool(kind & NAMED))
        if context.precedents is not None and context.precedents.unmet[labels[0]]:
            of_precedents = precedents_reason(predictor, without("alike", "usual"), votes, centres, labels)
    if not np.isfinite(counts.scores[0]):
        raise FnftgError("The model's score of this triple is not a number: there are no reasons for it.")
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
    probability = None
    if calibration is not None:
        rival = table.best(model, query_embeddings[:1], np.union1d(taken, [centre]), extras)  # (1, 1)
        probability = float(calibration.probabilities(margins(counts.scores[:1, None], rival), labels[:1])[0, 0])
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
        sides[0],
        sides[1],
        of_votes,
        of_parallels,
        of_mentions,
        of_precedents,
        nearest_triples(graph, table, (head, relation, tail), ends, nearest),
    )


# Embedding


def embedded(
    predictor: Predictor, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array | None
) -> tuple[Float32Array, Float32Array]:
    """Vectors of centres as candidates (n, d) and, given labels, their points (n, d); one label may do for all."""
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
    """Some of the ego-graphs."""
    part = slice(which, which + 1) if isinstance(which, int) else which
    offsets = egos.offsets[part.start : part.stop + 1]
    edges = slice(int(offsets[0]), int(offsets[-1]))
    second = None if egos.second_labels is None else egos.second_labels[edges]
    return EgoGraphs(offsets - offsets[0], egos.neighbours[edges], egos.labels[edges], second)


def without_each(ego: EgoGraphs) -> EgoGraphs:
    """From one ego-graph of n edges n ego-graphs, each without one of them."""
    count = len(ego.neighbours)
    kept = np.tile(np.arange(count), (count, 1))[~np.eye(count, dtype=bool)]  # (n · (n - 1),)
    return taken_edges(ego, kept, count, count - 1)


def tiled(ego: EgoGraphs, times: int) -> EgoGraphs:
    """One ego-graph as often as given."""
    count = len(ego.neighbours)
    return taken_edges(ego, np.tile(np.arange(count), times), times, count)


def taken_edges(ego: EgoGraphs, edges: Int64Array, graphs: int, size: int) -> EgoGraphs:
    """Ego-graphs of one size, of edges of one ego-graph."""
    second = None if ego.second_labels is None else ego.second_labels[edges]
    return EgoGraphs(np.arange(graphs + 1) * size, ego.neighbours[edges], ego.labels[edges], second)


def without_words(predictor: Predictor, entities: Int32Array) -> tuple[GraphTexts, list[list[str]]]:
    """The words of two entities' texts that the model reads, and the texts of a view that has for each word of the
    first, then of the second, a new entity whose text lacks it. A text of one word has none to spare."""
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
    predictor: Predictor, centres: Int32Array, egos: EgoGraphs, labels: Int32Array
) -> list[Float64Array] | None:
    """What the Graph Transformer's last layer paid for the query of the first centre, and for the second centre as a
    candidate: (heads, 1 + neighbours) each, the centre itself first. None for systems without attention over edges."""
    model = predictor.model
    if not isinstance(model, FnF) or model.gt is None:
        return None
    last, seen = model.gt.layers[-1], []
    assert isinstance(last, GraphLayer)
    hook = last.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs))
    try:
        model(predictor.context.texts, centres, egos, labels, True)
    finally:
        hook.remove()
    offsets, weights = layer_attention(last, *seen[0])
    shares = [weights[offsets[row] : offsets[row + 1]].T.double().cpu().numpy() for row in (2, 1)]
    return shares  # rows of the pass: both as candidates, then both as queries


def layer_attention(
    layer: GraphLayer, centres: Tensor, nodes: Tensor, labels: Tensor, edges: EgoEdges
) -> tuple[Any, Any]:
    """The weights with which a layer reads its values: offsets (n + 1,), (edges with the centre first, heads)."""
    own, others = layer.before_attention(centres), layer.before_attention(nodes)
    factors, _ = layer.modulation(labels)
    offsets, keys = with_centre_first(edges.offsets, layer.key(own), modulated(layer.key(others), factors, edges))
    asking = torch.repeat_interleave(layer.split(layer.query(own)), offsets.diff(), dim=0)  # (edges, heads, d / heads)
    scores = (asking * layer.split(keys)).sum(-1) / math.sqrt(asking.shape[-1])
    return offsets, segment_softmax(scores, offsets)


# Words for people


def named(graph: KnowledgeGraph, row: int) -> Named:
    return Named(graph.entities.ids[row], graph.entities.name(row), graph.entities.texts[row])


def named_relation(graph: KnowledgeGraph, row: int) -> Named:
    return Named(graph.relations.ids[row], graph.relations.name(row), graph.relations.texts[row])


def edge_reasons(
    graph: KnowledgeGraph, ego: EgoGraphs, paid: Float64Array | None, counts: Counts, part: slice
) -> list[EdgeReason]:
    ranks = mean_ranks(counts.better, counts.equal)[part]
    second = np.full(len(ego.labels), -1) if ego.second_labels is None else ego.second_labels
    found = [
        EdgeReason(
            named(graph, int(ego.neighbours[place])),
            [step(graph, int(label)) for label in (ego.labels[place], second[place]) if label >= 0],
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


def votes_reason(
    predictor: Predictor, alone: tuple[float, float, float], centre: int, answer: int, label: Int32Array
) -> VotesReason:
    """Who voted are the lookalikes with the same answer."""
    number = predictor.model.votes.lookalikes_at_evaluation
    rows, cosines = (found[0] for found in predictor.context.texts.nearest_texts(number)(np.array([centre], np.int32)))
    rows, cosines = rows[rows >= 0], cosines[rows >= 0]
    offsets, answers = predictor.known(rows, np.repeat(label, len(rows)))
    have = np.unique(np.repeat(np.arange(len(rows)), np.diff(offsets))[answers == answer])
    return VotesReason(
        *alone,
        [Voter(named(predictor.graph, int(rows[place])), float(cosines[place])) for place in have],
    )


def parallels_reason(
    predictor: Predictor, alone: tuple[float, float, float], centre: int, answer: int, label: int
) -> ParallelsReason:
    edges, neighbours = predictor.context.neighbours, predictor.context.neighbours.entities
    row = slice(edges.offsets[centre], edges.offsets[centre + 1])
    labels = edges.labels[row][neighbours[row] == answer]
    return ParallelsReason(
        *alone,
        [step(predictor.graph, int(other)) for other in labels if other != label and centre != answer],
    )


def precedents_reason(
    predictor: Predictor, alone: tuple[float, float, float], votes: Votes, centres: Int32Array, labels: Int32Array
) -> PrecedentsReason:
    """Centres are the entity that is asked about and the answer; labels those of the relation from either side. What
    was not counted, as others weigh more, is no reason."""
    counted = votes.entities == centres[1]
    offsets, known = predictor.known(centres, labels)
    of_centre, of_answer = np.split(known, offsets[1:2])
    own = of_centre[of_centre != centres[1]][: OWN if votes.alike[counted].any() else 0]
    rows, cosines = predictor.context.texts.nearest_texts(predictor.model.votes.lookalikes)(own)  # (a, k) each
    found = sorted(zip(*np.nonzero(rows == centres[1]), strict=True), key=lambda place: -cosines[place])
    like = [Voter(named(predictor.graph, int(own[place[0]])), float(cosines[place])) for place in found]
    others = int((of_answer != centres[0]).sum()) if votes.usual[counted].any() else 0
    return PrecedentsReason(*alone, like, others)


def step(graph: KnowledgeGraph, label: int) -> Step:
    count = len(graph.relations)
    return Step(graph.relations.ids[label % count], "out" if label < count else "in")


def nearest_triples(
    graph: KnowledgeGraph, table: PatchedTable, triple: tuple[int, int, int], ends: Float32Array, count: int
) -> list[Near]:
    """Of the training triples with this relation those whose head and tail have the nearest vectors, both together."""
    train = graph.triples("train")
    others = np.unique(train[train[:, 1] == triple[1]], axis=0)
    others = others[(others != np.array(triple)).any(axis=1)]
    distances = sum(table.distances(ends[end : end + 1], others[:, 2 * end]) for end in (0, 1))
    order = np.argsort(distances, kind="stable")[:count]
    return [
        Near(named(graph, int(head)), named(graph, int(tail)), float(distance))
        for (head, _, tail), distance in zip(others[order], np.asarray(distances)[order], strict=True)
    ]
