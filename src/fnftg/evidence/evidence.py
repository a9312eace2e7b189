"""`Evidence`: the evidence sources of a model and their weights."""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import nn

from fnftg.arrays import BoolArray, Int32Array, IntArray
from fnftg.ego.context import GraphContext, VisibleGraph
from fnftg.evidence.base import EvidenceSource, Finding, QueryBatch
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.sources import make_sources
from fnftg.evidence.table import EvidenceTable
from fnftg.evidence.weights import EvidenceWeights


class Evidence(nn.Module):
    """The evidence sources of one model and their weights.

    Args:
        config: the sources and their settings.
        width: size of the relation vectors that the weights depend on.
        relations: number of relations of the training graph.
    """

    def __init__(self, config: EvidenceConfig, width: int, relations: int):
        super().__init__()
        self.config, self.sources = config, make_sources(config)
        self.weights = EvidenceWeights(width, relations, self.sources, config.initial_weight)

    def register_seen(self, context: GraphContext, relations: IntArray) -> None:
        """Register the relations (n,), as rows of the graph, that the model will be trained on."""
        self.weights.register_seen(relations, context.fingerprints)
        context.memo.clear()  # the statistics of some sources depend on which relations are unseen

    def table(
        self,
        context: VisibleGraph,
        centres: Int32Array,
        labels: Int32Array,
        hidden: Literal["target", "pair"] = "target",
        targets: Int32Array | None = None,
        training: bool = False,
    ) -> EvidenceTable:
        """Collect the evidence for the queries (centre, label, ·), (q,), with the targets (q,), if any, hidden.

        In training, only sources with `in_training` are used.
        """
        unseen = self.unseen(context)
        queries = QueryBatch(centres, labels, unseen[labels], targets, hidden, training)
        found = {
            source.name: source.candidates(self.counts(source, context), context, queries)
            for source in self.sources
            if source.in_training or not training
        }
        return EvidenceTable.join(self.sources, found, queries.unseen, context.entities)

    def findings(
        self, context: VisibleGraph, centre: int, label: int, answer: int, hidden: bool
    ) -> list[tuple[EvidenceSource, Finding]]:
        """Return the sources that support an answer to (centre, label, ·), with their explanations."""
        row, labels = np.array([centre], np.int32), np.array([label], np.int32)
        targets = np.array([answer], np.int32) if hidden else None
        query = QueryBatch(row, labels, self.unseen(context)[labels], targets)
        found = [
            (source, source.explain(self.counts(source, context), context, query, answer)) for source in self.sources
        ]
        return [(source, finding) for source, finding in found if finding]

    def unseen(self, context: VisibleGraph) -> BoolArray:
        """Return which labels (2R,) of the graph are not among the training relations."""
        found: BoolArray = context.counted(
            (self, "unseen"), lambda: np.tile(self.weights.unseen(context.fingerprints), 2)
        )
        return found

    def counts(self, source: EvidenceSource, context: VisibleGraph) -> object:
        """Return the statistics of a source for a context, computed once and then reused."""

        def count() -> object:
            if context.base is None:
                return source.count(context, self.unseen(context))
            return source.extend(self.counts(source, context.base), context, self.unseen(context))

        return context.counted((self, source.name), count)
