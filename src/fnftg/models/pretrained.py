"""The checkpoint folder: model.safetensors, config.json, the encoder's files, metrics.json and a model card."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fnftg.checksums import CHECKSUMS, verify_folder
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_folder
from fnftg.json_files import read_json, write_json
from fnftg.models.configs import from_dict, with_former_values
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.systems import system, title
from fnftg.text.encoders import is_made_of_texts, load_saved_encoder, save_encoder
from fnftg.version import __version__

CHECKPOINT = "checkpoint"  # subfolder of a run with the best weights
WEIGHTS, METRICS = "model.safetensors", "metrics.json"
KIND = "model"
FORMAT, VERSION = f"fnftg-{KIND}", 3
MAX_RELATIONS = 10_000_000


def save_pretrained(
    model: LinkPredictor,
    folder: str | os.PathLike[str],
    metrics: dict[str, Any] | None = None,
    force: bool = False,
    owned: bool = False,
) -> None:
    """Save a model into a folder. The folder is replaced atomically, so a crash leaves the old one intact.

    Args:
        model: the model.
        folder: the folder to write.
        metrics: results for metrics.json and the model card.
        force: replace an existing model, as in `new_folder`.
        owned: as in `new_folder`.
    """
    with new_folder(folder, KIND, force, owned) as partial:
        frozen = model.config.text.training == "frozen"
        weights = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
        save_file(weights, partial / WEIGHTS)
        encoder = model.tt.encoder
        save_encoder(encoder, partial / "encoder", weights=not frozen or is_made_of_texts(encoder.name))
        config = {"format": FORMAT, "version": VERSION, "written_by": f"fnftg {__version__}"}
        what = {"system": model.system, "relations": model.relations, "model": asdict(model.config)}
        write_json(partial / "config.json", {**config, **what}, checksum=False)
        write_json(partial / METRICS, metrics or {}, checksum=False)
        (partial / "README.md").write_text(card(model, metrics or {}), encoding="utf-8")


def from_pretrained(name: str | os.PathLike[str]) -> LinkPredictor:
    """Load a model from its folder, from a run's folder, or by its name on the Hugging Face hub.

    Raises:
        DamagedError: if a file is damaged or the weights do not match config.json.
        FnftgError: if there is no model, or another version of fnftg wrote it.
    """
    folder = _folder(name)
    config = _read_config(folder)
    verify_model(folder)
    chosen = system(config["system"])
    fields = from_dict(chosen.config, with_former_values(config["model"]), "model")
    try:
        model = chosen.make(fields, load_saved_encoder(folder / "encoder"), config["relations"])
        model.load_state_dict(load_file(folder / WEIGHTS))
    except PermissionError as error:
        raise FnftgError(f"{folder / WEIGHTS} cannot be read: permission denied.") from error
    except (OSError, KeyError, RuntimeError, MemoryError, TypeError, ValueError, SafetensorError) as error:
        raise DamagedError(
            f"The weights of {folder} are damaged or do not match its config.json: restore the folder."
        ) from error
    return model.eval()


def verify_model(folder: Path) -> None:
    """Check the files of a model against their checksums; models written by fnftg 0.2 have none and are not checked."""
    if not (folder / CHECKSUMS).is_file():
        return
    try:
        verify_folder(folder, KIND)
    except DamagedError as error:
        raise DamagedError(f"{error} Restore the folder {folder}, or train the model again.") from error


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read the metrics that were saved with a model."""
    return read_json(folder / METRICS)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = read_json(folder / "config.json")
    except DamagedError as error:
        raise DamagedError(
            f"{folder} contains no model (its config.json cannot be read): give the folder of a model."
        ) from error
    if config.get("format") != FORMAT:
        raise FnftgError(f"{folder} is not a model of fnftg: its format is {config.get('format')!r}.")
    version = config.get("version")
    if isinstance(version, int) and version != VERSION:
        older = "an older version of fnftg: train it again, or load it with fnftg 0.1"
        newer = f"a newer version of fnftg (this one reads format version {VERSION}): upgrade fnftg"
        by = older if version < VERSION else newer
        raise FnftgError(f"The model {folder} has format version {version}, written by {by}.")
    relations = config.get("relations")
    known = isinstance(config.get("system"), str) and isinstance(config.get("model"), dict)
    if version != VERSION or not known or not isinstance(relations, int) or not 0 <= relations < MAX_RELATIONS:
        raise DamagedError(f"{folder / 'config.json'} does not describe a model: restore the folder.")
    return config


def _folder(name: str | os.PathLike[str]) -> Path:
    folder = Path(name).expanduser()
    for found in (folder / CHECKPOINT, folder):
        if (found / "config.json").is_file():
            return found
    if folder.exists() or str(name).count("/") != 1:
        raise FnftgError(f"{folder} contains no model: give the folder of a model, or of a run that has a checkpoint.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(name), ignore_patterns=["*.bin", "*.pt", "*.pkl"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise FnftgError(f"{name} is not a folder and cannot be downloaded from the hub: give a folder.") from error


def card(model: LinkPredictor, metrics: dict[str, Any]) -> str:
    """Return the model card as Markdown: the system, how to load it, and its metrics."""
    name, text = title(model.system, model.config), model.config.text
    lines = [
        f"# {name} ({text.encoder}, {text.training})",
        "",
        f"A model for inductive link prediction, trained with fnftg. {name}: {system(model.system).description}.",
        "",
        "```python",
        "import fnftg",
        "",
        'predictor = fnftg.load("path/to/this/folder", graph="path/to/a/graph")',
        'predictor.tails("an entity", "a relation")',
        "```",
        "",
    ]
    for split, found in metrics.items():
        if isinstance(found, dict) and "mrr" in found:
            hits = ", ".join(f"Hits@{k} {found[f'hits@{k}']:.3f}" for k in (1, 3, 10))
            lines.append(f"- {split}: MRR {found['mrr']:.3f}, {hits}")
    return "\n".join(lines) + "\n"
