"""Measuring how fast jobs are stored by a program that embeds the job service."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

import msgspec

from bench.engine import ENGINE
from bench.figures import Created, total, us_per_job, used_between
from bench.machine import memory_mb, own_cpu_sec
from bench.measure import PAGE, Tell
from bench.notes import Notes
from bench.rig import Rig
from bench.stored_rows import open_stored_rows
from bench.works import TARGET, AtRest, one_shot
from noonday.model.job import JobSpec, instant_of
from noonday.runtime.clock import SystemClock
from noonday.wiring.application import Noonday

AHEAD_MS = 900_000
"""Near enough that what is stored is kept in memory as well, and not due before the end."""
AT_ONCE = 2
"""Pages that are under way together: while the store writes one, the next is made ready."""

Way = Literal["create_ids", "create_ids, two pages at once", "enqueue_many", "spec_for, enqueue_many"]
DESK_WAYS: tuple[Way, ...] = ("create_ids", "create_ids, two pages at once")
APPLICATION_WAYS: tuple[Way, ...] = ("enqueue_many", "spec_for, enqueue_many")


class Bulk(msgspec.Struct, frozen=True, tag="bulk"):
    """One-shots that are all due at one instant, from one caller: through the job service, or as an application would."""

    way: Way
    jobs: int


async def store_at_rest(rest: AtRest, rig: Rig, tell: Tell) -> Created:
    now_ms = SystemClock().now_ms()
    return await _through_desk("at rest", rest.jobs, lambda place: rest.spec(place, now_ms), AT_ONCE, rig, tell)


async def create_through_desk(bulk: Bulk, rig: Rig, tell: Tell) -> Created:
    due_ms, at_once = SystemClock().now_ms() + AHEAD_MS, 1 if bulk.way == "create_ids" else AT_ONCE
    return await _through_desk(bulk.way, bulk.jobs, lambda _: one_shot(due_ms), at_once, rig, tell)


async def _through_desk(
    way: str, jobs: int, spec_of: Callable[[int], JobSpec], at_once: int, rig: Rig, tell: Tell
) -> Created:
    async def create(first: int, end: int) -> Sequence[object]:
        return await rig.create([spec_of(place) for place in range(first, end)])

    begun, used_before = time.perf_counter(), rig.used_sec()
    acknowledged = await _in_pages(way, jobs, create, at_once, tell)
    took, used = time.perf_counter() - begun, used_between(used_before, rig.used_sec())
    rss_mb = total({name: now for name, (now, _) in rig.memory_mb().items()})
    return stored(await rig.count_jobs(), way=way, jobs=acknowledged, took=took, used=used, rss_mb=rss_mb)


async def create_through_application(bulk: Bulk, data: str, tell: Tell) -> Created:
    """As `async with app.embedded(...)` runs the engine."""
    app, due_ms = Noonday(), SystemClock().now_ms() + AHEAD_MS
    app.include(Notes().registry)
    at = instant_of(due_ms)
    ready = [one_shot(due_ms)] * PAGE if bulk.way == "enqueue_many" else []

    async def create(first: int, end: int) -> Sequence[object]:
        specs = ready[: end - first] or [app.spec_for(TARGET.handler, at=at) for _ in range(first, end)]
        return await app.enqueue_many(specs)

    async with app.embedded(data):
        begun, used_before = time.perf_counter(), own_cpu_sec()
        acknowledged = await _in_pages(bulk.way, bulk.jobs, create, 1, tell)
        took, used = time.perf_counter() - begun, {ENGINE: own_cpu_sec() - used_before}
        with open_stored_rows(data) as stored_rows:
            found = stored_rows.count_jobs()
        return stored(found, way=bulk.way, jobs=acknowledged, took=took, used=used, rss_mb=memory_mb()[0])


async def _in_pages(
    way: str, jobs: int, create: Callable[[int, int], Awaitable[Sequence[object]]], at_once: int, tell: Tell
) -> int:
    """How many were acknowledged."""
    pages, acknowledged = iter(range(0, jobs, PAGE)), 0

    async def create_pages() -> None:
        nonlocal acknowledged
        for first in pages:
            tell(f"creating ({way})", first, jobs)
            made = await create(first, min(first + PAGE, jobs))
            acknowledged += len(made)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(create_pages())
    return acknowledged


def stored(found: int, *, way: str, jobs: int, took: float, used: Mapping[str, float], rss_mb: float | None) -> Created:
    """The figures, with what was acknowledged compared to what was found in the store."""
    return Created(
        way=way,
        jobs=jobs,
        created_per_s=round(jobs / took, 1),
        lost=max(0, jobs - found),
        duplicated=max(0, found - jobs),
        cpu_us_per_job=round(sum(used.values()) / max(1, jobs) * 1e6, 1),
        cpu_us_per_job_by=us_per_job(used, jobs),
        rss_mb=rss_mb,
    )
