"""The loss of a training step."""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor, nn

from fnftg.arrays import BoolArray
from fnftg.ego.context import GraphContext
from fnftg.ego.sampling import EgoGraphs
from fnftg.models.link_predictor import LinkPredictor, ScoredBatch
from fnftg.models.losses import LossConfig, RankingLoss
from fnftg.models.text_inputs import to_device
from fnftg.training.batches import TrainingBatch


class StepInputs:
    """The inputs of a training step.

    A plain class, because Lightning searches the fields of dataclasses for tensors to convert, and copies them.

    Args:
        context: the texts and edges that the model may use.
        batch: the queries.
        egos: the ego-graphs of their centres.
        negatives: the columns (2b, 2B) that are negatives of each query.
    """

    def __init__(self, context: GraphContext, batch: TrainingBatch, egos: EgoGraphs, negatives: BoolArray):
        self.context, self.batch, self.egos, self.negatives = context, batch, egos, negatives


class Objective(nn.Module):
    """Embeds a batch, gathers the candidates of all processes and computes the model's loss."""

    def __init__(self, model: LinkPredictor, config: LossConfig):
        super().__init__()
        self.model = model
        self.loss = RankingLoss(config)

    def forward(self, step: StepInputs) -> Tensor:
        """Return the mean loss of this process's queries (2b,) against the candidates (2B,) of all processes."""
        context, batch = step.context, step.batch
        candidates, query_embeddings = self.model(
            context.texts, batch.queries.centres, step.egos, batch.queries.labels, True
        )
        device = candidates.device
        scored = ScoredBatch(
            context,
            batch.queries.centres,
            batch.queries.labels,
            query_embeddings,
            gathered(candidates),
            batch.candidate_ids,
            to_device(batch.answers, device),
            to_device(step.negatives, device),
        )
        return self.model.loss(scored, self.loss)


def gathered(candidates: Tensor) -> Tensor:
    """Gather the candidates of all processes, in order, with gradients."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return candidates
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(candidates))  # type: ignore[no-untyped-call]
