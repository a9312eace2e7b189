"""Losses over a batch's matrix of scores: in row i the true answer stands in column `answers[i]`.

`negatives` says which columns count against row i: all heads and tails of the batch ("two-sided reflexive": the query's
own entity too), but neither the target nor another answer that is known to be true.
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
    """What a batch of scores is trained for.

    Args:
        name: margin, the paper's; infonce, which learns faster from frozen texts; or nll: true or not, for each triple.
        margin: of the margin loss; of nll what is added to the scores (KEPLER's γ is 4, BLP's 0).
        average: of the margin loss: over all pairs, over the violating ones, or over the hardest of each query.
        temperature: of infonce: what scores are divided by at the start; learned from there.
        label_smoothing: of infonce.
    """

    name: Literal["margin", "infonce", "nll"] = "margin"
    margin: float = 1.0
    average: Literal["pairs", "violating", "hardest"] = "pairs"
    temperature: float = 1.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ("margin", "infonce", "nll") or self.average not in ("pairs", "violating", "hardest"):
            raise FnftgError(f"There is no loss {self.name!r} with average {self.average!r}.")
        if self.temperature <= 0 or self.margin < 0 or not 0 <= self.label_smoothing < 1:
            raise FnftgError("A loss needs temperature > 0, margin ≥ 0 and label_smoothing in [0, 1).")


class RankingLoss(nn.Module):
    def __init__(self, config: LossConfig):
        super().__init__()
        self.config = config
        self.log_scale = nn.Parameter(
            torch.tensor(-math.log(config.temperature)), requires_grad=config.name == "infonce"
        )

    def forward(self, scores: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
        """scores (q, n), answers (q,), negatives (q, n) of truth values → one number."""
        if self.config.name == "margin":
            return margin_loss(scores, answers, negatives, self.config.margin, self.config.average)
        if self.config.name == "nll":
            return nll_loss(scores + self.config.margin, answers, negatives)
        return info_nce(scores * self.log_scale.exp(), answers, negatives, self.config.label_smoothing)


def margin_loss(scores: Tensor, answers: Tensor, negatives: Tensor, margin: float, average: str = "pairs") -> Tensor:
    """Mean of max(0, margin − f(t) + f(t')) over pairs of the true triple t and a corrupted one t'."""
    true = scores.gather(1, answers[:, None])  # (q, 1)
    violations = (margin - true + scores).clamp(min=0) * negatives  # (q, n)
    if average == "hardest":
        return violations.max(dim=1).values.mean()
    counted = negatives if average == "pairs" else violations > 0
    return violations.sum() / counted.sum().clamp(min=1)


def nll_loss(scores: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
    """Half of −log σ(f(t)), the mean over true triples, plus −log σ(−f(t')), the mean over corrupted ones."""
    true = functional.softplus(-scores.gather(1, answers[:, None])).mean()
    corrupted = (functional.softplus(scores) * negatives).sum() / negatives.sum().clamp(min=1)
    return (true + corrupted) / 2


def info_nce(logits: Tensor, answers: Tensor, negatives: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of the true answer among the negatives."""
    counted = negatives.scatter(1, answers[:, None], True)
    if label_smoothing:
        logs = logits.masked_fill(~counted, -torch.inf).log_softmax(1)
        true = logs.gather(1, answers[:, None]).squeeze(1)
        others = logs.masked_fill(~counted, 0).sum(1) / counted.sum(1)
        return -((1 - label_smoothing) * true + label_smoothing * others).mean()
    return functional.cross_entropy(logits.masked_fill(~counted, -torch.inf), answers)
