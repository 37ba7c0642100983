"""Executions of different jobs of one ordering key: one at a time, each after the former one has ended."""

from asyncio import gather
from collections import Counter
from random import Random

import msgspec
import pytest

from noonday.intake import edits, triggers
from noonday.model.change import Change
from noonday.model.execution import OPEN, Outcome, State
from noonday.model.firing import Fire, Kind
from noonday.model.ids import TenantId
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, Job, JobSpec, Overlap
from noonday.model.message import Dispatch
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.slots import Slots, of_ordering_key
from tests.support.crank import Crank
from tests.support.factories import (
    HOUR,
    MINUTE,
    NOW_MS,
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

ORDERED = Concurrency("customer-42", 1, ordered=True)
SLOT = of_ordering_key(ORDERED.key)
RETRIES = RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_delay_ms=MINUTE)


def ordered(
    of: JobSpec | None = None, *, at_ms: int = NOW_MS, key: Concurrency | None = ORDERED, **fields: object
) -> Job:
    wanted = msgspec.structs.replace(of or spec(), concurrency=key, retry_policy=RETRIES)
    return job(wanted, now_ms=at_ms, **fields)


async def run(crank: Crank) -> list[str]:
    """Fire everything that is due, the last entry first, and end each execution before the next fire.

    Returns the jobs in the order of their fires.
    """
    ran = []
    while dispatches := (await crank.fire((await crank.due())[::-1])).dispatches:
        await crank.settle(*map(report, dispatches))
        ran += [dispatch.job_id for dispatch in dispatches]
    return ran


async def fail(crank: Crank, of: Dispatch, **fields: object) -> None:
    await crank.settle(report(of, Outcome.FAILED, failure=failure(**fields)))


async def used(crank: Crank, slot: str = SLOT) -> int:
    return (await crank.store.settings_store.slots([(TENANT, slot)])).get((TENANT, slot), Slots(0, None)).used


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_jobs_of_one_ordering_key_run_in_the_order_of_their_times(crank: Crank) -> None:
    times = [5, 3, 9, 1, 7]
    jobs = {at: ordered(at_ms=NOW_MS + at) for at in times}
    await crank.add(*jobs.values())
    crank.now_ms = NOW_MS + MINUTE
    assert await run(crank) == [jobs[at].id for at in sorted(times)]


async def test_job_that_was_created_earlier_is_first_of_equal_times(crank: Crank) -> None:
    jobs = [ordered() for _ in range(4)]
    await crank.add(*reversed(jobs))
    assert await run(crank) == [one.id for one in jobs]


async def test_later_job_of_an_ordering_key_is_blocked_even_if_none_runs(crank: Crank) -> None:
    first, second = ordered(), ordered(at_ms=NOW_MS + 1)
    await crank.add(first, second)
    crank.now_ms = NOW_MS + MINUTE
    (late,) = [entry for entry in await crank.due() if entry.key == second.id]
    fired = await crank.fire([late])
    assert fired.dispatches == ()
    (held,) = fired.blocked
    assert (held.entry, held.slot, held.limit) == (late, (TENANT, SLOT), 1)
    assert "turn" in held.reason
    assert ORDERED.key in held.reason


async def test_job_that_is_not_due_blocks_no_other(crank: Crank) -> None:
    await crank.add(ordered(at_ms=NOW_MS + HOUR))
    second = ordered()
    await crank.add(second)
    assert await run(crank) == [second.id]


async def test_ordering_keys_other_tenants_and_concurrency_keys_are_independent(crank: Crank) -> None:
    await crank.add(ordered(), ordered())
    await crank.add(ordered(key=Concurrency("another", 1, ordered=True)))
    await crank.add(ordered(key=Concurrency(ORDERED.key, 1)))
    await crank.add(ordered(tenant=TenantId("other")))
    assert len((await crank.fire()).dispatches) == 4


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SNOOZED, Outcome.HANDED_BACK, Outcome.ORPHANED])
async def test_execution_that_waits_for_its_next_dispatch_keeps_the_ordering_key(
    crank: Crank, outcome: Outcome
) -> None:
    first, second = ordered(), ordered(at_ms=NOW_MS + 1)
    await crank.add(first, second)
    crank.now_ms = NOW_MS + 1
    dispatch = await crank.fire_one()
    settled = await crank.settle(report(dispatch, outcome, failure=failure(), snooze_ms=MINUTE))
    assert settled.freed == ()
    assert (await crank.look(dispatch)).slots == (SLOT,)
    fires = [entry for entry in await crank.due() if entry.kind == Kind.FIRE]
    assert (await crank.fire(fires)).dispatches == ()
    again = await crank.fire_one(at_ms=NOW_MS + HOUR)
    assert (again.execution_id, again.number) == (dispatch.execution_id, 2)
    assert await used(crank) == 1
    await crank.settle(report(again))
    assert (await crank.fire_one()).job_id == second.id


async def test_dead_execution_frees_the_ordering_key(crank: Crank) -> None:
    await crank.add(ordered(), ordered())
    await fail(crank, await crank.fire_one(), retryable=False)
    assert (await crank.fire_one()).number == 1
    assert await used(crank) == 1


async def test_cancelling_an_execution_that_waits_for_a_retry_frees_the_ordering_key(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    dispatch = await crank.fire_one()
    await fail(crank, dispatch)
    await crank.change(first, lambda before: edits.cancel_execution(before, dispatch.execution_id, "enough", audit()))
    assert await used(crank) == 0
    assert (await crank.fire_one()).job_id == second.id


async def test_deleting_a_job_that_waits_for_a_retry_frees_the_ordering_key(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    await fail(crank, await crank.fire_one())
    await crank.change(first, lambda before: edits.delete(before, crank.now_ms, audit()))
    assert (await crank.fire_one()).job_id == second.id


async def test_job_paused_before_its_time_blocks_no_other(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    await crank.change(first, lambda before: edits.pause(before, NOW_MS, audit()))
    running = await crank.fire_one()
    assert running.job_id == second.id
    await crank.change(first, lambda before: edits.resume(before, NOW_MS + 1, audit()))
    assert (await crank.fire(at_ms=NOW_MS + SECOND)).dispatches == ()
    await crank.settle(report(running))
    assert (await crank.fire_one()).job_id == first.id


async def test_job_paused_while_it_waits_for_a_retry_frees_the_ordering_key(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    await fail(crank, await crank.fire_one())
    await crank.change(first, lambda before: edits.pause(before, crank.now_ms, audit()))
    running = await crank.fire_one()
    assert running.job_id == second.id
    await crank.change(first, lambda before: edits.resume(before, crank.now_ms + 1, audit()))
    assert (await crank.fire(at_ms=NOW_MS + HOUR)).dispatches == ()
    await crank.settle(report(running))
    assert [(d.job_id, d.number) for d in (await crank.fire()).dispatches] == [(first.id, 2)]
    assert await used(crank) == 1


async def test_failure_of_a_paused_job_frees_the_ordering_key(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.STARTED))
    await crank.change(first, lambda before: edits.pause(before, crank.now_ms, audit()))
    assert (await crank.fire()).dispatches == ()
    await fail(crank, dispatch)
    assert (await crank.look(dispatch)).slots == ()
    assert (await crank.fire_one()).job_id == second.id


async def test_edit_of_the_key_moves_a_fire_to_another_ordering_key(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    other = msgspec.structs.replace(first.spec, concurrency=Concurrency("another", 1, ordered=True))
    await crank.change(first, lambda before: edits.replace(before, other, None, NOW_MS, None))
    crank.now_ms += SECOND
    assert {d.job_id for d in (await crank.fire()).dispatches} == {first.id, second.id}
    assert (await used(crank), await used(crank, of_ordering_key("another"))) == (1, 1)


@pytest.mark.parametrize("key", [None, Concurrency("another", 1, ordered=True)], ids=["none", "another"])
async def test_edit_of_the_key_removes_a_waiting_retry_from_the_ordering_key(
    crank: Crank, key: Concurrency | None
) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    await fail(crank, await crank.fire_one())
    other = msgspec.structs.replace(first.spec, concurrency=key, run_at=instant(NOW_MS))
    await crank.change(first, lambda before: edits.replace(before, other, None, crank.now_ms, None))
    assert (await crank.fire_one()).job_id == second.id
    assert [d.job_id for d in (await crank.fire(at_ms=NOW_MS + HOUR)).dispatches] == [first.id]
    assert await used(crank) == 1


async def test_execution_that_an_edit_removes_from_an_ordering_key_is_still_watched_by_its_successor(
    crank: Crank,
) -> None:
    recurring = ordered(every(60))
    await crank.add(recurring)
    dispatch = await crank.fire_one()
    await fail(crank, dispatch)
    other = msgspec.structs.replace(recurring.spec, concurrency=None, overlap=Overlap.CANCEL_OTHER)
    await crank.change(recurring, lambda before: edits.replace(before, other, None, crank.now_ms, None))
    crank.now_ms = NOW_MS + MINUTE
    following = [request for request in await crank.due() if request.kind == Kind.FIRE]
    fired = await crank.fire(following)
    waits = await crank.fire()
    (run,) = (*fired.dispatches, *waits.dispatches)
    assert run.nominal_ms == NOW_MS + MINUTE


async def test_edit_of_other_fields_leaves_a_waiting_retry_in_the_ordering_key(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    await fail(crank, await crank.fire_one())
    other = msgspec.structs.replace(first.spec, name="new", run_at=instant(NOW_MS))
    await crank.change(first, lambda before: edits.replace(before, other, None, crank.now_ms, None))
    assert (await crank.fire()).dispatches == ()
    assert await used(crank) == 1


async def test_execution_that_runs_during_an_edit_of_its_key_leaves_the_old_key_at_its_next_dispatch(
    crank: Crank,
) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.STARTED))
    other = msgspec.structs.replace(
        first.spec, concurrency=Concurrency("another", 1, ordered=True), run_at=instant(NOW_MS)
    )
    await crank.change(first, lambda before: edits.replace(before, other, None, crank.now_ms, None))
    await fail(crank, dispatch)
    again = await crank.fire(at_ms=NOW_MS + HOUR)
    assert [d.execution_id for d in again.dispatches] == [dispatch.execution_id]
    assert (await used(crank), await used(crank, of_ordering_key("another"))) == (0, 1)
    assert (await crank.fire_one()).job_id == second.id


async def test_a_recurring_job_takes_its_turns_among_the_others(crank: Crank) -> None:
    recurring = ordered(every(catch_up=CatchUp(CatchUpPolicy.ALL), end_at=instant(NOW_MS + 2 * MINUTE)))
    between = [ordered(at_ms=NOW_MS + at * SECOND) for at in (30, 90)]
    await crank.add(recurring, *between)
    crank.now_ms = NOW_MS + HOUR
    assert await run(crank) == [recurring.id, between[0].id, recurring.id, between[1].id, recurring.id]


async def test_missed_occurrence_is_ordered_by_its_own_time(crank: Crank) -> None:
    recurring = ordered(every(catch_up=CatchUp(CatchUpPolicy.LATEST), end_at=instant(NOW_MS + 2 * MINUTE)))
    between = ordered(at_ms=NOW_MS + 90 * SECOND)
    await crank.add(recurring, between)
    crank.now_ms = NOW_MS + HOUR
    ran = [nominal for _ in range(4) for nominal in await _nominals(crank)]
    assert ran == [NOW_MS + 90 * SECOND, NOW_MS + 2 * MINUTE]


async def _nominals(crank: Crank) -> list[int]:
    dispatches = (await crank.fire()).dispatches
    await crank.settle(*map(report, dispatches))
    return [dispatch.nominal_ms for dispatch in dispatches]


async def test_resent_execution_does_not_wait_for_all_jobs_of_the_ordering_key(crank: Crank) -> None:
    jobs = [ordered() for _ in range(4)]
    await crank.add(*jobs)
    dead = await crank.fire_one()
    await fail(crank, dead, retryable=False)
    running = await crank.fire_one()
    row = await crank.look(dead)
    applied = await crank.change(jobs[0], lambda before: edits.retry_dead(before, row, crank.now_ms, None))
    (new,) = applied.entries
    assert (await crank.fire()).dispatches == ()
    await crank.settle(report(running))
    again = await crank.fire_one()
    assert again.execution_id == new.key
    await crank.settle(report(again))
    assert await run(crank) == [one.id for one in jobs[2:]]


async def test_fire_that_would_wait_for_its_own_job_keeps_its_turn(crank: Crank) -> None:
    """Otherwise it would be created and wait as an execution, while the next job of the ordering key overtakes it."""
    recurring = ordered(every(overlap=Overlap.BUFFER_ALL))
    other = ordered(at_ms=NOW_MS + 1)
    await crank.add(recurring, other)
    triggered = await crank.change(recurring, lambda before: triggers.trigger(before, "k", NOW_MS, audit()))
    fires = [entry for entry in await crank.due() if entry.kind == Kind.FIRE]
    assert len((await crank.fire(fires)).blocked) == 1
    crank.now_ms = NOW_MS + SECOND
    by_hand = await crank.fire_one()
    assert by_hand.execution_id == triggered.entries[0].key
    await crank.settle(report(by_hand))
    crank.now_ms = NOW_MS + SECOND
    assert (await run(crank))[:2] == [recurring.id, other.id]


async def test_a_fire_that_is_only_decided_against_takes_no_slot(crank: Crank) -> None:
    expired = ordered(spec(start_deadline_sec=5))
    second = ordered(at_ms=NOW_MS + 1)
    await crank.add(expired, second)
    crank.now_ms = NOW_MS + MINUTE
    assert [d for _ in range(2) for d in await run(crank)] == [second.id]
    assert await used(crank) == 0


async def test_one_shot_leaves_the_ordering_key_after_it_fired(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    await crank.settle(report(await crank.fire_one()))
    assert await crank.fire_row(first) is None
    assert (await crank.fire_one()).job_id == second.id


async def test_fire_that_is_put_back_has_its_turn_again(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    await crank.change(first, Change(fire=Fire(NOW_MS, None)))
    await crank.change(first, Change(fire=Fire(NOW_MS, NOW_MS)))
    assert await run(crank) == [first.id, second.id]


async def test_lost_worker_keeps_the_ordering_key_for_the_retry(crank: Crank) -> None:
    first, second = ordered(), ordered()
    await crank.add(first, second)
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.STARTED))
    await crank.store.executions.lose_workers([WORKER], crank.now_ms)
    again = await crank.fire_one(at_ms=NOW_MS + HOUR)
    assert again.execution_id == dispatch.execution_id
    await crank.settle(report(again))
    assert (await crank.fire_one()).job_id == second.id


@pytest.mark.slow
async def test_concurrent_fires_dispatch_the_first_job_of_the_ordering_key(crank: Crank) -> None:
    jobs = [ordered() for _ in range(12)]
    await crank.add(*jobs)
    ran: list[str] = []
    out: list[Dispatch] = []
    for _ in range(40):
        due = await crank.due()
        ending = crank.settle(*map(report, out))
        *fired, _ = await gather(*[crank.fire([each]) for each in reversed(due)], ending)
        out = [dispatch for each in fired for dispatch in each.dispatches]
        assert len(out) <= 1
        ran += [dispatch.job_id for dispatch in out]
    assert ran == [one.id for one in jobs]


class RandomHistory:
    """Random histories of jobs of two ordering keys, which users edit."""

    KEYS = (ORDERED, Concurrency("b", 1, ordered=True))

    def __init__(self, crank: Crank, seed: int) -> None:
        self.crank = crank
        self.random = Random(seed)
        self.dispatched: dict[str, Dispatch] = {}
        self.jobs = [self._any(NOW_MS + self.random.randrange(30) * SECOND) for _ in range(10)]

    def _any(self, at_ms: int) -> Job:
        random = self.random
        made = spec()
        if random.random() < 0.3:
            policy = CatchUp(random.choice(list(CatchUpPolicy)))
            end_at = instant(NOW_MS + MINUTE)
            made = every(random.choice([7, 11]), overlap=random.choice(list(Overlap)), catch_up=policy, end_at=end_at)
        return ordered(made, at_ms=at_ms, key=random.choice(self.KEYS))

    async def turn(self) -> None:
        self.crank.now_ms += self.random.randrange(2 * SECOND)
        await self.fire()
        chance = self.random.random()
        if chance < 0.1:
            await self.crank.store.executions.lose_workers([WORKER], self.crank.now_ms)
        elif chance < 0.3:
            await self.meddle()
        else:
            await self.report_some(list(Outcome))

    async def fire(self) -> None:
        due = await self.crank.due()
        self.random.shuffle(due)
        fired = await self.crank.fire(due)
        for each in fired.dispatches:
            self.dispatched[each.execution_id] = each

    async def report_some(self, outcomes: list[Outcome], share: float = 0.7) -> None:
        chosen = [each for each in self.dispatched.values() if self.random.random() < share]
        now_ms = self.crank.now_ms
        await self.crank.settle(
            *[
                report(
                    each,
                    self.random.choice(outcomes),
                    failure=failure(),
                    snooze_ms=SECOND,
                    started_ms=now_ms,
                    ended_ms=now_ms,
                )
                for each in chosen
            ]
        )

    async def meddle(self) -> None:
        one, now_ms = self.random.choice(self.jobs), self.crank.now_ms
        row = await self.crank.store.query_store.find_job(TENANT, one.id)
        assert row is not None
        if row.job.state.name == "PAUSED":
            await self.crank.change(one, lambda before: edits.resume(before, now_ms, audit()))
        elif self.random.random() < 0.5:
            moved = msgspec.structs.replace(row.job.spec, concurrency=self.random.choice(self.KEYS))
            await self.crank.change(one, lambda before: edits.replace(before, moved, None, now_ms, None))
        elif row.fire and row.fire.due_ms is not None:
            await self.crank.change(one, lambda before: edits.pause(before, now_ms, audit()))

    async def check(self) -> None:
        found = [each for one in self.jobs for each in await self.crank.all_of(one)]
        held = Counter(name for each in found if each.state in OPEN for name in each.slots)
        for key in self.KEYS:
            assert held[of_ordering_key(key.key)] == await used(self.crank, of_ordering_key(key.key))
            assert held[of_ordering_key(key.key)] <= 1
        for each in found:
            if each.fired_ms is not None and each.state in OPEN:
                assert len(each.slots) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_one_execution_of_an_ordering_key_is_dispatched_at_a_time_in_random_histories(
    crank: Crank, seed: int
) -> None:
    history = RandomHistory(crank, seed)
    await crank.add(*history.jobs)
    for _ in range(60):
        await history.turn()
        await history.check()
    for one in history.jobs:
        await crank.change(one, lambda before: edits.resume(before, crank.now_ms, audit()))
    for _ in range(300):
        await history.fire()
        await history.check()
        await history.report_some([Outcome.SUCCEEDED], 1.0)
        crank.now_ms += SECOND
        if not await crank.timeline():
            break
    assert await crank.timeline() == []
    states = {each.state for one in history.jobs for each in await crank.all_of(one)}
    assert states <= {State.SUCCEEDED, State.CANCELLED, State.EXPIRED, State.DEAD}
