"""Text encoders by name: models on the Hugging Face hub, local folders, packaged weights, or untrained models."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fnftg.errors import FnftgError, shortened
from fnftg.json_files import read_json
from fnftg.text.encoder import Encoder, EncoderFacts, Pooling, Precision
from fnftg.text.hub import ELSEWHERE, Parts, checked, first_line, load_from_hub, load_parts, quiet
from fnftg.text.packaged_weights import GLOVE_WEIGHTS, MINILM_WEIGHTS, packaged_folder
from fnftg.text.special_tokens import SpecialTokens
from fnftg.text.word_vectors import WordVectors, is_word_vectors, load_word_vectors

SHORT_NAMES = {  # the BERTs of Turc et al. (2019)
    "tiny": "google/bert_uncased_L-2_H-128_A-2",
    "mini": "google/bert_uncased_L-4_H-256_A-4",
    "small": "google/bert_uncased_L-4_H-512_A-8",
    "medium": "google/bert_uncased_L-8_H-512_A-8",
    "base": "google/bert_uncased_L-12_H-768_A-12",
}
MINILM, GLOVE, STATIC, SCRATCH = MINILM_WEIGHTS.encoder, GLOVE_WEIGHTS.encoder, "static", "scratch:"
SIZE = re.compile(r"L-(\d+)_H-(\d+)_A-(\d+)")
SENTENCE_ENCODER = re.compile("minilm|mpnet|sentence-transformers", re.IGNORECASE)
SOURCE = "encoder.json"  # the source of a saved encoder
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")


@dataclass
class TextConfig:
    """How texts become vectors.

    Args:
        encoder: tiny, mini, small, medium or base (BERT, from the hub), minilm (packaged), static (MiniLM's vectors of
            tokens, averaged; some hundred times as fast), a local folder or a name on the hub, also of a model2vec,
            scratch:L-2_H-128_A-2 (untrained, with a vocabulary from the graph's texts), or word vectors: glove
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


# Loading


def load_encoder(
    name: str, texts: Iterable[str] | None = None, weights: bool = True, cache: Path | None = None
) -> Encoder:
    """Load an encoder with float32 weights, in eval mode.

    Args:
        name: the name or folder of an encoder (see `TextConfig.encoder`).
        texts: the texts of the graph, for the vocabulary of an untrained encoder and the weights of a static one.
        weights: load the weights; without them the encoder has only its architecture, for weights of a checkpoint.
        cache: the folder that keeps MiniLM's vectors of tokens for static encoders.

    Raises:
        FnftgError: if there is no such encoder, or it cannot be loaded.
    """
    if name.startswith(SCRATCH):
        return _loaded(name, "cls", _scratch(name, texts))
    if name == STATIC:
        from fnftg.text.static_encoder import static_student

        return static_student(load_encoder(MINILM), _given(texts, name), cache=cache)
    if name == GLOVE or name.startswith(f"{GLOVE}:"):
        from fnftg.text.glove import load_words

        return _loaded(name, "mean", load_words(name))
    if name == MINILM:
        return _from_folder(packaged_folder(MINILM_WEIGHTS), name, weights)
    hub_name = SHORT_NAMES.get(name, name)
    folder = Path(name).expanduser()
    if hub_name == name and (folder.exists() or name.startswith(("/", ".", "~")) or name.count("/") > 1):
        return _from_folder(folder, name, weights)
    parts = load_from_hub(hub_name, weights)
    return _loaded(name, "mean" if isinstance(parts[0], WordVectors) else _pooling(hub_name), parts)


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
        if is_word_vectors(read_json(folder / "config.json")):
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


def is_made_of_texts(name: str) -> bool:
    """Return whether an encoder depends on the graph that it was made for, so that a checkpoint must hold it."""
    return name == STATIC or name.startswith(SCRATCH)


def _given(texts: Iterable[str] | None, name: str) -> Iterable[str]:
    if texts is None:
        raise FnftgError(f"The encoder {name} is made of the texts of a graph: pass its texts.")
    return texts


def _scratch(name: str, texts: Iterable[str] | None) -> Parts:
    size = parsed_size(name.removeprefix(SCRATCH))
    if size is None:
        raise FnftgError(
            f"{shortened(name)} is not an encoder: write scratch:L-2_H-128_A-2 for 2 layers of width 128 with 2 heads;"
            " the width must be a multiple of the heads."
        )
    from fnftg.text.scratch import random_bert, wordpiece

    tokenizer = wordpiece(_given(texts, name))
    return checked(random_bert(*size, len(tokenizer)), tokenizer, f"The encoder {name}")


def parsed_size(size: str) -> tuple[int, int, int] | None:
    """Return the layers, the width and the heads of a size such as L-2_H-128_A-2, or None if it is not a valid one."""
    found = SIZE.fullmatch(size)
    layers, hidden, heads = map(int, found.groups()) if found else (0, 0, 0)
    return (layers, hidden, heads) if layers and hidden and heads and hidden % heads == 0 else None
