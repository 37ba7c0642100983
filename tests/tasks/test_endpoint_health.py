from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from noonday.model.endpoint import Condition, EndpointSettings
from noonday.model.errors import Conflict, NotFound
from noonday.model.tasks.wire import RequestedStatus, TaskPatch, TaskPayload
from noonday.tasks.endpoint_disabler import UNSETTLED_MS
from noonday.wiring.engine_queries import OWNER
from tests.support.factories import audit
from tests.tasks.calling import Calls, calls_to_a_receiver

HOURS, DAY = timedelta(hours=6), timedelta(days=1)


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    async with calls_to_a_receiver() as calls:
        yield calls


@pytest.mark.slow
async def test_five_days_of_failures_disable_an_endpoint_and_stop_its_tasks(calls: Calls) -> None:
    task = await calls.every("6 hours")
    calls.receiver.status = 500
    await calls.advance(HOURS, 5 * DAY)
    assert (await calls.endpoint()).health.status is Condition.FAILING
    await calls.advance(HOURS, DAY)
    health = (await calls.endpoint()).health
    assert health.status is Condition.DISABLED
    assert health.disabled_because == (
        "has failed for 5.0 days: 21 calls failed and none succeeded; the last one: answered 500"
    )
    shown = await calls.engine.tasks.get(OWNER, task.id)
    assert shown.status == "FAILED"
    why = f"endpoint disabled: {calls.receiver.endpoint} {health.disabled_because}"
    assert shown.stopped_because == why
    came = len(calls.receiver.came_ms)
    await calls.advance(HOURS, DAY)
    assert len(calls.receiver.came_ms) == came


@pytest.mark.slow
async def test_success_on_the_fourth_day_resets_the_failures(calls: Calls) -> None:
    task = await calls.every("6 hours")
    calls.receiver.status = 500
    await calls.advance(HOURS, 4 * DAY)
    calls.receiver.status = 200
    await calls.advance(HOURS, HOURS)
    assert (await calls.endpoint()).health.status is Condition.HEALTHY
    calls.receiver.status = 500
    await calls.advance(HOURS, 4 * DAY)
    assert (await calls.endpoint()).health.status is Condition.FAILING
    assert await calls.status_of(task) == "SCHEDULED"


@pytest.mark.slow
async def test_client_errors_do_not_count_against_the_endpoint(calls: Calls) -> None:
    await calls.every("6 hours")
    calls.receiver.status = 404
    await calls.advance(HOURS, DAY)
    with pytest.raises(NotFound, match="no endpoint http"):
        await calls.endpoint()


@pytest.mark.slow
async def test_disabled_endpoint_raises_an_alert(calls: Calls) -> None:
    await calls.every("6 hours")
    calls.receiver.status = 500
    await calls.endpoints.put(OWNER, calls.receiver.id, EndpointSettings(disable_after_days=1))
    await calls.advance(HOURS, 2 * DAY)
    incidents = [each for each in await calls.store.executions.incidents(100) if each.kind == "DISABLED"]
    assert [each.message.partition(": ")[0] for each in incidents] == [
        f"{calls.receiver.endpoint} has failed for 1.0 days"
    ]


async def test_crash_between_disabling_and_halting_is_repaired(calls: Calls) -> None:
    tasks = [await calls.every("6 hours") for _ in range(3)]
    whom = (OWNER.tenant, calls.receiver.endpoint)
    await calls.store.endpoints.disable(whom, "has failed", calls.clock.now_ms(), audit())
    assert [await calls.status_of(task) for task in tasks] == ["SCHEDULED"] * 3
    assert await calls.look_after() == 3
    assert [await calls.status_of(task) for task in tasks] == ["FAILED"] * 3
    assert await calls.look_after() == 0


async def test_task_created_during_disabling_is_halted_too(calls: Calls) -> None:
    await calls.once()
    whom = (OWNER.tenant, calls.receiver.endpoint)
    await calls.store.endpoints.disable(whom, "has failed", calls.clock.now_ms(), audit())
    await calls.look_after()
    late = await calls.every("6 hours")
    await calls.look_after()
    assert await calls.status_of(late) == "FAILED"
    calls.clock.move_to(calls.clock.now_ms() + UNSETTLED_MS)
    await calls.look_after()
    assert await calls.store.endpoints.unsettled(9) == []


async def test_task_for_a_disabled_endpoint_is_refused_with_the_next_step(calls: Calls) -> None:
    task = await calls.every("6 hours")
    await calls.endpoints.disable(OWNER, calls.receiver.id)
    with pytest.raises(
        Conflict, match=r"is disabled since 2030-01-01T00:00:00.000Z: it was disabled by .*endpoint enable"
    ):
        await calls.every("7 hours")
    with pytest.raises(Conflict, match="is disabled since"):
        await calls.engine.tasks.patch(OWNER, task.id, TaskPatch(status=RequestedStatus.SCHEDULED))
    elsewhere = TaskPatch(payload=TaskPayload(webhook_url="https://b.example/x"))
    await calls.engine.tasks.patch(OWNER, task.id, elsewhere)
    assert (await calls.engine.tasks.patch(OWNER, task.id, TaskPatch(status=RequestedStatus.SCHEDULED))).status == (
        "SCHEDULED"
    )
    back = TaskPatch(payload=TaskPayload(webhook_url=f"{calls.receiver.endpoint}/x"))
    with pytest.raises(Conflict, match="is disabled since"):
        await calls.engine.tasks.patch(OWNER, task.id, back)


@pytest.mark.slow
async def test_enabling_resumes_only_tasks_halted_with_the_endpoint(calls: Calls) -> None:
    stopped, paused, gone = [await calls.every("6 hours") for _ in range(3)]
    await calls.engine.tasks.patch(OWNER, paused.id, TaskPatch(status=RequestedStatus.PAUSED))
    await calls.engine.services.jobs.halt(OWNER, gone.id, "the receiver wants no more calls")
    await calls.endpoints.disable(OWNER, calls.receiver.id)
    assert [await calls.status_of(each) for each in (stopped, paused, gone)] == ["FAILED", "PAUSED", "FAILED"]
    assert (await calls.endpoints.enable(OWNER, calls.receiver.id)).health.status is Condition.HEALTHY
    assert [await calls.status_of(each) for each in (stopped, paused, gone)] == ["SCHEDULED", "PAUSED", "FAILED"]
    await calls.testing.advance(HOURS)
    assert len(calls.receiver.came_ms) == 1


@pytest.mark.slow
async def test_waiting_retry_is_blocked_while_its_endpoint_is_disabled(calls: Calls) -> None:
    await calls.every("6 hours", attempts=5)
    calls.receiver.status = 500
    await calls.testing.advance(HOURS)
    came = len(calls.receiver.came_ms)
    assert came > 0
    await calls.endpoints.disable(OWNER, calls.receiver.id)
    await calls.testing.advance(DAY)
    assert len(calls.receiver.came_ms) == came
    await calls.endpoints.enable(OWNER, calls.receiver.id)
    await calls.testing.advance(hours=1)
    assert len(calls.receiver.came_ms) > came


@pytest.mark.slow
async def test_disable_after_zero_never_disables(calls: Calls) -> None:
    await calls.endpoints.put(OWNER, calls.receiver.id, EndpointSettings(disable_after_days=0))
    await calls.every("6 hours")
    calls.receiver.status = 500
    await calls.advance(HOURS, 7 * DAY)
    assert (await calls.endpoint()).health.status is Condition.FAILING
