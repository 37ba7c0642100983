"""Fires batches, and finds the entries that cannot be fired, so that the others are."""

from collections.abc import Collection, Sequence

import msgspec
import structlog

from noonday.model.errors import StaleEpoch, StoreFailed, Unavailable, is_bad_data
from noonday.model.firing import Entry, Kind, plan_error, plan_fire, plan_refused
from noonday.model.ids import JobId
from noonday.ports.clock import Clock
from noonday.ports.firing import FireRequest, FireResult, Firing, Owner, RecurringJob
from noonday.runtime.metrics import Metrics
from noonday.scheduler.deferring import DeferredEntries

log = structlog.get_logger("noonday.dispatcher")
MOST_FAILURES = 40
"""So many statements of one batch may fail. One culprit in 2,000 entries takes 12; a store that fails everything is not asked
4,000 times."""

MOST_NAMED = 5
"""So many entries of a batch that cannot be planned are named in the log."""


class FireOutcome(msgspec.Struct):
    """What became of a batch. Every entry is in an answer of the store, unfired or deferred."""

    fired: list[FireResult]
    unfired: list[Entry]
    """As they were: to be tried again with everything else."""
    error: Exception | None = None
    """Why there is something unfired."""


class IsolatingFirer:
    """Plans and fires entries. A batch that fails is halved until the culprits are alone.

    Only bad data is final: the occurrences of that entry are decided as ERROR, and a recurring job goes on with its next time.
    Any other culprit is deferred: it stays on the timeline and is tried again, later each time. If nothing at all can be fired,
    the culprit is the store, and nobody is deferred.
    """

    def __init__(self, firing: Firing, clock: Clock, metrics: Metrics) -> None:
        self._firing = firing
        self._clock = clock
        self._metrics = metrics
        self._deferred = DeferredEntries()

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._deferred

    def take_deferred(self, partitions: Collection[int]) -> list[Entry]:
        """Returns deferred entries whose wait is over."""
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
            # The store is well, as the rest of the batch shows.
            deferred = [*deferred, *batch.culprits]
        else:
            batch.unfired += batch.culprits
        self._deferred.add(deferred, self._clock.monotonic())
        self._metrics.deferred_entries.set(len(self._deferred))
        self._metrics.deferrals.inc(len(deferred))


class _Batch:
    """One batch, divided as long as parts of it fail."""

    def __init__(self, firing: Firing, clock: Clock, owner: Owner, entries: Sequence[Entry]) -> None:
        self._firing = firing
        self._clock = clock
        self._owner = owner
        self._parts: list[Sequence[Entry]] = [entries]
        """Parts to fire, the next one last."""
        self._failures = 0
        self.fired: list[FireResult] = []
        self.unplanned: list[Entry] = []
        """Nothing says what their fire does: their own definition is the reason."""
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
        if self._failures > MOST_FAILURES:
            self._give_up(part)
        elif len(part) > 1:
            middle = len(part) // 2
            self._parts += [part[middle:], part[:middle]]
        elif not (is_bad_data(error) and requests and await self._decide(requests[0], error)):
            log.error("entry deferred", key=part[0].key, nominal_ms=part[0].nominal_ms, error=repr(error)[:500])
            self.culprits.append(part[0])

    def _give_up(self, part: Sequence[Entry]) -> None:
        """The rest of the batch is as it was."""
        self.unfired += [entry for rest in (part, *self._parts) for entry in rest]
        self._parts = []

    async def _decide(self, request: FireRequest, error: Exception) -> bool:
        """The store refuses the data of this fire: decide its occurrences instead. Returns whether the store took that."""
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
        wanted = [entry for entry in entries if entry.recurring]
        if not wanted:
            return [FireRequest(entry) for entry in entries]
        jobs = await self._firing.plans(wanted)
        now_ms = self._clock.now_ms()
        requests = (self._plan_one(entry, jobs, now_ms) if entry.recurring else FireRequest(entry) for entry in entries)
        return [request for request in requests if request is not None]

    def _plan_one(self, entry: Entry, jobs: dict[tuple[JobId, int], RecurringJob], now_ms: int) -> FireRequest | None:
        planned = jobs.get((JobId(entry.key), entry.number))
        if planned is None:
            return FireRequest(entry)
        try:
            # An early entry is planned as of its instant, which is a moment ahead.
            now_ms = max(now_ms, entry.due_ms)
            if planned.flaw is None:
                plan = plan_fire(planned.job, entry.nominal_ms, now_ms, planned.runs_left)
            else:
                log.error("cannot read job", job=entry.key, flaw=planned.flaw)
                plan = plan_error(planned.job, entry.nominal_ms, now_ms, f"unreadable job: {planned.flaw}"[:500])
        except Exception:
            # A time zone that this machine lacks, or a mistake of ours: neither ends a schedule.
            if len(self.unplanned) < MOST_NAMED:
                log.exception("cannot plan", job=entry.key, nominal_ms=entry.nominal_ms)
            self.unplanned.append(entry)
            return None
        return FireRequest(entry, plan, planned.runs_left)
