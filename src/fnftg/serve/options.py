"""The options of `fnftg serve`. Worker processes read them from the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

VARIABLE = "FNFTG_SERVE"  # environment variable that passes the options to workers


@dataclass(frozen=True)
class Options:
    """The options of a server. See `fnftg serve --help`."""

    run: str
    graph: str | None = None
    index: bool = False  # search an approximate index
    token: str | None = None
    queue: int = 256  # maximum number of waiting requests
    deadline: float = 30.0  # seconds per request
    tokens: int = 4096  # maximum number of words of new texts per batch
    batching: bool = True
    host: str = "127.0.0.1"  # address to listen on
    allowed_hosts: Sequence[str] = ()  # accepted Host names, besides localhost and the address
    max_connections: int | None = None
    behind_proxy: bool = False  # clients share the address of a proxy
    behind_https: bool = False  # the proxy uses HTTPS
    generation: str | None = None  # a file; all workers reload when its content changes

    def to_environment(self) -> None:
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Options:
        return cls(**json.loads(os.environ[VARIABLE]))
