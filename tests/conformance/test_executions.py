import json

import msgspec
import pytest

from noonday.intake import edits
from noonday.model.change import Change, NewExecution
from noonday.model.errors import StaleEpoch
from noonday.model.execution import KEPT_DISPATCHES, Cause, Execution, Failure, Outcome, State
from noonday.model.firing import Fire, Kind
from noonday.model.ids import TenantId, WorkerId, execution_id
from noonday.model.job import Concurrency, Job, JobSpec, JobState, Overlap, Target
from noonday.model.message import Beat, Bye, Dispatch, HandlerInfo, Report, RunProgress
from noonday.model.receipt import Receipt
from noonday.model.recording import Checkpoint
from noonday.model.retention import Retention
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.view import PoolSettings
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing
from noonday.ports.jobs import Jobs
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.ports.workload import Workload
from tests.support.crank import GENERATION, Crank, is_path, states_through
from tests.support.factories import (
    DAY,
    HANDLER,
    HOUR,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    WORKER,
    audit,
    dispatch,
    every,
    failure,
    hello,
    instant,
    job,
    report,
    spec,
)

OTHER = WorkerId("w-2")
AT_ONCE = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=0)
PLAIN = spec(retry_policy=AT_ONCE)
WATCHED = spec(retry_policy=AT_ONCE, overlap=Overlap.BUFFER_ALL)
KEYED = spec(retry_policy=AT_ONCE, concurrency=Concurrency("db", 1))
each_kind = pytest.mark.parametrize("kind", [PLAIN, WATCHED, KEYED], ids=["plain", "overlap", "key"])
"""A driver may settle simple executions in another way than those that others wait for."""


async def fired(crank: Crank, of: JobSpec = PLAIN) -> Dispatch:
    await crank.add(job(of))
    return await crank.fire_one()


async def test_store_has_no_checkpoint_before_the_first_batch(executions: Executions) -> None:
    assert await executions.find_checkpoint(0) is None


async def test_checkpoint_moves_with_the_batch(crank: Crank, executions: Executions) -> None:
    dispatch = await fired(crank)
    first, second = Checkpoint(0, "a", 10, NOW_MS), Checkpoint(0, "a", 11, NOW_MS + 5)
    await executions.settle([], [], was=None, now=first, now_ms=NOW_MS)
    assert await executions.find_checkpoint(0) == first
    await executions.settle([report(dispatch)], [], was=first, now=second, now_ms=NOW_MS)
    assert await executions.find_checkpoint(0) == second
    assert await executions.find_checkpoint(1) is None


@pytest.mark.parametrize(
    "was",
    [None, Checkpoint(0, "a", 9, 0), Checkpoint(0, "b", 10, 0), Checkpoint(1, "a", 10, 0)],
    ids=["never recorded", "another offset", "another generation", "another partition"],
)
async def test_recorder_with_a_stale_checkpoint_changes_nothing(
    crank: Crank, executions: Executions, workload: Workload, was: Checkpoint | None
) -> None:
    dispatch = await fired(crank)
    present = Checkpoint(0, "a", 10, NOW_MS)
    await executions.settle([], [], was=None, now=present, now_ms=NOW_MS)
    with pytest.raises(StaleEpoch):
        await executions.settle(
            [report(dispatch)],
            [hello("w-9")],
            was=was,
            now=Checkpoint(was.partition if was else 0, "a", 20, NOW_MS),
            now_ms=NOW_MS,
        )
    assert (await crank.look(dispatch)).state is State.PENDING
    assert await workload.list_workers() == []
    assert await executions.find_checkpoint(0) == present


async def test_a_batch_cannot_be_applied_twice(crank: Crank) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    before = await crank.look(dispatch)
    crank.place = None
    with pytest.raises(StaleEpoch):
        await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    assert await crank.look(dispatch) == before


# Fencing


@each_kind
@pytest.mark.parametrize("outcome", [Outcome.STARTED, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.HANDED_BACK])
async def test_a_report_of_another_dispatch_is_refused(crank: Crank, kind: JobSpec, outcome: Outcome) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(report(dispatch, Outcome.INTERRUPTED))
    again = await crank.fire_one()
    before = await crank.look(dispatch)
    late, early = report(dispatch, outcome), report(again, outcome, dispatch=3)
    settled = await crank.settle(late, early)
    assert settled.refused == (late, early)
    assert (settled.entries, settled.freed, settled.by_state) == ((), (), {})
    assert await crank.look(dispatch) == before


@each_kind
@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED])
async def test_a_report_of_another_worker_is_refused(crank: Crank, kind: JobSpec, outcome: Outcome) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(report(dispatch, Outcome.STARTED))
    before = await crank.look(dispatch)
    foreign = report(dispatch, outcome, worker_id=OTHER)
    assert (await crank.settle(foreign)).refused == (foreign,)
    assert await crank.look(dispatch) == before


@each_kind
async def test_conflicting_reports_in_one_batch_settle_once(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    start, end = report(dispatch, Outcome.STARTED), report(dispatch, worker_id=OTHER)
    settled = await crank.settle(start, end)
    found = await crank.look(dispatch)
    loser = end if found.worker_id == WORKER else start
    assert settled.refused == (loser,)


@each_kind
async def test_report_about_an_execution_on_the_timeline_is_refused(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=HOUR))
    early = report(dispatch, dispatch=2)
    before = await crank.look(dispatch)
    assert (await crank.settle(early)).refused == (early,)
    assert await crank.look(dispatch) == before


@each_kind
@pytest.mark.parametrize("end", [Outcome.SUCCEEDED, Outcome.EXPIRED, Outcome.CANCELLED])
async def test_nothing_follows_an_end(crank: Crank, kind: JobSpec, end: Outcome) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(report(dispatch, end))
    before = await crank.look(dispatch)
    late = [report(dispatch, outcome) for outcome in (Outcome.STARTED, Outcome.FAILED, Outcome.SNOOZED)]
    for each in late:
        assert (await crank.settle(each)).refused == (each,)
    assert await crank.look(dispatch) == before


async def test_report_about_an_unknown_execution_is_refused(crank: Crank) -> None:
    dispatch = await fired(crank)
    unknown = report(dispatch, Outcome.FAILED, execution_id=execution_id(dispatch.job_id, NOW_MS + 1))
    known = report(dispatch)
    settled = await crank.settle(unknown, known)
    assert (settled.refused, settled.by_state) == ((unknown,), {"SUCCEEDED": 1})


@each_kind
async def test_the_same_report_twice_in_a_batch_counts_once(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    failed = report(dispatch, Outcome.FAILED, failure=failure())
    settled = await crank.settle(failed, failed)
    assert (settled.refused, settled.by_state) == ((failed,), {})
    found = await crank.look(dispatch)
    assert (found.attempt, found.dispatch) == (2, 2)
    assert states_through(found) == [State.PENDING, State.RUNNING, State.FAILED, State.PENDING]


@each_kind
async def test_a_success_twice_in_a_batch_counts_once(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    settled = await crank.settle(report(dispatch), report(dispatch))
    assert settled.by_state == {"SUCCEEDED": 1}
    assert states_through(await crank.look(dispatch)) == [State.PENDING, State.RUNNING, State.SUCCEEDED]


# Ends


@each_kind
async def test_a_success_is_kept_with_its_result(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    settled = await crank.settle(report(dispatch, result=b"42", progress=b"all"))
    assert (settled.by_state, settled.refused, settled.entries) == ({"SUCCEEDED": 1}, (), ())
    found = await crank.look(dispatch)
    assert (found.state, found.attempt, found.dispatch) == (State.SUCCEEDED, 1, 1)
    assert (found.worker_id, found.started_ms, found.finished_ms) == (WORKER, NOW_MS, NOW_MS + SECOND)
    assert (found.result, found.progress, found.failure) == (b"42", b"all", None)
    assert states_through(found) == [State.PENDING, State.RUNNING, State.SUCCEEDED]
    assert await crank.timeline() == []


@each_kind
async def test_a_start_is_followed_by_its_end(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    settled = await crank.settle(report(dispatch, Outcome.STARTED))
    assert (settled.by_state, settled.refused) == ({}, ())
    running = await crank.look(dispatch)
    assert (running.state, running.worker_id, running.started_ms) == (State.RUNNING, WORKER, NOW_MS)
    assert running.finished_ms is None
    await crank.settle(report(dispatch))
    ended = await crank.look(dispatch)
    assert (ended.state, ended.started_ms, ended.finished_ms) == (State.SUCCEEDED, NOW_MS, NOW_MS + SECOND)
    assert states_through(ended) == [State.PENDING, State.RUNNING, State.SUCCEEDED]


@pytest.mark.slow
@pytest.mark.also_threaded
@each_kind
async def test_a_start_and_its_end_may_come_in_one_batch(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    settled = await crank.settle(report(dispatch, Outcome.STARTED), report(dispatch))
    assert (settled.by_state, settled.refused) == ({"SUCCEEDED": 1}, ())
    assert states_through(await crank.look(dispatch)) == [State.PENDING, State.RUNNING, State.SUCCEEDED]


async def test_a_second_start_of_the_same_run_is_refused(crank: Crank) -> None:
    dispatch = await fired(crank)
    start = report(dispatch, Outcome.STARTED)
    await crank.settle(start)
    assert (await crank.settle(start)).refused == (start,)


@each_kind
async def test_a_failure_goes_back_on_the_timeline_with_the_next_attempt(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    failed = report(dispatch, Outcome.FAILED, failure=failure("disk full"), progress=b"half")
    settled = await crank.settle(failed)
    (entry,) = settled.entries
    assert (entry.kind, entry.key, entry.number) == (Kind.DISPATCH, dispatch.execution_id, 2)
    assert entry.due_ms == failed.ended_ms
    assert await crank.timeline() == [entry]
    assert settled.by_state == {}
    found = await crank.look(dispatch)
    assert (found.state, found.attempt, found.dispatch) == (State.PENDING, 2, 2)
    assert (found.fired_ms, found.worker_id, found.finished_ms) == (None, None, None)
    assert (found.waits_until_ms, found.progress) == (entry.due_ms, b"half")
    assert msgspec.json.decode(found.failure or "", type=Failure) == failure("disk full")


async def test_a_retry_is_never_due_before_the_store_learned_of_the_failure(crank: Crank) -> None:
    dispatch = await fired(crank)
    crank.now_ms = NOW_MS + HOUR
    (entry,) = (await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))).entries
    assert entry.due_ms == NOW_MS + HOUR


@each_kind
async def test_a_start_deadline_counts_from_the_time_of_the_occurrence(crank: Crank, kind: JobSpec) -> None:
    first = await fired(crank, msgspec.structs.replace(kind, start_deadline_sec=60))
    await crank.settle(report(first, Outcome.INTERRUPTED, started_ms=0, ended_ms=NOW_MS + 20 * SECOND))
    again = await crank.fire_one()
    assert first.start_deadline_sec == 60
    assert again.start_deadline_sec is not None
    assert again.due_ms + again.start_deadline_sec * SECOND == NOW_MS + 60 * SECOND


@each_kind
async def test_a_start_deadline_is_met_once_a_run_has_started(crank: Crank, kind: JobSpec) -> None:
    first = await fired(crank, msgspec.structs.replace(kind, start_deadline_sec=60))
    await crank.settle(report(first, Outcome.INTERRUPTED, ended_ms=NOW_MS + 20 * SECOND))
    assert (await crank.fire_one()).start_deadline_sec is None


@each_kind
async def test_an_execution_that_used_up_its_attempts_is_dead(
    crank: Crank, query_store: QueryStore, kind: JobSpec
) -> None:
    dispatch = await fired(crank, kind)
    for outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        await crank.settle(report(dispatch, outcome, failure=failure()))
        dispatch = await crank.fire_one()
    assert (dispatch.number, dispatch.attempt) == (3, 3)
    settled = await crank.settle(report(dispatch, Outcome.FAILED, failure=failure("for good")))
    assert (settled.by_state, settled.entries) == ({"DEAD": 1}, ())
    dead = await crank.look(dispatch)
    assert (dead.state, dead.attempt, dead.dispatch) == (State.DEAD, 3, 3)
    assert is_path(states_through(dead))
    assert states_through(dead).count(State.RUNNING) == 3
    assert await query_store.find_dead(TENANT, dead.id) == (crank.now_ms, False, None)
    assert await crank.timeline() == []


async def test_failure_that_is_not_retryable_is_not_retried(crank: Crank) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure(retryable=False)))
    found = await crank.look(dispatch)
    assert (found.state, found.attempt) == (State.DEAD, 1)


@each_kind
@pytest.mark.parametrize(
    ("outcome", "wait_ms"), [(Outcome.SNOOZED, 7 * SECOND), (Outcome.INTERRUPTED, 0), (Outcome.HANDED_BACK, None)]
)
async def test_return_without_a_failure_costs_no_attempt(
    crank: Crank, kind: JobSpec, outcome: Outcome, wait_ms: int | None
) -> None:
    dispatch = await fired(crank, kind)
    back = report(dispatch, outcome, snooze_ms=7 * SECOND)
    (entry,) = (await crank.settle(back)).entries
    assert entry.number == 2
    assert wait_ms is None or entry.due_ms == back.ended_ms + wait_ms
    assert entry.due_ms >= back.ended_ms
    again = await crank.fire_one(at_ms=entry.due_ms)
    assert (again.number, again.attempt) == (2, 1)


async def come_back_often(crank: Crank, times: int, outcome: Outcome = Outcome.SNOOZED) -> Dispatch:
    """Return a dispatch of an execution that was returned so many times, each a second after its dispatch."""
    dispatch = await fired(crank)
    for _ in range(times):
        back = report(dispatch, outcome, ended_ms=crank.now_ms + SECOND, snooze_ms=SECOND)
        (entry,) = (await crank.settle(back)).entries
        dispatch = await crank.fire_one(at_ms=entry.due_ms)
    return dispatch


@pytest.mark.slow
@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.FAILED])
async def test_transitions_of_one_that_comes_back_very_often_are_bounded(
    crank: Crank, outcome: Outcome, reported: bool
) -> None:
    """The first transitions and the last ones are kept.

    Together they are a legal path, whether or not the start was reported.
    """
    dispatch = await come_back_often(crank, KEPT_DISPATCHES + 20)
    found = await crank.look(dispatch)
    assert found.dispatch == KEPT_DISPATCHES + 21
    assert states_through(found) == [State.PENDING, *[State.RUNNING, State.PENDING] * KEPT_DISPATCHES]
    if reported:
        await crank.settle(report(dispatch, Outcome.STARTED, ended_ms=crank.now_ms))
        assert (await crank.look(dispatch)).state is State.RUNNING
    error = failure(retryable=False) if outcome is Outcome.FAILED else None
    await crank.settle(report(dispatch, outcome, ended_ms=crank.now_ms + SECOND, failure=error))
    ended = await crank.look(dispatch)
    ends = {
        Outcome.SUCCEEDED: [State.SUCCEEDED],
        Outcome.CANCELLED: [State.CANCELLED],
        Outcome.FAILED: [State.FAILED, State.DEAD],
    }
    assert states_through(ended)[2 * KEPT_DISPATCHES + 1 :] == [State.RUNNING, *ends[outcome]]
    assert is_path(states_through(ended))
    assert (await crank.settle(report(dispatch, outcome, failure=error))).by_state == {}


async def test_execution_without_a_handler_waits_longer_each_time(crank: Crank) -> None:
    dispatch = await fired(crank)
    waits = []
    for _ in range(9):
        back = report(dispatch, Outcome.HANDED_BACK, ended_ms=crank.now_ms)
        (entry,) = (await crank.settle(back)).entries
        waits.append((entry.due_ms - crank.now_ms) // SECOND)
        dispatch = await crank.fire_one(at_ms=entry.due_ms)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert dispatch.attempt == 1


async def test_an_interruption_before_the_start_is_no_run(crank: Crank) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.INTERRUPTED, started_ms=0))
    assert states_through(await crank.look(dispatch)) == [State.PENDING, State.PENDING]


async def test_execution_that_is_too_late_at_the_worker_expires(crank: Crank) -> None:
    dispatch = await fired(crank)
    settled = await crank.settle(report(dispatch, Outcome.EXPIRED))
    assert settled.by_state == {"EXPIRED": 1}
    found = await crank.look(dispatch)
    assert states_through(found) == [State.PENDING, State.EXPIRED]
    assert (found.started_ms, found.finished_ms) == (None, NOW_MS + SECOND)


@each_kind
async def test_success_after_a_failure_has_the_start_of_its_own_attempt(crank: Crank, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    again = await crank.fire_one(at_ms=NOW_MS + HOUR)
    await crank.settle(report(again, started_ms=NOW_MS + HOUR, ended_ms=NOW_MS + HOUR + 5))
    found = await crank.look(dispatch)
    assert (found.started_ms, found.finished_ms) == (NOW_MS + HOUR, NOW_MS + HOUR + 5)
    assert found.failure is None


async def test_many_reports_are_settled_together(crank: Crank) -> None:
    await crank.add(*[job(PLAIN) for _ in range(30)], *[job(WATCHED) for _ in range(30)])
    dispatches = (await crank.fire()).dispatches
    reports = [
        report(d, (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.STARTED)[at % 3], failure=failure())
        for at, d in enumerate(dispatches)
    ]
    settled = await crank.settle(*reports)
    assert settled.by_state == {"SUCCEEDED": 20}
    assert len(settled.entries) == 20


@pytest.mark.parametrize("text", ["a \x00 b", '"quoted", and \\', "é 漢 \U0001f600", "\r\n\t"])
async def test_any_text_of_an_error_is_kept(crank: Crank, text: str) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure(text, traceback=text)))
    found = await crank.look(dispatch)
    assert msgspec.json.decode(found.failure or "", type=Failure) == failure(text, traceback=text)
    assert json.loads(f"[{found.transitions}]")[2][3]["message"] == text


@pytest.mark.parametrize("ciphertext", [b"", b"\x00", bytes(range(256)), b"x" * 300_000])
async def test_any_bytes_of_a_result_are_kept(crank: Crank, ciphertext: bytes) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, result=ciphertext, progress=ciphertext))
    found = await crank.look(dispatch)
    assert (found.result, found.progress) == (ciphertext, ciphertext)


# Retry policies


async def wait_after_failure(crank: Crank, wanted: JobSpec) -> int:
    """Return how many ms a failed execution waits for its second attempt; -1 if there is none."""
    dispatch = await fired(crank, wanted)
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    found = await crank.look(dispatch)
    return -1 if found.waits_until_ms is None else found.waits_until_ms - crank.now_ms


NO_RETRY = RetryPolicy(max_attempts=1)
NO_WAIT = RetryPolicy(backoff=Backoff.FIXED, initial_delay_ms=0)


async def test_default_retry_policy_applies_without_any_other(crank: Crank) -> None:
    assert 0 < await wait_after_failure(crank, spec()) <= 30 * SECOND


async def test_retry_policy_of_the_pool_applies_without_a_nearer_one(
    crank: Crank, settings_store: SettingsStore
) -> None:
    await settings_store.put_pool(POOL, PoolSettings(retry_policy=NO_RETRY), audit())
    assert await wait_after_failure(crank, spec()) == -1


async def test_the_handler_beats_the_pool(crank: Crank, settings_store: SettingsStore) -> None:
    await settings_store.put_pool(POOL, PoolSettings(retry_policy=NO_RETRY), audit())
    await crank.settle(signs=[hello(WORKER, HandlerInfo(POOL, HANDLER, retry_policy=NO_WAIT))])
    assert await wait_after_failure(crank, spec()) == 0


async def test_the_job_beats_the_handler(crank: Crank) -> None:
    await crank.settle(signs=[hello(WORKER, HandlerInfo(POOL, HANDLER, retry_policy=NO_WAIT))])
    assert await wait_after_failure(crank, spec(retry_policy=NO_RETRY)) == -1


async def test_execution_keeps_the_retry_policy_of_its_fire(crank: Crank) -> None:
    one = job(spec(retry_policy=NO_RETRY))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.change(one, Change(job=msgspec.structs.replace(one, revision=2, spec=spec(retry_policy=NO_WAIT))))
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    assert (await crank.look(dispatch)).state is State.DEAD


# Revocations


async def revoked(crank: Crank, one: Job, dispatch: Dispatch, reason: str, **edit: object) -> None:
    changed = msgspec.structs.replace(one, **edit) if edit else None
    await crank.change(one, Change(job=changed, cancel=((dispatch.execution_id, reason),)))


@pytest.mark.slow
@each_kind
@pytest.mark.parametrize(
    "outcome",
    [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.SNOOZED, Outcome.INTERRUPTED, Outcome.HANDED_BACK, Outcome.REVOKED],
)
async def test_revoked_execution_gets_no_further_attempt(crank: Crank, kind: JobSpec, outcome: Outcome) -> None:
    one = job(kind)
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "cancelled by ann")
    settled = await crank.settle(report(dispatch, outcome, failure=failure()))
    assert (settled.by_state, settled.entries) == ({"CANCELLED": 1}, ())
    found = await crank.look(dispatch)
    assert (found.state, found.revocation) == (State.CANCELLED, "cancelled by ann")
    assert is_path(states_through(found))


async def test_outcome_of_a_run_that_could_not_be_cancelled_is_kept(crank: Crank) -> None:
    one = job(PLAIN)
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "cancelled by ann")
    await crank.settle(report(dispatch))
    assert (await crank.look(dispatch)).state is State.SUCCEEDED


async def test_an_edited_occurrence_that_did_not_start_goes_on_under_the_new_definition(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    moved = every(target=Target("mail", "send"))
    await revoked(crank, one, dispatch, "EDITED", revision=2, payload=b"new", spec=moved)
    (entry,) = (await crank.settle(report(dispatch, Outcome.REVOKED, ended_ms=NOW_MS))).entries
    assert (entry.key, entry.number, entry.due_ms, entry.pool) == (dispatch.execution_id, 2, NOW_MS, "mail")
    again = await crank.fire_one()
    assert (again.number, again.attempt, again.revision, again.payload) == (2, 1, 2, b"new")
    assert (again.pool, again.handler, again.nominal_ms) == ("mail", "send", dispatch.nominal_ms)
    assert (await crank.look(again)).revocation is None


async def test_edited_occurrence_is_not_dispatched_before_its_instant(crank: Crank) -> None:
    one = job(every())
    crank.now_ms = NOW_MS - 200
    await crank.add(one)
    (dispatch,) = (await crank.fire(await crank.timeline())).dispatches
    await revoked(crank, one, dispatch, "EDITED", revision=2)
    (entry,) = (await crank.settle(report(dispatch, Outcome.REVOKED, ended_ms=NOW_MS - 100))).entries
    assert entry.due_ms == NOW_MS


async def test_an_edited_occurrence_that_the_new_plan_does_not_have_is_cancelled(crank: Crank) -> None:
    one = job(every(60))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "EDITED", revision=2, spec=every(60, phase_sec=7))
    settled = await crank.settle(report(dispatch, Outcome.REVOKED))
    assert (settled.by_state, settled.entries) == ({"CANCELLED": 1}, ())
    assert states_through(await crank.look(dispatch)) == [State.PENDING, State.CANCELLED]


@pytest.mark.parametrize("outcome", [Outcome.HANDED_BACK, Outcome.INTERRUPTED])
async def test_execution_that_returns_unstarted_during_an_edit_runs_under_the_new_definition(
    crank: Crank, outcome: Outcome
) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "EDITED", revision=2, payload=b"new")
    await crank.settle(report(dispatch, outcome, started_ms=0, ended_ms=NOW_MS))
    again = await crank.fire_one(at_ms=NOW_MS + 10 * SECOND)
    assert (again.number, again.revision, again.payload) == (2, 2, b"new")


@each_kind
@pytest.mark.parametrize("reason", ["EDITED", "PAUSED"])
async def test_edit_or_pause_never_changes_a_started_run(crank: Crank, kind: JobSpec, reason: str) -> None:
    one = job(kind)
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, reason, revision=2, payload=b"new")
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    found = await crank.look(dispatch)
    assert (found.state, found.attempt, found.revocation) == (State.PENDING, 2, None)
    again = await crank.fire_one()
    assert (again.attempt, again.revision, again.payload) == (2, 1, b"ciphertext")


async def test_paused_one_shot_that_did_not_start_is_suspended_until_it_is_released(crank: Crank) -> None:
    one = job()
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "PAUSED", state=JobState.PAUSED)
    settled = await crank.settle(report(dispatch, Outcome.REVOKED))
    assert settled.entries == ()
    assert await crank.timeline() == []
    held = await crank.look(dispatch)
    assert (held.state, held.waits_until_ms, held.fired_ms) == (State.PENDING, None, None)
    released = await crank.change(one, Change(job=one, release=((held.id, NOW_MS + MINUTE),)))
    assert [(e.key, e.number, e.due_ms) for e in released.entries] == [(held.id, 2, NOW_MS + MINUTE)]
    assert (await crank.fire_one(at_ms=NOW_MS + MINUTE)).number == 2


@pytest.mark.parametrize("marked", ["before it was known to run", "while it was known to run"])
async def test_retry_of_a_paused_job_is_suspended(crank: Crank, marked: str) -> None:
    one = job(every(retry_policy=RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_delay_ms=HOUR)))
    await crank.add(one)
    dispatch = await crank.fire_one()
    pause = revoked(crank, one, dispatch, "PAUSED", state=JobState.PAUSED)
    start = crank.settle(report(dispatch, Outcome.STARTED))
    for step in (pause, start) if marked.startswith("before") else (start, pause):
        await step
    settled = await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    assert settled.entries == ()
    assert [entry for entry in await crank.timeline() if entry.key == dispatch.execution_id] == []
    held = (await crank.change(one, Change())).after.executions[0]
    assert (held.state, held.revocation, held.attempt, held.waits_until_ms) == (State.PENDING, None, 2, None)
    assert NOW_MS <= (held.suspended_until_ms or 0) <= NOW_MS + SECOND + HOUR


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP])
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SNOOZED, Outcome.HANDED_BACK])
async def test_triggered_run_of_a_paused_job_is_repeated_after_the_resume(
    crank: Crank, overlap: Overlap, outcome: Outcome
) -> None:
    one = job(every(overlap=overlap))
    await crank.add(one)
    await crank.change(one, Change(job=msgspec.structs.replace(one, state=JobState.PAUSED), fire=Fire(NOW_MS, None)))
    triggered = NewExecution(execution_id(one.id, NOW_MS, "trigger:1"), NOW_MS, NOW_MS, Cause.TRIGGER)
    await crank.change(one, Change(executions=(triggered,)))
    dispatch = await crank.fire_one()
    settled = await crank.settle(report(dispatch, outcome, failure=failure(), snooze_ms=MINUTE))
    assert settled.entries == ()
    held = (await crank.change(one, Change())).after.executions[0]
    assert (held.state, held.waits_until_ms) == (State.PENDING, None)
    assert (held.suspended_until_ms or 0) >= NOW_MS


async def test_execution_on_the_timeline_can_be_suspended_and_released(crank: Crank) -> None:
    one = job()
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=MINUTE))
    (waiting,) = await crank.timeline()
    await crank.change(one, Change(suspend=(dispatch.execution_id,)))
    assert await crank.timeline() == []
    held = (await crank.change(one, Change())).after.executions[0]
    assert (held.waits_until_ms, held.suspended_until_ms) == (None, waiting.due_ms)
    await crank.change(one, Change(release=((held.id, waiting.due_ms),)))
    assert await crank.timeline() == [waiting]
    assert (await crank.fire_one(at_ms=waiting.due_ms)).number == 2


async def test_buffered_execution_is_suspended_while_its_job_is_paused(crank: Crank) -> None:
    one, dispatch = await buffered(crank)
    await revoked(crank, one, dispatch, "PAUSED", state=JobState.PAUSED)
    settled = await crank.settle(report(dispatch, Outcome.SUCCEEDED))
    assert settled.entries == ()
    after = (await crank.change(one, Change())).after
    assert [(e.nominal_ms, e.buffered, e.waits_until_ms) for e in after.known_open] == [(NOW_MS + MINUTE, 0, None)]


async def test_a_run_that_a_pause_took_back_is_in_the_budget_again(crank: Crank) -> None:
    one = job(every(max_runs=1))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.change(one, lambda before: edits.pause(before, NOW_MS, audit()))
    await crank.settle(report(dispatch, Outcome.REVOKED))
    assert (await crank.look(dispatch)).state is State.CANCELLED
    await crank.change(one, lambda before: edits.resume(before, crank.now_ms, audit()))
    assert await crank.fire_row(one) == Fire(NOW_MS + MINUTE, NOW_MS + MINUTE, 1)
    again = await crank.fire_one(at_ms=NOW_MS + MINUTE)
    assert again.nominal_ms == NOW_MS + MINUTE
    assert await crank.timeline() == []


async def test_a_run_that_an_edit_took_back_is_in_the_budget_again(crank: Crank) -> None:
    one = job(every(max_runs=1))
    await crank.add(one)
    dispatch = await crank.fire_one()
    moved = every(phase_sec=30, max_runs=1)
    await crank.change(one, lambda before: edits.replace(before, moved, None, NOW_MS, audit()))
    assert await crank.timeline() == []
    settled = await crank.settle(report(dispatch, Outcome.REVOKED))
    assert [(e.key, e.nominal_ms) for e in settled.entries] == [(one.id, NOW_MS + 30 * SECOND)]
    assert (await crank.fire_one(at_ms=NOW_MS + 30 * SECOND)).revision == 2
    assert await crank.timeline() == []


async def test_returned_run_adds_to_the_runs_that_are_left(crank: Crank) -> None:
    one = job(every(max_runs=3))
    await crank.add(one)
    dispatch = await crank.fire_one()
    moved = every(phase_sec=30, max_runs=3)
    await crank.change(one, lambda before: edits.replace(before, moved, None, NOW_MS, audit()))
    (entry,) = await crank.timeline()
    planned = await crank.plan([entry])
    await crank.settle(report(dispatch, Outcome.REVOKED))
    assert await crank.fire_row(one) == Fire(NOW_MS + 30 * SECOND, NOW_MS + 30 * SECOND, 3)
    crank.now_ms = NOW_MS + 30 * SECOND
    # A plan made from the former number of runs is not carried out: it would lose the run that came back.
    stale = await crank.store.firing.fire(crank.owner, planned, crank.now_ms)
    assert (stale.dispatches, stale.entries) == ((), (entry,))
    await crank.fire_one()
    assert await crank.fire_row(one) == Fire(NOW_MS + 90 * SECOND, NOW_MS + 90 * SECOND, 2)


@pytest.mark.parametrize("ended", ["cancelled by ann", "JOB_CANCELLED"])
async def test_a_run_that_was_cancelled_is_used_up(crank: Crank, ended: str) -> None:
    one = job(every(max_runs=2))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, ended)
    await crank.settle(report(dispatch, Outcome.REVOKED))
    row = await crank.fire_row(one)
    assert row is not None
    assert row.runs_left == 1


async def test_a_retry_that_an_edit_took_back_stays_used(crank: Crank) -> None:
    one = job(every(max_runs=1, retry_policy=RetryPolicy(max_attempts=3)))
    await crank.add(one)
    failed = await crank.fire_one()
    await crank.settle(report(failed, Outcome.FAILED, failure=failure()))
    (waiting,) = await crank.timeline()
    again = await crank.fire_one(at_ms=waiting.due_ms)
    moved = every(phase_sec=30, max_runs=1)
    await crank.change(one, lambda before: edits.replace(before, moved, None, crank.now_ms, audit()))
    settled = await crank.settle(report(again, Outcome.REVOKED))
    assert settled.entries == ()


async def test_a_paused_occurrence_of_a_schedule_is_given_up(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "PAUSED", state=JobState.PAUSED)
    await crank.settle(report(dispatch, Outcome.REVOKED))
    found = await crank.look(dispatch)
    assert (found.state, found.revocation) == (State.CANCELLED, "PAUSED")


async def test_a_pause_that_was_taken_back_in_time_costs_nothing(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "PAUSED", state=JobState.PAUSED)
    await crank.change(one, Change(job=one))
    await crank.settle(report(dispatch, Outcome.REVOKED))
    assert (await crank.fire_one()).execution_id == dispatch.execution_id


async def test_revocations_name_dispatched_and_running_executions(crank: Crank, executions: Executions) -> None:
    jobs = [job(spec(retry_policy=AT_ONCE)) for _ in range(4)]
    await crank.add(*jobs)
    running, waiting, ended, _ = (await crank.fire()).dispatches
    await crank.settle(report(running, Outcome.STARTED))
    for asked in (running, waiting, ended):
        owner = next(one for one in jobs if one.id == asked.job_id)
        await revoked(crank, owner, asked, f"reason {asked.job_id}")
    await crank.settle(report(ended))
    later_ms = NOW_MS + HOUR
    assert sorted(await executions.revocations(POOL, later_ms)) == sorted(
        (asked.execution_id, 1, f"reason {asked.job_id}") for asked in (running, waiting)
    )
    assert await executions.revocations("mail", 0) == []


async def test_revocations_name_executions_that_ended_a_moment_ago(crank: Crank, executions: Executions) -> None:
    """A second delivery of it may still be in flight."""
    one = job()
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "reason")
    crank.now_ms = NOW_MS + MINUTE
    await crank.settle(report(dispatch, Outcome.CANCELLED, ended_ms=NOW_MS + MINUTE))
    named = [(dispatch.execution_id, 1, "reason")]
    assert await executions.revocations(POOL, NOW_MS + MINUTE - 1) == named
    assert await executions.revocations(POOL, NOW_MS + MINUTE) == []


# Overlap: release by the settlement that closes the last open execution


async def buffered(crank: Crank) -> tuple[Job, Dispatch]:
    """A job with one dispatched execution and one that waits for it."""
    one = job(every(overlap=Overlap.BUFFER_ONE, retry_policy=NO_RETRY, end_at=instant(NOW_MS + MINUTE)))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.fire(at_ms=NOW_MS + MINUTE)
    return one, dispatch


@pytest.mark.parametrize(
    "outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.EXPIRED]
)
async def test_buffered_execution_is_released_when_the_last_open_one_closes(crank: Crank, outcome: Outcome) -> None:
    one, dispatch = await buffered(crank)
    settled = await crank.settle(report(dispatch, outcome, failure=failure()))
    waiting = execution_id(one.id, NOW_MS + MINUTE)
    assert [(e.key, e.number, e.due_ms) for e in settled.entries] == [(waiting, 1, NOW_MS + MINUTE)]
    started = await crank.fire_one()
    assert (started.execution_id, started.number, started.attempt) == (waiting, 1, 1)


@pytest.mark.parametrize("outcome", [Outcome.STARTED, Outcome.SNOOZED, Outcome.INTERRUPTED])
async def test_the_buffered_one_waits_while_the_other_is_open(crank: Crank, outcome: Outcome) -> None:
    _, dispatch = await buffered(crank)
    settled = await crank.settle(report(dispatch, outcome, snooze_ms=HOUR))
    assert all(e.key == dispatch.execution_id for e in settled.entries)


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_lost_worker_lets_the_buffered_one_start(crank: Crank, executions: Executions) -> None:
    one, dispatch = await buffered(crank)
    await crank.settle(report(dispatch, Outcome.STARTED))
    settled = await executions.lose_workers([WORKER], NOW_MS + HOUR)
    assert [e.key for e in settled.entries] == [execution_id(one.id, NOW_MS + MINUTE)]


async def test_cancel_of_an_execution_without_a_worker_releases_the_buffered_one(crank: Crank) -> None:
    one, dispatch = await buffered(crank)
    await crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=HOUR))
    applied = await crank.change(one, Change(cancel=((dispatch.execution_id, "cancelled by ann"),)))
    assert [e.key for e in applied.entries] == [execution_id(one.id, NOW_MS + MINUTE)]


async def test_cancelling_the_buffered_one_lets_nothing_else_start(crank: Crank) -> None:
    one, dispatch = await buffered(crank)
    waiting = execution_id(one.id, NOW_MS + MINUTE)
    applied = await crank.change(one, Change(cancel=((waiting, "cancelled by ann"),)))
    assert (applied.entries, applied.revocations) == ((), ())
    assert (await crank.look(waiting)).state is State.CANCELLED
    assert (await crank.settle(report(dispatch))).entries == ()


# Workers


async def test_hello_registers_a_worker_with_its_pools_and_handlers(
    crank: Crank, settings_store: SettingsStore, workload: Workload
) -> None:
    info = HandlerInfo("mail", "send", {"type": "object"}, RetryPolicy(max_attempts=2), 30, "Sends mail.")
    await crank.settle(signs=[hello("w-1", info, concurrency={"mail": 3, "idle": 1}, at_ms=NOW_MS)])
    (worker,) = await workload.list_workers()
    assert (worker.id, worker.host, worker.pid, worker.state) == ("w-1", "build-7", 4711, "ALIVE")
    assert worker.concurrency == {"mail": 3, "idle": 1}
    assert (worker.started_ms, worker.seen_ms, worker.stuck, worker.running) == (NOW_MS, NOW_MS, (), ())
    assert set(await settings_store.pool_names()) == {"mail", "idle"}
    assert await settings_store.find_handler("mail", "send") == info


async def test_heartbeat_shows_a_live_worker_and_a_bye_ends_it(crank: Crank, workload: Workload) -> None:
    stuck = execution_id(job().id, NOW_MS)
    await crank.settle(signs=[hello("w-1"), Beat(WORKER, NOW_MS + SECOND, stuck=(stuck,))])
    (alive,) = await workload.list_workers()
    assert (alive.seen_ms, alive.stuck, alive.state) == (NOW_MS + SECOND, (stuck,), "ALIVE")
    await crank.settle(signs=[Beat(WORKER, NOW_MS, stuck=()), Bye(WORKER, NOW_MS + MINUTE)])
    (gone,) = await workload.list_workers()
    assert (gone.seen_ms, gone.stuck, gone.state) == (NOW_MS + MINUTE, (), "GONE")


async def test_heartbeat_keeps_the_progress_of_a_running_handler(crank: Crank) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.STARTED))
    await crank.settle(signs=[Beat(WORKER, NOW_MS, (RunProgress(dispatch.execution_id, 1, b"page 7"),))])
    assert (await crank.look(dispatch)).progress == b"page 7"


async def test_progress_counts_also_if_it_comes_with_the_start(crank: Crank) -> None:
    dispatch = await fired(crank)
    beat = Beat(WORKER, NOW_MS, (RunProgress(dispatch.execution_id, 1, b"page 7"),))
    await crank.settle(report(dispatch, Outcome.STARTED), signs=[beat])
    assert (await crank.look(dispatch)).progress == b"page 7"


async def test_progress_of_another_dispatch_or_worker_is_not_believed(crank: Crank) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.STARTED))
    await crank.settle(
        signs=[
            Beat(OTHER, NOW_MS, (RunProgress(dispatch.execution_id, 1, b"another worker"),)),
            Beat(WORKER, NOW_MS, (RunProgress(dispatch.execution_id, 2, b"another dispatch"),)),
        ]
    )
    assert (await crank.look(dispatch)).progress is None


async def test_workers_to_judge_are_those_alive_or_with_running_executions(
    crank: Crank, executions: Executions
) -> None:
    await crank.add(job(PLAIN), job(PLAIN), job(PLAIN))
    running, unheard, judged = (await crank.fire()).dispatches
    idle, gone, lost = WorkerId("w-3"), WorkerId("w-4"), WorkerId("w-5")
    await crank.settle(
        report(running, Outcome.STARTED),
        report(unheard, Outcome.STARTED, worker_id=OTHER),
        signs=[hello(WORKER), hello(idle), hello(gone), Bye(gone, NOW_MS), hello(lost)],
    )
    await executions.lose_workers([lost], NOW_MS)
    assert sorted(await executions.workers_to_judge(0)) == sorted([WORKER, OTHER, idle])
    await crank.settle(report(judged, Outcome.STARTED, worker_id=lost))
    assert sorted(await executions.workers_to_judge(0)) == sorted([WORKER, OTHER, idle, lost])


async def test_a_worker_is_judged_by_the_recorder_of_its_partition(crank: Crank, executions: Executions) -> None:
    dispatch = await fired(crank)
    there = Checkpoint(5, GENERATION, 1, 0)
    await executions.settle([report(dispatch, Outcome.STARTED)], [hello(WORKER)], was=None, now=there, now_ms=NOW_MS)
    assert await executions.workers_to_judge(5) == [WORKER]
    assert await executions.workers_to_judge(0) == []


async def test_run_of_a_lost_worker_is_retried_and_uses_up_an_attempt(
    crank: Crank, executions: Executions, workload: Workload
) -> None:
    await crank.add(job(PLAIN), job(PLAIN))
    lost, kept = (await crank.fire()).dispatches
    await crank.settle(
        report(lost, Outcome.STARTED),
        report(kept, Outcome.STARTED, worker_id=OTHER),
        signs=[hello(WORKER), hello(OTHER)],
    )
    settled = await executions.lose_workers([WORKER], NOW_MS + MINUTE)
    assert [(e.key, e.number) for e in settled.entries] == [(lost.execution_id, 2)]
    found = await crank.look(lost)
    assert (found.state, found.attempt, found.worker_id) == (State.PENDING, 2, None)
    assert states_through(found) == [State.PENDING, State.RUNNING, State.FAILED_WORKER_LOST, State.PENDING]
    assert WORKER in (found.failure or "")
    assert (await crank.look(kept)).state is State.RUNNING
    assert {w.id: w.state for w in await workload.list_workers()} == {WORKER: "LOST", OTHER: "ALIVE"}
    late = report(lost)
    assert (await crank.settle(late)).refused == (late,)


async def test_losing_a_worker_again_changes_nothing(crank: Crank, executions: Executions) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.STARTED))
    await executions.lose_workers([WORKER], NOW_MS + MINUTE)
    before = await crank.look(dispatch)
    settled = await executions.lose_workers([WORKER], NOW_MS + HOUR)
    assert (settled.entries, settled.by_state) == ((), {})
    assert await crank.look(dispatch) == before


async def test_revoked_run_of_a_lost_worker_is_cancelled(crank: Crank, executions: Executions) -> None:
    one = job(PLAIN)
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.STARTED))
    await revoked(crank, one, dispatch, "cancelled by ann")
    settled = await executions.lose_workers([WORKER], NOW_MS + MINUTE)
    assert (settled.entries, settled.by_state) == ((), {"CANCELLED": 1})


async def test_a_lost_worker_gives_its_slots_back(crank: Crank, executions: Executions) -> None:
    dispatch = await fired(crank, KEYED)
    await crank.settle(report(dispatch, Outcome.STARTED))
    assert (await executions.lose_workers([WORKER], NOW_MS + MINUTE)).freed == ("key/db",)
    assert len((await crank.fire(at_ms=NOW_MS + MINUTE)).dispatches) == 1


# Lost logs


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_lost_log_loses_running_executions_and_returns_dispatched_ones(
    crank: Crank, executions: Executions, firing: Firing
) -> None:
    await crank.add(*[job(PLAIN) for _ in range(4)])
    ran, on_its_way, ended, waits = (await crank.fire()).dispatches
    await crank.settle(
        report(ran, Outcome.STARTED),
        report(ended),
        report(waits, Outcome.SNOOZED, snooze_ms=HOUR),
        signs=[hello(WORKER)],
    )
    settled = await executions.recover_log(0, "generation-2", NOW_MS + MINUTE)
    assert {(e.key, e.number) for e in settled.entries} == {(ran.execution_id, 2), (on_its_way.execution_id, 2)}
    assert states_through(await crank.look(ran))[2:] == [State.FAILED_WORKER_LOST, State.PENDING]
    back = await crank.look(on_its_way)
    assert (back.attempt, back.dispatch, back.fired_ms) == (1, 2, None)
    assert (await crank.look(ended)).state is State.SUCCEEDED
    assert (await crank.look(waits)).dispatch == 2
    assert await executions.workers_to_judge(0) == []
    assert await firing.unsealed(NOW_MS + HOUR, 10) == []


async def test_lost_log_cancels_revoked_executions(crank: Crank, executions: Executions) -> None:
    one = job(PLAIN)
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "cancelled by ann")
    settled = await executions.recover_log(0, "generation-2", NOW_MS + MINUTE)
    assert (settled.entries, settled.by_state) == ((), {"CANCELLED": 1})


async def test_lost_log_does_not_cancel_edited_occurrences(crank: Crank, executions: Executions) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    await revoked(crank, one, dispatch, "EDITED", revision=2, payload=b"new")
    await executions.recover_log(0, "generation-2", NOW_MS + SECOND)
    again = await crank.fire_one(at_ms=NOW_MS + SECOND)
    assert (again.execution_id, again.number, again.payload) == (dispatch.execution_id, 2, b"new")


async def test_lost_log_empties_unsealed_batches(crank: Crank, executions: Executions, firing: Firing) -> None:
    await fired(crank)
    (batch,) = await firing.unsealed(NOW_MS + 1, 10)
    await executions.recover_log(0, "generation-2", NOW_MS + 1)
    assert await firing.dispatches_of(batch) == []


# Retention


FOREVER = 100 * 365 * DAY
KEEP = Retention(FOREVER, FOREVER, FOREVER, FOREVER, FOREVER, FOREVER, FOREVER, FOREVER)
AGED = {
    Outcome.SUCCEEDED: "succeeded_ms",
    Outcome.CANCELLED: "cancelled_ms",
    Outcome.EXPIRED: "expired_ms",
    Outcome.FAILED: "dead_ms",
}


STATE_OF = {
    Outcome.SUCCEEDED: "SUCCEEDED",
    Outcome.CANCELLED: "CANCELLED",
    Outcome.EXPIRED: "EXPIRED",
    Outcome.FAILED: "DEAD",
}


@pytest.mark.parametrize("outcome", AGED)
async def test_each_kind_of_end_is_kept_for_its_own_time(
    crank: Crank, executions: Executions, outcome: Outcome
) -> None:
    jobs = {each: job(spec(retry_policy=NO_RETRY)) for each in AGED}
    await crank.add(*jobs.values())
    by_job = {d.job_id: d for d in (await crank.fire()).dispatches}
    await crank.settle(*[report(by_job[one.id], each, failure=failure()) for each, one in jobs.items()])
    policy = msgspec.structs.replace(KEEP, **{AGED[outcome]: HOUR})
    ended_ms = NOW_MS + SECOND
    assert await executions.prune(policy, ended_ms + HOUR, 100) == 0
    assert await executions.prune(policy, ended_ms + HOUR + 1, 100) == 1
    left = {each for each, one in jobs.items() if await crank.states_of(one)}
    assert left == set(AGED) - {outcome}


async def test_a_dead_letter_goes_with_its_execution(
    crank: Crank, executions: Executions, query_store: QueryStore
) -> None:
    dispatch = await fired(crank, spec(retry_policy=NO_RETRY))
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    await executions.prune(msgspec.structs.replace(KEEP, dead_ms=HOUR), NOW_MS + DAY, 100)
    assert await query_store.find_dead(TENANT, dispatch.execution_id) is None


async def test_open_execution_is_never_pruned(crank: Crank, executions: Executions) -> None:
    one, other = job(PLAIN), job(PLAIN)
    await crank.add(one, other)
    running, _ = (await crank.fire()).dispatches
    await crank.settle(report(running, Outcome.STARTED))
    nothing = Retention(0, 0, 0, 0, 0, 0, 0, 0)
    assert await executions.prune(nothing, NOW_MS + 1000 * DAY, 100) == 0
    assert await crank.states_of(one) + await crank.states_of(other) in (
        ["RUNNING", "PENDING"],
        ["PENDING", "RUNNING"],
    )


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_pruning_goes_in_small_steps_until_nothing_is_left_to_do(crank: Crank, executions: Executions) -> None:
    await crank.add(*[job() for _ in range(5)])
    await crank.settle(*[report(d) for d in (await crank.fire()).dispatches])
    policy = msgspec.structs.replace(KEEP, succeeded_ms=HOUR)
    steps = [await executions.prune(policy, NOW_MS + DAY, 2) for _ in range(4)]
    assert steps == [2, 2, 1, 0]


async def test_jobs_go_when_they_ended_and_nothing_refers_to_them(
    crank: Crank, executions: Executions, query_store: QueryStore
) -> None:
    done, cancelled, active, paused = job(), job(every()), job(every()), job(every())
    await crank.add(done)
    await crank.settle(report(await crank.fire_one()))
    await crank.add(cancelled, active, paused)
    off = Fire(NOW_MS + MINUTE, None)
    await crank.change(cancelled, Change(job=msgspec.structs.replace(cancelled, state=JobState.CANCELLED), fire=off))
    await crank.change(paused, Change(job=msgspec.structs.replace(paused, state=JobState.PAUSED), fire=off))
    policy = msgspec.structs.replace(KEEP, jobs_ms=HOUR)
    assert await executions.prune(policy, NOW_MS + HOUR, 100) == 0
    assert await executions.prune(policy, NOW_MS + DAY, 100) == 1
    both = msgspec.structs.replace(policy, succeeded_ms=HOUR)
    while await executions.prune(both, NOW_MS + DAY, 100):
        pass
    left = [one for one in (done, cancelled, active, paused) if await query_store.find_job(TENANT, one.id)]
    assert left == [active, paused]


async def test_a_job_that_ended_is_kept_while_its_executions_are(crank: Crank, executions: Executions) -> None:
    done = job()
    await crank.add(done)
    await crank.settle(report(await crank.fire_one()))
    assert await executions.prune(msgspec.structs.replace(KEEP, jobs_ms=0), NOW_MS + DAY, 100) == 0
    assert await crank.states_of(done) == ["SUCCEEDED"]


BIG = TenantId("big")


async def ended_by_tenant(crank: Crank, outcome: Outcome = Outcome.SUCCEEDED) -> dict[TenantId, Job]:
    jobs = {tenant: job(spec(retry_policy=NO_RETRY), tenant=tenant) for tenant in (TENANT, BIG)}
    await crank.add(*jobs.values())
    await crank.settle(*[report(each, outcome, failure=failure()) for each in (await crank.fire()).dispatches])
    return jobs


@pytest.mark.parametrize("outcome", AGED)
async def test_tenant_may_keep_ended_executions_for_less_time_than_others(
    crank: Crank, executions: Executions, outcome: Outcome
) -> None:
    jobs = await ended_by_tenant(crank, outcome)
    policy = msgspec.structs.replace(KEEP, tenants={BIG: HOUR})
    ended_ms = NOW_MS + SECOND
    assert await executions.prune(policy, ended_ms + HOUR, 100) == 0
    # The ended job is pruned with its execution.
    assert await executions.prune(policy, ended_ms + HOUR + 1, 100) == 2
    assert [await crank.states_of(one) for one in jobs.values()] == [[STATE_OF[outcome]], []]


@pytest.mark.parametrize("outcome", AGED)
async def test_tenant_may_keep_ended_executions_for_longer_than_others(
    crank: Crank, executions: Executions, query_store: QueryStore, outcome: Outcome
) -> None:
    jobs = await ended_by_tenant(crank, outcome)
    policy = Retention(HOUR, HOUR, HOUR, HOUR, HOUR, FOREVER, FOREVER, FOREVER, {BIG: DAY})
    while await executions.prune(policy, NOW_MS + 12 * HOUR, 100):
        pass
    assert [await crank.states_of(one) for one in jobs.values()] == [[], [STATE_OF[outcome]]]
    assert [bool(await query_store.find_job(tenant, one.id)) for tenant, one in jobs.items()] == [False, True]
    while await executions.prune(policy, NOW_MS + DAY + HOUR, 100):
        pass
    assert await query_store.find_job(BIG, jobs[BIG].id) is None


async def test_executions_of_a_tenant_with_longer_retention_are_skipped_in_steps(
    crank: Crank, executions: Executions
) -> None:
    await crank.add(*[job(tenant=BIG) for _ in range(25)])
    await crank.settle(*[report(d) for d in (await crank.fire()).dispatches])
    others = [job(now_ms=NOW_MS + SECOND) for _ in range(3)]
    await crank.add(*others)
    await crank.settle(*[report(d) for d in (await crank.fire(at_ms=NOW_MS + SECOND)).dispatches])
    policy = msgspec.structs.replace(KEEP, succeeded_ms=HOUR, tenants={BIG: FOREVER})
    steps = [await executions.prune(policy, NOW_MS + DAY, 1) for _ in range(8)]
    assert sum(steps) == 3
    assert steps[0] == 0
    assert [state for one in others for state in await crank.states_of(one)] == []


async def test_execution_that_ended_late_is_pruned_by_the_next_walk(crank: Crank, executions: Executions) -> None:
    late, kept = job(), job(tenant=BIG)
    await crank.add(late, kept)
    by_job = {d.job_id: d for d in (await crank.fire()).dispatches}
    policy = msgspec.structs.replace(KEEP, succeeded_ms=HOUR, tenants={BIG: FOREVER})
    assert await executions.prune(policy, NOW_MS + 2 * HOUR, 100) == 0
    await crank.settle(report(by_job[late.id], ended_ms=NOW_MS + 2 * HOUR))
    assert [await executions.prune(policy, NOW_MS + 4 * HOUR, 100) for _ in range(3)] == [0, 1, 0]
    assert await crank.states_of(late) == []


async def test_the_jobs_of_several_tenants_are_walked_along_in_small_steps(
    crank: Crank, executions: Executions
) -> None:
    tenants = [TenantId(name) for name in ("a", "b", "c")]
    jobs = [job(tenant=tenant) for tenant in tenants for _ in range(5)]
    await crank.add(*jobs, job())
    await crank.settle(*[report(d) for d in (await crank.fire()).dispatches])
    policy = msgspec.structs.replace(KEEP, tenants=dict.fromkeys(tenants, HOUR))
    for _ in range(30):
        assert await executions.prune(policy, NOW_MS + DAY, 2) <= 4
    assert [state for one in jobs for state in await crank.states_of(one)] == []


async def test_open_execution_of_a_tenant_with_its_own_retention_is_never_pruned(
    crank: Crank, executions: Executions
) -> None:
    one = job(tenant=BIG)
    await crank.add(one)
    await crank.settle(report(await crank.fire_one(), Outcome.STARTED))
    policy = msgspec.structs.replace(KEEP, tenants={BIG: 0})
    assert await executions.prune(policy, NOW_MS + 1000 * DAY, 100) == 0
    assert await crank.states_of(one) == ["RUNNING"]


async def test_decisions_audit_and_receipts_are_kept_for_their_time(
    crank: Crank, executions: Executions, query_store: QueryStore, settings_store: SettingsStore, jobs: Jobs
) -> None:
    one = job(every())
    await crank.add(one)
    await crank.fire(at_ms=NOW_MS + HOUR)
    receipt = Receipt(TENANT, "key", "print", NOW_MS + HOUR, 201, b"{}")
    await jobs.edit(TENANT, one.id, lambda _: Change(audit=audit("a", NOW_MS + HOUR)), seal=lambda _: receipt)
    for field in ("decisions_ms", "audit_ms", "receipts_ms"):
        policy = msgspec.structs.replace(KEEP, **{field: HOUR})
        assert await executions.prune(policy, NOW_MS + 2 * HOUR, 100) == 0
        assert await executions.prune(policy, NOW_MS + 2 * HOUR + 1, 100) == 1
    assert await query_store.decisions_between(one.id, 0, 2**60, 10) == []
    assert await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10) == []
    assert await jobs.find_receipt(TENANT, "key") is None


async def test_workers_that_left_are_forgotten_in_time(
    crank: Crank, executions: Executions, workload: Workload
) -> None:
    await crank.settle(signs=[hello("w-1"), hello("w-2"), Bye(WorkerId("w-1"), NOW_MS)])
    await executions.prune(msgspec.structs.replace(KEEP, succeeded_ms=HOUR), NOW_MS + DAY, 100)
    assert [w.id for w in await workload.list_workers()] == ["w-2"]


# All paths


@pytest.mark.slow
@each_kind
async def test_any_two_reports_form_a_legal_path(crank: Crank, kind: JobSpec) -> None:
    """Each outcome after each other one, in whatever state the execution is by then."""
    for first in Outcome:
        for second in Outcome:
            dispatch = await fired(crank, kind)
            await crank.settle(report(dispatch, first, failure=failure(), snooze_ms=1))
            again = (await crank.fire(at_ms=crank.now_ms + 10 * SECOND)).dispatches
            latest = next(iter(again), dispatch)
            await crank.settle(report(latest, second, failure=failure(), worker_id=WORKER))
            found = await crank.look(dispatch)
            assert is_path(states_through(found)), (first, second, states_through(found))
            assert states_through(found)[-1] is found.state
            assert found.attempt <= found.dispatch
            await clear(crank, found)


async def clear(crank: Crank, found: Execution) -> None:
    """End the remaining executions, so that the next one finds its slot free."""
    if found.fired_ms is None and found.state is State.PENDING:
        (held,) = (await crank.fire(at_ms=crank.now_ms + 10 * SECOND)).dispatches
    elif found.state in (State.PENDING, State.RUNNING):
        held = dispatch(found.id, found.dispatch)
    else:
        return
    settled = await crank.settle(report(held))
    assert settled.by_state == {"SUCCEEDED": 1}


async def test_report_changes_no_other_execution(crank: Crank) -> None:
    await crank.add(*[job(WATCHED) for _ in range(10)])
    dispatches = (await crank.fire()).dispatches
    reports: list[Report] = [report(dispatches[3]), report(dispatches[4], Outcome.FAILED, failure=failure())]
    before = {d.execution_id: await crank.look(d) for d in dispatches}
    await crank.settle(*reports)
    for each in (*dispatches[:3], *dispatches[5:]):
        assert await crank.look(each) == before[each.execution_id]
