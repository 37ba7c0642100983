"""Tenants that share one engine by their weights, within their rates."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.model.caller import Caller
from noonday.model.ids import TenantId
from noonday.model.job import Concurrency, JobType
from noonday.model.message import Dispatch
from noonday.model.view import TenantInPool, TenantSettings
from tests.simulation.embedded import USER, Simulation
from tests.simulation.test_named_seeds import kill
from tests.simulation.test_named_seeds import play as play_any

BRIEF: dict[str, object] = {"v": 1, "do": "sleep", "sec": 0.02}
SLOW: dict[str, object] = {"v": 1, "do": "sleep", "sec": 0.4}


play = partial(play_any, knows_limits=False)
"""Set rates, pauses and pool caps without noting them in the history."""


def as_tenant(name: str) -> Caller:
    return Caller(TenantId(name), "user", frozenset({"operator"}))


async def settle_for(simulation: Simulation, tenant: str, settings: TenantSettings) -> None:
    assert simulation.engine is not None
    await simulation.engine.services.tenants.put(USER, tenant, settings)
    await asyncio.sleep(1.5)


async def create_due_together(
    simulation: Simulation, in_sec: float, payload: dict[str, object] | None = None, **counts: int
) -> None:
    """One-shots of each tenant, all due at one instant."""
    assert simulation.engine is not None
    at = simulation.instant() + timedelta(seconds=in_sec)
    for tenant, count in counts.items():
        specs = [simulation.spec(type=JobType.ONE_TIME, run_at=at, payload=payload or {"v": 1}) for _ in range(count)]
        await simulation.engine.services.jobs.create_many(as_tenant(tenant), specs)


def tenant_of(simulation: Simulation) -> dict[str, str]:
    return dict(simulation.disk.conn.execute("SELECT id, tenant FROM executions").fetchall())


def most_within(simulation: Simulation, tenant: str, window_ms: int) -> int:
    """The largest number of starts of a tenant in any window of this length."""
    tenants = tenant_of(simulation)
    starts = sorted(e.start_ms for e in simulation.history.effects if tenants[e.execution] == tenant)
    return max(sum(start <= other < start + window_ms for other in starts) for start in starts)


@pytest.mark.slow
def test_a_tenant_starts_no_faster_than_its_rate() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, "slow", TenantSettings(rate_per_sec=10, burst=5))
        await create_due_together(simulation, 1, slow=60, free=60)

    simulation = play(scenario)
    assert len(simulation.history.effects) == 120
    assert most_within(simulation, "slow", 1_000) <= 17  # early occurrences of one instant start together
    assert most_within(simulation, "free", 1_000) == 60


@pytest.mark.slow
def test_a_crash_costs_no_more_than_another_burst() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, "slow", TenantSettings(rate_per_sec=10, burst=5))
        await create_due_together(simulation, 1, slow=60)
        await asyncio.sleep(3)
        await kill(simulation)

    simulation = play(scenario)
    assert most_within(simulation, "slow", 1_000) <= 22


@pytest.mark.slow
def test_a_rate_is_in_effect_within_seconds() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, "slow", TenantSettings(rate_per_sec=1, burst=1))
        await create_due_together(simulation, 0, slow=120)
        await asyncio.sleep(3)
        before = len(simulation.history.effects)
        await settle_for(simulation, "slow", TenantSettings())
        await asyncio.sleep(5)
        assert before <= 6
        assert len(simulation.history.effects) == 120

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("TENANT", "held"), ("POOL", "p"), ("ALL", "")])
def test_paused_executions_start_when_they_are_resumed(kind: str, name: str) -> None:
    async def scenario(simulation: Simulation) -> None:
        assert simulation.engine is not None
        pauses = simulation.engine.services.pauses
        await pauses.add(USER, kind, name)
        await asyncio.sleep(1.5)
        await create_due_together(simulation, 0, held=50, free=50)
        await asyncio.sleep(30)
        tenants = tenant_of(simulation)
        before = Counter(tenants[effect.execution] for effect in simulation.history.effects)
        assert before == ({"free": 50} if kind == "TENANT" else {})
        assert (await pauses.remove(USER, kind, name)).pauses == ()
        await asyncio.sleep(5)
        assert len(simulation.history.effects) == 100

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("TENANT", "held"), ("POOL", "p"), ("ALL", "")])
def test_pause_is_in_effect_when_it_is_answered(kind: str, name: str) -> None:
    async def scenario(simulation: Simulation) -> None:
        assert simulation.engine is not None
        pauses = simulation.engine.services.pauses
        await asyncio.sleep(5)
        await pauses.add(USER, kind, name)
        await create_due_together(simulation, 0, held=20)
        await asyncio.sleep(30)
        assert simulation.history.effects == []
        await pauses.remove(USER, kind, name)

    assert len(play(scenario).history.effects) == 20


@pytest.mark.slow
def test_pause_survives_the_death_of_the_process() -> None:
    async def scenario(simulation: Simulation) -> None:
        assert simulation.engine is not None
        await simulation.engine.services.pauses.add(USER, "TENANT", "held")
        await create_due_together(simulation, 3, held=20)
        await kill(simulation)
        await asyncio.sleep(40)
        assert simulation.history.effects == []
        assert simulation.engine is not None
        await simulation.engine.services.pauses.remove(USER, "TENANT", "held")

    assert len(play(scenario).history.effects) == 20


@pytest.mark.slow
def test_weights_share_the_slots() -> None:
    async def scenario(simulation: Simulation) -> None:
        for tenant, weight in (("one", 1), ("two", 2), ("four", 4)):
            await settle_for(simulation, tenant, TenantSettings(weight=weight))
        slow = {"v": 1, "do": "sleep", "sec": 0.05}
        await create_due_together(simulation, 1, slow, one=700, two=700, four=700)

    simulation = play(scenario, concurrency=4)
    tenants = tenant_of(simulation)
    got = Counter(tenants[effect.execution] for effect in simulation.history.effects[:700])
    assert abs(got["one"] - 100) <= 10
    assert abs(got["two"] - 200) <= 20
    assert abs(got["four"] - 400) <= 40


@pytest.mark.slow
def test_settings_are_looked_at_now_and_then_and_not_without_end() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, "slow", TenantSettings(weight=3))
        assert simulation.engine is not None
        settings_store, reads = simulation.engine.drivers.settings_store, []
        look = settings_store.tenants_after

        async def counted(since_ms: int) -> list[tuple[TenantId, TenantSettings, int]]:
            reads.append(since_ms)
            return await look(since_ms)

        settings_store.tenants_after = counted  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert 10 <= len(reads) <= 30

    play(scenario)


def most_at_once(simulation: Simulation, tenant: str) -> int:
    """The largest number of runs of a tenant at the same time."""
    tenants = tenant_of(simulation)
    ours = [e for e in simulation.history.effects if tenants[e.execution] == tenant]
    return max(sum(e.start_ms <= at.start_ms < (e.end_ms or sys.maxsize) for e in ours) for at in ours)


@pytest.mark.slow
def test_a_tenant_runs_no_more_at_once_than_its_cap() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, "capped", TenantSettings(max_running=3))
        await create_due_together(simulation, 1, SLOW, capped=40, free=40)

    simulation = play(scenario, concurrency=16)
    assert len(simulation.history.effects) == 80
    assert most_at_once(simulation, "capped") <= 3
    assert most_at_once(simulation, "free") > 3


@pytest.mark.slow
def test_a_cap_outlives_crashes_and_leaks_nothing() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, "capped", TenantSettings(max_running=2))
        await create_due_together(simulation, 1, SLOW, capped=30)
        for _ in range(4):
            await asyncio.sleep(1.3)
            await kill(simulation)

    simulation = play(scenario)
    tenants = tenant_of(simulation)
    assert len({e.execution for e in simulation.history.effects if tenants[e.execution] == "capped"}) == 30
    assert simulation.disk.conn.execute("SELECT used, cap FROM slots").fetchall() == [(0, 2)]


@pytest.mark.slow
def test_a_cap_is_in_effect_at_once_and_its_end_within_seconds() -> None:
    async def scenario(simulation: Simulation) -> None:
        await settle_for(simulation, "capped", TenantSettings(max_running=0))
        await create_due_together(simulation, 0, capped=50)
        await asyncio.sleep(10)
        assert simulation.history.effects == []
        await settle_for(simulation, "capped", TenantSettings())
        await asyncio.sleep(3)
        assert len(simulation.history.effects) == 50

    play(scenario)


@pytest.mark.slow
def test_backlog_of_one_tenant_does_not_crowd_out_another() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.most_of_a_tenant = 10
        await kill(simulation)
        await asyncio.sleep(25)
        await create_due_together(simulation, 2, big=400, small=20)

    simulation = play(scenario, concurrency=4)
    tenants = tenant_of(simulation)
    order = [tenants[effect.execution] for effect in simulation.history.effects]
    assert len(order) == 420
    assert order[:60].count("small") == 20


@pytest.mark.slow
def test_paused_entries_of_one_tenant_take_little_room() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.most_of_a_tenant = 10
        await kill(simulation)
        await asyncio.sleep(25)
        assert simulation.engine is not None
        await simulation.engine.services.pauses.add(USER, "TENANT", "big")
        await create_due_together(simulation, 2, big=400)
        await asyncio.sleep(90)
        index = simulation.engine.drivers.index
        assert isinstance(index, MemoryHotIndex)
        assert index.size() == 10
        await simulation.engine.services.pauses.remove(USER, "TENANT", "big")

    assert len(play(scenario).history.effects) == 400


@pytest.mark.slow
def test_blocked_and_indexed_entries_keep_to_one_budget() -> None:
    most = []

    async def scenario(simulation: Simulation) -> None:
        simulation.index_entries = 60
        await kill(simulation)
        await asyncio.sleep(25)
        assert simulation.engine is not None
        at = simulation.instant() + timedelta(seconds=1)
        key = Concurrency("shared", 3)
        specs = [simulation.spec(type=JobType.ONE_TIME, run_at=at, concurrency=key, payload=BRIEF) for _ in range(400)]
        await simulation.engine.services.jobs.create_many(as_tenant("big"), specs)
        await create_due_together(simulation, 1, BRIEF, **{f"t-{n}": 10 for n in range(20)})
        drivers = simulation.engine.drivers
        for _ in range(200):
            most.append(drivers.index.size() + drivers.budget.blocked)
            await asyncio.sleep(0.1)

    assert len(play(scenario).history.effects) == 600
    assert max(most) <= 60


def late_at_most(simulation: Simulation, tenant: str, percent: int) -> int:
    """The lateness in ms within which `percent` of a tenant's starts were."""
    tenants = tenant_of(simulation)
    late = sorted(e.start_ms - e.due_ms for e in simulation.history.effects if tenants[e.execution] == tenant)
    return late[len(late) * percent // 100 - 1]


@pytest.mark.slow
def test_small_tenant_is_hardly_later_beside_a_large_one() -> None:
    def small_beside(big: int) -> int:
        async def scenario(simulation: Simulation) -> None:
            await create_due_together(simulation, 3, BRIEF, big=big, small=40)

        simulation = play(scenario, concurrency=8)
        assert len(simulation.history.effects) == big + 40
        return late_at_most(simulation, "small", 95)

    assert small_beside(1_500) <= small_beside(0) + 250


@pytest.mark.slow
def test_a_cap_in_a_pool_gives_no_tokens_of_the_rate_back() -> None:
    async def scenario(simulation: Simulation) -> None:
        in_pool = {"p": TenantInPool(max_running=1)}
        await settle_for(simulation, "slow", TenantSettings(rate_per_sec=2, burst=1, pools=in_pool))
        await create_due_together(simulation, 1, BRIEF, slow=20)

    simulation = play(scenario)
    assert len(simulation.history.effects) == 20
    assert most_within(simulation, "slow", 1_000) <= 4


def test_weights_reach_the_workers() -> None:
    told: set[tuple[str, int]] = set()

    async def scenario(simulation: Simulation) -> None:
        assert simulation.engine is not None
        await settle_for(simulation, "two", TenantSettings(weight=2))
        bus = simulation.engine.drivers.bus
        publish = bus.publish

        async def watched(dispatches: Sequence[Dispatch]) -> None:
            told.update((each.tenant, each.weight) for each in dispatches)
            await publish(dispatches)

        bus.publish = watched  # type: ignore[method-assign]
        await create_due_together(simulation, 1, one=3, two=3)
        await asyncio.sleep(3)

    play(scenario)
    assert told == {("one", 1), ("two", 2)}
