"""Roles that share a process start, report and stop together."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from noonday.model.ids import InstanceId
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, StopDeadline, Tasks, every
from noonday.runtime.tracing import Tracing
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.roles.role_group import RoleGroup
from noonday.wiring.settings import Settings
from tests.support.clock import ManualClock


class Service:
    def __init__(self, error: Exception | None = None) -> None:
        self.rounds = 0
        self._error = error

    async def run_once(self, now_ms: int) -> int:
        self.rounds += 1
        if self._error is not None:
            raise self._error
        return 0


class NotedRole(ProcessRole):
    """A role that notes its calls, and whether its coroutine runs meanwhile."""

    def __init__(self, name: str, notes: list[str]) -> None:
        super().__init__(name)
        self.reasons: list[str] = []
        self.live = True
        self._notes = notes
        self._running = False

    def coroutines(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {self.name: self._run()}

    async def _run(self) -> None:
        self._running = True
        try:
            await asyncio.Event().wait()
        finally:
            self._running = False

    def is_live(self) -> bool:
        return self.live

    def reasons_not_ready(self) -> list[str]:
        return self.reasons

    async def hand_over(self, tasks: Tasks) -> None:
        self._note("hands over")

    async def finish(self, tasks: Tasks, deadline: StopDeadline) -> None:
        self._note("finishes")

    async def leave(self) -> None:
        self._note("leaves")

    def _note(self, what: str) -> None:
        self._notes.append(f"{self.name} {what}{'' if self._running else ' (ended)'}")


def group_of(*roles: ProcessRole) -> RoleGroup:
    return RoleGroup(ProcessContext(InstanceId("i-1"), Settings(), Metrics(), Tracing(None)), roles)


def loop_of(name: str, service: Service, clock: ManualClock) -> Loop:
    return Loop(name, service, clock, every(1.0), stuck_after_sec=10)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_roles_finish_in_the_opposite_order_and_leave_when_no_loop_runs(clock: ManualClock) -> None:
    notes: list[str] = []
    group = group_of(NotedRole("recorder", notes), NotedRole("worker", notes))
    group.run()
    await turn()
    deadline = StopDeadline(clock, 10)
    await group.hand_over(deadline)
    await group.stop(deadline)
    assert notes == [
        "recorder hands over",
        "worker hands over",
        "worker finishes",
        "recorder finishes",
        "recorder leaves (ended)",
        "worker leaves (ended)",
    ]


async def test_hand_over_without_a_deadline_waits_for_each_role() -> None:
    notes: list[str] = []
    await group_of(NotedRole("worker", notes)).hand_over()
    assert notes == ["worker hands over (ended)"]


async def test_every_loop_of_every_role_runs(clock: ManualClock) -> None:
    first, second = Service(), Service()
    group = group_of(ProcessRole("a", loop_of("one", first, clock)), ProcessRole("b", loop_of("two", second, clock)))
    assert list(group.loops) == ["one", "two"]
    group.run()
    await turn()
    assert (first.rounds, second.rounds) == (1, 1)
    await group.stop(StopDeadline(clock, 10))


async def test_group_that_was_not_started_is_not_ready() -> None:
    assert group_of(NotedRole("worker", [])).reasons_not_ready() == ["not started"]


async def test_group_is_ready_when_no_role_objects(clock: ManualClock) -> None:
    role = NotedRole("worker", [])
    group = group_of(role, ProcessRole("upkeep", loop_of("one", Service(), clock)))
    group.run()
    await turn()
    assert group.reasons_not_ready() == []
    role.reasons = ["too many abandoned runs"]
    assert group.reasons_not_ready() == ["too many abandoned runs"]
    await group.stop(StopDeadline(clock, 10))


async def test_stuck_loop_is_a_reason_not_to_be_ready(clock: ManualClock) -> None:
    group = group_of(ProcessRole("upkeep", loop_of("one", Service(), clock)))
    group.run()
    await turn()
    clock.advance(11)
    assert group.reasons_not_ready() == ["one completed its last round 11.0 s ago"]
    await group.stop(StopDeadline(clock, 10))


@pytest.mark.slow
async def test_group_with_a_failed_loop_is_neither_ready_nor_live(clock: ManualClock) -> None:
    group = group_of(ProcessRole("upkeep", loop_of("one", Service(ValueError("a bug")), clock)))
    group.run()
    await turn()
    assert group.reasons_not_ready() == ["a loop has failed: ValueError('a bug')"]
    assert not group.is_live()
    with pytest.raises(ValueError, match="a bug"):
        group.failed.result()


async def test_role_that_only_a_restart_helps_makes_its_group_not_live() -> None:
    role = NotedRole("worker", [])
    group = group_of(role)
    assert group.is_live()
    role.live = False
    assert not group.is_live()
