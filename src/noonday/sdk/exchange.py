"""The exchange of an HTTP request for its response, which the transport of the client builds on.

Applications use `SessionExchange`, over a session of aiohttp. A command sends a few requests and ends. It has an exchange
of its own (`cli/exchange.py`), because the import of aiohttp takes as long as the rest of the command.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import aiohttp

CONNECT_SEC = 5.0
"""Seconds that a connection may take to be established."""


class ConnectionBroken(Exception):
    """The connection could not be established, or broke before the response was complete. The text says why."""


@dataclass(frozen=True)
class Response:
    """A response, with its whole body."""

    status: int
    reason: str
    location: str | None
    body: bytes


class HttpExchange(Protocol):
    """Sends requests over connections that it keeps, for one event loop. It follows no redirect, and uses no proxy."""

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request and return its response. Raises ConnectionBroken, and TimeoutError if the response takes too long."""

    async def close(self) -> None:
        """Close all connections."""

    def after_fork(self) -> list[object]:
        """Forget the connections in a forked child: their sockets belong to the parent. Returns them."""


NewExchange = Callable[[float], HttpExchange]
"""Makes an exchange, given the seconds that a request may take."""


class SessionExchange:
    """An exchange over a session of aiohttp, which is imported with the first request."""

    def __init__(self, timeout_sec: float) -> None:
        self._timeout_sec = timeout_sec
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        import aiohttp
        from yarl import URL

        try:
            async with self._opened().request(
                method, URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
            ) as response:
                raw = await response.read()
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as broken:
            raise ConnectionBroken(str(broken)) from broken
        return Response(response.status, response.reason or "", response.headers.get("Location"), raw)

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    def after_fork(self) -> list[object]:
        inherited, self._session = self._session, None
        return [] if inherited is None else [inherited]

    def _opened(self) -> "aiohttp.ClientSession":
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout_sec, sock_connect=CONNECT_SEC),
            )
        return self._session
