"""`Neighbours`: the visible edges around every entity, sorted, in memory or memory-mapped from a folder.

neighbours.json       format, version, relations, directions
offsets.npy           (entities + 1,) int64: where the edges of each entity start
entities.npy          (edges,) int32: the other end of each edge
labels.npy            (edges,) int32: its relation as seen from the entity
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from fnftg.arrays import AnyArray, Int32Array, Int64Array
from fnftg.errors import FnftgError
from fnftg.files import new_folder
from fnftg.kernels.threads import in_parallel
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.store import write_array

Directions = Literal["both", "out"]
Labels = TypeVar("Labels", int, Int32Array)

FORMAT, VERSION, FACTS = "fnftg-neighbours", 1, "neighbours.json"
EDGE_COST = 100  # of sorting or moving an edge, in the operations of `in_parallel`
SMALL = 24  # edges up to which insertion sorts fastest


@dataclass(frozen=True)
class Neighbours:
    """Compressed rows of the visible edges around every entity, each row sorted by (other end, label).

    An edge centre -r-> other end has the label r, an edge other end -r-> centre the label relations + r (the inverse).
    """

    offsets: Int64Array  # (entities + 1,)
    entities: Int32Array  # (edges,): the other end
    labels: Int32Array  # (edges,): below 2 · relations
    relations: int
    directions: Directions = "both"  # out: rows hold no inverse edges

    def __post_init__(self) -> None:
        for name, dtype in (("offsets", np.int64), ("entities", np.int32), ("labels", np.int32)):
            object.__setattr__(self, name, read_only(getattr(self, name), dtype))
        if len(self.offsets) == 0 or self.offsets[-1] != len(self.entities) or len(self.entities) != len(self.labels):
            raise ValueError("Offsets, entities and labels of these neighbours do not fit each other.")

    def __len__(self) -> int:
        """The number of entities."""
        return len(self.offsets) - 1

    @classmethod
    def of(cls, triples: Triples, entities: int, relations: int, directions: Directions = "both") -> Neighbours:
        """The edges of triples (n, 3), each distinct triple once, whatever their order."""
        if directions not in ("both", "out"):
            raise FnftgError(f"Directions are {directions!r}: choose both or out.")
        triples, both = read_only(triples, np.int32), directions == "both"
        starts = np.zeros(entities + 1, np.int64)
        wrong = count_ends(triples, entities, relations, both, starts[1:])
        if wrong >= 0:
            triple = tuple(triples[wrong].tolist())
            raise FnftgError(f"The triple {triple} is beyond {entities:,} entities and {relations:,} relations.")
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

    @classmethod
    def cached(cls, graph: KnowledgeGraph, splits: Sequence[str], directions: Directions, cache: Path) -> Neighbours:
        """The edges of some splits of a graph, kept in a folder of `cache` named after a checksum of their content."""
        parts = [graph.triples(split) for split in dict.fromkeys(splits)]
        content = sorted(hashlib.sha256(np.ascontiguousarray(part, np.int32).data).hexdigest() for part in parts)
        facts = [FORMAT, VERSION, len(graph.entities), len(graph.relations), directions, *content]
        folder = Path(cache) / f"neighbours-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"
        if not folder.exists():
            triples = parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, 3), np.int32), *parts])
            built = cls.of(triples, len(graph.entities), len(graph.relations), directions)
            try:
                built.save(folder)
            except FnftgError:
                if not folder.exists():  # else another process was faster
                    raise
        return cls.open(folder)

    def save(self, folder: Path, force: bool = False) -> None:
        facts = {"format": FORMAT, "version": VERSION, "relations": self.relations, "directions": self.directions}
        with new_folder(folder, force) as partial:
            for name in ("offsets", "entities", "labels"):
                write_array(partial / f"{name}.npy", getattr(self, name))
            (partial / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> Neighbours:
        """Maps what `save` wrote."""
        try:
            facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            if (facts["format"], facts["version"]) != (FORMAT, VERSION):
                raise ValueError("another format")
            offsets, entities, labels = (
                np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
                for name in ("offsets", "entities", "labels")
            )
            return cls(offsets, entities, labels, facts["relations"], facts["directions"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FnftgError(f"{folder} holds no whole neighbours: remove it, and it will be made anew.") from error

    def extended(self, triples: Triples, entities: int | None = None, relations: int | None = None) -> Neighbours:
        """With more triples, and as many entities and relations as given: equal to `of` all triples.

        Copies every edge once but sorts only the new ones.
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
        """The same edges' labels as seen from the other end."""
        return (labels + self.relations) % (2 * self.relations)

    def triples(self) -> Triples:
        """The triples (n, 3) that these edges are made of."""
        forward = np.flatnonzero(self.labels < self.relations)
        heads = np.searchsorted(self.offsets, forward, side="right") - 1
        return np.stack([heads, self.labels[forward], self.entities[forward]], axis=1).astype(np.int32)

    @cached_property
    def frequencies(self) -> Int64Array:
        """How many visible triples each relation has: (relations,)."""
        counts = np.zeros(self.relations, np.int64)
        count_relations(self.labels, counts)
        return read_only(counts, np.int64)


def read_only(array: npt.ArrayLike, dtype: type[np.generic]) -> AnyArray:
    """A view that compiled loops take as one and the same type, whether in memory or mapped."""
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view.view(np.ndarray)


@numba.njit(nogil=True, cache=True)
def count_ends(triples: Int32Array, entities: int, relations: int, both: bool, degrees: Int64Array) -> int:
    """Adds the edges of each entity to degrees; returns a triple that is out of range, or -1."""
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
    """Puts each edge, as the other end and `bits` of label, among those of its entity."""
    for row in range(len(triples)):
        head, relation, tail = np.int64(triples[row, 0]), np.int64(triples[row, 1]), np.int64(triples[row, 2])
        keys[cursors[head]] = tail << bits | relation
        cursors[head] += 1
        if both:
            keys[cursors[tail]] = head << bits | (relations + relation)
            cursors[tail] += 1


@numba.njit(nogil=True, cache=True)
def sort_rows(starts: Int64Array, keys: Int64Array, kept: Int64Array, start: int, stop: int) -> None:
    """Sorts the keys of entities start to stop in place, drops repetitions, and writes how many are kept."""
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
    """Writes old and new edges of entities start to stop in order, or, without `fill`, their number to offsets."""
    for centre in range(start, stop):
        one, one_end, two, two_end = old[centre], old[centre + 1], new[centre], new[centre + 1]
        edge = offsets[centre] if fill else 0
        while one < one_end or two < two_end:
            entity, label = np.int32(0), np.int32(0)
            if one < one_end:
                entity, label = old_entities[one], old_labels[one]
                if label >= old_relations:  # an inverse moves behind the new relations
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
    """Every triple is once an edge that is no inverse."""
    for label in labels:
        if label < len(counts):
            counts[label] += 1
