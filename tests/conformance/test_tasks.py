"""Tasks are listed, each under the status that `status_of` gives it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import pytest

from noonday.model.change import Change, NewExecution
from noonday.model.execution import Cause, Outcome, State
from noonday.model.firing import Fire
from noonday.model.ids import JobId, TenantId, execution_id
from noonday.model.job import Job, JobSpec, JobState, Target
from noonday.model.retry import RetryPolicy
from noonday.model.snapshot import Snapshot
from noonday.model.tasks.wire import HANDLER, POOL, TaskStatus
from noonday.ports.queries import QueryStore
from noonday.tasks.viewing import row_of, status_of
from tests.support.crank import Crank
from tests.support.factories import DAY, MINUTE, NOW_MS, SECOND, TENANT, every, failure, instant, job, report, spec

TARGET = Target(POOL, HANDLER, "https://api.example.com:443")
OTHER = TenantId("other")
MOST = 1000


def once(**fields: Any) -> JobSpec:
    return spec(**{"target": TARGET, "retry_policy": RetryPolicy(max_attempts=1), **fields})


def recurring(**fields: Any) -> JobSpec:
    return every(**{"target": TARGET, "retry_policy": RetryPolicy(max_attempts=1), **fields})


async def listed(query_store: QueryStore, status: str | None = None, offset: int = 0, limit: int = MOST) -> list[JobId]:
    return [task.row.job.id for task in await query_store.list_tasks(TENANT, status, offset, limit)]


async def statuses(query_store: QueryStore, ids: Iterable[JobId]) -> dict[JobId, TaskStatus]:
    """The status of each task, computed from the rows of its job alone; cancelled tasks have none."""
    found = {}
    for id_ in ids:
        row = await query_store.find_job(TENANT, id_)
        assert row is not None
        if row.job.state is not JobState.CANCELLED:
            latest = await query_store.list_executions(TENANT, id_, state=None, after=None, limit=100)
            found[id_] = status_of(row_of(row, latest))
    return found


async def test_tasks_are_listed_newest_first_and_by_number(crank: Crank, query_store: QueryStore) -> None:
    tasks = [job(once()) for _ in range(5)]
    await crank.add(*tasks)
    newest_first = [task.id for task in reversed(tasks)]
    assert await listed(query_store) == newest_first
    assert await listed(query_store, offset=1, limit=2) == newest_first[1:3]
    assert await listed(query_store, "SCHEDULED", offset=3) == newest_first[3:]
    assert await listed(query_store, offset=5) == []


async def test_only_live_jobs_of_the_tenant_that_call_webhooks_are_tasks(crank: Crank, query_store: QueryStore) -> None:
    task, cancelled = job(once()), job(once())
    others = [Target("etl", HANDLER, TARGET.endpoint), Target(POOL, "load", TARGET.endpoint), Target(POOL, HANDLER)]
    await crank.add(task, cancelled, *(job(once(target=target)) for target in others), job(once(), tenant=OTHER))
    await crank.change(cancelled, stop(JobState.CANCELLED))
    assert await listed(query_store) == [task.id]
    assert await query_store.count_tasks(TENANT, None, MOST) == 1


async def test_tasks_are_counted_no_further_than_asked_for(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(*(job(once()) for _ in range(3)))
    assert [await query_store.count_tasks(TENANT, None, most) for most in (2, 3, 4)] == [2, 3, 3]
    assert [await query_store.count_tasks(TENANT, "SCHEDULED", most) for most in (2, 4)] == [2, 3]
    assert await query_store.count_tasks(TENANT, "PAUSED", MOST) == 0


async def test_a_task_comes_with_its_job_its_time_and_its_latest_execution(
    crank: Crank, query_store: QueryStore
) -> None:
    task = job(recurring(retry_policy=RetryPolicy(max_attempts=2)))
    await crank.add(task)
    (fresh,) = await query_store.list_tasks(TENANT, None, 0, MOST)
    assert (fresh.row.job, fresh.row.fire, fresh.row.open) == (task, Fire(NOW_MS, NOW_MS), False)
    assert (fresh.running, fresh.latest) == (False, None)
    await crank.fire()
    second = await crank.fire_one(at_ms=NOW_MS + MINUTE)
    await crank.settle(report(second, Outcome.STARTED))
    (busy,) = await query_store.list_tasks(TENANT, None, 0, MOST)
    assert (busy.row.open, busy.running, busy.latest) == (True, True, await crank.look(second))
    await crank.settle(report(second, Outcome.FAILED, failure=failure()))
    (waiting,) = await query_store.list_tasks(TENANT, None, 0, MOST)
    assert waiting.latest == await crank.look(second)
    assert waiting.latest is not None
    assert (waiting.running, waiting.latest.waits_until_ms is not None) == (False, True)


@dataclass(frozen=True)
class Case:
    kind: str
    outcome: str
    edit: str


SPECS = {"once": once(), "for ever": recurring(), "for the last time": recurring(max_runs=1)}
OUTCOMES = {
    "not yet": None,
    "dispatched": None,
    "started": Outcome.STARTED,
    "succeeded": Outcome.SUCCEEDED,
    "failed": Outcome.FAILED,
    "died": Outcome.FAILED,
    "was cancelled": Outcome.CANCELLED,
    "expired": Outcome.EXPIRED,
}
EDITS = {
    "": None,
    "paused": (JobState.PAUSED, None),
    "halted": (JobState.PAUSED, "the receiver answered 410"),
    "cancelled": (JobState.CANCELLED, None),
}
CASES = [Case(*case) for case in product(SPECS, OUTCOMES, EDITS)]


def stop(state: JobState, halted: str | None = None) -> Any:
    def decide(before: Snapshot) -> Change:
        fire = msgspec.structs.replace(before.fire, due_ms=None) if before.fire else None
        return Change(job=msgspec.structs.replace(before.job, state=state, halted=halted), fire=fire)

    return decide


def job_of(case: Case) -> Job:
    chosen = SPECS[case.kind]
    if case.outcome == "failed":
        chosen = msgspec.structs.replace(chosen, retry_policy=RetryPolicy(max_attempts=2))
    if case.outcome == "not yet" and chosen.one_shot:
        chosen = msgspec.structs.replace(chosen, run_at=instant(NOW_MS + DAY))
    elif case.outcome == "not yet":
        chosen = msgspec.structs.replace(chosen, start_at=instant(NOW_MS + DAY))
    return job(chosen)


async def play(crank: Crank) -> dict[JobId, Case]:
    """Create a task for each case, and bring it into its state."""
    tasks = {case: job_of(case) for case in CASES}
    cases = {task.id: case for case, task in tasks.items()}
    await crank.add(*tasks.values())
    dispatches = {dispatch.job_id: dispatch for dispatch in (await crank.fire()).dispatches}
    reports = [
        report(dispatch, outcome, failure=failure() if outcome is Outcome.FAILED else None)
        for id_, dispatch in dispatches.items()
        if (outcome := OUTCOMES[cases[id_].outcome]) is not None
    ]
    await crank.settle(*reports)
    for case, task in tasks.items():
        if (edit := EDITS[case.edit]) is not None:
            await crank.change(task, stop(*edit))
    return cases


async def test_each_task_is_listed_under_its_status_and_no_other(crank: Crank, query_store: QueryStore) -> None:
    cases = await play(crank)
    expected = await statuses(query_store, cases)
    assert set(expected.values()) == set(TaskStatus)
    for status in TaskStatus:
        ids = [id_ for id_, its in expected.items() if its is status]
        assert [cases[id_] for id_ in await listed(query_store, status)] == [cases[id_] for id_ in reversed(ids)]
        assert await query_store.count_tasks(TENANT, status, MOST) == len(ids)
    assert await query_store.count_tasks(TENANT, None, MOST) == len(expected)


@pytest.mark.slow
async def test_status_of_a_task_follows_from_its_list_row(crank: Crank, query_store: QueryStore) -> None:
    expected = await statuses(query_store, await play(crank))
    found = {task.row.job.id: status_of(task) for task in await query_store.list_tasks(TENANT, None, 0, MOST)}
    assert found == expected


@pytest.mark.parametrize(("then", "status"), [(Outcome.SUCCEEDED, "COMPLETED"), (Outcome.FAILED, "FAILED")])
async def test_a_dead_letter_that_was_retried_counts_as_its_retry_ended(
    crank: Crank, query_store: QueryStore, then: Outcome, status: str
) -> None:
    tasks = [job(once()) for _ in range(5)]
    await crank.add(*tasks)
    for dead in (await crank.fire()).dispatches:
        await crank.settle(report(dead, Outcome.FAILED, failure=failure()))
        name = execution_id(dead.job_id, NOW_MS, "retry:1")
        retry = NewExecution(name, NOW_MS, NOW_MS, Cause.RETRY_OF, False, dead.execution_id)
        task = next(task for task in tasks if task.id == dead.job_id)
        await crank.change(task, Change(executions=(retry,), dead=((dead.execution_id, name),)))
        again = await crank.fire_one(at_ms=crank.now_ms + SECOND)
        why = failure() if then is Outcome.FAILED else None
        await crank.settle(report(again, then, failure=why, ended_ms=NOW_MS + MINUTE))
    assert len(await listed(query_store, status)) == len(tasks)
    rows = await query_store.list_tasks(TENANT, None, 0, MOST)
    assert {status_of(row) for row in rows} == {TaskStatus(status)}
    ended = {row.latest.state for row in rows if row.latest}
    assert ended == {State.SUCCEEDED if then is Outcome.SUCCEEDED else State.DEAD}
