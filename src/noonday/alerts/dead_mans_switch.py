"""Dead-man's switch: finds runs that did not start, runs that take too long, and jobs that recovered."""

from dataclasses import dataclass, field

from noonday.alerts.aggregator import AlertAggregator
from noonday.alerts.lateness import Lateness
from noonday.model.alert import AlertKind, LateWork, Observation, SlowRun
from noonday.model.pool import NOTICES_POOL
from noonday.ports.alerts import Alerts

LATE_PAGE, OPEN_PAGE, SLOW_PAGE, ALERT_PAGE = 5_000, 5_000, 200, 500
MOST_LATE = 100
"""Late or slow jobs of one tenant that may have their own alert in an hour; all others share one alert."""
SLOW_FACTOR = 3
"""A run is slow when it takes more than this many times as long as the longest recent success of its job."""
MIN_SUCCESSES = 5
"""Successes a job needs before its runs can be slow."""
_START = (0, "")


@dataclass
class _Cursors:
    """Position of each scan. A scan that reaches the end starts again."""

    due: tuple[int, str] = _START
    open: str = ""
    running: str = ""
    alerts: str = ""


@dataclass
class DeadMansSwitch:
    """Raises MISSED and SLOW alerts, and closes the alerts of jobs that succeeded again.

    Each round reads one page of each scan, so its cost does not depend on the backlog. Several processes may run it.
    """

    alerts: Alerts
    lateness: Lateness
    late_after_ms: int
    slow_after_ms: int
    _aggregator: AlertAggregator = field(default_factory=lambda: AlertAggregator(MOST_LATE))
    _cursors: _Cursors = field(default_factory=_Cursors)

    async def run_once(self, now_ms: int) -> int:
        await self._close_recovered(now_ms)
        late = [*await self._overdue(now_ms), *await self._unstarted(now_ms)]
        missed = await self.lateness.missed(late, now_ms)
        observations = [*missed, *await self._slow(now_ms)]
        if observations:
            await self.alerts.record(self._aggregator.aggregate(observations, now_ms))
            self.lateness.remember(missed)
        return 0

    async def _close_recovered(self, now_ms: int) -> None:
        cursor, _ = await self.alerts.recover(self._cursors.alerts, ALERT_PAGE, now_ms)
        self._cursors.alerts = cursor or ""

    async def _overdue(self, now_ms: int) -> list[LateWork]:
        """Timeline entries that are due and were not dispatched."""
        page = await self.alerts.late(self._cursors.due, now_ms - self.late_after_ms, LATE_PAGE)
        is_last = len(page) < LATE_PAGE
        self._cursors.due = _START if is_last else (page[-1].due_ms, page[-1].key)
        return page

    async def _unstarted(self, now_ms: int) -> list[LateWork]:
        """Executions that were dispatched and not started."""
        cursor, found = await self.alerts.stranded(self._cursors.open, now_ms - self.late_after_ms, OPEN_PAGE)
        self._cursors.open = cursor or ""
        return found

    async def _slow(self, now_ms: int) -> list[Observation]:
        page = await self.alerts.slow(self._cursors.running, now_ms - self.slow_after_ms, SLOW_PAGE)
        self._cursors.running = "" if len(page) < SLOW_PAGE else page[-1].job_id
        return [_slow(run, now_ms) for run in page if is_slow(run, now_ms)]


def is_slow(run: SlowRun, now_ms: int) -> bool:
    """Return whether a run takes far longer than the longest recent success of its job. False if there were too few successes."""
    is_comparable = run.successes >= MIN_SUCCESSES and run.pool != NOTICES_POOL
    return is_comparable and now_ms - run.started_ms > SLOW_FACTOR * run.longest_ms


def _slow(run: SlowRun, now_ms: int) -> Observation:
    running_sec, longest_sec = (now_ms - run.started_ms) // 1000, run.longest_ms / 1000
    return Observation(
        kind=AlertKind.SLOW,
        tenant=run.tenant,
        about=run.job_id,
        message=f"running for {running_sec} s; the longest of its last {run.successes} successes took {longest_sec:.1f} s",
        at_ms=now_ms,
        job_id=run.job_id,
        execution_id=run.execution_id,
        dedup_key=run.execution_id,
    )
