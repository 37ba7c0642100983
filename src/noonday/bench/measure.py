"""Measuring one work, in the process that does it."""

import asyncio
import time
from collections.abc import Callable

from noonday.bench import BenchFailed
from noonday.bench.engine import Notes, running, settings_for
from noonday.bench.figures import Figures, tally
from noonday.bench.ledger import Ledger, open_ledger
from noonday.bench.machine import cpu_sec, memory_mb, settings_used
from noonday.bench.works import Work
from noonday.model.ids import JobId, execution_id
from noonday.wiring.application import OWNER
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings import Settings

RUNG = "embedded"
PAGE = 10_000
SLOWEST_CREATE_PER_S = 8_000
SLOWEST_DRAIN_PER_S = 500
PATIENCE_SEC = 30
MARGIN_MS = 300
"""How long before anything is handed out the process is at rest, and its CPU time is read."""
TELL_EVERY_SEC = 0.25

Tell = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


def head_start_sec(jobs: int) -> float:
    """How long after the first job is created the first one falls due, so that all of them are stored by then."""
    return 2 + jobs / SLOWEST_CREATE_PER_S


def longest_sec(work: Work, head_start: float) -> float:
    """When whoever waits for the figures may give up."""
    return head_start + work.lasts_ms / 1000 + PATIENCE_SEC + _expected(work, 0) / SLOWEST_DRAIN_PER_S


async def measure(work: Work, data: str, head_start: float, tell: Tell) -> Figures:
    """Create the jobs of a work, let them fall due, wait until all is recorded, and compare. Raises BenchFailed."""
    settings, notes = settings_for(data), Notes()
    async with running(settings, notes) as embedded:
        with open_ledger(data) as ledger:
            run = _Run(work, embedded, settings, notes, ledger, tell)
            await run.create(head_start)
            await run.await_begin()
            await run.await_end()
    return run.figures()


def _expected(work: Work, begin_ms: int) -> int:
    return sum(len(work.times(place, begin_ms)) for place in range(work.jobs))


class _Run:
    def __init__(
        self, work: Work, embedded: Embedded, settings: Settings, notes: Notes, ledger: Ledger, tell: Tell
    ) -> None:
        self._work = work
        self._engine = embedded.engine
        self._settings = settings
        self._notes = notes
        self._ledger = ledger
        self._tell = tell
        self._now_ms = embedded.engine.drivers.clock.now_ms
        self._begin_ms = 0
        self._expected = 0
        self._jobs: list[JobId] = []

    async def create(self, head_start: float) -> None:
        work, begun = self._work, time.perf_counter()
        self._begin_ms = self._now_ms() + round(head_start * 1000)
        for at in range(0, work.jobs, PAGE):
            self._tell("creating", at, work.jobs)
            page = range(at, min(at + PAGE, work.jobs))
            specs = [work.spec(place, self._begin_ms) for place in page]
            self._jobs += await self._engine.desk.create_ids(OWNER, specs)
        self._created_per_s = work.jobs / (time.perf_counter() - begun)
        self._expected = _expected(work, self._begin_ms)

    async def await_begin(self) -> None:
        """Nothing may be handed out before all is stored: handing out begins a little ahead of the time."""
        rest_ms = self._begin_ms - self._settings.scheduler.lead_ms - MARGIN_MS - self._now_ms()
        if rest_ms < 0:
            raise BenchFailed(
                f"{self._work.jobs} jobs were not created in time, at {self._created_per_s:.0f}/s: "
                f"allow {-rest_ms / 1000 + 1:.0f} s more with --head-start"
            )
        self._tell("waiting for the time", 0, self._expected)
        await asyncio.sleep(rest_ms / 1000)
        self._cpu_before = cpu_sec()

    async def await_end(self) -> None:
        deadline = time.monotonic() + longest_sec(self._work, 0)
        tell_at = 0.0
        while not self._all_recorded():
            now = time.monotonic()
            if now > deadline:
                break
            if self._engine.failed.done():
                raise BenchFailed(f"the engine stopped: {self._engine.failed.exception()!r}")
            if now >= tell_at:
                self._tell("running", len(self._notes), self._expected)
                tell_at = now + TELL_EVERY_SEC
            await asyncio.sleep(0.005 if self._all_started() else 0.05)
        self._recorded_ns = time.time_ns()
        self._cpu_used = cpu_sec() - self._cpu_before
        self._rss_mb, self._rss_peak_mb = memory_mb()

    def _all_started(self) -> bool:
        return len(self._notes) >= self._expected

    def _all_recorded(self) -> bool:
        return self._all_started() and not self._ledger.any_open()

    def figures(self) -> Figures:
        self._tell("comparing", self._expected, self._expected)
        work, due_ms = self._work, self._due_times()
        last_due_ms = max(due_ms.values())
        with open_ledger(self._settings.data) as ledger:
            recorded = ledger.succeeded(self._begin_ms, last_due_ms)
        seen = tally(due_ms, self._notes.starts(), recorded)
        took = self._recorded_ns / 1e9 - self._begin_ms / 1000
        return Figures(
            work=work.__struct_config__.tag,  # type: ignore[arg-type]
            rung=RUNG,
            jobs=work.jobs,
            expected=self._expected,
            fired=seen.fired,
            recorded_per_s=round(seen.fired / took, 1),
            drain_sec=round(self._recorded_ns / 1e9 - last_due_ms / 1000, 3),
            lateness_ms=seen.lateness_ms,
            lost=seen.lost,
            duplicated=seen.duplicated,
            early=seen.early,
            cpu_us_per_job=round(self._cpu_used / max(1, seen.fired) * 1e6, 1),
            rss_mb=self._rss_mb,
            rss_peak_mb=self._rss_peak_mb,
            created_per_s=round(self._created_per_s, 1),
            settings=settings_used(self._settings),
        )

    def _due_times(self) -> dict[str, int]:
        return {
            execution_id(job, time_ms): time_ms
            for place, job in enumerate(self._jobs)
            for time_ms in self._work.times(place, self._begin_ms)
        }
