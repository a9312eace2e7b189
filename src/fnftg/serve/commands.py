"""`fnftg serve`."""

from __future__ import annotations

import argparse
import os
from typing import Any

from fnftg.console import log
from fnftg.errors import FnftgError
from fnftg.kg.commands.arguments import examples
from fnftg.predict.commands.arguments import add_run

TOKEN = "FNFTG_TOKEN"
HERE = ("127.0.0.1", "::1", "localhost")


def serve(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.description = f"""{parser.description}\n
Questions that arrive together are answered together. The API is described in /openapi.json; /healthz, /readyz and
/metrics are for those who keep it running. SIGHUP, or a POST to /v1/admin/reload, loads the checkpoint that is in RUN
by then while requests go on; SIGTERM and Ctrl-C end it after the last request.

With a token every route but /healthz and /readyz asks for it: as Authorization: Bearer TOKEN, or in a browser once as
/?token=TOKEN."""
    parser.epilog = examples(
        "fnftg serve animals-run",
        "FNFTG_TOKEN=… fnftg serve animals-run --host 0.0.0.0 --port 80",
        "fnftg serve animals-run --index hnsw --workers 4",
    )
    add_run(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="0 is any that is free (default: 8000)")
    parser.add_argument("--token", help=f"what requests must send; {TOKEN} in the environment keeps it out of sight")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the port (default: 1)")
    parser.add_argument("--index", choices=("hnsw",), help="search nearly all in milliseconds; built on first use")
    parser.add_argument(
        "--queue", type=int, default=256, metavar="N", help="requests that may wait; more are told 429 (default: 256)"
    )
    parser.add_argument(
        "--deadline", type=float, default=30.0, metavar="SECONDS", help="then a request is told 504 (default: 30)"
    )
    parser.add_argument(
        "--tokens", type=int, default=4096, metavar="BUDGET", help="words of new texts in one batch (default: 4096)"
    )
    parser.add_argument("--no-batching", action="store_true", help="compute one request after the other")
    chosen = parser.parse_args(arguments)
    check(chosen)
    token = chosen.token if chosen.token is not None else os.environ.pop(TOKEN, None)
    if token is not None and not token.strip():
        raise FnftgError("The token is empty: give one that cannot be guessed, or none.")
    if token is not None and not (token.isascii() and token.strip().isprintable()):
        raise FnftgError("The token cannot be sent in a header: use letters without accents, digits and signs.")
    if token is None and chosen.host not in HERE:
        log(f"Warning: whoever reaches {chosen.host} can use this server: give it a token with {TOKEN}.")
    try:
        from fnftg.serve.options import Options
        from fnftg.serve.running import run
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
    )
    run(options, chosen.host, chosen.port, chosen.workers)


def check(chosen: Any) -> None:
    bounds = {"port": (0, 65535), "workers": (1, 64), "queue": (1, 100_000), "tokens": (1, 1_000_000)}
    for name, (least, most) in bounds.items():
        value = getattr(chosen, name)
        if not least <= value <= most:
            raise FnftgError(f"--{name} is {value}: give a number from {least:,} to {most:,}.")
    if not 0.001 <= chosen.deadline <= 3600:
        raise FnftgError(f"--deadline is {chosen.deadline:g}: give a number of seconds from 0.001 to 3,600.")
