"""Admitted runs that have not started."""

from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from tests.worker.parts import POOL, Parts

LANE, OTHER = (POOL, Mode.ASYNC), ("q", Mode.ASYNC)


async def parts() -> Parts:
    made = Parts(concurrency={POOL: 2, "q": 2})
    await made.open()
    return made


async def test_a_due_run_is_ready_at_once() -> None:
    it = await parts()
    run = it.run()
    it.backlog.admit([run], it.clock.now_ms())
    assert list(it.backlog.ready(LANE)) == [run]
    assert it.backlog.next_due_ms is None


async def test_an_early_run_is_ready_when_its_instant_has_come() -> None:
    it = await parts()
    due_ms = it.clock.now_ms() + 200
    run = it.run(due_ms=due_ms)
    it.backlog.admit([run], it.clock.now_ms())
    it.backlog.move_due(due_ms - 1)
    assert (len(it.backlog.ready(LANE)), it.backlog.next_due_ms) == (0, due_ms)
    it.backlog.move_due(due_ms)
    assert (list(it.backlog.ready(LANE)), it.backlog.next_due_ms) == ([run], None)


async def test_lanes_are_served_in_turn() -> None:
    it = await parts()
    it.backlog.admit([it.run(), it.run(pool="q")], it.clock.now_ms())
    assert [it.backlog.next_lane(()) for _ in range(3)] == [LANE, OTHER, LANE]


async def test_a_lane_without_runs_or_slots_is_not_served() -> None:
    it = await parts()
    it.backlog.admit([it.run()], it.clock.now_ms())
    assert it.backlog.next_lane({LANE}) is None
    it.capacity.start(LANE, 2)
    assert it.backlog.startable_count(LANE) == 0
    assert it.backlog.next_lane(()) is None


async def test_a_claimed_run_is_returned_if_the_worker_stops_meanwhile() -> None:
    it = await parts()
    run = await it.claimed()
    await it.rounds.stop()
    it.backlog.admit([run], it.clock.now_ms())
    assert (list(it.ended), run.outcome) == ([run], Outcome.INTERRUPTED)


async def test_a_run_of_a_former_identity_is_returned() -> None:
    it = await parts()
    run = await it.claimed()
    it.membership.change_identity()
    it.backlog.admit([run], it.clock.now_ms())
    assert list(it.ended) == [run]


async def test_an_unclaimed_run_is_left_to_the_next_worker() -> None:
    it = await parts()
    it.capacity.admit([run := it.run()])
    it.backlog.return_run(run)
    assert len(it.ended) == 0
    assert it.capacity.room(POOL, it.clock.monotonic()) == 4


async def test_all_runs_are_taken_at_once() -> None:
    it = await parts()
    ready, early = it.run(), it.run(due_ms=it.clock.now_ms() + 200)
    it.backlog.admit([ready, early], it.clock.now_ms())
    assert set(it.backlog.take_all()) == {ready, early}
    assert it.backlog.take_all() == []
