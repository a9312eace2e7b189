"""Load a model and its tokenizer with the library transformers, from a folder or from the Hugging Face hub."""

from __future__ import annotations

import contextlib
import inspect
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from fnftg.errors import FnftgError, shortened
from fnftg.json_files import read_json
from fnftg.text.word_vectors import FILES, is_word_vectors, load_word_vectors

ELSEWHERE = "give a local folder, minilm, static or scratch:L-2_H-128_A-2"
Parts = tuple[Any, Any]  # a model and its fast tokenizer


def load_from_hub(name: str, weights: bool) -> Parts:
    """Load an encoder by its name on the hub, from the hub's cache or over the network."""
    what = f"The encoder {shortened(name)}"
    try:
        return _load(name, weights, what, local_files_only=True)
    except OSError:  # not in the hub's cache
        pass
    if not _network():
        raise FnftgError(f"{what} is not a local folder and cannot be downloaded without a network: {ELSEWHERE}.")
    try:
        return _load(name, weights, what)
    except OSError as error:
        reason = f"is not a local folder and cannot be downloaded from the hub ({first_line(error)})"
        raise FnftgError(f"{what} {reason}: {ELSEWHERE}.") from error


def _load(name: str, weights: bool, what: str, **options: Any) -> Parts:
    """Load word vectors in the format of model2vec, or else a Transformer."""
    if not _has_word_vectors(name, options):
        return load_parts(name, weights, what, **options)
    with quiet():
        from huggingface_hub import hf_hub_download

        files = [Path(hf_hub_download(name, file, **options)) for file in FILES]
    return load_word_vectors(files[0].parent, weights)


def _has_word_vectors(name: str, options: dict[str, Any]) -> bool:
    with quiet():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HFValidationError

        try:
            return is_word_vectors(read_json(Path(hf_hub_download(name, "config.json", **options))))
        except (FnftgError, HFValidationError):  # of which load_parts says more
            return False


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _network() -> bool:
    """Return whether the hub's host name resolves. Without this check, the hub's client retries for half a minute."""
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


def load_parts(source: str, weights: bool, what: str, **options: Any) -> Parts:
    """Load a model and its tokenizer from a folder or the hub.

    Raises:
        OSError: if files are missing.
        FnftgError: if it is not a text encoder, or its files do not match.
    """
    with quiet():
        from transformers import AutoConfig, AutoTokenizer

        try:
            config = AutoConfig.from_pretrained(source, **_without(options, "use_safetensors"))
        except (ValueError, KeyError) as error:
            raise FnftgError(f"{what} has a config.json of an unknown architecture: {ELSEWHERE}.") from error
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
            raise FnftgError(f"{what} has a tokenizer that cannot be read: add its tokenizer.json.") from error
    return checked(model, tokenizer, what)


def _without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in names}


def _text_encoder_class(config: Any) -> Any:
    """Return the class without a head if the architecture is a masked language model, else None."""
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
        raise FnftgError(f"{what} has weights that do not match its config.json: restore both files.") from error
    if report["missing_keys"] or report["mismatched_keys"]:
        absent = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        raise FnftgError(
            f"{what} lacks {len(absent):,} weights of its config.json, e.g. {shortened(absent[0])}: restore both files."
        )
    return model


def checked(model: Any, tokenizer: Any, what: str) -> Parts:
    """Check a model and its tokenizer; set float32 weights and disable padding and truncation.

    Raises:
        FnftgError: if the tokenizer does not fit the model.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise FnftgError(f"{what} has no fast tokenizer: add its tokenizer.json.")
    vocabulary = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > vocabulary:
        raise FnftgError(
            f"{what} has a tokenizer of {len(tokenizer):,} tokens but embeddings of {vocabulary:,}: restore its "
            "tokenizer.json."
        )
    if len(tokenizer) <= len(tokenizer.all_special_ids) or tokenizer.pad_token_id is None:
        raise FnftgError(f"{what} has a tokenizer without a vocabulary or a padding token: restore its tokenizer.json.")
    tokenizer.backend_tokenizer.no_truncation()  # sentence encoders enable both
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return model.float().eval().requires_grad_(False), tokenizer


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the progress bars and reports of transformers."""
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
