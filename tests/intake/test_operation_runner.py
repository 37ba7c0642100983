"""Bulk operations run in the background, survive the death of a process, and stop by themselves or when asked."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from noonday.drivers.sql.operations import SqlOperations
from noonday.intake.dead_letter_service import DeadLetterService
from noonday.intake.execution_service import ExecutionService
from noonday.intake.job_service import JobService
from noonday.intake.operation_items import OperationItems
from noonday.intake.operation_runner import POSTPONED_MS, OperationRunner
from noonday.intake.operation_service import OperationService
from noonday.model.caller import Caller
from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Cause, Execution, Outcome
from noonday.model.ids import ExecutionId, TenantId
from noonday.model.job import Job, JobState
from noonday.model.message import Dispatch
from noonday.model.operation import LEASE_MS, OperationFilter, OperationKind, OperationRequest
from noonday.model.operation_view import OperationView
from noonday.ports.operations import Operations
from noonday.runtime.tracing import Tracing
from tests.intake.parts import ANN, STRANGER, Parts, parts_in_memory
from tests.support.factories import SECOND, TENANT, every, failure, job_id, report, spec

NO_SAMPLE: dict[str, Any] = {"sample_size": 0, "stop_above_percent": 100}
Kind = OperationKind


class Died(BaseException):
    """The process was killed."""


class Mortal(SqlOperations):
    """The store as a process sees it that dies at its nth write, before it or after it."""

    writes = 0
    dies_at = 0
    dies_before = False

    async def replace(self, *args: Any) -> bool:
        self.writes += 1
        if self.writes == self.dies_at and self.dies_before:
            raise Died
        answer = await super().replace(*args)
        if self.writes == self.dies_at:
            raise Died
        return answer


class World:
    """The services of operations over the parts of intake, as several processes may have them."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.service = OperationService(self.operations, self.items(), parts.receipts, parts.clock, job_id)

    @property
    def operations(self) -> Operations:
        return self.parts.store.operations

    def items(self) -> OperationItems:
        parts, store = self.parts, self.parts.store
        jobs = JobService(
            jobs=store.jobs,
            editor=parts.editor,
            sender=parts.sender,
            drafter=parts.drafter,
            quotas=parts.quotas,
            query_store=store.query_store,
            receipts=parts.receipts,
            presenter=parts.presenter,
            clock=parts.clock,
            tracing=Tracing(None),
            new_id=job_id,
        )
        executions = ExecutionService(
            editor=parts.editor,
            query_store=store.query_store,
            workload=store.workload,
            presenter=parts.presenter,
            blockers=parts.blockers,
            clock=parts.clock,
        )
        dead_letters = DeadLetterService(
            editor=parts.editor,
            receipts=parts.receipts,
            query_store=store.query_store,
            presenter=parts.presenter,
            clock=parts.clock,
        )
        return OperationItems(
            jobs=jobs,
            executions=executions,
            dead_letters=dead_letters,
            selection=store.selection,
            execution_search=store.execution_search,
            clock=parts.clock,
        )

    def runner(self, operations: Operations | None = None) -> OperationRunner:
        return OperationRunner(operations or self.operations, self.items(), self.parts.clock)

    async def start(self, kind: OperationKind, *, by: Caller = ANN, where: Any = None, **more: Any) -> OperationView:
        request = OperationRequest(kind=kind, filter=OperationFilter(**(where or {})), **more)
        return await self.service.create(by, request)

    async def get(self, of: OperationView, by: Caller = ANN) -> OperationView:
        return await self.service.get(by, of.id)

    async def finish(self, of: OperationView, *, steps: int = 100) -> OperationView:
        """Take steps, a second apart, until the operation has ended."""
        runner = self.runner()
        for _ in range(steps):
            await runner.run_once(self.parts.clock.now_ms())
            if (await self.get(of)).ended_at:
                return await self.get(of)
            self.parts.clock.advance(1)
        raise AssertionError(f"still running: {await self.get(of)}")

    async def run_for(self, steps: int, operations: Operations) -> None:
        for _ in range(steps):
            await self.runner(operations).run_once(self.parts.clock.now_ms())
            self.parts.clock.advance(1)

    async def state_of(self, job: Job) -> JobState:
        row = await self.parts.store.query_store.find_job(job.tenant, job.id)
        assert row is not None
        return row.job.state

    async def buried(self, count: int, **more: Any) -> list[Dispatch]:
        letters = [await self.parts.bury(await self.parts.add(spec(**more))) for _ in range(count)]
        self.parts.clock.advance(2)
        return letters

    async def retries(self) -> list[Execution]:
        store = self.parts.store
        jobs = await self.parts.crank.timeline()
        found = [await store.query_store.find_execution(TENANT, ExecutionId(each.key)) for each in jobs]
        return [each for each in found if each is not None and each.cause == Cause.RETRY_OF]

    async def audited(self, action: str) -> list[Any]:
        entries = await self.parts.store.settings_store.list_audit(
            TENANT, target=None, subject=None, after=None, limit=10_000
        )
        return [entry for _, entry in entries if entry.action == action]

    async def run_retries(self, outcome: Outcome) -> None:
        """Let the first attempt of the retries that are due end."""
        crank = self.parts.crank
        crank.now_ms = self.parts.clock.now_ms()
        for dispatch in (await crank.fire(await crank.due())).dispatches:
            bad = failure(retryable=False) if outcome is Outcome.FAILED else None
            await crank.settle(report(dispatch, outcome, failure=bad, tenant=TENANT))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with parts_in_memory() as parts:
        yield World(parts)


async def test_matching_jobs_are_paused_resumed_and_cancelled(world: World) -> None:
    jobs = [await world.parts.add(every(tags=("etl",))) for _ in range(3)]
    other = await world.parts.add(every())
    paused = await world.finish(await world.start(Kind.PAUSE_JOBS, where={"tag": "etl"}))
    assert (paused.state, paused.total, paused.done, paused.left) == ("DONE", 3, 3, 0)
    assert [await world.state_of(job) for job in (*jobs, other)] == [JobState.PAUSED] * 3 + [JobState.ACTIVE]
    await world.finish(await world.start(Kind.RESUME_JOBS))
    assert {await world.state_of(job) for job in (*jobs, other)} == {JobState.ACTIVE}
    await world.finish(await world.start(Kind.CANCEL_JOBS, where={"state": "ACTIVE"}))
    assert {await world.state_of(job) for job in (*jobs, other)} == {JobState.CANCELLED}


async def test_open_executions_are_cancelled(world: World) -> None:
    pending, running, ended = [await world.parts.add(spec()) for _ in range(3)]
    dispatches = [await world.parts.fire(each) for each in (pending, running, ended)]
    await world.parts.crank.settle(report(dispatches[1], Outcome.STARTED), report(dispatches[2]))
    done = await world.finish(await world.start(Kind.CANCEL_EXECUTIONS))
    assert (done.done, done.skipped, done.failed) == (2, 0, 0)
    rows = [
        await world.parts.store.query_store.find_execution(TENANT, dispatch.execution_id) for dispatch in dispatches
    ]
    assert [row.revocation for row in rows if row] == ["cancelled by ann", "cancelled by ann", None]


async def test_dead_letters_are_archived(world: World) -> None:
    await world.buried(3)
    assert (await world.finish(await world.start(Kind.ARCHIVE_DEAD_LETTERS))).done == 3
    assert (await world.finish(await world.start(Kind.ARCHIVE_DEAD_LETTERS))).total == 0


async def test_dead_letters_of_one_error_are_retried(world: World) -> None:
    (one,) = await world.buried(1)
    job = await world.parts.add(spec())
    await world.parts.bury(job, message="disk 7 full")
    world.parts.clock.advance(2)
    page = await world.parts.store.selection.dead_letters(TENANT, _everything(), None, 9, most=9)
    wanted = next(each for each in page.letters if each.message == "disk 7 full")
    started = await world.start(Kind.RETRY_DEAD_LETTERS, where={"fingerprint": wanted.fingerprint}, sample_size=0)
    assert (await world.finish(started)).done == 1
    assert [each.job_id for each in await world.retries()] == [job.id]
    assert one.job_id != job.id


def _everything() -> Any:
    from noonday.model.selection import DeadSelector

    return DeadSelector()


async def test_retries_wait_for_the_sample_and_then_go_on(world: World) -> None:
    await world.buried(8)
    started = await world.start(Kind.RETRY_DEAD_LETTERS)
    runner, clock = world.runner(), world.parts.clock
    for _ in range(5):
        await runner.run_once(clock.now_ms())
        clock.advance(2)
    assert (await world.get(started)).done == 5
    await world.run_retries(Outcome.SUCCEEDED)
    ended = await world.finish(started)
    assert (ended.state, ended.done, ended.runs_ended, ended.runs_failed) == ("DONE", 8, 5, 0)


async def test_retries_stop_by_themselves_if_the_sample_fails(world: World) -> None:
    await world.buried(8)
    started = await world.start(Kind.RETRY_DEAD_LETTERS)
    await world.runner().run_once(world.parts.clock.now_ms())
    world.parts.clock.advance(2)
    await world.run_retries(Outcome.FAILED)
    ended = await world.finish(started)
    assert (ended.state, ended.done, ended.runs_failed) == ("STOPPED", 5, 5)
    assert ended.stopped_because == "5 of the latest 5 results are failures, more than 20 %"
    (entry,) = await world.audited("operation.end")
    assert entry.detail["because"] == ended.stopped_because


async def test_the_rate_is_kept(world: World) -> None:
    await world.buried(5)
    started = await world.start(Kind.RETRY_DEAD_LETTERS, rate_per_sec=2, **NO_SAMPLE)
    runner, clock, done = world.runner(), world.parts.clock, []
    for _ in range(5):
        await runner.run_once(clock.now_ms())
        done.append((await world.get(started)).done)
        clock.advance(0.5)
    assert done == [2, 2, 4, 4, 5]


async def test_a_stop_ends_an_operation_after_its_batch(world: World) -> None:
    await world.buried(5)
    started = await world.start(Kind.RETRY_DEAD_LETTERS, rate_per_sec=2, **NO_SAMPLE)
    await world.runner().run_once(world.parts.clock.now_ms())
    stopped = await world.service.stop(ANN, started.id)
    world.parts.clock.advance(60)
    await world.runner().run_once(world.parts.clock.now_ms())
    ended = await world.get(started)
    assert (ended.state, ended.done, ended.stopped_because) == ("STOPPED", 2, "stopped by ann")
    assert (await world.service.stop(ANN, started.id)).ended_at == stopped.ended_at
    assert len(await world.retries()) == 2


async def test_a_stop_during_a_batch_keeps_its_counts(world: World) -> None:
    await world.buried(3)
    started = await world.start(Kind.RETRY_DEAD_LETTERS, **NO_SAMPLE)
    runner = world.runner(StoppedMeanwhile(world.parts.store.operations._sessions))
    await runner.run_once(world.parts.clock.now_ms())
    ended = await world.get(started)
    assert (ended.state, ended.done, ended.stopped_because) == ("STOPPED", 3, "stopped by bob")


class StoppedMeanwhile(SqlOperations):
    """The store as a process sees it while a user stops the operation during its first batch."""

    async def replace(self, operation: Any, *more: Any) -> bool:
        from noonday.model.operation import stopped

        answer = await super().replace(operation, *more)
        present = await self.find(operation.tenant, operation.id)
        if operation.batch and present:
            assert await super().replace(stopped(present, "stopped by bob", operation.created_ms))
        return answer


@pytest.mark.parametrize("dies_before", [True, False])
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4, 5])
async def test_an_operation_survives_the_death_of_its_process_and_does_nothing_twice(
    world: World, dies_at: int, dies_before: bool
) -> None:
    letters = await world.buried(5)
    started = await world.start(Kind.RETRY_DEAD_LETTERS, rate_per_sec=3, **NO_SAMPLE)
    mortal = Mortal(world.parts.store.operations._sessions)
    mortal.dies_at, mortal.dies_before = dies_at, dies_before
    with pytest.raises(Died):
        await world.run_for(20, mortal)
    ended = await world.finish(started, steps=LEASE_MS // SECOND + 10)
    assert (ended.state, ended.done, ended.skipped, ended.failed) == ("DONE", 5, 0, 0)
    assert sorted(each.retry_of or "" for each in await world.retries()) == sorted(
        each.execution_id for each in letters
    )
    assert len(await world.audited("dead.retry")) == 5


async def test_a_batch_that_died_in_the_middle_is_repeated_without_repeating_its_items(world: World) -> None:
    await world.buried(3)
    started = await world.start(Kind.RETRY_DEAD_LETTERS, **NO_SAMPLE)
    items, done = world.items(), 0
    one_by_one = items._acts[Kind.RETRY_DEAD_LETTERS]

    async def dies_after_two(*args: Any) -> object:
        nonlocal done
        answer = await one_by_one(*args)
        done += 1
        if done == 2:
            raise Died
        return answer

    items._acts[Kind.RETRY_DEAD_LETTERS] = dies_after_two
    with pytest.raises(Died):
        await OperationRunner(world.operations, items, world.parts.clock).run_once(world.parts.clock.now_ms())
    assert (await world.get(started)).done == 0
    assert await world.runner().run_once(world.parts.clock.now_ms()) == 0
    world.parts.clock.advance(LEASE_MS / 1000)
    assert (await world.finish(started)).done == 3
    assert len(await world.retries()) == 3


async def test_two_processes_do_not_take_the_same_batch(world: World) -> None:
    await world.buried(3)
    started = await world.start(Kind.RETRY_DEAD_LETTERS, **NO_SAMPLE)
    (present,) = await world.operations.due(world.parts.clock.now_ms(), 9)
    await world.runner()._step(present)
    await world.runner()._step(present)
    assert (await world.get(started)).done == 3
    assert len(await world.audited("dead.retry")) == 3


async def test_a_batch_is_repeated_later_if_the_signals_are_unavailable(world: World) -> None:
    jobs = [await world.parts.add(spec()) for _ in range(2)]
    for each in jobs:
        await world.parts.fire(each)
    other = await world.start(Kind.CANCEL_JOBS, by=STRANGER)
    started = await world.start(Kind.CANCEL_EXECUTIONS)
    signals, revoke = world.parts.signals, world.parts.signals.revoke

    async def away(*args: Any) -> None:
        raise SignalsUnavailable("redis is away")

    signals.revoke = away  # type: ignore[method-assign]
    await world.runner().run_once(world.parts.clock.now_ms())
    assert (await world.get(started)).done == 0
    assert (await world.get(other, STRANGER)).state == "RUNNING" or (await world.get(other, STRANGER)).done == 0
    signals.revoke = revoke  # type: ignore[method-assign]
    world.parts.clock.advance(POSTPONED_MS / 1000)
    assert (await world.finish(started)).done == 2


async def test_items_that_changed_in_the_meantime_are_skipped(world: World) -> None:
    await world.buried(2)
    started = await world.start(Kind.RETRY_DEAD_LETTERS, **NO_SAMPLE)
    (present,) = await world.operations.due(world.parts.clock.now_ms(), 9)
    letters = await world.items().find(present, 9)
    await world.items()._acts[Kind.ARCHIVE_DEAD_LETTERS](ANN, letters.items[0].id, None)  # type: ignore[arg-type]
    ended = await world.finish(started)
    assert (ended.total, ended.done) == (2, 1)


async def test_changes_of_an_operation_are_audited_with_its_author_and_its_id(world: World) -> None:
    job = await world.parts.add(every())
    started = await world.finish(await world.start(Kind.PAUSE_JOBS))
    (change,) = await world.audited("job.pause")
    assert (change.subject, change.target, change.detail) == ("ann", job.id, {"operationId": started.id})
    (create,), (end,) = await world.audited("operation.create"), await world.audited("operation.end")
    assert (create.subject, create.detail) == ("ann", {"kind": "PAUSE_JOBS", "filter": {}, "total": 1})
    assert (end.detail["state"], end.detail["done"]) == ("DONE", 1)


async def test_an_operation_changes_nothing_of_another_tenant(world: World) -> None:
    mine = await world.parts.add(every())
    theirs = await world.parts.add(every(), tenant=TenantId("globex"))
    await world.finish(await world.start(Kind.CANCEL_JOBS))
    assert (await world.state_of(mine), await world.state_of(theirs)) == (JobState.CANCELLED, JobState.ACTIVE)


async def test_the_trouble_of_one_tenant_keeps_no_other_waiting(world: World) -> None:
    mine, theirs = [await world.parts.add(spec(), tenant=TenantId(name)) for name in (TENANT, "globex")]
    for each in (mine, theirs):
        await world.parts.fire(each)
    started = await world.start(Kind.CANCEL_EXECUTIONS)
    other = await world.start(Kind.CANCEL_EXECUTIONS, by=STRANGER)
    items, cancel = world.items(), world.items()._acts[Kind.CANCEL_EXECUTIONS]

    async def away(caller: Caller, *args: Any) -> object:
        if caller.tenant == TENANT:
            raise SignalsUnavailable("redis is away")
        return await cancel(caller, *args)

    items._acts[Kind.CANCEL_EXECUTIONS] = away
    assert await OperationRunner(world.operations, items, world.parts.clock).run_once(world.parts.clock.now_ms()) == 2
    assert ((await world.get(started)).done, (await world.get(other, STRANGER)).done) == (0, 1)


async def test_a_loop_waits_until_the_next_operation_is_due(world: World) -> None:
    wait = world.runner().wait()
    assert await wait() == 1.0
    await world.buried(2)
    await world.start(Kind.RETRY_DEAD_LETTERS, rate_per_sec=4, **NO_SAMPLE)
    assert await wait() == 0.0
    await world.runner().run_once(world.parts.clock.now_ms())
    assert await wait() == 0.5
