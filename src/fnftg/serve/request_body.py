"""Request bodies: strict JSON, with limits on size and time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from fnftg.serve.api_errors import JSON, ApiError
from fnftg.serve.schemas import MOST_BYTES, MOST_VALUES

BODY_TIMEOUT = 30.0  # seconds to receive a body
MOST_READ = 8 * MOST_BYTES  # bytes after which the connection is closed


class BoundedRequest(Request):
    """A request that limits its body."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            length = self.headers.get("content-length", "")
            if length.isdigit() and int(length[:20]) > MOST_READ:
                raise too_large()
            try:
                with anyio.fail_after(BODY_TIMEOUT):
                    self._body = await self._bounded()
            except TimeoutError as error:
                raise ApiError(
                    408, "slow", f"The body did not arrive within {BODY_TIMEOUT:g} seconds: send the request again."
                ) from error
            media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if self._body and media_type != JSON:
                raise ApiError(415, "content_type", f"The body must be JSON: send the header Content-Type: {JSON}.")
        return self._body

    async def _bounded(self) -> bytes:
        """Read the body but keep no more than MOST_BYTES. Read on after that, so that the client gets the error."""
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
        """Parse JSON more strictly than Python: no NaN, no lone surrogates, limited nesting."""
        try:
            value = from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ApiError(422, "invalid", f"The body is not JSON: {error}.") from error
        if has_more_values(value, MOST_VALUES):
            raise ApiError(
                413, "too_large", f"The body has more than {MOST_VALUES:,} values: send fewer queries at once."
            )
        return value


def has_more_values(value: Any, most: int) -> bool:
    """Return whether a JSON value contains more than `most` values, which would take too long to validate."""
    left, count = [value], 1
    while left:
        value = left.pop()
        if isinstance(value, (dict, list)):
            count += len(value)
            if count > most:
                return True
            left.extend(value.values() if isinstance(value, dict) else value)
    return False


def too_large() -> ApiError:
    message = f"The body has more than {MOST_BYTES:,} bytes: send fewer queries at once."
    return ApiError(413, "too_large", message, headers={"Connection": "close"})


class BoundedRoute(APIRoute):
    """A route that limits the request's body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(BoundedRequest(request.scope, request.receive))

        return bounded
