"""Batches: which triples a step sees, and what its score matrix means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fnftg.ego.answers import KnownAnswers
from fnftg.ego.sampling import Hidden
from fnftg.kg.graph import Triples
from fnftg.ranking.evaluation import Queries

Integers = npt.NDArray[np.int32]


def epoch_order(count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of the triples in an epoch: a function of seed and epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(count)


@dataclass(frozen=True)
class Batch:
    """The triples of one process in one step, and the columns of all processes that its queries are scored against.

    A triple gives two centres, its head and its tail. Each is a candidate and the centre of a query, with the same
    ego-graph, from which the triple is hidden. Columns hold the heads, then the tails, of process after process.
    """

    queries: Queries  # (2b,): of the triples of this process
    columns: Integers  # (2B,): the entity of each column
    streams: npt.NDArray[np.int64]  # (2b,): the places of the centres in the whole batch
    answers: npt.NDArray[np.int64]  # (2b,): the column of each query's answer

    @classmethod
    def of(cls, triples: Triples, relations: int, process: int = 0, processes: int = 1) -> Batch:
        """The share of one process of the batch `triples` (B, 3), which `processes` must divide."""
        own = len(triples) // processes
        shares = [Queries.of(triples[p * own : (p + 1) * own], relations) for p in range(processes)]
        columns = np.concatenate([share.centres for share in shares])
        first = 2 * own * process
        place = np.arange(own)
        in_batch = np.concatenate([process * own + place, len(triples) + process * own + place])
        answers = first + np.concatenate([own + place, place])  # a head's answer is its tail, and the other way round
        return cls(shares[process], columns, in_batch, answers)

    def hidden(self, what: str) -> Hidden:
        return Hidden(self.queries.answers, self.queries.labels, what)  # type: ignore[arg-type]

    def negatives(self, known: KnownAnswers) -> npt.NDArray[np.bool_]:
        """(2b, 2B): every column but the answers that are known to be true, the target among them."""
        return ~known.among(self.queries.centres, self.queries.labels, self.columns)
