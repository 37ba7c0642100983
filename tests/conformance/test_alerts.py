import asyncio
from typing import Any

import msgspec
import pytest

from noonday.model.alert import GIVEN_UP, Alert, AlertFilter, AlertKind, AlertState, Observation
from noonday.model.execution import GONE, Failure, Outcome
from noonday.model.ids import TenantId
from noonday.model.job import CatchUp, CatchUpPolicy, Job, Target
from noonday.model.message import Dispatch
from noonday.model.pool import NOTICES_POOL
from noonday.model.receipt import Receipt
from noonday.model.retry import Backoff, RetryPolicy
from noonday.ports.alerts import Alerts
from noonday.ports.executions import Executions
from noonday.ports.jobs import Jobs
from tests.support.crank import Crank
from tests.support.drivers import Store
from tests.support.factories import (
    HANDLER,
    HOUR,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    audit,
    every,
    failure,
    job,
    report,
    spec,
)

OTHER = TenantId("other")
EVERYTHING = AlertFilter()
TWICE = RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_delay_ms=1_000)
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def alerts(store: Store) -> Alerts:
    return store.alerts


def observation(of: Job | str = "", kind: AlertKind = AlertKind.FAILED, **fields: Any) -> Observation:
    about = of.id if isinstance(of, Job) else of
    given = {"tenant": TENANT, "about": about, "job_id": about, "message": "no such file", "at_ms": NOW_MS, **fields}
    return Observation(kind=kind, **given)


async def all_of(alerts: Alerts, where: AlertFilter = EVERYTHING, tenant: TenantId = TENANT) -> list[Alert]:
    return await alerts.list_alerts(tenant, where, None, 100)


async def the_one(alerts: Alerts) -> Alert:
    (alert,) = await all_of(alerts)
    return alert


async def counted(alerts: Alerts) -> list[tuple[str, str, int]]:
    return [(each.kind.value, each.job_id, each.count) for each in await alerts.events(100)]


async def acknowledge(alerts: Alerts, *names: str, at_ms: int = NOW_MS) -> int:
    return await alerts.acknowledge(TENANT, names, at_ms, audit("alert.acknowledge", at_ms))


async def fired(crank: Crank, policy: RetryPolicy = ONCE, pool: str = POOL) -> tuple[Job, Dispatch]:
    one = job(spec(retry_policy=policy, target=Target(pool, HANDLER)))
    await crank.add(one)
    return one, await crank.fire_one()


async def recover(alerts: Alerts, now_ms: int = NOW_MS + HOUR) -> int:
    mark, jobs = await alerts.recover("", 100, now_ms)
    assert mark is None
    return jobs


# Incidents


async def kinds(executions: Executions) -> list[str]:
    return [incident.kind for incident in await executions.incidents(100)]


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_first_failure_and_dead_letter_are_incidents_and_failures_between_are_not(
    crank: Crank, executions: Executions
) -> None:
    _, first = await fired(crank, msgspec.structs.replace(TWICE, max_attempts=3))
    await crank.settle(report(first, Outcome.FAILED, failure=failure("no such file")))
    assert await kinds(executions) == ["FAILED"]
    for expected in (["FAILED"], ["FAILED", "EXHAUSTED"]):
        again = await crank.fire_one(at_ms=crank.now_ms + MINUTE)
        await crank.settle(report(again, Outcome.FAILED, failure=failure("no such file"), ended_ms=crank.now_ms))
        assert await kinds(executions) == expected
    assert {incident.message for incident in await executions.incidents(9)} == {"OSError: no such file"}


async def test_a_snooze_is_no_incident_and_neither_is_a_success(crank: Crank, executions: Executions) -> None:
    _, first = await fired(crank)
    await crank.settle(report(first, Outcome.SNOOZED, snooze_ms=1_000))
    again = await crank.fire_one(at_ms=crank.now_ms + MINUTE)
    await crank.settle(report(again, Outcome.SUCCEEDED, ended_ms=crank.now_ms))
    assert await kinds(executions) == []


async def test_a_receiver_that_is_gone_is_one_incident(crank: Crank, executions: Executions) -> None:
    one, first = await fired(crank)
    await crank.settle(report(first, Outcome.FAILED, failure=Failure(GONE, "answered 410", retryable=False)))
    (incident,) = await executions.incidents(10)
    assert (incident.kind, incident.tenant, incident.job_id) == (GONE, TENANT, one.id)
    assert (incident.execution_id, incident.message) == (first.execution_id, "answered 410")
    assert await executions.incidents(0) == []


async def test_expired_execution_is_an_incident(crank: Crank, executions: Executions) -> None:
    one, first = await fired(crank)
    await crank.settle(report(first, Outcome.EXPIRED))
    (incident,) = await executions.incidents(9)
    assert (incident.kind, incident.job_id, incident.execution_id) == ("MISSED", one.id, first.execution_id)


async def test_a_time_that_is_given_up_is_an_incident(crank: Crank, executions: Executions) -> None:
    one = job(every(60, catch_up=CatchUp(policy=CatchUpPolicy.NONE)))
    await crank.add(one)
    await crank.fire(at_ms=NOW_MS + 10 * MINUTE + 30 * SECOND)
    (incident,) = await executions.incidents(9)
    assert (incident.kind, incident.tenant, incident.job_id) == (GIVEN_UP, TENANT, one.id)
    assert "catch-up NONE" in incident.message


async def test_notices_that_fail_are_no_incidents(crank: Crank, executions: Executions) -> None:
    _, first = await fired(crank, pool=NOTICES_POOL)
    await crank.settle(report(first, Outcome.FAILED, failure=failure()))
    assert await kinds(executions) == []


async def test_an_incident_is_taken_in_once_however_many_take_it(
    crank: Crank, executions: Executions, alerts: Alerts
) -> None:
    one, first = await fired(crank)
    await crank.settle(report(first, Outcome.FAILED, failure=failure()))
    (incident,) = await executions.incidents(9)
    seen = observation(one, AlertKind.EXHAUSTED, incident=incident.id, execution_id=first.execution_id)
    opened = await asyncio.gather(*(alerts.record([seen]) for _ in range(4)))
    assert sorted(opened) == [0, 0, 0, 1]
    assert (await the_one(alerts)).count == 1
    assert await counted(alerts) == [("EXHAUSTED", one.id, 1)]
    assert await executions.incidents(9) == []


# Alerts


async def test_an_alert_knows_its_job(crank: Crank, alerts: Alerts) -> None:
    one = job(spec(name="import", target=Target(POOL, HANDLER, endpoint="https://a.example:443")))
    await crank.add(one)
    assert await alerts.record([observation(one, execution_id="x")]) == 1
    alert = await the_one(alerts)
    assert (alert.kind, alert.about, alert.job_id, alert.job_name) == (AlertKind.FAILED, one.id, one.id, "import")
    assert (alert.pool, alert.endpoint, alert.execution_id) == (POOL, "https://a.example:443", "x")
    assert (alert.count, alert.first_ms, alert.last_ms, alert.status) == (1, NOW_MS, NOW_MS, AlertState.OPEN)
    (event,) = await alerts.events(9)
    assert (event.alert_id, event.job_name, event.pool) == (alert.id, "import", POOL)
    assert (event.message, event.at_ms, event.endpoint) == ("no such file", NOW_MS, "https://a.example:443")


async def test_more_of_the_same_only_count(alerts: Alerts) -> None:
    one = job()
    await alerts.record([observation(one), observation(one, at_ms=NOW_MS + 1)])
    assert await alerts.record([observation(one, at_ms=NOW_MS + 5, message="disk full", execution_id="y")]) == 0
    alert = await the_one(alerts)
    assert (alert.count, alert.first_ms, alert.last_ms) == (3, NOW_MS, NOW_MS + 5)
    assert (alert.message, alert.execution_id) == ("disk full", "y")
    assert await counted(alerts) == [("FAILED", one.id, 2)]


async def test_each_dead_letter_is_counted_by_an_alert(alerts: Alerts) -> None:
    one = job()
    await alerts.record([observation(one, AlertKind.EXHAUSTED, execution_id="a")])
    await alerts.record([observation(one, AlertKind.EXHAUSTED, execution_id=name) for name in ("b", "c")])
    assert [each.execution_id for each in await alerts.events(9)] == ["a", "b", "c"]
    assert {each.alert_id for each in await alerts.events(9)} == {(await the_one(alerts)).id}
    assert [each.execution_id for each in await alerts.events(2)] == ["a", "b"]


async def test_endpoint_that_is_disabled_again_raises_an_alert_again(alerts: Alerts) -> None:
    for at in range(2):
        await alerts.record([observation("https://a.example:443", AlertKind.DISABLED, job_id="", at_ms=NOW_MS + at)])
    assert (await the_one(alerts)).count == 2
    assert await counted(alerts) == [("DISABLED", "", 1)] * 2


async def test_kinds_jobs_and_tenants_have_alerts_of_their_own(alerts: Alerts) -> None:
    one, two = job(), job()
    seen = [observation(one), observation(one, AlertKind.SLOW), observation(two), observation(one, tenant=OTHER)]
    assert await alerts.record(seen) == 4
    assert len(await all_of(alerts)) == 3
    assert len(await all_of(alerts, tenant=OTHER)) == 1


async def test_an_endpoint_can_have_an_alert(alerts: Alerts) -> None:
    seen = observation("https://a.example:443", AlertKind.DISABLED, job_id="", endpoint="https://a.example:443")
    await alerts.record([seen])
    alert = await the_one(alerts)
    assert (alert.about, alert.job_id, alert.endpoint, alert.pool) == (seen.about, "", seen.about, "")
    assert await recover(alerts) == 0


async def test_an_acknowledged_alert_that_recurs_is_opened_anew(alerts: Alerts) -> None:
    one = job()
    await alerts.record([observation(one)])
    assert await acknowledge(alerts, (await the_one(alerts)).id) == 1
    assert await alerts.record([observation(one, at_ms=NOW_MS + 9)]) == 1
    newest, oldest = await all_of(alerts)
    assert (newest.status, newest.count, oldest.status) == (AlertState.OPEN, 1, AlertState.ACKNOWLEDGED)
    assert await counted(alerts) == [("FAILED", one.id, 1)] * 2


async def test_lasting_observation_counts_once_per_dedup_key(alerts: Alerts) -> None:
    one = job()
    early, later = (observation(one, AlertKind.MISSED, dedup_key=name) for name in ("001", "002"))
    for seen in (early, early, later, early, later):
        await alerts.record([seen])
    alert = await the_one(alerts)
    assert alert.count == 2
    await acknowledge(alerts, alert.id)
    assert await alerts.record([early, later]) == 0
    assert await alerts.record([observation(one, AlertKind.MISSED, dedup_key="003", at_ms=NOW_MS + 1)]) == 1


async def test_single_observation_counts_beside_a_lasting_one(alerts: Alerts) -> None:
    one = job()
    lasting = observation(one, AlertKind.MISSED, dedup_key="001")
    for seen in (lasting, observation(one, AlertKind.MISSED), lasting):
        await alerts.record([seen])
    assert (await the_one(alerts)).count == 2


# Recovery


async def test_an_alert_recovers_when_its_job_succeeds_later(crank: Crank, alerts: Alerts) -> None:
    one = job(every(60, name="import"))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await alerts.record([observation(one, at_ms=NOW_MS + 2), observation(one, AlertKind.EXHAUSTED, at_ms=NOW_MS + 2)])
    assert await recover(alerts) == 0
    await crank.settle(report(dispatch, Outcome.SUCCEEDED, ended_ms=NOW_MS + 1))
    assert await recover(alerts) == 0, "it had succeeded before it failed"
    again = await crank.fire_one(at_ms=NOW_MS + MINUTE)
    await crank.settle(report(again, Outcome.SUCCEEDED))
    assert await recover(alerts, NOW_MS + HOUR) == 1
    assert {(each.status, each.recovered_ms) for each in await all_of(alerts)} == {
        (AlertState.RECOVERED, NOW_MS + HOUR)
    }
    event = (await alerts.events(9))[-1]
    assert (event.kind, event.job_id, event.job_name) == (AlertKind.RECOVERED, one.id, "import")
    assert await recover(alerts) == 0
    assert len(await alerts.events(9)) == 3


async def test_execution_that_succeeds_in_the_end_has_recovered_even_if_its_workers_clock_is_wrong(
    crank: Crank, alerts: Alerts
) -> None:
    one, first = await fired(crank, TWICE)
    await alerts.record([observation(one, at_ms=NOW_MS + HOUR, execution_id=first.execution_id)])
    await crank.settle(report(first, Outcome.FAILED, failure=failure()))
    assert await recover(alerts) == 0
    again = await crank.fire_one(at_ms=crank.now_ms + MINUTE)
    await crank.settle(report(again, Outcome.SUCCEEDED, ended_ms=NOW_MS + 2 * MINUTE))
    assert await recover(alerts) == 1


async def test_an_acknowledged_alert_recovers_too_and_a_recovered_one_is_still_unread(
    crank: Crank, alerts: Alerts
) -> None:
    for acknowledged in (True, False):
        one, first = await fired(crank)
        await alerts.record([observation(one, execution_id=first.execution_id)])
        (alert,) = await all_of(alerts, AlertFilter(job_id=one.id))
        if acknowledged:
            await acknowledge(alerts, alert.id)
        await crank.settle(report(first, Outcome.SUCCEEDED))
        assert await recover(alerts) == 1
    assert await alerts.count_unread(TENANT, 10) == 1


async def test_a_receiver_that_wants_no_more_calls_does_not_recover(crank: Crank, alerts: Alerts) -> None:
    one, first = await fired(crank)
    await alerts.record([observation(one, AlertKind.STOPPED, execution_id=first.execution_id)])
    await crank.settle(report(first, Outcome.SUCCEEDED))
    assert await recover(alerts) == 0


async def test_recoveries_are_looked_for_page_by_page(crank: Crank, alerts: Alerts) -> None:
    ended = []
    for _ in range(3):
        one, first = await fired(crank)
        await alerts.record([observation(one, execution_id=first.execution_id)])
        await crank.settle(report(first, Outcome.SUCCEEDED))
        ended.append(one.id)
    mark, jobs = await alerts.recover("", 2, NOW_MS + HOUR)
    assert (mark is not None, jobs) == (True, 2)
    assert await alerts.recover(mark or "", 2, NOW_MS + HOUR) == (None, 1)


# Missing occurrences


async def test_rows_that_are_due_come_in_order_with_their_job(crank: Crank, alerts: Alerts) -> None:
    first, second = job(every(60)), job(now_ms=NOW_MS + SECOND)
    await crank.add(first, second)
    late = await alerts.late((0, ""), NOW_MS + MINUTE, 10)
    assert [(row.job_id, row.due_ms, row.execution_id) for row in late] == [
        (first.id, NOW_MS, ""),
        (second.id, NOW_MS + SECOND, ""),
    ]
    assert {(row.tenant, row.pool) for row in late} == {(TENANT, POOL)}
    assert await alerts.late((0, ""), NOW_MS + 1, 10) == late[:1]
    assert await alerts.late((late[0].due_ms, late[0].key), NOW_MS + MINUTE, 10) == late[1:]
    assert await alerts.late((0, ""), NOW_MS + MINUTE, 1) == late[:1]


async def test_a_retry_that_is_due_is_of_its_job(crank: Crank, alerts: Alerts) -> None:
    one, first = await fired(crank, TWICE)
    await crank.settle(report(first, Outcome.FAILED, failure=failure()))
    (row,) = await alerts.late((0, ""), NOW_MS + HOUR, 10)
    assert (row.job_id, row.execution_id, row.key) == (one.id, first.execution_id, first.execution_id)


async def test_dispatched_execution_that_has_not_begun_is_stranded(crank: Crank, alerts: Alerts) -> None:
    one, first = await fired(crank)
    _, begun = await fired(crank)
    await crank.settle(report(begun, Outcome.STARTED))
    assert await alerts.stranded("", NOW_MS, 10) == (None, [])
    mark, found = await alerts.stranded("", NOW_MS + 1, 10)
    assert (mark, [(row.job_id, row.execution_id) for row in found]) == (None, [(one.id, first.execution_id)])
    mark, found = await alerts.stranded("", NOW_MS + 1, 1)
    assert (mark, len(found)) == (one.id, 1)
    assert (await alerts.stranded(one.id, NOW_MS + 1, 10))[1] == []


async def test_oldest_run_of_a_job_comes_with_its_usual_duration(crank: Crank, alerts: Alerts) -> None:
    one = job(every(60))
    await crank.add(one)
    for turn, took_ms in enumerate((1_000, 5_000, 3_000)):
        at_ms = NOW_MS + turn * MINUTE
        done = await crank.fire_one(at_ms=at_ms)
        await crank.settle(report(done, Outcome.SUCCEEDED, ended_ms=at_ms + took_ms))
    runs = []
    for turn in (3, 4):
        runs.append(await crank.fire_one(at_ms=NOW_MS + turn * MINUTE))
        await crank.settle(report(runs[-1], Outcome.STARTED))
    (slow,) = await alerts.slow("", crank.now_ms + 1, 10)
    assert (slow.job_id, slow.execution_id) == (one.id, runs[0].execution_id)
    assert (slow.started_ms, slow.successes, slow.longest_ms) == (NOW_MS + 3 * MINUTE, 3, 5_000)
    assert await alerts.slow("", NOW_MS + 3 * MINUTE, 10) == []
    assert await alerts.slow(one.id, crank.now_ms + 1, 10) == []


# The inbox


async def test_alerts_are_listed_newest_first_and_filtered(alerts: Alerts) -> None:
    one, two = job(), job()
    for at, seen in enumerate((observation(one), observation(two), observation(one, AlertKind.SLOW))):
        await alerts.record([msgspec.structs.replace(seen, at_ms=NOW_MS + at)])
    slow, of_two, failed = await all_of(alerts)
    assert [each.kind.value for each in (slow, of_two, failed)] == ["SLOW", "FAILED", "FAILED"]
    assert await all_of(alerts, AlertFilter(kind=AlertKind.FAILED)) == [of_two, failed]
    assert await all_of(alerts, AlertFilter(job_id=one.id)) == [slow, failed]
    assert await all_of(alerts, AlertFilter(until_ms=NOW_MS + 1)) == [of_two, failed]
    assert await alerts.list_alerts(TENANT, EVERYTHING, slow.id, 1) == [of_two]
    assert await alerts.list_alerts(TENANT, AlertFilter(job_id=one.id), slow.id, 9) == [failed]
    await acknowledge(alerts, of_two.id)
    assert await all_of(alerts, AlertFilter(unread=True)) == [slow, failed]
    assert [each.id for each in await all_of(alerts, AlertFilter(unread=False))] == [of_two.id]
    assert await all_of(alerts, AlertFilter(unread=True, job_id=two.id)) == []
    assert await alerts.count_unread(TENANT, 10) == 2
    assert await alerts.count_unread(TENANT, 1) == 1


async def test_an_alert_is_acknowledged_once_and_by_its_tenant(alerts: Alerts, jobs: Jobs) -> None:
    await alerts.record([observation(job())])
    alert = await the_one(alerts)
    stranger = audit("alert.acknowledge", tenant=OTHER)
    assert await alerts.acknowledge(OTHER, [alert.id], NOW_MS, stranger) == 0
    receipt = Receipt(TENANT, "key", "fingerprint", NOW_MS, 200, b"answer")
    entry = audit("alert.acknowledge")
    assert await alerts.acknowledge(TENANT, [alert.id], NOW_MS + 1, entry, receipt) == 1
    assert await acknowledge(alerts, alert.id, at_ms=NOW_MS + 2) == 0
    found = await alerts.find_alert(TENANT, alert.id)
    assert found == msgspec.structs.replace(alert, acknowledged_ms=NOW_MS + 1, acknowledged_by="ann")
    assert await jobs.find_receipt(TENANT, "key") == receipt
    assert await alerts.find_alert(OTHER, alert.id) is None


async def test_old_alerts_go_step_by_step(alerts: Alerts) -> None:
    for at in range(3):
        await alerts.record([observation(job(), at_ms=NOW_MS + at)])
    assert await alerts.prune(NOW_MS + 2, 1) == 1
    assert await alerts.prune(NOW_MS + 2, 10) == 1
    assert [each.last_ms for each in await all_of(alerts)] == [NOW_MS + 2]
