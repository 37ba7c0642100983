"""Executions of all jobs, as people see them."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.execution_queries import ExecutionQueries
from noonday.intake.execution_service import ExecutionService
from noonday.model.errors import InvalidInput
from noonday.model.execution import Outcome
from noonday.model.found_executions import ExecutionFilter, GroupedBy
from noonday.model.job import Target, instant_of
from noonday.model.retry import RetryPolicy
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import NOW_MS, POOL, failure, report, spec


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


def queries_of(parts: Parts) -> ExecutionQueries:
    executions = ExecutionService(
        editor=parts.editor,
        query_store=parts.store.query_store,
        workload=parts.store.workload,
        presenter=parts.presenter,
        blockers=parts.blockers,
        clock=parts.clock,
    )
    return ExecutionQueries(parts.store.execution_search, executions, parts.presenter, parts.keyring, parts.clock)


async def test_executions_of_all_jobs_are_summaries(parts: Parts) -> None:
    queries = queries_of(parts)
    good = await parts.add(spec(name="good"))
    await parts.crank.settle(report(await parts.fire(good), result=parts.sealed("secret", good)))
    bad = await parts.add(spec(name="bad", retry_policy=RetryPolicy(max_attempts=1)))
    await parts.crank.settle(report(await parts.fire(bad), Outcome.FAILED, failure=failure("boom")))
    page = await queries.search(ANN, ExecutionFilter())
    assert {(one.job_name, one.state) for one in page.executions} == {("good", "SUCCEEDED"), ("bad", "DEAD")}
    assert all((one.result, one.progress, one.attempts) == (None, None, ()) for one in page.executions)
    assert {one.error.message for one in page.executions if one.error} == {"boom"}
    assert (await queries.search(STRANGER, ExecutionFilter())).executions == ()


async def test_cursor_is_opaque_and_belongs_to_its_tenant(parts: Parts) -> None:
    queries = queries_of(parts)
    ran = [(await parts.fire(await parts.add(spec()))).execution_id for _ in range(3)]
    first = await queries.search(ANN, ExecutionFilter(), limit=2)
    assert first.next is not None
    assert not any(each in first.next for each in ran)
    rest = await queries.search(ANN, ExecutionFilter(), cursor=first.next, limit=2)
    listed = [one.execution_id for one in (*first.executions, *rest.executions)]
    assert (listed, rest.next) == (sorted(ran, reverse=True), None)
    for cursor in (first.next + "A", ran[0], "", "***", "ä"):
        with pytest.raises(InvalidInput, match="not a cursor of this list"):
            await queries.search(ANN, ExecutionFilter(), cursor=cursor)
    with pytest.raises(InvalidInput, match="not a cursor of this list"):
        await queries.search(STRANGER, ExecutionFilter(), cursor=first.next)


async def test_executions_are_found_by_the_beginning_of_their_id(parts: Parts) -> None:
    queries = queries_of(parts)
    ran = [(await parts.fire(await parts.add(spec()))).execution_id for _ in range(2)]
    for prefix in (ran[0], ran[0][:20]):
        (one,) = (await queries.search(ANN, ExecutionFilter(id_prefix=prefix))).executions
        assert one.execution_id == ran[0]
    assert len((await queries.search(ANN, ExecutionFilter(id_prefix=ran[0][:8]))).executions) == 2
    assert (await queries.search(STRANGER, ExecutionFilter(id_prefix=ran[0][:8]))).executions == ()
    for prefix in ("xyz", "0190000000", ran[0] + "0", ran[0].upper() + "G"):
        with pytest.raises(InvalidInput, match="idPrefix is not the beginning of an id"):
            await queries.search(ANN, ExecutionFilter(id_prefix=prefix))


async def test_pending_executions_are_grouped_by_what_they_wait_for(parts: Parts) -> None:
    queries = queries_of(parts)
    for _ in range(3):
        await parts.fire(await parts.add(spec()))
    other = await parts.add(spec(target=Target("mail", "send")))
    await parts.fire(other)
    running = await parts.fire(await parts.add(spec()))
    await parts.crank.settle(report(running, Outcome.STARTED))
    found = await queries.groups(ANN, ExecutionFilter(state="PENDING"), GroupedBy.WAITING_FOR)
    assert [(one.text, one.count, one.is_least) for one in found.groups] == [
        (f"waits for pool '{POOL}' has no workers", 3, False),
        ("waits for pool 'mail' has no workers", 1, False),
    ]
    by_pool = await queries.groups(ANN, ExecutionFilter(), GroupedBy.POOL)
    assert [(one.key, one.count) for one in by_pool.groups] == [(POOL, 4), ("mail", 1)]
    by_handler = await queries.groups(ANN, ExecutionFilter(pool="mail"), GroupedBy.HANDLER)
    assert [(one.key, one.count) for one in by_handler.groups] == [("send", 1)]
    assert by_handler.groups[0].oldest_at == instant_of(NOW_MS)
    assert (await queries.groups(STRANGER, ExecutionFilter(), GroupedBy.POOL)).groups == ()
