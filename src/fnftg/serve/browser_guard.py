"""Blocks requests from web pages of other sites, and adds security headers.

A page of another site can make a visitor's browser send requests to a server that only the visitor can reach. The
headers Origin and Sec-Fetch-Site, which pages cannot forge, reveal such requests. If the page points its own name to
the server's address (DNS rebinding), the Host header reveals it. With a token, any Host is allowed, because the browser
sends the cookie only to the name that set it. Programs send neither Origin nor Sec-Fetch-Site and are not affected.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fnftg.serve.api_errors import error_response
from fnftg.serve.options import Options

HEALTH_ROUTES = ("/healthz", "/readyz")  # load balancers have no token and use any name
MOST_HEAD = 16 << 10  # bytes of path, query and headers
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::([0-9]{1,5}))?")
PORTS = {"http": "80", "https": "443"}


class BrowserGuardMiddleware:
    """Rejects requests from other sites and with other Host names; adds the headers to every response."""

    def __init__(self, app: ASGIApp, options: Options):
        self.app, self.bound = app, options.host.lower()
        self.allowed = frozenset(options.allowed_hosts)
        self.checks_host = options.token is None or bool(options.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                page = scope["path"] == "/" or scope["path"].startswith("/page/")
                headers.setdefault("Cache-Control", "no-cache" if page else "no-store")
            await send(message)

        refused = self.find_error(scope)
        if refused is None:
            await self.app(scope, receive, with_headers)
        else:
            await error_response(*refused)(scope, receive, with_headers)

    def find_error(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return status, code and message if the request must be rejected."""
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size + len(scope["query_string"]) + len(scope["path"]) > MOST_HEAD:
            return 431, "too_large", f"The URL and the headers have more than {MOST_HEAD:,} bytes: shorten them."
        if scope["path"] in HEALTH_ROUTES:
            return None
        headers = Headers(scope=scope)
        host = parse_host(headers.get("host", ""))
        if self.checks_host and not self.is_own(host[0]):
            if not host[0]:
                return 403, "host", "The request has no valid Host header: send the name or address of the server."
            return 403, "host", f"The Host {host[0]} is not allowed: add it with --allowed-hosts."
        to_page = scope["method"] == "GET" and scope["path"] == "/"  # any site may link to the page
        origins = headers.getlist("origin")
        if any(not self.is_same_site(origin, host) for origin in origins):
            return 403, "origin", "Pages of other sites cannot use this server: open the server's own address."
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode")
        if site not in ("none", "same-origin") and not origins and not (to_page and mode == "navigate"):
            return 403, "origin", "Pages of other sites cannot use this server: open the server's own address."
        return None

    def is_own(self, name: str) -> bool:
        """Return whether the name is localhost, the server's address (any address if it listens on all) or allowed.

        An IP address is safe because DNS rebinding needs a name.
        """
        if name in self.allowed or name == "localhost" or (name and name == self.bound):
            return True
        address, bound = as_address(name), as_address(self.bound)
        if address is None:
            return False
        return address.is_loopback or address == bound or (bound is not None and bound.is_unspecified)

    def is_same_site(self, origin: str, host: tuple[str, str]) -> bool:
        try:
            scheme, place, path, *_ = urlsplit(origin.lower())
        except ValueError:
            return False
        name, port = parse_host(place)
        if scheme not in PORTS or path or not name:
            return False
        return name in self.allowed or (name, port or PORTS[scheme]) == (host[0], host[1] or PORTS[scheme])


def parse_host(text: str) -> tuple[str, str]:
    """Return name and port in lower case, without brackets; both are empty if the text is not a host."""
    found = HOST.fullmatch(text.lower())
    return ("", "") if found is None else (found[1].strip("[]").rstrip("."), found[2] or "")


def as_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
