"""Sessions of the HTTP client, one for each tenant.

A request that one tenant wrote can spoil the connection it went over, and so can its receiver's answer: the next request on it
may be read as part of the former one. Therefore an open connection is never used by another tenant.
"""

from collections import OrderedDict
from collections.abc import Callable

from aiohttp import ClientSession

MOST_TENANTS = 1_000
"""Sessions that are kept. More exist only while more tenants than this have calls in flight."""


class Sessions:
    """Opens the session of a tenant at its first call. Used on one loop."""

    def __init__(self, open_session: Callable[[], ClientSession], most: int = MOST_TENANTS) -> None:
        self._open_session = open_session
        self._most = most
        self._by_tenant: OrderedDict[str, _InUse] = OrderedDict()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._by_tenant)

    def enter(self, tenant: str) -> ClientSession:
        """The session of a tenant, which stays open until `leave`."""
        found = self._by_tenant.get(tenant)
        if found is None:
            found = self._by_tenant[tenant] = _InUse(self._open_session())
        else:
            self._by_tenant.move_to_end(tenant)
        found.calls += 1
        return found.session

    async def leave(self, tenant: str) -> None:
        """End one use. The least recently used sessions beyond the number that is kept are closed."""
        self._by_tenant[tenant].calls -= 1
        surplus = len(self._by_tenant) - self._most
        if surplus > 0:
            idle = [name for name, each in self._by_tenant.items() if not each.calls]
            for closed in [self._by_tenant.pop(name) for name in idle[:surplus]]:
                await closed.session.close()

    async def close(self) -> None:
        """Cut every connection of every tenant."""
        for each in self._by_tenant.values():
            await each.session.close()


class _InUse:
    __slots__ = ("calls", "session")

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.calls = 0
        """Calls in flight."""
