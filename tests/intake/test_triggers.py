"""Triggers with their own payload, and past the overlap rule."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.job_service import JobService
from noonday.intake.triggers import refuse_payload_of_built_in
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.filters import RunRequest
from noonday.model.job import Overlap, Target
from noonday.model.pool import WEBHOOKS_POOL
from noonday.runtime.tracing import Tracing
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import every, job, job_id, spec

FORCE = RunRequest(force=True)


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


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL])
async def test_force_runs_a_job_beside_its_open_execution(parts: Parts, jobs: JobService, overlap: Overlap) -> None:
    made = await parts.add(every(overlap=overlap))
    await parts.fire(made)
    forced = await jobs.trigger(ANN, made.id, request=FORCE)
    assert forced.next_attempt_at is not None
    assert [entry.key for entry in await parts.crank.due() if entry.key != made.id] == [forced.execution_id]


async def test_force_cancels_no_open_execution(parts: Parts, jobs: JobService) -> None:
    made = await parts.add(every(overlap=Overlap.CANCEL_OTHER))
    dispatch = await parts.fire(made)
    await jobs.trigger(ANN, made.id, request=FORCE)
    row = await parts.store.query_store.find_execution(made.tenant, dispatch.execution_id)
    assert row is not None
    assert row.revocation is None


async def test_refused_trigger_names_force(parts: Parts, jobs: JobService) -> None:
    made = await parts.add(every(overlap=Overlap.SKIP))
    await parts.fire(made)
    with pytest.raises(Conflict, match="`force` runs the job beside it"):
        await jobs.trigger(ANN, made.id)


async def test_payload_of_a_trigger_is_for_that_run_alone(parts: Parts, jobs: JobService) -> None:
    made = await parts.add(spec(), payload={"a": 1})
    await jobs.trigger(ANN, made.id, request=RunRequest(payload={"a": 2}))
    await jobs.trigger(ANN, made.id, key(), request=RunRequest(payload=None))
    fired = (await parts.crank.fire()).dispatches
    shown = [parts.presenter.open(each.payload, each.tenant, each.job_id) for each in fired]
    assert sorted(map(str, shown)) == ["None", "{'a': 1}", "{'a': 2}"]


async def test_payload_of_a_trigger_is_kept_by_an_edit(parts: Parts, jobs: JobService) -> None:
    made = await parts.add(spec(), payload={"a": 1})
    triggered = await jobs.trigger(ANN, made.id, request=RunRequest(payload={"a": 2}))
    await jobs.replace(ANN, made.id, spec(payload={"a": 3}))
    fired = (await parts.crank.fire()).dispatches
    (run,) = [each for each in fired if each.execution_id == triggered.execution_id]
    assert parts.presenter.open(run.payload, run.tenant, run.job_id) == {"a": 2}


async def test_payload_for_the_job_of_a_stranger_finds_nothing(parts: Parts, jobs: JobService) -> None:
    made = await parts.add(spec())
    with pytest.raises(NotFound):
        await jobs.trigger(STRANGER, made.id, request=RunRequest(payload=1))


def test_task_takes_no_payload_of_a_trigger() -> None:
    with pytest.raises(InvalidInput, match="PATCH /v1/tasks"):
        refuse_payload_of_built_in(job(spec(target=Target(WEBHOOKS_POOL, "webhook.call"))))
