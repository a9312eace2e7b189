"""Embeddings for ranking: every candidate once, and head and tail of every triple once more, with the triple hidden.

The tail query (h, r, ·) and the answer of the head query (·, r, t) both embed h with the same hidden edges, so one pass
over h computes both, and one pass over t the other two.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np

from fnftg.arrays import Float32Array, Int32Array
from fnftg.console import progress
from fnftg.ego.context import GraphContext
from fnftg.ego.ego_config import EgoConfig
from fnftg.ego.sampling import Hidden
from fnftg.kg.graph import Triples
from fnftg.models.link_predictor import LinkPredictor
from fnftg.ranking.processes import Processes
from fnftg.ranking.queries import Queries

MOST_CENTRES = 4_096  # maximum number of entities per block
COPIES = 16  # estimated number of vectors that a model keeps per edge while it embeds


def candidate_table(
    model: LinkPredictor, context: GraphContext, candidates: Int32Array, memory: int, processes: Processes
) -> Float32Array:
    """Embed the candidates (n, d); the table is a temporary file if it needs more than half of `memory`."""
    shape = (len(candidates), model.width)
    on_disk = 4 * shape[0] * shape[1] > memory // 2
    file = tempfile.TemporaryFile(prefix="fnftg-candidates-") if on_disk else None  # noqa: SIM115 (mapped below)
    table: Float32Array = np.empty((0 if on_disk else shape[0], shape[1]), np.float32)
    with progress("Embedding candidates", len(candidates), "entities") as advance:
        for part in parts(model.ego, context, candidates, model.width, memory // 8):
            own = candidates[part][processes.share(part.stop - part.start)]
            egos = context.ego_graphs(model.ego, own, None)
            found, _ = model(context.texts, own, egos, None, True)
            assert found is not None
            vectors = processes.gathered(found.float().cpu().numpy(), part.stop - part.start)
            if file is None:
                table[part] = vectors
            else:
                vectors.tofile(file)
            advance(part.stop - part.start)
    if file is None:
        return table
    file.flush()
    return np.memmap(file, np.float32, "r", shape=shape)


def triple_vectors(
    model: LinkPredictor,
    context: GraphContext,
    triples: Triples,
    hidden: Literal["target", "pair"],
    memory: int,
) -> tuple[Float32Array, Float32Array]:
    """Return the embeddings of the queries of triples (m, 3), and of their true answers, (2m, d) each."""
    queries, half = Queries.of(triples, context.texts.relations), len(triples)
    query_embeddings = np.empty((2 * half, model.width), np.float32)
    ends = np.empty_like(query_embeddings)
    for part in parts(model.ego, context, queries.centres, model.width, memory):
        centres, labels = queries.centres[part], queries.labels[part]
        egos = context.ego_graphs(model.ego, centres, Hidden(queries.answers[part], labels, hidden))
        found, asked = model(context.texts, centres, egos, labels, True)
        assert found is not None and asked is not None
        query_embeddings[part], ends[part] = asked.float().cpu().numpy(), found.float().cpu().numpy()
    return query_embeddings, np.concatenate([ends[half:], ends[:half]])  # the answer of the tail query is the tail


def parts(ego: EgoConfig, context: GraphContext, centres: Int32Array, width: int, memory: int) -> Iterator[slice]:
    """Yield consecutive, non-empty blocks of centres whose ego-graphs fit into `memory` bytes."""
    offsets = context.neighbours.offsets
    edges = np.minimum(offsets[centres + 1] - offsets[centres], ego.num_neighbours_at_evaluation)  # (n,)
    most = max(memory // (4 * width * COPIES), 1)
    costs = np.maximum(1 + edges, -(-most // MOST_CENTRES))
    group = (np.cumsum(costs) - 1) // most
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    for start, stop in pairwise([*starts.tolist(), len(centres)]):
        yield slice(start, stop)
