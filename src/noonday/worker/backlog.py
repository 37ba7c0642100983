"""The backlog: admitted runs that have not started."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from noonday.model.handler import Mode
from noonday.worker.capacity import Capacity, Lane
from noonday.worker.claims import Claims
from noonday.worker.ended import EndedRuns
from noonday.worker.membership import Membership
from noonday.worker.ready import ReadyRuns
from noonday.worker.rounds import Rounds
from noonday.worker.run import INTERRUPTED, Run


@dataclass(eq=False)
class Backlog:
    """Runs that wait for their instant, and then for a slot in the lane of their pool and mode."""

    _pools: Collection[str]
    _capacity: Capacity
    _claims: Claims
    _ended: EndedRuns
    _membership: Membership
    _rounds: Rounds
    _early: list[tuple[int, int, Run]] = field(default_factory=list)
    """Runs that wait for their instant: a heap of (due time, serial number, run)."""
    _serial: int = 0

    def __post_init__(self) -> None:
        self._ready = {(pool, mode): ReadyRuns() for pool in self._pools for mode in Mode}
        self._lane_order = list(self._ready)
        """Lanes, least recently served first."""

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time of the runs that wait for their instant, or None if there are none."""
        return self._early[0][0] if self._early else None

    def admit(self, runs: Sequence[Run], now_ms: int) -> None:
        """Admit runs that were taken. They are returned if the worker stops or has changed its identity meanwhile."""
        self._capacity.admit(runs)
        for run in runs:
            if not self._rounds.taking or run.identity is not self._membership.identity:
                self.return_run(run)
            elif run.dispatch.due_ms <= now_ms:
                self._ready[run.dispatch.pool, run.mode].append(run)
            else:
                self._serial += 1
                heappush(self._early, (run.dispatch.due_ms, self._serial, run))

    def move_due(self, now_ms: int) -> None:
        """Move runs whose instant has come to their lanes."""
        while self._early and self._early[0][0] <= now_ms:
            run = heappop(self._early)[2]
            self._ready[run.dispatch.pool, run.mode].append(run)

    def next_lane(self, blocked: Collection[Lane]) -> Lane | None:
        """Return the lane to serve next, and move it to the end: pools that share threads or processes take turns."""
        for at, lane in enumerate(self._lane_order):
            if self._ready[lane] and lane not in blocked and self.startable_count(lane) > 0:
                del self._lane_order[at]
                self._lane_order.append(lane)
                return lane
        return None

    def startable_count(self, lane: Lane) -> int:
        """Return how many runs of a lane may start now."""
        pool, mode = lane
        if mode is Mode.ASYNC:
            return self._capacity.free_for_coroutines(pool)
        lanes = sum(1 for other, ready in self._ready.items() if ready and other[1] is mode)
        return self._capacity.free_for_functions(lane, lanes)

    def ready(self, lane: Lane) -> ReadyRuns:
        """Return the due runs of a lane."""
        return self._ready[lane]

    def take_all(self) -> list[Run]:
        """Remove and return all runs."""
        runs = [run for _, _, run in self._early]
        self._early.clear()
        for ready in self._ready.values():
            runs += ready
            ready.clear()
        return runs

    def return_run(self, run: Run) -> None:
        """Report a run as interrupted before its start. Without a fresh claim, leave it to the worker that gets it next."""
        if self._claims.stale([run]):
            self._capacity.release([run])
        else:
            self._ended.reject(run, INTERRUPTED)
