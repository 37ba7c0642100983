"""Limits how many slots of a pool the slow calls of one tenant can take.

A call keeps its slot until it ends, and a slow receiver can make that minutes. Giving out free slots in turn is therefore not
enough: a later tenant would find none. So a tenant never takes more than its share of the slots that other tenants leave, and an
endpoint never more than the same share of the slots that its tenant's other calls leave. Some slots always stay free.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from noonday.model.execution import Failure
from noonday.model.ids import ExecutionId, stable_fraction
from noonday.model.message import Dispatch
from noonday.ports.clock import Clock
from noonday.worker.run import Run

SLOW_SEC = 1.0
"""A share in use for longer is in use by slow calls. Runs that waited for it here would delay those of other tenants."""
LONGEST_WAIT_SEC = 60.0
"""Maximum seconds that a run waits on the timeline for its share, before it is spread."""
MAX_SORTED_AT_ONCE = 200
"""Maximum number of runs that are sorted in one batch."""

_StartTimes = dict[ExecutionId, float]
"""Executions that use a slot, oldest first, each with its start by the monotonic clock."""


@dataclass(slots=True)
class SortedRuns:
    """Runs that asked to start, sorted into those that start now, soon, or later."""

    starting: list[Run] = field(default_factory=list)
    waiting: list[Run] = field(default_factory=list)
    """Runs that wait in the worker: a slot of their share is free in a moment."""
    deferred: dict[Run, float] = field(default_factory=dict)
    """Runs whose share is used by slow calls, with the seconds that each waits on the timeline."""


class SlotShares:
    """Counts the slots that tenants and endpoints use in this worker. Pools without a share are not counted."""

    def __init__(self, slots: Mapping[str, int], shares: Mapping[str, float], clock: Clock) -> None:
        """`shares`: the fraction, 0 to 1, that one tenant may take of the slots that other tenants leave, by pool."""
        self._slots = slots
        self._shares = {pool: share for pool, share in shares.items() if share < 1}
        self._clock = clock
        self._in_use: dict[tuple[str, ...], _StartTimes] = {}
        """Counts by scope: the pool; pool and tenant; pool, tenant and endpoint."""

    def batch_limit(self, pool: str, count: int) -> int:
        """Return how many runs to sort at a time. Those that wait are sorted again whenever another run has ended."""
        return min(count, MAX_SORTED_AT_ONCE) if pool in self._shares else count

    def sort(self, pool: str, runs: list[Run]) -> SortedRuns:
        """Sort runs by whether they may start now. They count as started only after `started`."""
        share = self._shares.get(pool)
        if share is None:
            return SortedRuns(starting=runs)
        sorted_ = SortedRuns()
        starting_counts: dict[tuple[str, ...], int] = {}
        ages: dict[tuple[str, ...], float] = {}
        for run in runs:
            exceeded = self._exceeded_scope(run.dispatch, share, starting_counts)
            if exceeded is None:
                sorted_.starting.append(run)
                for scope in _scopes_of(run.dispatch):
                    starting_counts[scope] = starting_counts.get(scope, 0) + 1
                continue
            if exceeded not in ages:
                ages[exceeded] = self._age_of(exceeded)
            if ages[exceeded] < SLOW_SEC:
                sorted_.waiting.append(run)
            else:
                sorted_.deferred[run] = _wait_sec(run.dispatch, ages[exceeded])
        return sorted_

    def started(self, runs: Iterable[Run]) -> None:
        """Count the slots of runs that start."""
        now = self._clock.monotonic()
        for run in runs:
            if run.dispatch.pool in self._shares:
                for scope in _scopes_of(run.dispatch):
                    self._in_use.setdefault(scope, {})[run.dispatch.execution_id] = now

    def ended(self, run: Run) -> None:
        """Free the slot of a run."""
        if run.dispatch.pool in self._shares:
            for scope in _scopes_of(run.dispatch):
                start_times = self._in_use.get(scope, {})
                start_times.pop(run.dispatch.execution_id, None)
                if not start_times:
                    self._in_use.pop(scope, None)

    def _exceeded_scope(
        self, dispatch: Dispatch, share: float, starting_counts: Mapping[tuple[str, ...], int]
    ) -> tuple[str, ...] | None:
        """Return the scope whose share a run would exceed, or None."""
        of_pool, of_tenant, *of_endpoint = _scopes_of(dispatch)
        in_use = {
            scope: len(self._in_use.get(scope, ())) + starting_counts.get(scope, 0)
            for scope in (of_pool, of_tenant, *of_endpoint)
        }
        available = self._slots[dispatch.pool] - (in_use[of_pool] - in_use[of_tenant])
        limit = max(1, int(available * share))
        if in_use[of_tenant] >= limit:
            return of_tenant
        for scope in of_endpoint:
            if in_use[scope] >= max(1, int((limit - (in_use[of_tenant] - in_use[scope])) * share)):
                return scope
        return None

    def _age_of(self, scope: tuple[str, ...]) -> float:
        """Return the median age of the runs in a scope, in seconds: one slow call among quick ones is no reason to wait."""
        start_times = self._in_use.get(scope, {})
        began = next(islice(start_times.values(), len(start_times) // 2, None), None)
        return 0.0 if began is None else self._clock.monotonic() - began


def failure_of_deferred(wait_sec: float) -> Failure:
    """Return the failure to show for a run that waits for the share of its tenant or endpoint."""
    message = f"slow calls use this tenant's share of the slots: this one waits for {wait_sec:.0f} s"
    return Failure("ShareInUse", message)


def _scopes_of(dispatch: Dispatch) -> tuple[tuple[str, ...], ...]:
    of_pool, of_tenant = (dispatch.pool,), (dispatch.pool, dispatch.tenant)
    if dispatch.endpoint is None:
        return of_pool, of_tenant
    return of_pool, of_tenant, (*of_tenant, dispatch.endpoint)


def _wait_sec(dispatch: Dispatch, age_sec: float) -> float:
    """Return about the time that the share has been in use, spread so that runs come back one after the other."""
    spread = 0.5 + stable_fraction(f"{dispatch.execution_id}/{dispatch.number}")
    return min(age_sec, LONGEST_WAIT_SEC) * spread
