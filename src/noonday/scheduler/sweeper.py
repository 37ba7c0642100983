"""Recovers losses: overdue entries that the index lacks, batches that were never sealed, dispatches that the bus lost."""

from collections.abc import Callable

import structlog

from noonday.model.batch import Mark
from noonday.model.errors import NoondayError
from noonday.model.fence import ORPHANED_AFTER_MS
from noonday.model.firing import Entry
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.publishing import Publisher

log = structlog.get_logger("noonday.sweeper")
PAGE = 5_000
"""Entries read in one step."""
BATCHES = 20
"""Unsealed batches read in one round."""
ORPHANS_EVERY_MS = 15_000
"""Interval of orphan recovery, in the log's time: it scans all open executions."""
JUMP_MS = 60_000
"""Longest regular gap between two ticks. Ticks come every few seconds: a longer gap means that the clock was set, or
everything stalled."""


class Sweeper:
    """Restores overdue entries, adopts unsealed batches and requeues orphans.

    Overdue entries are walked one page per round, by keyset, from the first to the last and then again.
    """

    def __init__(
        self,
        *,
        firing: Firing,
        executions: Executions,
        index: HotIndex,
        publisher: Publisher,
        ownership: Ownership,
        is_tracked: Callable[[Entry], bool],
        grace_ms: int,
    ) -> None:
        """`is_tracked` returns whether this owner has taken an entry from the index and not yet fired it."""
        self._firing = firing
        self._executions = executions
        self._index = index
        self._publisher = publisher
        self._is_tracked = is_tracked
        self._grace_ms = grace_ms
        self._ownership = ownership
        self._mark: Mark | None = None
        self._last_batch = 0
        self._tick_ms: int | None = None
        self._first_tick_ms: int | None = None
        """First tick seen since the start, or since the clock was set."""
        self._steady_since_ms = 0
        self._recovered_ms = 0

    async def run_once(self, now_ms: int) -> int:
        """Run one round of each duty. A failing duty does not stop the others; the first error is raised at the end."""
        found = 0
        failure: NoondayError | None = None
        for duty in (self._sweep_overdue, self._adopt_unsealed, self._requeue_orphans):
            try:
                found += await duty(now_ms)
            except NoondayError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return found if self._mark is not None else 0

    async def _sweep_overdue(self, now_ms: int) -> int:
        overdue = await self._firing.walk(self._ownership.partitions, self._mark, now_ms - self._grace_ms, PAGE)
        missing = [entry for entry in await self._index.missing(overdue) if not self._is_tracked(entry)]
        await self._index.add(missing)
        self._mark = (overdue[-1].due_ms, overdue[-1].key) if len(overdue) == PAGE else None
        return len(missing)

    async def _adopt_unsealed(self, now_ms: int) -> int:
        """Publish what is still PENDING of batches that were never sealed. Workers drop duplicates.

        A batch belongs to the instance that fired it for as long as that instance is a member.
        """
        batches = await self._firing.unsealed(now_ms - self._grace_ms, BATCHES, self._last_batch)
        # All batches have their turn: those that this instance may not adopt, or that fail, must not hide the ones behind
        # them.
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

    async def _requeue_orphans(self, now_ms: int) -> int:
        """Put orphans back on the timeline. The time is that of the last tick applied: while the log stalls, no report can be
        missing."""
        tick_ms = await self._executions.oldest_tick_ms()
        if not tick_ms or not self._is_steady(tick_ms) or tick_ms < self._recovered_ms + ORPHANS_EVERY_MS:
            return 0
        # A fire stamped ahead of now may have happened a moment ago. It is known to be old once ticks were seen for that long.
        ahead = self._first_tick_ms is not None and tick_ms - self._first_tick_ms >= ORPHANED_AFTER_MS
        entries = await self._firing.requeue_orphans(tick_ms - ORPHANED_AFTER_MS, PAGE, now_ms, ahead=ahead)
        if len(entries) < PAGE:
            self._recovered_ms = tick_ms
        await self._index.add(entries)
        return len(entries)

    def _is_steady(self, tick_ms: int) -> bool:
        """Return whether ticks came without a jump for ORPHANED_AFTER_MS.

        Right after a jump, a dispatch that was just fired looks old, and its worker has had no time to report.
        """
        if self._tick_ms is not None and abs(tick_ms - self._tick_ms) > JUMP_MS:
            self._steady_since_ms = tick_ms
            # The clock was set back: a mark ahead of it would stop orphan recovery until the clock gets there again.
            self._recovered_ms = min(self._recovered_ms, tick_ms)
            self._first_tick_ms = tick_ms
        if self._first_tick_ms is None:
            self._first_tick_ms = tick_ms
        self._tick_ms = tick_ms
        return tick_ms - self._steady_since_ms >= ORPHANED_AFTER_MS
