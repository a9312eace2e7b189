"""Batches: which triples a step sees, and what its score matrix means."""

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
    """The order of the triples in an epoch: a function of seed and epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(count)


@dataclass(frozen=True)
class TrainingBatch:
    """The triples of one process in one step, and the columns of all processes that its queries are scored against.

    A triple gives two centres, its head and its tail. Each is a candidate and the centre of a query, with the same
    ego-graph, from which the triple is hidden. Columns hold the heads, then the tails, of process after process.
    """

    queries: Queries  # (2b,): of the triples of this process
    candidate_ids: Int32Array  # (2B,): the entity of each column
    streams: Int64Array  # (2b,): the places of the centres in the whole batch
    answers: Int64Array  # (2b,): the column of each query's answer
    tails: BoolArray  # (2B,): whether a column's entity is the tail of its triple

    @classmethod
    def of(cls, triples: Triples, relations: int, process: int = 0, processes: int = 1) -> TrainingBatch:
        """The share of one process of the batch `triples` (B, 3), which `processes` must divide."""
        own = len(triples) // processes
        shares = [Queries.of(triples[p * own : (p + 1) * own], relations) for p in range(processes)]
        candidate_ids = np.concatenate([share.centres for share in shares])
        first = 2 * own * process
        place = np.arange(own)
        in_batch = np.concatenate([process * own + place, len(triples) + process * own + place])
        answers = first + np.concatenate([own + place, place])  # a head's answer is its tail, and the other way round
        tails = np.tile(np.arange(2 * own) >= own, processes)
        return cls(shares[process], candidate_ids, in_batch, answers, tails)

    def hidden(self, what: str) -> Hidden:
        return Hidden(self.queries.answers, self.queries.labels, what)  # type: ignore[arg-type]

    def negatives(
        self,
        known: KnownAnswers | None,
        which: Literal["two-sided", "tied", "drawn"] = "two-sided",
        num_negatives: int = 64,
        key: tuple[int, ...] = (),
        queue_ids: Int32Array = NOTHING,
    ) -> BoolArray:
        """Which columns count against each query, then which entities of earlier batches: (2b, 2B + queue).

        Never the target, nor what is known to be true. `two-sided`: else every head and tail, the query's own entity
        too; `tied`: of the other triples the tails where a tail is asked for, the heads where a head is; `drawn`: so
        many of a triple's two queries together, drawn from the entities of other triples.
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
