"""Per-tenant limit on concurrent reads, so that one tenant's reads do not delay those of others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noonday.model.errors import Busy

AT_ONCE = 2
MOST_WAITING = 200


class _TenantReads:
    __slots__ = ("free", "users")

    def __init__(self, at_once: int) -> None:
        self.free = asyncio.Semaphore(at_once)
        self.users = 0


class ReadLimiter:
    """Admits at most `at_once` reads per tenant, in order of arrival; up to `most_waiting` more wait."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._at_once = at_once
        self._most = at_once + most_waiting
        self._by_tenant: dict[str, _TenantReads] = {}

    @asynccontextmanager
    async def admit(self, tenant: str) -> AsyncIterator[None]:
        """Wait until the tenant may read, and count the block as one read. Raises Busy if too many reads wait."""
        reads = self._by_tenant.setdefault(tenant, _TenantReads(self._at_once))
        if reads.users >= self._most:
            raise Busy(f"{reads.users} reads of this tenant are in progress or waiting; retry later")
        reads.users += 1
        try:
            async with reads.free:
                yield
        finally:
            reads.users -= 1
            if not reads.users:
                del self._by_tenant[tenant]
