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
        temperature: of infonce: what scores are divided by at the start; learned from there.
    """

    name: Literal["margin", "infonce", "nll"] = "margin"
    margin: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in ("margin", "infonce", "nll"):
            raise FnftgError(f"There is no loss {self.name!r}: choose margin, infonce or nll.")
        if self.temperature <= 0 or self.margin < 0:
            raise FnftgError("A loss needs temperature > 0 and margin ≥ 0.")


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
            return margin_loss(scores, answers, negatives, self.config.margin)
        if self.config.name == "nll":
            return nll_loss(scores + self.config.margin, answers, negatives)
        return info_nce(scores * self.log_scale.exp(), answers, negatives)


def margin_loss(scores: Tensor, answers: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Mean of max(0, margin − f(t) + f(t')) over pairs of the true triple t and a corrupted one t'."""
    true = scores.gather(1, answers[:, None])  # (q, 1)
    violations = (margin - true + scores).clamp(min=0) * negatives  # (q, n)
    return violations.sum() / negatives.sum().clamp(min=1)


def nll_loss(scores: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
    """Half of −log σ(f(t)), the mean over true triples, plus −log σ(−f(t')), the mean over corrupted ones."""
    true = functional.softplus(-scores.gather(1, answers[:, None])).mean()
    corrupted = (functional.softplus(scores) * negatives).sum() / negatives.sum().clamp(min=1)
    return (true + corrupted) / 2


def info_nce(logits: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
    """Cross-entropy of the true answer among the negatives."""
    counted = negatives.scatter(1, answers[:, None], True)
    return functional.cross_entropy(logits.masked_fill(~counted, -torch.inf), answers)
