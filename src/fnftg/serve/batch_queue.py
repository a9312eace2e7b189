"""The queue of requests: one thread computes them in batches; while it computes, the next batch gathers.

A batch holds requests for the same model and the same kind of answer, up to a budget of new words and of queries. It is
computed with the largest k, and each list of answers is cut to the k of its request. Requests whose client has
disconnected or whose deadline has passed are dropped before a batch is computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from fnftg.errors import FnftgError
from fnftg.predict.inference import answered
from fnftg.predict.questions import ResolvedQuery
from fnftg.serve.api_errors import ApiError
from fnftg.serve.model_manager import LoadedModel
from fnftg.serve.server_metrics import CLIENT_DISCONNECTED, Metrics

logger = logging.getLogger("fnftg.serve")
MAX_BATCH = 256  # queries of a batch
IsDisconnected = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class PredictRequest:
    """The resolved queries of one request to /v1/predict."""

    model: LoadedModel
    queries: Sequence[ResolvedQuery]
    k: int
    known: bool

    @property
    def kind(self) -> object:
        """Equal for all requests of a batch."""
        return self.model, self.known

    @property
    def words(self) -> int:
        """The number of words to encode: those of new texts, as far as the model reads them."""
        limit = self.model.predictor.model.config.text.words
        new = [entity.text for query in self.queries for entity in query.delta.entities]
        new += [relation.text for query in self.queries for relation in query.delta.relations]
        return sum(min(len(text.split(None, limit)), limit) for text in new)


@dataclass(eq=False)
class Job:
    """A request in the queue; `outcome` is the response's body, or an error."""

    work: PredictRequest | Callable[[], Any]
    outcome: asyncio.Future[bytes]
    is_disconnected: IsDisconnected
    queries: int = field(init=False, default=1)
    words: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if isinstance(self.work, PredictRequest):
            self.queries, self.words = len(self.work.queries), self.work.words


class Batcher:
    def __init__(self, metrics: Metrics, queue: int, deadline: float, tokens: int, batching: bool = True):
        self.metrics, self.max_waiting, self.deadline = metrics, queue, deadline
        self.tokens, self.max_batch = tokens, MAX_BATCH if batching else 1
        self.waiting: deque[Job] = deque()
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="fnftg-inference")

    async def submit(self, work: PredictRequest | Callable[[], Any], is_disconnected: IsDisconnected) -> bytes:
        """The JSON of the answer; raises `ApiError`."""
        if len(self.waiting) >= self.max_waiting:
            message = f"{len(self.waiting)} requests are already waiting: try again in a second."
            raise ApiError(429, "busy", message, headers={"Retry-After": "1"})
        job = Job(work, asyncio.get_running_loop().create_future(), is_disconnected)
        self.waiting.append(job)
        self.metrics.queue.set(len(self.waiting))
        self.arrived.set()
        try:
            return await asyncio.wait_for(job.outcome, self.deadline)
        except asyncio.TimeoutError as error:
            raise ApiError(504, "deadline", f"There was no answer within {self.deadline:g} seconds.") from error

    async def run(self) -> None:
        """Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
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

    async def next_batch(self) -> list[Job]:
        """The first job of the queue and those behind it that fit into its batch; empty only if the queue is empty."""
        batch: list[Job] = []
        later: list[Job] = []
        queries = words = 0
        while self.waiting and queries < self.max_batch:
            job = self.waiting.popleft()
            if await self.is_dropped(job):
                continue
            fits = queries + job.queries <= self.max_batch and words + job.words <= self.tokens
            if not batch or (fits and can_share_batch(batch[0].work, job.work)):
                batch.append(job)
                queries, words = queries + job.queries, words + job.words
            else:
                later.append(job)
        self.waiting.extendleft(reversed(later))
        self.metrics.queue.set(len(self.waiting))
        return batch

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
    """The outcome of each request. If a batch fails, each request is computed alone, so that only the bad one fails."""
    try:
        return [*compute_together(works)]
    except Exception as error:
        if len(works) == 1:
            if not isinstance(error, FnftgError):
                logger.exception("A request could not be computed")
            return [error]
    return [outcome for work in works for outcome in compute_batch([work])]


def compute_together(works: Sequence[PredictRequest | Callable[[], Any]]) -> list[bytes]:
    first = works[0]
    if not isinstance(first, PredictRequest):
        return [to_json(first(), inf_nan_mode="null")]
    requests = [work for work in works if isinstance(work, PredictRequest)]
    queries = [query for request in requests for query in request.queries]
    answers = iter(answered(first.model.predictor, queries, max(request.k for request in requests), first.known))
    return [
        to_json({"results": [{"answers": next(answers)[: request.k]} for _ in request.queries]}, inf_nan_mode="null")
        for request in requests
    ]
