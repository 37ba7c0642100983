"""Connections to checked addresses only.

Every address passes two checks. The resolver resolves a name once, and refuses it if any of its addresses is refused. The
socket factory then checks the address that the socket is created for. So IP literals, which the resolver never sees, and
cached DNS results are checked too, and no name is resolved between check and dial. The URL keeps its host name, which `Host`
and TLS use.
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
MAX_RESOLVES = 8
"""Names of one tenant that are resolved at once, so that slow names of one tenant do not delay others."""
RESOLVE_TIMEOUT_SEC = 10.0
"""Timeout of resolving one name in seconds, including the time it waits for a slot."""
MAX_ADDRESSES = 4
"""Maximum number of addresses of a name that one call dials."""
MAX_CHECKED = 64
"""Maximum number of addresses of a name that are checked; further ones are ignored."""
IDLE_SEC = 15.0
MAX_RESPONSE_HEADERS = 128
MAX_RESPONSE_FIELD = 32_768
READ_BUFFER = 16_384


class RefusedAddress(OSError):
    """The address may not be called. An OSError, because the client library expects one when a dial fails.

    Tenants read its text, so it names no address. The operator's log does.
    """

    def __init__(self, host: str) -> None:
        message = f"{host} is not a public address and may not be called; to call it, add its network to webhooks.allow_networks"
        super().__init__(errno.EACCES, message)


class ResolveTimeout(OSError):
    """Resolving a host name took too long."""

    def __init__(self, host: str) -> None:
        super().__init__(errno.ETIMEDOUT, f"resolving {host} took longer than {RESOLVE_TIMEOUT_SEC:g} s")


class ConnectionCut(Exception):
    """The connection was closed after the request began and before the response was complete."""


class Marks:
    """Times of the phases of one call, by the monotonic clock. None if a phase was not reached."""

    __slots__ = ("_clock", "began", "connected", "dialled", "handshake", "resolving", "responded", "reused", "sent")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began = clock.monotonic()
        self.resolving: float | None = None
        self.dialled: float | None = None
        self.handshake: float | None = None
        self.connected: float | None = None
        self.sent: float | None = None
        self.responded: float | None = None
        self.reused = False

    def mark(self, phase: str) -> None:
        """Record the time of a phase. The first time counts: further addresses are dialled if the first fails."""
        if getattr(self, phase) is None:
            setattr(self, phase, self._clock.monotonic())


current_marks: ContextVar[Marks | None] = ContextVar("current_marks", default=None)
"""Marks of the call that the current task makes, because hooks of the client library get no call as argument."""


def open_session(
    networks: Networks,
    resolver: AbstractResolver,
    *,
    limit: int = 10_000,
    tls: ssl.SSLContext,
    dns_kept_sec: int = DNS_KEPT_SEC,
) -> ClientSession:
    """Open a session that dials only allowed addresses, for all calls of one tenant on the running loop.

    It follows no redirects by default, uses no proxy, keeps no cookies, resends nothing, and has no timeouts.
    `limit` is the maximum number of open connections (0 is no limit); calls beyond it wait. `dns_kept_sec` is how long a DNS
    result is cached (0 disables caching). Closing the session leaves `resolver` open.
    """
    connector = BoundedConnector(
        resolver=CheckingResolver(networks, resolver),
        socket_factory=_checking_socket_factory(networks),
        ssl=tls,
        limit=limit,
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
        trace_configs=[_trace_config()],
        middlewares=(_send_once,),
    )


class CheckingResolver(AbstractResolver):
    """Resolves and checks names of one tenant, a few at a time."""

    def __init__(self, networks: Networks, inner: AbstractResolver) -> None:
        self._networks = networks
        self._inner = inner
        self._slots = asyncio.Semaphore(MAX_RESOLVES)
        self._running: set[asyncio.Task[list[ResolveResult]]] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_SEC):
                found = await self._resolve(host, port, family)
        except UnicodeError as error:
            raise OSError(errno.EINVAL, f"{host} is not a valid host name") from error
        except TimeoutError as error:
            raise ResolveTimeout(host) from error
        for result in found[:MAX_CHECKED]:
            if refusal := self._networks.refusal_of(result["host"]):
                log.warning("webhook address refused", host=host, refusal=refusal)
                raise RefusedAddress(host)
        return _some_of_each_family(found[:MAX_CHECKED])

    async def _resolve(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        """Resolve a name. After a timeout the slot stays taken until the thread is free."""
        await self._slots.acquire()
        resolve = asyncio.ensure_future(self._inner.resolve(host, port, family))
        self._running.add(resolve)
        resolve.add_done_callback(self._resolved)
        return await asyncio.shield(resolve)

    def _resolved(self, resolve: "asyncio.Task[list[ResolveResult]]") -> None:
        self._running.discard(resolve)
        self._slots.release()
        if not resolve.cancelled():
            resolve.exception()

    async def close(self) -> None:
        """Do nothing: all sessions share the inner resolver."""


class SystemResolver(AbstractResolver):
    """The system's resolver, in its own threads: slow names must not block other work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(DNS_THREADS, "dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _getaddrinfo, host, port, family)
        return [_resolve_result(host, info) for info in found]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _some_of_each_family(found: list[ResolveResult]) -> list[ResolveResult]:
    """Return the first `MAX_ADDRESSES`, alternating IPv6 and IPv4, because one family may be unreachable."""
    if len(found) <= MAX_ADDRESSES:
        return found
    by_family: dict[int, list[ResolveResult]] = {}
    for result in found:
        by_family.setdefault(result["family"], []).append(result)
    alternating = chain.from_iterable(zip_longest(*by_family.values()))
    return [result for result in alternating if result is not None][:MAX_ADDRESSES]


def _getaddrinfo(host: str, port: int, family: int) -> list[Any]:
    return socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


def _resolve_result(host: str, info: Any) -> ResolveResult:
    family, _, proto, _, address = info
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address[0], port=address[1], family=family, proto=proto, flags=flags)


def _checking_socket_factory(networks: Networks) -> Callable[[AddrInfoType], socket.socket]:
    def make(info: AddrInfoType) -> socket.socket:
        family, kind, proto, _, address = info
        if refusal := networks.refusal_of(address[0]):
            log.warning("webhook address refused", host=address[0], refusal=refusal)
            raise RefusedAddress("the host")
        _mark("dialled")
        return socket.socket(family, kind, proto)

    return make


class _TimedTls(ssl.SSLContext):
    """TLS context that marks the start of each handshake."""

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        _mark("handshake")
        return super().wrap_bio(*args, **kwargs)


def tls_of(ca_file: Path | None) -> ssl.SSLContext:
    """Create a TLS context that trusts the system's authorities and those in `ca_file`.

    It loads every certificate, so create one for all sessions.
    """
    context = _TimedTls(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _trace_config() -> TraceConfig:
    config = TraceConfig()
    config.on_connection_create_start.append(_marker("resolving"))
    config.on_connection_create_end.append(_marker("connected"))
    config.on_request_headers_sent.append(_marker("sent"))
    config.on_connection_reuseconn.append(_mark_reused)
    return config


def _marker(phase: str) -> Callable[..., Awaitable[None]]:
    async def mark(*_: object) -> None:
        _mark(phase)

    return mark


async def _mark_reused(*_: object) -> None:
    if (marks := current_marks.get()) is not None:
        marks.reused = True


def _mark(phase: str) -> None:
    if (marks := current_marks.get()) is not None:
        marks.mark(phase)


async def _send_once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    # aiohttp resends GET, PUT and DELETE when a reused connection is closed: a second call that is recorded nowhere.
    try:
        return await handler(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise ConnectionCut(str(error)) from error
