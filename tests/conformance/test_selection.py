"""Selection of jobs and dead letters by filters."""

from typing import Any

import pytest

from noonday.model.execution import Outcome, State
from noonday.model.ids import ExecutionId, TenantId
from noonday.model.job import Job, JobState, Target
from noonday.model.pool import NOTICES_POOL
from noonday.model.retry import RetryPolicy
from noonday.model.selection import DeadSelector, JobSelector
from noonday.ports.selection import Selection
from tests.support.crank import Crank
from tests.support.drivers import Store
from tests.support.factories import DAY, HANDLER, NOW_MS, SECOND, TENANT, every, failure, job, report, spec

OTHER = TenantId("other")
FAR_MS = NOW_MS + 10_000 * DAY
MOST = 1_000
ONE_TRY = RetryPolicy(max_attempts=1)


@pytest.fixture
def selection(store: Store) -> Selection:
    return store.selection


async def selected(selection: Selection, tenant: TenantId = TENANT, **where: Any) -> set[str]:
    page = await selection.jobs(tenant, JobSelector(**where), None, MOST, until_ms=FAR_MS, most=MOST)
    assert page.next is None
    ids = [each.id for each in page.jobs]
    assert ids == sorted(ids, reverse=True)
    return set(ids)


def ids(*jobs: Job) -> set[str]:
    return {each.id for each in jobs}


async def test_jobs_are_selected_by_each_condition(crank: Crank, selection: Selection) -> None:
    plain = job(every(name="nightly", unique_key="k", tags=("etl", "slow")))
    other = job(spec(target=Target("mail", "send")))
    notice = job(spec(target=Target(NOTICES_POOL, "notice.email")))
    foreign = job(every(), tenant=OTHER)
    await crank.add(plain, other, notice, foreign)
    assert await selected(selection) == ids(plain, other)
    assert await selected(selection, OTHER) == ids(foreign)
    assert await selected(selection, type="INTERVAL") == ids(plain)
    assert await selected(selection, pool="mail") == ids(other)
    assert await selected(selection, pool=NOTICES_POOL) == ids(notice)
    assert await selected(selection, handler=HANDLER) == ids(plain)
    assert await selected(selection, name="nightly") == ids(plain)
    assert await selected(selection, name="nightl") == set()
    assert await selected(selection, unique_key="k") == ids(plain)
    assert await selected(selection, tag="etl") == ids(plain)
    assert await selected(selection, tag="e") == set()


async def test_jobs_are_selected_by_state_and_only_while_they_may_fire(crank: Crank, selection: Selection) -> None:
    active, running, paused = job(every()), job(), job(every(), state=JobState.PAUSED)
    cancelled, ended = job(every(), state=JobState.CANCELLED), job()
    await crank.add(running, ended)
    for dispatch in (await crank.fire()).dispatches:
        if dispatch.job_id == ended.id:
            await crank.settle(report(dispatch))
    await crank.add(active, paused, cancelled)
    assert await selected(selection) == ids(active, running, paused)
    assert await selected(selection, state="ACTIVE") == ids(active, running)
    assert await selected(selection, state="PAUSED") == ids(paused)


async def test_pages_of_jobs_examine_no_more_rows_than_their_limit(crank: Crank, selection: Selection) -> None:
    made = sorted((job(every(name="wanted" if at == 0 else "other")) for at in range(5)), key=lambda one: one.id)
    wanted = next(one for one in made if one.spec.name == "wanted")
    newer = [one.id for one in made if one.id > wanted.id][::-1]
    await crank.add(*made)
    where, after, steps = JobSelector(name="wanted"), None, 0
    while True:
        page = await selection.jobs(TENANT, where, after, 1, until_ms=FAR_MS, most=1)
        after, steps = page.next, steps + 1
        if page.jobs:
            break
        assert after == newer[steps - 1]
    assert ([each.id for each in page.jobs], steps) == ([wanted.id], len(newer) + 1)
    one = await selection.jobs(TENANT, JobSelector(), None, 1, until_ms=FAR_MS, most=MOST)
    assert (one.jobs[0].id, one.next) == (made[-1].id, made[-1].id)


async def test_jobs_that_were_created_later_are_left_out(crank: Crank, selection: Selection) -> None:
    await crank.add(job(every()))
    assert (await selection.jobs(TENANT, JobSelector(), None, 9, until_ms=0, most=MOST)).jobs == []


async def died(crank: Crank, message: str = "no route", **more: Any) -> ExecutionId:
    await crank.add(job(spec(retry_policy=ONE_TRY, **more.pop("spec", {})), now_ms=crank.now_ms, **more))
    (dispatch,) = (await crank.fire(await crank.due())).dispatches
    tenant = more.get("tenant", TENANT)
    bad = failure(message=message)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=bad, tenant=tenant, ended_ms=crank.now_ms))
    return dispatch.execution_id


async def letters(selection: Selection, tenant: TenantId = TENANT, **where: Any) -> list[str]:
    page = await selection.dead_letters(tenant, DeadSelector(**where), None, MOST, most=MOST)
    assert page.next is None
    return [each.id for each in page.letters]


async def test_dead_letters_are_selected_by_each_condition(crank: Crank, selection: Selection) -> None:
    first = await died(crank)
    crank.now_ms += SECOND
    second = await died(crank, "Timeout after 3 s", spec={"target": Target("mail", "send")})
    foreign = await died(crank, tenant=OTHER)
    page = await selection.dead_letters(TENANT, DeadSelector(), None, MOST, most=MOST)
    by_id = {each.id: each for each in page.letters}
    assert set(by_id) == {first, second}
    assert by_id[second].message == "Timeout after 3 s"
    assert by_id[second].error_type == failure().type
    assert await letters(selection, OTHER) == [foreign]
    assert await letters(selection, pool="mail") == [second]
    assert await letters(selection, handler=HANDLER) == [first]
    assert await letters(selection, job_id=by_id[first].job_id) == [first]
    assert await letters(selection, error="TIMEOUT") == [second]
    assert await letters(selection, since_ms=by_id[second].died_ms) == [second]
    assert await letters(selection, until_ms=by_id[second].died_ms) == [first]
    assert await letters(selection, job_id="nothing") == []
    assert await letters(selection, pool="a\0b") == []


async def test_pages_of_dead_letters_examine_no_more_rows_than_their_limit(crank: Crank, selection: Selection) -> None:
    made = sorted([await died(crank), await died(crank), await died(crank)], reverse=True)
    first = await selection.dead_letters(TENANT, DeadSelector(pool="none"), None, 9, most=2)
    assert (first.letters, first.next) == ([], made[1])
    rest = await selection.dead_letters(TENANT, DeadSelector(), first.next, 9, most=2)
    assert ([each.id for each in rest.letters], rest.next) == ([made[2]], None)
    page = await selection.dead_letters(TENANT, DeadSelector(), None, 2, most=MOST)
    assert ([each.id for each in page.letters], page.next) == (made[:2], made[1])


async def test_runs_are_told_with_their_state_and_attempt(crank: Crank, selection: Selection) -> None:
    dead = await died(crank)
    foreign = await died(crank, tenant=OTHER)
    await crank.add(job())
    (running,) = (await crank.fire()).dispatches
    await crank.settle(report(running, Outcome.STARTED))
    unknown = ExecutionId("01900000-0000-8000-a000-ffffffffffff")
    found = await selection.run_ends(TENANT, [dead, foreign, running.execution_id, unknown])
    assert {(each.id, each.state, each.attempt) for each in found} == {
        (dead, State.DEAD, 1),
        (running.execution_id, State.RUNNING, 1),
    }
    assert await selection.run_ends(TENANT, []) == []
