"""Limits of client connections: their number, the size of their headers, and their time.

A client that opens connections and sends nothing, or sends a header byte by byte, costs the server one file descriptor per
connection. So every connection that waits for its client has a deadline. When there are too many connections, the server
closes the one that has waited longest for its client. It never closes a connection whose request is being processed. If all
connections are in that state, the server accepts a few more, on which it serves only health checks.

uvicorn has no limit for the size or the time of a header, and its `limit_concurrency` responds with 503 but closes nothing.
"""

import asyncio
import resource
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_SEC = 75
"""Longer than clients keep an idle connection, so that the client closes it and never writes to a closed one."""
HEADER_BYTES = 65_536
HEADER_SEC = 10.0
BODY_SEC = 30.0
BODY_BYTES_A_SEC = 16_384
"""A body may take BODY_SEC, plus one second for each BODY_BYTES_A_SEC bytes received."""
STALLED_SEC = 60.0
"""Time after which a client that reads nothing of its response is disconnected, in seconds."""
SWEEP_SEC = 1.0
RESERVE = 50
"""Connections beyond the limit, for health checks only."""
DESCRIPTORS_KEPT = 200
"""File descriptors reserved for the store, other servers and webhooks."""
HEALTH_PATHS = (b"/healthz", b"/readyz")


class ConnectionState(Enum):
    """The event that a connection waits for; all but ANSWER are actions of the client."""

    REQUEST = auto()
    HEADER = auto()
    BODY = auto()
    ANSWER = auto()


class Connections:
    """The client connections of a server. Closes those that take too long, and the longest waiting one if there are too many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: dict[BoundedProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "BoundedProtocol") -> bool:
        """Add a connection and make room for it. Returns False if the connection may serve only health checks."""
        self._open[connection] = None
        if len(self._open) <= self.most:
            return True
        waiting = [each for each in self._open if each.awaits is not ConnectionState.ANSWER and each is not connection]
        if waiting:
            longest = min(waiting, key=lambda each: each.since)
            self._drop(longest)
            return True
        if len(self._open) > self.most + RESERVE:
            self._drop(connection)
        return False

    def remove(self, connection: "BoundedProtocol") -> None:
        self._open.pop(connection, None)

    @classmethod
    def within_descriptor_limit(cls, most: int) -> "Connections":
        """Return an instance for `most` connections, or fewer if the limit of open files, once raised, allows only fewer."""
        files = raise_descriptor_limit()
        room = most if files == resource.RLIM_INFINITY else files - DESCRIPTORS_KEPT - RESERVE
        return cls(max(1, min(most, room)))

    async def sweep(self) -> None:
        """Close connections that take too long. Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SEC)
            self.close_late(loop.time())

    def close_late(self, now: float) -> None:
        for each in [each for each in self._open if each.is_late(now)]:
            self._drop(each)

    def _drop(self, connection: "BoundedProtocol") -> None:
        self.remove(connection)
        # `close` would wait for the client to read the rest of the response.
        connection.transport.abort()


class BoundedProtocol(HttpToolsProtocol):
    """HTTP on one connection, within the limits of this module."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._all_connections = connections
        self.awaits = ConnectionState.REQUEST
        self.since = self.loop.time()
        self._has_room = True
        self._header_bytes = 0
        self._fields_bytes = 0
        self._body_bytes = 0
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._has_room = self._all_connections.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all_connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.awaits is ConnectionState.REQUEST:
            self._await(ConnectionState.HEADER)
        elif self.awaits is ConnectionState.BODY:
            self._body_bytes += len(data)
        was_in_header = self.awaits is ConnectionState.HEADER
        super().data_received(data)
        # The parser reports a header when it is complete. Until then only the number of bytes received is known.
        if was_in_header and self.awaits is ConnectionState.HEADER and not self.transport.is_closing():
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._refuse_header()

    def on_message_begin(self) -> None:
        self._fields_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_field(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_field(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._header_bytes = self._body_bytes = 0
        self._await(ConnectionState.BODY)
        is_health_check = self.url.partition(b"?")[0] in HEALTH_PATHS
        # With 0, uvicorn responds with 503 to every request.
        self.limit_concurrency = None if self._has_room or is_health_check else 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._await(ConnectionState.REQUEST if self.cycle.response_complete else ConnectionState.ANSWER)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A response may be complete before the whole body has arrived, or while the next request waits for its response.
        if self.cycle.response_complete and self.awaits is ConnectionState.ANSWER:
            self._await(ConnectionState.REQUEST)

    def send_400_response(self, msg: str) -> None:
        if self._fields_bytes > HEADER_BYTES:
            self._refuse_header()
        else:
            super().send_400_response(msg)

    def is_late(self, now: float) -> bool:
        """Return whether the client has taken too long. Called once every SWEEP_SEC."""
        took = now - self.since
        if self.awaits is ConnectionState.HEADER:
            return took > HEADER_SEC
        if self.awaits is ConnectionState.BODY:
            return took > BODY_SEC + self._body_bytes / BODY_BYTES_A_SEC
        if self.awaits is ConnectionState.REQUEST:
            return took > KEEP_ALIVE_SEC
        return self._is_stalled(now)

    def _is_stalled(self, now: float) -> bool:
        unread, before = self.transport.get_write_buffer_size(), self._unread_bytes
        self._unread_bytes = unread
        if unread == 0 or unread != before:
            self.since = now
            return False
        return now - self.since > STALLED_SEC

    def _await(self, state: ConnectionState) -> None:
        self.awaits = state
        self.since = self.loop.time()

    def _count_field(self, size: int) -> None:
        self._fields_bytes += size
        if self._fields_bytes > HEADER_BYTES:
            # The parser turns this into its own error and reads no more of the request.
            raise ValueError("the header is too large")

    def _refuse_header(self) -> None:
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        self.transport.close()


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one. Returns how many files this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems name a hard limit that they do not grant.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
