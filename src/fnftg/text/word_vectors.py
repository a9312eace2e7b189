"""`WordVectors`: a table of vectors of words or word pieces, whose mean is the vector of a text.

Folders have the format of model2vec (config.json, model.safetensors, tokenizer.json), so that its models can be used
here and ours there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import Float32Array, Int64Array
from fnftg.errors import FnftgError
from fnftg.json_files import read_json

MODEL_TYPE, EARLIER_TYPE = "model2vec", "fnftg-word-vectors"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
FILES = ("config.json", WEIGHTS, TOKENIZER)
LONGEST = 1 << 20  # a table reads texts of any length


@dataclass
class WordConfig:
    vocab_size: int
    hidden_size: int
    normalize: bool = False
    ignored: int | None = None  # the token for unknown words, if the mean leaves it out
    model_type: str = MODEL_TYPE
    max_position_embeddings: int = LONGEST

    def save_pretrained(self, folder: Path) -> None:
        fields = {
            "model_type": MODEL_TYPE,
            "architectures": ["StaticModel"],
            "hidden_dim": self.hidden_size,
            "normalize": self.normalize,
            "vocab_size": self.vocab_size,
            "counts_unknown": self.ignored is None,  # model2vec's own models leave the field out
        }
        (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


class WordVectors(nn.Module):
    """A table of word vectors with the interface of a Transformer."""

    def __init__(self, words: int, width: int, normalize: bool = False, ignored: int | None = None):
        super().__init__()
        self.config = WordConfig(words, width, normalize, ignored)
        self.embeddings = nn.Embedding(words, width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=self.embeddings(input_ids))

    def mean(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the mean vector of each text of a padded batch (n, length): (n, hidden)."""
        kept = attention_mask.bool() if self.config.ignored is None else self._kept(input_ids, attention_mask)
        states = self.embeddings(input_ids) * kept[:, :, None]
        return self._normalized(states.sum(1) / kept.sum(1, keepdim=True).clamp(min=1))

    def mean_vectors(self, ids: Int64Array, offsets: Int64Array) -> Float32Array:
        """Return the mean vector of each text i, whose tokens are ids[offsets[i] : offsets[i + 1]], (n, hidden)."""
        table = self.embeddings.weight
        found = functional.embedding_bag(
            torch.from_numpy(ids).to(table.device),
            table,
            torch.from_numpy(offsets).to(table.device),
            mode="mean",
            include_last_offset=True,
            padding_idx=self.config.ignored,
        )
        vectors: Float32Array = self._normalized(found.float()).cpu().numpy()
        return vectors

    def _kept(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return attention_mask.bool() & (input_ids != self.config.ignored)

    def _normalized(self, vectors: Tensor) -> Tensor:
        return functional.normalize(vectors, dim=1) if self.config.normalize else vectors

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def save_pretrained(self, folder: Path) -> None:
        self.config.save_pretrained(folder)
        save_file({"embeddings": self.embeddings.weight.detach().contiguous()}, folder / WEIGHTS)


def is_word_vectors(config: dict[str, Any]) -> bool:
    """Return whether a config.json is that of a table of word vectors."""
    return config.get("model_type") in (MODEL_TYPE, EARLIER_TYPE) or "StaticModel" in (
        config.get("architectures") or ()
    )


def load_word_vectors(folder: Path, weights: bool = True) -> tuple[WordVectors, Any]:
    """Load word vectors that `save_encoder` or model2vec wrote."""
    config = read_json(folder / "config.json")
    tokenizer = tokenizer_of(folder / TOKENIZER)
    vectors = token_table(folder / WEIGHTS, len(tokenizer)) if weights else None
    width = config.get("hidden_dim", config.get("hidden_size")) if vectors is None else vectors.shape[1]
    if not isinstance(width, int) or width < 1:
        raise FnftgError(f"{folder / 'config.json'} has no valid hidden_dim: restore the file.")
    ignored = tokenizer.unk_token_id
    if config.get("counts_unknown", config.get("model_type") == EARLIER_TYPE):
        ignored = None
    model = WordVectors(len(tokenizer), width, bool(config.get("normalize", False)), ignored)
    if vectors is not None:
        model.embeddings.weight.data = vectors
    return model.eval().requires_grad_(False), tokenizer


def token_table(file: Path, tokens: int) -> Tensor:
    """Return the vectors of all tokens (tokens, hidden), each with its weight.

    Raises:
        FnftgError: if the file has no vectors, or they do not fit the tokenizer.
    """
    try:
        found = load_file(file)
    except (SafetensorError, OSError) as error:
        raise FnftgError(f"The word vectors {file} cannot be read: restore the file.") from error
    vectors = found.get("embeddings", found.get("embeddings.weight"))
    if vectors is None or vectors.ndim != 2:
        raise FnftgError(f"{file} has no table of vectors named embeddings: save it with model2vec or fnftg distill.")
    row = found.get("mapping", torch.arange(len(vectors))).long()
    weight = found.get("weights", torch.ones(len(row))).float()
    if not (row.shape == weight.shape == (tokens,)) or not len(row) or not 0 <= row.min() <= row.max() < len(vectors):
        raise FnftgError(
            f"{file} has vectors of {len(row):,} tokens, but its tokenizer has {tokens:,}: restore its {TOKENIZER}."
        )
    return vectors.float()[row] * weight[:, None]


def tokenizer_of(file: Path) -> Any:
    """Return the tokenizer of a file as `plain_tokenizer` does."""
    from tokenizers import Tokenizer

    try:
        backend: Any = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more specific
        raise FnftgError(f"The tokenizer {file} cannot be read: restore the file.") from error
    described = json.loads(backend.to_str())["model"]
    unknown = described.get("unk_token")
    if unknown is None and described.get("unk_id") is not None:
        unknown = backend.id_to_token(described["unk_id"])
    return plain_tokenizer(backend, unknown, backend.id_to_token(0))


def plain_tokenizer(backend: Any, unknown: str | None, padding: str) -> Any:
    """Return a copy of a tokenizer (of the library tokenizers) that adds no special tokens and reads whole texts."""
    import transformers
    from tokenizers import Tokenizer

    copied: Any = Tokenizer.from_str(backend.to_str())
    copied.post_processor = None
    copied.no_truncation()
    copied.no_padding()
    kind: Any = transformers.PreTrainedTokenizerFast
    unknowns = {} if unknown is None else {"unk_token": unknown}
    return kind(tokenizer_object=copied, model_max_length=LONGEST, pad_token=padding, **unknowns)
