"""Merge patches, and replacements by what a GET returned, as time passes."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from noonday.intake.job_changer import JobChanger
from noonday.intake.job_service import JobService
from noonday.model.errors import Conflict, InvalidInput, NotFound, VersionMismatch
from noonday.model.job import JobType
from noonday.runtime.tracing import Tracing
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import HOUR, MINUTE, NOW_MS, every, instant, job_id, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        await parts.add_worker()
        yield parts


@pytest.fixture
def jobs(parts: Parts) -> JobService:
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
    )


@pytest.fixture
def changer(parts: Parts, jobs: JobService) -> JobChanger:
    return JobChanger(
        jobs=jobs,
        editor=parts.editor,
        query_store=parts.store.query_store,
        receipts=parts.receipts,
        presenter=parts.presenter,
    )


async def test_patch_restarts_a_delay_only_if_it_changes_it(
    parts: Parts, jobs: JobService, changer: JobChanger
) -> None:
    made = await jobs.create(ANN, spec(type=JobType.DELAYED, delay_sec=3600))
    parts.clock.step(1800)
    renamed = await changer.patch(ANN, made.job_id, {"name": "x"})
    assert renamed.next_fire_at == made.next_fire_at == instant(NOW_MS + HOUR)
    parts.clock.step(60)
    later = await changer.patch(ANN, made.job_id, {"delaySec": 7200})
    assert later.next_fire_at == instant(NOW_MS + 31 * MINUTE + 2 * HOUR)


async def test_patched_one_shot_that_has_fired_does_not_fire_again(
    parts: Parts, jobs: JobService, changer: JobChanger
) -> None:
    made = await jobs.create(ANN, spec())
    await parts.crank.fire()
    parts.clock.step(3600)
    assert (await changer.patch(ANN, made.job_id, {"name": "x"})).next_fire_at is None


async def test_one_shot_is_put_back_as_it_was_shown_after_its_time(
    parts: Parts, jobs: JobService, changer: JobChanger
) -> None:
    made = await jobs.create(ANN, spec(run_at=instant(NOW_MS + MINUTE)))
    parts.clock.step(3600)
    with pytest.raises(InvalidInput, match="in the past"):
        await changer.replace(ANN, made.job_id, msgspec.json.encode(spec(run_at=instant(NOW_MS))))
    put = await changer.replace(ANN, made.job_id, msgspec.json.encode(made))
    assert (put.run_at, put.version) == (made.run_at, 2)


async def test_patch_whose_version_is_to_come_is_refused(jobs: JobService, changer: JobChanger) -> None:
    made = await jobs.create(ANN, every())
    with pytest.raises(VersionMismatch, match="at version 1, not 2"):
        await changer.patch(ANN, made.job_id, {"name": "x"}, if_version=2)


async def test_patch_of_a_strangers_job_finds_nothing(jobs: JobService, changer: JobChanger) -> None:
    made = await jobs.create(ANN, every())
    with pytest.raises(NotFound):
        await changer.patch(STRANGER, made.job_id, {"name": "x"})


async def test_payload_that_cannot_be_read_is_not_overwritten(parts: Parts, changer: JobChanger) -> None:
    made = await parts.add(every())
    unreadable = msgspec.structs.replace(made, id=job_id(), payload=b"not ours")
    await parts.crank.add(unreadable)
    with pytest.raises(Conflict, match="replace the job with PUT"):
        await changer.patch(ANN, unreadable.id, {"name": "x"})
