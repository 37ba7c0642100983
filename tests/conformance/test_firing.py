from collections import Counter
from itertools import pairwise
from random import Random

import msgspec
import pytest

from noonday.model.batch import Batch, FireRequest, Owner
from noonday.model.change import Change, NewExecution
from noonday.model.execution import OPEN, Cause, Outcome, State
from noonday.model.firing import Decision, DecisionOutcome, Fire, FirePlan, Kind
from noonday.model.ids import PARTITIONS, InstanceId, TenantId, execution_id, partition_of
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, JobType, Overlap, Priority, Target
from noonday.model.message import Dispatch, Report
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.slots import of_key
from noonday.model.view import PoolSettings
from noonday.model.zones import tzdata_version
from noonday.ports.firing import Firing
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from tests.support.crank import INSTANCE, Crank, is_path, states_through
from tests.support.drivers import LEAD_MS, execute
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
    every,
    failure,
    instant,
    job,
    report,
    spec,
)

# Ownership


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_take_over_raises_the_epoch_of_the_taken_partitions_alone(firing: Firing) -> None:
    first = await firing.take_over(INSTANCE, range(PARTITIONS))
    second = await firing.take_over(InstanceId("i-2"), [3, 7])
    assert {p: each.epoch for p, each in second.items()} == {3: first[3].epoch + 1, 7: first[7].epoch + 1}
    third = await firing.take_over(InstanceId("i-3"), [3, 4])
    assert {p: each.epoch for p, each in third.items()} == {3: first[3].epoch + 2, 4: first[4].epoch + 1}


async def test_take_over_returns_the_former_owners(firing: Firing) -> None:
    assert {each.former for each in (await firing.take_over(INSTANCE, [3, 4])).values()} == {""}
    await firing.take_over(InstanceId("i-2"), [3])
    taken = await firing.take_over(INSTANCE, [3, 4])
    assert (taken[3].former, taken[4].former) == ("i-2", INSTANCE)


async def test_a_walk_sees_the_partitions_it_asks_for(crank: Crank, firing: Firing) -> None:
    jobs = [job() for _ in range(20)]
    await crank.add(*jobs)
    wanted = {partition_of(one.id) for one in jobs[:3]}
    found = await firing.walk(wanted, None, NOW_MS, 100)
    assert {entry.key for entry in found} == {one.id for one in jobs if partition_of(one.id) in wanted}
    assert await firing.walk([], None, NOW_MS, 100) == []


async def test_a_former_owner_fires_nothing(crank: Crank, firing: Firing) -> None:
    one = job()
    await crank.add(one)
    await firing.take_over(InstanceId("i-2"), [partition_of(one.id)])
    fired = await crank.fire()
    assert fired.lost == (partition_of(one.id),)
    assert (fired.batches, fired.dispatches, fired.entries, fired.refused) == ((), (), (), 0)
    assert await crank.states_of(one) == []
    assert len(await crank.due()) == 1


async def test_an_owner_that_never_won_a_partition_fires_nothing(crank: Crank, firing: Firing) -> None:
    one = job()
    await crank.add(one)
    crank.owner = Owner(INSTANCE, {})
    assert (await crank.fire()).lost == (partition_of(one.id),)
    assert len(await crank.due()) == 1


async def test_entries_of_owned_partitions_fire_beside_lost_partitions(crank: Crank, firing: Firing) -> None:
    jobs = [job() for _ in range(20)]
    await crank.add(*jobs)
    gone = partition_of(jobs[0].id)
    await firing.take_over(InstanceId("i-2"), [gone])
    fired = await crank.fire()
    assert {d.job_id for d in fired.dispatches} == {j.id for j in jobs if partition_of(j.id) != gone}
    assert fired.lost == (gone,)


async def test_dispatch_of_an_old_epoch_stays_valid(crank: Crank) -> None:
    one = job()
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.own(InstanceId("i-2"))
    await crank.settle(report(dispatch))
    assert await crank.states_of(one) == ["SUCCEEDED"]


# Single fires


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_due_one_shot_becomes_an_execution_and_leaves_the_timeline(crank: Crank) -> None:
    one = job()
    await crank.add(one)
    fired = await crank.fire(at_ms=NOW_MS + 5)
    (dispatch,) = fired.dispatches
    assert dispatch.execution_id == execution_id(one.id, NOW_MS)
    made = await crank.look(dispatch)
    assert (made.state, made.attempt, made.dispatch, made.fired_ms) == (State.PENDING, 1, 1, NOW_MS + 5)
    assert await crank.timeline() == []
    assert await crank.fire_row(one) is None
    assert (fired.entries, fired.refused, fired.lost, fired.blocked) == ((), 0, (), ())


async def test_dispatch_has_everything_a_worker_needs(crank: Crank) -> None:
    wanted = spec(
        name="nightly", timeout_sec=7.5, heartbeat_timeout_sec=30, start_deadline_sec=600, priority=Priority.HIGH
    )
    one = job(wanted, payload=b"\x00\xff sealed")
    await crank.add(one)
    assert await crank.fire_one(at_ms=NOW_MS + 5) == Dispatch(
        execution_id=execution_id(one.id, NOW_MS),
        number=1,
        job_id=one.id,
        tenant=TENANT,
        pool=POOL,
        handler=HANDLER,
        due_ms=NOW_MS,
        nominal_ms=NOW_MS,
        attempt=1,
        fired_ms=NOW_MS + 5,
        revision=1,
        timeout_sec=7.5,
        heartbeat_timeout_sec=30,
        start_deadline_sec=600,
        payload=b"\x00\xff sealed",
        progress=None,
        trace=one.trace,
        name="nightly",
        pool_timeout_sec=None,
        lane=0,
    )


async def test_firing_an_entry_again_is_refused_and_makes_nothing(crank: Crank) -> None:
    one = job()
    await crank.add(one)
    entries = await crank.due()
    await crank.fire(entries)
    again = await crank.fire(entries)
    assert (again.refused, again.batches, again.dispatches, again.entries) == (1, (), (), ())
    assert await crank.states_of(one) == ["PENDING"]


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.BUFFER_ALL])
async def test_an_entry_named_twice_in_one_fire_counts_once(crank: Crank, overlap: Overlap) -> None:
    one = job(spec(overlap=overlap))
    await crank.add(one)
    entries = await crank.due()
    fired = await crank.fire([*entries, *entries])
    assert [d.execution_id for d in fired.dispatches] == [execution_id(one.id, NOW_MS)]
    assert await crank.states_of(one) == ["PENDING"]
    assert (await crank.fire()).dispatches == ()


async def test_a_recurring_entry_named_twice_in_one_fire_counts_once(crank: Crank) -> None:
    one = job(every(60, max_runs=5))
    await crank.add(one)
    entries = await crank.due()
    fired = await crank.fire([*entries, *entries])
    assert len(fired.dispatches) == 1
    assert await crank.fire_row(one) == Fire(NOW_MS + MINUTE, NOW_MS + MINUTE, 4)


async def test_an_entry_of_an_old_revision_is_refused_and_answered_with_the_present_row(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    (old,) = await crank.due()
    edited = msgspec.structs.replace(one, revision=2)
    await crank.change(one, Change(job=edited, fire=Fire(NOW_MS, NOW_MS)))
    fired = await crank.fire([old])
    assert (fired.refused, fired.dispatches) == (1, ())
    assert fired.entries == (msgspec.structs.replace(old, number=2),)


async def test_an_entry_of_another_time_is_refused_and_answered_with_the_present_row(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    (old,) = await crank.due()
    await crank.fire([old])
    again = await crank.fire([old])
    assert (again.refused, again.dispatches) == (1, ())
    assert [(e.key, e.nominal_ms) for e in again.entries] == [(one.id, NOW_MS + MINUTE)]


async def test_an_entry_of_a_row_that_has_no_time_any_more_is_refused(crank: Crank) -> None:
    one = job()
    await crank.add(one)
    entries = await crank.due()
    await crank.change(one, Change(fire=Fire(NOW_MS, None)))
    fired = await crank.fire(entries)
    assert (fired.refused, fired.dispatches, fired.entries) == (1, (), ())


async def test_entry_that_is_not_due_is_not_fired(crank: Crank) -> None:
    one = job(now_ms=NOW_MS + LEAD_MS + 1)
    await crank.add(one)
    entries = await crank.timeline()
    fired = await crank.fire(entries)
    assert (fired.dispatches, fired.batches) == ((), ())
    assert fired.entries == tuple(entries)
    assert await crank.timeline() == entries


async def test_entry_that_is_due_within_the_lead_is_fired_early(crank: Crank) -> None:
    one = job(now_ms=NOW_MS + LEAD_MS)
    await crank.add(one)
    (dispatch,) = (await crank.fire(await crank.timeline())).dispatches
    assert (dispatch.due_ms, dispatch.fired_ms) == (NOW_MS + LEAD_MS, NOW_MS)


async def test_an_entry_that_needs_a_plan_is_not_fired_without_one(crank: Crank, firing: Firing) -> None:
    one = job(every())
    await crank.add(one)
    (due,) = await crank.due()
    fired = await firing.fire(crank.owner, [FireRequest(due)], NOW_MS)
    assert (fired.refused, fired.dispatches, fired.entries) == (1, (), (due,))


async def test_firing_nothing_is_nothing(firing: Firing) -> None:
    fired = await firing.fire(Owner(INSTANCE, {}), [], NOW_MS)
    assert (fired.batches, fired.dispatches, fired.entries) == ((), (), ())


# Schedules


async def test_a_recurring_job_moves_on_to_its_next_time(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    (before,) = await crank.due()
    fired = await crank.fire()
    following = msgspec.structs.replace(before, nominal_ms=NOW_MS + MINUTE, due_ms=NOW_MS + MINUTE)
    assert fired.entries == (following,)
    assert await crank.timeline() == [following]


async def test_spread_delays_each_due_time_and_leaves_the_nominal_one(crank: Crank) -> None:
    one = job(every(spread_sec=30))
    await crank.add(one)
    (first,) = await crank.timeline()
    spread = first.due_ms - first.nominal_ms
    assert 0 < spread < 30 * SECOND
    fired = await crank.fire(at_ms=first.due_ms)
    assert [(d.nominal_ms, d.due_ms) for d in fired.dispatches] == [(NOW_MS, NOW_MS + spread)]
    assert [(e.nominal_ms, e.due_ms) for e in fired.entries] == [(NOW_MS + MINUTE, NOW_MS + MINUTE + spread)]


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_max_runs_counts_down_and_its_row_stays_without_a_time(crank: Crank) -> None:
    one = job(every(max_runs=2))
    await crank.add(one)
    await crank.fire()
    assert await crank.fire_row(one) == Fire(NOW_MS + MINUTE, NOW_MS + MINUTE, 1)
    last = await crank.fire(at_ms=NOW_MS + MINUTE)
    assert (len(last.dispatches), last.entries) == (1, ())
    row = await crank.fire_row(one)
    assert row is not None
    assert (row.due_ms, row.runs_left) == (None, 0)
    assert row.nominal_ms > NOW_MS + MINUTE
    assert await crank.timeline() == []


async def test_an_occurrence_that_was_skipped_is_not_counted_by_max_runs(crank: Crank) -> None:
    one = job(every(max_runs=2, overlap=Overlap.SKIP))
    await crank.add(one)
    dispatch = await crank.fire_one()
    skipped = await crank.fire(at_ms=NOW_MS + MINUTE)
    assert (skipped.dispatches, skipped.decided) == ((), {"SKIPPED": 1})
    await crank.settle(report(dispatch))
    assert len((await crank.fire(at_ms=NOW_MS + 2 * MINUTE)).dispatches) == 1
    assert await crank.timeline() == []


async def test_missed_occurrences_are_written_down_with_their_count_and_reason(
    crank: Crank, query_store: QueryStore
) -> None:
    one = job(every(60))
    await crank.add(one)
    fired = await crank.fire(at_ms=NOW_MS + HOUR)
    assert [d.nominal_ms for d in fired.dispatches] == [NOW_MS + HOUR]
    assert fired.decided == {"MISSED": 60}
    (decision,) = await query_store.decisions_between(one.id, NOW_MS, NOW_MS + HOUR, 10)
    assert (decision.from_ms, decision.to_ms, decision.count) == (NOW_MS, NOW_MS + HOUR - MINUTE, 60)
    assert decision.outcome is DecisionOutcome.MISSED
    assert "LATEST" in decision.reason


async def test_a_one_shot_past_its_deadline_is_a_decision_and_not_a_run(crank: Crank, query_store: QueryStore) -> None:
    one = job(spec(start_deadline_sec=10))
    await crank.add(one)
    fired = await crank.fire(at_ms=NOW_MS + 11 * SECOND)
    assert (fired.dispatches, fired.batches, fired.decided) == ((), (), {"EXPIRED": 1})
    (decision,) = await query_store.decisions_between(one.id, NOW_MS, NOW_MS, 10)
    assert (decision.outcome, decision.count) == (DecisionOutcome.EXPIRED, 1)
    assert await crank.timeline() == []


async def test_a_plan_with_an_error_is_a_decision(crank: Crank, firing: Firing, query_store: QueryStore) -> None:
    one = job()
    await crank.add(one)
    (due,) = await crank.due()
    spoiled = Decision(one.id, NOW_MS, NOW_MS, 1, DecisionOutcome.ERROR, "KeyError: no such zone")
    fired = await firing.fire(crank.owner, [FireRequest(due, FirePlan((), (spoiled,)))], NOW_MS)
    assert fired.decided == {"ERROR": 1}
    assert await query_store.decisions_between(one.id, NOW_MS, NOW_MS, 10) == [spoiled]
    assert await crank.timeline() == []


async def test_all_missed_occurrences_fire_in_turns_that_leave_none_out(crank: Crank) -> None:
    one = job(every(60, catch_up=CatchUp(CatchUpPolicy.ALL)))
    await crank.add(one)
    nominal = []
    crank.now_ms = NOW_MS + 4 * HOUR
    while (fired := await crank.fire()).dispatches:
        nominal += [d.nominal_ms for d in fired.dispatches]
    assert nominal == list(range(NOW_MS, NOW_MS + 4 * HOUR + 1, MINUTE))


# Repeated dispatches


async def failed_once(crank: Crank, wanted: object = None) -> Dispatch:
    """Fire a job whose only dispatch fails, and return that dispatch."""
    await crank.add(wanted or job())  # type: ignore[arg-type]
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.FAILED, failure=failure(), progress=b"half"))
    return dispatch


async def test_retry_is_dispatched_with_the_next_number_and_the_last_progress(crank: Crank) -> None:
    first = await failed_once(crank)
    (row,) = await crank.timeline()
    assert (row.kind, row.key, row.number) == (Kind.DISPATCH, first.execution_id, 2)
    second = await crank.fire_one(at_ms=row.due_ms)
    expected = msgspec.structs.replace(
        first, number=2, attempt=2, due_ms=row.due_ms, fired_ms=row.due_ms, progress=b"half"
    )
    assert second == expected
    assert await crank.timeline() == []


async def test_a_dispatch_entry_is_fired_once(crank: Crank) -> None:
    await failed_once(crank)
    entries = await crank.timeline()
    crank.now_ms = entries[0].due_ms
    assert len((await crank.fire(entries)).dispatches) == 1
    again = await crank.fire(entries)
    assert (again.refused, again.dispatches) == (1, ())


async def test_a_dispatch_entry_of_another_number_is_refused_and_answered_with_the_present_row(crank: Crank) -> None:
    await failed_once(crank)
    (row,) = await crank.timeline()
    crank.now_ms = row.due_ms
    fired = await crank.fire([msgspec.structs.replace(row, number=1)])
    assert (fired.refused, fired.dispatches, fired.entries) == (1, (), (row,))


async def test_an_execution_keeps_the_definition_it_was_fired_with(crank: Crank) -> None:
    one = job(every(timeout_sec=10, heartbeat_timeout_sec=20, start_deadline_sec=30), payload=b"old")
    await failed_once(crank, one)
    replaced = msgspec.structs.replace(
        one, revision=2, payload=b"new", spec=every(timeout_sec=11, heartbeat_timeout_sec=21, start_deadline_sec=31)
    )
    await crank.change(one, Change(job=replaced, fire=Fire(NOW_MS + HOUR, NOW_MS + HOUR)))
    crank.now_ms = NOW_MS + HOUR
    old, new = sorted((await crank.fire()).dispatches, key=lambda d: d.revision)
    # The execution has started once, so its start deadline does not apply any more.
    assert (old.payload, old.timeout_sec, old.heartbeat_timeout_sec, old.start_deadline_sec) == (b"old", 10, 20, None)
    assert (new.payload, new.timeout_sec, new.heartbeat_timeout_sec, new.start_deadline_sec) == (b"new", 11, 21, 31)
    assert (old.revision, new.revision) == (1, 2)


async def test_dispatch_has_the_timeout_of_its_pool(crank: Crank, settings_store: SettingsStore) -> None:
    await settings_store.put_pool(POOL, PoolSettings(timeout_sec=90), audit("pool.put"))
    await crank.add(job())
    dispatch = await crank.fire_one()
    assert (dispatch.timeout_sec, dispatch.pool_timeout_sec) == (None, 90)


@pytest.mark.parametrize(
    ("policy", "attempts"), [(None, None), (RetryPolicy(max_attempts=7), 7), (RetryPolicy(backoff=Backoff.FIXED), 0)]
)
async def test_dispatch_has_the_number_of_attempts_of_its_job(
    crank: Crank, firing: Firing, policy: RetryPolicy | None, attempts: int | None
) -> None:
    await crank.add(job(spec(retry_policy=policy)), job(every(retry_policy=policy)))
    fired = await crank.fire()
    assert [dispatch.max_attempts for dispatch in fired.dispatches] == [attempts, attempts]
    assert [dispatch.secrets for dispatch in fired.dispatches] == [(), ()]
    batch = Batch(fired.batches[0], INSTANCE, NOW_MS)
    assert {dispatch.max_attempts for dispatch in await firing.dispatches_of(batch)} == {attempts}


async def test_a_retry_has_the_number_of_attempts_of_the_revision_it_was_fired_with(crank: Crank) -> None:
    one = job(spec(retry_policy=RetryPolicy(3, Backoff.FIXED, initial_delay_ms=1)))
    await crank.add(one)
    first = await crank.fire_one()
    await crank.settle(report(first, Outcome.STARTED))
    changed = msgspec.structs.replace(one, revision=2, spec=spec(retry_policy=RetryPolicy(max_attempts=9)))
    await crank.change(one, Change(job=changed))
    await crank.settle(report(first, Outcome.FAILED, failure=failure()))
    second = await crank.fire_one(at_ms=NOW_MS + HOUR)
    assert (second.revision, second.max_attempts) == (1, 3)


async def test_dispatch_has_the_number_of_attempts_of_its_pool(crank: Crank, settings_store: SettingsStore) -> None:
    await settings_store.put_pool(POOL, PoolSettings(retry_policy=RetryPolicy(max_attempts=2)), audit("pool.put"))
    await crank.add(job())
    dispatch = await crank.fire_one()
    assert (dispatch.max_attempts, dispatch.pool_max_attempts, dispatch.pool_timeout_sec) == (None, 2, None)


# Batches


async def test_a_batch_is_unsealed_until_the_bus_has_acknowledged_it(crank: Crank, firing: Firing) -> None:
    await crank.add(job(), job())
    fired = await crank.fire()
    assert len(fired.batches) == 1
    batch = Batch(fired.batches[0], INSTANCE, NOW_MS)
    assert await firing.unsealed(NOW_MS + 1, 10) == [batch]
    assert await firing.unsealed(NOW_MS, 10) == []
    assert await firing.dispatches_of(batch) == list(fired.dispatches)
    await firing.seal(fired.batches)
    assert await firing.unsealed(NOW_MS + 1, 10) == []
    assert await firing.dispatches_of(batch) == []


async def test_unsealed_batches_come_oldest_first_and_in_pages(crank: Crank, firing: Firing) -> None:
    batches = []
    for at_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2):
        await crank.add(job(now_ms=at_ms))
        batches.append((await crank.fire(at_ms=at_ms)).batches[0])
    assert [b.id for b in await firing.unsealed(NOW_MS + 10, 10)] == batches
    assert [b.id for b in await firing.unsealed(NOW_MS + 10, 2)] == batches[:2]


async def test_started_or_ended_execution_is_not_published_again(crank: Crank, firing: Firing) -> None:
    await crank.add(*[job() for _ in range(4)])
    fired = await crank.fire()
    waiting, started, ended, returned = fired.dispatches
    await crank.settle(
        report(started, Outcome.STARTED), report(ended), report(returned, Outcome.HANDED_BACK, ended_ms=NOW_MS)
    )
    (batch,) = await firing.unsealed(NOW_MS + 1, 10)
    assert await firing.dispatches_of(batch) == [waiting]


async def test_a_batch_does_not_publish_a_later_dispatch_of_its_executions(crank: Crank, firing: Firing) -> None:
    await failed_once(crank)
    (old,) = await firing.unsealed(NOW_MS + HOUR, 10)
    await crank.fire_one(at_ms=NOW_MS + HOUR)
    assert await firing.dispatches_of(old) == []


# Walks along the timeline


async def test_the_walk_goes_by_due_time_then_key_and_begins_after_its_mark(crank: Crank, firing: Firing) -> None:
    await crank.add(*[job(now_ms=NOW_MS + at) for at in (30, 10, 20, 10, 10, 30)])
    everything = await firing.walk(range(PARTITIONS), None, NOW_MS + 30, 100)
    marks = [(e.due_ms, e.key) for e in everything]
    assert len(marks) == 6
    assert all(a < b for a, b in pairwise(marks))
    paged = []
    mark = None
    while page := await firing.walk(range(PARTITIONS), mark, NOW_MS + 30, 2):
        paged += page
        mark = (page[-1].due_ms, page[-1].key)
    assert paged == everything


async def test_walk_ends_at_its_time_and_omits_rows_without_a_time(crank: Crank, firing: Firing) -> None:
    early, late, paused = job(), job(now_ms=NOW_MS + 10), job()
    await crank.add(early, late, paused)
    await crank.change(paused, Change(fire=Fire(NOW_MS, None)))
    assert [e.key for e in await firing.walk(range(PARTITIONS), None, NOW_MS + 9, 100)] == [early.id]
    assert [e.key for e in await firing.walk(range(PARTITIONS), None, NOW_MS + 10, 100)] == [early.id, late.id]


async def test_an_entry_names_its_job_exactly(crank: Crank) -> None:
    plain = job(spec(priority=Priority.LOW))
    planned = job(every(overlap=Overlap.SKIP, priority=Priority.HIGH))
    await crank.add(plain, planned)
    for each, entry in zip([plain, planned], sorted(await crank.due(), key=lambda e: e.key), strict=True):
        assert (entry.key, entry.kind, entry.number, entry.tenant) == (each.id, Kind.FIRE, 1, TENANT)
        assert (entry.partition, entry.pool) == (partition_of(each.id), POOL)
    a, b = sorted(await crank.due(), key=lambda e: e.key)
    assert (a.lane, a.early, a.recurring) == (2, 1, 0)
    assert (b.lane, b.early, b.recurring) == (0, 0, 1)


# Data for a fire


async def test_plans_name_the_job_of_the_present_revision(crank: Crank, firing: Firing) -> None:
    one, other = job(every(max_runs=9)), job(every())
    await crank.add(one, other)
    entries = await crank.due()
    plans = await firing.plans(entries)
    assert set(plans) == {(one.id, 1), (other.id, 1)}
    assert plans[one.id, 1].runs_left == 9
    assert msgspec.structs.replace(plans[one.id, 1].job, payload=one.payload, trace=one.trace) == one
    await crank.change(one, Change(job=msgspec.structs.replace(one, revision=2)))
    assert set(await firing.plans(entries)) == {(one.id, 2), (other.id, 1)}


async def test_due_rows_are_counted_by_pool(crank: Crank, firing: Firing) -> None:
    await crank.add(job(now_ms=NOW_MS - 5), job(), job(spec(target=Target("mail", "send"))), job(now_ms=NOW_MS + 1))
    assert await firing.count_due(NOW_MS) == {POOL: (2, NOW_MS - 5), "mail": (1, NOW_MS)}
    assert await firing.count_due(NOW_MS - 6) == {}


# Overlap


async def test_with_allow_occurrences_run_side_by_side(crank: Crank) -> None:
    one = job(every(overlap=Overlap.ALLOW))
    await crank.add(one)
    await crank.fire()
    await crank.fire(at_ms=NOW_MS + MINUTE)
    assert await crank.states_of(one) == ["PENDING", "PENDING"]


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_with_skip_an_occurrence_is_skipped_while_one_is_open(crank: Crank, query_store: QueryStore) -> None:
    one = job(every(overlap=Overlap.SKIP))
    await crank.add(one)
    first = await crank.fire_one()
    skipped = await crank.fire(at_ms=NOW_MS + MINUTE)
    assert (skipped.dispatches, skipped.batches, skipped.decided) == ((), (), {"SKIPPED": 1})
    (decision,) = await query_store.decisions_between(one.id, NOW_MS, NOW_MS + HOUR, 10)
    assert (decision.from_ms, decision.to_ms, decision.count) == (NOW_MS + MINUTE, NOW_MS + MINUTE, 1)
    assert "SKIP" in decision.reason
    await crank.settle(report(first))
    assert len((await crank.fire(at_ms=NOW_MS + 2 * MINUTE)).dispatches) == 1


async def test_a_retry_that_waits_counts_as_open(crank: Crank) -> None:
    await crank.add(job(every(overlap=Overlap.SKIP)))
    await crank.settle(report(await crank.fire_one(), Outcome.SNOOZED, snooze_ms=HOUR))
    assert (await crank.fire(at_ms=NOW_MS + MINUTE)).decided == {"SKIPPED": 1}


async def test_with_buffer_one_a_single_occurrence_waits(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ONE))
    await crank.add(one)
    first = await crank.fire_one()
    second = await crank.fire(at_ms=NOW_MS + MINUTE)
    assert (second.dispatches, second.batches, second.decided) == ((), (), {})
    assert (await crank.fire(at_ms=NOW_MS + 2 * MINUTE)).decided == {"SKIPPED": 1}
    assert [e.buffered for e in await crank.all_of(one)] == [0, 1]
    settled = await crank.settle(report(first, ended_ms=NOW_MS + 2 * MINUTE))
    assert [(e.kind, e.key, e.number) for e in settled.entries] == [
        (Kind.DISPATCH, execution_id(one.id, NOW_MS + MINUTE), 1)
    ]
    assert (await crank.fire_one()).nominal_ms == NOW_MS + MINUTE


async def test_a_buffered_occurrence_is_not_on_the_timeline(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ONE, end_at=instant(NOW_MS + MINUTE)))
    await crank.add(one)
    await crank.fire()
    await crank.fire(at_ms=NOW_MS + MINUTE)
    assert await crank.states_of(one) == ["PENDING", "PENDING"]
    assert await crank.timeline() == []


async def test_with_buffer_all_occurrences_run_one_after_the_other(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL, end_at=instant(NOW_MS + 3 * MINUTE)))
    await crank.add(one)
    dispatch = await crank.fire_one()
    for turn in (1, 2, 3):
        assert (await crank.fire(at_ms=NOW_MS + turn * MINUTE)).dispatches == ()
    for turn in (1, 2, 3):
        await crank.settle(report(dispatch, ended_ms=NOW_MS + HOUR + turn * MINUTE))
        dispatch = await crank.fire_one()
        assert dispatch.nominal_ms == NOW_MS + turn * MINUTE
    await crank.settle(report(dispatch))
    assert await crank.states_of(one) == ["SUCCEEDED"] * 4


async def test_several_missed_occurrences_of_one_fire_are_buffered_behind_the_first(crank: Crank) -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL, catch_up=CatchUp(CatchUpPolicy.ALL)))
    await crank.add(one)
    fired = await crank.fire(at_ms=NOW_MS + 3 * MINUTE)
    assert [d.nominal_ms for d in fired.dispatches] == [NOW_MS]
    assert [e.buffered for e in await crank.all_of(one)] == [0, 1, 1, 1]


async def test_cancel_other_revokes_the_dispatched_execution_and_waits_for_its_end(crank: Crank) -> None:
    one = job(every(overlap=Overlap.CANCEL_OTHER))
    await crank.add(one)
    first = await crank.fire_one()
    second = await crank.fire(at_ms=NOW_MS + MINUTE)
    ((pool, asked, number, reason),) = second.revocations
    assert (pool, asked, number) == (POOL, first.execution_id, 1)
    assert "CANCEL_OTHER" in reason
    assert second.dispatches == ()
    assert (await crank.look(first)).revocation == reason
    settled = await crank.settle(report(first, Outcome.CANCELLED, ended_ms=NOW_MS + MINUTE))
    assert [e.key for e in settled.entries] == [execution_id(one.id, NOW_MS + MINUTE)]
    assert (await crank.fire_one()).nominal_ms == NOW_MS + MINUTE


async def test_cancel_other_closes_an_undispatched_execution_and_starts_at_once(crank: Crank) -> None:
    one = job(every(overlap=Overlap.CANCEL_OTHER))
    await crank.add(one)
    first = await crank.fire_one()
    await crank.settle(report(first, Outcome.SNOOZED, snooze_ms=HOUR))
    fired = await crank.fire(at_ms=NOW_MS + MINUTE)
    assert fired.revocations == ()
    assert (await crank.look(first)).state is State.CANCELLED
    started = await crank.fire_one()
    assert started.nominal_ms == NOW_MS + MINUTE
    assert await crank.states_of(one) == ["CANCELLED", "PENDING"]


async def test_cancel_other_beats_an_edit_that_asks_for_the_same_execution(crank: Crank) -> None:
    one = job(every(overlap=Overlap.CANCEL_OTHER))
    await crank.add(one)
    first = await crank.fire_one()
    await crank.change(one, Change(cancel=((first.execution_id, "EDITED"),)))
    assert len((await crank.fire(at_ms=NOW_MS + MINUTE)).revocations) == 1
    await crank.settle(report(first, Outcome.REVOKED))
    assert (await crank.look(first)).state is State.CANCELLED
    assert (await crank.fire_one()).nominal_ms == NOW_MS + MINUTE


async def test_cancel_other_asks_once_for_several_occurrences_of_one_fire(crank: Crank) -> None:
    one = job(every(overlap=Overlap.CANCEL_OTHER, catch_up=CatchUp(CatchUpPolicy.ALL)))
    await crank.add(one)
    await crank.fire()
    fired = await crank.fire(at_ms=NOW_MS + 3 * MINUTE)
    assert len(fired.revocations) == 1
    assert (await crank.fire(at_ms=NOW_MS + 4 * MINUTE)).revocations == ()


# Concurrency keys


KEYED = Concurrency("db", 2)


async def test_a_key_lets_no_more_run_than_its_limit(crank: Crank) -> None:
    jobs = [job(spec(concurrency=KEYED)) for _ in range(5)]
    await crank.add(*jobs)
    fired = await crank.fire()
    assert len(fired.dispatches) == 2
    assert len(fired.blocked) == 3
    assert all("db" in each.reason and "2" in each.reason for each in fired.blocked)
    assert {each.entry.key for each in fired.blocked} == {e.key for e in await crank.due()}
    again = await crank.fire()
    assert (again.dispatches, len(again.blocked)) == ((), 3)


async def test_the_same_key_of_another_tenant_is_another_key(crank: Crank) -> None:
    other = TenantId("other")
    await crank.add(*[job(spec(concurrency=KEYED)) for _ in range(3)])
    await crank.add(*[job(spec(concurrency=KEYED), tenant=other) for _ in range(3)])
    fired = await crank.fire()
    assert sorted(d.tenant for d in fired.dispatches) == [TENANT, TENANT, other, other]


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SNOOZED, Outcome.EXPIRED])
async def test_a_slot_is_free_again_when_its_execution_ends_or_waits_again(crank: Crank, outcome: Outcome) -> None:
    await crank.add(*[job(spec(concurrency=KEYED)) for _ in range(3)])
    fired = await crank.fire()
    settled = await crank.settle(report(fired.dispatches[0], outcome, failure=failure(), snooze_ms=HOUR))
    assert settled.freed == ("key/db",)
    after = await crank.fire(await crank.due())
    assert {d.job_id for d in after.dispatches} == {each.entry.key for each in fired.blocked}


async def test_a_running_execution_keeps_its_slot(crank: Crank) -> None:
    await crank.add(*[job(spec(concurrency=Concurrency("db", 1))) for _ in range(2)])
    dispatch = await crank.fire_one()
    settled = await crank.settle(report(dispatch, Outcome.STARTED))
    assert settled.freed == ()
    assert (await crank.fire()).dispatches == ()


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_a_retry_waits_for_a_slot_like_any_other(crank: Crank) -> None:
    one = job(spec(concurrency=Concurrency("db", 1)))
    first = await failed_once(crank, one)
    rival = job(spec(concurrency=Concurrency("db", 1)), now_ms=crank.now_ms)
    await crank.add(rival)
    running = await crank.fire_one()
    assert running.job_id == rival.id
    again = await crank.fire(at_ms=NOW_MS + HOUR)
    assert [each.entry.key for each in again.blocked] == [first.execution_id]
    await crank.settle(report(running))
    assert (await crank.fire_one()).execution_id == first.execution_id


async def test_a_key_fires_missed_occurrences_one_a_turn(crank: Crank) -> None:
    one = job(every(concurrency=KEYED, catch_up=CatchUp(CatchUpPolicy.ALL)))
    await crank.add(one)
    crank.now_ms = NOW_MS + 3 * MINUTE
    fired = [d.nominal_ms for _ in range(5) for d in (await crank.fire()).dispatches]
    assert fired == [NOW_MS, NOW_MS + MINUTE]
    assert await crank.fire_row(one) == Fire(NOW_MS + 2 * MINUTE, NOW_MS + 2 * MINUTE)


async def test_the_same_report_twice_frees_one_slot(crank: Crank) -> None:
    await crank.add(*[job(spec(concurrency=KEYED)) for _ in range(6)])
    fired = await crank.fire()
    failed = report(fired.dispatches[0], Outcome.FAILED, failure=failure(retryable=False))
    await crank.settle(failed, failed)
    assert len((await crank.fire()).dispatches) == 1
    await crank.settle(failed)
    assert len((await crank.fire()).dispatches) == 0


# Orphan recovery


async def test_orphan_stamped_by_a_clock_that_was_ahead_is_put_back(crank: Crank, firing: Firing) -> None:
    early, late = job(), job()
    await crank.add(early)
    lost = await crank.fire_one(at_ms=NOW_MS + DAY)
    crank.now_ms = NOW_MS
    await crank.add(late)
    await crank.fire(at_ms=NOW_MS + MINUTE)
    (entry,) = await firing.requeue_orphans(NOW_MS - HOUR, 10, NOW_MS)
    assert (entry.key, entry.number) == (lost.execution_id, 2)


async def test_orphan_recovery_returns_dispatches_that_the_bus_lost(crank: Crank, firing: Firing) -> None:
    one = job()
    await crank.add(one)
    dispatch = await crank.fire_one()
    assert await firing.requeue_orphans(NOW_MS, 10, NOW_MS + HOUR) == []
    (entry,) = await firing.requeue_orphans(NOW_MS + 1, 10, NOW_MS + HOUR)
    assert (entry.key, entry.kind, entry.number, entry.due_ms) == (
        dispatch.execution_id,
        Kind.DISPATCH,
        2,
        NOW_MS + HOUR,
    )
    assert await crank.timeline() == [entry]
    again = await crank.fire_one(at_ms=NOW_MS + HOUR)
    assert (again.number, again.attempt) == (2, 1)


async def test_orphan_recovery_leaves_executions_of_workers_and_waiting_ones(crank: Crank, firing: Firing) -> None:
    await crank.add(job(), job(), job())
    running, ended, waiting = (await crank.fire()).dispatches
    await crank.settle(
        report(running, Outcome.STARTED), report(ended), report(waiting, Outcome.FAILED, failure=failure())
    )
    assert await firing.requeue_orphans(NOW_MS + HOUR, 10, NOW_MS + HOUR) == []


async def test_orphan_recovery_cancels_revoked_executions(crank: Crank, firing: Firing) -> None:
    one = job()
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.change(one, Change(cancel=((dispatch.execution_id, "cancelled by ann"),)))
    assert await firing.requeue_orphans(NOW_MS + 1, 10, NOW_MS + HOUR) == []
    ended = await crank.look(dispatch)
    assert (ended.state, ended.revocation) == (State.CANCELLED, "cancelled by ann")


async def test_orphan_recovery_returns_edited_executions_under_the_new_definition(crank: Crank, firing: Firing) -> None:
    one = job(every())
    await crank.add(one)
    dispatch = await crank.fire_one()
    edited = msgspec.structs.replace(one, revision=2, payload=b"new")
    await crank.change(one, Change(job=edited, cancel=((dispatch.execution_id, "EDITED"),)))
    await firing.requeue_orphans(NOW_MS + 1, 10, NOW_MS + SECOND)
    again = await crank.fire_one(at_ms=NOW_MS + SECOND)
    assert (again.execution_id, again.number, again.payload) == (dispatch.execution_id, 2, b"new")


async def test_orphan_recovery_takes_no_more_than_its_limit(crank: Crank, firing: Firing) -> None:
    await crank.add(*[job() for _ in range(5)])
    await crank.fire()
    sizes = [len(await firing.requeue_orphans(NOW_MS + 1, 2, NOW_MS + HOUR)) for _ in range(4)]
    assert sizes == [2, 2, 1, 0]


async def test_recovered_orphan_holds_no_slot(crank: Crank, firing: Firing) -> None:
    one, rival = [job(spec(concurrency=Concurrency("db", 1))) for _ in range(2)]
    await crank.add(one, rival)
    assert (await crank.fire_one()).job_id == one.id
    await firing.requeue_orphans(NOW_MS + 1, 10, NOW_MS + HOUR)
    assert (await crank.fire_one()).job_id == rival.id


async def test_orphan_recovery_that_cancels_releases_the_buffered_execution(crank: Crank, firing: Firing) -> None:
    one = job(every(overlap=Overlap.BUFFER_ONE))
    await crank.add(one)
    dispatch = await crank.fire_one()
    await crank.fire(at_ms=NOW_MS + MINUTE)
    await crank.change(one, Change(cancel=((dispatch.execution_id, "cancelled by ann"),)))
    (entry,) = await firing.requeue_orphans(NOW_MS + 1, 10, NOW_MS + HOUR)
    assert entry.key == execution_id(one.id, NOW_MS + MINUTE)


# Time-zone data


CRON = {"type": JobType.CRON, "schedule": "0 9 * * *", "timezone": "Europe/Berlin"}


async def test_schedules_are_recomputed_once_for_each_version_of_the_zone_data(crank: Crank, firing: Firing) -> None:
    one = job(spec(**CRON))
    await crank.add(one)
    right = await crank.fire_row(one)
    assert right is not None
    await crank.change(one, Change(fire=Fire(right.nominal_ms + HOUR, right.nominal_ms + HOUR)))
    assert await firing.replan("2030a", 100, NOW_MS) == 1
    assert await crank.fire_row(one) == right
    await crank.change(one, Change(fire=Fire(right.nominal_ms + HOUR, right.nominal_ms + HOUR)))
    assert await firing.replan("2030a", 100, NOW_MS) == 0
    assert await firing.replan("2030b", 100, NOW_MS) == 1
    assert await crank.fire_row(one) == right


async def test_older_zone_data_changes_nothing(crank: Crank, firing: Firing) -> None:
    one = job(spec(**CRON))
    await crank.add(one)
    right = await crank.fire_row(one)
    assert right is not None
    assert await firing.replan("2030b", 100, NOW_MS) == 1
    await crank.change(one, Change(fire=Fire(right.nominal_ms + HOUR, right.nominal_ms + HOUR)))
    assert await firing.replan("2030a", 100, NOW_MS) == 0
    assert await firing.zone_data() == "2030b"
    await firing.replan_again("2030b")
    assert await firing.replan("2030a", 100, NOW_MS) == 0
    assert await firing.replan("2030b", 100, NOW_MS) == 1
    assert (await crank.fire_row(one), await firing.zone_data()) == (right, "2030b")


async def test_older_zone_data_stops_while_newer_data_is_being_applied(crank: Crank, firing: Firing) -> None:
    await crank.add(*[job(spec(**CRON)) for _ in range(3)])
    assert await firing.replan("2030a", 1, NOW_MS) == 1
    assert await firing.replan("2030b", 1, NOW_MS) == 1
    assert await firing.replan("2030a", 1, NOW_MS) == 0
    assert [await firing.replan("2030b", 1, NOW_MS) for _ in range(3)] == [1, 1, 0]
    assert await firing.zone_data() == "2030b"


async def test_unreadable_job_does_not_stop_the_recomputing(crank: Crank, firing: Firing) -> None:
    bad, one = job(spec(**CRON)), job(spec(**CRON))
    await crank.add(bad, one)
    right = await crank.fire_row(one)
    assert right is not None
    await crank.change(one, Change(fire=Fire(right.nominal_ms + HOUR, right.nominal_ms + HOUR)))
    await execute(crank.store, f"UPDATE jobs SET spec = replace(spec, 'Berlin', 'Atlantis') WHERE id = '{bad.id}'")
    assert await firing.replan("2030a", 100, NOW_MS) == 2
    assert await crank.fire_row(one) == right


async def test_recomputing_goes_in_pages(crank: Crank, firing: Firing) -> None:
    jobs = [job(spec(**CRON)) for _ in range(5)]
    await crank.add(*jobs)
    rows = [await crank.fire_row(each) for each in jobs]
    for each, row in zip(jobs, rows, strict=True):
        assert row is not None
        await crank.change(each, Change(fire=Fire(row.nominal_ms + HOUR, row.nominal_ms + HOUR)))
    seen = [await firing.replan(tzdata_version(), 2, NOW_MS) for _ in range(4)]
    assert seen == [2, 2, 1, 0]
    assert [await crank.fire_row(each) for each in jobs] == rows


async def test_recomputing_leaves_due_and_paused_jobs(crank: Crank, firing: Firing) -> None:
    overdue, paused = job(spec(**CRON)), job(spec(**CRON))
    await crank.add(overdue, paused)
    late, suspended = Fire(NOW_MS - HOUR, NOW_MS - HOUR), Fire(NOW_MS + 5, None)
    await crank.change(overdue, Change(fire=late))
    await crank.change(paused, Change(fire=suspended))
    await firing.replan("2030a", 100, NOW_MS)
    assert (await crank.fire_row(overdue), await crank.fire_row(paused)) == (late, suspended)


async def test_recomputing_does_not_go_back_to_an_occurrence_that_was_fired_ahead(crank: Crank, firing: Firing) -> None:
    one = job(spec(type=JobType.CRON, schedule="* * * * *", max_runs=5))
    crank.now_ms = NOW_MS - 100
    await crank.add(one)
    await crank.fire(await crank.timeline())
    fired = await crank.fire_row(one)
    assert fired == Fire(NOW_MS + MINUTE, NOW_MS + MINUTE, 4)
    await firing.replan("2030a", 100, crank.now_ms)
    assert await crank.fire_row(one) == fired


# Random histories


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_one_fire_serves_many_kinds_at_once(crank: Crank) -> None:
    retried = await failed_once(crank)
    plain, recurring, keyed = job(), job(every()), job(spec(concurrency=KEYED))
    await crank.add(plain, recurring, keyed)
    stale = msgspec.structs.replace((await crank.due())[0], number=7)
    entries = [*await crank.timeline(), stale]
    crank.now_ms = NOW_MS + HOUR
    fired = await crank.fire(entries)
    assert {d.execution_id for d in fired.dispatches} >= {
        retried.execution_id,
        execution_id(plain.id, plain.anchor_ms),
        execution_id(keyed.id, keyed.anchor_ms),
    }
    assert len(fired.dispatches) == 4
    assert fired.refused == 1


async def test_triggered_execution_is_dispatched_like_any_other(crank: Crank) -> None:
    one = job(every(), now_ms=NOW_MS)
    await crank.add(one)
    new = NewExecution(execution_id(one.id, NOW_MS + 5, "trigger:1"), NOW_MS + 5, NOW_MS + 5, Cause.TRIGGER)
    applied = await crank.change(one, Change(executions=(new,)))
    assert [(e.key, e.kind, e.number) for e in applied.entries] == [(new.id, Kind.DISPATCH, 1)]
    fired = await crank.fire(list(applied.entries), at_ms=NOW_MS + 5)
    assert [(d.execution_id, d.number, d.attempt) for d in fired.dispatches] == [(new.id, 1, 1)]


async def test_owners_differ_by_their_epochs_and_not_by_their_names(crank: Crank) -> None:
    await crank.add(job())
    stale = crank.owner
    await crank.own()
    fired = await crank.store.firing.fire(stale, await crank.plan(await crank.due()), NOW_MS)
    assert fired.dispatches == ()
    assert len(fired.lost) == 1


async def test_an_occurrence_that_has_an_execution_gets_no_second_one(crank: Crank) -> None:
    one = job(every())
    await crank.add(one)
    await crank.settle(report(await crank.fire_one()))
    await crank.change(one, Change(fire=Fire(NOW_MS, NOW_MS)))
    fired = await crank.fire(await crank.due())
    assert fired.dispatches == ()
    assert await crank.states_of(one) == ["SUCCEEDED"]
    assert await crank.fire_row(one) == Fire(NOW_MS + MINUTE, NOW_MS + MINUTE)


class RandomHistory:
    """Random histories of jobs that share keys and limit overlaps."""

    LIMITS = (("a", 1), ("b", 2))

    def __init__(self, crank: Crank, seed: int) -> None:
        self.crank = crank
        self.random = Random(seed)
        self.dispatched: dict[str, Dispatch] = {}
        self.jobs = [
            job(
                every(
                    self.random.choice([1, 2, 5]),
                    overlap=self.random.choice(list(Overlap)),
                    concurrency=Concurrency(*self.random.choice(self.LIMITS)) if self.random.random() < 0.6 else None,
                    retry_policy=RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_delay_ms=2_000),
                    catch_up=CatchUp(self.random.choice(list(CatchUpPolicy))),
                    end_at=instant(NOW_MS + 60 * SECOND),
                )
            )
            for _ in range(6)
        ]

    async def turn(self) -> None:
        """Advance the clock, fire due entries, and settle some dispatches with random outcomes."""
        self.crank.now_ms += self.random.randrange(2 * SECOND)
        fired = await self.crank.fire()
        self.dispatched |= {d.execution_id: d for d in fired.dispatches}
        chance = self.random.random()
        if chance < 0.05:
            await self.crank.store.executions.lose_workers([WORKER], self.crank.now_ms)
        elif chance < 0.1:
            await self.crank.store.firing.requeue_orphans(self.crank.now_ms - SECOND, 100, self.crank.now_ms)
        else:
            await self.report_some(list(Outcome))

    async def report_some(self, outcomes: list[Outcome]) -> None:
        chosen = [d for d in self.dispatched.values() if self.random.random() < 0.7]
        reports = [self.something(d, self.random.choice(outcomes)) for d in chosen]
        await self.crank.settle(*reports)

    def something(self, dispatch: Dispatch, outcome: Outcome) -> Report:
        now_ms = self.crank.now_ms
        return report(dispatch, outcome, failure=failure(), snooze_ms=SECOND, started_ms=now_ms, ended_ms=now_ms)

    async def check(self) -> None:
        found = [each for one in self.jobs for each in await self.crank.all_of(one)]
        held = Counter(name for each in found if each.state in OPEN for name in each.slots)
        for key, limit in self.LIMITS:
            assert held[of_key(key)] <= limit
        for one in self.jobs:
            alone = [each for each in found if each.job_id == one.id and each.state in OPEN and not each.buffered]
            assert len(alone) <= 1 or one.spec.overlap is Overlap.ALLOW
        for each in found:
            assert is_path(states_through(each))
            assert each.attempt <= each.dispatch
            # An open execution is in one state: buffered, on the timeline, or dispatched.
            places = bool(each.buffered) + (each.waits_until_ms is not None) + (each.fired_ms is not None)
            assert (places == 1) or each.state not in OPEN


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_keys_and_overlaps_hold_in_random_histories_and_everything_ends(crank: Crank, seed: int) -> None:
    history = RandomHistory(crank, seed)
    await crank.add(*history.jobs)
    for _ in range(40):
        await history.turn()
        await history.check()
    crank.now_ms += 10 * MINUTE
    for _ in range(500):
        fired = await crank.fire()
        history.dispatched |= {d.execution_id: d for d in fired.dispatches}
        await crank.settle(*[history.something(d, Outcome.SUCCEEDED) for d in history.dispatched.values()])
        crank.now_ms += SECOND
        if not await crank.timeline():
            break
    states = {state for one in history.jobs for state in await crank.states_of(one)}
    assert states <= {"SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"}
    assert await crank.timeline() == []


async def test_a_walk_of_one_tenant_begins_with_its_mark(crank: Crank, firing: Firing) -> None:
    ours = [job(now_ms=NOW_MS + at) for at in range(6)]
    theirs = [job(now_ms=NOW_MS + at, tenant=TenantId("other")) for at in range(6)]
    await crank.add(*ours, *theirs)
    first = (NOW_MS + 2, ours[2].id)
    found = await firing.walk_tenant(TENANT, range(PARTITIONS), first, NOW_MS + 4, 10)
    assert [entry.key for entry in found] == [one.id for one in ours[2:5]]
    assert [e.key for e in await firing.walk_tenant(TENANT, range(PARTITIONS), first, NOW_MS + 4, 2)] == [
        one.id for one in ours[2:4]
    ]
    here = {partition_of(ours[3].id)}
    found = await firing.walk_tenant(TENANT, here, first, NOW_MS + 9, 10)
    assert [entry.key for entry in found] == [one.id for one in ours[2:] if partition_of(one.id) in here]
