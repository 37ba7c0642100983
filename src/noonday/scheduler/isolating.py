"""Fires batches, and isolates the entries that cannot be fired, so that the others are."""

from collections.abc import Collection, Sequence

import msgspec
import structlog

from noonday.model.batch import FireRequest, FireResult, Owner, RecurringJob
from noonday.model.errors import StaleEpoch, StoreFailed, Unavailable, is_bad_data
from noonday.model.firing import Entry, Kind, plan_error, plan_fire, plan_refused
from noonday.model.ids import JobId
from noonday.ports.clock import Clock
from noonday.ports.firing import Firing
from noonday.runtime.metrics import Metrics
from noonday.scheduler.deferring import DeferredEntries

log = structlog.get_logger("noonday.dispatcher")
MAX_FAILURES = 40
"""Maximum number of failed statements per batch. One culprit in 2,000 entries takes 12; a store that fails every statement is
not asked 4,000 times."""

MAX_LOGGED = 5
"""Maximum number of entries per batch that are logged because they cannot be planned."""


class FireOutcome(msgspec.Struct):
    """Result of firing a batch. Every entry is in a result of the store, unfired or deferred."""

    fired: list[FireResult]
    unfired: list[Entry]
    """Unchanged entries, to be tried again together with all others."""
    error: Exception | None = None
    """Reason why entries are unfired."""


class IsolatingFirer:
    """Plans and fires entries. A batch that fails is halved until the culprits are alone.

    Only bad data is final: the occurrences of that entry are decided as ERROR, and a recurring job continues with its next
    time. Any other culprit is deferred: it stays on the timeline and is tried again, later each time. If the store fires
    nothing of a batch, the store is the culprit, and the entries that it refused are not deferred.
    """

    def __init__(self, firing: Firing, clock: Clock, metrics: Metrics) -> None:
        self._firing = firing
        self._clock = clock
        self._metrics = metrics
        self._deferred = DeferredEntries()

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._deferred

    def take_deferred(self, partitions: Collection[int]) -> list[Entry]:
        """Remove and return deferred entries whose wait is over."""
        taken = self._deferred.take(partitions, self._clock.monotonic())
        if taken:
            self._metrics.deferred_entries.set(len(self._deferred))
        return taken

    async def fire(self, owner: Owner, entries: Sequence[Entry]) -> FireOutcome:
        batch = _Batch(self._firing, self._clock, owner, entries)
        await batch.fire()
        if batch.unplanned or batch.culprits:
            self._defer(batch)
        if not batch.unfired:
            self._deferred.forget(entries)
        self._metrics.batch_size.observe(len(entries))
        return FireOutcome(batch.fired, batch.unfired, batch.error if batch.unfired else None)

    def _defer(self, batch: "_Batch") -> None:
        deferred = batch.unplanned
        if batch.fired:
            # The store works: it fired the rest of the batch.
            deferred = [*deferred, *batch.culprits]
        else:
            batch.unfired += batch.culprits
        self._deferred.add(deferred, self._clock.monotonic())
        self._metrics.deferred_entries.set(len(self._deferred))
        self._metrics.deferrals.inc(len(deferred))


class _Batch:
    """A batch that is halved as long as parts of it fail."""

    def __init__(self, firing: Firing, clock: Clock, owner: Owner, entries: Sequence[Entry]) -> None:
        self._firing = firing
        self._clock = clock
        self._owner = owner
        self._parts: list[Sequence[Entry]] = [entries]
        """Parts to fire. The last one is next."""
        self._failures = 0
        self.fired: list[FireResult] = []
        self.unplanned: list[Entry] = []
        """Entries that cannot be planned because of their own definition."""
        self.culprits: list[Entry] = []
        self.unfired: list[Entry] = []
        self.error: Exception | None = None

    async def fire(self) -> None:
        while self._parts:
            part = self._parts.pop()
            requests: list[FireRequest] = []
            try:
                requests = await self._plan(part)
                if requests:
                    self.fired.append(await self._fire(requests))
            except StaleEpoch:
                raise
            except Exception as error:
                self.error = error
                await self._on_failure(part, requests, error)

    async def _on_failure(self, part: Sequence[Entry], requests: Sequence[FireRequest], error: Exception) -> None:
        if requests:
            part = [request.entry for request in requests]
        if isinstance(error, Unavailable) and not isinstance(error, StoreFailed):
            self._give_up(part)
            return
        self._failures += 1
        if self._failures == 1:
            log.warning("fire failed", entries=len(part), error=repr(error)[:500])
        if self._failures > MAX_FAILURES:
            self._give_up(part)
        elif len(part) > 1:
            middle = len(part) // 2
            self._parts += [part[middle:], part[:middle]]
        elif not (is_bad_data(error) and requests and await self._decide(requests[0], error)):
            log.error("entry deferred", key=part[0].key, nominal_ms=part[0].nominal_ms, error=repr(error)[:500])
            self.culprits.append(part[0])

    def _give_up(self, part: Sequence[Entry]) -> None:
        """Leave the rest of the batch unfired."""
        self.unfired += [entry for rest in (part, *self._parts) for entry in rest]
        self._parts = []

    async def _decide(self, request: FireRequest, error: Exception) -> bool:
        """Decide the occurrences of a fire whose data the store refuses. Returns whether the store took the decision."""
        if request.entry.kind != Kind.FIRE:
            return False
        entry, reason = request.entry, f"{type(error).__name__}: {error}"
        log.error("fire refused", job=entry.key, nominal_ms=entry.nominal_ms, error=reason[:500])
        plan = plan_refused(JobId(entry.key), entry.nominal_ms, request.plan, reason)
        try:
            self.fired.append(await self._fire([msgspec.structs.replace(request, plan=plan)]))
        except Exception:
            log.exception("decision refused", job=entry.key, nominal_ms=entry.nominal_ms)
            return False
        return True

    async def _fire(self, requests: Sequence[FireRequest]) -> FireResult:
        return await self._firing.fire(self._owner, requests, self._clock.now_ms())

    async def _plan(self, entries: Sequence[Entry]) -> list[FireRequest]:
        recurring_entries = [entry for entry in entries if entry.recurring]
        if not recurring_entries:
            return [FireRequest(entry) for entry in entries]
        jobs = await self._firing.plans(recurring_entries)
        now_ms = self._clock.now_ms()
        requests = (self._plan_one(entry, jobs, now_ms) if entry.recurring else FireRequest(entry) for entry in entries)
        return [request for request in requests if request is not None]

    def _plan_one(self, entry: Entry, jobs: dict[tuple[JobId, int], RecurringJob], now_ms: int) -> FireRequest | None:
        recurring = jobs.get((JobId(entry.key), entry.number))
        if recurring is None:
            return FireRequest(entry)
        try:
            # An early entry is planned as of its instant, which is slightly ahead of now.
            now_ms = max(now_ms, entry.due_ms)
            if recurring.flaw is None:
                plan = plan_fire(recurring.job, entry.nominal_ms, now_ms, recurring.runs_left)
            else:
                log.error("job unreadable", job=entry.key, flaw=recurring.flaw)
                plan = plan_error(recurring.job, entry.nominal_ms, now_ms, f"unreadable job: {recurring.flaw}"[:500])
        except Exception:
            # This machine lacks the time zone, or Noonday has a bug: neither may end a schedule.
            if len(self.unplanned) < MAX_LOGGED:
                log.exception("planning failed", job=entry.key, nominal_ms=entry.nominal_ms)
            self.unplanned.append(entry)
            return None
        return FireRequest(entry, plan, recurring.runs_left)
