"""Change sender: passes stored changes of jobs on to workers and to the hot index."""

from collections.abc import Callable, Iterable, Sequence

from noonday.model.change import ChangeResult, NewJob
from noonday.model.firing import Entry, fire_entry
from noonday.model.ids import JobId, partition_of
from noonday.ports.clock import Clock
from noonday.ports.hot_index import HotIndex
from noonday.ports.signals import Signals


class ChangeSender:
    """Sends copies of stored changes: revocations and fences to workers, hints of due entries to the hot index.

    The store has all of it, so a lost hint delays a job but loses nothing.
    """

    def __init__(
        self,
        *,
        index: HotIndex,
        signals: Signals,
        clock: Clock,
        hint_ahead_ms: int,
        on_placed: Callable[[], None] = lambda: None,
    ) -> None:
        """Entries due within `hint_ahead_ms` are hinted. `on_placed` is called after a hint."""
        self._index = index
        self._signals = signals
        self._clock = clock
        self._hint_ahead_ms = hint_ahead_ms
        self._on_placed = on_placed

    async def send(self, applied: ChangeResult) -> None:
        """Send a change of a job: first revocations and fences, because the response waits for them, then hints."""
        for pool, execution, dispatch, reason in applied.revocations:
            await self._signals.revoke(pool, [(execution, dispatch, reason)])
        await self.fence(applied.after.job.id, applied.fenced)
        latest = self._clock.now_ms() + self._hint_ahead_ms
        await self._hint([entry for entry in applied.entries if entry.due_ms <= latest])

    async def send_new(self, jobs: Iterable[NewJob], now_ms: int) -> None:
        """Hint the first fires of new jobs."""
        latest = now_ms + self._hint_ahead_ms
        await self._hint([_first_entry(new) for new in jobs if _is_due_by(new, latest)])

    async def fence(self, job_id: JobId, pools: Iterable[str]) -> None:
        """Fence a job in these pools: dispatches that were fired before now do not start."""
        for pool in pools:
            await self._signals.fence(pool, job_id, self._clock.now_ms())

    async def _hint(self, entries: Sequence[Entry]) -> None:
        if entries:
            await self._index.hint(entries)
            self._on_placed()


def _is_due_by(new: NewJob, latest_ms: int) -> bool:
    return new.fire is not None and new.fire.due_ms is not None and new.fire.due_ms <= latest_ms


def _first_entry(new: NewJob) -> Entry:
    assert new.fire is not None
    return fire_entry(new.job, new.fire.nominal_ms, partition_of(new.job.id))
