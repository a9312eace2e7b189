"""Similarities that do not depend on the size of a block: ties must be ties wherever they are computed."""

from __future__ import annotations

import torch
from torch import Tensor

from fnftg.arrays import Float32Array
from fnftg.models.link_predictor import LinkPredictor


def exact_similarity(model: LinkPredictor, query_embeddings: Float32Array, candidates: Float32Array) -> Tensor:
    """(q, d) against (n, d) → scores (q, n) in main memory.

    They are computed on the model's device in double precision and rounded to single, as the last bits of a matrix
    product differ with the size of a block.
    """
    queries, vectors = (torch.from_numpy(array).to(model.device).double() for array in (query_embeddings, candidates))
    return model.similarity(queries, vectors).float().cpu()
