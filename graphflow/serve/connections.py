"""HTTP connections: uvicorn's, with limits for clients that send too much or too slowly.

In: the bytes of a connection.  Out: ASGI requests.  What always holds: a head that is too large or
too slow, a client that does not read its answers, and requests that are sent ahead of all answers
end their connection, not the server.

uvicorn bounds none of these.  A body has its limits in `request_bodies`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from graphflow.serve.serve_limits import ServeLimits

MOST_AHEAD = 16
"""Requests of a connection that may wait for the answer to an earlier one."""

_BUSY_BODY = b'{"error":"there are too many connections; try again later"}'
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
) % (len(_BUSY_BODY), _BUSY_BODY)


class LimitedConfig(uvicorn.Config):
    """The configuration of a server whose connections have limits."""

    def __init__(self, app: Any, limits: ServeLimits, **options: Any) -> None:
        super().__init__(app, http=LimitedConnection, **options)
        self.limits = limits


class LimitedConnection(HttpToolsProtocol):
    """A connection with limits."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, LimitedConfig)
        self._limits = config.limits
        self._is_in_head = True
        self._unfinished = 0
        """Bytes of a head that came in pieces."""
        self._headers_bytes = 0
        self._request_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, or refuse one connection too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.write(_BUSY)
            transport.close()
            return
        self._expect_within(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._expect_nothing()
        self._forget_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head, and the requests that wait for answers."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_head:
            self._unfinished += len(data)
        if self._unfinished > self._limits.head_bytes or len(self.pipeline) > MOST_AHEAD:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._is_in_head, self._unfinished, self._headers_bytes = True, 0, 0
        self._expect_within(self._limits.head_seconds)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of a head, all of which may have come at once."""
        self._headers_bytes += len(name) + len(value)
        if self._headers_bytes > self._limits.head_bytes:
            raise httptools.HttpParserError("the head is too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The end of a head.  A body that is refused is read on, and thrown away: its end has to
        come, too."""
        self._is_in_head, self._unfinished = False, 0
        self._expect_within(self._limits.body_seconds + self._limits.head_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._expect_nothing()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client reads less than it is sent: look from time to time whether it reads at all."""
        super().pause_writing()
        self._watch_unread(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self._forget_unread()
        super().resume_writing()

    def _expect_within(self, seconds: float) -> None:
        """End the connection if the next part of a request is not there within so many seconds."""
        self._expect_nothing()
        self._request_timer = self.loop.call_later(seconds, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _watch_unread(self, unread: int) -> None:
        def look() -> None:
            now = self.transport.get_write_buffer_size()
            if now >= unread:
                self.transport.abort()
            else:
                self._watch_unread(now)

        self._forget_unread()
        self._unread_timer = self.loop.call_later(self._limits.idle_seconds, look)

    def _forget_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
