"""Ranking losses over the score matrix of a batch. The true answer of row i is in column `answers[i]`.

`negatives` marks the columns that are negatives of row i: by default all heads and tails of the batch, including the
query's own entity ("two-sided reflexive"), without the target and other known answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.errors import FnftgError


@dataclass(frozen=True)
class LossConfig:
    """The ranking loss.

    Args:
        name: margin (the paper's), infonce (trains faster with a frozen encoder), or nll (binary cross-entropy).
        margin: margin of the margin loss; for nll, a constant added to the scores (KEPLER uses 4, BLP 0).
        temperature: initial temperature of infonce, which divides the scores and is learned.
    """

    name: Literal["margin", "infonce", "nll"] = "margin"
    margin: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in ("margin", "infonce", "nll"):
            raise FnftgError(f"There is no loss {self.name!r}: choose margin, infonce or nll.")
        if self.temperature <= 0 or self.margin < 0:
            raise FnftgError("training.loss needs temperature > 0 and margin ≥ 0.")


class RankingLoss(nn.Module):
    """The loss that the config names, with a learned temperature for infonce."""

    def __init__(self, config: LossConfig):
        super().__init__()
        self.config = config
        self.log_scale = nn.Parameter(
            torch.tensor(-math.log(config.temperature)), requires_grad=config.name == "infonce"
        )

    def forward(self, scores: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss from scores (q, n), the columns of the answers (q,) and the boolean negatives (q, n)."""
        if self.config.name == "margin":
            return margin_loss(scores, answers, negatives, self.config.margin)
        if self.config.name == "nll":
            return nll_loss(scores + self.config.margin, answers, negatives)
        return info_nce(scores * self.log_scale.exp(), answers, negatives)


def margin_loss(scores: Tensor, answers: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, margin − f(t) + f(t')) over pairs of a true triple t and a corrupted triple t'."""
    true = scores.gather(1, answers[:, None])  # (q, 1)
    violations = (margin - true + scores).clamp(min=0) * negatives  # (q, n)
    return violations.sum() / negatives.sum().clamp(min=1)


def nll_loss(scores: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
    """Return half the sum of −log σ(f(t)), averaged over true triples, and −log σ(−f(t')), over corrupted triples."""
    true = functional.softplus(-scores.gather(1, answers[:, None])).mean()
    corrupted = (functional.softplus(scores) * negatives).sum() / negatives.sum().clamp(min=1)
    return (true + corrupted) / 2


def info_nce(logits: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
    """Return the cross-entropy of the true answer among its negatives."""
    counted = negatives.scatter(1, answers[:, None], True)
    return functional.cross_entropy(logits.masked_fill(~counted, -torch.inf), answers)
