"""`fnftg serve`: serve a model over HTTP."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

from fnftg.console import log
from fnftg.errors import FnftgError, shortened
from fnftg.kg.commands.shared_arguments import examples
from fnftg.predict.commands.arguments import add_run

TOKEN = "FNFTG_TOKEN"
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


def serve(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.description = f"""{parser.description}\n
Queries that arrive together are answered in one batch. /openapi.json describes the API; /healthz, /readyz and /metrics
are for monitoring. SIGHUP or a POST to /v1/admin/reload loads the newest checkpoint in RUN without interrupting
requests. SIGTERM and Ctrl-C stop the server after the last request.

If a token is set, every route except /healthz and /readyz requires it: send Authorization: Bearer TOKEN, or open
/?token=TOKEN once in a browser. Without a token, the server only answers requests to localhost, to its own address and
to the names in --allowed-hosts. Requests from pages of other sites are always rejected."""
    parser.epilog = examples(
        "fnftg serve animals-run",
        "FNFTG_TOKEN=… fnftg serve animals-run --host 0.0.0.0 --port 80",
        "fnftg serve animals-run --index --workers 4",
    )
    add_run(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, only this machine)"
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port to listen on; 0 chooses a free one (default: 8000)"
    )
    parser.add_argument("--token", help=f"token that requests must send (default: the environment variable {TOKEN})")
    parser.add_argument("--workers", type=int, default=1, help="number of processes that share the port (default: 1)")
    parser.add_argument(
        "--index", action="store_true", help="approximate search in milliseconds; the index is built on first use"
    )
    parser.add_argument(
        "--queue",
        type=int,
        default=256,
        metavar="N",
        help="maximum number of waiting requests; further ones get status 429 (default: 256)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="maximum time per request; slower ones get status 504 (default: 30)",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=4096,
        metavar="BUDGET",
        help="maximum number of words of new texts per batch (default: 4096)",
    )
    parser.add_argument(
        "--max-connections",
        type=int,
        metavar="N",
        help="maximum number of open connections (default: 1000, or fewer if the limit of open files is low)",
    )
    parser.add_argument(
        "--allowed-hosts",
        default="",
        metavar="NAMES",
        help="comma-separated Host names to accept, besides localhost and the server's address",
    )
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        help="all clients share the address of a proxy: turns off the limits per client",
    )
    parser.add_argument(
        "--behind-https",
        action="store_true",
        help="the proxy uses HTTPS: like --behind-proxy, and cookies are sent over HTTPS only",
    )
    parser.add_argument("--no-batching", action="store_true", help="compute one request at a time")
    chosen = parser.parse_args(arguments)
    check(chosen)
    token = chosen.token if chosen.token is not None else os.environ.pop(TOKEN, None)
    if token is not None and not token.strip():
        raise FnftgError("The token is empty: give a token that is hard to guess, or leave it out.")
    if token is not None and not (token.isascii() and token.strip().isprintable()):
        raise FnftgError("The token cannot be sent in a header: use printable ASCII characters.")
    if token is None and chosen.host not in LOCAL_HOSTS:
        log(f"Warning: anyone who can reach {chosen.host} can use this server: set a token with {TOKEN}.")
    try:
        from fnftg.serve.options import Options
        from fnftg.serve.server import run
    except ImportError as error:
        raise FnftgError(f"Serving needs {error.name}: pip install 'fnftg[serve]'.") from error
    if not chosen.run.is_dir():
        raise FnftgError(f"{chosen.run} is not a folder: give the folder of a run or of a model.")
    options = Options(
        str(chosen.run),
        chosen.graph,
        chosen.index,
        token.strip() if token else None,
        chosen.queue,
        chosen.deadline,
        chosen.tokens,
        not chosen.no_batching,
        chosen.host,
        host_names(chosen.allowed_hosts),
        chosen.max_connections,
        chosen.behind_proxy or chosen.behind_https,
        chosen.behind_https,
    )
    run(options, chosen.port, chosen.workers)


def host_names(given: str) -> list[str]:
    """Parse the names of --allowed-hosts."""
    names = [name.strip().lower().rstrip(".") for name in given.split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[a-z0-9_.-]+|[0-9a-f:.]+", name):
            raise FnftgError(f"--allowed-hosts contains {shortened(name)}: give names without scheme and port.")
    return names


def check(chosen: Any) -> None:
    bounds = {"port": (0, 65535), "workers": (1, 64), "queue": (1, 100_000), "tokens": (1, 1_000_000)}
    if chosen.max_connections is not None:
        bounds["max-connections"] = (1, 100_000)
    for name, (least, most) in bounds.items():
        value = getattr(chosen, name.replace("-", "_"))
        if not least <= value <= most:
            raise FnftgError(f"--{name} is {value}: give a number from {least:,} to {most:,}.")
    if not 0.001 <= chosen.deadline <= 3600:
        raise FnftgError(f"--deadline is {chosen.deadline:g}: give a number of seconds from 0.001 to 3,600.")
