import msgspec
import pytest

from noonday.model.change import Change
from noonday.model.endpoint import (
    DAY_MS,
    LEAST_FAILURES,
    QUIET_MS,
    Condition,
    EndpointHealth,
    EndpointLimits,
    EndpointSettings,
    Failures,
)
from noonday.model.firing import Fire
from noonday.model.ids import TenantId
from noonday.model.job import Job, JobState, Target
from noonday.model.secret import EndpointKey
from noonday.ports.endpoints import Endpoints
from noonday.ports.executions import Executions
from noonday.ports.settings import SettingsStore
from tests.support.crank import Crank
from tests.support.drivers import Store
from tests.support.factories import NOW_MS, TENANT, audit, every, job

THERE: EndpointKey = (TENANT, "https://a.example:443")
ELSEWHERE: EndpointKey = (TENANT, "https://b.example:443")
OF_OTHERS: EndpointKey = (TenantId("other"), "https://a.example:443")
MINUTE_MS = 60_000


@pytest.fixture
def endpoints(store: Store) -> Endpoints:
    return store.endpoints


async def fail(endpoints: Endpoints, now_ms: int, count: int = 1, whom: EndpointKey = THERE) -> None:
    await endpoints.note_calls([], {whom: Failures(count, "answered 500")}, now_ms)


async def health(endpoints: Endpoints, whom: EndpointKey = THERE) -> EndpointHealth:
    found = await endpoints.find(whom)
    assert found is not None
    return found.health


async def test_endpoint_that_was_never_called_has_no_row(endpoints: Endpoints) -> None:
    assert await endpoints.find(THERE) is None
    assert await endpoints.limits_of([THERE]) == {}
    assert await endpoints.limits_of([]) == {}
    assert not await endpoints.enable(THERE, NOW_MS, audit())


async def test_put_replaces_the_settings(endpoints: Endpoints, settings_store: SettingsStore) -> None:
    await endpoints.put(THERE, EndpointSettings(max_concurrency=3), NOW_MS, audit("endpoint.put"))
    settings = EndpointSettings(rate_per_sec=2.5, burst=4, disable_after_days=0.5)
    row = await endpoints.put(THERE, settings, NOW_MS + 1, audit("endpoint.put"))
    assert row == await endpoints.find(THERE)
    assert (row.key, row.settings, row.health) == (THERE, settings, EndpointHealth())
    assert len(await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=9)) == 2


async def test_limits_are_listed_for_endpoints_that_have_limits(endpoints: Endpoints) -> None:
    await endpoints.put(THERE, EndpointSettings(max_concurrency=3), NOW_MS, audit())
    await endpoints.put(ELSEWHERE, EndpointSettings(disable_after_days=0), NOW_MS, audit())
    limits = await endpoints.limits_of([THERE, ELSEWHERE, OF_OTHERS])
    assert limits == {THERE: EndpointLimits(3, None, 1)}


async def test_endpoints_are_listed_by_name_in_pages(endpoints: Endpoints) -> None:
    await endpoints.note_calls([ELSEWHERE, THERE, OF_OTHERS], {}, NOW_MS)
    first = await endpoints.list_endpoints(TENANT, None, 1)
    assert [row.key for row in first] == [THERE]
    assert [row.key for row in await endpoints.list_endpoints(TENANT, THERE[1], 9)] == [ELSEWHERE]


async def test_failures_add_up_from_the_first_one_on(endpoints: Endpoints) -> None:
    await fail(endpoints, NOW_MS, 2)
    await fail(endpoints, NOW_MS + 5, 3)
    found = await health(endpoints)
    assert found == EndpointHealth(NOW_MS, 5, None, NOW_MS + 5, "answered 500")
    assert found.status is Condition.FAILING


async def test_one_success_forgives_everything(endpoints: Endpoints) -> None:
    await fail(endpoints, NOW_MS, 9)
    await endpoints.note_calls([THERE], {}, NOW_MS + 5)
    found = await health(endpoints)
    assert (found.failing_since_ms, found.failures, found.last_success_ms) == (None, 0, NOW_MS + 5)
    assert (found.last_failure_ms, found.status) == (NOW_MS, Condition.HEALTHY)


async def test_failures_after_a_success_of_the_same_batch_count(endpoints: Endpoints) -> None:
    await fail(endpoints, NOW_MS, 9)
    await endpoints.note_calls([THERE], {THERE: Failures(2, "no answer")}, NOW_MS + 5)
    found = await health(endpoints)
    assert (found.failing_since_ms, found.failures, found.last_error) == (NOW_MS + 5, 2, "no answer")


async def test_when_the_last_success_was_is_known_to_the_minute(endpoints: Endpoints) -> None:
    for now_ms in (NOW_MS, NOW_MS + MINUTE_MS - 1):
        await endpoints.note_calls([THERE], {}, now_ms)
    assert (await health(endpoints)).last_success_ms == NOW_MS
    await endpoints.note_calls([THERE], {}, NOW_MS + MINUTE_MS)
    assert (await health(endpoints)).last_success_ms == NOW_MS + MINUTE_MS


async def test_after_a_long_silence_failures_begin_anew(endpoints: Endpoints) -> None:
    await fail(endpoints, NOW_MS, 4)
    await fail(endpoints, NOW_MS + QUIET_MS)
    found = await health(endpoints)
    assert (found.failing_since_ms, found.failures) == (NOW_MS + QUIET_MS, 1)


@pytest.mark.parametrize(
    ("settings", "failures", "days", "expected"),
    [
        (None, LEAST_FAILURES, 5, True),
        (None, LEAST_FAILURES, 4.99, False),
        (None, LEAST_FAILURES - 1, 5, False),
        (EndpointSettings(disable_after_days=0), 99, 6, False),
        (EndpointSettings(disable_after_days=0.5), LEAST_FAILURES, 0.5, True),
        (EndpointSettings(disable_after_days=0.5), LEAST_FAILURES, 0.4, False),
    ],
)
async def test_endpoint_that_fails_for_longer_than_allowed_is_listed_for_disabling(
    endpoints: Endpoints, settings: EndpointSettings | None, failures: int, days: float, expected: bool
) -> None:
    if settings:
        await endpoints.put(THERE, settings, NOW_MS, audit())
    await fail(endpoints, NOW_MS, failures)
    now_ms = NOW_MS + round(days * DAY_MS)
    assert bool(await endpoints.failing_too_long(now_ms, 9)) is expected


async def test_disabled_endpoint_is_an_incident(endpoints: Endpoints, executions: Executions) -> None:
    assert await endpoints.disable(THERE, "has failed for days", NOW_MS, audit())
    assert not await endpoints.disable(THERE, "twice", NOW_MS + 1, audit())
    found = await health(endpoints)
    assert (found.status, found.disabled_ms, found.disabled_why) == (
        Condition.DISABLED,
        NOW_MS,
        "has failed for days",
    )
    (incident,) = await executions.incidents(9)
    assert (incident.kind, incident.tenant, incident.job_id, incident.execution_id) == ("DISABLED", TENANT, "", "")
    assert incident.message == "https://a.example:443 has failed for days"


async def test_endpoint_that_recovered_meanwhile_is_not_disabled(endpoints: Endpoints, executions: Executions) -> None:
    await fail(endpoints, NOW_MS, 9)
    await endpoints.note_calls([THERE], {}, NOW_MS + 1)
    assert not await endpoints.disable(THERE, "has failed", NOW_MS + 2, audit(), failing_since_ms=NOW_MS)
    assert not await endpoints.disable(ELSEWHERE, "has failed", NOW_MS + 2, audit(), failing_since_ms=NOW_MS)
    assert await executions.incidents(9) == []
    await fail(endpoints, NOW_MS + 3)
    assert await endpoints.disable(THERE, "has failed", NOW_MS + 4, audit(), failing_since_ms=NOW_MS + 3)


async def test_enabled_endpoint_starts_without_failures(endpoints: Endpoints) -> None:
    await fail(endpoints, NOW_MS, 9)
    await endpoints.disable(THERE, "has failed", NOW_MS + 1, audit())
    assert await endpoints.failing_too_long(NOW_MS + 90 * DAY_MS, 9) == []
    assert await endpoints.enable(THERE, NOW_MS + 2, audit())
    assert not await endpoints.enable(THERE, NOW_MS + 3, audit())
    found = await health(endpoints)
    assert (found.status, found.failures, found.disabled_why) == (Condition.HEALTHY, 0, None)


async def test_change_of_an_endpoint_is_unsettled_until_it_is_marked_settled(endpoints: Endpoints) -> None:
    await endpoints.disable(THERE, "has failed", NOW_MS, audit())
    await endpoints.disable(ELSEWHERE, "has failed", NOW_MS + 1, audit())
    assert [(row.key, since) for row, since in await endpoints.unsettled(9)] == [
        (THERE, NOW_MS),
        (ELSEWHERE, NOW_MS + 1),
    ]
    await endpoints.enable(THERE, NOW_MS + 2, audit())
    await endpoints.settled(THERE, NOW_MS)
    await endpoints.settled(ELSEWHERE, NOW_MS + 1)
    ((row, since_ms),) = await endpoints.unsettled(9)
    assert (row.key, since_ms, row.health.status) == (THERE, NOW_MS + 2, Condition.HEALTHY)


def calling(whom: EndpointKey = THERE) -> Job:
    return job(every(target=Target("webhooks", "webhook.call", whom[1])), tenant=whom[0])


def halted(of: Job, why: str | None = None) -> Change:
    return Change(job=msgspec.structs.replace(of, state=JobState.PAUSED, halted=why))


async def test_tasks_of_an_endpoint_that_go_on_are_to_be_halted(endpoints: Endpoints, crank: Crank) -> None:
    mine = [calling(), calling()]
    over, paused = calling(), calling()
    notice = job(every(target=Target("notices", "webhook.call", THERE[1])))
    await crank.add(*mine, over, paused, calling(ELSEWHERE), calling(OF_OTHERS), job(every()), notice)
    await crank.change(over, Change(fire=Fire(NOW_MS, None)))
    await crank.change(paused, halted(paused))
    assert await endpoints.tasks_to_halt(THERE, None, 9) == [each.id for each in mine]
    assert await endpoints.tasks_to_halt(THERE, None, 1) == [mine[0].id]
    assert await endpoints.tasks_to_halt(THERE, mine[0].id, 9) == [mine[1].id]


async def test_only_tasks_halted_for_a_reason_are_resumed_for_it(endpoints: Endpoints, crank: Crank) -> None:
    mine, gone, paused = calling(), calling(), calling()
    await crank.add(mine, gone, paused)
    await crank.change(mine, halted(mine, "endpoint disabled: it failed"))
    await crank.change(gone, halted(gone, "the receiver wants no more calls"))
    await crank.change(paused, halted(paused))
    assert await endpoints.tasks_to_resume(THERE, "endpoint disabled: ", None, 9) == [mine.id]
    assert await endpoints.tasks_to_resume(THERE, "endpoint disabled: ", mine.id, 9) == []
    assert await endpoints.tasks_to_resume(ELSEWHERE, "endpoint disabled: ", None, 9) == []


async def test_unused_endpoints_are_pruned_unless_they_have_settings(endpoints: Endpoints) -> None:
    await endpoints.note_calls([THERE, OF_OTHERS], {}, NOW_MS)
    await endpoints.put(ELSEWHERE, EndpointSettings(), NOW_MS, audit())
    await endpoints.disable(OF_OTHERS, "as requested", NOW_MS, audit())
    assert await endpoints.forget(NOW_MS - 1, 9) == 0
    assert await endpoints.forget(NOW_MS, 9) == 1
    assert await endpoints.find(THERE) is None
    assert await endpoints.find(ELSEWHERE) is not None
    assert await endpoints.find(OF_OTHERS) is not None
