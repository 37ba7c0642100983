"""The exchange of HTTP requests for a command: the HTTP client of the standard library, in threads."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from noonday.sdk.exchange import CONNECT_SEC, ConnectionBroken, Response
from noonday.sdk.sync import SyncClient

T = TypeVar("T")


class BlockingExchange:
    """An exchange whose requests block a thread each. Idle connections are used again.

    A thread whose request is given up loses its connection, and keeps no process from ending.
    """

    def __init__(self, timeout_sec: float) -> None:
        self._timeout_sec = timeout_sec
        self._idle: list[HTTPConnection] = []

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        parts = urlsplit(url)
        connection = self._idle.pop() if self._idle else _new_connection(parts)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        try:
            async with asyncio.timeout(self._timeout_sec):
                response = await _in_thread(lambda: _exchange(connection, method, target, headers, body))
        except BaseException:
            _break(connection)
            raise
        self._idle.append(connection)
        return response

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def after_fork(self) -> list[object]:
        inherited, self._idle = self._idle, []
        return list[object](inherited)


def _new_connection(url: SplitResult) -> HTTPConnection:
    """Return a connection to the server of a URL, which is opened by its first request."""
    host = url.hostname or ""
    if url.scheme == "https":
        from http.client import HTTPSConnection

        return HTTPSConnection(host, url.port, timeout=CONNECT_SEC)
    return HTTPConnection(host, url.port, timeout=CONNECT_SEC)


def _exchange(
    connection: HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: bytes | None
) -> Response:
    """Send a request and read its response, in a thread. Raises ConnectionBroken."""
    try:
        if connection.sock is None:
            connection.connect()
            _without_timeout(connection.sock)
        connection.request(method, target, body, dict(headers))
        with connection.getresponse() as response:
            return Response(response.status, response.reason, response.getheader("Location"), response.read())
    except (OSError, HTTPException) as error:
        connection.close()
        raise ConnectionBroken(str(error) or type(error).__name__) from error


def _without_timeout(sock: socket.socket | None) -> None:
    """Let reads and writes take as long as they do: the task that waits for the thread limits the time."""
    if sock is not None:
        sock.settimeout(None)


def _break(connection: HTTPConnection) -> None:
    """End a connection whose thread may wait for it. The thread closes it."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a function in a thread of its own. If this task is cancelled, the thread is left to itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="noonday-request", daemon=True).start()
    return await future


def client_of(url: str, token: str | None = None) -> SyncClient:
    """Return a client of a server, for the duration of a command."""
    return SyncClient(url, token, new_exchange=BlockingExchange)
