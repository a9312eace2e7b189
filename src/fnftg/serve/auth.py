"""Authentication: every route except the health checks requires the token.

Programs send `Authorization: Bearer TOKEN`. In a browser, open /?token=TOKEN once: the response sets a cookie that
scripts cannot read and other sites cannot send, and redirects to / to remove the token from the address bar.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fnftg.serve.api_errors import error_response
from fnftg.serve.browser_guard import HEALTH_ROUTES

COOKIE = "fnftg"
MOST_FIELDS = 10  # fields in the query of /?token=TOKEN


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class AuthMiddleware:
    """Rejects requests without the token or the cookie."""

    def __init__(self, app: ASGIApp, token: str | None, https: bool = False):
        self.app, self.https = app, https
        self.token = None if token is None else digest(token)
        self.cookie = None if token is None else digest(f"cookie of {token}")  # does not reveal the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.token is None or scope["path"] in HEALTH_ROUTES:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["path"] == "/" and self.is_token(token_in_query(scope["query_string"])):
            response = RedirectResponse("/", 303)
            assert self.cookie is not None
            response.set_cookie(COOKIE, self.cookie, httponly=True, samesite="strict", secure=self.https)
            await response(scope, receive, send)
        elif self.is_token(bearer(headers)) or self.is_cookie(headers.getlist("cookie")):
            await self.app(scope, receive, send)
        else:
            message = "The token is missing or wrong: send Authorization: Bearer TOKEN, or open /?token=TOKEN."
            refused = error_response(401, "unauthorized", message, headers={"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, send)

    def is_token(self, given: str) -> bool:
        """Compare digests in constant time, so that the duration reveals nothing about the token."""
        return self.token is not None and hmac.compare_digest(digest(given), self.token)

    def is_cookie(self, headers: list[str]) -> bool:
        """Parse the cookie by hand: Python's parser takes seconds for some headers."""
        pairs = [pair.strip().partition("=") for header in headers for pair in header.split(";")]
        values = [value for name, _, value in pairs if name == COOKIE]
        return self.cookie is not None and bool(values) and hmac.compare_digest(digest(values[-1]), digest(self.cookie))


def bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def token_in_query(query: bytes) -> str:
    try:
        return parse_qs(query.decode("latin-1"), max_num_fields=MOST_FIELDS).get("token", [""])[-1]
    except ValueError:
        return ""
