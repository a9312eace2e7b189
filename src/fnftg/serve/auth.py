"""Authentication: a token on every route except health checks, and security headers for browsers.

A program sends `Authorization: Bearer TOKEN`. A person opens /?token=TOKEN once: the response sets a cookie that no
script can read and no other site can send, and redirects to / without the token in the address.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fnftg.serve.api_errors import error_response

OPEN_ROUTES = ("/healthz", "/readyz")  # for load balancers
COOKIE = "fnftg"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class AuthMiddleware:
    """Lets requests with the token or the cookie pass."""

    def __init__(self, app: ASGIApp, token: str | None):
        self.app = app
        self.token = None if token is None else digest(token)
        self.cookie = None if token is None else digest(f"cookie of {token}")  # does not reveal the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                page = scope["path"] == "/" or scope["path"].startswith("/page/")
                headers.setdefault("Cache-Control", "no-cache" if page else "no-store")
            await send(message)

        if self.token is None or scope["path"] in OPEN_ROUTES:
            await self.app(scope, receive, with_headers)
            return
        headers = Headers(scope=scope)
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if scope["path"] == "/" and tokens and self.is_token(tokens[-1]):
            response = RedirectResponse("/", 303)
            assert self.cookie is not None
            response.set_cookie(COOKIE, self.cookie, httponly=True, samesite="strict")
            await response(scope, receive, with_headers)
        elif self.is_token(bearer(headers)) or self.is_cookie(headers.get("cookie", "")):
            await self.app(scope, receive, with_headers)
        else:
            message = "Send the server's token: Authorization: Bearer TOKEN, or open /?token=TOKEN in a browser."
            refused = error_response(401, "unauthorized", message, headers={"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, with_headers)

    def is_token(self, given: str) -> bool:
        """Compares digests in constant time, so that the duration reveals nothing about the token."""
        return self.token is not None and hmac.compare_digest(digest(given), self.token)

    def is_cookie(self, header: str) -> bool:
        try:
            morsel = SimpleCookie(header).get(COOKIE)
        except CookieError:
            return False
        value = "" if morsel is None else morsel.value
        return self.cookie is not None and hmac.compare_digest(digest(value), digest(self.cookie))


def bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
