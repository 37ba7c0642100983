"""The quota of waiting jobs of a tenant, in one of the processes that accept jobs."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake.quotas import Quotas
from noonday.model.change import Change
from noonday.model.errors import QuotaExceeded
from noonday.model.firing import Fire
from noonday.model.ids import TenantId
from noonday.model.job import Job, JobState, JobType
from noonday.model.view import TenantSettings
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import MINUTE, NOW_MS, TENANT, audit, every, job, spec


class Intake:
    """A store, and one process that accepts jobs. Jobs that the crank adds were accepted by another process."""

    def __init__(self, store: SqliteStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.crank = Crank(store)
        self.quotas = Quotas(store.query_store, store.settings_store, clock)

    async def allow(self, jobs: int | None, tenant: TenantId = TENANT) -> None:
        settings = TenantSettings(max_jobs=jobs)
        await self.store.settings_store.put_tenant(tenant, settings, audit("tenant.put", self.clock.now_ms()))

    async def create(self, number: int = 1) -> QuotaExceeded | None:
        """Create as many jobs as there is room for, like the job service."""
        with await self.quotas.room(TENANT, [None] * number) as room:
            fitting = number - len(room.refused)
            await self.crank.add(*[job(every()) for _ in range(fitting)])
            room.made = fitting
        return room.why

    async def refusal(self, number: int = 1) -> QuotaExceeded:
        why = await self.create(number)
        assert why is not None
        return why

    async def cancel(self, one: Job) -> None:
        cancelled = Change(job=job(one.spec, id=one.id, state=JobState.CANCELLED), fire=Fire(NOW_MS, None))
        await self.crank.change(one, cancelled)


@pytest.fixture
async def intake() -> AsyncIterator[Intake]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield Intake(store, ManualClock())
    await store.close()


async def test_a_tenant_without_a_quota_has_room_for_all(intake: Intake) -> None:
    assert await intake.create(5) is None
    assert intake.quotas.standing(TENANT) is None


async def test_a_tenant_has_room_up_to_its_quota(intake: Intake) -> None:
    await intake.allow(3)
    assert [await intake.create() for _ in range(3)] == [None] * 3
    assert intake.quotas.standing(TENANT) == (3, 3)
    why = await intake.refusal()
    assert (why.limit, why.used, why.requested) == (3, 3, 1)
    assert why.context["violated-policies"] == ["max-jobs"]
    assert "'acme' has 3 of at most 3 jobs waiting for their time (maxJobs)" in why.detail


async def test_the_first_of_a_request_fit_and_the_rest_do_not(intake: Intake) -> None:
    await intake.allow(3)
    with await intake.quotas.room(TENANT, [None] * 5) as room:
        assert room.refused == {3, 4}
        assert room.why is not None
        assert (room.why.used, room.why.requested) == (0, 5)


async def test_atomic_request_above_the_quota_reserves_nothing(intake: Intake) -> None:
    await intake.allow(3)
    with pytest.raises(QuotaExceeded):
        await intake.quotas.room(TENANT, [None] * 5, whole=True)
    assert intake.quotas.standing(TENANT) == (3, 0)


async def test_a_quota_of_none_admits_nothing(intake: Intake) -> None:
    await intake.allow(0)
    assert (await intake.refusal()).limit == 0


async def test_reservations_last_while_jobs_are_stored(intake: Intake) -> None:
    await intake.allow(3)
    with await intake.quotas.room(TENANT, [None, None]), await intake.quotas.room(TENANT, [None]):
        assert intake.quotas.standing(TENANT) == (3, 3)
    assert intake.quotas.standing(TENANT) == (3, 0)


@pytest.mark.parametrize(("made", "waiting"), [(2, 3), (0, 2)], ids=["stored", "failed"])
async def test_request_waits_until_earlier_requests_are_stored(intake: Intake, made: int, waiting: int) -> None:
    await intake.allow(3)
    with await intake.quotas.room(TENANT, [None, None]) as first:
        second = asyncio.create_task(intake.create(2))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
        await intake.crank.add(*[job(every()) for _ in range(made)])
        first.made = made
    assert (await second is None) == (made == 0)
    assert await intake.store.query_store.jobs_waiting(TENANT, 100) == waiting


async def test_concurrent_requests_are_admitted_up_to_the_quota(intake: Intake) -> None:
    await intake.allow(10)
    refused = await asyncio.gather(*[intake.create() for _ in range(25)])
    assert refused.count(None) == 10
    assert await intake.store.query_store.jobs_waiting(TENANT, 100) == 10


async def test_reservations_of_a_failed_store_are_released(intake: Intake) -> None:
    await intake.allow(2)
    with pytest.raises(OSError, match="no disk"), await intake.quotas.room(TENANT, [None, None]):
        raise OSError("no disk")
    assert await intake.create(2) is None


async def test_no_request_is_refused_by_an_old_count(intake: Intake) -> None:
    await intake.allow(2)
    one = job(every())
    await intake.crank.add(one)
    assert await intake.create() is None
    await intake.refusal()
    await intake.cancel(one)
    assert await intake.create() is None


async def test_jobs_of_other_processes_are_seen_after_two_seconds_near_the_quota(intake: Intake) -> None:
    await intake.allow(10)
    await intake.create(9)
    await intake.crank.add(job(every()))
    intake.clock.advance(1.9)
    assert await intake.create() is None
    intake.clock.advance(0.1)
    assert (await intake.refusal()).used == 11


async def test_jobs_of_other_processes_are_seen_after_ten_seconds_far_from_the_quota(intake: Intake) -> None:
    await intake.allow(20)
    await intake.create()
    await intake.crank.add(*[job(every()) for _ in range(20)])
    intake.clock.advance(9.9)
    assert await intake.create() is None
    intake.clock.advance(0.1)
    assert (await intake.refusal()).used == 22


async def test_an_update_needs_no_room(intake: Intake) -> None:
    await intake.allow(1)
    await intake.crank.add(job(every(unique_key="k")))
    with await intake.quotas.room(TENANT, ["k", "new", "k"]) as room:
        assert room.refused == {1}
        assert room.why is not None
        assert room.why.requested == 1


async def test_repeated_unique_key_needs_room_once(intake: Intake) -> None:
    await intake.allow(1)
    with await intake.quotas.room(TENANT, ["k", "k"]) as room:
        assert room.why is None


async def test_changed_quota_applies_after_a_second(intake: Intake) -> None:
    await intake.create()
    await intake.allow(1)
    intake.clock.advance(0.9)
    assert await intake.create() is None
    intake.clock.advance(0.1)
    assert (await intake.refusal()).used == 2
    await intake.allow(3)
    await intake.refusal()
    intake.quotas.forget(TENANT)
    assert await intake.create() is None


async def test_refusal_above_a_lowered_quota_has_the_number_of_jobs(intake: Intake) -> None:
    await intake.crank.add(*[job(every()) for _ in range(5)])
    await intake.allow(2)
    assert (await intake.refusal()).used == 5


@pytest.mark.parametrize(
    ("waits_sec", "retry_sec"), [(90, 90), (0.2, 1), (7_200, 3_600)], ids=["then", "not at once", "not too late"]
)
async def test_retry_after_is_the_due_time_of_the_next_one_shot(
    intake: Intake, waits_sec: float, retry_sec: int
) -> None:
    await intake.allow(2)
    await intake.crank.add(job(every(30)), job(spec(type=JobType.DELAYED, delay_sec=waits_sec)))
    assert (await intake.refusal()).retry_after_sec == retry_sec


async def test_retry_after_is_an_hour_if_no_job_ends_by_itself(intake: Intake) -> None:
    await intake.allow(1)
    await intake.crank.add(job(every(MINUTE / 1000)))
    assert (await intake.refusal()).retry_after_sec == 3_600


async def test_tenants_that_were_quiet_for_long_are_forgotten(intake: Intake) -> None:
    quotas = Quotas(intake.store.query_store, intake.store.settings_store, intake.clock, most_tenants=2)
    for name in ("a", "b", "c"):
        await intake.allow(5, TenantId(name))
        await quotas.settings(TenantId(name))
    assert [quotas.standing(TenantId(name)) for name in ("a", "b", "c")] == [None, (5, 0), (5, 0)]
