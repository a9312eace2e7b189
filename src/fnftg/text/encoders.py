"""Text encoders by name: models on the Hugging Face hub, local folders, packaged weights, or untrained models."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from fnftg.errors import FnftgError, shortened
from fnftg.json_files import read_json
from fnftg.text.hub import ELSEWHERE, Parts, checked, first_line, load_from_hub, load_parts, quiet
from fnftg.text.packaged_weights import GLOVE_WEIGHTS, MINILM_WEIGHTS, packaged_folder
from fnftg.text.special_tokens import SpecialTokens
from fnftg.text.word_vectors import MODEL_TYPE, load_word_vectors

SHORT_NAMES = {  # the BERTs of Turc et al. (2019)
    "tiny": "google/bert_uncased_L-2_H-128_A-2",
    "mini": "google/bert_uncased_L-4_H-256_A-4",
    "small": "google/bert_uncased_L-4_H-512_A-8",
    "medium": "google/bert_uncased_L-8_H-512_A-8",
    "base": "google/bert_uncased_L-12_H-768_A-12",
}
MINILM, GLOVE = MINILM_WEIGHTS.encoder, GLOVE_WEIGHTS.encoder
SIZE = re.compile(r"L-(\d+)_H-(\d+)_A-(\d+)")
SENTENCE_ENCODER = re.compile("minilm|mpnet|sentence-transformers", re.IGNORECASE)
SOURCE = "encoder.json"  # the source of a saved encoder
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")

Pooling = Literal["cls", "mean"]
Precision = Literal["float32", "bfloat16", "auto"]


@dataclass
class TextConfig:
    """How texts become vectors.

    Args:
        encoder: tiny, mini, small, medium or base (BERT, from the hub), minilm (packaged), a local folder, a name on
            the hub, scratch:L-2_H-128_A-2 (untrained, with a vocabulary from the graph's texts), or word vectors: glove
            (packaged) or glove:FILE.
        pooling: cls, mean, or auto (mean for sentence encoders, else cls).
        words: number of words of each text that are encoded.
        training: finetune (as in the paper), frozen (features of all texts are computed once) or finetune-centre
            (gradients only through the texts of queries and candidates; features of neighbours are cached).
        query: text encodes [entity‖relation] as in the paper, vector combines the vectors of the two texts.
        width: size d of the vectors (default: the encoder's hidden size).
        dropout: dropout inside a fine-tuned encoder (default: the encoder's own), or of the features of a frozen one.
        token_budget: number of tokens per encoder batch, including padding (default: chosen by device).
        precision: precision of a frozen encoder: float32, bfloat16 (about twice as fast on hardware that supports it,
            but features then depend slightly on the batch), or auto (bfloat16 if the hardware supports it).
    """

    encoder: str = MINILM
    pooling: Literal["auto", "cls", "mean"] = "auto"
    words: int = 24
    training: Literal["finetune", "frozen", "finetune-centre"] = "frozen"
    query: Literal["text", "vector"] = "vector"
    width: int | None = None
    dropout: float | None = None
    token_budget: int | None = None
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        choices = {
            "pooling": ("auto", "cls", "mean"),
            "training": ("finetune", "frozen", "finetune-centre"),
            "query": ("text", "vector"),
            "precision": ("float32", "bfloat16", "auto"),
        }
        for field, values in choices.items():
            if getattr(self, field) not in values:
                raise FnftgError(f"text.{field} is {getattr(self, field)!r}: it must be one of {', '.join(values)}.")
        if not isinstance(self.encoder, str) or not self.encoder.strip():
            raise FnftgError(f"text.encoder is {self.encoder!r}: it must be the name or the folder of an encoder.")
        for field in ("words", "width", "token_budget"):
            value = getattr(self, field)
            given = value is not None or field == "words"
            if given and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise FnftgError(f"text.{field} is {value!r}: it must be an integer of at least 1.")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise FnftgError(f"text.dropout is {self.dropout!r}: it must be at least 0 and less than 1.")


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
    types = {} if token_types is None else {"token_type_ids": token_types}
    states: torch.Tensor = model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
    if pooling == "cls":
        return states[:, 0]
    weights = attention_mask.unsqueeze(-1).to(states.dtype)  # (n, length, 1)
    return (states * weights).sum(1) / weights.sum(1)


# Loading


def load_encoder(name: str, texts_for_scratch: Iterable[str] | None = None, weights: bool = True) -> Encoder:
    """Load an encoder with float32 weights, in eval mode.

    Args:
        name: the name or folder of an encoder (see `TextConfig.encoder`).
        texts_for_scratch: the texts that the vocabulary of an untrained encoder is built from.
        weights: load the weights; without them the encoder has only its architecture, for weights of a checkpoint.

    Raises:
        FnftgError: if there is no such encoder, or it cannot be loaded.
    """
    if name.startswith("scratch:"):
        return _loaded(name, "cls", _scratch(name, texts_for_scratch))
    if name == GLOVE or name.startswith(f"{GLOVE}:"):
        from fnftg.text.glove import load_words

        return _loaded(name, "mean", load_words(name))
    if name == MINILM:
        return _from_folder(packaged_folder(MINILM_WEIGHTS), name, weights)
    hub_name = SHORT_NAMES.get(name, name)
    folder = Path(name).expanduser()
    if hub_name == name and (folder.exists() or name.startswith(("/", ".", "~")) or name.count("/") > 1):
        return _from_folder(folder, name, weights)
    return _loaded(name, _pooling(hub_name), load_from_hub(hub_name, weights))


def load_saved_encoder(folder: Path) -> Encoder:
    """Open an encoder that `save_encoder` wrote. It is loaded on first use, because its features may be cached."""
    source = _source(folder)
    try:
        facts = EncoderFacts(**{**source["facts"], "special": SpecialTokens.from_json(source["facts"]["special"])})
        name, pooling = str(source["name"]), source["pooling"]
    except (KeyError, TypeError) as error:
        raise FnftgError(f"{folder / SOURCE} does not describe an encoder: save the encoder again.") from error

    def load() -> Parts:
        loaded = load_encoder(str(folder))
        return loaded.model, loaded.tokenizer

    return Encoder(name, pooling, load, facts)


def save_encoder(encoder: Encoder, folder: Path, weights: bool = True) -> None:
    """Write the configuration and the tokenizer and, with `weights`, the weights.

    Weights are not needed if they are those of the encoder's source.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model: Any = encoder.model
    with quiet():
        encoder.tokenizer.save_pretrained(folder)
        if weights:
            model.save_pretrained(folder)
        else:
            model.config.save_pretrained(folder)
    source = {"name": encoder.name, "pooling": encoder.pooling, "own_weights": weights}
    source["facts"] = dataclasses.asdict(encoder.facts())
    (folder / SOURCE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")


def _loaded(name: str, pooling: Pooling, parts: Parts) -> Encoder:
    encoder = Encoder(name, pooling, lambda: parts)
    _ = encoder.model
    return encoder


def _from_folder(folder: Path, name: str, weights: bool) -> Encoder:
    if not folder.is_dir():
        raise FnftgError(f"There is no encoder folder {folder}: {ELSEWHERE}.")
    if not (folder / "config.json").is_file():
        raise FnftgError(f"The encoder folder {folder} has no config.json: give a folder that save_pretrained wrote.")
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        raise FnftgError(f"The encoder folder {folder} has no tokenizer: add its tokenizer.json or vocab.txt.")
    source = _source(folder)
    if weights and not any(folder.glob("model*.safetensors")):
        if not source.get("own_weights", True):
            return _from_source(folder, source)
        pickled = any(folder.glob("pytorch_model*.bin"))
        fix = "save it with save_pretrained of transformers" + (", as pickle files are not read" if pickled else "")
        raise FnftgError(f"The encoder folder {folder} has no weights in model.safetensors: {fix}.")
    try:
        if read_json(folder / "config.json").get("model_type") == MODEL_TYPE:
            return _loaded(source.get("name", name), "mean", load_word_vectors(folder, weights))
        parts = load_parts(str(folder), weights, f"The encoder folder {folder}", use_safetensors=True)
    except OSError as error:
        raise FnftgError(f"The encoder folder {folder} cannot be read: {first_line(error)}.") from error
    return _loaded(source.get("name", name), source.get("pooling", _pooling(str(folder))), parts)


def _source(folder: Path) -> dict[str, Any]:
    """Return what `save_encoder` recorded in a folder; empty for other folders."""
    return read_json(folder / SOURCE) if (folder / SOURCE).is_file() else {}


def _from_source(folder: Path, source: dict[str, Any]) -> Encoder:
    """Load an encoder that was saved without weights from its source."""
    encoder = load_encoder(source["name"])
    if encoder.weights_key() != source["facts"]["weights_key"]:
        raise FnftgError(f"The encoder {source['name']} has other weights than those used for {folder}: restore them.")
    encoder.pooling = source["pooling"]
    return encoder


def _pooling(source: str) -> Pooling:
    """Return mean for sentence encoders, according to their configuration or else their name."""
    try:
        modes = json.loads((Path(source) / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
        return "mean" if modes["pooling_mode_mean_tokens"] else "cls"
    except (OSError, ValueError, KeyError, TypeError):
        return "mean" if SENTENCE_ENCODER.search(source) else "cls"


def _scratch(name: str, texts: Iterable[str] | None) -> Parts:
    size = parsed_size(name.removeprefix("scratch:"))
    if size is None:
        raise FnftgError(
            f"{shortened(name)} is not an encoder: write scratch:L-2_H-128_A-2 for 2 layers of width 128 with 2 heads;"
            " the width must be a multiple of the heads."
        )
    if texts is None:
        raise FnftgError(f"The encoder {name} needs the texts of a graph for its vocabulary: pass texts_for_scratch.")
    from fnftg.text.scratch import random_bert, wordpiece

    tokenizer = wordpiece(texts)
    return checked(random_bert(*size, len(tokenizer)), tokenizer, f"The encoder {name}")


def parsed_size(size: str) -> tuple[int, int, int] | None:
    """Return the layers, the width and the heads of a size such as L-2_H-128_A-2, or None if it is not a valid one."""
    found = SIZE.fullmatch(size)
    layers, hidden, heads = map(int, found.groups()) if found else (0, 0, 0)
    return (layers, hidden, heads) if layers and hidden and heads and hidden % heads == 0 else None
