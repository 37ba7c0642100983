"""A real HTTP server on the loopback that misbehaves as the path says."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Receiver:
    """Keeps its requests (`heads`, `bodies`), and answers as the path says."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.left = asyncio.Event()
        """A caller has closed its end."""
        self._open: dict[asyncio.StreamWriter, asyncio.Task[object] | None] = {}

    async def __aenter__(self) -> "Receiver":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=1000)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        serving = [task for task in self._open.values() if task]
        for writer in self._open:
            writer.transport.abort()
        await asyncio.gather(*serving)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.heads]

    def header(self, name: str) -> str | None:
        """Return a header of the last request."""
        for line in self.heads[-1].split("\r\n")[1:]:
            found, _, value = line.partition(": ")
            if found.lower() == name.lower():
                return value
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open[writer] = asyncio.current_task()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._serve_one(reader, writer):
                pass
        self.left.set()
        del self._open[writer]
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _read_body(self, reader: asyncio.StreamReader) -> bytes:
        """Read a body as RFC 9112 defines: chunks take precedence over the length."""
        if "chunked" in (self.header("transfer-encoding") or "").lower():
            return await _read_chunks(reader)
        return await reader.readexactly(int(self.header("content-length") or 0))

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        self.bodies.append(await self._read_body(reader))
        _, name, *arguments = self.paths[-1].split("/")
        return await _BEHAVIOURS[name](reader, writer, *arguments)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, code: str, *headers: str) -> bool:
    """`/status/429/Retry-After:7`: answer with that status, those headers and a small body; the connection stays open."""
    writer.write(_head(code, "Content-Length: 2", *headers) + b"{}")
    await writer.drain()
    return True


async def _redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, code: str, port: str) -> bool:
    return await _status(reader, writer, code, f"Location: http://127.0.0.1:{port}/status/200")


async def _close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(_head("200", "Content-Length: 0", "Connection: close"))
    return False


async def _slow_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nServer: slow\r\n")
    await reader.read()
    return False


async def _slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, code: str = "200") -> bool:
    writer.write(_head(code, "Content-Length: 100") + b"the first half")
    await reader.read()
    return False


async def _half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, code: str = "200") -> bool:
    writer.write(_head(code, "Content-Length: 100") + b"the first half")
    return False


async def _half_chunk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(_head("200", "Transfer-Encoding: chunked") + b"ff\r\nthe first half")
    return False


async def _reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    return False


async def _huge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(_head("200", "Content-Length: 1000000000000"))
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def _gzip_bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    bomb = b"\x1f\x8b not unpacked by the caller"
    writer.write(_head("200", f"Content-Length: {len(bomb)}", "Content-Encoding: gzip") + bomb)
    await writer.drain()
    return True


async def _endless_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: and more\r\n" * 100)
        await writer.drain()


async def _endless_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


async def _many_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(_head("200", "Content-Length: 0", *(f"X-{number}: {'x' * 1000}" for number in range(100))))
    await writer.drain()
    return True


async def _wrong_protocol(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"SSH-2.0-OpenSSH_9.7\r\n")
    return False


async def _odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> bool:
    """`/odd/latin1`: send an answer that is unusual, and no failure."""
    writer.write(ODD_ANSWERS[name])
    await writer.drain()
    return False


async def _informational(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: str) -> bool:
    """`/informational/3`: send so many 1xx answers before the final one."""
    for _ in range(int(count)):
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n")
        await writer.drain()
    return await _status(reader, writer, "200")


async def _endless_informational(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
        await writer.drain()


async def _large_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send headers that are each within their limit, and together far beyond it."""
    writer.write(_head("200", "Content-Length: 0", *(f"X-{number}: {'x' * 30_000}" for number in range(100))))
    await writer.drain()
    return True


ODD_ANSWERS = {
    "latin1": b"HTTP/1.1 200 OK\r\nX-City: K\xf6ln\r\nContent-Length: 2\r\n\r\n{}",
    "reason": b"HTTP/1.1 200 Sch\xf6n\r\nContent-Length: 2\r\n\r\n{}",
    "no-reason": b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}",
    "cookie": b"HTTP/1.1 200 OK\r\nSet-Cookie: \xff=\xfe; expires=\x80\r\nContent-Length: 2\r\n\r\n{}",
    "type": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=\xe4\xf6\r\nContent-Length: 2\r\n\r\n{}",
    "retry-after": b"HTTP/1.1 200 OK\r\nRetry-After: \xb2\r\nContent-Length: 2\r\n\r\n{}",
    "location": b"HTTP/1.1 201 Created\r\nLocation: ht\xfctp://[\r\nContent-Length: 2\r\n\r\n{}",
    "encoding": b"HTTP/1.1 200 OK\r\nContent-Encoding: br, \xfe\r\nContent-Length: 2\r\n\r\n{}",
    "long": b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 20_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    "old": b"HTTP/1.0 200 OK\r\n\r\n{}",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\x00",
    "trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: \xe9\r\n\r\n",
}
"""Answers that are unusual, and no failures."""
_BEHAVIOURS: dict[str, Callable[..., Awaitable[bool]]] = {
    "status": _status,
    "redirect": _redirect,
    "close": _close,
    "slow-headers": _slow_headers,
    "slow-body": _slow_body,
    "half": _half,
    "half-chunk": _half_chunk,
    "reset": _reset,
    "hang-up": _hang_up,
    "huge": _huge,
    "gzip-bomb": _gzip_bomb,
    "endless-headers": _endless_headers,
    "endless-header": _endless_header,
    "many-headers": _many_headers,
    "wrong-protocol": _wrong_protocol,
    "odd": _odd,
    "informational": _informational,
    "endless-informational": _endless_informational,
    "large-head": _large_head,
}


def _head(code: str, *headers: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {code} Answer", *headers, "", "")).encode()


class Greeter:
    """Speaks first, or never: no TLS, no HTTP."""

    def __init__(self, greeting: bytes = b"") -> None:
        self._greeting = greeting

    async def __aenter__(self) -> "Greeter":
        self._server = await asyncio.start_server(self._greet, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._left = asyncio.Event()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close; every test closes its client first."""
        self._server.close()
        await self._left.wait()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._greeting)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self._left.set()


def self_signed(folder: Path, name: str) -> Path:
    """Write a file with a certificate for `name` and its key, which is also the authority to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{name}.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return file
