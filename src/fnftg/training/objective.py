"""One step's loss: embed the batch, gather the candidates of all processes, score, compare."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed
from torch import Tensor, nn

from fnftg.ego.sampling import EgoGraphs
from fnftg.ego.votes import Votes
from fnftg.models.losses import LossConfig, RankingLoss
from fnftg.models.predictor import Compared, LinkPredictor
from fnftg.text.transformer import GraphTexts
from fnftg.training.batches import Batch


class Objective(nn.Module):
    def __init__(self, model: LinkPredictor, config: LossConfig):
        super().__init__()
        self.model = model
        self.loss = RankingLoss(config)

    def forward(
        self,
        texts: GraphTexts,
        batch: Batch,
        egos: EgoGraphs,
        negatives: npt.NDArray[np.bool_],
        votes: Votes | None = None,
    ) -> Tensor:
        """The mean loss of the queries (2b,) of this process against the candidates (2B,) of all."""
        candidates, points = self.model(texts, batch.queries.centres, egos, batch.queries.labels, True)
        device = candidates.device
        compared = Compared(
            texts,
            batch.queries.centres,
            points,
            gathered(candidates),
            batch.columns,
            torch.from_numpy(batch.answers).to(device),
            torch.from_numpy(negatives).to(device),
            batch.queries.labels,
            votes,
        )
        return self.model.loss(compared, self.loss)


def gathered(candidates: Tensor) -> Tensor:
    """The candidates of all processes in their order; gradients flow back to each."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return candidates
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(candidates))  # type: ignore[no-untyped-call]
