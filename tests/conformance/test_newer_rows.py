"""Rows of a newer version: fields and values that this version does not know."""

import json
from typing import Any

import msgspec
import pytest

from noonday.model.batch import FireRequest
from noonday.model.change import Change
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Outcome
from noonday.model.firing import plan_error
from noonday.model.job import Concurrency, Job, JobState, Overlap
from noonday.model.retry import RetryPolicy
from noonday.model.snapshot import Snapshot
from noonday.model.view import PoolSettings, TenantSettings
from tests.support.crank import Crank
from tests.support.drivers import execute, read_value
from tests.support.factories import MINUTE, NOW_MS, POOL, TENANT, audit, every, failure, job, report, spec


async def stored_spec(crank: Crank, of: Job) -> dict[str, Any]:
    text = await read_value(crank.store, f"SELECT spec FROM jobs WHERE id = '{of.id}'")
    found: dict[str, Any] = json.loads(text)
    return found


async def rewrite(crank: Crank, of: Job, **fields: Any) -> None:
    """Store a job as a newer version would have."""
    text = json.dumps(await stored_spec(crank, of) | fields)
    await execute(crank.store, f"UPDATE jobs SET spec = '{text}' WHERE id = '{of.id}'")


async def test_unknown_fields_of_a_job_are_passed_over(crank: Crank) -> None:
    newer, usual = job(every(60)), job(every(60))
    await crank.add(newer, usual)
    target = {"pool": POOL, "handler": "load", "region": "eu"}
    await rewrite(crank, newer, sampling={"rate": 1}, target=target)
    fired = await crank.fire(at_ms=NOW_MS + MINUTE)
    assert {dispatch.job_id for dispatch in fired.dispatches} == {newer.id, usual.id}
    row = await crank.store.query_store.find_job(TENANT, newer.id)
    assert row is not None
    assert row.job.spec == newer.spec


async def test_edit_that_is_not_about_the_spec_keeps_unknown_fields(crank: Crank) -> None:
    newer = job(every(60))
    await crank.add(newer)
    await rewrite(crank, newer, sampling={"rate": 1})

    def pause(before: Snapshot) -> Change:
        return Change(job=msgspec.structs.replace(before.job, state=JobState.PAUSED, updated_ms=NOW_MS + 1))

    await crank.change(newer, pause)
    assert (await stored_spec(crank, newer))["sampling"] == {"rate": 1}
    row = await crank.store.query_store.find_job(TENANT, newer.id)
    assert row is not None
    assert row.job.state is JobState.PAUSED


async def test_unreadable_job_is_answered_with_its_flaw(crank: Crank) -> None:
    bad, usual = job(every(60)), job(every(60))
    await crank.add(bad, usual)
    await rewrite(crank, bad, overlap="NEWEST_WINS")
    entries = await crank.store.firing.walk(range(256), None, 2**60, 10)
    plans = await crank.store.firing.plans(entries)
    assert plans[usual.id, 1].flaw is None
    assert "NEWEST_WINS" in (plans[bad.id, 1].flaw or "")


@pytest.mark.parametrize("fields", [{"overlap": "NEWEST_WINS"}, {"retryPolicy": {"backoff": "RANDOM"}}])
async def test_unreadable_recurring_job_keeps_its_next_time(crank: Crank, fields: dict[str, Any]) -> None:
    bad = job(every(60, overlap=Overlap.SKIP))
    await crank.add(bad)
    await rewrite(crank, bad, **fields)
    at_ms = NOW_MS + 3 * MINUTE
    (entry,) = await crank.timeline()
    planned = (await crank.store.firing.plans([entry]))[bad.id, 1]
    plan = plan_error(planned.job, entry.nominal_ms, at_ms, "unreadable job")
    await crank.store.firing.fire(crank.owner, [FireRequest(entry, plan, planned.runs_left)], at_ms)
    (following,) = await crank.timeline()
    assert following.nominal_ms == at_ms + MINUTE
    (decision,) = await crank.store.query_store.decisions_between(bad.id, 0, 2**60, 10)
    assert (decision.outcome, decision.count) == ("ERROR", 4)


async def test_job_without_a_readable_schedule_has_no_next_time(crank: Crank) -> None:
    bad = job(every(60))
    await crank.add(bad)
    await rewrite(crank, bad, type="LUNAR")
    (entry,) = await crank.timeline()
    planned = (await crank.store.firing.plans([entry]))[bad.id, 1]
    assert plan_error(planned.job, entry.nominal_ms, entry.due_ms, "unreadable job").next_ms is None


async def test_one_shot_with_an_unknown_overlap_can_be_given_up(crank: Crank) -> None:
    bad = job(spec(concurrency=Concurrency("k", 1)))
    await crank.add(bad)
    await rewrite(crank, bad, overlap="NEWEST_WINS")
    (entry,) = await crank.timeline()
    with pytest.raises(Exception, match="NEWEST_WINS") as raised:
        await crank.store.firing.fire(crank.owner, [FireRequest(entry)], NOW_MS)
    assert not isinstance(raised.value, StoreUnavailable)
    plan = plan_error(bad, entry.nominal_ms, NOW_MS, "unreadable job")
    await crank.store.firing.fire(crank.owner, [FireRequest(entry, plan)], NOW_MS)
    assert await crank.timeline() == []


async def test_unknown_fields_of_a_retry_policy_are_passed_over(crank: Crank) -> None:
    newer = job(every(60, retry_policy=RetryPolicy(max_attempts=3)))
    await crank.add(newer)
    await rewrite(crank, newer, retryPolicy={"maxAttempts": 3, "jitter": "NONE"})
    dispatch = await crank.fire_one(at_ms=NOW_MS + MINUTE)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    assert (await crank.look(dispatch)).attempt == 2


async def test_unknown_fields_of_settings_are_passed_over(crank: Crank) -> None:
    settings_store, workload = crank.store.settings_store, crank.store.workload
    await settings_store.put_tenant(TENANT, TenantSettings(weight=3), audit())
    await settings_store.put_pool(POOL, PoolSettings(max_running=2), audit())
    await execute(crank.store, """UPDATE tenants SET settings = '{"weight": 3, "region": "eu"}'""")
    await execute(crank.store, """UPDATE pools SET settings = '{"maxRunning": 2, "region": "eu"}'""")
    found = await settings_store.find_tenant(TENANT)
    assert found is not None
    assert found[0] == TenantSettings(weight=3)
    assert [settings for _, settings, _ in await settings_store.tenants_after(0)] == [TenantSettings(weight=3)]
    (pool,) = await workload.list_pools(NOW_MS, POOL)
    assert pool.settings == PoolSettings(max_running=2)
