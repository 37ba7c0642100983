"""Connections to mail servers that are kept for further messages."""

import asyncio
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp.abc import AbstractResolver

from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.smtp_account import Encryption, SmtpServer
from noonday.notifications.providers.smtp_dialing import Dialer
from noonday.notifications.providers.smtp_session import SmtpSession, end_all
from noonday.ports.clock import Clock

MAX_OPEN = 1_000
"""Maximum number of connections of all accounts. Messages beyond it wait."""
MESSAGES_PER_CONNECTION = 100
"""Messages after which a connection is replaced: mail servers end or slow long ones."""
IDLE_SEC = 30.0
"""Time that an unused connection is kept, well below the minutes after which servers end it."""
CLOSE_SEC = 1.0
"""Time that closing waits for the goodbye of servers."""
MAX_TLS_CONTEXTS = 100


class SmtpConnections:
    """Lends connections, at most a few of one account. Used on one event loop."""

    def __init__(self, hosts: ProviderHosts, resolver: AbstractResolver, clock: Clock) -> None:
        self._dialer = Dialer(hosts, resolver)
        self._clock = clock
        self._slots = asyncio.Semaphore(MAX_OPEN)
        """Connections in use."""
        self._servers: dict[SmtpServer, _Server] = {}
        self._tls: OrderedDict[str | None, ssl.SSLContext] = OrderedDict()
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def idle(self) -> int:
        """Number of open connections that no message uses."""
        return sum(len(each.idle) for each in self._servers.values())

    @asynccontextmanager
    async def lend(self, server: SmtpServer) -> "AsyncIterator[SmtpLender]":
        """Wait for the right to use one connection of a server."""
        entry = self._servers.get(server)
        if entry is None:
            entry = self._servers[server] = _Server(server.max_connections)
        entry.users += 1
        try:
            async with entry.slots, self._slots:
                yield SmtpLender(self, server)
        finally:
            entry.users -= 1
            self._forget_if_unused(server)

    async def close(self) -> None:
        """End every idle conversation."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        idle = [session for each in self._servers.values() for session in each.idle]
        self._servers.clear()
        await end_all(idle, CLOSE_SEC)

    def take_idle(self, server: SmtpServer) -> SmtpSession | None:
        """Return a kept connection, the one used last, or None."""
        entry = self._servers.get(server)
        while entry is not None and entry.idle:
            session = entry.idle.pop()
            if session.is_connected and self._clock.monotonic() - session.idle_since < IDLE_SEC:
                return session
            session.close()
        return None

    async def dial(self, server: SmtpServer) -> SmtpSession:
        """Open another connection. Raises SmtpFailure."""
        session = SmtpSession(server, await self._tls_context(server))
        await session.open(self._dialer)
        return session

    def give_back(self, session: SmtpSession) -> None:
        """Keep a connection for the next message, or close it if it cannot serve one."""
        entry = self._servers.get(session.server)
        if entry is None or not session.is_clean or session.messages >= MESSAGES_PER_CONNECTION:
            session.close()
            return
        session.idle_since = self._clock.monotonic()
        self._close_surplus()
        entry.idle.append(session)
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep(), name="smtp connections")

    def _close_surplus(self) -> None:
        """Close the connection that is idle for the longest time if there are too many."""
        if self.idle >= MAX_OPEN:
            oldest = min(
                (each.idle for each in self._servers.values() if each.idle), key=lambda idle: idle[0].idle_since
            )
            oldest.popleft().close()

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(IDLE_SEC / 2)
            before = self._clock.monotonic() - IDLE_SEC
            ended: list[SmtpSession] = []
            for server, entry in list(self._servers.items()):
                while entry.idle and entry.idle[0].idle_since <= before:
                    ended.append(entry.idle.popleft())
                self._forget_if_unused(server)
            await end_all(ended, CLOSE_SEC)

    def _forget_if_unused(self, server: SmtpServer) -> None:
        entry = self._servers.get(server)
        if entry is not None and not entry.users and not entry.idle:
            del self._servers[server]

    async def _tls_context(self, server: SmtpServer) -> ssl.SSLContext | None:
        if server.encryption is Encryption.NONE:
            return None
        context: ssl.SSLContext | None = self._tls.pop(server.ca, None)
        if context is None:
            context = await asyncio.to_thread(_tls_trusting, server.ca)
        self._tls[server.ca] = context
        if len(self._tls) > MAX_TLS_CONTEXTS:
            self._tls.popitem(last=False)
        return context


def _tls_trusting(ca: str | None) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities and `ca`. It reads every certificate, which takes a while."""
    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(cadata=ca)
    return context


class SmtpLender:
    """The right to use one connection at a time."""

    def __init__(self, connections: SmtpConnections, server: SmtpServer) -> None:
        self._connections = connections
        self._server = server

    async def session(self, *, fresh: bool = False) -> SmtpSession:
        """Return a kept connection, or with `fresh` or if there is none, a new one. Raises SmtpFailure."""
        kept = None if fresh else self._connections.take_idle(self._server)
        return kept or await self._connections.dial(self._server)

    def give_back(self, session: SmtpSession) -> None:
        """End the use of a connection."""
        self._connections.give_back(session)


class _Server:
    __slots__ = ("idle", "slots", "users")

    def __init__(self, limit: int) -> None:
        self.slots = asyncio.Semaphore(limit)
        self.idle: deque[SmtpSession] = deque()
        """Connections that no message uses, the one used last at the end."""
        self.users = 0
        """Messages that use a connection or wait for one."""
