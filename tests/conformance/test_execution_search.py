"""Search of the executions of all jobs."""

from typing import Any

import pytest

from noonday.model.execution import Outcome
from noonday.model.found_executions import ExecutionFilter, GroupedBy
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Concurrency, Target
from noonday.model.message import Dispatch
from noonday.model.retry import RetryPolicy
from noonday.ports.execution_search import ExecutionSearch
from tests.support.crank import Crank
from tests.support.factories import (
    HANDLER,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    WORKER,
    every,
    failure,
    job,
    report,
    spec,
)

OTHER = TenantId("other")
MOST = 1_000
ONE_TRY = RetryPolicy(max_attempts=1)


async def run_minutes(crank: Crank, minutes: int, outcome: Outcome = Outcome.SUCCEEDED) -> list[ExecutionId]:
    """Fire and settle what is due, minute by minute. Returns the executions, oldest first."""
    ran = []
    for minute in range(minutes):
        crank.now_ms = NOW_MS + minute * MINUTE
        for dispatch in (await crank.fire()).dispatches:
            bad = failure() if outcome is Outcome.FAILED else None
            await crank.settle(report(dispatch, outcome, failure=bad))
            ran.append(dispatch.execution_id)
    return sorted(ran)


async def found(
    search: ExecutionSearch, *, tenant: TenantId = TENANT, now_ms: int = NOW_MS, **where: Any
) -> list[ExecutionId]:
    """The ids, oldest first."""
    page = await search.search(tenant, ExecutionFilter(**where), None, MOST, most=MOST, now_ms=now_ms)
    assert page.next is None
    ids = [each.execution.id for each in page.found]
    assert ids == sorted(ids, reverse=True)
    return ids[::-1]


async def test_executions_of_all_jobs_of_the_tenant_are_found(crank: Crank, execution_search: ExecutionSearch) -> None:
    await crank.add(job(every()), job(every()), job(every(), tenant=OTHER))
    ran = await run_minutes(crank, 2)
    mine, others = await found(execution_search), await found(execution_search, tenant=OTHER)
    assert (len(mine), len(others)) == (4, 2)
    assert sorted([*mine, *others]) == ran


async def test_a_found_execution_has_the_name_of_its_job_and_no_result(
    crank: Crank, execution_search: ExecutionSearch
) -> None:
    await crank.add(job(every(name="nightly")))
    await crank.settle(report(await crank.fire_one(), result=b"sealed"))
    ((one,), _) = await execution_search.search(TENANT, ExecutionFilter(), None, 1, most=MOST, now_ms=NOW_MS)
    assert one.job_name == "nightly"
    assert (one.execution.worker_id, one.execution.result, one.execution.transitions) == (WORKER, None, "")


async def test_executions_are_found_by_each_condition(crank: Crank, execution_search: ExecutionSearch) -> None:
    plain = job(every(tags=("nightly", "etl"), retry_policy=ONE_TRY))
    other = job(every(target=Target("mail", "send"), retry_policy=ONE_TRY))
    await crank.add(plain, other)
    dead = await run_minutes(crank, 1, Outcome.FAILED)
    all_of = await run_minutes(crank, 3)
    of_plain = [each.id for each in await crank.all_of(plain)]
    of_other = [each.id for each in await crank.all_of(other)]
    every_one = sorted([*of_plain, *of_other])
    assert len(all_of) == 4
    assert await found(execution_search) == every_one
    assert await found(execution_search, job_id=plain.id) == of_plain
    assert await found(execution_search, pool="mail") == of_other
    assert await found(execution_search, handler=HANDLER) == of_plain
    assert await found(execution_search, tag="etl") == of_plain
    assert await found(execution_search, tag="et") == []
    assert await found(execution_search, worker=WORKER) == every_one
    assert await found(execution_search, worker="w-2") == []
    assert await found(execution_search, state="DEAD") == dead
    assert await found(execution_search, state="DEAD", job_id=other.id) == of_other[:1]
    assert await found(execution_search, since_ms=NOW_MS + MINUTE, until_ms=NOW_MS + 2 * MINUTE) == every_one[2:4]
    assert await found(execution_search, job_id=plain.id, until_ms=NOW_MS + MINUTE) == of_plain[:1]


async def ran(crank: Crank, *, late_ms: int, took_ms: int, attempt: int = 1) -> Dispatch:
    """Fire a new job, and settle its execution."""
    await crank.add(job(now_ms=crank.now_ms))
    dispatch = await crank.fire_one()
    started = crank.now_ms + late_ms
    await crank.settle(report(dispatch, started_ms=started, ended_ms=started + took_ms))
    return dispatch


async def test_late_and_slow_executions_are_found(crank: Crank, execution_search: ExecutionSearch) -> None:
    await ran(crank, late_ms=SECOND, took_ms=SECOND)
    late = await ran(crank, late_ms=5 * SECOND, took_ms=SECOND)
    slow = await ran(crank, late_ms=0, took_ms=9 * SECOND)
    assert await found(execution_search, late_over_ms=SECOND) == [late.execution_id]
    assert await found(execution_search, took_over_ms=SECOND) == [slow.execution_id]
    assert await found(execution_search, took_over_ms=9 * SECOND) == []


async def test_an_execution_that_is_overdue_or_still_runs_counts_until_now(
    crank: Crank, execution_search: ExecutionSearch
) -> None:
    await crank.add(job())
    dispatch = await crank.fire_one()
    now_ms = NOW_MS + MINUTE
    assert await found(execution_search, now_ms=now_ms, late_over_ms=59 * SECOND) == [dispatch.execution_id]
    await crank.settle(report(dispatch, Outcome.STARTED, started_ms=NOW_MS + SECOND))
    assert await found(execution_search, now_ms=now_ms, late_over_ms=59 * SECOND) == []
    assert await found(execution_search, now_ms=now_ms, took_over_ms=58 * SECOND) == [dispatch.execution_id]
    assert await found(execution_search, now_ms=now_ms, took_over_ms=59 * SECOND) == []


async def test_the_start_of_a_retry_is_not_late(crank: Crank, execution_search: ExecutionSearch) -> None:
    await crank.add(job(every(retry_policy=RetryPolicy(max_attempts=2))))
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    (retry,) = [each for each in await crank.timeline() if each.kind == 1]
    crank.now_ms = retry.due_ms
    await crank.settle(report(next(iter((await crank.fire([retry])).dispatches)), started_ms=retry.due_ms))
    assert await found(execution_search, late_over_ms=1) == []


@pytest.mark.parametrize("by_job", [False, True])
async def test_pages_examine_no_more_rows_than_their_limit(
    crank: Crank, execution_search: ExecutionSearch, by_job: bool
) -> None:
    task = job(every(retry_policy=ONE_TRY))
    await crank.add(task)
    (bad,) = await run_minutes(crank, 1, Outcome.FAILED)
    good = await run_minutes(crank, 4)
    where = ExecutionFilter(state="DEAD", job_id=task.id if by_job else None)
    first = await execution_search.search(TENANT, where, None, MOST, most=2, now_ms=NOW_MS)
    assert (first.found, first.next) == ([], good[1])
    second = await execution_search.search(TENANT, where, first.next, MOST, most=2, now_ms=NOW_MS)
    assert ([each.execution.id for each in second.found], second.next) == ([bad], bad)
    assert await execution_search.search(TENANT, where, second.next, MOST, most=2, now_ms=NOW_MS) == ([], None)


async def test_pages_follow_each_other(crank: Crank, execution_search: ExecutionSearch) -> None:
    await crank.add(job(every()))
    newest_first = (await run_minutes(crank, 5))[::-1]
    page = await execution_search.search(TENANT, ExecutionFilter(), None, 2, most=MOST, now_ms=NOW_MS)
    assert ([each.execution.id for each in page.found], page.next) == (newest_first[:2], newest_first[1])
    rest = await execution_search.search(TENANT, ExecutionFilter(), page.next, 3, most=MOST, now_ms=NOW_MS)
    assert ([each.execution.id for each in rest.found], rest.next) == (newest_first[2:], None)


@pytest.mark.parametrize("where", [{"job_id": "nobody"}, {"pool": "a\0b"}, {"tag": "\0"}])
async def test_values_that_no_database_can_hold_find_nothing(
    crank: Crank, execution_search: ExecutionSearch, where: dict[str, str]
) -> None:
    await crank.add(job())
    await crank.fire()
    assert await found(execution_search, **where) == []
    page = await execution_search.search(TENANT, ExecutionFilter(), "no cursor", MOST, most=MOST, now_ms=NOW_MS)
    assert page == ([], None)


async def test_open_executions_are_told_from_ended_and_unknown_ones(
    crank: Crank, execution_search: ExecutionSearch
) -> None:
    await crank.add(job(), job(), job(tenant=OTHER))
    ended, running, waiting = (await crank.fire()).dispatches
    await crank.settle(report(ended), report(running, Outcome.STARTED))
    unknown = ExecutionId(JobId("01900000-0000-8000-a000-ffffffffffff"))
    asked = [ended.execution_id, running.execution_id, waiting.execution_id, unknown]
    assert await execution_search.open_among(asked) == {running.execution_id, waiting.execution_id}
    assert await execution_search.open_among([]) == set()


async def test_executions_are_found_by_the_beginning_of_their_id(
    crank: Crank, execution_search: ExecutionSearch
) -> None:
    await crank.add(job(every()), job(every(), tenant=OTHER))
    everything = await run_minutes(crank, 2)
    mine = await found(execution_search)
    assert len(mine) == 2
    assert await found(execution_search, id_prefix=mine[0]) == mine[:1]
    assert await found(execution_search, id_prefix=mine[1][:13]) == mine[1:]
    assert await found(execution_search, id_prefix=mine[0][:4]) == mine
    (foreign, *_) = [each for each in everything if each not in mine]
    assert await found(execution_search, id_prefix=foreign) == []
    assert await found(execution_search, id_prefix="no id") == []


async def test_executions_are_grouped_by_pool_handler_and_how_they_wait(
    crank: Crank, execution_search: ExecutionSearch
) -> None:
    async def groups(by: GroupedBy, most: int = MOST, **where: Any) -> tuple[list[tuple[str, int]], bool]:
        page = await execution_search.groups(TENANT, ExecutionFilter(**where), by, 9, most=most, now_ms=crank.now_ms)
        return [(each.name, each.count) for each in page.groups], page.is_least

    await crank.add(job(), job(), job(spec(target=Target("mail", "send"))), job(tenant=OTHER))
    await crank.fire()
    assert await groups(GroupedBy.POOL) == ([(POOL, 2), ("mail", 1)], False)
    assert await groups(GroupedBy.HANDLER, pool="mail") == ([("send", 1)], False)
    assert await groups(GroupedBy.POOL, handler="send", state="PENDING") == ([("mail", 1)], False)
    assert await groups(GroupedBy.WAITING_FOR, state="PENDING") == ([(POOL, 2), ("mail", 1)], False)
    assert (await groups(GroupedBy.POOL, most=1))[1]


async def test_dispatched_due_and_keyed_executions_wait_in_different_ways(
    crank: Crank, execution_search: ExecutionSearch
) -> None:
    async def counts() -> list[int]:
        pending = ExecutionFilter(state="PENDING")
        page = await execution_search.groups(TENANT, pending, GroupedBy.WAITING_FOR, 9, most=MOST, now_ms=crank.now_ms)
        return [each.count for each in page.groups]

    retrying = job(spec(retry_policy=RetryPolicy(max_attempts=2)))
    await crank.add(retrying, job(), job())
    for dispatch in (await crank.fire()).dispatches:
        if dispatch.job_id == retrying.id:
            await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    assert await counts() == [2, 1]
    keyed = job(spec(retry_policy=RetryPolicy(max_attempts=2), concurrency=Concurrency("k", 1)), now_ms=crank.now_ms)
    await crank.add(keyed)
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    assert await counts() == [2, 1, 1]
