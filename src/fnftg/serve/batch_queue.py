"""The request queue: one thread computes requests in batches while the next batch gathers.

A batch holds requests for the same model and kind of answer, up to a budget of new words and queries. It is computed
with the largest k, and each list of answers is cut to the k of its request. Requests are dropped before they are
computed if their client disconnected or their deadline passed.

Clients take turns, and so do the light and the heavy requests of a client. A heavy request is computed alone. A request
therefore waits for at most one heavy request of its own client and of each other client, however long the queue is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from pydantic_core import to_json

from fnftg.errors import FnftgError
from fnftg.memory import hand_back_freed_memory
from fnftg.predict.inference import answered, missing_answers
from fnftg.predict.questions import ResolvedQuery
from fnftg.serve.api_errors import ApiError
from fnftg.serve.model_manager import LoadedModel
from fnftg.serve.server_metrics import CLIENT_DISCONNECTED, Metrics

logger = logging.getLogger("fnftg.serve")
MAX_BATCH = 256  # queries per batch
HAND_BACK_PERIOD = 10.0  # seconds
HEAVY_SHARE = 4  # heavy requests may take 1/HEAVY_SHARE of the queue
MOST_LANES = 10_000  # lanes remembered
IsDisconnected = Callable[[], Awaitable[bool]]
Found = TypeVar("Found")


@dataclass(frozen=True)
class PredictRequest:
    """The resolved queries of one request to /v1/predict."""

    model: LoadedModel
    queries: Sequence[ResolvedQuery]
    k: int
    known: bool
    min_missing: float = 0.0

    @property
    def kind(self) -> object:
        """A key that is equal for all requests that can share a batch."""
        return self.model, self.known

    @property
    def words(self) -> int:
        """The number of words to encode: new texts, cut to the length that the model reads."""
        limit = self.model.predictor.model.config.text.words
        new = [entity.text for query in self.queries for entity in query.delta.entities]
        new += [relation.text for query in self.queries for relation in query.delta.relations]
        return sum(min(len(text.split(None, limit)), limit) for text in new)


@dataclass(eq=False)
class Job:
    """A request in the queue. `outcome` is the body of the response or an error."""

    work: PredictRequest | Callable[[], Any]
    outcome: asyncio.Future[bytes]
    is_disconnected: IsDisconnected
    client: str = ""
    heavy: bool = False
    queries: int = field(init=False, default=1)
    words: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if isinstance(self.work, PredictRequest):
            self.queries, self.words = len(self.work.queries), self.work.words

    @property
    def lane(self) -> tuple[str, bool]:
        """The client and the weight. Jobs of one lane are computed in order of arrival; lanes take turns."""
        return self.client, self.heavy


class Batcher:
    """Queues requests and computes them in batches on one thread."""

    def __init__(self, metrics: Metrics, queue: int, deadline: float, tokens: int, batching: bool = True):
        self.metrics, self.max_waiting, self.deadline = metrics, queue, deadline
        self.tokens, self.max_batch = tokens, MAX_BATCH if batching else 1
        self.waiting: deque[Job] = deque()
        self.arrived = asyncio.Event()
        self.turn = 0
        self.turns: dict[tuple[str, bool], int] = {}  # the turn at which each lane was last served
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="fnftg-inference")

    async def submit(
        self,
        work: PredictRequest | Callable[[], Any],
        is_disconnected: IsDisconnected,
        client: str = "",
        heavy: bool = False,
    ) -> bytes:
        """Queue a request and return the JSON of its answer.

        Raises:
            ApiError: if the queue is full, or the deadline passes.
        """
        waiting = sum(job.heavy for job in self.waiting) if heavy else len(self.waiting)
        if waiting >= (max(self.max_waiting // HEAVY_SHARE, 1) if heavy else self.max_waiting):
            message = f"{waiting} requests are already waiting: try again in a second."
            raise ApiError(429, "busy", message, headers={"Retry-After": "1"})
        job = Job(work, asyncio.get_running_loop().create_future(), is_disconnected, client, heavy)
        self.waiting.append(job)
        self.metrics.queue.set(len(self.waiting))
        self.arrived.set()
        return await in_time(job.outcome, self.deadline)

    async def run(self) -> None:
        """Compute batches until cancelled."""
        loop = asyncio.get_running_loop()
        handed_back = loop.time()
        while True:
            await self.arrived.wait()
            batch = await self.next_batch()
            if not batch:
                self.arrived.clear()
                continue
            outcomes = await loop.run_in_executor(self.thread, compute_batch, [job.work for job in batch])
            if isinstance(batch[0].work, PredictRequest):
                self.metrics.batches.observe(sum(job.queries for job in batch))
            for job, outcome in zip(batch, outcomes, strict=True):
                settle(job, outcome)
            del batch, outcomes
            if loop.time() - handed_back >= HAND_BACK_PERIOD:
                await loop.run_in_executor(self.thread, hand_back_freed_memory)
                handed_back = loop.time()

    async def next_batch(self) -> list[Job]:
        """Return the next job with all jobs that fit into its batch; empty only if the queue is empty."""
        batch: list[Job] = []
        later: list[Job] = []
        queries = words = 0
        self.begin_turn()
        while self.waiting and queries < self.max_batch:
            job = self.waiting.popleft()
            if await self.is_dropped(job):
                continue
            fits = queries + job.queries <= self.max_batch and words + job.words <= self.tokens and not job.heavy
            if not batch or (fits and can_share_batch(batch[0].work, job.work)):
                batch.append(job)
                queries, words = queries + job.queries, words + job.words
                if job.heavy:
                    break
            else:
                later.append(job)
        self.waiting.extendleft(reversed(later))
        self.metrics.queue.set(len(self.waiting))
        return batch

    def begin_turn(self) -> None:
        """Move the first job of the lane that has waited longest to the front of the queue."""
        lanes: dict[tuple[str, bool], Job] = {}
        for job in self.waiting:
            lanes.setdefault(job.lane, job)
        if not lanes or len(self.turns) > MOST_LANES:
            self.turns.clear()
        if lanes:
            first = min(lanes.values(), key=lambda job: self.turns.get(job.lane, 0))
            self.turn += 1
            self.turns[first.lane] = self.turn
            self.waiting.remove(first)
            self.waiting.appendleft(first)

    async def is_dropped(self, job: Job) -> bool:
        if job.outcome.done():  # cancelled by its deadline
            self.metrics.dropped.labels("deadline").inc()
            return True
        if await job.is_disconnected():
            self.metrics.dropped.labels("gone").inc()
            settle(job, ApiError(CLIENT_DISCONNECTED, "gone", "The client disconnected."))
            return True
        return False

    async def stop(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for job in self.waiting:
            settle(job, ApiError(503, "stopping", "The server is stopping."))
        self.thread.shutdown(wait=True)


async def in_time(outcome: asyncio.Future[Found], deadline: float) -> Found:
    """Await the outcome; cancel it and raise `ApiError` if the deadline passes."""
    try:
        return await asyncio.wait_for(outcome, deadline)
    except asyncio.TimeoutError as error:
        raise ApiError(
            504, "deadline", f"The answer took longer than {deadline:g} seconds: send a smaller request."
        ) from error


def can_share_batch(one: object, other: object) -> bool:
    return isinstance(one, PredictRequest) and isinstance(other, PredictRequest) and one.kind == other.kind


def settle(job: Job, outcome: bytes | Exception) -> None:
    if job.outcome.done():
        return
    if isinstance(outcome, Exception):
        job.outcome.set_exception(outcome)
    else:
        job.outcome.set_result(outcome)


# On the inference thread


def compute_batch(works: Sequence[PredictRequest | Callable[[], Any]]) -> list[bytes | Exception]:
    """Compute the outcome of each request. If the batch fails, compute each alone, so that only bad requests fail."""
    try:
        return [*compute_together(works)]
    except Exception as error:
        if len(works) == 1:
            if not isinstance(error, FnftgError):
                logger.exception("Failed to compute a request")
            return [error]
    return [outcome for work in works for outcome in compute_batch([work])]


def compute_together(works: Sequence[PredictRequest | Callable[[], Any]]) -> list[bytes]:
    first = works[0]
    if not isinstance(first, PredictRequest):
        return [to_json(first(), inf_nan_mode="null")]
    requests = [work for work in works if isinstance(work, PredictRequest)]
    predictor, k = first.model.predictor, max(request.k for request in requests)
    queries = [(query, request.min_missing) for request in requests for query in request.queries]
    missing = missing_answers(predictor, [query for query, _ in queries])
    asked = [
        place
        for place, ((_, least), value) in enumerate(zip(queries, missing, strict=True))
        if value is None or value >= least
    ]
    found = dict(zip(asked, answered(predictor, [queries[place][0] for place in asked], k, first.known), strict=True))
    places = iter(range(len(queries)))
    return [
        to_json(
            {
                "results": [
                    {"missing_answer": missing[place], "answers": found.get(place, [])[: request.k]}
                    for place in islice(places, len(request.queries))
                ]
            },
            inf_nan_mode="null",
        )
        for request in requests
    ]
