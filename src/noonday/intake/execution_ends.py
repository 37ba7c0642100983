"""Wait for the ends of executions.

All waiters of a process share one query per round, whatever their number. One of them makes the rounds; when it leaves, the next
takes over, so that no round is made without a waiter.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from noonday.intake.lookup import get_execution_row
from noonday.model.caller import Caller
from noonday.model.errors import Busy
from noonday.model.execution import OPEN
from noonday.model.ids import ExecutionId, TenantId
from noonday.ports.clock import Clock
from noonday.ports.execution_search import ExecutionSearch
from noonday.ports.queries import QueryStore

ROUND_SEC = 0.1
"""Seconds between two queries of this process for executions that are waited for."""
MOST_WAITERS = 1_000
"""Maximum number of waiters of a process."""
MOST_OF_TENANT = 100
"""Maximum number of waiters of one tenant in a process."""


class _Waiter:
    __slots__ = ("ended", "execution")

    def __init__(self, execution: ExecutionId) -> None:
        self.execution = execution
        self.ended = asyncio.Event()


class ExecutionEnds:
    """Lets callers wait until an execution has ended."""

    def __init__(
        self,
        query_store: QueryStore,
        execution_search: ExecutionSearch,
        clock: Clock,
        *,
        most: int = MOST_WAITERS,
        most_of_tenant: int = MOST_OF_TENANT,
    ) -> None:
        self._query_store = query_store
        self._execution_search = execution_search
        self._clock = clock
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._waiters: set[_Waiter] = set()
        self._by_tenant: Counter[TenantId] = Counter()
        self._rounds = asyncio.Lock()
        self._is_closed = False

    async def wait(self, caller: Caller, execution_id: str, seconds: float) -> None:
        """Return when the execution has ended, after `seconds`, or when the process stops, whichever is first.

        Raises NotFound, and Busy if too many callers wait.
        """
        row = await get_execution_row(self._query_store, caller, execution_id)
        if row.state not in OPEN or seconds <= 0 or self._is_closed:
            return
        with self._admitted(caller.tenant, row.id) as waiter:
            rounds = asyncio.ensure_future(self._make_rounds())
            try:
                await self._clock.wait_for(waiter.ended, seconds)
            finally:
                rounds.cancel()
                await asyncio.gather(rounds, return_exceptions=True)

    def close(self) -> None:
        """End all waits, now and from now on."""
        self._is_closed = True
        self._wake_all()

    @contextmanager
    def _admitted(self, tenant: TenantId, execution: ExecutionId) -> Iterator[_Waiter]:
        if len(self._waiters) >= self._most:
            raise Busy(f"{len(self._waiters)} requests of this process wait for executions to end; retry later")
        if self._by_tenant[tenant] >= self._most_of_tenant:
            raise Busy(f"{self._by_tenant[tenant]} requests of this tenant wait for executions to end; retry later")
        waiter = _Waiter(execution)
        self._waiters.add(waiter)
        self._by_tenant[tenant] += 1
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)
            self._by_tenant[tenant] -= 1
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]

    async def _make_rounds(self) -> None:
        """Make rounds once no other waiter does. After an error, all waiters look for themselves and meet the error there."""
        async with self._rounds:
            try:
                while True:
                    await self._clock.sleep(ROUND_SEC)
                    await self._make_round()
            except Exception:
                self._wake_all()
                raise

    async def _make_round(self) -> None:
        waiters = list(self._waiters)
        still_open = await self._execution_search.open_among({each.execution for each in waiters})
        for each in waiters:
            if each.execution not in still_open:
                each.ended.set()

    def _wake_all(self) -> None:
        for each in self._waiters:
            each.ended.set()
