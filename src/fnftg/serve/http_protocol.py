"""The HTTP protocol with time limits for each step, and its uvicorn configuration.

uvicorn closes connections that are idle between two requests (`timeout_keep_alive`). The protocol here also closes
connections whose client takes too long to send a request's head or to receive the response. `request_body` limits the
time for the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fnftg.serve.connection_table import ConnectionTable, client_of, plain_response

BACKLOG = 2048
HEAD_TIMEOUT = 10.0  # seconds to receive the head of a request
IDLE_TIMEOUT = 5  # seconds between two requests
STOP_TIMEOUT = 2.0  # seconds to receive a body or send a response while the server stops
RESPONSE_TIMEOUT = 60.0  # seconds to send a response to the client; then the connection may be closed


class ServerConfig(uvicorn.Config):
    """The uvicorn configuration, with the connection table that the listening socket shares."""

    def __init__(self, app: Any, table: ConnectionTable, **options: Any):
        super().__init__(
            app,
            loop="asyncio",  # other loops bypass ListeningSocket.accept
            http=BoundedProtocol,
            ws="none",
            proxy_headers=False,  # clients are identified by their connection
            server_header=False,
            access_log=False,  # the access log would contain /?token=…
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_TIMEOUT,
            **options,
        )
        self.table = table


class BoundedProtocol(H11Protocol):
    """One HTTP connection. `table` may close it while it waits for its client."""

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ):
        super().__init__(config, server_state, app_state, _loop)
        self.connection = Connection(self, config.table)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connection.made()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.connection.update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.connection.update()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.connection.stall(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.connection.stall(False)

    def shutdown(self) -> None:
        super().shutdown()
        self.connection.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.connection.lost()


class Connection:
    """The state of a connection and its timer."""

    def __init__(self, protocol: BoundedProtocol, table: ConnectionTable):
        self.protocol, self.table = protocol, table
        self.client, self.answering, self.stalled = "", False, False
        self.timer: asyncio.TimerHandle | None = None

    def made(self) -> None:
        self.client = client_of(self.protocol.transport.get_extra_info("peername"))
        self.set_timer(HEAD_TIMEOUT, self.expired)
        self.update()

    def update(self) -> None:
        """Update the state after data has arrived or a response is complete."""
        cycle, transport = self.protocol.cycle, self.protocol.transport
        answering = cycle is not None and not cycle.response_complete
        if answering != self.answering:
            self.answering = answering
            self.stop_timer()
            if not answering:
                self.set_timer(HEAD_TIMEOUT, self.expired)
        if not transport.is_closing():
            waits = not answering or self.stalled or self.protocol.conn.their_state is h11.SEND_BODY
            self.table.set_waiting(self, waits)

    def stall(self, stalled: bool) -> None:
        """Start or stop the response timer when the client reads too slowly or continues."""
        self.stalled = stalled
        if self.answering:
            self.stop_timer()
            if stalled:
                self.set_timer(RESPONSE_TIMEOUT, self.evict)
        self.update()

    def stop(self) -> None:
        """Stop the connection soon: finish requests that are being computed, and drop slow transfers."""

        def give_up() -> None:
            if self in self.table.waiting:
                self.evict()

        self.protocol.loop.call_later(STOP_TIMEOUT, give_up)

    def set_timer(self, seconds: float, action: Callable[[], None]) -> None:
        self.stop_timer()
        self.timer = self.protocol.loop.call_later(seconds, action)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def expired(self) -> None:
        """Close the connection, since the head of a request took too long, or wait for the last response to be read."""
        transport = self.protocol.transport
        if transport.get_write_buffer_size():
            self.set_timer(RESPONSE_TIMEOUT, self.evict)
        elif not transport.is_closing():
            if self.protocol.conn.their_state is h11.IDLE and self.protocol.conn.trailing_data[0]:
                message = "The head of the request did not arrive in time: send the request again."
                transport.write(plain_response("408 Request Timeout", "slow", message))
            transport.close()

    def evict(self) -> None:
        self.protocol.transport.abort()

    def lost(self) -> None:
        self.stop_timer()
        self.table.set_waiting(self, False)
        self.table.closed(self.client)
