"""Keeps a worker from calling whoever is down, and from trying again what fails for everybody."""

from collections.abc import Sequence

import structlog

from noonday.model.breaker import CLOSED, MIN_CALLS, MIN_RUNS, PROBE
from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import stable_fraction
from noonday.model.message import Dispatch
from noonday.ports.breakers import Breakers, Told
from noonday.ports.clock import Clock
from noonday.worker.run import Run

log = structlog.get_logger("noonday.worker")
TELL_SEC = 1.0
"""How soon other workers know."""
PROBE_SEC = 2.0
"""How long others wait for what a probe finds before they ask again."""
SPREAD_SEC = 5.0
"""Those who wait for the same breaker come back one after the other."""
_COUNTED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT})


class RetryBreaker:
    """What this worker knows of breakers, of each tenant: of each endpoint, for all calls to it; of each handler, for its
    retries, which wait while it is open."""

    def __init__(self, breakers: Breakers, clock: Clock, least_runs: int = MIN_RUNS) -> None:
        """`least_runs`: how many runs of a handler a minute it takes before its retries wait; 0 if they never do."""
        self._breakers = breakers
        self._clock = clock
        self._least_runs = least_runs
        self._counts: dict[str, list[int]] = {}
        """[calls, failures] since they were last told."""
        self._open: dict[str, float] = {}
        """Until when, by the monotonic clock; in the past: whoever comes has to ask."""
        self._probing: dict[str, Dispatch] = {}
        self._probed: dict[str, bool] = {}
        """What came of probes: whether they failed."""
        self._told_at = 0.0

    @property
    def open(self) -> int:
        """How many are open, as far as this worker knows."""
        return len(self._open)

    async def delay(self, runs: Sequence[Run]) -> dict[Run, float]:
        """Those that must not start now, and how many seconds they wait."""
        if not self._open:
            return {}
        waits = {run: await self._wait_of(run) for run in runs if run.dispatch.endpoint or run.dispatch.attempt > 1}
        return {run: wait + _spread(run.dispatch) for run, wait in waits.items() if wait > 0}

    async def _wait_of(self, run: Run) -> float:
        name = name_of(run.dispatch)
        until = self._open.get(name)
        if until is None:
            return 0.0
        wait = until - self._clock.monotonic()
        if wait > 0:
            return wait
        return await self._ask(name, run) if run.dispatch.endpoint else self._go_on(name)

    def _go_on(self, name: str) -> float:
        """What a handler does is up to each job: one that fails says little of the others. So after a pause all retries go on,
        and are counted anew."""
        del self._open[name]
        self._probed[name] = False
        return 0.0

    async def _ask(self, name: str, run: Run) -> float:
        try:
            answer = await self._breakers.ask(name, self._clock.now_ms())
        except SignalsUnavailable:
            return TELL_SEC
        if answer == CLOSED:
            del self._open[name]
            return 0.0
        if answer == PROBE:
            self._probing[name] = run.dispatch
            self._open[name] = self._clock.monotonic() + PROBE_SEC
            return 0.0
        self._open[name] = self._clock.monotonic() + answer / 1000
        return answer / 1000

    def note(self, run: Run) -> None:
        """A run is over."""
        name = name_of(run.dispatch)
        if run.dispatch.endpoint is None and not self._least_runs:
            return
        is_probe = self._probing.get(name) is run.dispatch
        if is_probe:
            del self._probing[name]
        if not run.started_ms or run.outcome not in _COUNTED:
            return  # it says nothing about whoever was called
        failed = run.outcome is not Outcome.SUCCEEDED and run.counts
        if is_probe:
            self._probed[name] = failed
            return
        count = self._counts.setdefault(name, [0, 0])
        count[0] += 1
        count[1] += failed

    async def tell(self) -> None:
        """Now and then: what was seen here, to all others; and learn what they have seen."""
        now = self._clock.monotonic()
        if not self._probed and (not self._counts or now - self._told_at < TELL_SEC):
            return
        self._told_at = now
        counts, self._counts = self._counts, {}
        probed, self._probed = self._probed, {}
        told = {name: self._told(name, counts.get(name, [0, 0]), probed.get(name)) for name in {*counts, *probed}}
        try:
            states = await self._breakers.tell(told, self._clock.now_ms())
        except SignalsUnavailable:
            # Perhaps it was counted. What is told twice of a minute does no harm.
            self._counts, self._probed = {**counts, **self._counts}, {**probed, **self._probed}
            return
        for name, state in states.items():
            self._learn(name, state)

    def _told(self, name: str, count: list[int], probe_failed: bool | None) -> Told:
        least = MIN_CALLS if name.startswith("e/") else self._least_runs
        return Told(count[0], count[1], probe_failed, least)

    def _learn(self, name: str, state: int) -> None:
        if state == CLOSED:
            if self._open.pop(name, None) is not None:
                log.info("breaker is closed", whom=name)
        else:
            if name not in self._open:
                log.warning("breaker is open: more than half failed in the last minute", whom=name)
            self._open[name] = self._clock.monotonic() + max(0, state) / 1000


def name_of(dispatch: Dispatch) -> str:
    """The breaker of a dispatch. Each tenant has its own: its failures do not hold up the retries of others.

    The length keeps tenant "a/b" in pool "c" and tenant "a" in pool "b/c" apart.
    """
    tenant = dispatch.tenant
    if dispatch.endpoint is not None:
        return f"e/{len(tenant)}/{tenant}/{dispatch.endpoint}"
    return f"h/{len(tenant)}/{tenant}/{dispatch.pool}/{dispatch.handler}"


def failure_of_delayed(dispatch: Dispatch, wait_sec: float) -> Failure:
    """What is shown of a run that waits for a breaker."""
    whom = dispatch.endpoint or f"handler {dispatch.handler} in pool {dispatch.pool}"
    what = "calls to" if dispatch.endpoint else "runs of"
    again = "calls" if dispatch.endpoint else "retries"
    message = f"more than half of the {what} {whom} failed within a minute: {again} wait, this one for {wait_sec:.0f} s"
    return Failure("BreakerOpen", message)


def _spread(dispatch: Dispatch) -> float:
    return SPREAD_SEC * stable_fraction(f"{dispatch.execution_id}/{dispatch.number}")
