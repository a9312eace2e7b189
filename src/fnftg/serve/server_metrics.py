"""Prometheus metrics: requests, durations, batches and the model."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CLIENT_DISCONNECTED = 499  # the status that nginx uses


class Metrics:
    """The metrics of one app. A process can have several apps."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fnftg_requests", "Requests by route and status", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "fnftg_request_seconds", "Duration of requests", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.batches = Histogram(
            "fnftg_batch_queries", "Queries answered together", buckets=SIZES, registry=self.registry
        )
        self.queue = Gauge("fnftg_queue_length", "Requests waiting in the queue", registry=self.registry)
        self.dropped = Counter(
            "fnftg_dropped", "Requests dropped from the queue before computing", ["reason"], registry=self.registry
        )
        self.reloads = Counter("fnftg_reloads", "Reloads of the checkpoint", ["outcome"], registry=self.registry)
        self.model = Gauge(
            "fnftg_model_info",
            "The current model",
            ["checkpoint", "system", "entities"],
            registry=self.registry,
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts and times all requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, start = CLIENT_DISCONNECTED, time.perf_counter()

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)
