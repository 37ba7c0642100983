"""Faults by which workers lost, repeated or starved work, each played again. The names are those of docs/invariants.md."""

import asyncio

import pytest

from noonday.model.message import Report
from tests.simulation.cluster import ClusterSimulation
from tests.simulation.embedded import QUICK
from tests.simulation.kernel import Process
from tests.simulation.servers import SESSION_SEC
from tests.simulation.test_named_cluster_seeds import all_reported, assert_ran_once, create_some, play, rows
from tests.simulation.test_named_seeds import one, states, until


@pytest.mark.slow
def test_oldest_starves() -> None:
    """Runs are longer than the trusted time of claims, and the backlog is longer than the worker's slots."""

    async def scenario(simulation: ClusterSimulation) -> None:
        # One owner that gets all hints: a later publication is behind the earlier ones.
        simulation.redis.loses_hints = 0.0
        simulation.kill("worker-1", "scheduler-1")
        await asyncio.sleep(SESSION_SEC + 2)
        for second in range(16):
            await create_some(simulation, 1, delay=second, do="sleep", sec=25)
        await until(lambda: len(simulation.history.effects) == 16, 300)

    simulation = play(scenario, concurrency=2)
    assert_ran_once(simulation, 16)
    dues = [effect.due_ms for effect in simulation.history.effects]
    assert dues == sorted(dues)


@pytest.mark.slow
def test_stalled_with_a_stubborn_run() -> None:
    """The control loop of a worker stalls for 22 s. When it goes on, one of its runs ignores its cancellation.

    After 20 s the worker changes its identity. After 25 s at the earliest, a recorder judges it lost, which costs an attempt.
    """

    async def scenario(simulation: ClusterSimulation) -> None:
        simulation.kill("worker-1")
        await asyncio.sleep(SESSION_SEC + 2)
        await create_some(simulation, 1, do="ignore cancellation", sec=300)
        await all_reported(simulation, 1)
        simulation.processes["worker-0"].freeze()
        await asyncio.sleep(22)
        simulation.processes["worker-0"].wake()
        await create_some(simulation, 4)
        await until(lambda: rows(simulation, "SELECT id FROM executions WHERE state = 5", 4), 30)
        # The run is reported as interrupted, which costs no attempt, and begins again.
        await until(lambda: len(simulation.history.effects) == 6, 60)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"] * 5
    assert one(simulation, "SELECT max(attempt) FROM executions") == (1,)


@pytest.mark.slow
def test_dies_in_its_first_second() -> None:
    """A handler kills its process at once. Each worker that runs it dies before it can report anything."""

    async def scenario(simulation: ClusterSimulation) -> None:
        await create_some(simulation, 1, do="die")
        await create_some(simulation, 10)
        await until(lambda: rows(simulation, "SELECT id FROM executions WHERE state = 8", 1), 900)

    simulation = play(scenario)
    deaths = [effect for effect in simulation.history.effects if effect.payload.get("do") == "die"]
    # The first run of an attempt may end unseen, the second one may not.
    assert len(deaths) <= 2 * QUICK.max_attempts
    assert sorted(states(simulation)) == ["DEAD", *["SUCCEEDED"] * 10]
    # A neighbour whose start was announced when its worker died has lost an attempt, as with any lost worker.
    ((attempts,),) = [one(simulation, "SELECT max(attempt) FROM executions WHERE state = 5")]
    assert attempts <= 1 + len(deaths)


@pytest.mark.slow
def test_dies_between_announcement_and_start() -> None:
    """A second delivery is announced; its worker dies before the handler is entered. That costs the attempt, and no more."""

    async def scenario(simulation: ClusterSimulation) -> None:
        first = simulation.at("pre_start_check", "worker", Process.kill, done=True)
        await create_some(simulation, 1)
        await until(lambda: first, 60)
        second = simulation.at("report", "worker", Process.kill, done=True, given=lambda: _is_announced(simulation))
        await until(lambda: second, 120)

    simulation = play(scenario)
    assert states(simulation) == ["SUCCEEDED"]
    assert one(simulation, "SELECT attempt FROM executions") == (2,)
    assert len(simulation.history.effects) == 1


def _is_announced(simulation: ClusterSimulation) -> bool:
    return any(isinstance(each, Report) for partition in simulation.broker.log for each in partition)
