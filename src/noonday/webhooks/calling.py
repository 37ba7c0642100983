"""One call, and what came of it."""

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
from noonday.ports.clock import Clock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.dialing import (
    Cut,
    LookUpTookTooLong,
    Marks,
    RefusedAddress,
    SystemResolver,
    open_session,
    present_marks,
    tls_of,
)
from noonday.webhooks.sessions import Sessions
from noonday.webhooks.urls import read_url

MAX_BODY = 65_536
MAX_KEPT_HEADERS = 16_384
MAX_DETAIL = 500


class ErrorKind(StrEnum):
    """What kept a call from being answered whole."""

    DNS = "DNS"
    REFUSED_ADDRESS = "REFUSED_ADDRESS"
    CONNECT = "CONNECT"
    TLS = "TLS"
    TIMEOUT_BEFORE_SENT = "TIMEOUT_BEFORE_SENT"
    """Nothing has happened at the receiver."""
    TIMEOUT_AFTER_SENT = "TIMEOUT_AFTER_SENT"
    """The receiver may have done what it was asked to."""
    RESET = "RESET"
    """The connection was cut after the request was begun, before a status came."""
    PROTOCOL = "PROTOCOL"
    """What came back is not HTTP, or more of it than any answer needs."""
    BODY = "BODY"
    """The status and headers came, and then not the whole body."""


class CallError(msgspec.Struct, frozen=True):
    kind: ErrorKind
    detail: str


class Timings(msgspec.Struct, frozen=True):
    """How long each part of a call took, in milliseconds. None: there was no such part. The last part may be unfinished."""

    total_ms: float
    dns_ms: float | None = None
    connect_ms: float | None = None
    tls_ms: float | None = None
    first_byte_ms: float | None = None
    """From the request's leaving to the end of the answer's headers."""


class Request(msgspec.Struct, frozen=True):
    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""
    secret_headers: tuple[str, ...] = ()
    """Headers of the answer that are kept without their value, besides those that always are."""


class Exchange(msgspec.Struct, frozen=True):
    """What came of one call: a status, an error, or (when the answer broke off) both."""

    ended_ms: int
    """When it was over, by the wall clock."""
    timings: Timings
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Of the answer, secrets redacted."""
    body: bytes = b""
    """Of the answer, as it came, up to a cap."""
    truncated: bool = False
    """There was more body, or there were more headers, than is kept."""
    error: CallError | None = None
    reused: bool = False
    """The call went over a connection that an earlier call had left open."""


class Caller:
    """Makes calls, thousands at a time, over a pool of connections for each tenant. Made, used and closed in one event loop.

    Only addresses that `networks` allows are dialled (see `dialing`). No redirect is followed.
    """

    def __init__(
        self,
        networks: Networks,
        clock: Clock,
        *,
        limit: int = 10_000,
        limit_per_host: int = 0,
        resolver: AbstractResolver | None = None,
        ca_file: Path | None = None,
        dns_kept_sec: int = 10,
        max_body: int = MAX_BODY,
    ) -> None:
        """`limit` bounds calls in flight, `limit_per_host` a tenant's connections to a host (0: no bound). A call that waits
        for either spends its timeout."""
        self._clock = clock
        self._max_body = max_body
        self._resolver = resolver or SystemResolver()
        self._places = asyncio.Semaphore(limit) if limit else nullcontext()
        tls = tls_of(ca_file)
        self._sessions = Sessions(
            lambda: open_session(
                networks,
                self._resolver,
                limit=limit,
                limit_per_host=limit_per_host,
                tls=tls,
                dns_kept_sec=dns_kept_sec,
            )
        )

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cut every connection. Calls in flight end with an error."""
        await self._sessions.close()
        await self._resolver.close()

    async def call(self, tenant: str, request: Request, timeout_sec: float) -> Exchange:
        """Call once for a tenant, and tell what came of it within `timeout_sec`.

        Nothing that a receiver or a network does raises. Raises InvalidInput when the URL is one that `read_url` refuses.
        """
        read_url(request.url)
        attempt = _Attempt(Marks(self._clock), request.secret_headers)
        token = present_marks.set(attempt.marks)
        try:
            async with asyncio.timeout(timeout_sec), self._places:
                await self._exchange(tenant, request, attempt)
        except (Cut, aiohttp.ClientError, OSError) as error:
            attempt.error = _read_error(error, attempt, timeout_sec)
        finally:
            present_marks.reset(token)
        return attempt.exchange(self._clock)

    async def _exchange(self, tenant: str, request: Request, attempt: "_Attempt") -> None:
        session = self._sessions.enter(tenant)
        try:
            async with session.request(
                request.method,
                URL(request.url),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=False,
            ) as response:
                attempt.answered(response)
                await attempt.read_body(response, self._max_body)
        finally:
            await self._sessions.leave(tenant)


class _Attempt:
    """A call in the making."""

    def __init__(self, marks: Marks, secret_headers: tuple[str, ...]) -> None:
        self.marks = marks
        self._secret_headers = secret_headers
        self.status: int | None = None
        self._headers: tuple[tuple[str, str], ...] = ()
        self._body = bytearray()
        self._truncated = False
        self.error: CallError | None = None

    def answered(self, response: aiohttp.ClientResponse) -> None:
        self.marks.mark("answered")
        self.status = response.status
        kept = _first([(_text(name), _text(value)) for name, value in response.headers.items()], MAX_KEPT_HEADERS)
        self._truncated = len(kept) < len(response.headers)
        self._headers = redacted(kept, self._secret_headers)

    async def read_body(self, response: aiohttp.ClientResponse, most: int) -> None:
        while chunk := await response.content.readany():
            self._body += chunk
            if len(self._body) > most:
                del self._body[most:]
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
    """The client library keeps bytes that are not UTF-8 as lone surrogates, which nothing can encode."""
    return header.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _first(headers: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    for index, (name, value) in enumerate(headers):
        most -= len(name) + len(value)
        if most < 0:
            return headers[:index]
    return headers


def _timings(marks: Marks, ended: float) -> Timings:
    def took(start: float | None, *ends: float | None) -> float | None:
        end = next((each for each in ends if each is not None), ended)
        return None if start is None else round((end - start) * 1000, 3)

    return Timings(
        total_ms=round((ended - marks.began) * 1000, 3),
        dns_ms=took(marks.looking_up, marks.dialled),
        connect_ms=took(marks.dialled, marks.handshake, marks.connected),
        tls_ms=took(marks.handshake, marks.connected),
        first_byte_ms=took(marks.sent, marks.answered),
    )


def _read_error(error: Exception, attempt: _Attempt, timeout_sec: float) -> CallError:
    kind = _kind_of(error, attempt)
    match kind:
        case ErrorKind.TIMEOUT_BEFORE_SENT:
            return CallError(kind, f"no connection within {timeout_sec:g} s; nothing was sent")
        case ErrorKind.TIMEOUT_AFTER_SENT:
            what = "no answer" if attempt.status is None else "no whole answer"
            return CallError(kind, f"{what} within {timeout_sec:g} s; the request was sent")
        case _:
            return CallError(kind, _text(_cause_of(error) or type(error).__name__)[:MAX_DETAIL])


def _kind_of(error: Exception, attempt: _Attempt) -> ErrorKind:
    if type(error) is TimeoutError and error.errno is None:
        return ErrorKind.TIMEOUT_BEFORE_SENT if attempt.marks.sent is None else ErrorKind.TIMEOUT_AFTER_SENT
    if attempt.status is not None:
        return ErrorKind.BODY
    if isinstance(error, aiohttp.ClientConnectorError):
        return _kind_of_dial(error, attempt.marks)
    if isinstance(error, Cut | OSError | aiohttp.ClientConnectionError):
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
    """In words that name no address: which addresses a name has inside the operator's network is not the tenant's to know."""
    if isinstance(error, RefusedAddress | LookUpTookTooLong | socket.gaierror | ssl.SSLError):
        return error.strerror or str(error)
    return os.strerror(error.errno) if error.errno else "no address could be reached"
