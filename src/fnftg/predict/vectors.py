"""Candidate embeddings of entities, known or new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnftg.arrays import Float32Array
from fnftg.ego.sampling import EgoGraphs
from fnftg.predict.questions import ResolvedQuery
from fnftg.predict.request_batch import RequestBatch
from fnftg.predict.state import PredictorState


def entity_vectors(predictor: PredictorState, asked: Sequence[ResolvedQuery]) -> Float32Array:
    """Return the embedding of each query's head (n, d), from the table or computed for new entities."""
    vectors = np.empty((len(asked), predictor.model.width), np.float32)
    new = [place for place, one in enumerate(asked) if one.head >= len(predictor.graph.entities)]
    old = [place for place, one in enumerate(asked) if one.head < len(predictor.graph.entities)]
    vectors[old] = predictor.table[[asked[place].head for place in old]]
    if new:
        batch = RequestBatch.of(predictor, [asked[place] for place in new])
        centres: list[Any] = []
        egos: list[EgoGraphs] = []
        for question, place in enumerate(new):
            centre = np.array([asked[place].head], np.int64)
            egos.append(batch.ego_graphs(question, centre))
            centres.append(batch.entities(centre, question))
        vectors[new] = batch.embedded(centres, egos, None)
    return vectors
