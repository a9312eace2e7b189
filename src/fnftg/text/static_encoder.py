"""Static encoders: a vector for each token, distilled from a Transformer. The vector of a text is their weighted mean.

No Transformer runs when texts are encoded, so this is some hundred times as fast. Each token is encoded by the teacher
as a text of its own. The vectors are rotated to their principal components, of which the first `width` are kept, and
weighted so that tokens count less if many texts of the graph have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.array_files import load_array, write_array
from fnftg.arrays import Float32Array, Float64Array
from fnftg.console import progress
from fnftg.kernels.determinism import deterministic
from fnftg.text.cache import cached
from fnftg.text.encoder import Encoder, pooled
from fnftg.text.rows import content_key
from fnftg.text.word_vectors import WordVectors, plain_tokenizer

WIDTH = 256
SMOOTHING = 1e-2  # share of texts with a token at which its weight is one half (Arora et al., 2017)
TOKENS = 256  # per batch of the teacher
VECTORS = "vectors.npy"
SAMPLE, BLOCK = 100_000, 10_000  # texts whose tokens are counted; texts in memory at a time


def static_student(teacher: Encoder, texts: Iterable[str], width: int = WIDTH, cache: Path | None = None) -> Encoder:
    """Return a static encoder with the teacher's tokenizer, whose weights depend on the tokens of some texts."""
    vectors = rotated(kept_token_vectors(teacher, cache), width)  # (tokens, width)
    backend = teacher.tokenizer.backend_tokenizer
    share = text_shares(backend, texts, len(vectors))
    vectors *= (SMOOTHING / (SMOOTHING + share))[:, None].astype(np.float32)
    vectors[sorted(set(teacher.tokenizer.all_special_ids))] = 0
    tokenizer = plain_tokenizer(backend, teacher.tokenizer.unk_token, teacher.tokenizer.pad_token)
    model = WordVectors(len(vectors), width, ignored=tokenizer.unk_token_id)
    model.embeddings.weight.data = torch.from_numpy(vectors)
    parts = model.eval().requires_grad_(False), tokenizer
    return Encoder("static", "mean", lambda: parts)


def kept_token_vectors(teacher: Encoder, cache: Path | None) -> Float32Array:
    """Return `token_vectors`, from the cache if it has them."""
    if cache is None:
        return token_vectors(teacher)
    key = content_key("token-vectors", 1, teacher.weights_key(), teacher.tokenizer_key(), teacher.pooling)
    shape = len(teacher.tokenizer), teacher.hidden
    return cached(
        cache,
        f"token-vectors-{key}",
        lambda folder: write_array(folder / VECTORS, token_vectors(teacher)),
        lambda folder: load_array(folder / VECTORS, np.float32, shape),
    )


def token_vectors(teacher: Encoder) -> Float32Array:
    """Return the teacher's pooled vector of each token as a text of its own, (tokens, hidden)."""
    special, size = teacher.special, len(teacher.tokenizer)
    around = [*special.start, 0, *special.end]
    ids = torch.tensor(around).repeat(size, 1)
    ids[:, len(special.start)] = torch.arange(size)
    mask = torch.ones_like(ids)
    types = None if special.second_type is None else torch.zeros_like(ids)
    vectors = np.empty((size, teacher.hidden), np.float32)
    with progress("Encoding tokens", size, "tokens") as advance, torch.inference_mode(), deterministic():
        for start in range(0, size, TOKENS):
            part = slice(start, start + TOKENS)
            batch = ids[part], mask[part], None if types is None else types[part]
            vectors[part] = pooled(teacher.model, batch, teacher.pooling).numpy()
            advance(len(batch[0]))
    return vectors


def rotated(vectors: Float32Array, width: int) -> Float32Array:
    """Return the first principal components of vectors (n, d), scaled to a mean square of 1: (n, width)."""
    centred = vectors - vectors.mean(0, dtype=np.float64)
    _, components = np.linalg.eigh(centred.T @ centred)  # in rising order
    components = components[:, ::-1][:, :width]
    largest = np.take_along_axis(components, np.abs(components).argmax(0)[None], 0)
    found = centred @ (components * np.sign(largest))  # signs are arbitrary otherwise
    scaled: Float32Array = (found / np.sqrt(np.mean(found**2))).astype(np.float32)
    return scaled


def text_shares(tokenizer: Any, texts: Iterable[str], size: int) -> Float64Array:
    """Return the share of texts with each token, on at most about `SAMPLE` of them, evenly spaced: (size,)."""
    found, count = np.zeros(size, np.int64), 0
    sample = islice(texts, 0, None, max(1, len(texts) // SAMPLE) if isinstance(texts, Sized) else 1)
    while block := list(islice(sample, BLOCK)):
        for encoding in tokenizer.encode_batch_fast(block, add_special_tokens=False):
            found[list(set(encoding.ids))] += 1
        count += len(block)
    return found / max(count, 1)
