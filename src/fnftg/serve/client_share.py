"""Limits the number of concurrent requests per client."""

from __future__ import annotations

from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send

from fnftg.serve.api_errors import error_response
from fnftg.serve.browser_guard import HEALTH_ROUTES
from fnftg.serve.connection_table import client_of


class ClientShareMiddleware:
    """Answers 429 if a client exceeds its share of requests. A client is the address of a connection."""

    def __init__(self, app: ASGIApp, most: int):
        self.app, self.most = app, most
        self.running = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in HEALTH_ROUTES:
            await self.app(scope, receive, send)
            return
        client = client_of(scope.get("client"))
        if self.running[client] >= self.most:
            message = f"{self.most} of your requests are already in progress: try again in a second."
            await error_response(429, "busy", message, headers={"Retry-After": "1"})(scope, receive, send)
            return
        self.running[client] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.running[client] -= 1
            if not self.running[client]:
                del self.running[client]
