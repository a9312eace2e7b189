"""Training batches: the triples of a step, its candidates and its negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.ego.known_answers import KnownAnswers
from fnftg.ego.sampling import Hidden
from fnftg.kg.graph import Triples
from fnftg.ranking.queries import Queries

NOTHING = np.zeros(0, np.int32)


def epoch_order(count: int, seed: int, epoch: int) -> Int64Array:
    """Return the order of the triples in an epoch; it depends only on seed and epoch."""
    return np.random.default_rng([seed, epoch]).permutation(count)


@dataclass(frozen=True)
class TrainingBatch:
    """The queries of one process in one step, and the candidates of all processes.

    The head and the tail of a triple are both candidates and centres of queries, with the same ego-graph, from which
    the triple is hidden. The columns of the score matrix are the heads, then the tails, of each process in order.
    """

    queries: Queries  # (2b,): queries of the triples of this process
    candidate_ids: Int32Array  # (2B,): the entity of each column
    streams: Int64Array  # (2b,): positions of the centres in the whole batch, for random sampling
    answers: Int64Array  # (2b,): the column of each query's answer
    tails: BoolArray  # (2B,): whether a column's entity is the tail of its triple

    @classmethod
    def of(cls, triples: Triples, relations: int, process: int = 0, processes: int = 1) -> TrainingBatch:
        """Return the share of one process in the batch `triples` (B, 3); `processes` must divide B."""
        own = len(triples) // processes
        shares = [Queries.of(triples[p * own : (p + 1) * own], relations) for p in range(processes)]
        candidate_ids = np.concatenate([share.centres for share in shares])
        first = 2 * own * process
        place = np.arange(own)
        in_batch = np.concatenate([process * own + place, len(triples) + process * own + place])
        answers = first + np.concatenate([own + place, place])  # the answer of a head is its tail, and vice versa
        tails = np.tile(np.arange(2 * own) >= own, processes)
        return cls(shares[process], candidate_ids, in_batch, answers, tails)

    def hidden(self, what: str) -> Hidden:
        """Return the edges to hide from the ego-graphs: target or pair."""
        return Hidden(self.queries.answers, self.queries.labels, what)  # type: ignore[arg-type]

    def negatives(
        self,
        known: KnownAnswers | None,
        which: Literal["two-sided", "tied", "drawn"] = "two-sided",
        num_negatives: int = 64,
        key: tuple[int, ...] = (),
        queue_ids: Int32Array = NOTHING,
    ) -> BoolArray:
        """Return which columns, and which entities of earlier batches, are negatives: (2b, 2B + queue).

        The target and known answers are never negatives.

        Args:
            known: known answers to leave out; None leaves out only the target.
            which: two-sided uses all heads and tails, including the query's own entity. tied uses only tails for tail
                queries and heads for head queries. drawn samples from the entities of other triples.
            num_negatives: number of sampled negatives for the two queries of a triple together, with drawn.
            key: seed of the sample.
            queue_ids: entities of earlier batches.
        """
        entities = np.concatenate([self.candidate_ids, queue_ids])
        if known is None:
            others: BoolArray = entities != self.queries.answers[:, None]
        else:
            others = ~known.among(self.queries.centres, self.queries.labels, entities)
        if which == "two-sided":
            return others
        count, half = len(self.candidate_ids), len(self.answers) // 2
        own = self.answers.reshape(2, half)[::-1].reshape(-1)  # the column of each query's own entity
        places = np.arange(len(others))
        chosen = np.ones_like(others)
        if which == "tied":
            chosen[:, :count] = self.tails == (places < half)[:, None]
        else:
            lots = np.random.default_rng(list(key)).random((len(others), count))
            lots[places, self.answers], lots[places, own] = 2, 2
            first = np.argsort(lots, axis=1, kind="stable")[:, : max(num_negatives // 2, 1)]
            chosen[:, :count] = False
            np.put_along_axis(chosen, first, True, axis=1)
        others &= chosen
        return others
