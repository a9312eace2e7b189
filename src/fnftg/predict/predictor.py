"""`Predictor`: a trained model and a graph, ready to be asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fnftg.arrays import Float32Array, Int32Array
from fnftg.ego.context import GraphContext, changed_centres
from fnftg.ego.known_answers import KnownAnswers, new_triples
from fnftg.ego.local_subgraph import EdgeList
from fnftg.ego.neighbours import Neighbours
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.graph_source import open_graph
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.pretrained import CHECKPOINT, from_pretrained
from fnftg.predict import answer_cache
from fnftg.predict.entity_linking import resolved, resolved_delta, resolved_triple
from fnftg.predict.explanation import Explanation, explain
from fnftg.predict.graph_delta import extended_graph
from fnftg.predict.index import HNSW, NearestIndex
from fnftg.predict.inference import answered
from fnftg.predict.name_index import NameIndex
from fnftg.predict.patched_table import PatchedTable
from fnftg.predict.questions import (
    Answer,
    EntityName,
    GraphDelta,
    NewEntity,
    Question,
    RelationName,
    checked_k,
)
from fnftg.predict.state import PredictorState
from fnftg.predict.vectors import entity_vectors
from fnftg.ranking.calibration import load as load_calibration
from fnftg.ranking.runs import RunFolder


class Predictor(PredictorState):
    """A trained model and a graph, ready to be asked. Made by `load`."""

    def tails(self, head: EntityName, relation: RelationName, k: int = 10, known: bool = False) -> list[Answer]:
        """The k likeliest tails; links that are known are left out, unless they are to be kept and marked."""
        return self.many([Question(head=head, relation=relation)], k, known)[0]

    def heads(self, relation: RelationName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """The k likeliest heads."""
        return self.many([Question(relation=relation, tail=tail)], k, known)[0]

    def relations(self, head: EntityName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """The k likeliest relations from head to tail, by the score that the tail has among `tails`."""
        return self.many([Question(head=head, tail=tail)], k, known)[0]

    def many(self, questions: Sequence[Question], k: int = 10, known: bool = False) -> list[list[Answer]]:
        """The answers to many questions at once, each as if it were asked alone."""
        k = checked_k(k)
        asked = [resolved(question, self.entity_names, self.relation_names) for question in questions]
        return answered(self, asked, k, known)

    def explain(
        self,
        head: EntityName,
        relation: RelationName,
        tail: EntityName,
        asked: Literal["tail", "head"] = "tail",
        hide: bool = True,
        nearest: int = 5,
    ) -> Explanation:
        """The reasons for a triple; with something new in it, those of a graph into which that had been imported."""
        one = resolved_triple(head, relation, tail, self.entity_names, self.relation_names)
        predictor, table = self._view(one.delta)
        return explain(predictor, table, one.head, one.relation, one.tail, asked, hide, nearest)

    def vectors(self, entities: Sequence[EntityName]) -> Float32Array:
        """The vectors of entities, known or new, as candidates: (n, d)."""
        asked = [resolved_triple(one, None, None, self.entity_names, self.relation_names) for one in entities]
        return entity_vectors(self, asked)

    def indexed(self) -> Predictor:
        """The same with an index in place of exact search: the one in the folder, or one that is built now."""
        place = None if self.folder is None else self.folder / HNSW
        if place is not None and place.is_dir():
            return replace(self, index=NearestIndex.open(place))
        index = NearestIndex.built(self.model, self.table, self.sample_query_embeddings())
        if place is not None and os.access(place.parent, os.W_OK):
            index.save(place, force=True)
        return replace(self, index=index)

    def add(
        self,
        *entities: NewEntity,
        triples: Sequence[tuple[EntityName, RelationName, EntityName]] = (),
    ) -> Predictor:
        """A new predictor whose graph has these entities and triples too; nothing is written, and this one stays."""
        delta = resolved_delta(entities, triples, self.entity_names, self.relation_names)
        if not delta:
            return self
        view, table = self._view(delta)
        return replace(view, table=table.copied(len(view.graph.entities)))

    def save(self, path: str | os.PathLike[str], force: bool = False) -> KnowledgeGraph:
        """Writes the graph, with what was added, as a new store."""
        return self.graph.save(path, force)

    def _view(self, delta: GraphDelta) -> tuple[Predictor, PatchedTable]:
        """A predictor of the graph with more in it, but for its table; and the table that would fit."""
        if not delta:
            return self, PatchedTable(self.table, np.zeros(0, np.int64), self.table[:0])
        graph = extended_graph(self.graph, delta)
        triples: Triples = np.array(delta.triples, np.int32).reshape(-1, 3)
        sizes = len(graph.entities), len(graph.relations)
        context = GraphContext(
            self.context.texts.extended(graph, self.model.tt.encoder),
            self.context.neighbours.extended(triples, *sizes),
            self.known.extended(triples, *sizes),
            base=self.context,
            added=new_triples(self.known, triples),
            interactive=True,
        )
        changed = changed_rows(self.context.neighbours, triples, graph, self.model)
        table = PatchedTable(self.table, changed.astype(np.int64), answer_cache.embedded(self.model, context, changed))
        view = replace(
            self,
            graph=graph,
            context=context,
            calibration=None if self.calibration is None else self.calibration.bound(_ids(graph)),
            entity_names=NameIndex(graph.entities, "entity", base=self.entity_names),
            relation_names=NameIndex(graph.relations, "relation", base=self.relation_names),
            folder=None,
            index=None,
        )
        return view, table


def changed_rows(neighbours: Neighbours, triples: Triples, graph: KnowledgeGraph, model: LinkPredictor) -> Int32Array:
    """The entities to embed once a graph has grown by some triples: new ones, and those whose ego-graph changed."""
    relations = len(graph.relations)
    added = EdgeList.of(triples, relations, neighbours.directions)
    return changed_centres(neighbours, added, len(graph.entities), model.ego).astype(np.int32)


def load(run: str | os.PathLike[str], graph: str | os.PathLike[str] | KnowledgeGraph | None = None) -> Predictor:
    """A predictor from the folder of a run, or of a model with a graph named beside it.

    The graph is, unless one is given, what `fnftg update` wrote last, else what the run was trained on. The first time
    all candidates are embedded; the run's folder keeps that.

    Examples:
        >>> predictor = fnftg.load("animals-run")
        >>> predictor.tails("dog.n.01", "hypernym", k=3)
    """
    folder = RunFolder(Path(run))
    if graph is None and not folder.is_run and folder.path.is_dir() and (folder.path / "config.json").is_file():
        raise FnftgError(f"{folder.path} does not know its graph: name one with --graph.")
    model = from_pretrained(run).requires_grad_(False)
    opened = graph if isinstance(graph, KnowledgeGraph) else _opened(folder, graph)
    kept = answer_cache.folder_of(folder.path, opened)
    entities, relations = len(opened.entities), len(opened.relations)
    texts = answer_cache.graph_texts(model, opened, kept)

    def made() -> tuple[Neighbours, KnownAnswers, Float32Array]:
        triples = opened.all_triples()
        neighbours = Neighbours.of(triples, entities, relations, model.ego.directions)
        everyone = np.arange(entities, dtype=np.int32)
        table = answer_cache.embedded(model, GraphContext(texts, neighbours), everyone)
        return neighbours, KnownAnswers.of(triples, entities, relations), table

    if answer_cache.get_or_create(kept, lambda partial: answer_cache.write_answers(partial, opened, *made())):
        assert kept is not None
        neighbours = Neighbours.open(kept / answer_cache.NEIGHBOURS)
        known = KnownAnswers(answer_cache.mapped(kept, answer_cache.KNOWN), entities, relations)
        table = answer_cache.mapped(kept, answer_cache.TABLE)
    else:
        kept, (neighbours, known, table) = None, made()
    calibration = load_calibration(folder.path / CHECKPOINT if folder.is_run else folder.path)
    return Predictor(
        folder.path,
        model,
        opened,
        GraphContext(texts, neighbours, known, interactive=True),
        table,
        None if calibration is None else calibration.bound(_ids(opened)),
        NameIndex(opened.entities, "entity", kept),
        NameIndex(opened.relations, "relation", kept),
        kept,
    )


def _opened(folder: RunFolder, graph: Any) -> KnowledgeGraph:
    if graph is not None:
        return open_graph(graph)
    updated = answer_cache.current_graph(folder.path)
    if updated is None:
        return folder.graph()
    if not updated.exists():
        raise FnftgError(f"The updated graph of {folder.path} is gone from {updated}: name the graph with --graph.")
    return open_graph(updated)


def _ids(graph: KnowledgeGraph) -> list[str]:
    return graph.relations.ids.slice(0, len(graph.relations))
