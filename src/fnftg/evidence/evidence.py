"""`Evidence`: the sources that a model uses and their weights."""

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
    """Made for vectors of `width` and the relations of the graph that the model is trained on."""

    def __init__(self, config: EvidenceConfig, width: int, relations: int):
        super().__init__()
        self.config, self.sources = config, make_sources(config)
        self.weights = EvidenceWeights(width, relations, self.sources, config.initial_weight)

    def register_seen(self, context: GraphContext, relations: IntArray) -> None:
        """Is told which relations (n,), rows of the graph, will be trained on."""
        self.weights.register_seen(relations, context.fingerprints)
        context.memo.clear()  # some sources count what they do for relations that are not seen

    def table(
        self,
        context: VisibleGraph,
        centres: Int32Array,
        labels: Int32Array,
        hidden: Literal["target", "pair"] = "target",
        targets: Int32Array | None = None,
        training: bool = False,
    ) -> EvidenceTable:
        """What speaks for candidates of the queries (centre, label, ·), (q,), while the targets (q,), if any, are
        hidden. In training only some of the sources speak."""
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
        """Why sources speak for an answer of (centre, label, ·), those that do."""
        row, labels = np.array([centre], np.int32), np.array([label], np.int32)
        targets = np.array([answer], np.int32) if hidden else None
        query = QueryBatch(row, labels, self.unseen(context)[labels], targets)
        found = [
            (source, source.explain(self.counts(source, context), context, query, answer)) for source in self.sources
        ]
        return [(source, finding) for source, finding in found if finding]

    def unseen(self, context: VisibleGraph) -> BoolArray:
        """Which labels of the graph (2R,) were never trained on."""
        found: BoolArray = context.counted(
            (self, "unseen"), lambda: np.tile(self.weights.unseen(context.fingerprints), 2)
        )
        return found

    def counts(self, source: EvidenceSource, context: VisibleGraph) -> object:
        """What a source counted once in the graph, or extended once from the graph that this one extends."""

        def count() -> object:
            if context.base is None:
                return source.count(context, self.unseen(context))
            return source.extend(self.counts(source, context.base), context, self.unseen(context))

        return context.counted((self, source.name), count)
