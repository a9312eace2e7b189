"""A trained model as a folder: model.safetensors, config.json, the encoder's files, metrics.json and a model card."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from fnftg.errors import FnftgError
from fnftg.files import new_folder
from fnftg.models.configs import from_dict
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.systems import system, title
from fnftg.text.encoders import load_encoder, save_encoder
from fnftg.version import __version__

CHECKPOINT = "checkpoint"  # the folder of the best weights in a run's folder
FORMAT, VERSION = "fnftg-model", 2  # 1: FnF alone, so no system is named


def save_pretrained(
    model: LinkPredictor, folder: str | os.PathLike[str], metrics: dict[str, Any] | None = None, force: bool = False
) -> None:
    """Writes the folder in one step: a crash leaves the old one whole."""
    with new_folder(folder, force) as partial:
        frozen = model.config.text.training == "frozen"
        weights = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
        save_file(weights, partial / "model.safetensors")
        save_encoder(
            model.tt.encoder, partial / "encoder", weights=not frozen or model.tt.encoder.name.startswith("scratch:")
        )
        config = {"format": FORMAT, "version": VERSION, "written_by": f"fnftg {__version__}"}
        what = {"system": model.system, "relations": model.relations, "model": asdict(model.config)}
        _write_json(partial / "config.json", {**config, **what})
        _write_json(partial / "metrics.json", metrics or {})
        (partial / "README.md").write_text(card(model, metrics or {}), encoding="utf-8")


def from_pretrained(name: str | os.PathLike[str]) -> LinkPredictor:
    """A model from its folder, from the folder of the run that trained it, or by its name on the hub."""
    folder = _folder(name)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        known = config["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FnftgError(
            f"{folder} holds no model (its config.json cannot be read): give the folder of one."
        ) from error
    if not known:
        raise FnftgError(f"{folder} is not a model of fnftg: its format is {config['format']!r}.")
    if config["version"] > VERSION:
        raise FnftgError(
            f"The model {folder} has version {config['version']}, this fnftg reads up to {VERSION}: upgrade."
        )
    chosen = system(config.get("system", "fnf"))
    model = chosen.make(
        from_dict(chosen.config, config["model"], "model"),
        load_encoder(str(folder / "encoder")),
        config.get("relations", 0),
    )
    try:
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except Exception as error:
        raise FnftgError(
            f"The weights of {folder} are damaged or do not fit its config.json: restore the folder."
        ) from error
    return model.eval()


def _folder(name: str | os.PathLike[str]) -> Path:
    folder = Path(name).expanduser()
    for found in (folder / CHECKPOINT, folder):
        if (found / "config.json").is_file():
            return found
    if folder.exists() or str(name).count("/") != 1:
        raise FnftgError(f"{folder} holds no model: give the folder of a model or of a run that has validated once.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(name), ignore_patterns=["*.bin", "*.pt", "*.pkl"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise FnftgError(f"{name} is neither a folder nor could it be fetched from the hub: give a folder.") from error


def card(model: LinkPredictor, metrics: dict[str, Any]) -> str:
    """The model card: what the model is, how good, how to use it."""
    name, text = title(model.system, model.config), model.config.text
    lines = [
        f"# {name} ({text.encoder}, {text.training})",
        "",
        f"A model for inductive link prediction, made with fnftg. {name}: {system(model.system).description}.",
        "",
        "```python",
        "from fnftg.models.pretrained import from_pretrained",
        "",
        'model = from_pretrained("path/to/this/folder")',
        "```",
        "",
    ]
    for split, found in metrics.items():
        if isinstance(found, dict) and "mrr" in found:
            hits = ", ".join(f"Hits@{k} {found[f'hits@{k}']:.3f}" for k in (1, 3, 10))
            lines.append(f"- {split}: MRR {found['mrr']:.3f}, {hits}")
    return "\n".join(lines) + "\n"


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
