"""Keeps slots of a pool free of one tenant's slow calls.

A call holds its slot until it ends, and a receiver can make that minutes. To hand free slots out in turn is therefore not
enough: who comes later finds none. So a tenant never takes more than a part of the slots that others leave, and an endpoint
never more than a part of what its tenant's other calls leave of that. Some slots stay free whoever fills theirs.
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
"""A share that is held for longer is held by slow calls: to wait here would hold up what others have waiting."""
LONGEST_WAIT_SEC = 60.0
AT_ONCE = 200

_Holders = dict[ExecutionId, float]
"""Executions that hold a slot, the oldest first, with the monotonic time each began at."""


@dataclass(slots=True)
class Sorted:
    """Runs that want to start, by what becomes of them."""

    starting: list[Run] = field(default_factory=list)
    waiting: list[Run] = field(default_factory=list)
    """There is a slot for them in a moment."""
    put_off: dict[Run, float] = field(default_factory=dict)
    """Their share is held by slow calls: they wait so many seconds on the timeline."""


class Shares:
    """Slots that tenants and endpoints hold in this worker. Pools without a share are not counted."""

    def __init__(self, slots: Mapping[str, int], shares: Mapping[str, float], clock: Clock) -> None:
        """`shares`: the part, 0 to 1, that one tenant may take of a pool's slots that others leave."""
        self._slots = slots
        self._shares = {pool: share for pool, share in shares.items() if share < 1}
        self._clock = clock
        self._held: dict[tuple[str, ...], _Holders] = {}
        """By pool, by pool and tenant, and by pool, tenant and endpoint."""

    def at_once(self, pool: str, count: int) -> int:
        """How many runs to sort at a time: those that wait are looked at again whenever another run has ended."""
        return min(count, AT_ONCE) if pool in self._shares else count

    def sort(self, pool: str, runs: list[Run]) -> Sorted:
        """Tell which of the runs may start now. They count as started only after `started`."""
        share = self._shares.get(pool)
        if share is None:
            return Sorted(starting=runs)
        sorted_ = Sorted()
        new: dict[tuple[str, ...], int] = {}
        ages: dict[tuple[str, ...], float] = {}
        for run in runs:
            full = self._full(run.dispatch, share, new)
            if full is None:
                sorted_.starting.append(run)
                for name in _names_of(run.dispatch):
                    new[name] = new.get(name, 0) + 1
                continue
            if full not in ages:
                ages[full] = self._age_of(full)
            if ages[full] < SLOW_SEC:
                sorted_.waiting.append(run)
            else:
                sorted_.put_off[run] = _wait_sec(run.dispatch, ages[full])
        return sorted_

    def started(self, runs: Iterable[Run]) -> None:
        now = self._clock.monotonic()
        for run in runs:
            if run.dispatch.pool in self._shares:
                for name in _names_of(run.dispatch):
                    self._held.setdefault(name, {})[run.dispatch.execution_id] = now

    def ended(self, run: Run) -> None:
        if run.dispatch.pool in self._shares:
            for name in _names_of(run.dispatch):
                holders = self._held.get(name, {})
                holders.pop(run.dispatch.execution_id, None)
                if not holders:
                    self._held.pop(name, None)

    def _full(self, dispatch: Dispatch, share: float, new: Mapping[tuple[str, ...], int]) -> tuple[str, ...] | None:
        """The name whose share a run would exceed, if it would."""
        whole, of_tenant, *of_endpoint = _names_of(dispatch)
        held = {name: len(self._held.get(name, ())) + new.get(name, 0) for name in (whole, of_tenant, *of_endpoint)}
        left = self._slots[dispatch.pool] - (held[whole] - held[of_tenant])
        most = max(1, int(left * share))
        if held[of_tenant] >= most:
            return of_tenant
        for name in of_endpoint:
            if held[name] >= max(1, int((most - (held[of_tenant] - held[name])) * share)):
                return name
        return None

    def _age_of(self, name: tuple[str, ...]) -> float:
        """How long the older half of its holders has had their slots, in seconds: one slow call among quick ones is no
        reason to wait."""
        holders = self._held.get(name, {})
        began = next(islice(holders.values(), len(holders) // 2, None), None)
        return 0.0 if began is None else self._clock.monotonic() - began


def failure_of_put_off(wait_sec: float) -> Failure:
    """What is shown of a run that waits for the share of its tenant or endpoint."""
    message = f"slow calls hold this tenant's share of the slots: this one waits for {wait_sec:.0f} s"
    return Failure("ShareInUse", message)


def _names_of(dispatch: Dispatch) -> tuple[tuple[str, ...], ...]:
    whole, of_tenant = (dispatch.pool,), (dispatch.pool, dispatch.tenant)
    if dispatch.endpoint is None:
        return whole, of_tenant
    return whole, of_tenant, (*of_tenant, dispatch.endpoint)


def _wait_sec(dispatch: Dispatch, age_sec: float) -> float:
    """About as long as the share has been held already; those who wait come back one after the other."""
    spread = 0.5 + stable_fraction(f"{dispatch.execution_id}/{dispatch.number}")
    return min(age_sec, LONGEST_WAIT_SEC) * spread
