"""Finds what fell between the chairs: overdue entries the index has lost, batches nobody sealed, dispatches the bus lost."""

from collections.abc import Callable

import structlog

from noonday.model.errors import NoondayError
from noonday.model.fence import ORPHANED_AFTER_MS
from noonday.model.firing import Entry
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing, Mark
from noonday.ports.hot_index import HotIndex
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.publishing import Publisher

log = structlog.get_logger("noonday.sweeper")
PAGE = 5_000
BATCHES = 20
CAST_EVERY_MS = 15_000
"""A net looks at everything that is open."""
JUMP_MS = 60_000
"""Ticks come every few seconds: between two that are further apart, the clock was set, or everything stood still."""


class Sweeper:
    """One page a round, by keyset, round and round over everything that is overdue."""

    def __init__(
        self,
        *,
        firing: Firing,
        executions: Executions,
        index: HotIndex,
        publisher: Publisher,
        ownership: Ownership,
        has_in_hand: Callable[[Entry], bool],
        grace_ms: int,
    ) -> None:
        """`has_in_hand` knows what this owner has taken from the index and not yet fired."""
        self._firing = firing
        self._executions = executions
        self._index = index
        self._publisher = publisher
        self._has_in_hand = has_in_hand
        self._grace_ms = grace_ms
        self._ownership = ownership
        self._mark: Mark | None = None
        self._last_batch = 0
        self._tick_ms: int | None = None
        self._first_tick_ms: int | None = None
        """The first tick that was seen since the clock was set, or since the start."""
        self._steady_since_ms = 0
        self._cast_ms = 0

    async def run_once(self, now_ms: int) -> int:
        """One round of each duty. A duty that fails keeps no other from its turn; the first failure is raised at the end."""
        found = 0
        failure: NoondayError | None = None
        for duty in (self._sweep_overdue, self._adopt_unsealed, self._cast_net):
            try:
                found += await duty(now_ms)
            except NoondayError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return found if self._mark is not None else 0

    async def _sweep_overdue(self, now_ms: int) -> int:
        overdue = await self._firing.walk(self._ownership.partitions, self._mark, now_ms - self._grace_ms, PAGE)
        missing = [entry for entry in await self._index.missing(overdue) if not self._has_in_hand(entry)]
        await self._index.place(missing)
        self._mark = (overdue[-1].due_ms, overdue[-1].key) if len(overdue) == PAGE else None
        return len(missing)

    async def _adopt_unsealed(self, now_ms: int) -> int:
        """Publish again what is still PENDING of a batch that was never sealed; a worker drops what it has seen.

        A batch belongs to the instance that fired it, as long as that is a member.
        """
        batches = await self._firing.unsealed(now_ms - self._grace_ms, BATCHES, self._last_batch)
        # Round and round: batches that are not ours to adopt, or that fail, must not hide those behind them.
        self._last_batch = batches[-1].id if len(batches) == BATCHES else 0
        adopted = 0
        failure: NoondayError | None = None
        for batch in batches:
            if self._ownership.may_adopt(batch.owner, now_ms - batch.fired_ms):
                try:
                    await self._publisher.publish(await self._firing.dispatches_of(batch))
                    await self._firing.seal([batch.id])
                    adopted += 1
                except NoondayError as error:
                    log.warning("batch not adopted", batch=batch.id, error=error.detail)
                    failure = failure or error
        if failure is not None:
            raise failure
        return adopted

    async def _cast_net(self, now_ms: int) -> int:
        """By the time of the last tick applied: while the log stands still, nobody's report can be missing."""
        tick_ms = await self._executions.oldest_tick_ms()
        if not tick_ms or not self._is_steady(tick_ms) or tick_ms < self._cast_ms + CAST_EVERY_MS:
            return 0
        # What is stamped ahead is only known to be old once ticks were seen for as long: it may have been fired a moment ago.
        ahead = self._first_tick_ms is not None and tick_ms - self._first_tick_ms >= ORPHANED_AFTER_MS
        entries = await self._firing.requeue_orphans(tick_ms - ORPHANED_AFTER_MS, PAGE, now_ms, ahead=ahead)
        if len(entries) < PAGE:
            self._cast_ms = tick_ms
        await self._index.place(entries)
        return len(entries)

    def _is_steady(self, tick_ms: int) -> bool:
        """Whether the ticks have gone on without a jump for as long as the net waits. Right after one, what was fired a
        moment ago looks old, and its worker has had no time to say that it runs."""
        if self._tick_ms is not None and abs(tick_ms - self._tick_ms) > JUMP_MS:
            self._steady_since_ms = tick_ms
            # The clock was set back: a mark that is ahead of it would stop the net until the clock has come there again.
            self._cast_ms = min(self._cast_ms, tick_ms)
            self._first_tick_ms = tick_ms
        if self._first_tick_ms is None:
            self._first_tick_ms = tick_ms
        self._tick_ms = tick_ms
        return tick_ms - self._steady_since_ms >= ORPHANED_AFTER_MS
