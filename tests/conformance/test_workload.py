"""Pools, workers, totals, and entries that are due before a mark."""

import pytest

from noonday.model.change import Change
from noonday.model.execution import Outcome
from noonday.model.firing import Fire
from noonday.model.ids import TenantId, WorkerId
from noonday.model.job import Concurrency, Target
from noonday.model.message import Bye, HandlerInfo
from noonday.model.retry import RetryPolicy
from noonday.model.rows import EntriesAhead
from noonday.ports.workload import Workload
from tests.support.crank import Crank
from tests.support.factories import (
    HANDLER,
    HOUR,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    WORKER,
    every,
    failure,
    hello,
    instant,
    job,
    report,
    spec,
)

OTHER = TenantId("other")
NO_RETRY = RetryPolicy(max_attempts=1)


# Pools and workers


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_pool_shows_its_handlers_workers_and_work(crank: Crank, workload: Workload) -> None:
    load, copy = HandlerInfo(POOL, HANDLER), HandlerInfo(POOL, "copy")
    await crank.settle(
        signs=[
            hello("w-1", load, copy, concurrency={POOL: 4}),
            hello("w-2", load, concurrency={POOL: 2, "mail": 1}),
            hello("w-3", load, concurrency={POOL: 8}),
            Bye(WorkerId("w-3"), NOW_MS),
        ]
    )
    await crank.add(job(), job(), job())
    running, _, ended = (await crank.fire()).dispatches
    await crank.settle(report(running, Outcome.STARTED), report(ended))
    await crank.add(job(), job(now_ms=NOW_MS + 1))
    etl, mail = sorted(await workload.list_pools(NOW_MS), key=lambda pool: pool.name)
    assert (etl.name, etl.workers, etl.capacity) == (POOL, 2, 6)
    assert (etl.queued, etl.running, etl.due) == (1, 1, 1)
    assert sorted(etl.handlers, key=lambda pair: pair[0].name) == [(copy, 1), (load, 2)]
    assert (mail.workers, mail.capacity, mail.queued, mail.running, mail.due) == (1, 1, 0, 0, 0)
    assert await workload.list_pools(NOW_MS, "mail") == [mail]
    assert await workload.list_pools(NOW_MS, POOL, TENANT) == [etl]
    (of_other,) = await workload.list_pools(NOW_MS, POOL, OTHER)
    assert (of_other.queued, of_other.running, of_other.due, of_other.capacity) == (0, 0, 0, 6)
    assert await workload.list_pools(NOW_MS, "unknown") == []


async def test_a_worker_shows_what_it_runs(crank: Crank, workload: Workload) -> None:
    await crank.add(job(), job())
    mine, _ = (await crank.fire()).dispatches
    await crank.settle(report(mine, Outcome.STARTED), signs=[hello(WORKER), hello("w-2", at_ms=NOW_MS + 1)])
    newest, oldest = await workload.list_workers()
    assert (newest.id, newest.running) == ("w-2", ())
    assert [(each.id, each.started_ms) for each in oldest.running] == [(mine.execution_id, NOW_MS)]


# Totals


async def test_the_totals_add_up(crank: Crank, workload: Workload) -> None:
    empty = {"running": 0, "queued": 0, "due": 0, "due_looked_at": 0, "oldest_due_ms": 0, "dead": 0, "workers": 0}
    assert await workload.counts(NOW_MS) == empty
    assert await workload.counts(NOW_MS, TENANT) == empty
    await crank.add(job(spec(retry_policy=NO_RETRY)))
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    await crank.add(job(), job())
    running, _ = (await crank.fire()).dispatches
    await crank.settle(report(running, Outcome.STARTED), signs=[hello("w-1"), hello("w-2"), Bye(WorkerId("w-2"), 0)])
    await crank.add(job(now_ms=NOW_MS - 5), job(), job(now_ms=NOW_MS + HOUR))
    expected = {
        "running": 1,
        "queued": 1,
        "due": 2,
        "due_looked_at": 2,
        "oldest_due_ms": NOW_MS - 5,
        "dead": 1,
        "workers": 1,
    }
    assert await workload.counts(NOW_MS) == expected
    assert await workload.counts(NOW_MS, TENANT) == expected
    assert await workload.counts(NOW_MS, OTHER) == {**empty, "due_looked_at": 2, "workers": 1}


# Entries due before a mark


async def test_entries_due_before_a_mark_are_counted_by_tenant_and_by_pool(crank: Crank, workload: Workload) -> None:
    mail = spec(target=Target("mail", HANDLER))
    jobs = [job(), job(), job(mail), job(tenant=OTHER), job(mail, tenant=OTHER), job(tenant=TenantId("third"))]
    await crank.add(*jobs, job(spec(run_at=instant(NOW_MS + SECOND))))
    mark = (NOW_MS + SECOND, jobs[0].id)
    assert await workload.due_before(mark, 100) == EntriesAhead(6, 3, False)
    assert await workload.due_before(mark, 100, tenant=TENANT) == EntriesAhead(3, 1, False)
    assert await workload.due_before(mark, 100, tenant=TENANT, pool=POOL) == EntriesAhead(2, 1, False)
    assert await workload.due_before(mark, 100, pool="mail") == EntriesAhead(2, 2, False)
    assert await workload.due_before(mark, 100, pool="no such pool") == EntriesAhead(0, 0, False)


async def test_entries_due_at_the_same_instant_are_ordered_by_key(crank: Crank, workload: Workload) -> None:
    jobs = [job() for _ in range(4)]
    await crank.add(*jobs, job(tenant=OTHER))
    for number, each in enumerate(jobs):
        assert (await workload.due_before((NOW_MS, each.id), 100)).entries == number
        assert (await workload.due_before((NOW_MS, each.id), 100, tenant=TENANT)).entries == number


async def test_entry_without_a_time_is_not_counted(crank: Crank, workload: Workload) -> None:
    paused = job(every())
    await crank.add(paused)
    await crank.change(paused, Change(fire=Fire(NOW_MS, None)))
    for tenant in (None, TENANT):
        assert await workload.due_before((2**50, paused.id), 100, tenant=tenant) == EntriesAhead(0, 0, False)


@pytest.mark.parametrize("tenant", [None, TENANT], ids=["of all", "of one"])
async def test_count_examines_no_more_rows_than_its_limit(
    crank: Crank, workload: Workload, tenant: TenantId | None
) -> None:
    jobs = [job() for _ in range(6)]
    await crank.add(*jobs)
    after = (NOW_MS + 1, jobs[0].id)
    assert await workload.due_before(after, 4, tenant=tenant) == EntriesAhead(4, 1, True)
    assert await workload.due_before(after, 4, tenant=tenant, pool="mail") == EntriesAhead(0, 0, True)
    assert await workload.due_before(after, 7, tenant=tenant) == EntriesAhead(6, 1, False)


async def test_fires_and_retries_of_a_shared_key_are_counted(crank: Crank, workload: Workload) -> None:
    shared = spec(concurrency=Concurrency("k", 9), retry_policy=RetryPolicy(initial_delay_ms=1_000))
    retried = job(shared)
    await crank.add(retried)
    await crank.settle(report(await crank.fire_one(), Outcome.FAILED, failure=failure()))
    await crank.add(job(shared), job(spec(concurrency=Concurrency("l", 9))), job(), job(shared, tenant=OTHER))
    mark = (NOW_MS + MINUTE, retried.id)
    assert len(await crank.timeline()) == 5
    assert (await workload.due_before_with_key(mark, 100, TENANT, "k")).entries == 2
    assert await workload.due_before_with_key(mark, 100, TENANT, "l") == EntriesAhead(1, 1, False)
    assert await workload.due_before_with_key(mark, 100, OTHER, "k") == EntriesAhead(1, 1, False)
    assert await workload.due_before_with_key(mark, 100, TENANT, "no such key") == EntriesAhead(0, 0, False)
    assert (await workload.due_before_with_key(mark, 2, TENANT, "k")).is_least
