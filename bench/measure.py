"""Measuring one work, in the process that creates its jobs."""

import asyncio
import time
from collections.abc import Callable, Sequence

from bench import BenchFailed
from bench.figures import Figures, OfTenant, by_tenant, tally, total, us_per_job, used_between
from bench.notes import Seen
from bench.receiver import notes_of
from bench.rig import Rig
from bench.works import Tenants, Waiting, Webhooks, Work
from noonday.model.caller import Caller
from noonday.model.ids import JobId, TenantId, execution_id
from noonday.wiring.engine_queries import OWNER

PAGE = 10_000
SLOWEST_DRAIN_PER_S = 500
PATIENCE_SEC = 30
MARGIN_MS = 300
"""How long before anything is handed out the engine is at rest, and its CPU time is read."""
TELL_EVERY_SEC = 0.25

Tell = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


def longest_sec(work: Work, head_start: float) -> float:
    """The deadline for the figures."""
    return head_start + work.lasts_ms / 1000 + PATIENCE_SEC + _expected(work, 0) / SLOWEST_DRAIN_PER_S


async def measure(work: Work, rig: Rig, head_start: float, tell: Tell) -> Figures:
    """Create the jobs of a work, let them fall due, wait until all is recorded, and compare. Raises BenchFailed."""
    run = _Run(work, rig, tell)
    await run.create(head_start)
    await run.await_begin()
    await run.await_end()
    return await run.figures()


def _expected(work: Work, begin_ms: int) -> int:
    return sum(len(work.times(place, begin_ms)) for place in range(work.jobs))


class _Run:
    def __init__(self, work: Work, rig: Rig, tell: Tell) -> None:
        self._work = work
        self._rig = rig
        self._tell = tell
        self._begin_ms = 0
        self._last_due_ms = 0
        self._over_ms = 0
        """Nothing can be over before."""
        self._expected = 0
        self._jobs: list[JobId] = []

    async def create(self, head_start: float) -> None:
        work, begun, used_before = self._work, time.perf_counter(), self._rig.used_sec()
        self._begin_ms = self._rig.now_ms() + round(head_start * 1000)
        if isinstance(work, Webhooks):
            await self._rig.make_secret()
        if isinstance(work, Tenants):
            await self._create_of_tenants(work)
        else:
            await self._create_some(range(work.jobs), OWNER)
        self._created_per_s = work.jobs / (time.perf_counter() - begun)
        self._create_used = used_between(used_before, self._rig.used_sec())
        self._expected = _expected(work, self._begin_ms)
        self._last_due_ms = max(max(work.times(place, self._begin_ms)) for place in range(work.jobs))
        self._over_ms = self._last_due_ms + (work.lasts_ms if isinstance(work, Waiting | Webhooks) else 0)

    async def _create_of_tenants(self, work: Tenants) -> None:
        for party in work.parties:
            await self._rig.put_tenant(party.tenant, party.settings)
            first = len(self._jobs)
            caller = Caller(TenantId(party.tenant), OWNER.subject, OWNER.scopes)
            await self._create_some(range(first, first + party.jobs), caller)

    async def _create_some(self, places: range, caller: Caller) -> None:
        for at in range(0, len(places), PAGE):
            self._tell("creating", len(self._jobs), self._work.jobs)
            specs = [self._work.spec(place, self._begin_ms) for place in places[at : at + PAGE]]
            self._jobs += await self._rig.create(specs, caller)

    async def await_begin(self) -> None:
        """Nothing may be handed out before all is stored: handing out begins a little ahead of the time."""
        rest_ms = self._begin_ms - self._rig.settings.scheduler.lead_ms - MARGIN_MS - self._rig.now_ms()
        if rest_ms < 0:
            raise BenchFailed(
                f"{self._work.jobs} jobs were not created in time, at {self._created_per_s:.0f}/s: "
                f"allow {-rest_ms / 1000 + 1:.0f} s more with --head-start"
            )
        self._tell("waiting for the time", 0, self._expected)
        await asyncio.sleep(rest_ms / 1000)
        self._used_before = self._rig.used_sec()

    async def await_end(self) -> None:
        deadline = time.monotonic() + longest_sec(self._work, 0)
        tell_at = 0.0
        while not await self._all_recorded():
            now = time.monotonic()
            if now > deadline:
                break
            self._rig.check()
            if now >= tell_at:
                self._tell("running", self._rig.started() or 0, self._expected)
                tell_at = now + TELL_EVERY_SEC
            await asyncio.sleep(self._rig.look_every_sec if self._all_started() else 0.05)
        self._recorded_ns = time.time_ns()
        self._used = used_between(self._used_before, self._rig.used_sec())
        self._memory = self._rig.memory_mb()

    def _all_started(self) -> bool:
        """As far as that can be seen."""
        started = None if isinstance(self._work, Webhooks) else self._rig.started()
        return self._rig.now_ms() >= self._over_ms if started is None else started >= self._expected

    async def _all_recorded(self) -> bool:
        return self._all_started() and await self._rig.all_recorded(self._last_due_ms)

    async def figures(self) -> Figures:
        self._tell("comparing", self._expected, self._expected)
        work, seen = self._work, await self._rig.finish()
        if isinstance(work, Webhooks):
            seen = await asyncio.to_thread(notes_of, work.url)
        recorded = await self._rig.succeeded(self._begin_ms, self._last_due_ms)
        return self._compared(work, seen, recorded, await self._rig.circumstances())

    def _compared(self, work: Work, seen: Seen, recorded: Sequence[str], settings: dict[str, object]) -> Figures:
        found = tally(self._due_times(), seen.starts(), recorded)
        took = self._recorded_ns / 1e9 - self._begin_ms / 1000
        rss = {name: now for name, (now, _) in self._memory.items()}
        rss_peak = {name: peak for name, (_, peak) in self._memory.items()}
        return Figures(
            work=work.__struct_config__.tag,  # type: ignore[arg-type]
            mode=self._rig.mode,
            jobs=work.jobs,
            expected=self._expected,
            fired=found.fired,
            recorded_per_s=round(found.fired / took, 1),
            drain_sec=round(self._recorded_ns / 1e9 - self._last_due_ms / 1000, 3),
            lateness_ms=found.lateness_ms,
            lost=found.lost,
            duplicated=found.duplicated,
            early=found.early,
            earliest_ms=found.earliest_ms,
            cpu_us_per_job=round(sum(self._used.values()) / max(1, found.fired) * 1e6, 1),
            cpu_us_per_job_by=us_per_job(self._used, found.fired),
            create_cpu_us_per_job_by=us_per_job(self._create_used, work.jobs),
            rss_mb=total(rss),
            rss_peak_mb=total(rss_peak),
            rss_mb_by=rss,
            rss_peak_mb_by=rss_peak,
            created_per_s=round(self._created_per_s, 1),
            at_once=seen.at_once if isinstance(work, Waiting | Webhooks) and work.seconds else None,
            settings=settings,
            tenants=self._by_tenant(work, seen) if isinstance(work, Tenants) else None,
        )

    def _by_tenant(self, work: Tenants, seen: Seen) -> dict[str, OfTenant]:
        tenants: dict[str, str] = {
            execution_id(job, self._begin_ms): work.tenant_of(place) for place, job in enumerate(self._jobs)
        }
        return by_tenant(tenants, self._begin_ms, seen.starts())

    def _due_times(self) -> dict[str, int]:
        return {
            execution_id(job, time_ms): time_ms
            for place, job in enumerate(self._jobs)
            for time_ms in self._work.times(place, self._begin_ms)
        }
