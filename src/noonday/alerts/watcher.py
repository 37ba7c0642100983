"""The dead-man's switch: looks for what did not happen, for what does not end, and for what works again."""

from dataclasses import dataclass, field

from noonday.alerts.crowd import Crowd
from noonday.alerts.lateness import Lateness
from noonday.model.alert import AlertKind, Sighting
from noonday.model.pool import NOTICES_POOL
from noonday.ports.alerts import Alerts, Late, Slow

LATE_PAGE, OPEN_PAGE, SLOW_PAGE, ALERT_PAGE = 5_000, 5_000, 200, 500
MOST_LATE = 100
"""So many jobs of a tenant have an alert of their own an hour; one more tells of the others."""
TIMES_AS_LONG = 3
FEWEST_SUCCESSES = 5
_START = (0, "")


@dataclass
class _Marks:
    """How far each look has come. Whoever comes to the end begins again."""

    due: tuple[int, str] = _START
    open: str = ""
    running: str = ""
    alerts: str = ""


@dataclass
class Watcher:
    """A page of each a round, so that it costs the same however much there is. Any number of them may look at the same."""

    alerts: Alerts
    lateness: Lateness
    late_after_ms: int
    slow_after_ms: int
    _crowd: Crowd = field(default_factory=lambda: Crowd(MOST_LATE))
    _marks: _Marks = field(default_factory=_Marks)

    async def run_once(self, now_ms: int) -> int:
        await self._see_recovered(now_ms)
        late = [*await self._due(now_ms), *await self._stranded(now_ms)]
        missed = await self.lateness.missed(late, now_ms)
        seen = [*missed, *await self._slow(now_ms)]
        if seen:
            await self.alerts.take_in(self._crowd.thin_out(seen, now_ms))
            self.lateness.remember(missed)
        return 0

    async def _see_recovered(self, now_ms: int) -> None:
        mark, _ = await self.alerts.recover(self._marks.alerts, ALERT_PAGE, now_ms)
        self._marks.alerts = mark or ""

    async def _due(self, now_ms: int) -> list[Late]:
        page = await self.alerts.late(self._marks.due, now_ms - self.late_after_ms, LATE_PAGE)
        is_last = len(page) < LATE_PAGE
        self._marks.due = _START if is_last else (page[-1].due_ms, page[-1].key)
        return page

    async def _stranded(self, now_ms: int) -> list[Late]:
        mark, found = await self.alerts.stranded(self._marks.open, now_ms - self.late_after_ms, OPEN_PAGE)
        self._marks.open = mark or ""
        return found

    async def _slow(self, now_ms: int) -> list[Sighting]:
        page = await self.alerts.slow(self._marks.running, now_ms - self.slow_after_ms, SLOW_PAGE)
        self._marks.running = "" if len(page) < SLOW_PAGE else page[-1].job_id
        return [_slow(run, now_ms) for run in page if is_slow(run, now_ms)]


def is_slow(run: Slow, now_ms: int) -> bool:
    """Far longer than the longest of its job's last successes, if there are enough to say what is usual."""
    known = run.successes >= FEWEST_SUCCESSES and run.pool != NOTICES_POOL
    return known and now_ms - run.started_ms > TIMES_AS_LONG * run.longest_ms


def _slow(run: Slow, now_ms: int) -> Sighting:
    seconds, usual = (now_ms - run.started_ms) // 1000, run.longest_ms / 1000
    return Sighting(
        kind=AlertKind.SLOW,
        tenant=run.tenant,
        about=run.job_id,
        message=f"runs for {seconds} s; the longest of its last {run.successes} successes took {usual:.1f} s",
        at_ms=now_ms,
        job_id=run.job_id,
        execution_id=run.execution_id,
        occasion=run.execution_id,
    )
