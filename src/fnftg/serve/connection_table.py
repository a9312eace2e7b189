"""Limits on open connections, in total and per client, so that the process never runs out of file descriptors.

At a limit, a new connection replaces an idle one: a connection that waits for its client to send a request's head or
body, or the next request. The connection that has waited longest is closed first; at a client's limit, only connections
of that client are closed. If no connection is idle, the new one is answered with status 503 and closed.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import resource
import socket
from collections import Counter
from multiprocessing.reduction import DupFd
from typing import Any, Protocol

from fnftg.errors import FnftgError

logger = logging.getLogger("fnftg.serve")
MOST_CONNECTIONS = 1000
OTHER_FILES = 128  # files reserved for the model and the graph, also while a new one is loaded
LEAST_CONNECTIONS = 16


class Evictable(Protocol):
    """A connection that can be closed immediately."""

    client: str

    def evict(self) -> None: ...


class ConnectionTable:
    """Counts open connections and keeps track of idle ones."""

    def __init__(self, most: int, most_per_client: int):
        self.most, self.most_per_client = most, most_per_client
        self.total, self.open = 0, Counter[str]()  # in total and per client
        self.waiting: dict[Evictable, None] = {}  # the longest waiting first
        self.waiting_of: dict[str, dict[Evictable, None]] = {}  # the same per client

    @property
    def is_full(self) -> bool:
        return self.total >= self.most

    def is_full_for(self, client: str) -> bool:
        return self.open[client] >= self.most_per_client

    def opened(self, client: str) -> None:
        self.total += 1
        self.open[client] += 1

    def closed(self, client: str) -> None:
        self.total -= 1
        self.open[client] -= 1
        if not self.open[client]:
            del self.open[client]

    def set_waiting(self, connection: Evictable, waits: bool) -> None:
        own = self.waiting_of.setdefault(connection.client, {})
        if waits:
            self.waiting.setdefault(connection)
            own.setdefault(connection)
        else:
            self.waiting.pop(connection, None)
            own.pop(connection, None)
        if not own:
            del self.waiting_of[connection.client]

    def evict(self, client: str | None = None) -> bool:
        """Close the longest-waiting connection, of all or of one client; return False if none is idle."""
        connection = next(iter(self.waiting if client is None else self.waiting_of.get(client, ())), None)
        if connection is None:
            return False
        self.set_waiting(connection, False)
        connection.evict()
        return True


def make_table(most: int | None, shared_address: bool) -> ConnectionTable:
    """Create a table for `most` connections, or for as many as the limit of open files allows.

    One client may have half of them, unless clients share an address.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    possible = MOST_CONNECTIONS if files == resource.RLIM_INFINITY else files - OTHER_FILES
    if possible < LEAST_CONNECTIONS:
        needed = OTHER_FILES + LEAST_CONNECTIONS
        raise FnftgError(f"The limit of open files is {files}: raise it to {needed} or more with ulimit -n.")
    if most is not None and most > possible:
        raise FnftgError(f"--max-connections is {most}: the limit of open files allows {possible} (see ulimit -n).")
    most = min(most or MOST_CONNECTIONS, possible)
    return ConnectionTable(most, most if shared_address else max(most // 2, 1))


def client_of(address: Any) -> str:
    """Identify a client by its IPv4 address, or by its IPv6 network, since one machine may own a whole network."""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except (ValueError, LookupError, TypeError):
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))


class ListeningSocket(socket.socket):
    """A listening socket that accepts connections only while the table has room.

    One turn of the event loop accepts all connections that have arrived, so the limit must be checked here.
    """

    def __init__(
        self, family: int = -1, kind: int = -1, protocol: int = -1, file: int | None = None, table: Any = None
    ):
        super().__init__(family, kind, protocol, file)
        self.table: ConnectionTable = table

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; raise BlockingIOError, so that the event loop tries again, if none is accepted."""
        full = self.table.is_full
        if full and self.table.evict():
            raise BlockingIOError  # the next turn has room
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and self.table.evict():
                raise BlockingIOError from error
            raise
        client = client_of(address)
        if full or (self.table.is_full_for(client) and not self.table.evict(client)):
            logger.warning("Refused a connection from %s: too many are open.", client)
            refuse(connection)
            raise BlockingIOError
        self.table.opened(client)
        return connection, address

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling for worker processes."""
        return _in_worker, (DupFd(self.fileno()), self.family, self.type, self.proto, self.table)


def _in_worker(file: Any, family: int, kind: int, protocol: int, table: ConnectionTable) -> ListeningSocket:
    return ListeningSocket(family, kind, protocol, file.detach(), table)


def refuse(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(
            plain_response("503 Service Unavailable", "busy", "Too many connections are open: try again later.")
        )
    connection.close()


def plain_response(status: str, code: str, message: str) -> bytes:
    """Return a complete response, built without the app."""
    body = f'{{"error":{{"code":"{code}","message":"{message}","field":null}}}}'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Retry-After: 1\r\nConnection: close\r\n\r\n{body}".encode()
