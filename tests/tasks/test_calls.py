"""Calls of all tasks, and calls that are sent again."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake import edits
from noonday.intake.idempotency import AlreadyAnswered
from noonday.model.errors import Conflict, NotFound
from noonday.model.filters import CallFilter
from noonday.model.job import Job
from noonday.model.tasks.wire import ResendRequest
from noonday.tasks.calls import TaskCalls
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import MINUTE, NOW_MS, audit, report
from tests.tasks.parts import URL, add_task, executions_of

ALL = CallFilter()


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def calls(parts: Parts) -> TaskCalls:
    return TaskCalls(executions_of(parts), parts.receipts, parts.store.query_store, parts.presenter)


async def ended(parts: Parts) -> tuple[Job, str]:
    """Return a task and its execution, which has succeeded."""
    task = await add_task(parts)
    dispatch = await parts.fire(task)
    await parts.crank.settle(report(dispatch))
    return task, dispatch.execution_id


async def test_call_is_listed_with_its_task_and_its_url(parts: Parts, calls: TaskCalls) -> None:
    task = await add_task(parts, name="nightly")
    dispatch = await parts.fire(task)
    (view,) = (await calls.list_calls(ANN, ALL)).executions
    assert (view.id, view.task_id, view.task_name, view.webhook_url) == (
        dispatch.execution_id,
        task.id,
        "nightly",
        URL,
    )


async def test_execution_of_a_job_without_a_webhook_is_no_call(parts: Parts, calls: TaskCalls) -> None:
    await parts.fire(await parts.add())
    assert (await calls.list_calls(ANN, ALL)).executions == ()


async def test_call_that_was_made_before_an_edit_shows_the_url_that_it_called(parts: Parts, calls: TaskCalls) -> None:
    task = await add_task(parts)
    await parts.fire(task)
    new = parts.sealed({"webhook_url": "https://elsewhere.example/"}, task)
    await parts.crank.change(task, lambda before: edits.replace(before, task.spec, new, NOW_MS + 1, audit()))
    (view,) = (await calls.list_calls(ANN, ALL)).executions
    assert view.webhook_url == URL


async def test_resent_call_is_a_new_execution_that_names_the_first(parts: Parts, calls: TaskCalls) -> None:
    task, execution = await ended(parts)
    view = await calls.resend(ANN, task.id, execution)
    assert (view.retry_of, view.task_id, view.with_present_payload) == (execution, task.id, False)
    assert view.id != execution


async def test_call_that_has_not_ended_is_not_sent_again(parts: Parts, calls: TaskCalls) -> None:
    task = await add_task(parts)
    dispatch = await parts.fire(task)
    with pytest.raises(Conflict, match="it has not ended"):
        await calls.resend(ANN, task.id, dispatch.execution_id)


async def test_call_of_a_deleted_task_is_not_sent_again(parts: Parts, calls: TaskCalls) -> None:
    task, execution = await ended(parts)
    await parts.crank.change(task, lambda before: edits.delete(before, NOW_MS + MINUTE, audit()))
    with pytest.raises(Conflict, match="was deleted"):
        await calls.resend(ANN, task.id, execution)


async def test_execution_of_another_task_or_tenant_is_not_found(parts: Parts, calls: TaskCalls) -> None:
    task, execution = await ended(parts)
    other = await add_task(parts)
    with pytest.raises(NotFound):
        await calls.resend(ANN, other.id, execution)
    with pytest.raises(NotFound):
        await calls.resend(STRANGER, task.id, execution)


async def test_repeated_request_sends_nothing_again(parts: Parts, calls: TaskCalls) -> None:
    task, execution = await ended(parts)
    await calls.resend(ANN, task.id, execution, key())
    with pytest.raises(AlreadyAnswered):
        await calls.resend(ANN, task.id, execution, key())
    assert len((await calls.list_calls(ANN, ALL)).executions) == 2


async def test_replay_sends_each_call_once_however_often_it_is_requested(parts: Parts, calls: TaskCalls) -> None:
    _, execution = await ended(parts)
    request = ResendRequest(ids=(execution, "unknown"), replay_id="r1")
    first, second = await calls.resend_many(ANN, request), await calls.resend_many(ANN, request)
    assert [(each.id, each.there_already) for each in first.results] == [(execution, False), ("unknown", False)]
    assert first.results[1].problem == "no task has an execution with this id"
    assert (second.results[0].resent_as, second.results[0].there_already) == (first.results[0].resent_as, True)


async def test_replay_does_not_send_its_own_calls_again(parts: Parts, calls: TaskCalls) -> None:
    """Otherwise a call that keeps failing would be sent for ever."""
    _, execution = await ended(parts)
    first = await calls.resend_many(ANN, ResendRequest(ids=(execution,), replay_id="r1"))
    new = first.results[0].resent_as
    assert new is not None
    await parts.crank.settle(report((await parts.crank.fire()).dispatches[0]))
    (own,) = (await calls.resend_many(ANN, ResendRequest(ids=(new,), replay_id="r1"))).results
    assert (own.resent_as, own.there_already) == (new, True)
