"""Turns due entries into executions and hands them to the pools."""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from noonday.model.budget import EntryBudget
from noonday.model.errors import SignalsUnavailable, StoreFailed, StoreUnavailable, Unavailable
from noonday.model.firing import Entry
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.firing import FireResult, Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.signals import Signals
from noonday.runtime.metrics import Metrics
from noonday.scheduler.allowances import Allowances
from noonday.scheduler.blocked_entries import BlockedEntries
from noonday.scheduler.in_flight import ClaimedBatch, InFlight
from noonday.scheduler.isolating import IsolatingFirer
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.publishing import Publisher

FLIGHTS = 3
"""Batches under way at the same time: while the store fires one, the next is claimed and planned."""
FLIGHT_SEC = 0.15
"""Batches are as large as this allows: whoever falls due next waits for those that are under way."""
LEAST = 100
NO_CREDIT_SEC = 0.005
"""How soon a pool that was full is looked at again."""
PATIENCE_MS = 25
"""A commit costs the same for one entry as for many, and early ones are handed out well ahead of their instant."""
STUCK_SEC = 30.0
"""A batch in flight for longer than this is a reason not to rely on the process: statements time out well before."""
SEAL_SEC = 0.5
"""Batches are sealed together, now and then: an unsealed one is at worst published again, and dropped by the workers."""


class AdaptiveBatchSize:
    """How many entries are fired together: as many as the store gets through in a moment, and never more than allowed."""

    def __init__(self, most: int) -> None:
        self.now = self._most = most

    def note(self, count: int, took_sec: float) -> None:
        """So many took so long, from the claim until the store had them."""
        if count < self.now // 2:
            return  # it says nothing of larger ones
        if took_sec > FLIGHT_SEC:
            self.now = max(min(LEAST, self._most), int(self.now * max(0.5, FLIGHT_SEC / took_sec)))
        elif took_sec < FLIGHT_SEC / 2:
            self.now = min(self._most, self.now * 2)


class Dispatcher:
    """claim -> plan -> fire -> publish -> seal, for all partitions together, in batches that overlap."""

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
        self._stride = AdaptiveBatchSize(batch)
        self._hint_ahead_ms = hint_ahead_ms
        self._flights: set[asyncio.Task[None]] = set()
        self._in_flight = in_flight
        self._in_trouble = False
        """The store did not take the last batch: it is in the index again."""
        self._blocked = BlockedEntries(budget)
        metrics.in_flight_entries.set_function(lambda: len(in_flight))
        metrics.blocked_entries.set_function(lambda: len(self._blocked))
        metrics.index_entries.set_function(index.size)
        metrics.index_entries_limit.set(budget.limit)
        self._to_seal: list[int] = []
        self._sealed_at = 0.0
        self.on_published: Callable[[], None] = lambda: None

    async def run_once(self, now_ms: int) -> int:
        await self._try_held_again()
        await self._seal_some()
        while len(self._flights) >= FLIGHTS:
            await asyncio.wait(self._flights, return_when=asyncio.FIRST_COMPLETED)
            self._raise_what_failed()
        most = self._stride.now
        credit, shares = await self._allowances.for_claim(await self._bus.credit(), most)
        now_ms, partitions = self._clock.now_ms(), self._ownership.partitions
        claimed = await self._index.claim(now_ms, partitions, credit, most, shares)
        if claimed:
            self._metrics.due.inc(len(claimed))
            flight = asyncio.create_task(self._fly(self._in_flight.add(claimed, self._clock.monotonic())))
            self._flights.add(flight)
        await self._allowances.give_back(shares)
        if claimed and self._in_trouble:
            # One at a time now: the loop has to know what becomes of it, to wait longer and to say why.
            await asyncio.shield(flight)
        return len(claimed)

    async def next_wait(self) -> float:
        """How long until something may be ready."""
        self._raise_what_failed()
        credit = self._allowances.credit(await self._bus.credit())
        blocked, again = self._allowances.blocked, self._allowances.look_again_ms
        ready = await self._index.next_ready_ms(self._ownership.partitions, credit, PATIENCE_MS, blocked)
        ready_ms = min((at_ms for at_ms in (ready, again) if at_ms is not None), default=None)
        longest = 0.05 if self._blocked or self._flights else 0.5
        if any(room <= 0 for room in credit.values()):
            longest = NO_CREDIT_SEC
        if ready_ms is None:
            return longest
        return min(longest, max(0.001, (ready_ms - self._clock.now_ms()) / 1000))

    async def land(self) -> None:
        """Wait until no batch is under way, and seal them all."""
        while self._flights:
            await asyncio.wait(self._flights)
            self._raise_what_failed()
        self._sealed_at = 0.0
        # What stays unsealed is handed out again by whoever comes after us: no reason not to go on.
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

    def has_in_hand(self, entry: Entry) -> bool:
        """Whether an entry that is on the timeline and not in the index is on its way, or blocked for a reason."""
        return entry in self._in_flight or entry in self._blocked or entry in self._firer

    def reasons_not_ready(self) -> list[str]:
        """Why the batches in flight are not to be relied on."""
        age_sec = self._in_flight.oldest_sec(self._clock.monotonic())
        if age_sec <= STUCK_SEC:
            return []
        return [f"dispatcher: a batch is in flight for {age_sec:.1f} s ({len(self._in_flight)} entries in all batches)"]

    def release_held(self, slots: Collection[str] | None = None) -> None:
        """Something was freed: what is blocked for one of these slots (None: for any) may be tried at once."""
        self._blocked.release(slots)

    async def _fly(self, batch: ClaimedBatch) -> None:
        entries = batch.entries
        try:
            outcome = await self._firer.fire(self._ownership.owner, entries)
            self._stride.note(len(entries), self._clock.monotonic() - batch.claimed_at)
            self._in_flight.remove(batch)
            for fired in outcome.fired:
                await self._follow_up(fired)
            self._in_trouble = bool(outcome.unfired)
            if outcome.unfired:
                # Not fired, as far as we know. What was fired and not answered is in an unsealed batch.
                await self._index.hint(outcome.unfired)
                raise _as_unavailable(outcome.error)
        finally:
            self._in_flight.remove(batch)

    async def _follow_up(self, fired: FireResult) -> None:
        # Before others hear of what was fired: when that ends, what waits for it must be known to be blocked.
        self._blocked.add(fired.blocked, self._clock.monotonic())
        await self._allowances.give_back_of(fired.blocked)
        try:
            if fired.dispatches:
                await self._publisher.publish(self._allowances.weighed(fired.dispatches))
                self.on_published()
            self._to_seal += fired.batches
        finally:
            if fired.paused:
                # Before the entries are ready again: else they are claimed over and over until the next look at the settings.
                with contextlib.suppress(StoreUnavailable):
                    await self._allowances.run_once(self._clock.now_ms())
            # Also if the bus is away: what comes next is not of this batch, which stays unsealed.
            latest = self._clock.now_ms() + self._hint_ahead_ms
            await self._index.hint([e for e in fired.entries if e.due_ms <= latest and e not in self._in_flight])
        with contextlib.suppress(SignalsUnavailable):
            # The wish is in the store, and the keeper of the flags looks there again.
            for pool, execution, dispatch, reason in fired.revocations:
                await self._signals.revoke(pool, [(execution, dispatch, reason)])
        self._note(fired)

    def _note(self, fired: FireResult) -> None:
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

    async def _try_held_again(self) -> None:
        partitions = self._ownership.partitions
        blocked, deferred = (
            self._blocked.take(partitions, self._clock.monotonic()),
            self._firer.take_deferred(partitions),
        )
        if blocked or deferred:
            await self._index.place([*blocked, *deferred])

    def _raise_what_failed(self) -> None:
        done = {flight for flight in self._flights if flight.done()}
        self._flights -= done
        for flight in done:
            with contextlib.suppress(Unavailable):
                flight.result()


def _as_unavailable(error: Exception | None) -> Unavailable:
    """What nobody thought of is to be tried again too."""
    if isinstance(error, Unavailable):
        return error
    unforeseen = StoreFailed(f"cannot fire: {error!r}")
    unforeseen.__cause__ = error
    return unforeseen
