"""Restart points: the state from which a stopped run continues bit for bit, as safetensors and JSON files.

Random numbers depend only on (seed, epoch, step) and the learning rate only on the step. A restart point therefore
contains the weights, the optimiser's moments and the progress of the run. If neighbours have cached features, it also
contains the encoder that computed them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from fnftg.checksums import verify_folder
from fnftg.errors import FnftgError
from fnftg.files import new_folder
from fnftg.json_files import read_json, write_json
from fnftg.training.log_file import COLUMNS

FOLDER = KIND = "restart"
WEIGHTS, OPTIMISER, STATE = "weights.safetensors", "optimiser.safetensors", "state.json"
CACHED = "cached-encoder.safetensors"
WHAT_TO_DO = "Restore it, or train from the start into another folder."
LARGEST = 1e18  # of any number in a restart point
Weights = dict[str, torch.Tensor]


@dataclass
class TrainingState:
    """The progress of a run."""

    graph: str  # key of the training graph
    epoch: int = 0  # completed epochs
    step: int = 0  # completed steps
    seconds: float = 0.0  # training time so far
    best: float = -1.0  # best validation MRR
    best_epoch: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)  # rows of log.csv

    def is_valid(self) -> bool:
        """Return whether all fields have values that a run can have."""
        counts = (self.epoch, self.step, self.best_epoch)
        rows = self.log if isinstance(self.log, list) else [None]
        return (
            isinstance(self.graph, str)
            and all(isinstance(count, int) and _is_number(count) and count >= 0 for count in counts)
            and self.best_epoch <= self.epoch
            and _is_number(self.seconds)
            and self.seconds >= 0
            and _is_number(self.best)
            and all(isinstance(row, dict) and row.keys() <= set(COLUMNS) for row in rows)
            and all(_is_number(value) for row in rows for value in row.values())
        )

    def is_reached(self, epochs: int, steps_an_epoch: int) -> bool:
        """Return whether a run with these many epochs and steps per epoch comes through this state."""
        return self.epoch <= epochs and 0 <= self.step - self.epoch * steps_an_epoch < steps_an_epoch


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def save(
    run: Path, module: nn.Module, optimiser: torch.optim.Optimizer, state: TrainingState, cached: Weights | None = None
) -> None:
    """Replace the run's restart point atomically; a crash leaves the old one intact."""
    with new_folder(run / FOLDER, KIND, owned=True) as folder:
        weights = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
        save_file(weights, folder / WEIGHTS)
        save_file(_flat(optimiser), folder / OPTIMISER)
        if cached is not None:
            save_file(cached, folder / CACHED)
        write_json(folder / STATE, vars(state))


def exists(run: Path) -> bool:
    """Return whether a run has a restart point."""
    return (run / FOLDER).is_dir()


def read_state(run: Path) -> TrainingState:
    """Read the progress of a run, after checking the files of its restart point against their checksums."""
    folder = run / FOLDER
    try:
        verify_folder(folder, KIND)
        state = TrainingState(**read_json(folder / STATE))
    except FnftgError as error:
        raise FnftgError(f"{error} {WHAT_TO_DO}") from error
    except TypeError as error:
        raise FnftgError(f"{folder / STATE} does not describe a run. {WHAT_TO_DO}") from error
    if not state.is_valid():
        raise FnftgError(f"{folder / STATE} does not describe a run. {WHAT_TO_DO}")
    return state


def load(run: Path, module: nn.Module, optimiser: torch.optim.Optimizer) -> TrainingState:
    """Load the weights and the optimiser's state from the restart point, and return the progress of the run."""
    folder, state = run / FOLDER, read_state(run)
    try:
        module.load_state_dict(load_file(folder / WEIGHTS))
        _restore(optimiser, load_file(folder / OPTIMISER))
    except (OSError, ValueError, RuntimeError, TypeError, KeyError, SafetensorError) as error:
        raise FnftgError(f"The restart point {folder} does not match this model. {WHAT_TO_DO}") from error
    return state


def load_cached(run: Path) -> Weights | None:
    """Read the encoder's weights that computed the cached features of neighbours; None if the run has no cache."""
    path = run / FOLDER / CACHED
    try:
        return load_file(path) if path.is_file() else None
    except (OSError, SafetensorError) as error:
        raise FnftgError(f"{path} cannot be read. {WHAT_TO_DO}") from error


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
