"""HTTP client that makes one webhook call and records the exchange."""

import asyncio
import os
import socket
import ssl
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from types import TracebackType

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from yarl import URL

from noonday.model.redaction import redacted
from noonday.model.url import read_url
from noonday.ports.clock import Clock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.dialing import (
    ConnectionCut,
    Marks,
    RefusedAddress,
    ResolveTimeout,
    SystemResolver,
    current_marks,
    open_session,
    tls_of,
)
from noonday.webhooks.sessions import Sessions

MAX_BODY = 65_536
MAX_KEPT_HEADERS = 16_384
MAX_DETAIL = 500


class ErrorKind(StrEnum):
    """Reason why a call got no complete response."""

    DNS = "DNS"
    REFUSED_ADDRESS = "REFUSED_ADDRESS"
    CONNECT = "CONNECT"
    TLS = "TLS"
    TIMEOUT_BEFORE_SENT = "TIMEOUT_BEFORE_SENT"
    """The receiver got nothing."""
    TIMEOUT_AFTER_SENT = "TIMEOUT_AFTER_SENT"
    """The receiver may have processed the request."""
    RESET = "RESET"
    """The connection was closed after the request began and before a status arrived."""
    PROTOCOL = "PROTOCOL"
    """The response is not HTTP, or its headers exceed the limits."""
    BODY = "BODY"
    """Status and headers arrived, but not the whole body."""


class CallError(msgspec.Struct, frozen=True):
    kind: ErrorKind
    detail: str


class Timings(msgspec.Struct, frozen=True):
    """Duration of each phase of a call in milliseconds. None if there was no such phase. The last phase may be incomplete."""

    total_ms: float
    dns_ms: float | None = None
    connect_ms: float | None = None
    tls_ms: float | None = None
    first_byte_ms: float | None = None
    """Time from sending the request to the end of the response headers."""


class WebhookRequest(msgspec.Struct, frozen=True):
    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""
    secret_headers: tuple[str, ...] = ()
    """Response headers whose values are redacted, in addition to the default ones."""


class Exchange(msgspec.Struct, frozen=True):
    """Result of one call: a status, an error, or both if the response was incomplete."""

    ended_ms: int
    """End of the call, by the wall clock."""
    timings: Timings
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Response headers, with secrets redacted."""
    body: bytes = b""
    """Response body as received, up to a size limit."""
    truncated: bool = False
    """The body or the headers were larger than what is kept."""
    error: CallError | None = None
    reused: bool = False
    """The call used a connection that an earlier call had opened."""


class WebhookClient:
    """Makes thousands of calls at a time, with a connection pool for each tenant.

    It dials only addresses that `networks` allows (see `dialing`) and follows no redirects. It is created, used and closed
    in one event loop.
    """

    def __init__(
        self,
        networks: Networks,
        clock: Clock,
        *,
        limit: int = 10_000,
        resolver: AbstractResolver | None = None,
        ca_file: Path | None = None,
        dns_kept_sec: int = 10,
        max_body: int = MAX_BODY,
    ) -> None:
        """Create a client.

        `limit` is the maximum number of calls in flight; 0 is no limit. Time spent waiting for it counts towards the timeout
        of the call.
        """
        self._clock = clock
        self._max_body = max_body
        self._resolver = resolver or SystemResolver()
        self._slots = asyncio.Semaphore(limit) if limit else nullcontext()
        tls = tls_of(ca_file)
        self._sessions = Sessions(
            lambda: open_session(
                networks,
                self._resolver,
                limit=limit,
                tls=tls,
                dns_kept_sec=dns_kept_sec,
            )
        )

    async def __aenter__(self) -> "WebhookClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Calls in flight end with an error."""
        await self._sessions.close()
        await self._resolver.close()

    async def call(self, tenant: str, request: WebhookRequest, timeout_sec: float) -> Exchange:
        """Make one call for a tenant and return the exchange, after `timeout_sec` at the latest.

        Failures of the network or the receiver are part of the exchange; they raise nothing. Raises InvalidInput if
        `read_url` refuses the URL.
        """
        read_url(request.url)
        attempt = _ExchangeBuilder(Marks(self._clock), request.secret_headers)
        token = current_marks.set(attempt.marks)
        try:
            async with asyncio.timeout(timeout_sec), self._slots:
                await self._exchange(tenant, request, attempt)
        except (ConnectionCut, aiohttp.ClientError, OSError) as error:
            attempt.error = _call_error(error, attempt, timeout_sec)
        finally:
            current_marks.reset(token)
        return attempt.exchange(self._clock)

    async def _exchange(self, tenant: str, request: WebhookRequest, attempt: "_ExchangeBuilder") -> None:
        session = self._sessions.enter(tenant)
        try:
            async with session.request(
                request.method,
                URL(request.url),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=False,
            ) as response:
                attempt.read_head(response)
                await attempt.read_body(response, self._max_body)
        finally:
            await self._sessions.leave(tenant)


class _ExchangeBuilder:
    """Collects the response of a call in flight."""

    def __init__(self, marks: Marks, secret_headers: tuple[str, ...]) -> None:
        self.marks = marks
        self._secret_headers = secret_headers
        self.status: int | None = None
        self._headers: tuple[tuple[str, str], ...] = ()
        self._body = bytearray()
        self._truncated = False
        self.error: CallError | None = None

    def read_head(self, response: aiohttp.ClientResponse) -> None:
        self.marks.mark("responded")
        self.status = response.status
        headers = [(_text(name), _text(value)) for name, value in response.headers.items()]
        kept = _first_headers(headers, MAX_KEPT_HEADERS)
        self._truncated = len(kept) < len(response.headers)
        self._headers = redacted(kept, self._secret_headers)

    async def read_body(self, response: aiohttp.ClientResponse, max_bytes: int) -> None:
        while chunk := await response.content.readany():
            self._body += chunk
            if len(self._body) > max_bytes:
                del self._body[max_bytes:]
                self._truncated = True
                response.close()
                return

    def exchange(self, clock: Clock) -> Exchange:
        return Exchange(
            ended_ms=clock.now_ms(),
            timings=_timings(self.marks, clock.monotonic()),
            status=self.status,
            headers=self._headers,
            body=bytes(self._body),
            truncated=self._truncated,
            error=self.error,
            reused=self.marks.reused,
        )


def _text(header: str) -> str:
    """Replace bytes that are not UTF-8, which the client library keeps as lone surrogates that cannot be encoded."""
    return header.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _first_headers(headers: list[tuple[str, str]], max_chars: int) -> list[tuple[str, str]]:
    for index, (name, value) in enumerate(headers):
        max_chars -= len(name) + len(value)
        if max_chars < 0:
            return headers[:index]
    return headers


def _timings(marks: Marks, ended: float) -> Timings:
    def elapsed_ms(start: float | None, *ends: float | None) -> float | None:
        end = next((mark for mark in ends if mark is not None), ended)
        return None if start is None else round((end - start) * 1000, 3)

    return Timings(
        total_ms=round((ended - marks.began) * 1000, 3),
        dns_ms=elapsed_ms(marks.resolving, marks.dialled),
        connect_ms=elapsed_ms(marks.dialled, marks.handshake, marks.connected),
        tls_ms=elapsed_ms(marks.handshake, marks.connected),
        first_byte_ms=elapsed_ms(marks.sent, marks.responded),
    )


def _call_error(error: Exception, attempt: _ExchangeBuilder, timeout_sec: float) -> CallError:
    kind = _kind_of(error, attempt)
    match kind:
        case ErrorKind.TIMEOUT_BEFORE_SENT:
            return CallError(kind, f"no connection within {timeout_sec:g} s; nothing was sent")
        case ErrorKind.TIMEOUT_AFTER_SENT:
            missing = "no response" if attempt.status is None else "incomplete response"
            return CallError(kind, f"{missing} within {timeout_sec:g} s; the request was sent")
        case _:
            return CallError(kind, _text(_cause_of(error) or type(error).__name__)[:MAX_DETAIL])


def _kind_of(error: Exception, attempt: _ExchangeBuilder) -> ErrorKind:
    if type(error) is TimeoutError and error.errno is None:
        return ErrorKind.TIMEOUT_BEFORE_SENT if attempt.marks.sent is None else ErrorKind.TIMEOUT_AFTER_SENT
    if attempt.status is not None:
        return ErrorKind.BODY
    if isinstance(error, aiohttp.ClientConnectorError):
        return _kind_of_dial(error, attempt.marks)
    if isinstance(error, ConnectionCut | OSError | aiohttp.ClientConnectionError):
        return ErrorKind.RESET
    return ErrorKind.PROTOCOL


def _kind_of_dial(error: aiohttp.ClientConnectorError, marks: Marks) -> ErrorKind:
    if isinstance(error.os_error, RefusedAddress):
        return ErrorKind.REFUSED_ADDRESS
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return ErrorKind.DNS
    return ErrorKind.CONNECT if marks.handshake is None else ErrorKind.TLS


def _cause_of(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _cause_of_dial(error.os_error)
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message
    return str(error)


def _cause_of_dial(error: OSError) -> str:
    """Describe a failed dial without naming an address: tenants must not learn addresses of the operator's network."""
    if isinstance(error, RefusedAddress | ResolveTimeout | socket.gaierror | ssl.SSLError):
        return error.strerror or str(error)
    return os.strerror(error.errno) if error.errno else "no address could be reached"
