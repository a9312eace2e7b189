"""`WordVectors`: a table of vectors of words or word pieces, whose mean is the vector of a text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import Float32Array, Int64Array
from fnftg.json_files import read_json

MODEL_TYPE, WEIGHTS = "fnftg-word-vectors", "model.safetensors"
LONGEST = 1 << 20  # a table reads texts of any length


@dataclass
class WordConfig:
    vocab_size: int
    hidden_size: int
    model_type: str = MODEL_TYPE
    max_position_embeddings: int = LONGEST

    def save_pretrained(self, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(vars(self), indent=2) + "\n", encoding="utf-8")


class WordVectors(nn.Module):
    """A table of word vectors with the interface of a Transformer. The padding is zero."""

    def __init__(self, words: int, width: int):
        super().__init__()
        self.config = WordConfig(words, width)
        self.embeddings = nn.Embedding(words, width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=self.embeddings(input_ids))

    def mean_vectors(self, ids: Int64Array, offsets: Int64Array) -> Float32Array:
        """Return the mean vector of each text i, whose tokens are ids[offsets[i] : offsets[i + 1]], (n, hidden)."""
        bounds = torch.from_numpy(offsets)
        table = self.embeddings.weight
        found = functional.embedding_bag(
            torch.from_numpy(ids).to(table.device),
            table,
            bounds.to(table.device),
            mode="mean",
            include_last_offset=True,
        )
        vectors: Float32Array = found.float().cpu().numpy()
        return vectors

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def save_pretrained(self, folder: Path) -> None:
        self.config.save_pretrained(folder)
        save_file({"embeddings.weight": self.embeddings.weight.detach().contiguous()}, folder / WEIGHTS)


def load_word_vectors(folder: Path, weights: bool) -> tuple[WordVectors, Any]:
    """Load word vectors that `save_encoder` wrote."""
    import transformers

    kind: Any = transformers.PreTrainedTokenizerFast
    tokenizer: Any = kind.from_pretrained(folder)
    config = read_json(folder / "config.json")
    model = WordVectors(config["vocab_size"], config["hidden_size"])
    if weights:
        model.load_state_dict(load_file(folder / WEIGHTS))
    return model.eval().requires_grad_(False), tokenizer
