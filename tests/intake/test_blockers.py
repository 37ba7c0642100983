"""The reason why a due occurrence waits, as any process finds it in the store."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from noonday import Context, Noonday
from noonday.drivers.redis.tokens import RedisTokens
from noonday.intake.blockers import BlockedBy, Blocker, BlockerFinder, DueEntry
from noonday.model.caller import Caller
from noonday.model.errors import TokensUnavailable
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.job import Concurrency, JobSpec, JobType, Target, ms_of
from noonday.model.rate import TokenGrant, TokenRequest
from noonday.model.tenancy import rate_of
from noonday.model.view import JobView, OccurrenceView, PoolSettings, TenantInPool, TenantSettings
from noonday.ports.tokens import Tokens
from noonday.testing import ManualClock, Testing
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings import Settings
from tests.support.clock import ManualClock as StandingClock
from tests.support.crank import Crank
from tests.support.drivers import redis_connection
from tests.support.factories import NOW_MS, POOL, SECOND, TENANT, audit, hello, job, report, spec
from tests.support.postgres import postgres_store

ANN = Caller(TenantId("acme"), "ann", frozenset({"operator"}))
BOB = Caller(TenantId("globex"), "bob", frozenset({"operator"}))
RUN_SEC = 8
CAPACITY = 2


class Shop:
    """An engine that is turned by hand, with a pool of two slots whose runs take eight seconds."""

    def __init__(self, embedded: Embedded, clock: ManualClock) -> None:
        self.engine = embedded.engine
        self.clock = clock
        self.turn = Testing(Noonday(), embedded, clock)

    async def settle(self, settings: TenantSettings) -> None:
        await self.engine.services.tenants.put(ANN, "acme", settings)
        await self.learn()

    async def settle_pool(self, settings: PoolSettings) -> None:
        await self.engine.services.pools.put(ANN, "web", settings)
        await self.learn()

    async def learn(self) -> None:
        await self.engine.loops["tenants"].service.run_once(self.clock.now_ms())

    async def create(self, count: int, caller: Caller = ANN, **fields: Any) -> list[JobView]:
        """Create one-shots, each due a moment after the one before."""
        jobs = []
        for _ in range(count):
            self.clock.move_to(self.clock.now_ms() + 1)
            one = JobSpec(**{"type": JobType.ONE_TIME, "target": Target("web", "call"), **fields})
            jobs.append(await self.engine.services.jobs.create(caller, one))
        return jobs

    async def dispatch_due(self) -> None:
        """Dispatch as much as possible, without a worker."""
        for _ in range(3):
            await self.engine.dispatcher.run_once(self.clock.now_ms())
            await self.engine.dispatcher.drain()

    async def ask(self, of: JobView, caller: Caller = ANN) -> OccurrenceView:
        """Query the one occurrence of a job."""
        now_ms = self.clock.now_ms()
        page = await self.engine.services.occurrences.list_occurrences(
            caller, of.job_id, from_ms=now_ms - 1_000_000, to_ms=now_ms
        )
        (one,) = page.occurrences
        return one

    def in_sec(self, view: OccurrenceView) -> float | None:
        """The number of seconds until its expected start."""
        return None if view.expected_at is None else (ms_of(view.expected_at) - self.clock.now_ms()) / 1000


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    clock, app = ManualClock(), Noonday()

    @app.handler("call", pool="web")
    async def call(ctx: Context) -> None:
        clock.move_to(clock.now_ms() + RUN_SEC * 1000)

    settings = Settings(data=":memory:")
    settings = msgspec.structs.replace(settings, scheduler=msgspec.structs.replace(settings.scheduler, lead_ms=0))
    embedded = await Embedded.open(settings, app.handlers, clock=clock, run=False, concurrency={"web": CAPACITY})
    yield Shop(embedded, clock)
    await embedded.abandon()


@pytest.mark.parametrize(
    ("kind", "name", "subject"),
    [("TENANT", "acme", "tenant 'acme'"), ("POOL", "web", "pool 'web'"), ("ALL", "", "everything")],
)
async def test_a_pause_is_named_with_its_time_and_who_asked_for_it(
    shop: Shop, kind: str, name: str, subject: str
) -> None:
    await shop.engine.services.pauses.add(ANN, kind, name)
    (one,) = await shop.create(1)
    view = await shop.ask(one)
    assert (view.outcome, view.blocked_by, view.position, view.expected_at) == ("DUE", BlockedBy.PAUSE, None, None)
    assert view.reason == f"{subject} is paused since 2030-01-01T00:00:00Z by ann"


async def test_pause_of_another_tenant_blocks_nothing(shop: Shop) -> None:
    await shop.engine.services.pauses.add(BOB, "TENANT", "globex")
    (one,) = await shop.create(1)
    assert (await shop.ask(one)).blocked_by == BlockedBy.TURN


async def test_a_pool_without_workers_is_named(shop: Shop) -> None:
    await shop.engine.services.pools.put(ANN, "mail", PoolSettings())
    (one,) = await shop.create(1, target=Target("mail", "send"))
    view = await shop.ask(one)
    assert (view.blocked_by, view.reason, view.position) == (BlockedBy.NO_WORKERS, "pool 'mail' has no workers", None)


async def test_concurrency_key_is_named_with_the_number_of_its_executions(shop: Shop) -> None:
    shared = Concurrency("partner", 1)
    jobs = await shop.create(3, concurrency=shared)
    await shop.create(2, concurrency=Concurrency("another", 5))
    await shop.create(1, BOB, concurrency=shared)
    await shop.dispatch_due()
    last = (await shop.create(1, concurrency=shared))[0]
    view = await shop.ask(last)
    assert (view.blocked_by, view.position) == (BlockedBy.KEY, 2)
    assert view.reason == "concurrency key 'partner' has 1 of at most 1 executions dispatched"
    assert (await shop.ask(jobs[0])).outcome == "FIRED"


async def test_ordering_key_is_named_with_the_earlier_executions(shop: Shop) -> None:
    shared = Concurrency("partner", 1, ordered=True)
    jobs = await shop.create(3, concurrency=shared)
    view = await shop.ask(jobs[2])
    assert (view.blocked_by, view.position) == (BlockedBy.KEY, 2)
    assert view.reason == "it waits for its turn under ordering key 'partner'"
    await shop.dispatch_due()
    view = await shop.ask(jobs[1])
    assert (view.blocked_by, view.position) == (BlockedBy.KEY, 0)
    assert (
        view.reason == "it waits for its turn under ordering key 'partner': another execution runs or waits for a retry"
    )


async def test_a_tenants_cap_is_named_with_its_own_entries_that_are_before(shop: Shop) -> None:
    await shop.settle(TenantSettings(max_running=1))
    await shop.create(2, BOB)
    jobs = await shop.create(4)
    await shop.dispatch_due()
    view = await shop.ask(jobs[3])
    assert (view.blocked_by, view.position, view.position_is_least) == (BlockedBy.TENANT_CAP, 2, False)
    assert view.reason == "tenant 'acme' has 1 of at most 1 executions dispatched"


async def test_cap_that_earlier_entries_will_use_up_blocks_the_entry(shop: Shop) -> None:
    await shop.settle(TenantSettings(max_running=2))
    jobs = await shop.create(3)
    assert (await shop.ask(jobs[1])).blocked_by == BlockedBy.TURN
    view = await shop.ask(jobs[2])
    assert (view.blocked_by, view.position) == (BlockedBy.TENANT_CAP, 2)
    assert "has 0 of at most 2" in view.reason


async def test_reached_cap_is_named_before_one_that_will_be_reached(shop: Shop) -> None:
    await shop.settle(TenantSettings(max_running=3))
    await shop.settle_pool(PoolSettings(max_running=1))
    jobs = await shop.create(5)
    await shop.dispatch_due()
    view = await shop.ask(jobs[4])
    assert (view.blocked_by, view.reason) == (BlockedBy.POOL_CAP, "pool 'web' has 1 of at most 1 executions dispatched")


async def test_a_tenants_cap_in_a_pool_is_named(shop: Shop) -> None:
    await shop.settle(TenantSettings(max_running=50, pools={"web": TenantInPool(max_running=1)}))
    jobs = await shop.create(2)
    await shop.dispatch_due()
    view = await shop.ask(jobs[1])
    assert (view.blocked_by, view.position) == (BlockedBy.TENANT_POOL_CAP, 0)
    assert view.reason == "tenant 'acme' in pool 'web' has 1 of at most 1 executions dispatched"


async def test_a_pools_cap_is_named_with_how_many_share_it(shop: Shop) -> None:
    await shop.settle_pool(PoolSettings(max_running=1))
    await shop.create(3, BOB)
    jobs = await shop.create(2)
    await shop.dispatch_due()
    view = await shop.ask(jobs[1])
    assert (view.blocked_by, view.position) == (BlockedBy.POOL_CAP, 1)
    assert view.reason == ("pool 'web' has 1 of at most 1 executions dispatched; 2 tenants take turns there")


async def test_behind_a_cap_the_start_is_expected_by_how_long_the_job_runs(shop: Shop) -> None:
    await shop.settle(TenantSettings(max_running=2))
    (job,) = await shop.create(1)
    assert await shop.turn.run_due() == 1
    await shop.create(5)
    await shop.dispatch_due()
    execution = await shop.engine.services.jobs.trigger(ANN, job.job_id)
    view = await shop.engine.services.executions.get(ANN, execution.execution_id)
    at = shop.turn.now + timedelta(seconds=(3 + 1) * RUN_SEC / 2)
    assert view.waiting_for == (
        "tenant 'acme' has 2 of at most 2 executions dispatched; 3 before it; "
        f"expected to start at {at:%Y-%m-%dT%H:%M:%SZ}"
    )


async def test_a_job_that_never_ran_is_expected_by_how_long_its_tenant_runs(shop: Shop) -> None:
    await shop.settle(TenantSettings(max_running=1))
    (first,) = await shop.create(1)
    assert shop.in_sec(await shop.ask(first)) is None
    await shop.turn.run_due()
    jobs = await shop.create(3)
    await shop.dispatch_due()
    assert shop.in_sec(await shop.ask(jobs[2])) == (1 + 1) * RUN_SEC


async def test_a_cap_of_nothing_lets_nothing_be_expected(shop: Shop) -> None:
    (before,) = await shop.create(1)
    await shop.turn.run_due()
    await shop.settle(TenantSettings(max_running=0))
    execution = await shop.engine.services.jobs.trigger(ANN, before.job_id)
    view = await shop.engine.services.executions.get(ANN, execution.execution_id)
    assert view.waiting_for == "tenant 'acme' has 0 of at most 0 executions dispatched"


async def test_rate_of_a_tenant_is_named_with_the_expected_start(shop: Shop) -> None:
    await shop.settle(TenantSettings(rate_per_sec=0.5, burst=1))
    jobs = await shop.create(4)
    began_ms = shop.clock.now_ms()
    await shop.dispatch_due()
    view = await shop.ask(jobs[3])
    assert (view.blocked_by, view.position) == (BlockedBy.TENANT_RATE, 2)
    assert view.reason == "tenant 'acme' has used up its rate of 0.5 a second"
    assert view.expected_at is not None
    assert abs(ms_of(view.expected_at) - (began_ms + 3 * 2_000)) <= 1


async def test_asking_takes_no_token(shop: Shop) -> None:
    await shop.settle(TenantSettings(rate_per_sec=0.001, burst=1))
    jobs = await shop.create(2)
    for _ in range(5):
        assert (await shop.ask(jobs[1])).blocked_by == BlockedBy.TENANT_RATE
    await shop.dispatch_due()
    assert (await shop.ask(jobs[0])).outcome == "FIRED"


async def test_full_pool_is_named_with_its_content(shop: Shop) -> None:
    deep = 4 * CAPACITY
    jobs = await shop.create(deep + 2)
    await shop.dispatch_due()
    view = await shop.ask(jobs[-1])
    assert (view.blocked_by, view.position, view.expected_at) == (BlockedBy.POOL_FULL, 1, None)
    assert view.reason == f"pool 'web' is full, with 0 of {CAPACITY} running and {deep} dispatched before it"


async def test_in_a_full_pool_the_start_is_expected_by_how_long_runs_take(shop: Shop) -> None:
    await shop.create(1)
    await shop.turn.run_due()
    deep = 4 * CAPACITY
    shop.clock.move_to(shop.clock.now_ms() + 60_000)
    jobs = await shop.create(deep + 2)
    await shop.dispatch_due()
    assert shop.in_sec(await shop.ask(jobs[-1])) == (deep + 1 + 1) * RUN_SEC / CAPACITY


async def test_entry_that_nothing_else_blocks_waits_for_its_turn(shop: Shop) -> None:
    await shop.create(1, BOB)
    jobs = await shop.create(3)
    view = await shop.ask(jobs[2])
    assert (view.blocked_by, view.position, view.expected_at) == (BlockedBy.TURN, 2, None)
    assert view.reason == "it waits for its turn in pool 'web'; 2 tenants take turns there"


async def test_overdue_entry_that_nothing_blocks_points_at_the_scheduler(shop: Shop) -> None:
    (one,) = await shop.create(1)
    shop.clock.move_to(shop.clock.now_ms() + 42_000)
    view = await shop.ask(one)
    assert (view.blocked_by, view.position) == (BlockedBy.TURN, 0)
    assert view.reason == "no limit blocks it and it is 42 s late: check /readyz of the schedulers"


async def test_position_of_a_small_tenant_does_not_count_all_entries_of_a_large_one(shop: Shop) -> None:
    await shop.create(4)
    await shop.turn.run_due()
    await shop.create(30, BOB)
    (ours,) = await shop.create(1)
    view = await shop.ask(ours)
    assert (view.blocked_by, view.position) == (BlockedBy.TURN, 0)
    assert 0 < (shop.in_sec(view) or 0) < 10


async def test_planned_or_fired_occurrence_has_no_blocker(shop: Shop) -> None:
    later = shop.turn.now + timedelta(minutes=1)
    (planned,) = await shop.create(1, run_at=later)
    page = await shop.engine.services.occurrences.list_occurrences(
        ANN, planned.job_id, from_ms=shop.clock.now_ms(), to_ms=ms_of(later)
    )
    (fired,) = await shop.create(1)
    await shop.dispatch_due()
    for view in (*page.occurrences, await shop.ask(fired)):
        assert (view.blocked_by, view.position, view.position_is_least, view.expected_at) == (None, None, False, None)


async def test_handed_back_execution_waits_for_a_worker_with_the_handler(shop: Shop) -> None:
    (one,) = await shop.create(1, target=Target("web", "no_such_handler"))
    await shop.turn.run_due()
    view = await shop.engine.services.job_queries.get_job(ANN, one.job_id)
    execution = await shop.engine.services.executions.get(ANN, view.executions[0].execution_id)
    assert execution.waiting_for == "a worker with handler 'no_such_handler' in pool 'web': no worker has this handler"


class NoTokens(Tokens):
    async def take(self, asks: Any, now_ms: int) -> list[TokenGrant]:
        raise TokensUnavailable("gone")


async def test_unavailable_rate_counters_are_named_as_the_blocker(shop: Shop) -> None:
    await shop.settle(TenantSettings(rate_per_sec=10))
    (one,) = await shop.create(1)
    drivers = shop.engine.drivers
    blockers = BlockerFinder(drivers.query_store, drivers.settings_store, drivers.workload, NoTokens(), shop.clock)
    mark = (shop.clock.now_ms(), one.job_id)
    blocker = await blockers.find(DueEntry(ANN.tenant, "web", one.job_id, mark))  # type: ignore[arg-type]
    assert blocker == Blocker(
        BlockedBy.TENANT_RATE, "the rate of tenant 'acme' is unknown: its counters cannot be reached", 0
    )


# Processes without a scheduler


@pytest.mark.slow
async def test_process_without_a_scheduler_can_explain_what_blocks() -> None:
    clock = StandingClock()
    settings = TenantSettings(rate_per_sec=1, burst=2)
    async with postgres_store(0) as store, redis_connection() as (redis, prefix):
        crank = Crank(store)
        await crank.own()
        await crank.settle(signs=[hello()])
        blockers = BlockerFinder(
            store.query_store, store.settings_store, store.workload, RedisTokens(redis, prefix), clock
        )
        jobs = [job(spec(concurrency=Concurrency("k", 2))) for _ in range(4)]
        await crank.add(*jobs)

        async def ask(number: int, concurrency: Concurrency | None = None) -> Blocker:
            return await blockers.find(DueEntry(TENANT, POOL, jobs[number].id, (NOW_MS, jobs[number].id), concurrency))

        assert (await ask(3)).by is BlockedBy.TURN
        await store.settings_store.put_tenant(TENANT, settings, audit())
        rate = rate_of(settings)
        assert rate is not None
        await RedisTokens(redis, prefix).take([TokenRequest(TENANT, rate, 2)], NOW_MS)
        blocker = await ask(3)
        assert (blocker.by, blocker.position) == (BlockedBy.TENANT_RATE, 3)
        assert blocker.expected_ms is not None
        assert abs(blocker.expected_ms - (NOW_MS + 4 * SECOND)) <= 1

        fired = await crank.fire((await crank.due())[:2])
        assert (await ask(3, Concurrency("k", 2))).by is BlockedBy.KEY
        await store.settings_store.put_tenant(TENANT, TenantSettings(max_running=2), audit())
        blocker = await ask(3)
        assert (blocker.by, blocker.position) == (BlockedBy.TENANT_CAP, 1)
        await crank.settle(*[report(each, Outcome.SUCCEEDED) for each in fired.dispatches])
        assert (await ask(3)).by is BlockedBy.TURN
