"""Commands on jobs."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.idempotency import AlreadyAnswered
from noonday.intake.job_service import JobService
from noonday.model.errors import InvalidInput, NotFound, VersionMismatch
from noonday.model.ids import PARTITIONS, JobId
from noonday.model.job import Target
from noonday.model.view import JobView
from noonday.runtime.tracing import Tracing
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import HOUR, NOW_MS, POOL, every, instant, job_id, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        await parts.add_worker()
        await parts.signals.begin_generation(POOL)
        yield parts


@pytest.fixture
def created() -> list[tuple[int, int]]:
    """Numbers of created jobs without and with an endpoint."""
    return []


@pytest.fixture
def jobs(parts: Parts, created: list[tuple[int, int]]) -> JobService:
    return JobService(
        jobs=parts.store.jobs,
        editor=parts.editor,
        sender=parts.sender,
        drafter=parts.drafter,
        quotas=parts.quotas,
        query_store=parts.store.query_store,
        receipts=parts.receipts,
        presenter=parts.presenter,
        clock=parts.clock,
        tracing=Tracing(None),
        new_id=job_id,
        on_created=lambda *counts: created.append(counts),
    )


async def test_created_job_is_on_the_timeline_and_on_the_hot_index(parts: Parts, jobs: JobService) -> None:
    view = await jobs.create(ANN, spec(payload={"table": "orders"}))
    assert (view.state, view.payload, view.next_fire_at) == ("ACTIVE", {"table": "orders"}, instant(NOW_MS))
    assert [entry.key for entry in await parts.crank.due()] == [view.job_id]
    claimed = await parts.index.claim(NOW_MS, range(PARTITIONS), {POOL: 10}, 10)
    assert [entry.key for entry in claimed] == [view.job_id]


async def test_job_that_is_due_much_later_is_left_to_the_hydrator(parts: Parts, jobs: JobService) -> None:
    await jobs.create(ANN, spec(run_at=instant(NOW_MS + HOUR)))
    assert await parts.index.claim(NOW_MS + 2 * HOUR, range(PARTITIONS), {POOL: 10}, 10) == []


async def test_malformed_job_is_refused_and_nothing_is_stored(parts: Parts, jobs: JobService) -> None:
    with pytest.raises(InvalidInput):
        await jobs.create(ANN, every(-1))
    assert await parts.crank.timeline() == []


async def test_repeated_creation_under_a_key_creates_nothing(parts: Parts, jobs: JobService) -> None:
    await jobs.create(ANN, spec(), key())
    with pytest.raises(AlreadyAnswered):
        await jobs.create(ANN, spec(), key())
    assert len(await parts.crank.timeline()) == 1


async def test_job_with_a_taken_unique_key_is_updated(jobs: JobService) -> None:
    first = await jobs.create(ANN, every(60, unique_key="nightly"))
    second = await jobs.create(ANN, every(90, unique_key="nightly"))
    assert (second.job_id, second.version, second.every_sec) == (first.job_id, 2, 90)


async def test_invalid_job_of_many_does_not_stop_the_others(
    parts: Parts, jobs: JobService, created: list[tuple[int, int]]
) -> None:
    good, bad = await jobs.create_many(ANN, [spec(), spec(target=Target("unknown", "load"))])
    assert isinstance(good, JobView)
    assert isinstance(bad, InvalidInput)
    assert created == [(1, 0)]


async def test_many_jobs_are_stored_together_or_not_at_all_on_request(parts: Parts, jobs: JobService) -> None:
    with pytest.raises(InvalidInput):
        await jobs.create_many(ANN, [spec(), every(-1)], atomic=True)
    assert await parts.crank.timeline() == []


async def test_ids_of_many_jobs_are_returned_in_order(parts: Parts, jobs: JobService) -> None:
    ids = await jobs.create_ids(ANN, [spec(), spec()])
    assert sorted(entry.key for entry in await parts.crank.due()) == ids


async def test_replaced_job_has_the_next_version(jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60))
    view = await jobs.replace(ANN, job.job_id, every(90), if_version=1)
    assert (view.version, view.every_sec) == (2, 90)


async def test_replacement_of_another_version_is_refused(jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60))
    with pytest.raises(VersionMismatch, match="at version 1, not 7"):
        await jobs.replace(ANN, job.job_id, every(90), if_version=7)


async def test_unique_key_of_a_job_cannot_be_changed(jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60, unique_key="nightly"))
    with pytest.raises(InvalidInput, match="cannot be changed"):
        await jobs.replace(ANN, job.job_id, every(60, unique_key="daily"))


async def test_paused_job_has_no_next_time_until_it_is_resumed(jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60))
    assert (await jobs.pause(ANN, job.job_id)).next_fire_at is None
    resumed = await jobs.resume(ANN, job.job_id)
    assert (resumed.state, resumed.next_fire_at) == ("ACTIVE", job.next_fire_at)


async def test_halted_job_is_paused_and_says_why(jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60))
    view = await jobs.halt(ANN, job.job_id, "its endpoint is disabled")
    assert (view.state, view.halted) == ("PAUSED", "its endpoint is disabled")


async def test_deleted_job_stays_readable_and_fires_nothing(parts: Parts, jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60))
    assert (await jobs.delete(ANN, job.job_id)).state == "CANCELLED"
    assert await parts.crank.timeline() == []


async def test_trigger_runs_a_job_now_in_addition_to_its_schedule(parts: Parts, jobs: JobService) -> None:
    job = await jobs.create(ANN, spec(run_at=instant(NOW_MS + HOUR)))
    view = await jobs.trigger(ANN, job.job_id)
    assert (view.cause, view.state, view.due_at) == ("TRIGGER", "PENDING", instant(NOW_MS))
    assert {entry.key for entry in await parts.crank.timeline()} == {job.job_id, view.execution_id}


async def test_triggers_under_one_key_are_one_execution(parts: Parts, jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60))
    view = await jobs.trigger(ANN, job.job_id, key())
    with pytest.raises(AlreadyAnswered):
        await jobs.trigger(ANN, job.job_id, key())
    found = await parts.store.query_store.list_executions(
        ANN.tenant, JobId(job.job_id), state=None, after=None, limit=10
    )
    assert [row.id for row in found] == [view.execution_id]


async def test_job_of_another_tenant_is_not_found(jobs: JobService) -> None:
    job = await jobs.create(ANN, every(60))
    with pytest.raises(NotFound):
        await jobs.pause(STRANGER, job.job_id)
