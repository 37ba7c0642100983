"""An entry that cannot be fired delays no other, and only bad data is given up."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from noonday.drivers.postgres.store import PostgresStore
from noonday.model.batch import FireRequest, FireResult, Owner
from noonday.model.change import NewJob
from noonday.model.errors import BadData, StoreFailed, StoreUnavailable
from noonday.model.execution import Outcome
from noonday.model.firing import DecisionOutcome, Entry, Fire, Kind
from noonday.model.job import CatchUp, CatchUpPolicy, Job, JobType
from noonday.runtime.metrics import Metrics
from noonday.scheduler.deferring import LONGEST_SEC
from noonday.scheduler.isolating import MAX_FAILURES, FireOutcome, IsolatingFirer
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.drivers import STORES, Driver, Store
from tests.support.factories import MINUTE, NOW_MS, every, failure, job, report, spec


class FailingFiring:
    """A store that raises configured errors about some entries, before it does anything."""

    def __init__(self, store: Store) -> None:
        self._firing = store.firing
        self.error_of: Callable[[FireRequest], Exception | None] = lambda request: None
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._firing, name)

    async def fire(self, owner: Owner, firings: Sequence[FireRequest], now_ms: int) -> FireResult:
        self.calls += 1
        for request in firings:
            if error := self.error_of(request):
                raise error
        return await self._firing.fire(owner, firings, now_ms)


class Bench:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.crank = Crank(store)
        self.firing = FailingFiring(store)
        self.firer = IsolatingFirer(self.firing, self.clock, self.metrics)  # type: ignore[arg-type]

    async def fire(self, entries: Sequence[Entry] | None = None) -> FireOutcome:
        self.crank.now_ms = self.clock.now_ms()
        return await self.firer.fire(self.crank.owner, await self.crank.due() if entries is None else entries)

    def fail(self, error: Exception, *jobs: Job, also_decisions: bool = True) -> None:
        """Let the store raise this for these jobs (without any: for all)."""

        def error_of(request: FireRequest) -> Exception | None:
            is_decision = request.plan is not None and not request.plan.fires
            concerned = not jobs or request.entry.key in {each.id for each in jobs}
            return error if concerned and (also_decisions or not is_decision) else None

        self.firing.error_of = error_of

    def heal(self) -> None:
        self.firing.error_of = lambda request: None

    async def decisions(self, of: Job) -> list[tuple[DecisionOutcome, int, int]]:
        found = await self.store.query_store.decisions_between(of.id, 0, 2**50, 10)
        return [(each.outcome, each.from_ms, each.count) for each in found]


@pytest.fixture(params=[driver for driver in STORES if driver.name != "sqlite-file"], ids=lambda driver: driver.name)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    driver: Driver[Store] = request.param
    async with driver.open(tmp_path, ManualClock()) as store:
        bench = Bench(store)
        await bench.crank.own()
        yield bench


def dispatches(outcome: FireOutcome) -> int:
    return sum(len(fired.dispatches) for fired in outcome.fired)


PASSING = [StoreFailed("XX000: internal error"), KeyError("a mistake of ours")]


@pytest.mark.parametrize("error", PASSING, ids=repr)
async def test_culprit_is_deferred_and_the_others_are_fired(bench: Bench, error: Exception) -> None:
    jobs = [job() for _ in range(50)]
    await bench.crank.add(*jobs)
    bench.fail(error, jobs[17])
    outcome = await bench.fire()
    assert dispatches(outcome) == 49
    assert (outcome.unfired, outcome.error) == ([], None)
    (left,) = await bench.crank.timeline()
    assert left.key == jobs[17].id
    assert left in bench.firer
    assert await bench.decisions(jobs[17]) == []
    assert bench.metrics.deferred_entries._value.get() == 1


async def test_deferred_entry_is_tried_again_later_each_time_and_fires_when_it_can(bench: Bench) -> None:
    culprit = job()
    await bench.crank.add(culprit, job())
    bench.fail(StoreFailed("XX001: damaged page"), culprit)
    await bench.fire()
    tried_at = []
    for second in range(250):
        if bench.firer.take_deferred(range(256)):
            tried_at.append(second)
            await bench.crank.add(job(now_ms=bench.clock.now_ms()))
            await bench.fire()
        bench.clock.advance(1)
    assert tried_at == [1, 3, 7, 15, 31, 63, 123, 183, 243]
    bench.heal()
    bench.clock.advance(LONGEST_SEC)
    outcome = await bench.fire(bench.firer.take_deferred(range(256)))
    assert [dispatch.job_id for dispatch in outcome.fired[0].dispatches] == [culprit.id]
    assert await bench.crank.timeline() == []
    assert bench.firer.take_deferred(range(256)) == []


@pytest.mark.slow
@pytest.mark.parametrize("error", PASSING, ids=repr)
async def test_store_that_fails_every_batch_is_tried_a_few_times_and_no_entry_is_blamed(
    bench: Bench, error: Exception
) -> None:
    await bench.crank.add(*[job() for _ in range(500)])
    bench.fail(error)
    outcome = await bench.fire()
    assert bench.firing.calls <= MAX_FAILURES + 1
    assert len(outcome.unfired) == 500
    assert outcome.error is error
    assert not any(entry in bench.firer for entry in await bench.crank.timeline())
    bench.heal()
    assert dispatches(await bench.fire()) == 500


async def test_error_that_passes_costs_nothing(bench: Bench) -> None:
    """One internal error of PostgreSQL: the halves are fired at once."""
    await bench.crank.add(job(), job(every(60, max_runs=3)), job(spec(start_deadline_sec=60)))
    errors = [StoreFailed("XX000: internal error")]
    bench.firing.error_of = lambda request: errors.pop() if errors else None
    outcome = await bench.fire()
    assert dispatches(outcome) == 3
    assert (outcome.unfired, outcome.error) == ([], None)


async def test_store_that_goes_away_half_way_leaves_the_rest_as_it_was(bench: Bench) -> None:
    jobs = [job() for _ in range(8)]
    await bench.crank.add(*jobs)
    due = await bench.crank.due()
    errors: list[Exception | None] = [StoreFailed("XX000"), None, None, None, None, StoreUnavailable("away")]
    bench.firing.error_of = lambda request: errors.pop(0) if errors else None
    outcome = await bench.fire(due)
    assert dispatches(outcome) == 4
    assert outcome.unfired == due[4:]
    assert isinstance(outcome.error, StoreUnavailable)


async def test_bad_data_ends_a_one_shot_with_a_decision(bench: Bench) -> None:
    bad, good = job(), job()
    await bench.crank.add(bad, good)
    bench.fail(BadData("a NUL \x00 and half a character \ud800"), bad, also_decisions=False)
    outcome = await bench.fire()
    assert dispatches(outcome) == 1
    assert await bench.decisions(bad) == [(DecisionOutcome.ERROR, NOW_MS, 1)]
    assert await bench.crank.timeline() == []


async def test_bad_data_of_one_occurrence_leaves_the_schedule_its_next_time(bench: Bench) -> None:
    bad = job(every(60, catch_up=CatchUp(CatchUpPolicy.ALL)))
    await bench.crank.add(bad)
    (due,) = await bench.crank.timeline()
    bench.clock.advance((due.due_ms - NOW_MS) / 1000 + 150)
    bench.fail(BadData("refused"), bad, also_decisions=False)
    await bench.fire()
    assert await bench.decisions(bad) == [(DecisionOutcome.ERROR, due.nominal_ms, 3)]
    (following,) = await bench.crank.timeline()
    assert following.nominal_ms == due.nominal_ms + 3 * MINUTE
    bench.heal()
    bench.clock.advance(60)
    assert dispatches(await bench.fire()) == 1


async def test_entry_whose_decision_is_refused_too_is_deferred(bench: Bench) -> None:
    bad = job(every(60))
    await bench.crank.add(bad, job())
    bench.clock.advance(60)
    bench.fail(BadData("refused"), bad)
    assert dispatches(await bench.fire()) == 1
    (left,) = await bench.crank.timeline()
    assert left in bench.firer


async def test_bad_data_of_a_retry_is_deferred(bench: Bench) -> None:
    """A dispatch entry names an execution: there is no occurrence to decide."""
    await bench.crank.add(job())
    first = await bench.crank.fire_one()
    await bench.crank.settle(report(first, Outcome.FAILED, failure=failure()))
    (retry,) = await bench.crank.timeline()
    assert retry.kind == Kind.DISPATCH
    bench.clock.advance((retry.due_ms - NOW_MS) / 1000)
    await bench.crank.add(job(now_ms=bench.clock.now_ms()))
    bench.firing.error_of = lambda request: BadData("refused") if request.entry.key == retry.key else None
    bench.crank.now_ms = bench.clock.now_ms()
    assert dispatches(await bench.fire()) == 1
    assert retry in bench.firer
    assert (await bench.crank.look(first)).dispatch == 2


async def test_schedule_that_cannot_be_planned_is_neither_decided_nor_completed(bench: Bench) -> None:
    """This machine lacks a time zone: the schedule waits, and goes on when the zone is back."""
    lost = job(spec(type=JobType.CRON, schedule="* * * * *", timezone="Mars/Olympus"))
    good = job(every(60))
    await bench.crank.add(good)
    await bench.store.jobs.add(
        [NewJob(lost, Fire(NOW_MS + MINUTE, NOW_MS + MINUTE))],
        upsert=lambda before, wanted: pytest.fail("it is new"),
        audit=None,
        seal=None,
    )
    bench.clock.advance(60)
    outcome = await bench.fire()
    assert dispatches(outcome) == 1
    assert (outcome.unfired, outcome.error) == ([], None)
    assert await bench.decisions(lost) == []
    row = await bench.crank.fire_row(lost)
    assert row is not None
    assert row.due_ms == NOW_MS + MINUTE


@pytest.mark.parametrize("state", ["XX000", "58030", "0A000", "42883"])
async def test_internal_error_of_postgres_for_one_row_spares_the_others(bench: Bench, state: str) -> None:
    """A real one, raised by a trigger: a cron, a one-shot and a retry keep what they have."""
    if not isinstance(bench.store, PostgresStore):
        pytest.skip("an error of PostgreSQL")
    database = bench.store.database
    cron, one_shot, good = job(every(60)), job(), job(every(60))
    await bench.crank.add(cron, one_shot, good)
    bench.clock.advance(60)
    await database.value(
        f"""CREATE OR REPLACE FUNCTION told_to_fail() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF NEW.job_id IN ('{cron.id}', '{one_shot.id}') THEN
                    RAISE EXCEPTION 'told to' USING ERRCODE = '{state}';
                END IF;
                RETURN NEW;
            END $$"""
    )
    await database.value("CREATE TRIGGER told BEFORE INSERT ON executions FOR EACH ROW EXECUTE FUNCTION told_to_fail()")
    try:
        assert dispatches(await bench.fire()) == 1
    finally:
        await database.value("DROP TRIGGER told ON executions")
    assert await bench.decisions(cron) == await bench.decisions(one_shot) == []
    bench.clock.advance(LONGEST_SEC)
    deferred = bench.firer.take_deferred(range(256))
    assert {entry.key for entry in deferred} == {cron.id, one_shot.id}
    assert dispatches(await bench.fire(deferred)) == 2
