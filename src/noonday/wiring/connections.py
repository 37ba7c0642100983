"""Connections of clients, bounded: how many there are, how large their headers are, how long they may take.

A client that opens connections and sends nothing, or sends a header byte by byte, costs the server a file descriptor each.
So every connection that waits for its client has a deadline, and when there are too many, the one that has waited longest is
closed for the newest. Connections whose requests are being answered are never closed for others: if all are, a few more
are taken, on which only health is answered.

uvicorn knows neither a limit of the header's size nor one of its time; `limit_concurrency` answers 503 and closes nothing.
"""

import asyncio
import resource
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_SEC = 75
"""Longer than clients keep an idle connection: it is they who let go then, and none writes into a closed one."""
HEADER_BYTES = 65_536
HEADER_SEC = 10.0
BODY_SEC = 30.0
BODY_BYTES_A_SEC = 16_384
"""A body has BODY_SEC, and a second more for so many bytes that have arrived."""
STALLED_SEC = 60.0
"""How long a client may read nothing of its answer."""
SWEEP_SEC = 1.0
RESERVE = 50
"""Connections beyond the limit, for health alone."""
DESCRIPTORS_KEPT = 200
"""File descriptors that are not for clients: the store, servers, webhooks."""
HEALTH_PATHS = (b"/healthz", b"/readyz")


class Awaits(Enum):
    """What a connection waits for."""

    REQUEST = auto()
    HEADER = auto()
    BODY = auto()
    ANSWER = auto()


class Connections:
    """All connections of a server. Closes those that take too long, and the longest waiting one if there are too many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: dict[BoundedProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "BoundedProtocol") -> bool:
        """Count a new connection, and make room for it. Returns whether there is room for more than health."""
        self._open[connection] = None
        if len(self._open) <= self.most:
            return True
        waiting = [each for each in self._open if each.awaits is not Awaits.ANSWER and each is not connection]
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
    def within_files(cls, wanted: int) -> "Connections":
        """As many as are wanted, or as the limit of open files leaves room for, which is raised as far as it goes."""
        files = raise_descriptor_limit()
        room = wanted if files == resource.RLIM_INFINITY else files - DESCRIPTORS_KEPT - RESERVE
        return cls(max(1, min(wanted, room)))

    async def sweep(self) -> None:
        """Close what takes too long, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SEC)
            self.close_late(loop.time())

    def close_late(self, now: float) -> None:
        for each in [each for each in self._open if each.is_late(now)]:
            self._drop(each)

    def _drop(self, connection: "BoundedProtocol") -> None:
        self.remove(connection)
        # A connection that is closed in order waits for its client to read what is left.
        connection.transport.abort()


class BoundedProtocol(HttpToolsProtocol):
    """HTTP on one connection, within the bounds above."""

    def __init__(self, of_server: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._of_server = of_server
        self.awaits = Awaits.REQUEST
        self.since = self.loop.time()
        self._has_room = True
        self._header_bytes = 0
        self._fields_bytes = 0
        self._body_bytes = 0
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._has_room = self._of_server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._of_server.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.awaits is Awaits.REQUEST:
            self._await(Awaits.HEADER)
        elif self.awaits is Awaits.BODY:
            self._body_bytes += len(data)
        was_in_header = self.awaits is Awaits.HEADER
        super().data_received(data)
        # The parser hands over a header when it is whole; until then only the sum of what arrived is known.
        if was_in_header and self.awaits is Awaits.HEADER and not self.transport.is_closing():
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
        self._await(Awaits.BODY)
        is_for_health = self.url.partition(b"?")[0] in HEALTH_PATHS
        # 0 makes uvicorn answer 503 whatever else there is.
        self.limit_concurrency = None if self._has_room or is_for_health else 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._await(Awaits.REQUEST if self.cycle.response_complete else Awaits.ANSWER)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # An answer may be given before the whole body has arrived, or while the next request waits for its own.
        if self.cycle.response_complete and self.awaits is Awaits.ANSWER:
            self._await(Awaits.REQUEST)

    def send_400_response(self, msg: str) -> None:
        if self._fields_bytes > HEADER_BYTES:
            self._refuse_header()
        else:
            super().send_400_response(msg)

    def is_late(self, now: float) -> bool:
        """Tell whether the client has taken too long. Called once every SWEEP_SEC."""
        took = now - self.since
        if self.awaits is Awaits.HEADER:
            return took > HEADER_SEC
        if self.awaits is Awaits.BODY:
            return took > BODY_SEC + self._body_bytes / BODY_BYTES_A_SEC
        if self.awaits is Awaits.REQUEST:
            return took > KEEP_ALIVE_SEC
        return self._is_stalled(now)

    def _is_stalled(self, now: float) -> bool:
        unread, before = self.transport.get_write_buffer_size(), self._unread_bytes
        self._unread_bytes = unread
        if unread == 0 or unread != before:
            self.since = now
            return False
        return now - self.since > STALLED_SEC

    def _await(self, what: Awaits) -> None:
        self.awaits = what
        self.since = self.loop.time()

    def _count_field(self, size: int) -> None:
        self._fields_bytes += size
        if self._fields_bytes > HEADER_BYTES:
            # The parser turns it into an error of its own, after which nothing more of the request is read.
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
