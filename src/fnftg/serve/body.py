"""Reading a request's body: no more of it than allowed, no longer than the deadline, and strict JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from fnftg.serve.errors import JSON, Refusal
from fnftg.serve.schemas import MOST_BYTES

SLOWEST = 30.0  # seconds that a body may take to arrive
MOST_READ = 8 * MOST_BYTES  # and then the connection is closed


class BoundedRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            length = self.headers.get("content-length", "")
            if length.isdigit() and int(length[:20]) > MOST_READ:
                raise too_large()
            try:
                with anyio.fail_after(SLOWEST):
                    self._body = await self._bounded()
            except TimeoutError as error:
                raise Refusal(408, "slow", f"The body did not arrive within {SLOWEST:g} seconds.") from error
            sort = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if self._body and sort != JSON:
                raise Refusal(415, "content_type", f"A body must be JSON: send the header Content-Type: {JSON}.")
        return self._body

    async def _bounded(self) -> bytes:
        """Keeps no more than allowed, whatever was announced; reads on a little, so that the client hears of it."""
        parts, size = [], 0
        async for part in self.stream():
            size += len(part)
            if size <= MOST_BYTES:
                parts.append(part)
            elif size > MOST_READ:
                break
        if size > MOST_BYTES:
            raise too_large()
        return b"".join(parts)

    async def json(self) -> Any:
        """Stricter than Python's own: no NaN, no halves of surrogate pairs, no depth that would break a stack."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise Refusal(422, "invalid", f"The body is not JSON: {error}.") from error


def too_large() -> Refusal:
    message = f"The body has more than {MOST_BYTES:,} bytes: send fewer queries at once."
    return Refusal(413, "too_large", message, headers={"Connection": "close"})


class BoundedRoute(APIRoute):
    """A route that reads its body in this way."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(BoundedRequest(request.scope, request.receive))

        return bounded
