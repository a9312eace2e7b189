"""Sample ego-graphs: up to a number of edges around each centre, after hiding the target.

The sample of a centre depends only on its visible edges, the key and its random stream. It does not depend on whether
the hidden triple is in the graph, on the other centres of the batch, or on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np

from fnftg.arrays import Int32Array, Int64Array, UInt64Array
from fnftg.ego.neighbours import Neighbours, read_only
from fnftg.kernels.threads import in_parallel

NOTHING = -1  # as a hidden entity: hides no edge
CENTRE_COST, DRAW_COST = 2_000, 100  # operations per centre and per edge, for `in_parallel`

# SplitMix64 (Steele, Lea and Flood, 2014): the i-th number of a stream is a hash of its start + i · STEP.
STEP, FACTOR_1, FACTOR_2 = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
SHIFT_1, SHIFT_2, SHIFT_3, SHIFT_TO_53 = (np.uint64(bits) for bits in (30, 27, 31, 11))
ONE = np.uint64(1)
# Multiplying a power of two by this number gives different top six bits for each power.
DE_BRUIJN, TOP_6 = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
POWERS = np.zeros(64, np.int64)
for _power in range(64):
    POWERS[((0x03F79D71B4CB0A89 << _power) & (2**64 - 1)) >> 58] = _power


@dataclass(frozen=True)
class Hidden:
    """The edge to hide in each ego-graph: to `entities[i]`, with `labels[i]` as seen from the centre.

    An entity of -1 hides nothing. If the entity is the centre, the self-loop is hidden in both directions.
    """

    entities: Int32Array  # (n,)
    labels: Int32Array  # (n,)
    what: Literal["target", "pair"] = "target"  # pair: all edges between the centre and the entity

    def __post_init__(self) -> None:
        if self.what not in ("target", "pair"):
            raise ValueError(f"what is {self.what!r}: choose target or pair.")
        if self.entities.shape != self.labels.shape or self.entities.ndim != 1:
            raise ValueError(f"Hidden entities {self.entities.shape} and labels {self.labels.shape} do not match.")


@dataclass(frozen=True)
class EgoGraphs:
    """Ragged ego-graphs: the edges of centre i are at offsets[i] to offsets[i + 1] - 1."""

    offsets: Int64Array  # (n + 1,)
    neighbours: Int32Array  # (edges,)
    labels: Int32Array  # (edges,): as seen from the centre

    def __len__(self) -> int:
        """The number of centres."""
        return len(self.offsets) - 1


def sample(
    neighbours: Neighbours,
    centres: Int32Array,
    limit: int,
    key: tuple[int, int, int],
    hidden: Hidden | None = None,
    streams: Int64Array | None = None,
) -> EgoGraphs:
    """Sample up to `limit` edges of each centre (n,) without replacement, in the order of the neighbours.

    Args:
        neighbours: the visible edges.
        centres: the entities at the centres.
        limit: maximum number of edges of a centre.
        key: (seed, epoch, step) of the random numbers.
        hidden: the edges to hide before sampling.
        streams: the random stream of each centre; by default its position.
    """
    if hidden is None:
        hidden = Hidden(np.full(len(centres), NOTHING, np.int32), np.zeros(len(centres), np.int32))
    if streams is None:
        streams = np.arange(len(centres))
    _check(neighbours, centres, limit, hidden, streams)
    centres = read_only(centres, np.int32)
    own_streams: UInt64Array = read_only(streams, np.int64).view(np.uint64)
    graph = (neighbours.offsets, neighbours.entities, neighbours.labels)
    secret = (read_only(hidden.entities, np.int32), read_only(hidden.labels, np.int32), hidden.what == "pair")
    start_of_all = _start(key)
    relations = neighbours.relations

    visible = np.empty(len(centres), np.int64)
    in_parallel(
        lambda start, stop: count_visible(*graph, relations, centres, *secret, visible, start, stop),
        len(centres),
        CENTRE_COST,
    )
    offsets = _offsets(np.minimum(visible, limit))
    others, labels = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
    cost = CENTRE_COST + DRAW_COST * (int(offsets[-1]) // max(len(centres), 1))

    def fill(start: int, stop: int) -> None:
        fill_edges(
            *graph, relations, centres, *secret, start_of_all, own_streams,
            limit, visible, offsets, others, labels, start, stop,
        )  # fmt: skip

    in_parallel(fill, len(centres), cost)
    return EgoGraphs(offsets, others, labels)


def _offsets(counts: Int64Array) -> Int64Array:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _start(key: tuple[int, int, int]) -> np.uint64:
    """Return the start of the random stream of a key."""
    state = np.uint64(0)
    for number in key:
        state = np.uint64(stream_of(state, np.uint64(int(number) % 2**64)))
    return state


def _check(neighbours: Neighbours, centres: Int32Array, limit: int, hidden: Hidden, streams: Int64Array) -> None:
    """Raise for rows out of range, because the compiled loops do not check them."""
    if limit < 0:
        raise ValueError(f"limit is {limit}: it must not be negative.")
    if centres.ndim != 1 or centres.shape != hidden.entities.shape or centres.shape != streams.shape:
        raise ValueError(
            f"{len(centres)} centres, {len(hidden.entities)} hidden edges and {len(streams)} streams differ."
        )
    for what, rows, least in (("centre", centres, 0), ("hidden entity", hidden.entities, NOTHING)):
        if len(rows) and not (least <= rows.min() and rows.max() < len(neighbours)):
            raise ValueError(f"A {what} is not among the {len(neighbours):,} entities.")
    labels = hidden.labels[hidden.entities != NOTHING]
    if len(labels) and not (labels.min() >= 0 and labels.max() < 2 * neighbours.relations):
        raise ValueError(f"A hidden label is not below {2 * neighbours.relations:,}: it would hide nothing.")


# Random numbers


@numba.njit(nogil=True, cache=True)
def hashed(number: np.uint64) -> np.uint64:
    number = (number ^ (number >> SHIFT_1)) * FACTOR_1
    number = (number ^ (number >> SHIFT_2)) * FACTOR_2
    return number ^ (number >> SHIFT_3)


@numba.njit(nogil=True, cache=True)
def stream_of(state: np.uint64, number: np.uint64) -> np.uint64:
    """Return the start of the random stream of a number."""
    return hashed((state ^ number) + STEP)


@numba.njit(nogil=True, cache=True)
def uniform(state: np.uint64, index: int) -> float:
    """Return the index-th number of a stream, between 0 and 1 (both exclusive)."""
    return (np.float64(hashed(state + np.uint64(index + 1) * STEP) >> SHIFT_TO_53) + 0.5) * 2.0**-53


# Visible edges. An entity's visible edges are its row without two cuts, which are ranges of the row and may be empty.


@numba.njit(nogil=True, cache=True)
def place(offsets: Int64Array, entities: Int32Array, labels: Int32Array, centre: int, entity: int, label: int) -> int:
    """Return the first edge of the centre that is not below (entity, label)."""
    low, high = int(offsets[centre]), int(offsets[centre + 1])
    while low < high:
        middle = (low + high) >> 1
        if entities[middle] < entity or (entities[middle] == entity and labels[middle] < label):
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(nogil=True, cache=True)
def stretch(
    offsets: Int64Array, entities: Int32Array, labels: Int32Array, centre: int, entity: int, label: int, stop: int
) -> tuple[int, int]:
    """Return the start and the number of the centre's edges to an entity with labels from `label` to `stop` - 1."""
    begin = place(offsets, entities, labels, centre, entity, label)
    end, last = begin, offsets[centre + 1]
    while end < last and entities[end] == entity and labels[end] < stop:
        end += 1
    return begin, end - begin


@numba.njit(nogil=True, cache=True)
def cuts(
    offsets: Int64Array,
    entities: Int32Array,
    labels: Int32Array,
    relations: int,
    centre: int,
    entity: int,
    label: int,
    pair: bool,
) -> tuple[int, int, int, int]:
    """Return the centre's hidden edges: start and length of the first cut, then of the second."""
    end = offsets[centre + 1]
    if entity < 0:
        return end, 0, end, 0
    if pair:
        begin, length = stretch(offsets, entities, labels, centre, entity, 0, 2 * relations)
        return begin, length, end, 0
    if entity == centre:
        relation = label if label < relations else label - relations
        inverse = relation + relations
        begin, length = stretch(offsets, entities, labels, centre, entity, relation, relation + 1)
        second, second_length = stretch(offsets, entities, labels, centre, entity, inverse, inverse + 1)
        return begin, length, second, second_length
    begin, length = stretch(offsets, entities, labels, centre, entity, label, label + 1)
    return begin, length, end, 0


# Sampling. Samples are marked in a bit set, which is then read in ascending order.


@numba.njit(nogil=True, cache=True)
def mark_uniform(count: int, limit: int, state: np.uint64, marks: UInt64Array) -> None:
    """Mark `limit` of `count` numbers. Every set of numbers is equally likely (Floyd's algorithm)."""
    for last in range(count - limit, count):
        drawn = int(uniform(state, last) * (last + 1))
        if marks[drawn >> 6] >> np.uint64(drawn & 63) & ONE:
            drawn = last
        marks[drawn >> 6] |= ONE << np.uint64(drawn & 63)


@numba.njit(nogil=True, cache=True)
def position(begin: int, cut: tuple[int, int, int, int], index: int) -> int:
    """Return the index-th visible edge of a row."""
    edge = begin + index
    if edge >= cut[0]:
        edge += cut[1]
    if edge >= cut[2]:
        edge += cut[3]
    return edge


@numba.njit(nogil=True, cache=True)
def draw(
    begin: int,
    cut: tuple[int, int, int, int],
    count: int,
    limit: int,
    state: np.uint64,
    marks: UInt64Array,
    edges: Int64Array,
) -> int:
    """Write up to `limit` of a row's `count` visible edges in ascending order. Returns their number."""
    if count <= limit:
        for index in range(count):
            edges[index] = position(begin, cut, index)
        return count
    if limit == 0:
        return 0
    mark_uniform(count, limit, state, marks)
    drawn = 0
    for word in range((count + 63) >> 6):
        rest = marks[word]
        marks[word] = np.uint64(0)
        while rest:
            lowest = rest & (~rest + ONE)
            edges[drawn] = position(begin, cut, (word << 6) + POWERS[(lowest * DE_BRUIJN) >> TOP_6])
            drawn += 1
            rest ^= lowest
    return drawn


# Loops over the centres start to stop of a batch


@numba.njit(nogil=True, cache=True)
def count_visible(
    offsets: Int64Array,
    entities: Int32Array,
    labels: Int32Array,
    relations: int,
    centres: Int32Array,
    hidden_entities: Int32Array,
    hidden_labels: Int32Array,
    pair: bool,
    visible: Int64Array,
    start: int,
    stop: int,
) -> None:
    """Write the number of visible edges of each centre."""
    for row in range(start, stop):
        centre, entity, label = int(centres[row]), int(hidden_entities[row]), int(hidden_labels[row])
        cut = cuts(offsets, entities, labels, relations, centre, entity, label, pair)
        visible[row] = offsets[centre + 1] - offsets[centre] - cut[1] - cut[3]


@numba.njit(nogil=True, cache=True)
def fill_edges(
    offsets: Int64Array,
    entities: Int32Array,
    labels: Int32Array,
    relations: int,
    centres: Int32Array,
    hidden_entities: Int32Array,
    hidden_labels: Int32Array,
    pair: bool,
    start_of_all: np.uint64,
    streams: UInt64Array,
    limit: int,
    visible: Int64Array,
    ego_offsets: Int64Array,
    ego_neighbours: Int32Array,
    ego_labels: Int32Array,
    start: int,
    stop: int,
) -> None:
    """Write the sampled edges of each centre."""
    most = 0
    for row in range(start, stop):
        most = max(most, visible[row])
    marks = np.zeros((most >> 6) + 1, np.uint64)
    edges = np.empty(min(most, limit), np.int64)
    for row in range(start, stop):
        centre, entity, label = int(centres[row]), int(hidden_entities[row]), int(hidden_labels[row])
        cut = cuts(offsets, entities, labels, relations, centre, entity, label, pair)
        state = stream_of(start_of_all, streams[row])
        drawn = draw(offsets[centre], cut, visible[row], limit, state, marks, edges)
        target = ego_offsets[row]
        for index in range(drawn):
            ego_neighbours[target + index] = entities[edges[index]]
            ego_labels[target + index] = labels[edges[index]]
