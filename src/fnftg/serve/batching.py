"""Questions that arrive together are answered together, on one thread; while it computes, the next batch gathers.

A batch holds requests for the same model and the same kind of answer, as many as a budget of new words and of queries
allows. The largest k is asked for and each list is cut to its own, which is the same answer. Requests whose client is
gone or whose time is over are dropped before a batch is computed.
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
from fnftg.serve.errors import Refusal
from fnftg.serve.loading import Served
from fnftg.serve.metrics import CLIENT_GONE, Metrics

logger = logging.getLogger("fnftg.serve")
MOST_TOGETHER = 256  # queries of a batch
Gone = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class Questions:
    """The queries of one request, resolved."""

    served: Served
    asked: Sequence[ResolvedQuery]
    k: int
    known: bool

    @property
    def kind(self) -> object:
        """What must be equal within a batch."""
        return self.served, self.known

    @property
    def words(self) -> int:
        """Of the texts that have to be encoded, as far as the model reads them."""
        limit = self.served.predictor.model.config.text.words
        new = [entity.text for one in self.asked for entity in one.delta.entities]
        new += [relation.text for one in self.asked for relation in one.delta.relations]
        return sum(min(len(text.split(None, limit)), limit) for text in new)


@dataclass(eq=False)
class Job:
    """Questions, or other work for the thread that computes; `outcome` is the response's body, or an error."""

    work: Questions | Callable[[], Any]
    outcome: asyncio.Future[bytes]
    gone: Gone
    queries: int = field(init=False, default=1)
    words: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if isinstance(self.work, Questions):
            self.queries, self.words = len(self.work.asked), self.work.words


class Batcher:
    def __init__(self, metrics: Metrics, queue: int, deadline: float, tokens: int, batching: bool = True):
        self.metrics, self.most_waiting, self.deadline = metrics, queue, deadline
        self.tokens, self.most_together = tokens, MOST_TOGETHER if batching else 1
        self.waiting: deque[Job] = deque()
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="fnftg-inference")

    async def ask(self, work: Questions | Callable[[], Any], gone: Gone) -> bytes:
        """The JSON of the answer, or a `Refusal`."""
        if len(self.waiting) >= self.most_waiting:
            message = f"{len(self.waiting)} requests are waiting already: try again in a second."
            raise Refusal(429, "busy", message, headers={"Retry-After": "1"})
        job = Job(work, asyncio.get_running_loop().create_future(), gone)
        self.waiting.append(job)
        self.metrics.queue.set(len(self.waiting))
        self.arrived.set()
        try:
            return await asyncio.wait_for(job.outcome, self.deadline)
        except asyncio.TimeoutError as error:
            raise Refusal(504, "deadline", f"There was no answer within {self.deadline:g} seconds.") from error

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self.arrived.wait()
            batch = await self.next_batch()
            if not batch:
                self.arrived.clear()
                continue
            outcomes = await loop.run_in_executor(self.thread, computed, [job.work for job in batch])
            if isinstance(batch[0].work, Questions):
                self.metrics.batches.observe(sum(job.queries for job in batch))
            for job, outcome in zip(batch, outcomes, strict=True):
                settle(job, outcome)

    async def next_batch(self) -> list[Job]:
        """The first that waits, and those behind it that can be answered with it; none only if none waits."""
        batch: list[Job] = []
        later: list[Job] = []
        queries = words = 0
        while self.waiting and queries < self.most_together:
            job = self.waiting.popleft()
            if await self.is_dropped(job):
                continue
            fits = queries + job.queries <= self.most_together and words + job.words <= self.tokens
            if not batch or (fits and alike(batch[0].work, job.work)):
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
        if await job.gone():
            self.metrics.dropped.labels("gone").inc()
            settle(job, Refusal(CLIENT_GONE, "gone", "The client went away."))
            return True
        return False

    async def stop(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for job in self.waiting:
            settle(job, Refusal(503, "stopping", "The server is stopping."))
        self.thread.shutdown(wait=True)


def alike(one: object, other: object) -> bool:
    return isinstance(one, Questions) and isinstance(other, Questions) and one.kind == other.kind


def settle(job: Job, outcome: bytes | Exception) -> None:
    if job.outcome.done():
        return
    if isinstance(outcome, Exception):
        job.outcome.set_exception(outcome)
    else:
        job.outcome.set_result(outcome)


# On the thread that computes


def computed(works: Sequence[Questions | Callable[[], Any]]) -> list[bytes | Exception]:
    """The outcome of each; where a batch fails, each is computed alone, so that only who is to blame suffers."""
    try:
        return list(together(works))
    except Exception as error:
        if len(works) == 1:
            if not isinstance(error, FnftgError):
                logger.exception("A request could not be computed")
            return [error]
    return [outcome for work in works for outcome in computed([work])]


def together(works: Sequence[Questions | Callable[[], Any]]) -> list[bytes]:
    first = works[0]
    if not isinstance(first, Questions):
        return [to_json(first(), inf_nan_mode="null")]
    questions = [work for work in works if isinstance(work, Questions)]
    asked = [one for work in questions for one in work.asked]
    answers = iter(answered(first.served.predictor, asked, max(work.k for work in questions), first.known))
    return [
        to_json({"results": [{"answers": next(answers)[: work.k]} for _ in work.asked]}, inf_nan_mode="null")
        for work in questions
    ]
