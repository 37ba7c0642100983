"""Reads of one tenant at a time: a tenant that asks for much waits for itself, not others for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noonday.model.errors import Busy

AT_ONCE = 2
MOST_WAITING = 200


class _Readers:
    __slots__ = ("free", "users")

    def __init__(self, at_once: int) -> None:
        self.free = asyncio.Semaphore(at_once)
        self.users = 0


class ReadTurns:
    """Lets each tenant read so much at once, in the order of its requests."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._at_once = at_once
        self._most = at_once + most_waiting
        self._queues: dict[str, _Readers] = {}

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a turn, and keep it during the block. Raises Busy if too many of the tenant wait."""
        queue = self._queues.setdefault(tenant, _Readers(self._at_once))
        if queue.users >= self._most:
            raise Busy(f"{queue.users} other reads of this tenant wait; try again")
        queue.users += 1
        try:
            async with queue.free:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[tenant]
