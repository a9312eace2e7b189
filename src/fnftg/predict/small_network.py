"""A small neural network for P(triple): two hidden layers, fitted to examples of which only a part is labelled.

Two networks are fitted to one half of the examples each. How the other half answers them shows how far they can be
trusted, which scales the mean of the two (Platt scaling on held-out examples).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnftg.arrays import BoolArray, Float64Array
from fnftg.predict.logistic import LIMIT, Logistic

HIDDEN, STEPS, BATCH = 32, 800, 4096
LEARNING_RATE, DECAY = 0.01, 0.1  # of AdamW, with cosine decay
WIDEST = 6.0  # standardised features are clipped to ±WIDEST
LEAST_SHARE = 1e-5  # of hits, for the first guess


@dataclass(frozen=True)
class Network:
    """Two small networks of standardised features; their mean log-odds, scaled and shifted."""

    mean: Float64Array  # (F,)
    spread: Float64Array  # (F,)
    layers: Sequence[Sequence[Float64Array]]  # of each network: weights and bias of three layers
    scale: float
    intercept: float
    shift: float = 0.0

    def logits(self, features: Float64Array) -> Float64Array:
        """Return the log-odds (n,) of features (n, F)."""
        inputs = standardised(features, self.mean, self.spread)
        mean = np.mean([outputs(layers, inputs) for layers in self.layers], axis=0)
        return np.asarray(np.clip(self.scale * mean + self.intercept + self.shift, -LIMIT, LIMIT))

    @classmethod
    def fitted(
        cls, features: Float64Array, hits: BoolArray, labelled: float = 1.0, shift: float = 0.0, seed: int = 0
    ) -> Network:
        """Fit to examples (n,), a share `labelled` of whose true ones are hits; `shift` is added in use."""
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-9, spread, 1.0)
        inputs = standardised(features, mean, spread)
        half = np.random.default_rng(seed).permutation(len(hits)) % 2 == 0
        layers, held_out = [], np.zeros(len(hits))
        for number, chosen in enumerate((half, ~half)):
            layers.append(trained(inputs[chosen], hits[chosen], labelled, seed + number))
            held_out[~chosen] = outputs(layers[-1], inputs[~chosen])
        one_slot = np.zeros(len(hits), np.int64)
        scaled = Logistic.fitted(held_out[:, None], hits, one_slot, 1, labelled=labelled)
        return cls(mean, spread, layers, max(float(scaled.weights[0]), 0.0), scaled.intercept, shift)

    def plain(self) -> dict[str, Any]:
        """Return the network as JSON values."""
        return {
            "mean": self.mean.tolist(),
            "spread": self.spread.tolist(),
            "layers": [[part.tolist() for part in layers] for layers in self.layers],
            "scale": self.scale,
            "intercept": self.intercept,
            "shift": self.shift,
        }

    @classmethod
    def read(cls, value: Mapping[str, Any], size: int) -> Network:
        """Read what `plain` returned, for this number of features; raise ValueError if it is no network."""
        mean, spread = (np.array(value[name], np.float64) for name in ("mean", "spread"))
        layers = [[np.array(part, np.float64) for part in one] for one in value["layers"]]
        numbers = [float(value[name]) for name in ("scale", "intercept", "shift")]
        shapes = [(HIDDEN, size), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (1, HIDDEN), (1,)]
        whole = mean.shape == spread.shape == (size,) and len(layers) == 2
        whole = whole and all([part.shape for part in one] == shapes for one in layers)
        parts = [mean, spread, np.array(numbers), *(part for one in layers for part in one)]
        if not whole or not all(np.isfinite(part).all() for part in parts) or (spread <= 0).any():
            raise ValueError("no network")
        return cls(mean, spread, layers, *numbers)


def standardised(features: Float64Array, mean: Float64Array, spread: Float64Array) -> Float64Array:
    return np.asarray(np.clip((features - mean) / spread, -WIDEST, WIDEST))


def outputs(layers: Sequence[Float64Array], inputs: Float64Array) -> Float64Array:
    """Return the log-odds (n,) of standardised features (n, F)."""
    first, first_bias, second, second_bias, last, last_bias = layers
    hidden = np.tanh(np.tanh(inputs @ first.T + first_bias) @ second.T + second_bias)
    return np.asarray(np.clip((hidden @ last.T + last_bias)[:, 0], -LIMIT, LIMIT))


@torch.inference_mode(False)
@torch.enable_grad()
def trained(inputs: Float64Array, hits: BoolArray, labelled: float, seed: int) -> list[Float64Array]:
    """Train a network and return its layers."""
    random = torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(inputs).float(), torch.from_numpy(hits).float()
    sizes = [(x.shape[1], HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)]
    parts: list[Tensor] = []
    for fan_in, fan_out in sizes:
        bound = fan_in**-0.5
        parts.append((2 * torch.rand(fan_out, fan_in, generator=random) - 1) * bound)
        parts.append((2 * torch.rand(fan_out, generator=random) - 1) * bound)
    share = min(max(float(y.mean()) / labelled, LEAST_SHARE), 0.5)
    parts[-1] = torch.full((1,), float(np.log(share / (1 - share))))
    parameters = [part.requires_grad_() for part in parts]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(y), (min(BATCH, len(y)),), generator=random)
        hidden = torch.tanh(x[rows] @ parameters[0].T + parameters[1])
        hidden = torch.tanh(hidden @ parameters[2].T + parameters[3])
        true = torch.sigmoid((hidden @ parameters[4].T + parameters[5])[:, 0])
        loss = torch.nn.functional.binary_cross_entropy((labelled * true).clamp(1e-7, 1 - 1e-7), y[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return [part.detach().double().numpy() for part in parameters]
