"""`Neighbours`: the sorted visible edges of every entity, in memory or memory-mapped from a folder.

neighbours.json       format, version, relations, directions
offsets.npy           (entities + 1,) int64: the first edge of each entity
entities.npy          (edges,) int32: the other end of each edge
labels.npy            (edges,) int32: the relation as seen from the entity
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from fnftg.array_files import load_array, load_offsets, write_array
from fnftg.arrays import AnyArray, Int32Array, Int64Array
from fnftg.errors import DamagedError, FnftgError
from fnftg.json_files import read_json, write_json
from fnftg.kernels.threads import in_parallel
from fnftg.kg.graph import Triples

Directions = Literal["both", "out"]
Labels = TypeVar("Labels", int, Int32Array)

FORMAT, VERSION, FACTS = "fnftg-neighbours", 1, "neighbours.json"
EDGE_COST = 100  # operations to sort or move an edge, for `in_parallel`
SMALL = 24  # edges; insertion sort is fastest up to this number


@dataclass(frozen=True)
class Neighbours:
    """The visible edges of every entity as compressed rows, each sorted by (other end, label).

    An outgoing edge centre -r-> other end has the label r. An incoming edge other end -r-> centre has the label
    relations + r (the inverse).
    """

    offsets: Int64Array  # (entities + 1,)
    entities: Int32Array  # (edges,): the other end
    labels: Int32Array  # (edges,): below 2 · relations
    relations: int
    directions: Directions = "both"  # out: no inverse edges

    def __post_init__(self) -> None:
        for name, dtype in (("offsets", np.int64), ("entities", np.int32), ("labels", np.int32)):
            object.__setattr__(self, name, read_only(getattr(self, name), dtype))
        if len(self.offsets) == 0 or self.offsets[-1] != len(self.entities) or len(self.entities) != len(self.labels):
            raise ValueError("The lengths of offsets, entities and labels do not match.")

    def __len__(self) -> int:
        """The number of entities."""
        return len(self.offsets) - 1

    @classmethod
    def of(cls, triples: Triples, entities: int, relations: int, directions: Directions = "both") -> Neighbours:
        """Build the edges of the distinct triples (n, 3), which may be in any order."""
        if directions not in ("both", "out"):
            raise FnftgError(f"directions is {directions!r}: choose both or out.")
        triples, both = read_only(triples, np.int32), directions == "both"
        starts = np.zeros(entities + 1, np.int64)
        wrong = count_ends(triples, entities, relations, both, starts[1:])
        if wrong >= 0:
            triple = tuple(triples[wrong].tolist())
            raise FnftgError(
                f"The triple {triple} is out of range: the graph has {entities:,} entities and {relations:,} relations."
            )
        np.cumsum(starts, out=starts)
        keys = np.empty(starts[-1], np.int64)
        bits = (2 * relations).bit_length()
        place_keys(triples, relations, bits, both, starts[:-1].copy(), keys)
        offsets = np.zeros(entities + 1, np.int64)
        cost = EDGE_COST * (1 + len(keys) // max(entities, 1))
        in_parallel(lambda start, stop: sort_rows(starts, keys, offsets[1:], start, stop), entities, cost)
        np.cumsum(offsets, out=offsets)
        ends, labels = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
        in_parallel(
            lambda start, stop: split_keys(starts, keys, bits, offsets, ends, labels, start, stop),
            entities,
            cost,
        )
        return cls(offsets, ends, labels, relations, directions)

    def write(self, folder: Path) -> None:
        """Write the files to a folder."""
        folder.mkdir(exist_ok=True)
        for name in ("offsets", "entities", "labels"):
            write_array(folder / f"{name}.npy", getattr(self, name))
        facts = {"format": FORMAT, "version": VERSION, "relations": self.relations, "directions": self.directions}
        write_json(folder / FACTS, facts)

    @classmethod
    def open(cls, folder: Path, entities: int, relations: int) -> Neighbours:
        """Map the files that `write` wrote for a graph with this number of entities and relations."""
        facts = read_json(folder / FACTS)
        expected = {"format": FORMAT, "version": VERSION, "relations": relations}
        if {name: facts.get(name) for name in expected} != expected or facts.get("directions") not in ("both", "out"):
            raise DamagedError(f"{folder / FACTS} is damaged: it does not describe the neighbours of this graph.")
        ends = load_array(folder / "entities.npy", np.int32, bounds=(0, entities))
        labels = load_array(folder / "labels.npy", np.int32, (len(ends),), bounds=(0, 2 * relations))
        offsets = load_offsets(folder / "offsets.npy", entities, len(ends))
        return cls(offsets, ends, labels, relations, facts["directions"])

    def extended(self, triples: Triples, entities: int | None = None, relations: int | None = None) -> Neighbours:
        """Return the neighbours with more triples and the given numbers of entities and relations.

        The result is equal to `of` with all triples. Every edge is copied once, but only the new edges are sorted.
        """
        entities = len(self) if entities is None else entities
        relations = self.relations if relations is None else relations
        if entities < len(self) or relations < self.relations:
            raise ValueError(f"Neighbours of {len(self):,} entities, {self.relations:,} relations cannot shrink.")
        added = Neighbours.of(triples, entities, relations, self.directions)
        old = np.append(self.offsets, np.full(entities - len(self), self.offsets[-1], np.int64))
        offsets = np.zeros(entities + 1, np.int64)
        ends, labels = np.empty(0, np.int32), np.empty(0, np.int32)
        first, second = (self.entities, self.labels, self.relations), (added.offsets, added.entities, added.labels)

        def count(start: int, stop: int) -> None:
            merge_rows(old, *first, *second, relations, offsets[1:], ends, labels, False, start, stop)

        def fill(start: int, stop: int) -> None:
            merge_rows(old, *first, *second, relations, offsets, ends, labels, True, start, stop)

        cost = EDGE_COST * (1 + len(self.entities) // max(entities, 1))
        in_parallel(count, entities, cost)
        np.cumsum(offsets, out=offsets)
        ends, labels = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
        in_parallel(fill, entities, cost)
        return Neighbours(offsets, ends, labels, relations, self.directions)

    def inverse(self, labels: Labels) -> Labels:
        """Return the labels of the same edges as seen from the other end."""
        return (labels + self.relations) % (2 * self.relations)

    def triples(self) -> Triples:
        """Return the triples (n, 3) of the edges."""
        forward = np.flatnonzero(self.labels < self.relations)
        heads = np.searchsorted(self.offsets, forward, side="right") - 1
        return np.stack([heads, self.labels[forward], self.entities[forward]], axis=1).astype(np.int32)

    @cached_property
    def frequencies(self) -> Int64Array:
        """Number of visible triples of each relation, (relations,)."""
        counts = np.zeros(self.relations, np.int64)
        count_relations(self.labels, counts)
        return read_only(counts, np.int64)


def read_only(array: npt.ArrayLike, dtype: type[np.generic]) -> AnyArray:
    """Return a read-only view with the same type for arrays in memory and memory maps, for compiled loops."""
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view.view(np.ndarray)


@numba.njit(nogil=True, cache=True)
def count_ends(triples: Int32Array, entities: int, relations: int, both: bool, degrees: Int64Array) -> int:
    """Add the number of edges of each entity to `degrees`. Returns the row of a triple out of range, or -1."""
    for row in range(len(triples)):
        head, relation, tail = triples[row, 0], triples[row, 1], triples[row, 2]
        if not (0 <= head < entities and 0 <= relation < relations and 0 <= tail < entities):
            return row
        degrees[head] += 1
        if both:
            degrees[tail] += 1
    return -1


@numba.njit(nogil=True, cache=True)
def place_keys(
    triples: Int32Array, relations: int, bits: int, both: bool, cursors: Int64Array, keys: Int64Array
) -> None:
    """Write each edge to the row of its entity, packed as the other end and `bits` of the label."""
    for row in range(len(triples)):
        head, relation, tail = np.int64(triples[row, 0]), np.int64(triples[row, 1]), np.int64(triples[row, 2])
        keys[cursors[head]] = tail << bits | relation
        cursors[head] += 1
        if both:
            keys[cursors[tail]] = head << bits | (relations + relation)
            cursors[tail] += 1


@numba.njit(nogil=True, cache=True)
def sort_rows(starts: Int64Array, keys: Int64Array, kept: Int64Array, start: int, stop: int) -> None:
    """Sort the keys of entities start to stop in place, remove duplicates, and write the numbers kept."""
    for entity in range(start, stop):
        row = keys[starts[entity] : starts[entity + 1]]
        if len(row) > SMALL:
            row.sort()
        else:
            for i in range(1, len(row)):
                key, j = row[i], i
                while j > 0 and row[j - 1] > key:
                    row[j] = row[j - 1]
                    j -= 1
                row[j] = key
        end = 0
        for i in range(len(row)):
            if i == 0 or row[i] != row[end - 1]:
                row[end] = row[i]
                end += 1
        kept[entity] = end


@numba.njit(nogil=True, cache=True)
def split_keys(
    starts: Int64Array,
    keys: Int64Array,
    bits: int,
    offsets: Int64Array,
    entities: Int32Array,
    labels: Int32Array,
    start: int,
    stop: int,
) -> None:
    for entity in range(start, stop):
        shift = starts[entity] - offsets[entity]
        for edge in range(offsets[entity], offsets[entity + 1]):
            key = keys[edge + shift]
            entities[edge], labels[edge] = key >> bits, key & ((1 << bits) - 1)


@numba.njit(nogil=True, cache=True)
def merge_rows(
    old: Int64Array,
    old_entities: Int32Array,
    old_labels: Int32Array,
    old_relations: int,
    new: Int64Array,
    new_entities: Int32Array,
    new_labels: Int32Array,
    relations: int,
    offsets: Int64Array,
    entities: Int32Array,
    labels: Int32Array,
    fill: bool,
    start: int,
    stop: int,
) -> None:
    """Merge the old and new edges of entities start to stop. Without `fill`, only write their number to offsets."""
    for centre in range(start, stop):
        one, one_end, two, two_end = old[centre], old[centre + 1], new[centre], new[centre + 1]
        edge = offsets[centre] if fill else 0
        while one < one_end or two < two_end:
            entity, label = np.int32(0), np.int32(0)
            if one < one_end:
                entity, label = old_entities[one], old_labels[one]
                if label >= old_relations:  # inverses come after the new relations
                    label = np.int32(label + relations - old_relations)
            if two == two_end:
                one += 1
            else:
                other, other_label = new_entities[two], new_labels[two]
                if one < one_end and (entity < other or (entity == other and label <= other_label)):
                    one += 1
                    two += entity == other and label == other_label
                else:
                    entity, label = other, other_label
                    two += 1
            if fill:
                entities[edge], labels[edge] = entity, label
            edge += 1
        if not fill:
            offsets[centre] = edge


@numba.njit(nogil=True, cache=True)
def count_relations(labels: Int32Array, counts: Int64Array) -> None:
    """Count the edges of each relation without inverse edges."""
    for label in labels:
        if label < len(counts):
            counts[label] += 1
