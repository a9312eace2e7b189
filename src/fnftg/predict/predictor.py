"""`Predictor`: a trained model and a graph, ready for queries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fnftg.arrays import Float32Array, Int32Array
from fnftg.ego.context import GraphContext, changed_centres
from fnftg.ego.known_answers import new_triples
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
from fnftg.predict.index import INDEX, NearestIndex
from fnftg.predict.inference import answered, missing_answers, triple_probabilities
from fnftg.predict.name_index import NameIndex
from fnftg.predict.patched_table import PatchedTable
from fnftg.predict.probability_reasons import query_reasons
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
from fnftg.predict.triple_probability import load as load_probability
from fnftg.predict.vectors import entity_vectors
from fnftg.ranking.calibration import load as load_calibration
from fnftg.ranking.runs import RunFolder


class Predictor(PredictorState):
    """A trained model and a graph, ready for queries. Created by `load`.

    Entities and relations are given by id, name or row. An entity that the graph does not have is a `NewEntity`, a new
    relation is a `Relation`. Methods raise `FnftgError` if a name is unknown or ambiguous.
    """

    def tails(self, head: EntityName, relation: RelationName, k: int = 10, known: bool = False) -> list[Answer]:
        """Predict the k likeliest tails.

        Args:
            head: an entity of the graph, or a new one.
            relation: a relation of the graph, or a new one.
            k: number of answers.
            known: keep known triples among the answers and mark them, instead of leaving them out.
        """
        return self.many([Question(head=head, relation=relation)], k, known)[0]

    def heads(self, relation: RelationName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """Predict the k likeliest heads. The arguments are as in `tails`."""
        return self.many([Question(relation=relation, tail=tail)], k, known)[0]

    def relations(self, head: EntityName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """Predict the k likeliest relations from head to tail, by the score of (head, relation, ?) for the tail."""
        return self.many([Question(head=head, tail=tail)], k, known)[0]

    def many(self, questions: Sequence[Question], k: int = 10, known: bool = False) -> list[list[Answer]]:
        """Answer many questions in one batch, with the same results as one by one."""
        k = checked_k(k)
        asked = [resolved(question, self.entity_names, self.relation_names) for question in questions]
        return answered(self, asked, k, known)

    def missing_answers(self, questions: Sequence[Question]) -> list[float | None]:
        """Return the probability that each question has an answer which the graph lacks.

        It is None if P(triple) was not fitted (`fnftg calibrate`), or if the question asks for a relation.
        """
        return missing_answers(self, [resolved(one, self.entity_names, self.relation_names) for one in questions])

    def triple_probabilities(
        self, triples: Sequence[tuple[EntityName, RelationName, EntityName]]
    ) -> list[float | None]:
        """Return the probability that each triple is true; None for triples that the graph has.

        Raises:
            FnftgError: if P(triple) was not fitted.

        Examples:
            >>> predictor.triple_probabilities([("dog.n.01", "hypernym", "wolf.n.01")])
        """
        if self.probability is None:
            raise FnftgError(f"{self.run} has no probabilities of triples: run fnftg calibrate {self.run} first.")
        asked = [resolved_triple(*triple, self.entity_names, self.relation_names) for triple in triples]
        return triple_probabilities(self, asked)

    def explain(
        self,
        head: EntityName,
        relation: RelationName,
        tail: EntityName,
        asked: Literal["tail", "head"] = "tail",
        hide: bool = True,
        nearest: int = 5,
    ) -> Explanation:
        """Explain the score of a triple. New entities and relations are treated as if they were in the graph.

        Args:
            head: an entity of the graph, or a new one.
            relation: a relation of the graph, or a new one.
            tail: an entity of the graph, or a new one.
            asked: which end of the triple is the answer.
            hide: remove the triple from both ego-graphs first, as in evaluation.
            nearest: number of similar training triples to list.
        """
        one = resolved_triple(head, relation, tail, self.entity_names, self.relation_names)
        predictor, table = self._view(one.delta)
        [probability] = triple_probabilities(self, [one]) if self.probability is not None else [None]
        of_queries = query_reasons(self, one)
        triple = one.head, one.relation, one.tail
        return explain(predictor, table, *triple, asked, hide, nearest, probability, of_queries)

    def vectors(self, entities: Sequence[EntityName]) -> Float32Array:
        """Return the candidate embeddings (n, d) of known or new entities."""
        asked = [resolved_triple(one, None, None, self.entity_names, self.relation_names) for one in entities]
        return entity_vectors(self, asked)

    def indexed(self) -> Predictor:
        """Return a copy that searches an approximate index, not all candidates. The index is built on first use."""
        place = None if self.folder is None else self.folder / INDEX
        index = NearestIndex.open(place, len(self.table)) if place is not None and place.is_dir() else None
        if index is None:
            index = NearestIndex.built(self.model, self.table, self.sample_query_embeddings())
            if place is not None and os.access(place.parent, os.W_OK):
                index.save(place)
        return replace(self, index=index)

    def add(
        self,
        *entities: NewEntity,
        triples: Sequence[tuple[EntityName, RelationName, EntityName]] = (),
    ) -> Predictor:
        """Return a new predictor whose graph also has these entities and triples. Nothing is written to disk."""
        delta = resolved_delta(entities, triples, self.entity_names, self.relation_names)
        if not delta:
            return self
        view, table = self._view(delta)
        return replace(view, table=table.copied(len(view.graph.entities)))

    def save(self, path: str | os.PathLike[str], force: bool = False) -> KnowledgeGraph:
        """Write the graph, including added entities and triples, as a new store."""
        return self.graph.save(path, force)

    def _view(self, delta: GraphDelta) -> tuple[Predictor, PatchedTable]:
        """Return a predictor of the extended graph with the old table, and the patched table that matches it."""
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
    """Return the entities to embed after adding triples: new entities, and those whose ego-graph changed."""
    relations = len(graph.relations)
    added = EdgeList.of(triples, relations, neighbours.directions)
    return changed_centres(neighbours, added, len(graph.entities), model.ego).astype(np.int32)


def load(run: str | os.PathLike[str], graph: str | os.PathLike[str] | KnowledgeGraph | None = None) -> Predictor:
    """Load a predictor from the folder of a run, or from a model folder and a graph.

    The first call for a graph embeds all its entities and caches the result in the run's folder.

    Args:
        run: folder of a run, or of a model; a model needs `graph`.
        graph: a graph, its name or its path. The default is the graph that the last `fnftg update` wrote, else the
            graph that the run was trained on.

    Raises:
        FnftgError: if the folder is not a run, or the graph is missing.

    Examples:
        >>> predictor = fnftg.load("animals-run")
        >>> predictor.tails("dog.n.01", "hypernym", k=3)
    """
    folder = RunFolder(Path(run))
    if graph is None and not folder.is_run and folder.path.is_dir() and (folder.path / "config.json").is_file():
        raise FnftgError(f"{folder.path} is a model without a graph: name one with --graph.")
    model = from_pretrained(run).requires_grad_(False)
    checkpoint = folder.path / CHECKPOINT if folder.is_run else folder.path
    calibration, probability = load_calibration(checkpoint), load_probability(checkpoint)
    opened = graph if isinstance(graph, KnowledgeGraph) else _opened(folder, graph)
    answers, kept = answer_cache.get_or_create(answer_cache.folder_of(folder.path, opened), model, opened)
    return Predictor(
        folder.path,
        model,
        opened,
        GraphContext(answers.texts, answers.neighbours, answers.known, interactive=True),
        answers.table,
        None if calibration is None else calibration.bound(_ids(opened)),
        None if probability is None else probability.bound(_ids(opened)),
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
        raise FnftgError(f"The updated graph of {folder.path} is missing from {updated}: give a graph with --graph.")
    return open_graph(updated)


def _ids(graph: KnowledgeGraph) -> list[str]:
    return graph.relations.ids.slice(0, len(graph.relations))
