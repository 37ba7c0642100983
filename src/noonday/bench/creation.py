"""Measuring how fast jobs are stored by a program that has the engine in it."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from noonday.bench.engine import Notes, running, settings_for
from noonday.bench.figures import Created
from noonday.bench.ledger import open_ledger
from noonday.bench.machine import cpu_sec, memory_mb
from noonday.bench.measure import PAGE, Tell
from noonday.bench.works import TARGET, AtRest, one_shot
from noonday.model.job import JobSpec, instant_of
from noonday.runtime.clock import SystemClock
from noonday.wiring.application import OWNER, Noonday

AHEAD_MS = 900_000
"""Near enough that what is stored is kept in memory as well, and not due before the end."""

Way = Literal["create_ids", "enqueue_many", "spec_for, enqueue_many"]


class Bulk(msgspec.Struct, frozen=True, tag="bulk"):
    """One-shots that are all due at one instant, from one caller: through the desk, or as an application would."""

    way: Way
    jobs: int


async def store_at_rest(rest: AtRest, data: str, tell: Tell) -> Created:
    now_ms = SystemClock().now_ms()
    return await _through_desk("at rest", rest.jobs, lambda place: rest.spec(place, now_ms), data, tell)


async def create_in_bulk(bulk: Bulk, data: str, tell: Tell) -> Created:
    due_ms = SystemClock().now_ms() + AHEAD_MS
    if bulk.way == "create_ids":
        return await _through_desk(bulk.way, bulk.jobs, lambda _: one_shot(due_ms), data, tell)
    return await _through_application(bulk, due_ms, data, tell)


async def _through_desk(way: str, jobs: int, spec_of: Callable[[int], JobSpec], data: str, tell: Tell) -> Created:
    async with running(settings_for(data), Notes()) as embedded:

        async def create(first: int, end: int) -> Sequence[object]:
            return await embedded.engine.desk.create_ids(OWNER, [spec_of(place) for place in range(first, end)])

        return await _timed(way, jobs, create, data, tell)


async def _through_application(bulk: Bulk, due_ms: int, data: str, tell: Tell) -> Created:
    app, notes, at = Noonday(), Notes(), instant_of(due_ms)
    app.include(notes.registry)
    ready = [one_shot(due_ms)] * PAGE if bulk.way == "enqueue_many" else []

    async def create(first: int, end: int) -> Sequence[object]:
        specs = ready[: end - first] or [app.spec_for(TARGET.handler, at=at) for _ in range(first, end)]
        return await app.enqueue_many(specs)

    async with app.embedded(data):
        return await _timed(bulk.way, bulk.jobs, create, data, tell)


async def _timed(
    way: str, jobs: int, create: Callable[[int, int], Awaitable[Sequence[object]]], data: str, tell: Tell
) -> Created:
    cpu_before, begun, acknowledged = cpu_sec(), time.perf_counter(), 0
    for first in range(0, jobs, PAGE):
        tell(f"creating ({way})", first, jobs)
        acknowledged += len(await create(first, min(first + PAGE, jobs)))
    took, cpu = time.perf_counter() - begun, cpu_sec() - cpu_before
    return stored(data, way=way, jobs=acknowledged, took=took, cpu=cpu, rss_mb=memory_mb()[0])


def stored(data: str, *, way: str, jobs: int, took: float, cpu: float, rss_mb: float | None, **more: Any) -> Created:
    """The figures, with what was acknowledged compared to what is in the data file."""
    with open_ledger(data) as ledger:
        found = ledger.count_jobs()
    return Created(
        way=way,
        jobs=jobs,
        created_per_s=round(jobs / took, 1),
        lost=max(0, jobs - found),
        duplicated=max(0, found - jobs),
        cpu_us_per_job=round(cpu / max(1, jobs) * 1e6, 1),
        rss_mb=rss_mb,
        **more,
    )
