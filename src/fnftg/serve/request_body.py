"""A request's body: limited in size and in time to arrive, and strict JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from fnftg.serve.api_errors import JSON, ApiError
from fnftg.serve.schemas import MOST_BYTES

BODY_TIMEOUT = 30.0  # seconds for a body to arrive
MOST_READ = 8 * MOST_BYTES  # after which the connection is closed


class BoundedRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            length = self.headers.get("content-length", "")
            if length.isdigit() and int(length[:20]) > MOST_READ:
                raise too_large()
            try:
                with anyio.fail_after(BODY_TIMEOUT):
                    self._body = await self._bounded()
            except TimeoutError as error:
                raise ApiError(408, "slow", f"The body did not arrive within {BODY_TIMEOUT:g} seconds.") from error
            media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if self._body and media_type != JSON:
                raise ApiError(415, "content_type", f"The body must be JSON: send the header Content-Type: {JSON}.")
        return self._body

    async def _bounded(self) -> bytes:
        """Keeps at most MOST_BYTES, whatever Content-Length says; reads on so that the client gets the error."""
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
        """Stricter than Python's parser: no NaN, no lone surrogates, bounded nesting."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ApiError(422, "invalid", f"The body is not JSON: {error}.") from error


def too_large() -> ApiError:
    message = f"The body has more than {MOST_BYTES:,} bytes: send fewer queries at once."
    return ApiError(413, "too_large", message, headers={"Connection": "close"})


class BoundedRoute(APIRoute):
    """A route with a bounded body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(BoundedRequest(request.scope, request.receive))

        return bounded
