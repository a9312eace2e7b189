"""`RequestBatch`: requests that are computed together, each with its own additions to the graph.

Only new texts are encoded, and only ego-graphs that new edges change are embedded again. All other candidates come from
the table. The answers equal those of a graph into which the new entities were imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from fnftg.arrays import AnyArray, Float32Array, Int32Array, Int64Array, IntArray
from fnftg.ego.context import ExtendedContext, VisibleGraph, relation_fingerprints
from fnftg.ego.sampling import EgoGraphs
from fnftg.evidence.table import EvidenceTable
from fnftg.models.evidence_model import EvidenceModel, evidence_of
from fnftg.predict.questions import ResolvedQuery
from fnftg.predict.state import PredictorState
from fnftg.ranking.evidence_scores import EvidenceScores
from fnftg.text.text_transformer import GraphTexts


@dataclass(frozen=True)
class RequestBatch:
    """Requests and a common view of the texts that they add. Each request has its own numbers for what is new."""

    predictor: PredictorState
    asked: Sequence[ResolvedQuery]
    texts: GraphTexts
    first_entity: Int64Array  # (q,): number of new entities of all earlier requests
    first_relation: Int64Array  # (q,)

    @classmethod
    def of(cls, predictor: PredictorState, asked: Sequence[ResolvedQuery]) -> RequestBatch:
        entities = [entity.text for one in asked for entity in one.delta.entities]
        relations = [relation.text for one in asked for relation in one.delta.relations]
        texts = predictor.context.texts
        if entities or relations:
            view = predictor.graph.extended(
                {f"\x1f{place}": text for place, text in enumerate(entities)},
                {f"\x1f{place}": text for place, text in enumerate(relations)},
            )
            texts = texts.extended(view, predictor.model.tt.encoder)
        counts = np.array([(len(one.delta.entities), len(one.delta.relations)) for one in asked], np.int64)
        first = np.cumsum(counts, axis=0) - counts
        return cls(predictor, asked, texts, first[:, 0], first[:, 1])

    @cached_property
    def contexts(self) -> list[VisibleGraph]:
        """The visible graph of each request, including what it adds."""
        return [
            self.context(request) if one.delta else self.predictor.context for request, one in enumerate(self.asked)
        ]

    def context(self, request: int) -> ExtendedContext:
        delta, graph = self.asked[request].delta, self.predictor.graph
        new = len(graph.entities) + np.arange(len(delta.entities))
        relations = len(graph.relations) + self.first_relation[request] + np.arange(len(delta.relations))

        def features() -> Float32Array:
            assert self.texts.features is not None
            return self.texts.features.take(self.entities(new, request).astype(np.int64))

        return ExtendedContext(
            self.predictor.context,
            np.array(delta.triples, np.int32).reshape(-1, 3),
            [entity.text for entity in delta.entities],
            features,
            [relation.text for relation in delta.relations],
            relation_fingerprints(self.texts, relations),
        )

    def relations_of(self, request: int) -> int:
        """Return the number of relations, including the request's new ones."""
        return len(self.predictor.graph.relations) + len(self.asked[request].delta.relations)

    def changed(self, request: int) -> Int64Array:
        """Return the entities whose ego-graphs the request changes."""
        context = self.contexts[request]
        if not isinstance(context, ExtendedContext):
            return np.zeros(0, np.int64)
        return context.changed_centres(self.predictor.model.ego)

    @cached_property
    def changed_vectors(self) -> dict[int, tuple[Int64Array, Float32Array]]:
        """The entities that each request changes, and their candidate embeddings, computed in one pass."""
        rows = {request: self.changed(request) for request, one in enumerate(self.asked) if one.delta}
        vectors = self.embedded(
            [self.entities(some, request) for request, some in rows.items()],
            [self.ego_graphs(request, some) for request, some in rows.items()],
            None,
        )
        parts = np.split(vectors, np.cumsum([len(some) for some in rows.values()])[:-1]) if rows else []
        return {request: (some, part) for (request, some), part in zip(rows.items(), parts, strict=True)}

    def groups(self, requests: Int64Array) -> list[tuple[int, Int64Array]]:
        """Group queries (q,) by the graph that they see, given their requests; return a request and its queries each.

        All requests without additions see the same graph.
        """
        plain = np.array([not one.delta for one in self.asked])
        seen = np.where(plain[requests], -1, requests) if len(requests) else requests
        return [
            (int(requests[members[0]]), members)
            for members in (np.flatnonzero(seen == request) for request in np.unique(seen))
        ]

    def entities(self, rows: IntArray, request: int) -> Int32Array:
        """Convert a request's entity rows to rows of the common view."""
        own = rows >= len(self.predictor.graph.entities)
        return np.asarray(rows + own * self.first_entity[request], np.int32)

    def labels(self, labels: IntArray, request: int) -> Int32Array:
        """Convert a request's labels to labels of the common view."""
        count = self.relations_of(request)
        relation, inverse = labels % count, labels >= count
        relation = relation + (relation >= len(self.predictor.graph.relations)) * self.first_relation[request]
        return np.asarray(relation + inverse * self.texts.relations, np.int32)

    def ego_graphs(self, request: int, centres: IntArray) -> EgoGraphs:
        """Sample ego-graphs, with rows and labels of the common view."""
        egos = self.contexts[request].ego_graphs(self.predictor.model.ego, centres.astype(np.int32))
        return EgoGraphs(egos.offsets, self.entities(egos.neighbours, request), self.labels(egos.labels, request))

    def embedded(self, centres: list[AnyArray], egos: list[EgoGraphs], labels: Int32Array | None) -> Float32Array:
        """Embed centres as queries if labels are given, else as candidates: (n, d)."""
        model = self.predictor.model
        if not centres:
            return np.empty((0, model.width), np.float32)
        with torch.inference_mode():
            found = model(self.texts, np.concatenate(centres), combined(egos), labels, labels is None)
        vectors: Float32Array = found[0 if labels is None else 1].float().cpu().numpy()
        return vectors

    def evidence(self, queries: Sequence[tuple[int, IntArray, IntArray]], labels: Int32Array) -> EvidenceScores:
        """Return the scores that evidence adds to queries.

        Args:
            queries: requests with centres and labels, in each request's own numbers.
            labels: the same labels (q,), in the numbers of the common view.
        """
        model = self.predictor.model
        evidence = evidence_of(model)
        if evidence is None:
            return EvidenceScores.nothing(len(labels))
        assert isinstance(model, EvidenceModel)
        tables = [
            evidence.table(self.contexts[request], centres.astype(np.int32), own_labels.astype(np.int32))
            for request, centres, own_labels in queries
        ]
        return EvidenceScores.of(model, self.texts, labels, EvidenceTable.combined(tables))


def combined(parts: list[EgoGraphs]) -> EgoGraphs:
    """Concatenate batches of ego-graphs."""
    starts = np.cumsum([0, *(len(part.neighbours) for part in parts)])
    offsets = np.concatenate([[0], *(part.offsets[1:] + start for part, start in zip(parts, starts[:-1], strict=True))])
    return EgoGraphs(
        offsets.astype(np.int64),
        np.concatenate([part.neighbours for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
