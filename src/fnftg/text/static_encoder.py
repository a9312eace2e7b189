"""Static encoders: a vector for each token, distilled from a Transformer. The vector of a text is their weighted mean.

No Transformer runs when texts are encoded, so this is some hundred times as fast. Each token is encoded by the teacher
as a text of its own. The vectors are rotated to their principal components, of which the first `width` are kept, and
weighted so that frequent tokens count less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.array_files import load_array, write_array
from fnftg.arrays import Float32Array, Int64Array
from fnftg.console import progress
from fnftg.kernels.determinism import deterministic
from fnftg.text.cache import cached
from fnftg.text.encoders import Encoder, pooled
from fnftg.text.rows import content_key
from fnftg.text.tokens import TokenStore
from fnftg.text.word_vectors import LONGEST, WordVectors

WIDTH = 256
SMOOTHING = 1e-2  # share of texts with a token at which its weight is one half (Arora et al., 2017)
TOKENS = 256  # per batch of the teacher
VECTORS = "vectors.npy"


def static_student(teacher: Encoder, tokens: TokenStore, width: int = WIDTH, cache: Path | None = None) -> Encoder:
    """Return a static encoder with the teacher's tokenizer, whose weights depend on the frequencies in some texts."""
    vectors = rotated(kept_token_vectors(teacher, cache), width)  # (tokens, width)
    share = document_frequencies(tokens, len(vectors)) / max(len(tokens), 1)
    vectors *= (SMOOTHING / (SMOOTHING + share))[:, None].astype(np.float32)
    vectors[sorted(set(teacher.tokenizer.all_special_ids))] = 0
    model = WordVectors(*vectors.shape)
    model.embeddings.weight.data = torch.from_numpy(vectors)
    parts = model.eval().requires_grad_(False), plain_tokenizer(teacher.tokenizer)
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


def document_frequencies(tokens: TokenStore, size: int) -> Int64Array:
    """Return the number of texts with each token: (size,)."""
    rows, found = np.arange(len(tokens)), np.zeros(size, np.int64)
    for start in range(0, len(rows), 1 << 16):
        part = rows[start : start + (1 << 16)]
        lengths = tokens.ragged.lengths(part)
        keys = np.repeat(np.arange(len(part)), lengths) * size + tokens.ragged.flat(part, lengths)
        found += np.bincount(np.unique(keys) % size, minlength=size)
    return found


def plain_tokenizer(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer that adds no special tokens to texts."""
    import transformers
    from tokenizers import Tokenizer

    backend: Any = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = None
    kind: Any = transformers.PreTrainedTokenizerFast
    names = ("unk_token", "pad_token")
    return kind(
        tokenizer_object=backend,
        model_max_length=LONGEST,
        **{name: getattr(tokenizer, name) for name in names if getattr(tokenizer, name) is not None},
    )
