"""Connections to checked addresses only.

Every address passes two gates. The resolver looks a name up once and refuses the name when any of its addresses is refused.
The socket factory then checks the very address that a socket is made for, so literals, which no resolver sees, and answers
that were kept for a few seconds pass the same check, and nothing is looked up in between. The URL keeps its host: `Host` and
the name in TLS are the receiver's own.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import structlog
from aiohttp import (
    AddrInfoType,
    ClientConnectorError,
    ClientHandlerType,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TraceConfig,
)
from aiohttp.abc import AbstractResolver, ResolveResult

from noonday.ports.clock import Clock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.protocol import BoundedConnector

log = structlog.get_logger("noonday.webhooks")
DNS_THREADS = 128
DNS_KEPT_SEC = 10
LOOK_UPS_AT_ONCE = 8
"""Of one tenant, so that its names that hang do not hold up the names of others."""
LOOK_UP_SEC = 10.0
"""How long one look-up may take, the wait for its turn included."""
MAX_ADDRESSES = 4
"""Addresses of a name that one call dials at most."""
MAX_CHECKED = 64
"""Addresses of a name that are looked at; others are left out."""
IDLE_SEC = 15.0
MAX_RESPONSE_HEADERS = 128
MAX_RESPONSE_FIELD = 32_768
READ_BUFFER = 16_384


class RefusedAddress(OSError):
    """The address may not be dialled. An OSError, because that is what the client library expects of a dial that fails.

    Its text is the tenant's to read, and names no address. The operator's log does.
    """

    def __init__(self, host: str) -> None:
        words = (
            f"{host} is not a public address and may not be called, unless webhooks.allow_networks lists its network"
        )
        super().__init__(errno.EACCES, words)


class LookUpTookTooLong(OSError):
    def __init__(self, host: str) -> None:
        super().__init__(errno.ETIMEDOUT, f"looking {host} up took longer than {LOOK_UP_SEC:g} s")


class Cut(Exception):
    """The connection ended after the request was begun, and before the answer had come."""


class Marks:
    """When one call passed which point, by the monotonic clock. None: it did not."""

    __slots__ = ("_clock", "answered", "began", "connected", "dialled", "handshake", "looking_up", "reused", "sent")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began = clock.monotonic()
        self.looking_up: float | None = None
        self.dialled: float | None = None
        self.handshake: float | None = None
        self.connected: float | None = None
        self.sent: float | None = None
        self.answered: float | None = None
        self.reused = False

    def mark(self, point: str) -> None:
        """The first time counts: a second address is dialled when the first does not answer."""
        if getattr(self, point) is None:
            setattr(self, point, self._clock.monotonic())


present_marks: ContextVar[Marks | None] = ContextVar("present_marks", default=None)
"""Those of the call that the present task makes; the hooks of the client library are handed no call."""


def open_session(
    networks: Networks,
    resolver: AbstractResolver,
    *,
    limit: int = 10_000,
    limit_per_host: int = 0,
    tls: ssl.SSLContext,
    dns_kept_sec: int = DNS_KEPT_SEC,
) -> ClientSession:
    """A session that dials allowed addresses only, for all calls of one tenant on the running loop.

    It follows no redirect unless asked, knows no proxy, keeps no cookie, sends nothing twice, and has no timeouts of its
    own. `limit` and `limit_per_host` bound the open connections (0: no bound); calls beyond them wait. Closing the
    session leaves `resolver` open. `dns_kept_sec` is how long an answer of the DNS is used again (0: never).
    """
    connector = BoundedConnector(
        resolver=_CheckingResolver(networks, resolver),
        socket_factory=_checking_sockets(networks),
        ssl=tls,
        limit=limit,
        limit_per_host=limit_per_host,
        use_dns_cache=dns_kept_sec > 0,
        ttl_dns_cache=dns_kept_sec or None,
        keepalive_timeout=IDLE_SEC,
    )
    return ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(),
        auto_decompress=False,
        skip_auto_headers=("Content-Type",),
        headers={"User-Agent": "Noonday", "Accept-Encoding": "identity"},
        max_headers=MAX_RESPONSE_HEADERS,
        max_field_size=MAX_RESPONSE_FIELD,
        max_line_size=MAX_RESPONSE_FIELD,
        read_bufsize=READ_BUFFER,
        trace_configs=[_tracing()],
        middlewares=(_send_once,),
    )


class _CheckingResolver(AbstractResolver):
    """Looks names of one tenant up, a few at a time."""

    def __init__(self, networks: Networks, inner: AbstractResolver) -> None:
        self._networks = networks
        self._inner = inner
        self._turns = asyncio.Semaphore(LOOK_UPS_AT_ONCE)
        self._under_way: set[asyncio.Task[list[ResolveResult]]] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            async with asyncio.timeout(LOOK_UP_SEC):
                found = await self._look_up(host, port, family)
        except UnicodeError as error:
            raise OSError(errno.EINVAL, f"{host} is not a name that can be looked up") from error
        except TimeoutError as error:
            raise LookUpTookTooLong(host) from error
        for each in found[:MAX_CHECKED]:
            if refusal := self._networks.refusal_of(each["host"]):
                log.warning("webhook address refused", host=host, refusal=refusal)
                raise RefusedAddress(host)
        return _some_of_each_family(found[:MAX_CHECKED])

    async def _look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        """A look-up that nobody waits for any more still holds its turn, for it still holds its thread."""
        await self._turns.acquire()
        look_up = asyncio.ensure_future(self._inner.resolve(host, port, family))
        self._under_way.add(look_up)
        look_up.add_done_callback(self._looked_up)
        return await asyncio.shield(look_up)

    def _looked_up(self, look_up: "asyncio.Task[list[ResolveResult]]") -> None:
        self._under_way.discard(look_up)
        self._turns.release()
        if not look_up.cancelled():
            look_up.exception()

    async def close(self) -> None:
        """The inner one is shared by all sessions."""


class SystemResolver(AbstractResolver):
    """The system's resolver in threads of its own: names that hang must not hold up anything else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(DNS_THREADS, "dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host, port, family)
        return [_resolved(host, each) for each in found]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _some_of_each_family(found: list[ResolveResult]) -> list[ResolveResult]:
    """The first few, of IPv6 and IPv4 in turn if there are both: one of them may lead nowhere from here."""
    if len(found) <= MAX_ADDRESSES:
        return found
    by_family: dict[int, list[ResolveResult]] = {}
    for each in found:
        by_family.setdefault(each["family"], []).append(each)
    turns = chain.from_iterable(zip_longest(*by_family.values()))
    return [each for each in turns if each is not None][:MAX_ADDRESSES]


def _look_up(host: str, port: int, family: int) -> list[Any]:
    return socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


def _resolved(host: str, info: Any) -> ResolveResult:
    family, _, proto, _, address = info
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address[0], port=address[1], family=family, proto=proto, flags=flags)


def _checking_sockets(networks: Networks) -> Callable[[AddrInfoType], socket.socket]:
    def make(info: AddrInfoType) -> socket.socket:
        family, kind, proto, _, address = info
        if refusal := networks.refusal_of(address[0]):
            log.warning("webhook address refused", host=address[0], refusal=refusal)
            raise RefusedAddress("the host")
        _mark("dialled")
        return socket.socket(family, kind, proto)

    return make


class _TimedTls(ssl.SSLContext):
    """Tells when a handshake begins."""

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
        _mark("handshake")
        return super().wrap_bio(*args, **more)


def tls_of(ca_file: Path | None) -> ssl.SSLContext:
    """Trusts the system's authorities and those in `ca_file`. It reads every certificate: made once for all sessions."""
    context = _TimedTls(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _tracing() -> TraceConfig:
    tracing = TraceConfig()
    tracing.on_connection_create_start.append(_marking("looking_up"))
    tracing.on_connection_create_end.append(_marking("connected"))
    tracing.on_request_headers_sent.append(_marking("sent"))
    tracing.on_connection_reuseconn.append(_reusing)
    return tracing


def _marking(point: str) -> Callable[..., Awaitable[None]]:
    async def note(*_: object) -> None:
        _mark(point)

    return note


async def _reusing(*_: object) -> None:
    if (marks := present_marks.get()) is not None:
        marks.reused = True


def _mark(point: str) -> None:
    if (marks := present_marks.get()) is not None:
        marks.mark(point)


async def _send_once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    # aiohttp sends GET, PUT and DELETE again when a kept connection is cut: a second call that nobody would know of.
    try:
        return await handler(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise Cut(str(error)) from error
