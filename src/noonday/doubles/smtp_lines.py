"""Lines of a conversation over a socket, which may become encrypted in the middle."""

import asyncio
import ssl
from typing import cast

MAX_LINE = 2_048
_HIGH = 1024 * 1024


class LineTooLong(Exception):
    """The peer sent more than the maximum without the expected end."""


class Lines(asyncio.Protocol):
    """Reads lines and writes replies. Used by one task."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_encrypted = False
        self.connected = asyncio.get_running_loop().create_future()
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._ended = False
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are not instances of the class.
        self.transport = cast(asyncio.Transport, transport)
        if not self.connected.done():
            self.connected.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > _HIGH and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._arrived.set()

    def eof_received(self) -> None:
        self._ended = True
        self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._arrived.set()

    async def read_line(self) -> str:
        """Return the next line without its end. Raises EOFError, LineTooLong."""
        line = await self.read_until(b"\r\n", MAX_LINE)
        return line.decode("utf-8", "replace")

    async def read_until(self, end: bytes, most: int) -> bytes:
        """Return the bytes before `end`. Raises EOFError, and LineTooLong if there are more than `most`."""
        searched = 0
        while (found := self._buffer.find(end, searched)) < 0:
            if len(self._buffer) > most:
                raise LineTooLong
            searched = max(0, len(self._buffer) - len(end) + 1)
            if self._ended:
                raise EOFError
            self._resume()
            self._arrived.clear()
            await self._arrived.wait()
        if found > most:
            raise LineTooLong
        content = bytes(self._buffer[:found])
        del self._buffer[: found + len(end)]
        return content

    async def read_content(self, most: int) -> bytes:
        """Return a message up to the line with a lone dot, without the doubled dots. Raises EOFError, LineTooLong."""
        # The end may follow immediately: the command line before it is its first line break.
        self._buffer[:0] = b"\r\n"
        content = await self.read_until(b"\r\n.\r\n", most)
        return content.replace(b"\r\n..", b"\r\n.")[2:] + b"\r\n"

    def write(self, text: str) -> None:
        """Send a line."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(text.encode() + b"\r\n")

    async def encrypt(self, context: ssl.SSLContext) -> None:
        """Continue under TLS. What the peer sent before is forgotten, because it may have been inserted by an attacker."""
        assert self.transport is not None
        self._buffer.clear()
        transport = await asyncio.get_running_loop().start_tls(self.transport, self, context, server_side=True)
        if transport is None:
            raise EOFError
        self.transport = transport
        self.is_encrypted = True

    def close(self) -> None:
        """Close after what was written has left."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def _resume(self) -> None:
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
