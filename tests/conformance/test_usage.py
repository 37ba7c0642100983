"""The usage of tenants is counted with the batch that reports it: once, although reports and batches are repeated."""

import asyncio
from typing import Any

import pytest

from noonday.model.errors import StaleEpoch
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId, WorkerId
from noonday.model.job import Concurrency, JobSpec, Overlap
from noonday.model.message import Dispatch, Report
from noonday.model.recording import Checkpoint
from noonday.model.retention import Retention
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.usage import KEPT_DAYS, UsageTotals
from noonday.ports.executions import Executions
from noonday.ports.workload import Workload
from tests.support.crank import GENERATION, Crank
from tests.support.factories import DAY, NOW_MS, SECOND, TENANT, WORKER, failure, hello, job, report, spec

TODAY = NOW_MS // DAY
OTHER = TenantId("other")
AT_ONCE = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=0)
PLAIN = spec(retry_policy=AT_ONCE)
WATCHED = spec(retry_policy=AT_ONCE, overlap=Overlap.BUFFER_ALL)
KEYED = spec(retry_policy=AT_ONCE, concurrency=Concurrency("db", 1))
each_kind = pytest.mark.parametrize("kind", [PLAIN, WATCHED, KEYED], ids=["plain", "overlap", "key"])
ONE = UsageTotals(1, 1, 0, SECOND, 10)


async def fired(crank: Crank, of: JobSpec = PLAIN, tenant: TenantId = TENANT) -> Dispatch:
    await crank.add(job(of, tenant=tenant))
    return await crank.fire_one()


async def many_fired(crank: Crank, count: int, of: JobSpec = PLAIN) -> tuple[Dispatch, ...]:
    await crank.add(*[job(of) for _ in range(count)])
    return tuple((await crank.fire()).dispatches)


def ended(of: Dispatch, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> Report:
    """Report an end as a worker does: with the job, the tenant and the size of the payload."""
    return report(of, outcome, **{"job_id": of.job_id, "tenant": of.tenant, "payload_bytes": 10, **fields})


async def used(workload: Workload, tenant: TenantId = TENANT) -> UsageTotals:
    days = await workload.usage(tenant, TODAY, TODAY)
    return days[0][1] if days else UsageTotals()


@pytest.mark.slow
@pytest.mark.also_threaded
@each_kind
async def test_a_run_is_counted_for_its_tenant_on_the_day_of_its_end(
    crank: Crank, workload: Workload, kind: JobSpec
) -> None:
    settled = await crank.settle(ended(await fired(crank, kind)))
    assert settled.usage == {(TENANT, TODAY): ONE}
    assert await workload.usage(TENANT, TODAY, TODAY) == [(TODAY, ONE)]
    assert await workload.usage(OTHER, TODAY, TODAY) == []


async def test_batches_add_up(crank: Crank, workload: Workload) -> None:
    dispatches = await many_fired(crank, 30)
    await crank.settle(*map(ended, dispatches[:20]))
    await crank.settle(*map(ended, dispatches[20:]))
    assert await used(workload) == UsageTotals(30, 30, 0, 30 * SECOND, 300)


@each_kind
async def test_each_attempt_is_a_run(crank: Crank, workload: Workload, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    for outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        await crank.settle(ended(dispatch, outcome, failure=failure()))
        dispatch = await crank.fire_one()
    await crank.settle(ended(dispatch))
    assert await used(workload) == UsageTotals(3, 1, 2, 3 * SECOND, 30)


@each_kind
async def test_a_start_does_not_count_and_its_end_does(crank: Crank, workload: Workload, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    assert (await crank.settle(ended(dispatch, Outcome.STARTED))).usage == {}
    await crank.settle(ended(dispatch))
    assert await used(workload) == ONE


async def test_return_without_a_start_does_not_count(crank: Crank, workload: Workload) -> None:
    await crank.settle(ended(await fired(crank), Outcome.INTERRUPTED, started_ms=0))
    assert await used(workload) == UsageTotals()


@each_kind
@pytest.mark.parametrize("result", [None, b"42"], ids=["nothing", "a result"])
async def test_a_report_that_comes_again_in_a_later_batch_is_counted_once(
    crank: Crank, workload: Workload, kind: JobSpec, result: bytes | None
) -> None:
    reported = ended(await fired(crank, kind), result=result)
    await crank.settle(reported)
    assert (await crank.settle(reported)).usage == {}
    assert await used(workload) == ONE


@each_kind
@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
async def test_a_report_that_comes_twice_in_one_batch_is_counted_once(
    crank: Crank, workload: Workload, kind: JobSpec, outcome: Outcome
) -> None:
    reported = ended(await fired(crank, kind), outcome)
    await crank.settle(reported, reported)
    assert (await used(workload)).runs == 1


async def test_a_batch_in_which_old_and_new_successes_are_mixed_counts_the_new_ones(
    crank: Crank, workload: Workload
) -> None:
    plain, watched = await many_fired(crank, 6), await fired(crank, WATCHED)
    await crank.settle(*map(ended, plain[:3]))
    settled = await crank.settle(*map(ended, (*plain, watched)))
    assert settled.by_state == {"SUCCEEDED": 4}
    assert settled.usage == {(TENANT, TODAY): UsageTotals(4, 4, 0, 4 * SECOND, 40)}
    assert await used(workload) == UsageTotals(7, 7, 0, 7 * SECOND, 70)


@each_kind
@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
async def test_a_report_that_is_refused_does_not_count(
    crank: Crank, workload: Workload, kind: JobSpec, outcome: Outcome
) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(ended(dispatch, Outcome.STARTED))
    stale = ended(dispatch, outcome, dispatch=2)
    foreign = ended(dispatch, outcome, worker_id=WorkerId("w-2"))
    settled = await crank.settle(stale, foreign)
    assert settled.refused == (stale, foreign)
    assert await used(workload) == UsageTotals()


async def test_run_of_a_lost_worker_does_not_count_even_if_it_reports_later(
    crank: Crank, executions: Executions, workload: Workload
) -> None:
    dispatch = await fired(crank)
    await crank.settle(ended(dispatch, Outcome.STARTED), signs=[hello()])
    assert (await executions.lose_workers([WORKER], crank.now_ms)).usage == {}
    await crank.settle(ended(dispatch))
    assert await used(workload) == UsageTotals()


@each_kind
async def test_a_batch_that_is_applied_again_counts_once(
    crank: Crank, executions: Executions, workload: Workload, kind: JobSpec
) -> None:
    """A recorder that lost the answer applies a batch again, and so does its successor."""
    reported, place = ended(await fired(crank, kind)), Checkpoint(0, GENERATION, 1, 0)
    await executions.settle([reported], [], was=None, now=place, now_ms=NOW_MS)
    with pytest.raises(StaleEpoch):
        await executions.settle([reported], [], was=None, now=place, now_ms=NOW_MS)
    assert await used(workload) == ONE


async def test_several_recorders_count_for_the_same_tenants_at_once(
    crank: Crank, executions: Executions, workload: Workload
) -> None:
    await crank.add(*[job(PLAIN, tenant=tenant) for tenant in (TENANT, OTHER) for _ in range(24)])
    dispatches = (await crank.fire()).dispatches
    of = {tenant: [each for each in dispatches if each.tenant == tenant] for tenant in (TENANT, OTHER)}

    async def record(partition: int) -> None:
        place: Checkpoint | None = None
        for at in range(partition, 24, 4):
            both = [ended(of[TENANT][at]), ended(of[OTHER][at])]
            now = Checkpoint(partition, GENERATION, at + 1, 0)
            await executions.settle(both[:: (-1) ** partition], [], was=place, now=now, now_ms=NOW_MS)
            place = now

    await asyncio.gather(*map(record, range(4)))
    for tenant in (TENANT, OTHER):
        assert await used(workload, tenant) == UsageTotals(24, 24, 0, 24 * SECOND, 240)


async def test_run_is_counted_in_a_batch_with_heartbeats(crank: Crank, workload: Workload) -> None:
    await crank.settle(ended(await fired(crank)), signs=[hello()])
    assert await used(workload) == ONE


async def test_days_with_usage_are_listed_oldest_first(crank: Crank, workload: Workload) -> None:
    dispatches = await many_fired(crank, 4)
    for day, dispatch in zip((2, 0, 3, 1), dispatches, strict=True):
        await crank.settle(ended(dispatch, started_ms=NOW_MS + day * DAY, ended_ms=NOW_MS + day * DAY + SECOND))
    assert await workload.usage(TENANT, TODAY + 1, TODAY + 2) == [(TODAY + 1, ONE), (TODAY + 2, ONE)]


async def test_days_are_kept_for_the_retention(crank: Crank, executions: Executions, workload: Workload) -> None:
    first, second = await many_fired(crank, 2)
    await crank.settle(ended(first), ended(second, started_ms=NOW_MS + DAY, ended_ms=NOW_MS + DAY + SECOND))
    for_ever = Retention(*[10**15] * 8)
    await executions.prune(for_ever, NOW_MS + KEPT_DAYS * DAY, 1000)
    assert len(await workload.usage(TENANT, TODAY, TODAY + 1)) == 2
    assert await executions.prune(for_ever, NOW_MS + (KEPT_DAYS + 1) * DAY, 1000) == 1
    assert await workload.usage(TENANT, TODAY, TODAY + 1) == [(TODAY + 1, ONE)]
