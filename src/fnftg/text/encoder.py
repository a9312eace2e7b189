"""`Encoder`: a model with its tokenizer, whose pooled outputs are the vectors of texts."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from fnftg.text.hub import Parts
from fnftg.text.special_tokens import SpecialTokens
from fnftg.text.word_vectors import WordVectors

Pooling = Literal["cls", "mean"]
Precision = Literal["float32", "bfloat16", "auto"]
TokenBatch = tuple[torch.Tensor, torch.Tensor, "torch.Tensor | None"]  # input_ids, attention_mask, token_type_ids


@dataclass(frozen=True)
class EncoderFacts:
    """Properties of a saved encoder that are known without loading it."""

    hidden: int
    max_length: int
    special: SpecialTokens
    tokenizer_key: str
    weights_key: str


class Encoder:
    """A pretrained or untrained Transformer with its tokenizer.

    A saved encoder is loaded when its model or tokenizer is first used.
    """

    def __init__(self, name: str, pooling: Pooling, load: Callable[[], Parts], facts: EncoderFacts | None = None):
        self.name = name  # as given by the user
        self.pooling: Pooling = pooling  # that it was trained with
        self._load, self._facts = load, facts
        self._parts: Parts | None = None

    @property
    def is_loaded(self) -> bool:
        return self._parts is not None

    @property
    def model(self) -> nn.Module:
        model: nn.Module = self._loaded()[0]
        return model

    @property
    def tokenizer(self) -> Any:
        """The fast tokenizer (of the library transformers)."""
        return self._loaded()[1]

    def _loaded(self) -> Parts:
        if self._parts is None:
            self._parts = self._load()
        return self._parts

    def copied(self) -> Encoder:
        """Return a copy with its own model."""
        parts = copy.deepcopy(self.model), self.tokenizer
        return Encoder(self.name, self.pooling, lambda: parts)

    def freeze(self) -> None:
        """Set the model to eval mode without gradients. A model that is not loaded yet is loaded in this state."""
        if self.is_loaded:
            self.model.eval().requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """The device of the model; the CPU if it is not loaded yet."""
        return next(self.model.parameters()).device if self.is_loaded else torch.device("cpu")

    @property
    def hidden(self) -> int:
        """The size of the encoder's vectors."""
        if self._facts is not None:
            return self._facts.hidden
        config: Any = self.model.config
        return int(config.hidden_size)

    @property
    def max_length(self) -> int:
        """The maximum sequence length, including special tokens."""
        if self._facts is not None:
            return self._facts.max_length
        config: Any = self.model.config
        positions = int(getattr(config, "max_position_embeddings", 512))
        if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):  # positions start after the padding's
            positions -= int(config.pad_token_id) + 1
        return min(positions, int(self.tokenizer.model_max_length))

    @property
    def special(self) -> SpecialTokens:
        """The special tokens around texts."""
        if self._facts is not None:
            return self._facts.special
        takes_types = "token_type_ids" in inspect.signature(self.model.forward).parameters
        return SpecialTokens.of(self.tokenizer, takes_types, self.name)

    def tokenizer_key(self) -> str:
        if self._facts is not None:
            return self._facts.tokenizer_key
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    def weights_key(self) -> str:
        """Return a hash of the current weights."""
        if self._facts is not None and not self.is_loaded:
            return self._facts.weights_key
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def facts(self) -> EncoderFacts:
        return EncoderFacts(self.hidden, self.max_length, self.special, self.tokenizer_key(), self.weights_key())


def uses_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Return whether a frozen encoder uses bfloat16 on this device."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # AMX implies it
    return device.type == "cpu" and supported is not None and bool(supported())


def pooled(model: nn.Module, batch: TokenBatch, pooling: Pooling) -> torch.Tensor:
    """Return the pooled output of the encoder for each text of a batch, (n, hidden)."""
    input_ids, attention_mask, token_types = batch  # (n, length) each
    if isinstance(model, WordVectors) and pooling == "mean":
        return model.mean(input_ids, attention_mask)
    types = {} if token_types is None else {"token_type_ids": token_types}
    states: torch.Tensor = model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
    if pooling == "cls":
        return states[:, 0]
    weights = attention_mask.unsqueeze(-1).to(states.dtype)  # (n, length, 1)
    return (states * weights).sum(1) / weights.sum(1)
