from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from noonday.alerts.dead_mans_switch import LATE_PAGE, MOST_LATE, DeadMansSwitch, is_slow
from noonday.alerts.lateness import EXPLAINED, Lateness
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.drivers.sql.alerts import SqlAlerts
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.sessions import SqliteSessions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake.blockers import BlockerFinder
from noonday.model.alert import Alert, AlertFilter, AlertKind, AlertState, Observation, SlowRun
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.job import Concurrency, Job, Target
from noonday.model.pause import Pause
from noonday.model.pool import NOTICES_POOL
from noonday.model.rate import TokenRequest
from noonday.model.tenancy import rate_of
from noonday.model.view import PoolSettings, TenantSettings
from tests.support.clock import ManualClock
from tests.support.crank import Crank
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
    hello,
    job,
    report,
    spec,
)

GRACE = MINUTE


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


@pytest.fixture
async def crank(store: SqliteStore) -> Crank:
    crank = Crank(store)
    await crank.own()
    return crank


@pytest.fixture
def switch(store: SqliteStore) -> DeadMansSwitch:
    return watching(store)


def watching(store: SqliteStore, tokens: MemoryTokens | None = None) -> DeadMansSwitch:
    blockers = BlockerFinder(
        store.query_store, store.settings_store, store.workload, tokens or MemoryTokens(), ManualClock()
    )
    lateness = Lateness(store.query_store, store.settings_store, blockers)
    return DeadMansSwitch(store.alerts, lateness, late_after_ms=GRACE, slow_after_ms=MINUTE)


class FailingAlerts(SqlAlerts):
    """Stores nothing while it is unavailable."""

    is_unavailable = True

    async def record(self, observations: Sequence[Observation]) -> int:
        if self.is_unavailable:
            raise StoreUnavailable("unavailable")
        return await super().record(observations)


async def alerts(store: SqliteStore, tenant: TenantId = TENANT) -> list[Alert]:
    return await store.alerts.list_alerts(tenant, AlertFilter(), None, 1_000)


async def of_kind(store: SqliteStore, kind: AlertKind) -> list[str]:
    return [alert.job_id for alert in await alerts(store) if alert.kind is kind]


# Missed


async def test_entry_overdue_beyond_the_grace_period_is_missed_once(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    one = job()
    await crank.add(one)
    await switch.run_once(NOW_MS + GRACE)
    assert await alerts(store) == []
    for later in (1, 5_000, 10_000):
        await switch.run_once(NOW_MS + GRACE + later)
    (alert,) = await alerts(store)
    assert (alert.kind, alert.job_id, alert.count) == (AlertKind.MISSED, one.id, 1)
    assert alert.message == "due since 2030-01-01T00:00:00.000Z and not started: pool 'etl' has no workers"


async def test_dispatched_execution_that_no_worker_started_is_missed(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    one = job()
    await crank.add(one)
    dispatch = await crank.fire_one()
    await switch.run_once(NOW_MS + GRACE + 1)
    (alert,) = await alerts(store)
    assert (alert.kind, alert.job_id, alert.execution_id) == (AlertKind.MISSED, one.id, dispatch.execution_id)
    assert alert.message.endswith("and not started: no worker of pool 'etl' has started it")


async def test_started_execution_is_not_missed(switch: DeadMansSwitch, crank: Crank, store: SqliteStore) -> None:
    await crank.add(job())
    await crank.settle(report(await crank.fire_one(), Outcome.STARTED))
    await switch.run_once(NOW_MS + GRACE + 1)
    assert await alerts(store) == []


@pytest.mark.parametrize(("kind", "name"), [("TENANT", TENANT), ("POOL", POOL), ("ALL", "")])
async def test_paused_entry_is_not_missed(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore, kind: str, name: str
) -> None:
    await crank.add(job())
    await store.settings_store.add_pause(Pause(kind, name, NOW_MS, "ann"), audit("pause"))
    await switch.run_once(NOW_MS + HOUR)
    assert await alerts(store) == []
    await store.settings_store.remove_pause(kind, name, audit("resume"))
    await switch.run_once(NOW_MS + HOUR)
    assert len(await alerts(store)) == 1


async def test_pause_of_another_pool_hides_nothing(switch: DeadMansSwitch, crank: Crank, store: SqliteStore) -> None:
    await crank.add(job())
    await store.settings_store.add_pause(Pause("POOL", "other", NOW_MS, "ann"), audit("pause"))
    await switch.run_once(NOW_MS + HOUR)
    assert len(await alerts(store)) == 1


async def test_entry_blocked_by_a_cap_is_not_missed(switch: DeadMansSwitch, crank: Crank, store: SqliteStore) -> None:
    await store.settings_store.put_pool(POOL, PoolSettings(max_running=1), audit("pool.put"))
    await crank.add(job())
    await crank.settle(report(await crank.fire_one(), Outcome.STARTED))
    waits = job()
    await crank.add(waits)
    await crank.fire()
    await switch.run_once(NOW_MS + HOUR)
    assert await of_kind(store, AlertKind.MISSED) == []


async def test_entry_blocked_by_its_concurrency_key_is_not_missed(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    await crank.settle(signs=[hello()])
    key = Concurrency(key="one at a time", limit=1)
    await crank.add(job(spec(concurrency=key)))
    await crank.settle(report(await crank.fire_one(), Outcome.STARTED))
    await crank.add(job(spec(concurrency=key)))
    await crank.fire()
    await switch.run_once(NOW_MS + HOUR)
    assert await of_kind(store, AlertKind.MISSED) == []


async def test_entry_blocked_by_the_rate_of_its_tenant_is_not_missed(crank: Crank, store: SqliteStore) -> None:
    await crank.settle(signs=[hello()])
    settings, tokens = TenantSettings(rate_per_sec=0.001), MemoryTokens()
    await store.settings_store.put_tenant(TENANT, settings, audit("tenant.put"))
    rate = rate_of(settings)
    assert rate is not None
    await tokens.take([TokenRequest(TENANT, rate, 1_000)], NOW_MS)
    await crank.add(job())
    await watching(store, tokens).run_once(NOW_MS + HOUR)
    assert await alerts(store) == []
    await watching(store).run_once(NOW_MS + HOUR)
    assert len(await alerts(store)) == 1


async def test_every_pool_gets_an_alert_beyond_the_number_explained(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    pools = [f"pool-{number}" for number in range(EXPLAINED + 2)]
    await crank.add(*(job(spec(target=Target(pool, HANDLER))) for pool in pools))
    await switch.run_once(NOW_MS + HOUR)
    found = await alerts(store)
    assert sorted(alert.pool for alert in found) == sorted(pools)
    assert sum("has no workers" in alert.message for alert in found) == EXPLAINED


async def test_missed_entry_is_reported_after_the_store_recovers(crank: Crank, store: SqliteStore) -> None:
    await crank.add(job())
    failing = FailingAlerts(SqliteSessions(store.database))
    switch = watching(replace(store, alerts=failing))
    with pytest.raises(StoreUnavailable):
        await switch.run_once(NOW_MS + HOUR)
    failing.is_unavailable = False
    await switch.run_once(NOW_MS + HOUR)
    assert len(await alerts(store)) == 1


async def test_late_notice_raises_no_alert(switch: DeadMansSwitch, crank: Crank, store: SqliteStore) -> None:
    await crank.add(job(spec(target=Target(NOTICES_POOL, HANDLER))))
    await switch.run_once(NOW_MS + HOUR)
    assert await alerts(store) == []


async def test_backlog_beyond_the_limit_shares_one_alert(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    await crank.add(*(job() for _ in range(MOST_LATE + 30)))
    for later in range(3):
        await switch.run_once(NOW_MS + GRACE + 1 + later)
    found = await alerts(store)
    assert len(found) == MOST_LATE + 1
    (others,) = [alert for alert in found if not alert.job_id]
    assert (others.about, others.count) == ("", 30)
    assert others.message.startswith("and 30 others, the first one ")


@pytest.mark.slow
async def test_backlog_of_one_tenant_does_not_hide_another_tenant(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    await crank.add(*(job() for _ in range(LATE_PAGE)))
    behind = job(tenant=TenantId("other"), now_ms=NOW_MS + SECOND)
    await crank.add(behind)
    await switch.run_once(NOW_MS + HOUR)
    await switch.run_once(NOW_MS + HOUR)
    assert [alert.job_id for alert in await alerts(store, TenantId("other"))] == [behind.id]


# Slow


async def succeed(crank: Crank, times: int, took_ms: int) -> None:
    for _ in range(times):
        dispatch = await crank.fire_one()
        await crank.settle(report(dispatch, Outcome.SUCCEEDED, ended_ms=dispatch.due_ms + took_ms))
        crank.now_ms = dispatch.due_ms + HOUR


async def start(crank: Crank, successes: int = 5, took_ms: int = 30 * SECOND) -> tuple[Job, int]:
    """Start a run of a job with some successes. Returns the job and the start of the run in ms."""
    one = job(every(3600))
    await crank.add(one)
    await succeed(crank, successes, took_ms)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.STARTED))
    return one, dispatch.due_ms


async def test_run_longer_than_three_times_the_longest_success_is_slow(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    one, since_ms = await start(crank)
    await switch.run_once(since_ms + 90 * SECOND)
    assert await alerts(store) == []
    await switch.run_once(since_ms + 91 * SECOND)
    await switch.run_once(since_ms + HOUR)
    (alert,) = await alerts(store)
    assert (alert.kind, alert.job_id, alert.count) == (AlertKind.SLOW, one.id, 1)
    assert alert.message == "running for 91 s; the longest of its last 5 successes took 30.0 s"


async def test_acknowledged_slow_run_raises_no_second_alert(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    _, since_ms = await start(crank)
    await switch.run_once(since_ms + 2 * MINUTE)
    (alert,) = await alerts(store)
    await store.alerts.acknowledge(TENANT, [alert.id], since_ms + 2 * MINUTE, audit())
    await switch.run_once(since_ms + 9 * MINUTE)
    assert len(await alerts(store)) == 1


async def test_run_below_the_minimum_duration_is_not_slow(
    switch: DeadMansSwitch, crank: Crank, store: SqliteStore
) -> None:
    _, since_ms = await start(crank, took_ms=10)
    await switch.run_once(since_ms + MINUTE)
    assert await alerts(store) == []


@pytest.mark.parametrize(("successes", "expected"), [(4, False), (5, True)])
def test_run_is_slow_only_after_five_successes(successes: int, expected: bool) -> None:
    run = SlowRun(TENANT, "job", "execution", POOL, NOW_MS, successes, 1_000)
    assert is_slow(run, NOW_MS + HOUR) is expected


# Recovered


async def test_success_closes_the_alerts_of_its_job(switch: DeadMansSwitch, crank: Crank, store: SqliteStore) -> None:
    one = job(every(3600))
    await crank.add(one)
    await switch.run_once(NOW_MS + 2 * GRACE)
    dispatch = await crank.fire_one(at_ms=NOW_MS + 3 * GRACE)
    await crank.settle(report(dispatch, Outcome.SUCCEEDED, ended_ms=NOW_MS + 3 * GRACE))
    await switch.run_once(NOW_MS + 4 * GRACE)
    assert [alert.status for alert in await alerts(store)] == [AlertState.RECOVERED]
    kinds = [event.kind for event in await store.alerts.events(9)]
    assert kinds == [AlertKind.MISSED, AlertKind.RECOVERED]
