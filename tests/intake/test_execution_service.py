"""Executions as people see, cancel and repeat them."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.edits import Resend
from noonday.intake.execution_service import ExecutionService
from noonday.intake.idempotency import AlreadyAnswered
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.execution import Outcome, State
from noonday.model.ids import ExecutionId, execution_id
from noonday.model.job import Concurrency, Overlap
from noonday.model.pause import Pause
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import HANDLER, HOUR, MINUTE, NOW_MS, POOL, WORKER, audit, every, report, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def executions(parts: Parts) -> ExecutionService:
    return ExecutionService(
        editor=parts.editor,
        query_store=parts.store.query_store,
        workload=parts.store.workload,
        presenter=parts.presenter,
        blockers=parts.blockers,
        clock=parts.clock,
    )


# Reading


async def test_execution_shows_its_attempts_and_the_name_of_its_job(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add(spec(name="nightly")))
    await parts.crank.settle(report(dispatch))
    view = await executions.get(ANN, dispatch.execution_id)
    assert (view.job_name, view.state) == ("nightly", "SUCCEEDED")
    assert [(attempt.attempt, attempt.worker_id, attempt.state) for attempt in view.attempts] == [
        (1, WORKER, "SUCCEEDED")
    ]


async def test_result_is_decrypted_unless_a_summary_is_requested(parts: Parts, executions: ExecutionService) -> None:
    job = await parts.add()
    dispatch = await parts.fire(job)
    await parts.crank.settle(report(dispatch, result=parts.sealed({"rows": 3}, job)))
    assert (await executions.get(ANN, dispatch.execution_id)).result == {"rows": 3}
    assert (await executions.get(ANN, dispatch.execution_id, summary=True)).result is None


async def test_execution_of_another_tenant_is_not_found(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    with pytest.raises(NotFound):
        await executions.get(STRANGER, dispatch.execution_id)


async def test_executions_of_a_job_are_listed_newest_first_in_pages(parts: Parts, executions: ExecutionService) -> None:
    job = await parts.add(every())
    for minute in range(3):
        parts.crank.now_ms = NOW_MS + minute * MINUTE
        await parts.fire(job)
    first = await executions.list_executions(ANN, job.id, limit=2)
    rest = await executions.list_executions(ANN, job.id, limit=2, cursor=first.next)
    ids = [view.execution_id for view in (*first.executions, *rest.executions)]
    assert ids == [execution_id(job.id, NOW_MS + minute * MINUTE) for minute in (2, 1, 0)]
    assert rest.next is None


async def test_executions_are_listed_by_state(parts: Parts, executions: ExecutionService) -> None:
    job = await parts.add(every())
    await parts.crank.settle(report(await parts.fire(job)))
    parts.crank.now_ms += MINUTE
    await parts.fire(job)
    page = await executions.list_executions(ANN, job.id, state="SUCCEEDED")
    assert [view.state for view in page.executions] == ["SUCCEEDED"]


async def test_unknown_state_is_refused_with_the_known_ones(parts: Parts, executions: ExecutionService) -> None:
    job = await parts.add()
    with pytest.raises(InvalidInput, match="unknown state 'BROKEN'") as refused:
        await executions.list_executions(ANN, job.id, state="BROKEN")
    assert refused.value.flaws[0].pointer == "/state"


# What an execution waits for


async def test_ended_execution_waits_for_nothing(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch))
    assert (await executions.get(ANN, dispatch.execution_id)).waiting_for is None


async def test_dispatched_execution_waits_for_a_worker(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    assert (await executions.get(ANN, dispatch.execution_id)).waiting_for == f"pool {POOL!r} has no workers"
    await parts.add_worker()
    waiting_for = (await executions.get(ANN, dispatch.execution_id)).waiting_for
    assert waiting_for == f"a free slot in pool {POOL!r}: 0 of 4 running"


async def test_retry_waits_for_its_time(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch, Outcome.FAILED, snooze_ms=HOUR))
    view = await executions.get(ANN, dispatch.execution_id)
    assert (view.waiting_for or "").startswith("its next attempt at 2030-01-01T01:")


async def test_execution_that_no_worker_has_the_handler_for_says_so(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch, Outcome.HANDED_BACK))
    view = await executions.get(ANN, dispatch.execution_id)
    assert view.waiting_for == f"a worker with handler {HANDLER!r} in pool {POOL!r}: no worker has this handler"


async def test_buffered_execution_waits_for_an_earlier_one(parts: Parts, executions: ExecutionService) -> None:
    job = await parts.add(every(overlap=Overlap.BUFFER_ONE))
    await parts.fire(job)
    assert (await parts.crank.fire(at_ms=NOW_MS + MINUTE)).dispatches == ()
    buffered = execution_id(job.id, NOW_MS + MINUTE)
    assert (await executions.get(ANN, buffered)).waiting_for == "an earlier open execution of the job (overlap)"


async def test_waiting_execution_names_the_pause_of_its_pool(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=HOUR))
    await parts.store.settings_store.add_pause(Pause("POOL", POOL, NOW_MS, "olga"), audit())
    waiting_for = (await executions.get(ANN, dispatch.execution_id)).waiting_for
    assert waiting_for == f"pool {POOL!r} is paused since 2030-01-01T00:00:00Z by olga"


async def test_due_execution_names_the_limit_that_blocks_it(parts: Parts, executions: ExecutionService) -> None:
    await parts.add_worker()
    limited = spec(concurrency=Concurrency("db", 1))
    first, second = await parts.add(limited), await parts.add(limited)
    snoozed = await parts.fire(first)
    await parts.crank.settle(report(snoozed, Outcome.SNOOZED, snooze_ms=MINUTE))
    await parts.fire(second)
    parts.clock.advance(120)
    waiting_for = (await executions.get(ANN, snoozed.execution_id)).waiting_for
    assert waiting_for == "concurrency key 'db' has 1 of at most 1 executions dispatched"


# Commands


async def test_waiting_execution_that_is_cancelled_has_ended(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=HOUR))
    view = await executions.cancel(ANN, dispatch.execution_id)
    assert (view.state, view.cancel_requested) == ("CANCELLED", "cancelled by ann")


async def test_cancel_of_a_dispatched_execution_is_known_to_workers_before_the_response(
    parts: Parts, executions: ExecutionService
) -> None:
    await parts.signals.begin_generation(POOL)
    dispatch = await parts.fire(await parts.add())
    view = await executions.cancel(ANN, dispatch.execution_id)
    assert (view.state, view.cancel_requested) == ("PENDING", "cancelled by ann")
    assert await parts.signals.pre_start_check(POOL, [dispatch]) == {dispatch.execution_id: "cancelled by ann"}


async def test_ended_execution_cannot_be_cancelled(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch))
    with pytest.raises(Conflict):
        await executions.cancel(ANN, dispatch.execution_id)


async def test_repeated_cancel_gets_the_first_response(parts: Parts, executions: ExecutionService) -> None:
    dispatch = await parts.fire(await parts.add())
    await executions.cancel(ANN, dispatch.execution_id, key())
    with pytest.raises(AlreadyAnswered, match="stored response"):
        await executions.cancel(ANN, dispatch.execution_id, key())


async def test_repeated_execution_is_a_new_one_that_names_the_first(parts: Parts, executions: ExecutionService) -> None:
    job = await parts.add()
    dispatch = await parts.fire(job)
    await parts.crank.settle(report(dispatch))
    was, new = await parts.crank.look(dispatch), ExecutionId(execution_id(job.id, NOW_MS, "again"))
    views = await executions.run_again(ANN, job.id, [Resend(was, new, was.revision, resolves=False)])
    assert [(view.execution_id, view.retry_of, view.state) for view in views.values()] == [(new, was.id, "PENDING")]
    assert (await parts.crank.look(was)).state is State.SUCCEEDED


async def test_execution_that_was_repeated_before_is_not_repeated_twice(
    parts: Parts, executions: ExecutionService
) -> None:
    job = await parts.add()
    dispatch = await parts.fire(job)
    await parts.crank.settle(report(dispatch))
    was, new = await parts.crank.look(dispatch), ExecutionId(execution_id(job.id, NOW_MS, "again"))
    for _ in range(2):
        await executions.run_again(ANN, job.id, [Resend(was, new, was.revision, resolves=False)])
    assert len(await parts.crank.all_of(job)) == 2
