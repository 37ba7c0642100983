"""Turns due entries into executions and publishes them to the pools."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from functools import partial

from noonday.model.batch import FireResult
from noonday.model.budget import EntryBudget
from noonday.model.errors import SignalsUnavailable, StoreFailed, StoreUnavailable, Unavailable
from noonday.model.firing import Entry
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.signals import Signals
from noonday.runtime.metrics import Metrics
from noonday.scheduler.allowances import Allowances
from noonday.scheduler.blocked_entries import BlockedEntries
from noonday.scheduler.in_flight import ClaimedBatch, InFlight
from noonday.scheduler.isolating import IsolatingFirer
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.publishing import Publisher

MAX_BATCHES_IN_FLIGHT = 3
"""Maximum number of batches in flight: while the store fires one, the next is claimed and planned."""
TARGET_BATCH_SEC = 0.15
"""Target time from claim to fire. A longer one would delay the entries that fall due next."""
MIN_BATCH = 100
"""Smallest batch size that AdaptiveBatchSize chooses."""
NO_CREDIT_SEC = 0.005
"""Wait before a pool without credit is checked again."""
PATIENCE_MS = 25
"""Delay of the claim of early entries, so that more of them share a commit. A commit costs the same for one entry as for
many, and early entries are dispatched well ahead of their instant."""
STUCK_SEC = 30.0
"""A batch in flight for longer than this makes the process not ready. Statements time out well before."""
SEAL_SEC = 0.5
"""Interval between seals. Batches are sealed together: an unsealed one is at worst published again, and workers drop the
duplicates."""


class AdaptiveBatchSize:
    """Number of entries to fire together: as many as the store fires within TARGET_BATCH_SEC, up to a maximum."""

    def __init__(self, limit: int) -> None:
        self.size = self._max = limit

    def note(self, count: int, took_sec: float) -> None:
        """Adapt to a batch of `count` entries that took `took_sec` from its claim until the store had fired it."""
        if count < self.size // 2:
            return  # a small batch says nothing about larger ones
        if took_sec > TARGET_BATCH_SEC:
            self.size = max(min(MIN_BATCH, self._max), int(self.size * max(0.5, TARGET_BATCH_SEC / took_sec)))
        elif took_sec < TARGET_BATCH_SEC / 2:
            self.size = min(self._max, self.size * 2)


class Dispatcher:
    """Claims, plans, fires, publishes and seals entries of all owned partitions together, in overlapping batches."""

    def __init__(
        self,
        *,
        ownership: Ownership,
        allowances: Allowances,
        in_flight: InFlight,
        firing: Firing,
        index: HotIndex,
        bus: Bus,
        signals: Signals,
        clock: Clock,
        metrics: Metrics,
        publisher: Publisher,
        batch: int,
        hint_ahead_ms: int,
        budget: EntryBudget,
    ) -> None:
        self._ownership = ownership
        self._allowances = allowances
        self._firing = firing
        self._firer = IsolatingFirer(firing, clock, metrics)
        self._index = index
        self._bus = bus
        self._signals = signals
        self._clock = clock
        self._metrics = metrics
        self._publisher = publisher
        self._batch_size = AdaptiveBatchSize(batch)
        self._hint_ahead_ms = hint_ahead_ms
        self._batches: set[asyncio.Task[None]] = set()
        self._in_flight = in_flight
        self._store_fails = False
        """True if the store failed to fire the last batch. Its entries are in the index again."""
        self._blocked = BlockedEntries(budget)
        metrics.in_flight_entries.set_function(lambda: len(in_flight))
        metrics.blocked_entries.set_function(lambda: len(self._blocked))
        metrics.index_entries.set_function(index.size)
        metrics.index_entries_limit.set(budget.limit)
        self._credit: Mapping[str, int] = {}
        self._to_seal: list[int] = []
        self._sealed_at = 0.0
        self.on_published: Callable[[], None] = lambda: None

    async def run_once(self, now_ms: int) -> int:
        await self._retry_blocked_and_deferred()
        await self._seal_some()
        while len(self._batches) >= MAX_BATCHES_IN_FLIGHT:
            await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failures()
        limit = self._batch_size.size
        credit, shares = await self._allowances.for_claim(await self._measured_credit(), limit)
        now_ms, partitions = self._clock.now_ms(), self._ownership.partitions
        claimed = await self._index.claim(now_ms, partitions, credit, limit, shares)
        if claimed:
            self._metrics.due.inc(len(claimed))
            batch = asyncio.create_task(self._dispatch(self._in_flight.add(claimed, self._clock.monotonic())))
            self._batches.add(batch)
        await self._allowances.give_back(shares)
        if claimed and self._store_fails:
            # One batch at a time while the store fails: the loop must see the error, to back off and to log it.
            await asyncio.shield(batch)
        return len(claimed)

    async def next_wait(self) -> float:
        """Return how many seconds to wait until an entry may be ready."""
        self._raise_failures()
        credit = self._allowances.credit(await self._measured_credit())
        blocked, retry_at_ms = self._allowances.blocked, self._allowances.retry_at_ms
        ready = await self._index.next_ready_ms(self._ownership.partitions, credit, PATIENCE_MS, blocked)
        ready_ms = min((at_ms for at_ms in (ready, retry_at_ms) if at_ms is not None), default=None)
        longest = 0.05 if self._blocked or self._batches else 0.5
        if any(room <= 0 for room in credit.values()):
            longest = NO_CREDIT_SEC
        if ready_ms is None:
            return longest
        return min(longest, max(0.001, (ready_ms - self._clock.now_ms()) / 1000))

    async def _measured_credit(self) -> Mapping[str, int]:
        former, self._credit = self._credit, await self._bus.credit()
        for pool in self._credit.keys() - former.keys():
            self._metrics.watch_credit(pool, partial(self._credit_of, pool))
        return self._credit

    def _credit_of(self, pool: str) -> int:
        return self._credit.get(pool, 0)

    async def drain(self) -> None:
        """Wait until no batch is in flight, then seal all batches."""
        while self._batches:
            await asyncio.wait(self._batches)
            self._raise_failures()
        self._sealed_at = 0.0
        # The next owner publishes an unsealed batch again, so this is no reason to fail.
        with contextlib.suppress(StoreUnavailable):
            await self._seal_some()

    async def _seal_some(self) -> None:
        if self._to_seal and self._clock.monotonic() - self._sealed_at >= SEAL_SEC:
            self._sealed_at = self._clock.monotonic()
            batches, self._to_seal = self._to_seal, []
            try:
                await self._firing.seal(batches)
            except StoreUnavailable:
                self._to_seal += batches
                raise

    def tracks(self, entry: Entry) -> bool:
        """Return whether an entry that is on the timeline and not in the index is in flight, blocked or deferred."""
        return entry in self._in_flight or entry in self._blocked or entry in self._firer

    def reasons_not_ready(self) -> list[str]:
        """Return why this process is not ready: a batch is in flight for longer than STUCK_SEC."""
        age_sec = self._in_flight.oldest_sec(self._clock.monotonic())
        if age_sec <= STUCK_SEC:
            return []
        return [f"dispatcher: a batch is in flight for {age_sec:.1f} s ({len(self._in_flight)} entries in all batches)"]

    def release_blocked(self, slots: Collection[str] | None = None) -> None:
        """Try entries at once that are blocked on one of these freed slots. None means all slots."""
        self._blocked.release(slots)

    async def _dispatch(self, batch: ClaimedBatch) -> None:
        entries = batch.entries
        try:
            outcome = await self._firer.fire(self._ownership.owner, entries)
            self._batch_size.note(len(entries), self._clock.monotonic() - batch.claimed_at)
            self._in_flight.remove(batch)
            dispatches = [dispatch for fired in outcome.fired for dispatch in fired.dispatches]
            await self._allowances.give_back_unused(entries, dispatches)
            for fired in outcome.fired:
                await self._follow_up(fired)
            self._store_fails = bool(outcome.unfired)
            if outcome.unfired:
                # Not fired, as far as this process knows. A fire that was committed without an answer left an unsealed batch.
                await self._index.hint(outcome.unfired)
                raise _as_unavailable(outcome.error)
        finally:
            self._in_flight.remove(batch)

    async def _follow_up(self, fired: FireResult) -> None:
        # Before publishing: when a dispatch ends, the entries that wait for its slot must be known as blocked.
        self._blocked.add(fired.blocked, self._clock.monotonic())
        try:
            if fired.dispatches:
                await self._publisher.publish(self._allowances.with_weights(fired.dispatches))
                self.on_published()
            self._to_seal += fired.batches
        finally:
            if fired.paused:
                # Before the entries are ready again: otherwise they are claimed over and over until the settings are read.
                with contextlib.suppress(StoreUnavailable):
                    await self._allowances.run_once(self._clock.now_ms())
            # Also if the bus is unavailable: these entries are not part of the batch, which stays unsealed.
            latest = self._clock.now_ms() + self._hint_ahead_ms
            await self._index.hint([e for e in fired.entries if e.due_ms <= latest and e not in self._in_flight])
        # The store has the revocations, and the revocation keeper copies them again.
        with contextlib.suppress(SignalsUnavailable):
            for pool, execution, dispatch, reason in fired.revocations:
                await self._signals.revoke(pool, [(execution, dispatch, reason)])
        self._note_result(fired)

    def _note_result(self, fired: FireResult) -> None:
        if fired.refused:
            self._metrics.refused.labels("entry").inc(fired.refused)
        if fired.lost:
            self._metrics.refused.labels("epoch").inc(len(fired.lost))
            self._ownership.lose(fired.lost)
        first_time = sum(dispatch.number == 1 for dispatch in fired.dispatches)
        if first_time:
            self._metrics.decisions.labels("FIRED").inc(first_time)
        for outcome, count in fired.decided.items():
            self._metrics.decisions.labels(outcome).inc(count)

    async def _retry_blocked_and_deferred(self) -> None:
        partitions = self._ownership.partitions
        blocked, deferred = (
            self._blocked.take(partitions, self._clock.monotonic()),
            self._firer.take_deferred(partitions),
        )
        if blocked or deferred:
            await self._index.add([*blocked, *deferred])

    def _raise_failures(self) -> None:
        """Raise the error of a finished batch. Unavailable is ignored: the entries are in the index again, or the batch is
        unsealed."""
        done = {batch for batch in self._batches if batch.done()}
        self._batches -= done
        for batch in done:
            with contextlib.suppress(Unavailable):
                batch.result()


def _as_unavailable(error: Exception | None) -> Unavailable:
    """Wrap an unexpected error as StoreFailed, so that the loop tries again."""
    if isinstance(error, Unavailable):
        return error
    unexpected = StoreFailed(f"cannot fire: {error!r}")
    unexpected.__cause__ = error
    return unexpected
