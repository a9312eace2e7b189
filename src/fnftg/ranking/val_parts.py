"""Three disjoint parts of the val split, so that nothing is measured on the triples that it was fitted on.

    weights   the evidence weights are fitted on them
    steps     the number of steps of that fit is chosen on them; then the weights are fitted on both parts
    held-out  the fit is measured on them, and `fnftg calibrate` fits its curves on them

The part of a triple depends on the ids of its two entities alone. All edges between two entities, such as a triple and
its reverse, are in one part.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import xxhash

from fnftg.arrays import Int64Array
from fnftg.kg.graph import KnowledgeGraph, Triples

Part = Literal["weights", "steps", "held-out"]
PARTS: tuple[Part, ...] = ("weights", "steps", "held-out")


def part_triples(graph: KnowledgeGraph, triples: Triples, part: Part) -> Triples:
    """Return those of the triples (n, 3) that are in a part."""
    return np.asarray(triples[part_numbers(graph, triples) == PARTS.index(part)])


def part_numbers(graph: KnowledgeGraph, triples: Triples) -> Int64Array:
    """Return the part of each triple (n,), about a third of them each: the place in `PARTS`."""
    entities, place = np.unique(triples[:, [0, 2]], return_inverse=True)
    ids = (graph.entities.ids[row].encode() for row in entities.tolist())
    hashes = np.array([xxhash.xxh3_64_intdigest(id_) for id_ in ids], np.uint64)
    head, tail = hashes[place.reshape(-1, 2)].T
    return np.asarray((head + tail) % len(PARTS), np.int64)
