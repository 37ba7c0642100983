"""Starting: from the backlog over the pre-start check to the hosts."""

from collections.abc import Sequence
from dataclasses import dataclass

from noonday.ports.clock import Clock
from noonday.worker.active import ActiveRuns
from noonday.worker.announcing import StartAnnouncer
from noonday.worker.backlog import Backlog
from noonday.worker.capacity import Capacity, Lane
from noonday.worker.claims import Claims
from noonday.worker.connectivity import Connectivity
from noonday.worker.ended import EndedRuns
from noonday.worker.pre_start_check import PreStartCheck
from noonday.worker.rounds import Rounds
from noonday.worker.run import INTERRUPTED, Run, timeout_of
from noonday.worker.sharing import SlotShares

_BLOCKED_RETRY_SEC = 0.05
"""Seconds until runs are tried again that could not start although they had a slot."""
_MAX_WAIT_SEC = 0.5
"""Maximum seconds between two rounds: the wall clock may be set meanwhile."""
_MIN_WAIT_SEC = 0.0005


@dataclass(eq=False)
class Starter:
    """Starts the runs of the backlog that are due, have a slot, and pass the pre-start check."""

    _backlog: Backlog
    _check: PreStartCheck
    _announcer: StartAnnouncer
    _active: ActiveRuns
    _capacity: Capacity
    _shares: SlotShares
    _claims: Claims
    _connectivity: Connectivity
    _ended: EndedRuns
    _rounds: Rounds
    _clock: Clock

    async def run_forever(self) -> None:
        while self._rounds.taking:
            wait_sec = await self.start_once()
            if wait_sec > 0:
                await self._clock.wait_for(self._rounds.start_wake, wait_sec)
            self._rounds.start_wake.clear()

    async def start_once(self) -> float:
        """Start the runs that are due and have a slot. Returns the seconds until more may be due."""
        with self._rounds.one():
            self._backlog.move_due(self._clock.now_ms())
            blocked: set[Lane] = set()
            while lane := self._backlog.next_lane(blocked):
                if not await self._start_some(lane, self._backlog.startable_count(lane)):
                    blocked.add(lane)
            return _BLOCKED_RETRY_SEC if blocked else self._wait_sec()

    def return_unstarted(self) -> None:
        """Return all runs that have not started, so that other workers get them."""
        for run in (*self._check.take_all(), *self._backlog.take_all()):
            self._backlog.return_run(run)
        # Their starts may be on the log already, so this worker must return them even if their claims have lapsed.
        for run in self._announcer.take_all():
            self._ended.reject(run, INTERRUPTED)

    def _wait_sec(self) -> float:
        due_ms = self._backlog.next_due_ms
        if due_ms is None:
            return _MAX_WAIT_SEC
        return min(_MAX_WAIT_SEC, max(_MIN_WAIT_SEC, (due_ms - self._clock.now_ms()) / 1000))

    async def _start_some(self, lane: Lane, count: int) -> bool:
        """Check and start up to `count` runs of a lane. Returns whether more runs of the lane may start in this round."""
        pool, ready = lane[0], self._backlog.ready(lane)
        found = self._shares.sort(pool, ready.take(self._shares.batch_limit(pool, count)))
        ready.put_back(found.waiting)
        runs = [*found.starting, *found.deferred] if found.deferred else found.starting
        runs, reasons = await self._check.check(pool, runs, found.deferred)
        if reasons is None or self._connectivity.may_be_judged_lost(self._clock.monotonic()):
            ready.put_back(runs)
            return False
        if not self._rounds.taking:
            for run in runs:
                self._backlog.return_run(run)
            return False
        if stale := self._claims.stale(runs):
            # The check took long. Claims that may have lapsed meanwhile are renewed before the next check.
            ready.put_back(stale)
            runs = [run for run in runs if run not in stale]
        now_ms = self._clock.now_ms()
        superseding = self._start(lane, [run for run in runs if self._check.passes(run, reasons, now_ms)])
        ready.extend(superseding)
        return not superseding and not found.waiting

    def _start(self, lane: Lane, runs: Sequence[Run]) -> list[Run]:
        """Start runs that passed. Returns those that start once an earlier dispatch of their execution has ended."""
        starting, superseding = self._active.add(runs)
        self._capacity.start(lane, len(starting))
        for run in starting:
            run.timeout_sec = timeout_of(run)
        self._shares.started(starting)
        self._announcer.start_others(starting)
        return superseding
