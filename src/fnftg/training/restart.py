"""Restart points: all that a run needs to go on as if it had never stopped, in safetensors and JSON.

Randomness is a function of (seed, epoch, step) and the learning rate one of the step, so the weights, the optimiser's
moments and the state of the run are everything; where neighbours have cached features, the encoder that made them too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from fnftg.errors import FnftgError
from fnftg.files import new_folder

FOLDER, CACHED = "restart", "cached-encoder.safetensors"
Weights = dict[str, torch.Tensor]


@dataclass
class TrainingState:
    """How far a run is: `step` steps are done, `epoch` epochs are complete."""

    graph: str  # key of the graph that it trains on
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best: float = -1.0
    best_epoch: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)


def save(
    run: Path, module: nn.Module, optimiser: torch.optim.Optimizer, state: TrainingState, cached: Weights | None = None
) -> None:
    """Replaces the run's restart point in one step; a crash leaves the old one."""
    with new_folder(run / FOLDER, force=True) as folder:
        weights = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
        save_file(weights, folder / "weights.safetensors")
        save_file(_flat(optimiser), folder / "optimiser.safetensors")
        if cached is not None:
            save_file(cached, folder / CACHED)
        (folder / "state.json").write_text(json.dumps(vars(state)), encoding="utf-8")


def exists(run: Path) -> bool:
    return (run / FOLDER / "state.json").is_file()


def load(run: Path, module: nn.Module, optimiser: torch.optim.Optimizer) -> TrainingState:
    folder = run / FOLDER
    try:
        module.load_state_dict(load_file(folder / "weights.safetensors"))
        _restore(optimiser, load_file(folder / "optimiser.safetensors"))
        return TrainingState(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        raise FnftgError(f"The restart point {folder} cannot be read ({error}): train from the start.") from error


def load_cached(run: Path) -> Weights | None:
    """The encoder's weights when the neighbours' features were last computed, where a run has such features."""
    path = run / FOLDER / CACHED
    return load_file(path) if path.is_file() else None


def _flat(optimiser: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimiser.state_dict()["state"]
    return {
        f"{index}.{name}": tensor.contiguous() for index, values in state.items() for name, tensor in values.items()
    }


def _restore(optimiser: torch.optim.Optimizer, flat: dict[str, torch.Tensor]) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in flat.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
