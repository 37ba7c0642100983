from collections.abc import AsyncIterator

import pytest

from noonday.model.endpoint import EndpointSettings
from noonday.wiring.engine_queries import OWNER
from tests.tasks.calling import Calls, calls_to_a_receiver

TASKS = 30


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    async with calls_to_a_receiver() as calls:
        yield calls


@pytest.mark.slow
async def test_without_limits_all_are_called_at_once(calls: Calls) -> None:
    await calls.once(TASKS)
    await calls.testing.run_due()
    assert len(calls.receiver.came_ms) == TASKS
    assert calls.receiver.most > 10


@pytest.mark.slow
async def test_concurrency_limit_is_never_exceeded(calls: Calls) -> None:
    await calls.endpoints.put(OWNER, calls.receiver.id, EndpointSettings(max_concurrency=3))
    tasks = await calls.once(TASKS)
    await calls.testing.run_due()
    assert len(calls.receiver.came_ms) == 3
    waiting = (await calls.engine.tasks.get(OWNER, tasks[-1].id)).executions
    assert waiting
    assert "are limited to 3 at once: this one waits for" in (waiting[0].error_message or "")
    await calls.testing.advance(seconds=60)
    assert len(calls.receiver.came_ms) == TASKS
    assert calls.receiver.most == 3


@pytest.mark.slow
async def test_calls_come_no_faster_than_the_rate(calls: Calls) -> None:
    await calls.endpoints.put(OWNER, calls.receiver.id, EndpointSettings(rate_per_sec=10, burst=1))
    await calls.once(TASKS)
    began_ms = calls.clock.now_ms()
    await calls.testing.advance(seconds=10)
    assert sorted(at - began_ms for at in calls.receiver.came_ms) == [n * 100 for n in range(TASKS)]


@pytest.mark.slow
async def test_waiting_for_a_limit_uses_no_attempt(calls: Calls) -> None:
    await calls.endpoints.put(OWNER, calls.receiver.id, EndpointSettings(rate_per_sec=1))
    _, task = await calls.once(2)
    await calls.testing.advance(seconds=10)
    (execution,) = (await calls.engine.tasks.get(OWNER, task.id)).executions or ()
    assert (execution.status, execution.attempt_number) == ("COMPLETED", 1)
    row = await calls.engine.services.executions.get(OWNER, execution.id)
    snoozes = [transition.reason for transition in row.transitions if transition.state == "PENDING"][1:]
    assert snoozes == [f"SNOOZED: calls to {calls.receiver.endpoint} are limited to 1 a second: this one waits for 1 s"]
