"""The cost of a decision does not depend on the history or backlog of its job: measured in rows and steps, not in time."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.postgres.store import open_store as open_postgres
from noonday.drivers.postgres.transactional import PostgresCompletions
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, InlineDatabase
from noonday.drivers.sqlite.store import open_store as open_sqlite
from noonday.intake import edits, triggers
from noonday.model.change import Change, NewJob
from noonday.model.execution import Outcome
from noonday.model.firing import Kind
from noonday.model.ids import ExecutionId, discriminator, execution_id
from noonday.model.job import Job, Overlap, Target
from noonday.model.message import Dispatch
from noonday.model.retry import RetryPolicy
from noonday.model.snapshot import Snapshot
from noonday.ports.jobs import Decide
from tests.drivers.postgres.own_schema import opened, own_schema
from tests.support.crank import Crank, first_fire
from tests.support.drivers import LEAD_MS
from tests.support.factories import DAY, MINUTE, NOW_MS, audit, every, failure, job, job_id, report

pytestmark = pytest.mark.slow

FEW, MANY = 50, 100_000
SLACK = 1.5
HISTORY, BACKLOG = "history", "backlog"
ENDED, BUFFERED = (5, 0), (0, 1)
"""State and `buffered`."""


class Meter(ABC):
    """Counts what a store does."""

    crank: Crank

    @abstractmethod
    async def fill(self, of: Job, count: int, state: int, buffered: int) -> None:
        """Give a job executions, a millisecond apart and the last a day ago."""

    @abstractmethod
    async def cost_of(self, work: Callable[[], Awaitable[object]]) -> int:
        """Return how many rows, or steps, a decision takes."""


class SqliteMeter(Meter):
    """Counts instructions of SQLite's virtual machine, in tens."""

    def __init__(self, database: InlineDatabase) -> None:
        self._database = database

    async def fill(self, of: Job, count: int, state: int, buffered: int) -> None:
        text = """
            WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2),
                 at (n, ms) AS (SELECT n, ?3 - ?2 + n FROM n)
            INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                    handler, lane, watch, created_ms, finished_ms, buffered, transitions)
            SELECT printf('%08x-%04x-8000-a000-%012x', ms >> 16, ms & 65535, n), ?1, 'acme', ms, ms, ?4, 1, 1, 1, 2, 'etl',
                   'load', 1, 1, ms, iif(?4 > 1, ms, NULL), ?5, '[0]' FROM at"""
        await self._database.write(lambda conn: conn.execute(text, (of.id, count, NOW_MS - DAY, state, buffered)))

    async def cost_of(self, work: Callable[[], Awaitable[object]]) -> int:
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        await self._database.read(lambda conn: conn.set_progress_handler(step, 10))
        try:
            await work()
        finally:
            await self._database.read(lambda conn: conn.set_progress_handler(None, 0))
        return steps


class PostgresMeter(Meter):
    """Counts rows and index entries that were read, as PostgreSQL counts them. There is one session."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def fill(self, of: Job, count: int, state: int, buffered: int) -> None:
        text = """
            INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                    handler, lane, watch, created_ms, finished_ms, buffered, transitions)
            SELECT (lpad(to_hex(ms), 12, '0') || '8000a000' || lpad(to_hex(n), 12, '0'))::uuid, $1::uuid, 'acme', ms, ms,
                   $4::smallint, 1, 1, 1, 2, 'etl', 'load', 1, 1, ms, CASE WHEN $4::smallint > 1 THEN ms END, $5::smallint, '[0]'
            FROM (SELECT n, $3::bigint - $2::bigint + n AS ms FROM generate_series(1, $2::bigint) n) at"""
        await self._database.value(text, of.id, count, NOW_MS - DAY, state, buffered)
        await self._database.value("ANALYZE executions")

    async def cost_of(self, work: Callable[[], Awaitable[object]]) -> int:
        before = await self._read_so_far()
        await work()
        return await self._read_so_far() - before

    async def _read_so_far(self) -> int:
        await self._database.value("SELECT pg_stat_force_next_flush()")
        await self._database.value("SELECT pg_stat_clear_snapshot()")
        count: int = await self._database.value("""
            SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = current_schema)
                   + (SELECT sum(seq_tup_read) + sum(coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
                      WHERE schemaname = current_schema)""")
        return int(count)

    async def complete(self, dispatch: Dispatch) -> None:
        async with self._database.transaction() as session:
            done = msgspec.structs.replace(report(dispatch), ended_ms=NOW_MS + MINUTE)
            await PostgresCompletions(self._database.options.schema).complete(session, done, NOW_MS + MINUTE)


@asynccontextmanager
async def sqlite_meter() -> AsyncIterator[Meter]:
    store = open_sqlite(MEMORY, FileOptions(), LEAD_MS)
    assert isinstance(store.database, InlineDatabase)
    meter = SqliteMeter(store.database)
    meter.crank = Crank(store)
    yield meter
    await store.close()


@asynccontextmanager
async def postgres_meter() -> AsyncIterator[Meter]:
    async with own_schema() as options:
        async with opened(options) as database:
            await migrate(database)
        store = await open_postgres(dataclasses.replace(options, sessions=1), LEAD_MS, own_clock=False)
        meter = PostgresMeter(store.database)
        meter.crank = Crank(store)
        try:
            yield meter
        finally:
            await store.close()


@pytest.fixture(params=[sqlite_meter, postgres_meter], ids=["sqlite", "postgres"])
async def meter(request: pytest.FixtureRequest) -> AsyncIterator[Meter]:
    async with request.param() as meter:
        await meter.crank.own()
        yield meter


@dataclass
class Case:
    """A job with one execution whose turn it is."""

    meter: Meter
    job: Job
    dispatch: Dispatch

    @property
    def crank(self) -> Crank:
        return self.meter.crank

    async def change(self, decide: Decide, *show: ExecutionId) -> None:
        await self.crank.change(self.job, decide, show=show)

    async def settle(self, outcome: Outcome, **fields: Any) -> None:
        done = report(self.dispatch, outcome, **fields)
        await self.crank.settle(msgspec.structs.replace(done, ended_ms=self.crank.now_ms + 1))

    async def dispatch_due(self) -> None:
        """Dispatch the one execution of the job that waits on the timeline."""
        (waiting,) = [
            e for e in await self.crank.timeline() if e.kind == Kind.DISPATCH and e.pool == self.job.spec.target.pool
        ]
        (self.dispatch,) = (await self.crank.fire([waiting], at_ms=max(self.crank.now_ms, waiting.due_ms))).dispatches


async def fire(case: Case) -> None:
    (entry,) = [e for e in await case.crank.timeline() if e.key == case.job.id]
    await case.crank.fire([entry], at_ms=max(case.crank.now_ms, entry.due_ms))


async def trigger(case: Case) -> None:
    await case.change(lambda before: triggers.trigger(before, "k", NOW_MS, audit()))


async def backfill(case: Case) -> None:
    times = [NOW_MS - 2 * DAY + n * MINUTE for n in range(10)]
    await case.change(lambda before: edits.backfill(before, times, "b", NOW_MS, audit()))


async def repeat_unique_key(case: Case) -> None:
    wanted = NewJob(msgspec.structs.replace(case.job, id=job_id()), first_fire(case.job, NOW_MS))

    def same(before: Snapshot, wanted: Job) -> Change:
        return edits.upsert(before, wanted, lambda a, b: a == b, NOW_MS, None)

    await case.crank.store.jobs.add([wanted], upsert=same, audit=None, seal=None)


async def retry_dead(case: Case) -> None:
    oldest = await case.crank.look(case.dispatch)
    await case.change(lambda before: edits.retry_dead(before, oldest, NOW_MS, audit()), edits.id_of_retry(oldest))


async def run_again(case: Case) -> None:
    was = await case.crank.look(case.dispatch)
    again = edits.Resend(was, execution_id(case.job.id, NOW_MS, discriminator("again", "x")), 1)
    await case.change(lambda before: edits.run_again(before, [again], NOW_MS, None), again.new)


async def fail(case: Case) -> None:
    await case.settle(Outcome.FAILED, failure=failure())


async def lose_worker(case: Case) -> None:
    await case.settle(Outcome.STARTED)
    await case.crank.store.executions.lose_workers([report(case.dispatch).worker_id], case.crank.now_ms)


async def pause_and_resume(case: Case) -> None:
    await case.change(lambda before: edits.pause(before, case.crank.now_ms, audit()))
    await case.change(lambda before: edits.resume(before, case.crank.now_ms, audit()))


async def give_back(case: Case) -> None:
    await case.settle(Outcome.REVOKED)


async def die(case: Case) -> None:
    await case.settle(Outcome.FAILED, failure=failure(retryable=False))


async def succeed(case: Case) -> None:
    await case.settle(Outcome.SUCCEEDED)


async def cancel(case: Case) -> None:
    wanted = case.dispatch.execution_id
    await case.change(lambda before: edits.cancel_execution(before, wanted, "no", audit()), wanted)


async def complete_in_callers_transaction(case: Case) -> None:
    if isinstance(case.meter, PostgresMeter):
        await case.meter.complete(case.dispatch)
    else:
        await succeed(case)


async def replace(case: Case) -> None:
    spec = msgspec.structs.replace(case.job.spec, name="other")
    await case.change(lambda before: edits.replace(before, spec, None, case.crank.now_ms, audit()))


async def delete(case: Case) -> None:
    await case.change(lambda before: edits.delete(before, case.crank.now_ms, audit()))


Step = Callable[[Case], Awaitable[None]]
STEPS: list[tuple[Step, bool]] = [
    (fire, False),
    (trigger, False),
    (backfill, False),
    (repeat_unique_key, False),
    (retry_dead, False),
    (run_again, False),
    (fail, True),
    (lose_worker, True),
    (pause_and_resume, False),
    (give_back, True),
    (die, True),
    (succeed, True),
    (cancel, False),
    (fail, True),
    (complete_in_callers_transaction, True),
]
"""In this order, with whether an execution is to be dispatched afterwards."""
ABOUT_ALL_THAT_IS_OPEN: list[tuple[Step, bool]] = [(replace, False), (delete, False)]


async def case_of(meter: Meter, count: int, what: str) -> Case:
    policy = RetryPolicy(max_attempts=5)
    name = f"{what}-{count}"
    one = job(every(overlap=Overlap.BUFFER_ALL, retry_policy=policy, unique_key=name, target=Target(name, "load")))
    await meter.crank.add(one)
    (dispatch,) = (await meter.crank.fire([e for e in await meter.crank.timeline() if e.key == one.id])).dispatches
    await meter.fill(one, count, *(ENDED if what == HISTORY else BUFFERED))
    return Case(meter, one, dispatch)


@pytest.mark.parametrize("what", [HISTORY, BACKLOG])
async def test_cost_does_not_grow_with_history_or_backlog(meter: Meter, what: str) -> None:
    small, large = await case_of(meter, FEW, what), await case_of(meter, MANY, what)
    costs = {}
    for step, hands_out in STEPS + (ABOUT_ALL_THAT_IS_OPEN if what == HISTORY else []):
        costs[step.__name__] = [await meter.cost_of(partial(step, case)) for case in (small, large)]
        for case in (small, large) if hands_out else ():
            await case.dispatch_due()
    grown = {name: cost for name, cost in costs.items() if cost[1] > SLACK * cost[0] + FEW}
    assert not grown, costs
