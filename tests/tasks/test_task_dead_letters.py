"""Dead letters of tasks."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.idempotency import AlreadyAnswered
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.tasks.wire import HANDLER, POOL, TaskDeadFilter
from noonday.tasks.dead_letters import TaskDeadLetters, dead_query_of
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.tasks.parts import ENDPOINT, URL, add_task, dead_letters_of

ALL = TaskDeadFilter()


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def letters(parts: Parts) -> TaskDeadLetters:
    return TaskDeadLetters(dead_letters_of(parts), parts.receipts, parts.store.query_store, parts.presenter)


async def buried(parts: Parts) -> str:
    """Return the execution of a task that has failed for good."""
    return (await parts.bury(await add_task(parts, name="nightly"), message="answered 503")).execution_id


async def test_failed_call_is_listed_with_its_task_its_url_and_its_error(
    parts: Parts, letters: TaskDeadLetters
) -> None:
    execution = await buried(parts)
    (view,) = (await letters.list_dead(ANN, ALL)).dead_letters
    assert (view.id, view.task_name, view.webhook_url, view.error_message) == (
        execution,
        "nightly",
        URL,
        "answered 503",
    )


async def test_dead_letters_of_jobs_without_a_webhook_are_left_out(parts: Parts, letters: TaskDeadLetters) -> None:
    dispatch = await parts.bury(await parts.add())
    assert (await letters.list_dead(ANN, ALL)).dead_letters == ()
    with pytest.raises(NotFound):
        await letters.get(ANN, dispatch.execution_id)


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (TaskDeadFilter(error="503"), 1),
        (TaskDeadFilter(error="TIMEOUT"), 0),
        (TaskDeadFilter(endpoint=f"{ENDPOINT}/any/path"), 1),
        (TaskDeadFilter(endpoint="https://elsewhere.example"), 0),
    ],
)
async def test_filter_selects_by_error_and_endpoint(
    parts: Parts, letters: TaskDeadLetters, where: TaskDeadFilter, count: int
) -> None:
    await buried(parts)
    assert len((await letters.list_dead(ANN, where)).dead_letters) == count


async def test_pages_list_each_dead_letter_once(parts: Parts, letters: TaskDeadLetters) -> None:
    executions = [await buried(parts) for _ in range(3)]
    first = await letters.list_dead(ANN, ALL, limit=2)
    rest = await letters.list_dead(ANN, ALL, limit=2, cursor=first.next)
    assert sorted(each.id for each in (*first.dead_letters, *rest.dead_letters)) == sorted(executions)


async def test_retried_dead_letter_is_resolved_and_stays_readable(parts: Parts, letters: TaskDeadLetters) -> None:
    execution = await buried(parts)
    retried = await letters.retry(ANN, execution)
    assert retried.retry_of == execution
    assert (await letters.list_dead(ANN, ALL)).dead_letters == ()
    assert (await letters.get(ANN, execution)).resolved_at is not None


async def test_dead_letter_is_retried_once(parts: Parts, letters: TaskDeadLetters) -> None:
    execution = await buried(parts)
    await letters.retry(ANN, execution)
    with pytest.raises(Conflict):
        await letters.retry(ANN, execution)


async def test_archived_dead_letter_is_listed_on_request(parts: Parts, letters: TaskDeadLetters) -> None:
    execution = await buried(parts)
    await letters.archive(ANN, execution, key())
    with pytest.raises(AlreadyAnswered):
        await letters.archive(ANN, execution, key())
    assert (await letters.list_dead(ANN, ALL)).dead_letters == ()
    assert [each.id for each in (await letters.list_dead(ANN, TaskDeadFilter(archived=True))).dead_letters] == [
        execution
    ]


async def test_dead_letter_of_another_tenant_is_not_found(parts: Parts, letters: TaskDeadLetters) -> None:
    execution = await buried(parts)
    with pytest.raises(NotFound):
        await letters.retry(STRANGER, execution)


def test_query_of_a_filter_names_only_tasks() -> None:
    query = dead_query_of(ALL)
    assert (query.pool, query.handler, query.is_task) == (POOL, HANDLER, True)


def test_malformed_endpoint_of_a_filter_is_refused_with_its_field() -> None:
    with pytest.raises(InvalidInput) as refused:
        dead_query_of(TaskDeadFilter(endpoint="not a url"))
    assert {flaw.pointer for flaw in refused.value.flaws} == {"/endpoint"}
