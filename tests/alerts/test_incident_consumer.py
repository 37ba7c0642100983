from collections.abc import AsyncIterator

import pytest

from noonday.alerts.incident_consumer import IncidentConsumer, observation_of
from noonday.model.alert import GIVEN_UP, AlertFilter, AlertKind
from noonday.model.execution import GONE, Failure, Outcome
from noonday.model.ids import ExecutionId, JobId
from noonday.model.incident import Incident
from noonday.model.job import CatchUp, CatchUpPolicy, Job
from noonday.model.message import Dispatch
from noonday.model.retry import Backoff, RetryPolicy
from tests.api.engine import Backstage
from tests.support.crank import Crank
from tests.support.factories import MINUTE, NOW_MS, TENANT, every, failure, job, report

TWICE = RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_delay_ms=1_000)
ENDPOINT = "https://a.example:443"


@pytest.fixture
async def backstage() -> AsyncIterator[Backstage]:
    made = Backstage.make()
    yield made
    await made.store.close()


@pytest.fixture
async def crank(backstage: Backstage) -> Crank:
    crank = Crank(backstage.store)
    await crank.own()
    return crank


@pytest.fixture
def incident_consumer(backstage: Backstage) -> IncidentConsumer:
    return IncidentConsumer(backstage.store.executions, backstage.store.alerts, backstage.services.jobs)


async def alerts(backstage: Backstage) -> list[tuple[str, str, int]]:
    found = await backstage.store.alerts.list_alerts(TENANT, AlertFilter(), None, 100)
    return sorted((alert.kind.value, alert.job_id, alert.count) for alert in found)


async def fired(crank: Crank, policy: RetryPolicy) -> tuple[Job, Dispatch]:
    one = job(every(3600, retry_policy=policy))
    await crank.add(one)
    return one, await crank.fire_one()


async def test_failures_become_alerts_once(
    incident_consumer: IncidentConsumer, crank: Crank, backstage: Backstage
) -> None:
    one, first = await fired(crank, TWICE)
    await crank.settle(report(first, Outcome.FAILED, failure=failure()))
    assert await incident_consumer.run_once(NOW_MS) == 1
    again = await crank.fire_one(at_ms=NOW_MS + MINUTE)
    await crank.settle(report(again, Outcome.FAILED, failure=failure(), ended_ms=NOW_MS + MINUTE))
    assert await incident_consumer.run_once(NOW_MS) == 1
    assert await incident_consumer.run_once(NOW_MS) == 0
    assert await alerts(backstage) == [("EXHAUSTED", one.id, 1), ("FAILED", one.id, 1)]


async def test_gone_receiver_halts_its_job_and_raises_an_alert(
    incident_consumer: IncidentConsumer, crank: Crank, backstage: Backstage
) -> None:
    one, first = await fired(crank, TWICE)
    await crank.settle(report(first, Outcome.FAILED, failure=Failure(GONE, "answered 410", retryable=False)))
    await incident_consumer.run_once(NOW_MS)
    row = await backstage.store.query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.job.halted == "answered 410"
    assert await alerts(backstage) == [("STOPPED", one.id, 1)]


async def test_occurrence_given_up_is_missed(
    incident_consumer: IncidentConsumer, crank: Crank, backstage: Backstage
) -> None:
    one = job(every(60, catch_up=CatchUp(policy=CatchUpPolicy.NONE)))
    await crank.add(one)
    await crank.fire(at_ms=NOW_MS + 10 * MINUTE + 30_000)
    await incident_consumer.run_once(NOW_MS)
    (alert,) = await backstage.store.alerts.list_alerts(TENANT, AlertFilter(), None, 9)
    assert (alert.kind, alert.job_id, alert.execution_id) == (AlertKind.MISSED, one.id, "")
    assert alert.message.startswith("MISSED: 11 times from 2030-01-01T00:00:00.000Z to ")


def test_incident_without_a_job_is_about_its_endpoint() -> None:
    message = f"{ENDPOINT} failed for three days"
    observation = observation_of(Incident(7, "DISABLED", TENANT, ExecutionId(""), JobId(""), message, NOW_MS))
    assert (observation.kind, observation.about, observation.endpoint, observation.job_id) == (
        AlertKind.DISABLED,
        ENDPOINT,
        ENDPOINT,
        "",
    )
    assert (observation.execution_id, observation.message, observation.incident) == ("", message, 7)


def test_occurrence_given_up_has_no_execution() -> None:
    observation = observation_of(Incident(7, GIVEN_UP, TENANT, ExecutionId("x"), JobId("j"), "MISSED", NOW_MS))
    assert (observation.kind, observation.about, observation.execution_id) == (AlertKind.MISSED, "j", "")
