import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from noonday.model.errors import Conflict, InvalidInput, LeaseLost
from noonday.model.execution import Failure
from noonday.model.handler import Handler, Mode
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.message import Token
from noonday.sdk.registry import Registry
from noonday.worker.context import Cancelled, Context, Snooze
from noonday.worker.enqueueing import Children, Enqueueing
from noonday.worker.process import RemoteError
from noonday.worker.remote import (
    MAX_LEASES_OF_WORKER,
    UNTAKEN_SEC,
    UNTAKEN_WAIT_SEC,
    Lease,
    RemoteRuns,
    RemoteWorker,
)
from noonday.worker.run import INTERRUPTED, LeaseLapsed, Run
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS
from tests.support.factories import dispatch as any_dispatch

POOL, NAME = "go", "hello"
LEASE_SEC = 30.0
WORKER = RemoteWorker("default", "w1")


class Rig:
    """Remote runs on a manual clock, and what came of each run."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.runs = RemoteRuns(self.clock, "i-1", LEASE_SEC)
        self.gone = asyncio.Event()

    async def offer(self, execution: str = "e1", **fields: Any) -> "tuple[Run, asyncio.Task[bytes | None]]":
        made = any_dispatch(
            **{"execution_id": execution, "pool": POOL, "handler": NAME, "tenant": "default", "number": 1, **fields}
        )
        run = Run(made, Token(made.number, 1), Handler(NAME, POOL, print, Mode.REMOTE))
        run.context = Context(made, run.token or Token(0, 0), None)
        task = asyncio.create_task(self.runs.run(run, b"{}"))
        await asyncio.sleep(0)
        return run, task

    async def take(self, *, limit: int = 1, wait_sec: float = 0, worker: RemoteWorker = WORKER) -> list[Lease]:
        return await self.runs.take(worker, POOL, frozenset([NAME]), limit, wait_sec, self.gone)

    async def started(self) -> "tuple[Run, asyncio.Task[bytes | None], Lease]":
        run, task = await self.offer()
        (lease,) = await self.take()
        self.runs.start("default", lease.id)
        return run, task, lease


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_a_result_ends_the_run(rig: Rig):
    run, task, lease = await rig.started()
    assert run.started_ms == rig.clock.now_ms()
    rig.runs.complete("default", lease.id, b"1")
    assert await task == b"1"
    assert rig.runs.demand(POOL) == 0


def child(payload: int, **fields: Any) -> JobSpec:
    return JobSpec(type=JobType.ONE_TIME, target=Target("p", "h"), payload=payload, **fields)


def with_children(run: Run, **limits: int) -> Children:
    enqueueing = Enqueueing(Registry().spec_for, lambda: NOW_MS, **limits)
    assert run.context is not None
    run.context._enqueueing = enqueueing
    return run.context._open_children()


async def test_a_run_ends_with_the_jobs_that_its_worker_names(rig: Rig):
    run, task, lease = await rig.started()
    children = with_children(run)
    rig.runs.complete("default", lease.id, None, [child(1), child(2)])
    rig.runs.complete("default", lease.id, None, [child(1), child(2)])
    await task
    assert [spec.payload for spec in children.specs] == [1, 2]


async def test_a_completion_with_an_invalid_job_is_refused_and_may_be_sent_again(rig: Rig):
    run, task, lease = await rig.started()
    children = with_children(run, most_jobs=2)
    for refused in ([child(1), child(2, timeout_sec=-1)], [child(1), child(2), child(3)]):
        with pytest.raises(InvalidInput):
            rig.runs.complete("default", lease.id, b"1", refused)
        assert (task.done(), len(children)) == (False, 0)
    rig.runs.complete("default", lease.id, b"1", [child(1)])
    assert await task == b"1"
    assert len(children) == 1


async def test_a_completion_under_a_lost_lease_enqueues_nothing(rig: Rig):
    run, task, lease = await rig.started()
    children = with_children(run)
    with pytest.raises(LeaseLost):
        rig.runs.complete("other", lease.id, None, [child(1)])
    assert len(children) == 0
    task.cancel()


async def test_a_waiting_take_gets_a_run_at_once(rig: Rig):
    waiting = asyncio.create_task(rig.take(wait_sec=20))
    await eventually(lambda: rig.runs.demand(POOL) == 1)
    _, task = await rig.offer()
    (lease,) = await waiting
    assert (lease.dispatch.execution_id, lease.worker) == ("e1", WORKER)
    task.cancel()


async def test_a_take_that_finds_nothing_ends_after_its_wait(rig: Rig):
    waiting = asyncio.create_task(rig.take(wait_sec=20))
    await eventually(lambda: rig.clock.sleepers == 1)
    rig.clock.advance(20)
    assert await waiting == []
    assert rig.runs.demand(POOL) == 0


async def test_a_run_is_offered_to_its_tenant_only(rig: Rig):
    _, task = await rig.offer()
    assert await rig.take(worker=RemoteWorker("other", "w1")) == []
    (lease,) = await rig.take()
    with pytest.raises(LeaseLost):
        rig.runs.start("other", lease.id)
    task.cancel()


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda runs, id_: runs.fail("default", id_, Failure("T", "m"), 1, is_cancelled=False), RemoteError),
        (lambda runs, id_: runs.snooze("default", id_, 3), Snooze),
    ],
)
async def test_other_ends_raise(rig: Rig, act: Callable[[RemoteRuns, str], None], error: type[Exception]):
    _, task, lease = await rig.started()
    act(rig.runs, lease.id)
    with pytest.raises(error):
        await task


async def test_the_same_answer_may_be_repeated_and_another_one_may_not(rig: Rig):
    _, task, lease = await rig.started()
    rig.runs.complete("default", lease.id, b"1")
    rig.runs.complete("default", lease.id, b"2")
    with pytest.raises(LeaseLost):
        rig.runs.snooze("default", lease.id, 1)
    assert await task == b"1"
    rig.runs.complete("default", lease.id, b"3")


async def test_a_snooze_that_is_too_long_changes_nothing(rig: Rig):
    _, task, lease = await rig.started()
    with pytest.raises(InvalidInput):
        rig.runs.snooze("default", lease.id, 1e12)
    rig.runs.complete("default", lease.id, None)
    assert await task is None


async def test_a_run_that_was_not_started_cannot_end(rig: Rig):
    _, task = await rig.offer()
    (lease,) = await rig.take()
    with pytest.raises(Conflict, match="not started"):
        rig.runs.complete("default", lease.id, None)
    with pytest.raises(Conflict, match="not started"):
        rig.runs.heartbeat("default", lease.id, None)
    task.cancel()


async def test_a_started_lease_that_lapses_loses_the_worker(rig: Rig):
    _, task, lease = await rig.started()
    rig.clock.advance(LEASE_SEC - 1)
    assert rig.runs.expire() == 0
    assert rig.runs.heartbeat("default", lease.id, {"n": 1}) is None
    rig.clock.advance(LEASE_SEC - 1)
    assert rig.runs.expire() == 0
    rig.clock.advance(1)
    assert rig.runs.expire() == 1
    with pytest.raises(LeaseLost):
        rig.runs.complete("default", lease.id, None)
    with pytest.raises(LeaseLapsed):
        await task


async def test_an_unstarted_lease_that_lapses_interrupts_the_run(rig: Rig):
    run, task = await rig.offer()
    (lease,) = await rig.take()
    rig.clock.advance(LEASE_SEC)
    rig.runs.expire()
    with pytest.raises(LeaseLost):
        rig.runs.start("default", lease.id)
    with pytest.raises(Cancelled):
        await task
    assert run.stop_reason == INTERRUPTED


async def test_a_run_that_nobody_takes_waits_on_the_timeline(rig: Rig):
    _, task = await rig.offer()
    rig.clock.advance(UNTAKEN_SEC)
    assert rig.runs.expire() == 1
    with pytest.raises(Snooze) as snoozed:
        await task
    assert snoozed.value.seconds == UNTAKEN_WAIT_SEC
    assert await rig.take() == []


async def test_the_next_heartbeat_tells_a_stop_request(rig: Rig):
    run, task, lease = await rig.started()
    run.stop_reason = "CANCELLED"
    task.cancel()
    await eventually(lambda: rig.runs.heartbeat("default", lease.id, None) == "CANCELLED")
    assert run.context is not None
    assert run.context._observed
    rig.runs.fail("default", lease.id, Failure("T", "m"), 0, is_cancelled=True)
    with pytest.raises(Cancelled):
        await task


async def test_a_run_that_was_not_started_ends_at_its_stop_request(rig: Rig):
    run, task = await rig.offer()
    (lease,) = await rig.take()
    run.stop_reason = "CANCELLED"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(LeaseLost):
        rig.runs.start("default", lease.id)


async def test_an_abandoned_run_loses_its_lease(rig: Rig):
    run, task, lease = await rig.started()
    run.stop_reason = "CANCELLED"
    task.cancel()
    await eventually(lambda: rig.runs.heartbeat("default", lease.id, None) is not None)
    rig.runs.abandon(run)
    with pytest.raises(Cancelled):
        await task
    with pytest.raises(LeaseLost):
        rig.runs.complete("default", lease.id, None)


async def test_a_run_granted_to_a_closed_connection_is_offered_again(rig: Rig):
    waiting = asyncio.create_task(rig.take(wait_sec=20))
    await eventually(lambda: rig.runs.demand(POOL) == 1)
    rig.gone.set()
    assert await waiting == []
    _, task = await rig.offer()
    assert await rig.take() == []  # its client is gone
    rig.gone.clear()
    (lease,) = await rig.take()
    assert lease.dispatch.execution_id == "e1"
    task.cancel()


async def test_a_worker_has_a_bounded_number_of_runs(rig: Rig):
    tasks = [(await rig.offer(f"e{number}"))[1] for number in range(MAX_LEASES_OF_WORKER + 1)]
    assert len(await rig.take(limit=MAX_LEASES_OF_WORKER + 1)) == MAX_LEASES_OF_WORKER
    with pytest.raises(Conflict, match="complete some"):
        await rig.take()
    assert len(await rig.take(worker=RemoteWorker("default", "w2"))) == 1
    for task in tasks:
        task.cancel()


async def test_a_drain_answers_takes_and_returns_what_has_not_started(rig: Rig):
    waiting = asyncio.create_task(rig.runs.take(WORKER, POOL, frozenset(["other"]), 1, 20, rig.gone))
    _, started, lease = await rig.started()
    _, unstarted = await rig.offer("e2")
    await eventually(lambda: rig.clock.sleepers == 1)
    rig.runs.drain()
    assert await waiting == []
    with pytest.raises(Cancelled):
        await unstarted
    _, late = await rig.offer("e3")
    with pytest.raises(Cancelled):
        await late
    assert rig.runs.started == 1
    rig.runs.complete("default", lease.id, b"1")
    assert await started == b"1"


async def test_a_lease_of_another_process_is_refused_with_the_reason(rig: Rig):
    with pytest.raises(LeaseLost, match="did not give this lease"):
        rig.runs.start("default", "i-2.e1.1")
