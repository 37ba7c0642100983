import asyncio
import json
from collections.abc import Sequence

import msgspec
import pytest

from noonday.intake import edits, moves, skips
from noonday.intake.resumer import resume_on_time
from noonday.model.change import Change, ChangeResult, NewExecution, NewJob
from noonday.model.errors import Conflict, NotFound
from noonday.model.execution import Cause, Outcome, State
from noonday.model.firing import Decision, DecisionOutcome, Fire, Kind
from noonday.model.ids import PARTITIONS, JobId, TenantId, execution_id
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, Job, JobState, Overlap, Priority, Target
from noonday.model.move import Move
from noonday.model.pause import DueResume
from noonday.model.receipt import Receipt
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.skip import Skip
from noonday.model.snapshot import Scope, Snapshot
from noonday.ports.firing import Firing
from noonday.ports.jobs import Jobs
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from tests.support.crank import Crank, first_fire, is_path, states_through
from tests.support.factories import (
    HOUR,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    audit,
    every,
    failure,
    instant,
    job,
    report,
    spec,
)

OTHER = TenantId("other")


def refuse(before: Snapshot, wanted: Job) -> Change:
    raise Conflict("the key is taken")


def take_over(before: Snapshot, wanted: Job) -> Change:
    """Give the present job the wanted definition."""
    revision = before.job.revision + 1
    return Change(job=msgspec.structs.replace(before.job, spec=wanted.spec, payload=wanted.payload, revision=revision))


def new(*jobs: Job) -> list[NewJob]:
    return [NewJob(one, first_fire(one, NOW_MS)) for one in jobs]


def trigger(one: Job, key: str = "1", at_ms: int = NOW_MS, **fields: object) -> NewExecution:
    made = NewExecution(execution_id(one.id, at_ms, f"trigger:{key}"), at_ms, at_ms, Cause.TRIGGER)
    return msgspec.structs.replace(made, **fields)


# Adding


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_job_is_kept_whole(crank: Crank, query_store: QueryStore) -> None:
    one = job(
        every(
            30,
            name="näme",
            phase_sec=7,
            start_at=instant(NOW_MS),
            end_at=instant(NOW_MS + HOUR),
            max_runs=9,
            overlap=Overlap.BUFFER_ONE,
            concurrency=Concurrency("db", 3),
            priority=Priority.HIGH,
            retry_policy=RetryPolicy(backoff=Backoff.EXPONENTIAL),
            timeout_sec=1.5,
            heartbeat_timeout_sec=9,
            start_deadline_sec=8,
            spread_sec=3,
            unique_key="the key",
            tags=("a", "b"),
        ),
        payload=bytes(range(256)),
    )
    await crank.add(one)
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.job == one
    assert row.fire == first_fire(one, NOW_MS)
    assert not row.open


async def test_a_job_without_a_payload_is_kept_without_one(crank: Crank, query_store: QueryStore) -> None:
    one = job(payload=None, trace=None)
    await crank.add(one)
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.job == one


async def test_many_jobs_are_added_at_once_and_each_waits_for_its_time(jobs: Jobs, firing: Firing) -> None:
    many = [job(now_ms=NOW_MS + at) for at in range(200)]
    answers = await jobs.add(new(*many), upsert=refuse, audit=None, seal=None)
    assert answers == [None] * 200
    assert [e.key for e in await firing.walk(range(PARTITIONS), None, NOW_MS + 1000, 1000)] == [one.id for one in many]


async def test_a_job_may_have_nothing_to_wait_for(jobs: Jobs, query_store: QueryStore, firing: Firing) -> None:
    one = job()
    await jobs.add([NewJob(one, None)], upsert=refuse, audit=None, seal=None)
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.fire is None
    assert await firing.walk(range(PARTITIONS), None, 2**60, 10) == []


async def test_adding_nothing_is_nothing(jobs: Jobs) -> None:
    assert await jobs.add([], upsert=refuse, audit=None, seal=None) == []


async def test_audit_log_names_the_creator_of_jobs(jobs: Jobs, settings_store: SettingsStore) -> None:
    entry = audit("job.create", target="a job", detail={"jobs": 2})
    await jobs.add(new(job(), job()), upsert=refuse, audit=entry, seal=None)
    ((_, kept),) = await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)
    assert kept == entry


# Unique keys


async def test_a_taken_key_changes_the_job_that_has_it(jobs: Jobs, query_store: QueryStore) -> None:
    first = job(spec(unique_key="nightly"), payload=b"old")
    await jobs.add(new(first), upsert=refuse, audit=None, seal=None)
    beside, second = job(), job(spec(unique_key="nightly", name="renamed"), payload=b"new")
    answers = await jobs.add(new(beside, second), upsert=take_over, audit=None, seal=None)
    assert answers[0] is None
    assert answers[1] is not None
    assert answers[1].after.job.id == first.id
    row = await query_store.find_job(TENANT, first.id)
    assert row is not None
    assert (row.job.revision, row.job.payload, row.job.spec.name) == (2, b"new", "renamed")
    assert await query_store.find_job(TENANT, second.id) is None
    assert await query_store.find_job(TENANT, beside.id) is not None


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_the_decision_about_a_taken_key_sees_the_job_as_it_is(crank: Crank, jobs: Jobs) -> None:
    first = job(every(unique_key="nightly"))
    await crank.add(first)
    await crank.fire()
    seen: list[tuple[Snapshot, Job]] = []

    def look(before: Snapshot, wanted: Job) -> Change:
        seen.append((before, wanted))
        return Change()

    second = job(every(unique_key="nightly"))
    (answer,) = await jobs.add(new(second), upsert=look, audit=None, seal=None)
    ((before, wanted),) = seen
    assert (before.job, wanted) == (first, second)
    assert before.fire == Fire(NOW_MS + MINUTE, NOW_MS + MINUTE)
    assert [e.id for e in before.known_open] == [execution_id(first.id, NOW_MS)]
    assert answer is not None
    assert answer.after == before


async def test_a_key_that_comes_twice_in_one_call_is_added_and_then_changed(
    jobs: Jobs, query_store: QueryStore
) -> None:
    first, second = job(spec(unique_key="nightly")), job(spec(unique_key="nightly", name="second"))
    answers = await jobs.add(new(first, second), upsert=take_over, audit=None, seal=None)
    assert answers[0] is None
    assert answers[1] is not None
    assert (answers[1].after.job.id, answers[1].after.job.spec.name) == (first.id, "second")
    assert len(await query_store.declared_keys(TENANT, "")) == 1


async def test_another_tenant_may_use_the_same_key(jobs: Jobs, query_store: QueryStore) -> None:
    for tenant in (TENANT, OTHER):
        await jobs.add(new(job(spec(unique_key="nightly"), tenant=tenant)), upsert=refuse, audit=None, seal=None)
    assert len(await query_store.declared_keys(OTHER, "nightly")) == 1


async def test_a_cancelled_job_gives_its_key_back(crank: Crank, jobs: Jobs, query_store: QueryStore) -> None:
    first, second = job(spec(unique_key="nightly")), job(spec(unique_key="nightly"))
    await crank.add(first)
    await crank.change(first, Change(job=msgspec.structs.replace(first, state=JobState.CANCELLED)))
    assert await jobs.add(new(second), upsert=refuse, audit=None, seal=None) == [None]
    assert await query_store.declared_keys(TENANT, "nightly") == [("nightly", second.id)]


async def test_an_upsert_that_raises_adds_nothing_of_the_call(
    jobs: Jobs, query_store: QueryStore, settings_store: SettingsStore
) -> None:
    await jobs.add(new(job(spec(unique_key="nightly"))), upsert=refuse, audit=None, seal=None)
    beside = job()
    with pytest.raises(Conflict):
        await jobs.add(new(beside, job(spec(unique_key="nightly"))), upsert=refuse, audit=audit(), seal=None)
    assert await query_store.find_job(TENANT, beside.id) is None
    assert await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10) == []


# Editing


async def test_decision_sees_the_job_its_fire_row_and_the_named_executions(crank: Crank) -> None:
    one = job(every(10, retry_policy=RetryPolicy(max_attempts=1)))
    await crank.add(one)
    closed, still_open, recent = [(await crank.fire_one(at_ms=NOW_MS + at * SECOND)) for at in (0, 10, 20)]
    await crank.settle(report(closed), report(recent))
    seen: list[Snapshot] = []

    def look(before: Snapshot) -> Change:
        seen.append(before)
        return Change()

    applied = await crank.change(one, look, show=[recent.execution_id])
    (before,) = seen
    assert before.job == one
    assert before.fire == Fire(NOW_MS + 30 * SECOND, NOW_MS + 30 * SECOND)
    assert [e.id for e in before.executions] == [still_open.execution_id, recent.execution_id]
    assert [e.id for e in before.known_open] == [still_open.execution_id]
    assert [e.awaits_start for e in before.executions] == [True, False]
    assert applied.after == before
    assert (applied.entries, applied.revocations, applied.created) == ((), (), 0)


@pytest.mark.parametrize("scope", [Scope.UNBUFFERED, Scope.OPEN])
async def test_a_decision_that_asks_for_more_is_made_again_with_it(crank: Crank, scope: Scope) -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL))
    await crank.add(one)
    running = await crank.fire_one()
    for minutes in (1, 2, 3):
        await crank.fire(at_ms=NOW_MS + minutes * MINUTE)
    seen: list[list[str]] = []

    def look(before: Snapshot) -> Change:
        assert before.has_open
        assert before.has_buffered
        seen.append([e.id for e in before.open_in(scope)])
        return Change()

    await crank.change(one, look)
    everything = [execution_id(one.id, NOW_MS + minutes * MINUTE) for minutes in range(4)]
    assert seen == [[running.execution_id] if scope is Scope.UNBUFFERED else everything]


async def test_a_decision_learns_which_executions_exist(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    await crank.settle(report(await crank.fire_one()))
    there, missing = execution_id(one.id, NOW_MS), execution_id(one.id, NOW_MS + MINUTE)
    seen: list[object] = []

    def look(before: Snapshot) -> Change:
        seen.append((before.existing([there]), before.existing([missing, there]), before.find(missing)))
        return Change()

    await crank.change(one, look)
    assert seen == [({there}, {there}, None)]


async def test_the_turn_of_the_next_one_comes_although_others_of_the_backlog_are_cancelled(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL))
    await crank.add(one)
    running = await crank.fire_one()
    for minutes in range(1, 6):
        await crank.fire(at_ms=NOW_MS + minutes * MINUTE)
    first, second, third = (execution_id(one.id, NOW_MS + minutes * MINUTE) for minutes in (1, 2, 3))
    await crank.change(one, Change(cancel=((first, "no"), (second, "no"))))
    settled = await crank.settle(report(running))
    assert [entry.key for entry in settled.entries] == [third]


async def test_a_retry_that_waits_keeps_the_backlog_waiting(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL))
    await crank.add(one)
    running = await crank.fire_one()
    await crank.fire(at_ms=NOW_MS + MINUTE)
    settled = await crank.settle(report(running, Outcome.FAILED, failure=failure()))
    assert [entry.key for entry in settled.entries] == [running.execution_id]
    applied = await crank.change(one, Change(cancel=((running.execution_id, "no"),)))
    assert [entry.key for entry in applied.entries] == [execution_id(one.id, NOW_MS + MINUTE)]


async def test_a_job_of_another_tenant_or_none_at_all_is_not_found(crank: Crank, jobs: Jobs) -> None:
    one = job()
    await crank.add(one)
    with pytest.raises(NotFound):
        await jobs.edit(OTHER, one.id, lambda _: Change())
    with pytest.raises(NotFound):
        await jobs.edit(TENANT, JobId("01900000-0000-7000-8000-ffffffffffff"), lambda _: Change())


async def test_a_change_is_applied_whole(crank: Crank, query_store: QueryStore, settings_store: SettingsStore) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    replaced = msgspec.structs.replace(one, revision=2, payload=b"new", updated_ms=NOW_MS + 5)
    decision = Decision(one.id, NOW_MS + MINUTE, NOW_MS + HOUR, 60, DecisionOutcome.EDITED, "the job was replaced")
    applied = await crank.change(
        one,
        Change(
            job=replaced,
            fire=Fire(NOW_MS + 2 * HOUR, NOW_MS + 2 * HOUR, 4),
            decisions=(decision,),
            executions=(trigger(one, at_ms=NOW_MS + 5),),
            cancel=((dispatch.execution_id, "EDITED"),),
            audit=audit("job.replace", NOW_MS + 5),
        ),
    )
    assert applied.after.job == replaced
    assert applied.after.fire == Fire(NOW_MS + 2 * HOUR, NOW_MS + 2 * HOUR, 4)
    assert applied.created == 1
    assert {(e.kind, e.key, e.number) for e in applied.entries} == {
        (Kind.FIRE, one.id, 2),
        (Kind.DISPATCH, trigger(one, at_ms=NOW_MS + 5).id, 1),
    }
    assert applied.revocations == ((POOL, dispatch.execution_id, 1, "EDITED"),)
    assert await query_store.decisions_between(one.id, 0, 2**60, 10) == [decision]
    assert {e.key for e in await crank.timeline()} == {e.key for e in applied.entries}
    ((_, entry),) = await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)
    assert entry.action == "job.replace"


async def test_a_decision_that_raises_changes_nothing(crank: Crank, query_store: QueryStore, jobs: Jobs) -> None:
    one = job(every())
    await crank.add(one)
    before = await query_store.find_job(TENANT, one.id)

    def decide(_: Snapshot) -> Change:
        raise Conflict("not now")

    with pytest.raises(Conflict, match="not now"):
        await jobs.edit(TENANT, one.id, decide)
    assert await query_store.find_job(TENANT, one.id) == before


async def test_a_seal_that_raises_undoes_the_change(crank: Crank, query_store: QueryStore, jobs: Jobs) -> None:
    one = job(every())
    await crank.add(one)
    before = await query_store.find_job(TENANT, one.id)

    def seal(_: ChangeResult) -> Receipt:
        raise Conflict("no receipt")

    paused = Change(job=msgspec.structs.replace(one, state=JobState.PAUSED), fire=Fire(NOW_MS, None))
    with pytest.raises(Conflict, match="no receipt"):
        await jobs.edit(TENANT, one.id, lambda _: paused, seal=seal)
    assert await query_store.find_job(TENANT, one.id) == before
    assert len(await crank.due()) == 1


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_decisions_about_one_job_never_interleave(crank: Crank, jobs: Jobs, query_store: QueryStore) -> None:
    one = job(every())
    await crank.add(one)

    def count_up(before: Snapshot) -> Change:
        return Change(job=msgspec.structs.replace(before.job, revision=before.job.revision + 1))

    await asyncio.gather(*[jobs.edit(TENANT, one.id, count_up) for _ in range(50)])
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.job.revision == 51


async def test_definition_of_a_former_revision_is_kept(crank: Crank, query_store: QueryStore) -> None:
    one = job(every(), payload=b"one")
    await crank.add(one)
    for revision, payload in ((2, b"two"), (3, None), (4, b"four")):
        await crank.change(one, Change(job=msgspec.structs.replace(one, revision=revision, payload=payload)))
    found = await query_store.definitions(TENANT, [(one.id, revision) for revision in (1, 2, 3, 4, 5)])
    kept = [(found[one.id, revision].revision, found[one.id, revision].payload) for revision in (1, 2, 3, 4, 5)]
    assert kept == [(1, b"one"), (2, b"two"), (3, None), (4, b"four"), (4, b"four")]


async def test_without_a_time_the_fire_row_stays_off_the_timeline(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    applied = await crank.change(one, Change(fire=Fire(NOW_MS, None, 3)))
    assert (applied.after.fire, applied.entries) == (Fire(NOW_MS, None, 3), ())
    assert await crank.timeline() == []
    back = await crank.change(one, Change(fire=Fire(NOW_MS, NOW_MS, 3)))
    assert [(e.key, e.due_ms) for e in back.entries] == [(one.id, NOW_MS)]


async def test_a_new_target_and_priority_show_on_the_timeline(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    moved = msgspec.structs.replace(
        one, revision=2, spec=every(target=Target("mail", "send"), priority=Priority.LOW, overlap=Overlap.SKIP)
    )
    await crank.change(one, Change(job=moved, fire=Fire(NOW_MS, NOW_MS)))
    (entry,) = await crank.due()
    assert (entry.pool, entry.lane, entry.early, entry.number) == ("mail", 2, 0, 2)


# Executions that a decision creates


async def test_a_new_execution_waits_on_the_timeline(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    made = trigger(one, at_ms=NOW_MS + 5)
    await crank.change(one, Change(executions=(made,), audit=audit("job.trigger", NOW_MS + 5)))
    found = await crank.look(made.id)
    assert (found.state, found.cause, found.attempt, found.dispatch) == (State.PENDING, Cause.TRIGGER, 1, 1)
    assert (found.nominal_ms, found.due_ms, found.waits_until_ms) == (NOW_MS + 5, NOW_MS + 5, NOW_MS + 5)
    assert (found.fired_ms, found.created_ms, found.revision) == (None, NOW_MS + 5, 1)


async def test_a_new_execution_that_exists_is_left_alone(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    made = trigger(one)
    assert (await crank.change(one, Change(executions=(made,)))).created == 1
    again = await crank.change(one, Change(executions=(made, trigger(one, "2"))))
    assert again.created == 1
    assert [e.key for e in again.entries] == [trigger(one, "2").id]


@pytest.mark.parametrize("fields", [{}, {"concurrency": Concurrency("db", 1)}], ids=["plain", "key"])
async def test_an_execution_that_ended_long_ago_is_not_made_again(crank: Crank, fields: dict[str, object]) -> None:
    one = job(every(**fields))
    await crank.add(one)
    await crank.change(one, Change(fire=Fire(NOW_MS, None), executions=(trigger(one),)))
    await crank.settle(report(await crank.fire_one()))
    applied = await crank.change(one, Change(executions=(trigger(one),)))
    assert (applied.created, applied.entries) == (0, ())
    assert await crank.timeline() == []


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_buffered_execution_waits_for_the_open_one(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL))
    await crank.add(one)
    await crank.change(one, Change(fire=Fire(NOW_MS, None)))
    applied = await crank.change(one, Change(executions=(trigger(one), trigger(one, "2", buffered=True))))
    assert [e.key for e in applied.entries] == [trigger(one).id]
    settled = await crank.settle(report(await crank.fire_one()))
    assert [e.key for e in settled.entries] == [trigger(one, "2").id]


async def test_skip_is_stored_and_refuses_a_fire_that_was_planned_before(crank: Crank, query_store: QueryStore) -> None:
    one = job(every())
    await crank.add(one)
    requests = await crank.plan(await crank.due())
    applied = await crank.change(one, lambda before: skips.skip(before, None, 2, "ann", "why", NOW_MS, audit()))
    assert applied.fenced == ()
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.job.skips == (
        Skip(NOW_MS, "ann", NOW_MS + 1, "why"),
        Skip(NOW_MS + MINUTE, "ann", NOW_MS + 1, "why"),
    )
    refused = await crank.store.firing.fire(crank.owner, requests, NOW_MS)
    assert (refused.refused, refused.dispatches) == (1, ())
    fired = await crank.fire(refused.entries)
    assert (fired.dispatches, fired.decided) == ((), {"SKIPPED": 1})
    (decision,) = await query_store.decisions_between(one.id, NOW_MS, NOW_MS + HOUR, 10)
    assert (decision.from_ms, decision.outcome, decision.reason) == (NOW_MS, "SKIPPED", "skipped by ann: why")
    await crank.change(one, lambda before: skips.undo(before, NOW_MS + MINUTE, NOW_MS + 5, audit()))
    (dispatch,) = (await crank.fire(at_ms=NOW_MS + MINUTE)).dispatches
    assert dispatch.nominal_ms == NOW_MS + MINUTE


async def test_skip_leaves_dispatched_executions_alone(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    applied = await crank.change(one, lambda before: skips.skip(before, None, 1, "ann", None, NOW_MS, audit()))
    assert (applied.revocations, applied.fenced) == ((), ())
    await crank.settle(report(dispatch))
    assert await crank.states_of(one) == ["SUCCEEDED"]


async def test_move_is_stored_and_refuses_a_fire_that_was_planned_before(crank: Crank, query_store: QueryStore) -> None:
    one, to_ms = job(every()), NOW_MS + 30 * SECOND
    await crank.add(one)
    requests = await crank.plan(await crank.due())
    applied = await crank.change(one, lambda before: moves.move(before, NOW_MS, to_ms, "ann", "why", NOW_MS, audit()))
    assert applied.fenced == ()
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.job.moves == (Move(NOW_MS, NOW_MS, to_ms, "ann", NOW_MS, "why"),)
    refused = await crank.store.firing.fire(crank.owner, requests, NOW_MS)
    assert (refused.refused, refused.dispatches) == (1, ())
    fired = await crank.fire(refused.entries)
    assert (fired.dispatches, fired.decided) == ((), {"MOVED": 1})
    (decision,) = await query_store.decisions_between(one.id, NOW_MS, NOW_MS + HOUR, 10)
    assert (decision.from_ms, decision.outcome) == (NOW_MS, "MOVED")
    assert decision.reason == "moved to 2030-01-01T00:00:30.000Z by ann: why"
    dispatch = await crank.fire_one(at_ms=to_ms)
    assert (dispatch.nominal_ms, dispatch.execution_id) == (to_ms, execution_id(one.id, to_ms))
    assert (await crank.fire_one(at_ms=NOW_MS + MINUTE)).nominal_ms == NOW_MS + MINUTE


async def test_occurrence_that_was_moved_back_before_the_fire_fires_at_its_own_time(crank: Crank) -> None:
    one, to_ms = job(every()), NOW_MS + 30 * SECOND
    await crank.add(one)
    await crank.change(one, lambda before: moves.move(before, NOW_MS, to_ms, "ann", None, NOW_MS - 1, audit()))
    stale = await crank.plan(await crank.due())
    await crank.change(one, lambda before: moves.move(before, to_ms, NOW_MS, "ann", None, NOW_MS - 1, audit()))
    refused = await crank.store.firing.fire(crank.owner, stale, NOW_MS)
    assert (refused.refused, refused.decided) == (1, {})
    assert (await crank.fire_one()).nominal_ms == NOW_MS


async def test_last_occurrence_of_a_schedule_fires_at_the_time_that_it_was_moved_to(crank: Crank) -> None:
    one = job(every(end_at=instant(NOW_MS)))
    await crank.add(one)
    await crank.change(one, lambda before: moves.move(before, NOW_MS, NOW_MS + HOUR, "ann", None, NOW_MS, audit()))
    assert (await crank.fire()).dispatches == ()
    assert (await crank.fire_one(at_ms=NOW_MS + HOUR)).nominal_ms == NOW_MS + HOUR
    assert await crank.timeline() == []


@pytest.mark.parametrize("ordered", [False, True])
async def test_left_out_occurrence_of_a_backlog_is_decided_when_its_turn_comes(crank: Crank, ordered: bool) -> None:
    """One fire at a time is started of a backlog. Left-out occurrences behind it can still be undone, and are decided once."""
    key = Concurrency("k", 1, ordered=ordered)
    one = job(every(catch_up=CatchUp(CatchUpPolicy.ALL), concurrency=key))
    two, three = NOW_MS + 2 * MINUTE, NOW_MS + 3 * MINUTE
    await crank.add(one)
    await crank.change(one, lambda before: skips.skip(before, two, 1, "ann", None, NOW_MS, audit()))
    await crank.change(one, lambda before: moves.move(before, three, three + 30 * SECOND, "ann", None, NOW_MS, audit()))
    first = await crank.fire(at_ms=NOW_MS + 5 * MINUTE)
    assert ([each.nominal_ms for each in first.dispatches], first.decided) == ([NOW_MS], {})
    await crank.settle(report(first.dispatches[0]))
    second = await crank.fire(at_ms=NOW_MS + 6 * MINUTE)
    assert [each.nominal_ms for each in second.dispatches] == [NOW_MS + MINUTE]
    assert second.decided == {"SKIPPED": 1, "MOVED": 1}
    assert await crank.fire_row(one) == Fire(three + 30 * SECOND, three + 30 * SECOND)


async def test_paused_job_keeps_the_end_of_its_pause_until_it_is_resumed(
    crank: Crank, jobs: Jobs, query_store: QueryStore
) -> None:
    one, until_ms = job(every()), NOW_MS + HOUR
    await crank.add(one)
    assert await jobs.next_resume_ms() is None
    await crank.change(one, lambda before: edits.pause(before, NOW_MS, audit(), until_ms))
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert row.job.paused_until_ms == until_ms
    assert await jobs.next_resume_ms() == until_ms
    assert await jobs.due_resumes(until_ms - 1, 10, 10) == []
    due = await jobs.due_resumes(until_ms, 10, 10)
    assert due == [DueResume(TENANT, one.id, until_ms)]
    # The change was stored, and its answer was lost: once more changes nothing.
    for _ in range(2):
        await crank.change(one, lambda before: resume_on_time(before, until_ms=until_ms, audit=audit()))
    assert await jobs.next_resume_ms() is None
    row = await query_store.find_job(TENANT, one.id)
    assert row is not None
    assert (row.job.state, row.job.paused_until_ms) == (JobState.ACTIVE, None)
    assert row.fire == Fire(until_ms + MINUTE, until_ms + MINUTE)
    (decision,) = await query_store.decisions_between(one.id, NOW_MS, until_ms, 10)
    assert (decision.outcome, decision.count) == ("PAUSED", 61)


async def test_due_resumes_begin_with_the_earliest_of_each_tenant(crank: Crank, jobs: Jobs) -> None:
    def paused(tenant: TenantId, until_ms: int) -> Job:
        return job(every(), tenant=tenant, state=JobState.PAUSED, paused_until_ms=until_ms)

    mine, others = [paused(TENANT, NOW_MS + at) for at in range(5)], [paused(OTHER, NOW_MS + at) for at in (7, 6)]
    late = paused(OTHER, NOW_MS + 100)
    await crank.add(*mine, *others, late)
    due = await jobs.due_resumes(NOW_MS + 50, 3, 10)
    assert [(each.tenant, each.until_ms - NOW_MS) for each in due] == [
        (TENANT, 0),
        (OTHER, 6),
        (TENANT, 1),
        (OTHER, 7),
        (TENANT, 2),
    ]
    assert [each.until_ms - NOW_MS for each in await jobs.due_resumes(NOW_MS + 50, 3, 2)] == [0, 6]
    assert await jobs.next_resume_ms() == NOW_MS


async def test_payload_of_an_execution_replaces_that_of_its_job_and_passes_to_its_retry(crank: Crank) -> None:
    one = job(spec(retry_policy=RetryPolicy(max_attempts=1)), payload=b"of the job")
    await crank.add(one)
    own = msgspec.structs.replace(trigger(one), payload=b"\0own")
    await crank.change(one, Change(fire=Fire(NOW_MS, None), executions=(own, trigger(one, "2"))))
    fired = {each.execution_id: each.payload for each in (await crank.fire()).dispatches}
    assert fired == {own.id: b"\0own", trigger(one, "2").id: b"of the job"}
    newer = msgspec.structs.replace(one, revision=2, payload=b"newer")
    retry = NewExecution(execution_id(one.id, NOW_MS, "retry:1"), NOW_MS, NOW_MS, Cause.RETRY_OF, retry_of=own.id)
    await crank.change(one, Change(job=newer, fire=Fire(NOW_MS, None), executions=(retry,)))
    (again,) = (await crank.fire()).dispatches
    assert (again.execution_id, again.payload) == (retry.id, b"\0own")


async def test_a_dead_letter_is_retried_by_an_execution_that_names_it(crank: Crank, query_store: QueryStore) -> None:
    one = job(spec(retry_policy=RetryPolicy(max_attempts=1)))
    await crank.add(one)
    dead = await crank.fire_one()
    await crank.settle(report(dead, Outcome.FAILED, failure=failure()))
    again = NewExecution(
        execution_id(one.id, NOW_MS, "retry:1"), NOW_MS, NOW_MS + HOUR, Cause.RETRY_OF, False, dead.execution_id
    )
    await crank.change(one, Change(executions=(again,), dead=((dead.execution_id, again.id),)))
    found = await crank.look(again.id)
    assert (found.retry_of, found.cause) == (dead.execution_id, Cause.RETRY_OF)
    letter = await query_store.find_dead(TENANT, dead.execution_id)
    assert letter is not None
    assert letter[1:] == (False, again.id)


async def test_a_dead_letter_is_archived(crank: Crank, query_store: QueryStore) -> None:
    one = job(spec(retry_policy=RetryPolicy(max_attempts=1)))
    await crank.add(one)
    dead = await crank.fire_one()
    await crank.settle(report(dead, Outcome.FAILED, failure=failure()))
    await crank.change(one, Change(dead=((dead.execution_id, None),)))
    letter = await query_store.find_dead(TENANT, dead.execution_id)
    assert letter is not None
    assert letter[1:] == (True, None)


# Cancelling


async def test_execution_without_a_worker_is_cancelled_at_once(crank: Crank) -> None:
    one = job(every(retry_policy=RetryPolicy(backoff=Backoff.FIXED)))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    asked = Change(cancel=((dispatch.execution_id, "by ann"),), audit=audit("execution.revocation", NOW_MS + HOUR))
    applied = await crank.change(one, asked)
    assert applied.revocations == ()
    found = await crank.look(dispatch)
    assert (found.state, found.revocation, found.waits_until_ms) == (State.CANCELLED, "by ann", None)
    assert found.finished_ms == NOW_MS + HOUR
    assert is_path(states_through(found))
    assert [e.kind for e in await crank.timeline()] == [Kind.FIRE]


async def test_transitions_of_a_cancelled_execution_go_forward_in_time(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=HOUR))
    asked = Change(cancel=((dispatch.execution_id, "by ann"),), audit=audit("execution.revocation", crank.now_ms + 1))
    await crank.change(one, asked)
    times = [transition[1] for transition in json.loads(f"[{(await crank.look(dispatch)).transitions}]")]
    assert times == sorted(times)


async def test_change_of_a_job_fences_its_earlier_dispatches_in_their_pool(crank: Crank) -> None:
    """The first dispatch is over, so it is not revoked, and a worker of its pool may get it once more."""
    one = job(every(retry_policy=RetryPolicy(backoff=Backoff.FIXED)))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))
    moved = msgspec.structs.replace(one, revision=2, spec=every(target=Target("mail", "act")))
    applied = await crank.change(one, Change(job=moved))
    assert applied.fenced == (POOL,)
    applied = await crank.change(one, Change(suspend=(dispatch.execution_id,)))
    assert applied.fenced == (POOL, "mail")
    applied = await crank.change(one, Change(cancel=((dispatch.execution_id, "by ann"),)))
    assert applied.fenced == (POOL, "mail")


async def test_change_that_revokes_nothing_fences_nothing(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    await crank.fire_one()
    new = NewExecution(execution_id(one.id, NOW_MS + 1), NOW_MS + 1, NOW_MS + 1, Cause.TRIGGER)
    assert (await crank.change(one, Change())).fenced == ()
    assert (await crank.change(one, Change(executions=(new,)))).fenced == ()
    paused = msgspec.structs.replace(one, state=JobState.PAUSED)
    assert (await crank.change(one, Change(job=paused))).fenced == (POOL,)
    assert (await crank.change(one, Change())).fenced == (POOL,), (
        "the job is paused, and its fence may not have been set"
    )
    assert (await crank.change(one, Change(job=one))).fenced == ()


@pytest.mark.parametrize("started", [False, True])
async def test_dispatched_execution_is_revoked(crank: Crank, started: bool) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    if started:
        await crank.settle(report(dispatch, Outcome.STARTED))
    before = await crank.look(dispatch)
    applied = await crank.change(one, Change(cancel=((dispatch.execution_id, "by ann"),)))
    assert applied.revocations == ((POOL, dispatch.execution_id, 1, "by ann"),)
    assert await crank.look(dispatch) == msgspec.structs.replace(before, revocation="by ann")


async def test_execution_cancelled_before_its_dispatch_is_not_dispatched(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    await crank.change(one, Change(fire=Fire(NOW_MS, None), executions=(trigger(one),)))
    entries = await crank.due()
    await crank.change(one, Change(cancel=((trigger(one).id, "by ann"),)))
    fired = await crank.fire(entries)
    assert (fired.dispatches, fired.refused) == ((), 1)


async def test_cancel_frees_no_slot_of_an_execution_without_one(crank: Crank) -> None:
    one, rival, third = [job(spec(concurrency=Concurrency("db", 1))) for _ in range(3)]
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=HOUR))
    await crank.add(rival, third)
    assert len((await crank.fire()).dispatches) == 1
    await crank.change(one, Change(cancel=((dispatch.execution_id, "by ann"),)))
    assert (await crank.fire()).dispatches == ()


# Running under a new definition


async def test_waiting_execution_can_run_under_the_new_definition(crank: Crank) -> None:
    one = job(every(), payload=b"old")
    await crank.add(one)
    await crank.change(one, Change(fire=Fire(NOW_MS, None), executions=(trigger(one),)))
    replaced = msgspec.structs.replace(one, revision=2, payload=b"new", spec=every(target=Target("mail", "send")))
    applied = await crank.change(one, Change(job=replaced, rebase=(trigger(one).id,)))
    assert [(e.key, e.number, e.pool, e.due_ms) for e in applied.entries] == [(trigger(one).id, 1, "mail", NOW_MS)]
    dispatch = await crank.fire_one()
    assert (dispatch.pool, dispatch.handler, dispatch.payload, dispatch.revision) == ("mail", "send", b"new", 2)


async def test_job_edited_to_allow_overlap_releases_buffered_executions(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL))
    await crank.add(one)
    await crank.fire_one()
    for minutes in (1, 2):
        await crank.fire(at_ms=NOW_MS + minutes * MINUTE)
    waiting = [e.id for e in await crank.all_of(one) if e.buffered]
    assert len(waiting) == 2
    edited = msgspec.structs.replace(one, revision=2, spec=every(overlap=Overlap.ALLOW))
    applied = await crank.change(one, Change(job=edited, rebase=tuple(waiting)))
    assert {e.key for e in applied.entries} == set(waiting)
    assert [(e.revision, e.buffered) for e in await crank.all_of(one) if e.id in waiting] == [(2, 0), (2, 0)]
    fired = [await crank.fire(at_ms=NOW_MS + 2 * MINUTE + turn) for turn in range(3)]
    assert set(waiting) <= {dispatch.execution_id for each in fired for dispatch in each.dispatches}


async def test_job_edited_to_limit_overlap_counts_its_open_executions(crank: Crank) -> None:
    one = job(every(overlap=Overlap.ALLOW))
    await crank.add(one)
    dispatch = await crank.fire_one()
    constrained = msgspec.structs.replace(one, revision=2, spec=every(overlap=Overlap.BUFFER_ONE))
    await crank.change(one, Change(job=constrained, fire=Fire(NOW_MS + MINUTE, NOW_MS + MINUTE)))
    assert (await crank.fire(at_ms=NOW_MS + MINUTE)).dispatches == ()
    settled = await crank.settle(report(dispatch))
    assert [e.key for e in settled.entries] == [execution_id(one.id, NOW_MS + MINUTE)]


# Receipts


RECEIPT = Receipt(TENANT, "key-1", "fingerprint", NOW_MS, 201, b'{"jobId": "1"}\x00\xff')


async def test_receipt_is_stored_with_the_jobs_it_answers_for(jobs: Jobs) -> None:
    assert await jobs.find_receipt(TENANT, "key-1") is None
    seen: list[Sequence[ChangeResult | None]] = []

    def seal(answers: Sequence[ChangeResult | None]) -> Receipt:
        seen.append(list(answers))
        return RECEIPT

    answers = await jobs.add(new(job()), upsert=refuse, audit=None, seal=seal)
    assert seen == [answers]
    assert await jobs.find_receipt(TENANT, "key-1") == RECEIPT
    assert await jobs.find_receipt(OTHER, "key-1") is None


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_second_receipt_with_the_same_key_is_a_conflict_and_nothing_is_added(
    jobs: Jobs, query_store: QueryStore
) -> None:
    await jobs.add(new(job()), upsert=refuse, audit=None, seal=lambda _: RECEIPT)
    second = job()
    with pytest.raises(Conflict):
        await jobs.add(new(second), upsert=refuse, audit=None, seal=lambda _: RECEIPT)
    assert await query_store.find_job(TENANT, second.id) is None


async def test_a_second_receipt_with_the_same_key_undoes_an_edit(
    crank: Crank, jobs: Jobs, query_store: QueryStore
) -> None:
    one = job(every())
    await crank.add(one)

    def seal(applied: ChangeResult) -> Receipt:
        return msgspec.structs.replace(RECEIPT, body=str(applied.after.job.revision).encode())

    def count_up(before: Snapshot) -> Change:
        return Change(job=msgspec.structs.replace(before.job, revision=before.job.revision + 1))

    await jobs.edit(TENANT, one.id, count_up, seal=seal)
    with pytest.raises(Conflict):
        await jobs.edit(TENANT, one.id, count_up, seal=seal)
    row = await query_store.find_job(TENANT, one.id)
    receipt = await jobs.find_receipt(TENANT, "key-1")
    assert row is not None
    assert receipt is not None
    assert (row.job.revision, receipt.body) == (2, b"2")


async def test_concurrent_calls_with_one_key_take_effect_once(jobs: Jobs, firing: Firing) -> None:
    calls = [jobs.add(new(job()), upsert=refuse, audit=None, seal=lambda _: RECEIPT) for _ in range(20)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, Conflict) for answer in answers) == 19
    assert len(await firing.walk(range(PARTITIONS), None, 2**60, 100)) == 1
