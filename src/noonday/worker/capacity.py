"""Capacity of a worker: how many dispatches to take, and how many runs may start now."""

import math
from collections.abc import Callable, Collection, Iterable

from noonday.model.handler import Mode
from noonday.ports.clock import Clock
from noonday.worker.options import WorkerOptions, limit_of
from noonday.worker.run import Run

LOOKAHEAD_SEC = 0.02
"""Seconds of work that the handlers' loop may be given beyond its free slots."""
Lane = tuple[str, Mode]
"""A pool and the mode of some of its handlers."""


class Capacity:
    """Counts the runs of each pool and mode against their slots. For the control loop only."""

    def __init__(
        self,
        options: WorkerOptions,
        mixed_pools: Collection[str],
        clock: Clock,
        demand: Callable[[str], int] | None = None,
    ) -> None:
        """`mixed_pools`: pools with handlers on two hosts. `demand` returns how many runs of a pool are of use: remote workers
        have or wait for them. None: as many as there are slots."""
        self._demand = demand
        self._options = options
        self._mixed_pools = mixed_pools
        self._clock = clock
        self._pace = {pool: _Pace() for pool in options.concurrency}
        self._under_way = dict.fromkeys(Mode, 0)
        """Number of started runs that are not reported yet, by mode."""
        self._unreported = dict.fromkeys(options.concurrency, 0)
        """Number of admitted runs that are not reported yet, by pool."""

    def room(self, pool: str, now: float) -> int:
        """Return how many dispatches of a pool to take: enough to keep its handlers busy for a moment, and early ones."""
        capacity = self._options.concurrency[pool]
        if self._demand is not None:
            return min(capacity, self._demand(pool)) - self._unreported[pool]
        return max(2 * capacity, self._pace[pool].per_second(now) // 2) - self._unreported[pool]

    def split_by_expected_start(self, runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
        """Split runs into those expected to start within about a second, judging by slots and pace, and the others."""
        now = self._clock.monotonic()
        free_slots = {
            pool: slots + self._pace[pool].per_second(now) - self._unreported[pool]
            for pool, slots in self._options.concurrency.items()
        }
        soon: list[Run] = []
        later: list[Run] = []
        for run in runs:
            pool = run.dispatch.pool
            (soon if free_slots[pool] > 0 else later).append(run)
            free_slots[pool] -= 1
        return soon, later

    def admit(self, runs: Iterable[Run]) -> None:
        """Count runs that this worker has taken."""
        for run in runs:
            self._unreported[run.dispatch.pool] += 1

    def release(self, runs: Iterable[Run]) -> None:
        """Stop counting admitted runs: they are reported, or left to another worker."""
        for run in runs:
            self._unreported[run.dispatch.pool] -= 1

    def free_for_coroutines(self, pool: str) -> int:
        """Return the free slots of a pool, and as many more as the handlers' loop completes in LOOKAHEAD_SEC."""
        pace = self._pace[pool]
        # A pool with two hosts gets no lookahead: each host would admit the pool's concurrency.
        ahead = 0 if pool in self._mixed_pools else int(pace.per_second(self._clock.monotonic()) * LOOKAHEAD_SEC)
        return self._options.concurrency[pool] + ahead - pace.under_way

    def free_for_functions(self, lane: Lane, lanes: int) -> int:
        """Return the free slots of a lane's pool, but no more than its part of the free threads or processes.

        `lanes`: number of lanes that share the threads or processes.
        """
        pool, mode = lane
        slots = self._options.concurrency[pool] - self._pace[pool].under_way
        limit = limit_of(mode, self._options)
        if limit is None:
            return slots
        return min(slots, math.ceil((limit - self._under_way[mode]) / max(1, lanes)))

    def start(self, lane: Lane, count: int) -> None:
        """Count the slots of runs that start."""
        self._change(lane, count)

    def end(self, runs: Iterable[Run]) -> None:
        """Free the slots of started runs that are about to be reported."""
        now = self._clock.monotonic()
        for run in runs:
            self._pace[run.dispatch.pool].ended(now)
            self._under_way[run.mode] -= 1

    def keep_slot(self, run: Run) -> None:
        """Count the slot of an abandoned run that keeps it. The report of its stand-in frees one slot."""
        self._change((run.dispatch.pool, run.mode), 1)

    def free_kept_slot(self, run: Run) -> None:
        """Free the slot that an abandoned run kept until its end."""
        self._change((run.dispatch.pool, run.mode), -1)

    def _change(self, lane: Lane, by: int) -> None:
        pool, mode = lane
        self._pace[pool].under_way += by
        self._under_way[mode] += by


class _Pace:
    """Rate at which the runs of a pool end, and the number under way."""

    __slots__ = ("_count", "_rate", "_since", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self._since = 0.0
        self._count = 0
        self._rate = 0

    def ended(self, now: float) -> None:
        self.under_way -= 1
        self._count += 1
        self._roll(now)

    def per_second(self, now: float) -> int:
        self._roll(now)
        return self._rate

    def _roll(self, now: float) -> None:
        elapsed = now - self._since
        if elapsed >= 0.1:
            self._rate = int(self._count / elapsed)
            self._count, self._since = 0, now
