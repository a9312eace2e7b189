"""`LinkPredictor`: what every system of the paper is to training, ranking and prediction."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fnftg.arrays import AnyArray, BoolArray, Int32Array, Int64Array
from fnftg.ego.config import EgoConfig
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.naming import Naming
from fnftg.ego.neighbours import Neighbours
from fnftg.ego.parallels import Parallels
from fnftg.ego.precedents import Precedents
from fnftg.ego.sampling import EgoGraphs, Hidden, sample
from fnftg.ego.votes import Answers, Votes
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.models.losses import RankingLoss
from fnftg.models.voting import NO_VOTES, VotesConfig
from fnftg.text.encoders import TextConfig
from fnftg.text.transformer import GraphTexts


@dataclass(frozen=True)
class GraphContext:
    """What a model may look at: the texts of a graph and the edges that are not held back."""

    texts: GraphTexts
    neighbours: Neighbours
    answers: Answers | None = None  # the same edges by their labels, where lookalikes vote or mentions count
    parallels: Parallels | None = None  # and which labels go together, where that counts
    naming: Naming | None = None  # and which go with texts that name the other end
    precedents: Precedents | None = None  # and how relations that were never trained on are answered

    @classmethod
    def of(cls, model: LinkPredictor, texts: GraphTexts, triples: Triples) -> GraphContext:
        """What the model needs of these triples (n, 3)."""
        neighbours = Neighbours.of(triples, texts.entities, texts.relations, model.ego.directions)
        if model.votes.lookalikes:
            texts.compare_all(model.votes.most_lookalikes)
        by_label = model.votes.lookalikes or model.votes.mentions
        answers = KnownAnswers.of(triples, texts.entities, texts.relations) if by_label else None
        return cls.counted(model, texts, neighbours, answers)

    @classmethod
    def counted(
        cls, model: LinkPredictor, texts: GraphTexts, neighbours: Neighbours, answers: Answers | None
    ) -> GraphContext:
        """With what the model counts in these edges."""
        parallels = Parallels.of(neighbours) if model.votes.parallels else None
        naming = Naming.of(texts.mentions, neighbours) if model.votes.mentions else None
        precedents = Precedents.of(neighbours, model.unmet(texts)) if model.votes.has_precedents else None
        return cls(texts, neighbours, answers, parallels, naming, precedents)

    def votes(
        self,
        config: VotesConfig,
        centres: Int32Array,
        labels: Int32Array,
        hidden: str = "target",
        targets: Int32Array | None = None,
        training: bool = False,
    ) -> Votes | None:
        """What the lookalikes of the centres (q,) answer to the same questions, which edges of the centres are
        parallel to an answer, whom texts name, and what precedents there are while the targets (q,), if any, are
        hidden; None where nothing of this counts. In training there are votes alone. Parallels are also left out where
        every edge of a pair is hidden: then none speaks for the true answer."""
        if not config.counted:
            return None
        votes = Votes.none(len(centres))
        if config.lookalikes:
            assert self.answers is not None
            lookalikes = self.texts.lookalikes(config.lookalikes if training else config.lookalikes_at_evaluation)
            votes = Votes.of(lookalikes, self.answers, centres, labels, config.answers)
        if self.parallels is not None and hidden != "pair" and not training:
            votes = votes.beside("kinship", *self.parallels(self.neighbours, centres, labels, config.answers))
        if self.naming is not None and not training:
            assert self.answers is not None
            votes = votes.beside("mentioned", *self.naming(self.answers, centres, labels))
        if self.precedents is not None and not training:
            assert self.answers is not None
            lookalikes = self.texts.lookalikes(config.lookalikes)
            votes = self.precedents.beside(votes, lookalikes, self.answers, centres, labels, targets, config.answers)
        return votes

    def ego_graphs(
        self,
        config: EgoConfig,
        centres: Int32Array,
        hidden: Hidden | None,
        key: tuple[int, int, int] = (0, 0, 0),
        streams: Int64Array | None = None,
        training: bool = False,
    ) -> EgoGraphs:
        """The sampled ego-graphs; outside training they depend on the centre alone, not on the batch."""
        limit = config.num_neighbours if training else config.num_neighbours_at_evaluation
        if limit == 0:
            return EgoGraphs(np.zeros(len(centres) + 1, np.int64), centres[:0], centres[:0])
        streams = centres.astype(np.int64) if streams is None else streams
        return sample(self.neighbours, centres, limit, key, hidden, streams)


@dataclass(frozen=True)
class ScoredBatch:
    """A step's queries and what they are compared with, as a loss sees them.

    Columns are the candidates of all processes, then the entities of `LinkPredictor.earlier`, if there are any.
    """

    texts: GraphTexts
    centres: Int32Array  # (q,): the entities of this process, each a candidate and the centre of a query
    query_embeddings: Tensor  # (q, d)
    candidates: Tensor  # (n, d)
    candidate_ids: Int32Array  # (n,): the candidates' entities
    answers: Tensor  # (q,): the column of each query's answer
    negatives: Tensor  # (q, n + earlier) of truth values: which columns count against a query
    labels: Int32Array  # (q,): of the queries
    votes: Votes | None = None  # of their lookalikes


class LinkPredictor(nn.Module):
    """Embeds candidates and queries so that `similarity` of the two is the score of the triple.

    A system is made as `System(config, encoder, relations)`: R, of the graph that it is trained on, is what a table of
    relations has rows for.
    """

    system: ClassVar[str]  # its name in `SYSTEMS`
    config: Any  # its config, of which all have `text`
    relations: int  # R
    tt: Any  # what reads the texts; it has the `encoder`
    ego: EgoConfig
    width: int
    by_distance: bool  # the similarity is minus the L1 distance, for which there are faster ways to rank
    votes: VotesConfig = NO_VOTES  # of lookalikes, which add to the similarity
    allow_self_answers: bool = True  # an entity may be its own answer, also where no triple of train says so

    @abstractmethod
    def forward(
        self, texts: GraphTexts, centres: Int32Array, egos: EgoGraphs, labels: Int32Array | None, candidates: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Candidate vectors (n, d) of the centres, if asked for, and, given the labels of queries (a relation r, or
        R + r for the inverse of r), the points (n, d) of these queries."""

    @abstractmethod
    def similarity(self, query_embeddings: Tensor, candidates: Tensor) -> Tensor:
        """(q, d) against (n, d) → scores (q, n)."""

    def added(self, texts: GraphTexts, labels: Int32Array, votes: Votes) -> Tensor:
        """What votes and all beside them add to the scores of the answers (e,) of queries with these labels (q,)."""
        raise NotImplementedError

    def unmet(self, texts: GraphTexts) -> BoolArray:
        """Which labels of the graph (2R,) were never trained on; asked of systems that count precedents."""
        raise NotImplementedError

    # What training asks for

    def meet(self, texts: GraphTexts, relations: Int32Array) -> None:
        """Is told which relations, rows of the graph, will be trained on; most systems need not know."""

    @property
    def reads_query_texts(self) -> bool:
        """Whether [h‖r] is read as a text, whose features a frozen encoder computes in advance."""
        return False

    def loss(self, compared: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """What is trained for: the ranking loss of the scores, unless a system has more to learn."""
        scores = self.similarity(compared.query_embeddings, compared.candidates).float()  # (q, n)
        if compared.votes is not None:
            scores = scores + self.vote_scores(compared, compared.votes)
        return ranking(scores, compared.answers, compared.negatives)  # type: ignore[no-any-return]

    def vote_scores(self, compared: ScoredBatch, votes: Votes) -> Tensor:
        """What votes add to the scores of a batch: (q, n)."""
        added = self.added(compared.texts, compared.labels, votes)  # (e,)

        def moved(rows: AnyArray) -> Tensor:
            return torch.from_numpy(rows).to(added.device)

        distinct, of_column = np.unique(compared.candidate_ids, return_inverse=True)
        place = np.minimum(np.searchsorted(distinct, votes.entities), len(distinct) - 1)
        here = np.flatnonzero(distinct[place] == votes.entities)
        of_entity = added.new_zeros(len(compared.centres), len(distinct)).index_put(
            (moved(votes.queries[here]), moved(place[here])), added[moved(here)]
        )
        return of_entity.index_select(1, moved(of_column.reshape(-1)))

    def queue_ids(self) -> Int32Array:
        """Entities of earlier batches that a system keeps as further negatives."""
        return np.zeros(0, np.int32)

    # Texts and folders

    def texts(self, graph: KnowledgeGraph, cache: Path | None = None) -> GraphTexts:
        """The texts of a graph as this system reads them, with all features that it needs, by its present weights."""
        texts = GraphTexts.of(graph, self.tt.encoder, self.config.text, cache)
        if self.config.text.training == "finetune-centre":
            self.tt.refresh(texts)
        return texts

    @staticmethod
    def from_pretrained(name: str | os.PathLike[str]) -> LinkPredictor:
        """A model from its folder, from the folder of the run that trained it, or by its name on the hub."""
        from fnftg.models.pretrained import from_pretrained

        return from_pretrained(name)

    def save_pretrained(
        self, folder: str | os.PathLike[str], metrics: dict[str, Any] | None = None, force: bool = False
    ) -> None:
        """Writes the model as a folder, in one step."""
        from fnftg.models.pretrained import save_pretrained

        save_pretrained(self, folder, metrics, force)


def needs_ego_graphs(text: TextConfig) -> None:
    """Refuses what makes sense with neighbours only."""
    if text.training == "finetune-centre":
        raise FnftgError("text.training finetune-centre is for ego-graphs: without them choose finetune or frozen.")
