"""HTTP sessions, one for each tenant.

A malicious request or response can corrupt its connection, so that the next request is read as part of the former one (request
smuggling). Therefore tenants never share a connection.
"""

from collections import OrderedDict
from collections.abc import Callable

from aiohttp import ClientSession

MOST_TENANTS = 1_000
"""Maximum number of open sessions. It is exceeded only while more tenants than this have calls in flight."""


class Sessions:
    """Opens the session of a tenant at its first call. Used on one event loop."""

    def __init__(self, open_session: Callable[[], ClientSession], most: int = MOST_TENANTS) -> None:
        self._open_session = open_session
        self._most = most
        self._by_tenant: OrderedDict[str, _TenantSession] = OrderedDict()
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._by_tenant)

    def enter(self, tenant: str) -> ClientSession:
        """Return the session of a tenant, which stays open until `leave`."""
        entry = self._by_tenant.get(tenant)
        if entry is None:
            entry = self._by_tenant[tenant] = _TenantSession(self._open_session())
        else:
            self._by_tenant.move_to_end(tenant)
        entry.calls += 1
        return entry.session

    async def leave(self, tenant: str) -> None:
        """End one use, and close the least recently used idle sessions beyond the maximum."""
        self._by_tenant[tenant].calls -= 1
        surplus = len(self._by_tenant) - self._most
        if surplus > 0:
            idle = [name for name, entry in self._by_tenant.items() if not entry.calls]
            for closed in [self._by_tenant.pop(name) for name in idle[:surplus]]:
                await closed.session.close()

    async def close(self) -> None:
        """Close every connection of every tenant."""
        for entry in self._by_tenant.values():
            await entry.session.close()


class _TenantSession:
    __slots__ = ("calls", "session")

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.calls = 0
        """Calls in flight."""
