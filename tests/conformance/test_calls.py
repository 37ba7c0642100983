"""Executions that call webhooks, over all tasks, and the dead letters they leave."""

from typing import Any

import msgspec
import pytest

from noonday.intake import edits
from noonday.intake.edits import Resend
from noonday.model.change import Change
from noonday.model.execution import Cause, Execution, Outcome, State
from noonday.model.filters import CallFilter, DeadFilterQuery
from noonday.model.ids import ExecutionId, TenantId
from noonday.model.job import Job, JobSpec, JobState, Overlap, Target
from noonday.model.retention import Retention
from noonday.model.retry import RetryPolicy
from noonday.model.snapshot import Snapshot
from noonday.model.tasks.wire import HANDLER, POOL
from noonday.ports.queries import QueryStore
from noonday.tasks.translating import to_job_spec
from tests.support.crank import Crank
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, SECOND, TENANT, audit, every, failure, job, report, spec
from tests.tasks.requests import decoded

HERE, THERE = "https://here.example:443", "http://there.example:80"
MOST = 1000
KEPT = Retention(DAY, DAY, DAY, DAY, DAY, DAY, DAY, DAY)


def once(endpoint: str | None = HERE, **fields: Any) -> JobSpec:
    target = Target(POOL, HANDLER, endpoint)
    return spec(**{"target": target, "retry_policy": RetryPolicy(max_attempts=1), **fields})


def recurring(**fields: Any) -> JobSpec:
    return every(**{"target": Target(POOL, HANDLER, HERE), "retry_policy": RetryPolicy(max_attempts=1), **fields})


async def run_all(crank: Crank, outcome: Outcome = Outcome.SUCCEEDED, message: str = "boom") -> list[ExecutionId]:
    """Fire and settle everything that is due."""
    dispatches = (await crank.fire()).dispatches
    bad = failure(message) if outcome is Outcome.FAILED else None
    await crank.settle(*(report(each, outcome, failure=bad) for each in dispatches))
    return [each.execution_id for each in dispatches]


async def run_for(crank: Crank, minutes: int, outcome: Outcome = Outcome.SUCCEEDED) -> list[ExecutionId]:
    """Fire and settle due executions minute by minute, oldest first."""
    ran = []
    for minute in range(minutes):
        crank.now_ms = NOW_MS + minute * MINUTE
        ran += await run_all(crank, outcome)
    return ran


async def found(
    query_store: QueryStore, after: str | None = None, *, tenant: TenantId = TENANT, **where: Any
) -> list[str]:
    page = await query_store.list_calls(tenant, CallFilter(**where), after, MOST, MOST)
    assert page.next is None
    return [call.execution.id for call in page.calls]


async def dead(query_store: QueryStore, **where: Any) -> list[str]:
    query = DeadFilterQuery(is_task=True, **where)
    return [letter.execution.id for letter in await query_store.list_dead(TENANT, query, None, MOST)]


def again(execution: Execution, name: str, **fields: Any) -> Resend:
    new = ExecutionId(f"{execution.id[:24]}{name:0>12}")
    return Resend(execution, new, **{"revision": execution.revision, **fields})


async def run_again(crank: Crank, of: Job, *wanted: Resend) -> list[Execution]:
    """Create the resent executions, and return them, oldest first."""
    new = [each.new for each in wanted]
    applied = await crank.change(of, lambda before: edits.run_again(before, wanted, crank.now_ms, audit()), show=new)
    return [row for row in applied.after.executions if row.id in new]


async def test_calls_of_all_tasks_are_found_newest_first(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(job(recurring()), job(recurring()))
    ran = await run_for(crank, 3)
    assert await found(query_store) == sorted(ran, reverse=True)
    assert len(ran) == 6


async def test_only_calls_of_live_tasks_of_the_tenant_are_found(crank: Crank, query_store: QueryStore) -> None:
    task, cancelled, other = job(once()), job(once()), job(once(), tenant=TenantId("other"))
    await crank.add(task, cancelled, other, job(spec()), job(once(None)), job(spec(target=Target(POOL, "load", HERE))))
    await run_all(crank)
    await crank.change(cancelled, lambda before: edits.delete(before, crank.now_ms, audit()))
    (mine,) = await found(query_store)
    assert (await crank.look(ExecutionId(mine))).job_id == task.id
    assert len(await found(query_store, tenant=TenantId("other"))) == 1


async def test_calls_are_found_by_task_endpoint_state_and_time(crank: Crank, query_store: QueryStore) -> None:
    here, there = job(recurring()), job(recurring(target=Target(POOL, HANDLER, THERE)))
    await crank.add(here, there)
    ran = await run_for(crank, 2)
    crank.now_ms = NOW_MS + 2 * MINUTE
    bad = await run_all(crank, Outcome.FAILED)
    of_there = [each.id for each in await crank.all_of(there)]
    assert await found(query_store, job_id=there.id) == of_there[::-1]
    assert await found(query_store, endpoint=THERE) == of_there[::-1]
    assert await found(query_store, job_id=here.id, endpoint=THERE) == []
    assert await found(query_store, endpoint="https://nowhere.example:443") == []
    assert await found(query_store, state="DEAD") == sorted(bad, reverse=True)
    assert await found(query_store, state="SUCCEEDED") == sorted(ran, reverse=True)
    assert await found(query_store, job_id=there.id, state="DEAD") == of_there[2:]
    assert await found(query_store, since_ms=NOW_MS + MINUTE, until_ms=NOW_MS + 2 * MINUTE) == sorted(
        ran[2:], reverse=True
    )
    assert await found(query_store, job_id=there.id, since_ms=NOW_MS + 2 * MINUTE) == of_there[2:]
    assert await found(query_store, until_ms=NOW_MS) == []


async def test_calls_come_in_pages(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(job(recurring()))
    newest_first = (await run_for(crank, 5))[::-1]
    page = await query_store.list_calls(TENANT, CallFilter(), None, 2, MOST)
    assert ([call.execution.id for call in page.calls], page.next) == (newest_first[:2], newest_first[1])
    rest = await query_store.list_calls(TENANT, CallFilter(), page.next, 3, MOST)
    assert ([call.execution.id for call in rest.calls], rest.next) == (newest_first[2:], None)


@pytest.mark.parametrize("by_task", [False, True])
async def test_query_examines_no_more_rows_than_its_limit(crank: Crank, query_store: QueryStore, by_task: bool) -> None:
    task = job(recurring())
    await crank.add(task)
    bad = await run_all(crank, Outcome.FAILED)
    crank.now_ms += MINUTE
    good = [*await run_all(crank), *(await _next_minute(crank)), *(await _next_minute(crank))]
    where = CallFilter(state="DEAD", job_id=task.id if by_task else None)
    first = await query_store.list_calls(TENANT, where, None, MOST, 2)
    assert (first.calls, first.next) == ([], good[1])
    second = await query_store.list_calls(TENANT, where, first.next, MOST, 2)
    assert ([call.execution.id for call in second.calls], second.next) == (bad, bad[0])
    assert await query_store.list_calls(TENANT, where, second.next, MOST, 2) == ([], None)


async def _next_minute(crank: Crank) -> list[ExecutionId]:
    crank.now_ms += MINUTE
    return await run_all(crank)


async def test_calls_are_found_by_their_ids(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(job(once()), job(spec()), job(once(), tenant=TenantId("other")))
    ran = await run_all(crank)
    known = await query_store.find_calls(TENANT, [*ran, "no such thing"])
    (call,) = known.values()
    assert call.execution == await crank.look(call.execution.id)
    assert (call.died_ms, call.archived, call.retried_as, call.resolved_ms) == (None, False, None, None)
    assert await query_store.find_calls(TENANT, []) == {}


async def test_call_shows_the_resolution_of_its_dead_letter(crank: Crank, query_store: QueryStore) -> None:
    task = job(once())
    await crank.add(task)
    (bad,) = await run_all(crank, Outcome.FAILED)
    (open_,) = (await query_store.find_calls(TENANT, [bad])).values()
    assert (open_.archived, open_.retried_as, open_.resolved_ms) == (False, None, None)
    assert open_.died_ms == crank.now_ms
    crank.now_ms += HOUR
    entry = msgspec.structs.replace(audit(), at_ms=crank.now_ms)
    await crank.change(task, lambda before: edits.archive_dead(bad, entry))
    (call,) = (await query_store.find_calls(TENANT, [bad])).values()
    assert (call.archived, call.retried_as, call.resolved_ms) == (True, None, crank.now_ms)
    (letter,) = await query_store.list_dead(TENANT, DeadFilterQuery(archived=True), None, 10)
    assert (letter.archived, letter.resolved_ms) == (True, crank.now_ms)


# Definitions


async def test_definition_of_a_job_is_read_at_its_revision(crank: Crank, query_store: QueryStore) -> None:
    task = job(recurring(name="report"), payload=b"first")
    await crank.add(task)
    await crank.fire()
    await crank.change(task, _replaced(recurring(name="report", target=Target(POOL, HANDLER, THERE)), b"second"))
    definitions = await query_store.definitions(TENANT, [(task.id, 1), (task.id, 2), (job().id, 1)])
    assert {key: (one.endpoint, one.revision, one.payload) for key, one in definitions.items()} == {
        (task.id, 1): (HERE, 1, b"first"),
        (task.id, 2): (THERE, 2, b"second"),
    }
    first = definitions[task.id, 1]
    assert first.name == "report"
    assert (first.pool, first.handler, first.state) == (POOL, HANDLER, JobState.ACTIVE)
    assert await query_store.definitions(TenantId("other"), [(task.id, 1)]) == {}


async def test_pruned_definition_is_replaced_by_the_present_one(crank: Crank, query_store: QueryStore) -> None:
    task = job(recurring(), payload=b"first")
    await crank.add(task)
    await run_all(crank)
    await crank.change(task, _replaced(recurring(), b"second"))
    while await crank.store.executions.prune(KEPT, crank.now_ms, 100):
        pass
    definitions = await query_store.definitions(TENANT, [(task.id, 1)])
    assert (definitions[task.id, 1].revision, definitions[task.id, 1].payload) == (2, b"second")


def _replaced(spec: JobSpec, payload: bytes) -> Any:
    return lambda before: edits.replace(before, spec, payload, NOW_MS + SECOND, None)


# Running again


async def test_an_execution_that_ended_runs_again_as_it_was(crank: Crank) -> None:
    task = job(recurring(), payload=b"first")
    await crank.add(task)
    (first,) = await run_all(crank)
    await crank.change(task, _replaced(recurring(), b"second"))
    was = await crank.look(first)
    crank.now_ms += 2 * SECOND
    (new,) = await run_again(crank, task, again(was, "a"))
    assert (new.state, new.revision, new.retry_of, new.cause) == (State.PENDING, 1, first, Cause.RETRY_OF)
    assert (new.nominal_ms, new.due_ms) == (was.nominal_ms, crank.now_ms)
    dispatch = await crank.fire_one()
    assert (dispatch.execution_id, dispatch.payload) == (new.id, b"first")


async def test_execution_that_runs_again_already_is_not_resent(crank: Crank) -> None:
    task = job(once())
    await crank.add(task)
    (first,) = await run_all(crank)
    was = await crank.look(first)
    await run_again(crank, task, again(was, "a"))
    applied = await crank.change(task, lambda before: edits.run_again(before, [again(was, "a")], NOW_MS, audit()))
    assert applied.created == 0
    assert len(await crank.all_of(task)) == 2


async def test_a_dead_letter_that_runs_again_is_dealt_with(crank: Crank, query_store: QueryStore) -> None:
    task = job(once())
    await crank.add(task)
    (bad,) = await run_all(crank, Outcome.FAILED)
    (new,) = await run_again(crank, task, again(await crank.look(bad), "a", resolves=True))
    (call,) = (await query_store.find_calls(TENANT, [bad])).values()
    assert (call.retried_as, call.archived, call.resolved_ms) == (new.id, False, crank.now_ms)
    assert await dead(query_store) == []


@pytest.mark.parametrize(
    ("overlap", "waiting"), [(Overlap.ALLOW, [0, 0, 0]), (Overlap.BUFFER_ALL, [0, 1, 1]), (Overlap.SKIP, [0, 1, 1])]
)
async def test_one_after_the_other_unless_overlap_is_allowed(
    crank: Crank, overlap: Overlap, waiting: list[int]
) -> None:
    task = job(recurring(overlap=overlap))
    await crank.add(task)
    await run_for(crank, 3)
    ended = await crank.all_of(task)
    made = await run_again(crank, task, *(again(each, "a") for each in reversed(ended)))
    assert [each.buffered for each in made] == waiting


async def test_resend_does_not_wait_for_an_execution_that_was_resent_before(crank: Crank) -> None:
    task = job(recurring(overlap=Overlap.BUFFER_ALL))
    await crank.add(task)
    first, second = [await crank.look(each) for each in await run_for(crank, 2)]
    await run_again(crank, task, again(first, "a"))
    await run_all(crank)
    await run_again(crank, task, again(first, "a"), again(second, "b"))
    assert (await crank.fire_one()).nominal_ms == second.nominal_ms


async def test_a_cancelled_job_runs_nothing_again(crank: Crank) -> None:
    task = job(once())
    await crank.add(task)
    (first,) = await run_all(crank)
    was = await crank.look(first)

    def decide(before: Snapshot) -> Change:
        return edits.run_again(before, [again(was, "a")], crank.now_ms, audit())

    await crank.change(task, lambda before: edits.delete(before, crank.now_ms, audit()))
    with pytest.raises(edits.Conflict):
        await crank.change(task, decide)
    assert len(await crank.all_of(task)) == 1


# Calls in order


@pytest.mark.slow
async def test_a_call_in_order_waits_until_the_attempts_of_the_one_before_are_over(crank: Crank) -> None:
    retry = {"max_attempts": 3, "backoff": "FIXED", "initial_delay_ms": 5 * MINUTE}
    wanted = decoded(cron_expression="* * * * *", ordered=True, retry=retry)
    task = job(to_job_spec(wanted, NOW_MS))
    await crank.add(task)
    made: list[tuple[int, int]] = []
    """(minute of the occurrence, attempt), in the order of the calls."""
    for _ in range(60):
        for dispatch in (await crank.fire()).dispatches:
            minute = (dispatch.nominal_ms - NOW_MS) // MINUTE
            made.append((minute, dispatch.attempt))
            bad = minute == 0 or (minute == 1 and dispatch.attempt == 1)
            outcome = Outcome.FAILED if bad else Outcome.SUCCEEDED
            at = {"started_ms": crank.now_ms, "ended_ms": crank.now_ms + 1}
            await crank.settle(report(dispatch, outcome, failure=failure() if bad else None, **at))
        crank.now_ms += 30 * SECOND
    assert made[:5] == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    assert made[5:8] == [(2, 1), (3, 1), (4, 1)]


async def test_a_call_in_order_that_is_sent_again_has_its_turn_before_later_ones(crank: Crank) -> None:
    task = job(recurring(overlap=Overlap.BUFFER_ALL))
    await crank.add(task)
    (first,) = await run_all(crank)
    crank.now_ms += MINUTE
    second = await crank.fire_one()
    crank.now_ms += MINUTE
    assert (await crank.fire()).dispatches == ()
    (again_,) = await run_again(crank, task, again(await crank.look(first), "a"))
    await crank.settle(report(second))
    assert (await crank.fire_one()).execution_id == again_.id


# Dead letters


async def test_dead_letters_of_tasks_are_found_by_endpoint_and_error(crank: Crank, query_store: QueryStore) -> None:
    await crank.add(job(once()))
    (slow,) = await run_all(crank, Outcome.FAILED, "TIMEOUT: nothing came")
    await crank.add(job(once(THERE)))
    (away,) = await run_all(crank, Outcome.FAILED, "answered 503")
    await crank.add(job(spec(retry_policy=RetryPolicy(max_attempts=1))), job(once(None)))
    await run_all(crank, Outcome.FAILED, "no task")
    assert await dead(query_store) == sorted([slow, away], reverse=True)
    assert await dead(query_store, endpoint=THERE) == [away]
    assert await dead(query_store, error="timeout") == [slow]
    assert await dead(query_store, error="answered 503", endpoint=HERE) == []
    assert len(await query_store.list_dead(TENANT, DeadFilterQuery(), None, MOST)) == 4


async def test_archived_dead_letters_of_tasks_are_found_by_the_same(crank: Crank, query_store: QueryStore) -> None:
    here, there = job(once()), job(once(THERE))
    await crank.add(here, there)
    await run_all(crank, Outcome.FAILED)
    for each in (here, there):
        (execution,) = await crank.all_of(each)
        await crank.change(each, edits.archive_dead(execution.id, audit()))
    (of_there,) = await crank.all_of(there)
    assert await dead(query_store, archived=True, endpoint=THERE, error="BOOM") == [of_there.id]
    assert await dead(query_store, archived=True, error="nothing of the kind") == []
    assert await dead(query_store) == []
