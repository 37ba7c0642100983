"""The jobs that handlers enqueue: stored with the settlement of their dispatch, and created once."""

import asyncio

import pytest

from noonday.model.change import Change, NewJob
from noonday.model.child_job import WaitingChildren
from noonday.model.errors import Conflict
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.job import Job
from noonday.model.message import Dispatch
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.snapshot import Snapshot
from noonday.ports.child_jobs import ChildJobs
from noonday.ports.queries import QueryStore
from tests.support.crank import Crank, first_fire
from tests.support.factories import NOW_MS, SECOND, TENANT, audit, failure, job, report, spec

SEALED = b"\x00sealed\xff"
AT_ONCE = spec(retry_policy=RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=0))


async def fired(crank: Crank, tenant: TenantId = TENANT) -> Dispatch:
    await crank.add(job(AT_ONCE, tenant=tenant))
    return await crank.fire_one()


def unchanged(before: Snapshot, new: Job) -> Change:
    return Change()


def new(of: Job) -> NewJob:
    return NewJob(of, first_fire(of, NOW_MS))


async def test_a_success_stores_its_child_jobs_with_its_settlement(crank: Crank, child_jobs: ChildJobs) -> None:
    of = await fired(crank)
    settled = await crank.settle(report(of, children=SEALED, children_count=3))
    assert (settled.by_state, settled.with_children) == ({"SUCCEEDED": 1}, 1)
    assert await child_jobs.tenants(None, 10) == [TENANT]
    assert await child_jobs.waiting(TENANT, 10) == [
        WaitingChildren(TENANT, of.execution_id, 1, of.job_id, SEALED),
    ]


async def test_a_snooze_stores_its_child_jobs_and_those_of_the_next_dispatch_are_stored_beside_them(
    crank: Crank, child_jobs: ChildJobs
) -> None:
    of = await fired(crank)
    await crank.settle(report(of, Outcome.SNOOZED, snooze_ms=SECOND, children=b"first"))
    again = await crank.fire_one(at_ms=crank.now_ms + 2 * SECOND)
    await crank.settle(report(again, children=b"second"))
    assert [(each.dispatch, each.children) for each in await child_jobs.waiting(TENANT, 10)] == [
        (1, b"first"),
        (2, b"second"),
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED])
async def test_no_other_end_stores_child_jobs(crank: Crank, child_jobs: ChildJobs, outcome: Outcome) -> None:
    of = await fired(crank)
    settled = await crank.settle(report(of, outcome, failure=failure(), children=SEALED))
    assert settled.with_children == 0
    assert await child_jobs.tenants(None, 10) == []


async def test_a_refused_report_stores_no_child_jobs(crank: Crank, child_jobs: ChildJobs) -> None:
    of = await fired(crank)
    await crank.settle(report(of, children=b"true"))
    settled = await crank.settle(report(of, worker_id="w-9", children=b"wrong"))
    assert len(settled.refused) == 1
    await crank.settle(report(of, children=b"late"))
    assert [each.children for each in await child_jobs.waiting(TENANT, 10)] == [b"true"]


async def test_successes_with_and_without_child_jobs_settle_in_one_batch(crank: Crank, child_jobs: ChildJobs) -> None:
    await crank.add(*(job(AT_ONCE) for _ in range(4)))
    dispatches = (await crank.fire()).dispatches
    reports = [report(of, children=SEALED if at % 2 else None) for at, of in enumerate(dispatches)]
    assert (await crank.settle(*reports)).by_state == {"SUCCEEDED": 4}
    assert {each.execution_id for each in await child_jobs.waiting(TENANT, 10)} == {
        of.execution_id for at, of in enumerate(dispatches) if at % 2
    }


async def test_child_jobs_count_as_waiting_jobs_before_and_after_they_are_created(
    crank: Crank, child_jobs: ChildJobs, query_store: QueryStore
) -> None:
    for _ in range(2):
        await crank.settle(report(await fired(crank), children=SEALED, children_count=3))
    assert [await query_store.jobs_waiting(TENANT, most) for most in (1, 4, 10)] == [1, 4, 6]
    waiting, _ = await child_jobs.waiting(TENANT, 10)
    await child_jobs.create(waiting, [new(job()) for _ in range(3)], upsert=unchanged, audit=None)
    assert await query_store.jobs_waiting(TENANT, 10) == 6
    assert await query_store.jobs_waiting(TenantId("other"), 10) == 0


async def test_child_jobs_are_created_once(crank: Crank, child_jobs: ChildJobs, query_store: QueryStore) -> None:
    of = await fired(crank)
    await crank.settle(report(of, children=SEALED))
    (waiting,) = await child_jobs.waiting(TENANT, 10)
    child = job()
    assert await child_jobs.create(waiting, [new(child)], upsert=unchanged, audit=audit(target=child.id)) == []
    assert await child_jobs.waiting(TENANT, 10) == []
    assert await child_jobs.create(waiting, [new(job())], upsert=unchanged, audit=None) is None
    assert {entry.key for entry in await crank.due()} == {child.id}
    assert await query_store.jobs_waiting(TENANT, 10) == 1


async def test_one_of_several_processes_creates_the_same_child_jobs(crank: Crank, child_jobs: ChildJobs) -> None:
    of = await fired(crank)
    await crank.settle(report(of, children=SEALED))
    (waiting,) = await child_jobs.waiting(TENANT, 10)
    child = job()
    answers = await asyncio.gather(
        *(child_jobs.create(waiting, [new(child)], upsert=unchanged, audit=None) for _ in range(4))
    )
    assert answers.count([]) == 1
    assert answers.count(None) == 3
    assert {entry.key for entry in await crank.due()} == {child.id}


async def test_a_child_job_that_exists_is_not_created_again(crank: Crank, child_jobs: ChildJobs) -> None:
    of = await fired(crank)
    await crank.settle(report(of, children=SEALED))
    (waiting,) = await child_jobs.waiting(TENANT, 10)
    present, missing = job(), job()
    await crank.add(present)
    assert await child_jobs.create(waiting, [new(present), new(missing)], upsert=unchanged, audit=None) == []
    assert {entry.key for entry in await crank.due()} == {present.id, missing.id}


async def test_a_child_job_with_a_taken_unique_key_changes_the_job_that_has_it(
    crank: Crank, child_jobs: ChildJobs
) -> None:
    of = await fired(crank)
    await crank.settle(report(of, children=SEALED))
    (waiting,) = await child_jobs.waiting(TENANT, 10)
    owner, wanted, other = job(spec(unique_key="k")), job(spec(unique_key="k")), job()
    await crank.add(owner)
    changes = await child_jobs.create(waiting, [new(wanted), new(other)], upsert=unchanged, audit=None)
    assert changes is not None
    assert [change.after.job.id for change in changes] == [owner.id]
    assert {entry.key for entry in await crank.due()} == {owner.id, other.id}


async def test_child_jobs_wait_on_if_their_creation_is_rolled_back(crank: Crank, child_jobs: ChildJobs) -> None:
    of = await fired(crank)
    await crank.settle(report(of, children=SEALED))
    (waiting,) = await child_jobs.waiting(TENANT, 10)
    await crank.add(job(spec(unique_key="k")))

    def refuse(before: Snapshot, new: Job) -> Change:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await child_jobs.create(waiting, [new(job(spec(unique_key="k")))], upsert=refuse, audit=None)
    assert await child_jobs.waiting(TENANT, 10) == [waiting]


async def test_tenants_are_listed_in_order_and_each_has_its_own_child_jobs(crank: Crank, child_jobs: ChildJobs) -> None:
    tenants = [TenantId(name) for name in ("b", "A", "c", "a")]
    for tenant in tenants:
        for _ in range(2):
            await crank.settle(report(await fired(crank, tenant), children=tenant.encode()))
    assert await child_jobs.tenants(None, 3) == ["A", "a", "b"]
    assert await child_jobs.tenants(TenantId("b"), 3) == ["c"]
    assert await child_jobs.tenants(TenantId("c"), 3) == []
    assert [each.children for each in await child_jobs.waiting(TenantId("a"), 10)] == [b"a", b"a"]
    assert len(await child_jobs.waiting(TenantId("a"), 1)) == 1
