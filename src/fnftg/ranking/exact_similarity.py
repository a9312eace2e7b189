"""Similarities that do not depend on the block size, so that equal scores are equal wherever they are computed."""

from __future__ import annotations

import torch
from torch import Tensor

from fnftg.arrays import Float32Array
from fnftg.models.link_predictor import LinkPredictor


def has_product_kernel(model: LinkPredictor) -> bool:
    """Return whether the kernels of `kernels/products.py` compute the model's scores, which are the same but faster."""
    return model.by_product and model.device.type == "cpu"


def exact_similarity(model: LinkPredictor, query_embeddings: Float32Array, candidates: Float32Array) -> Tensor:
    """Score queries (q, d) against candidates (n, d): (q, n), in main memory.

    The scores are computed in double precision on the model's device and rounded to single precision, because the last
    bits of a matrix product depend on the block size.
    """
    queries, vectors = (torch.from_numpy(array).to(model.device).double() for array in (query_embeddings, candidates))
    return model.similarity(queries, vectors).float().cpu()
