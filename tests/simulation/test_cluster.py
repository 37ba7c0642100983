"""Simulation runs of a cluster: processes are killed and frozen, servers are away and cut off, Redis loses its memory, and
a user changes everything."""

import asyncio
import os

import pytest

from tests.simulation.cluster import ClusterSimulation
from tests.simulation.embedded import OTHER
from tests.simulation.kernel import FaultPlan
from tests.simulation.load import load_of

SEEDS = int(os.environ.get("NOONDAY_CLUSTER_SEEDS", "36"))
CHUNK = 4


def simulate(seed: int, focus: str = "") -> list[str]:
    """Play one run: half a minute of requests under faults, then quiet. `focus`: a single fault, in the middle of the run."""
    kill = (0.0, 0.0001, 0.0004)[seed % 3]
    freeze = 0.0001 if seed % 4 == 0 else 0.0
    faults = FaultPlan(kill=kill, freeze=freeze, freeze_ms=(10, 30_000), limit=6)
    faults = FaultPlan() if focus else faults
    with ClusterSimulation(seed, faults=faults, concurrency=(8, 2)[seed % 2], load=load_of(seed)) as simulation:
        random = simulation.random

        async def director() -> None:
            jobs, faults = [], []
            await simulation.keep()
            if seed % 5 == 3:
                await simulation.cap(3)
            if seed % 7 == 2:
                await simulation.rate(2.0)
            elif seed % 7 == 4:
                await simulation.cap(1, OTHER.tenant)
            for number in range(12):
                if focus and number == 4:
                    faults.append(asyncio.create_task(FOCUS[focus](simulation)))
                job = await simulation.create_any()
                if job is not None:
                    jobs.append(job)
                await asyncio.sleep(random.random() * 2)
                if jobs and random.random() < 0.6:
                    await simulation.meddle(jobs)
                if random.random() < 0.1:
                    simulation.interrupt(random.randint(10, 3_000))
                if random.random() < 0.2 and not focus:
                    faults.append(asyncio.create_task(simulation.fault()))
            await asyncio.gather(*faults)
            if seed % 10 == 3:
                await simulation.cap(6)
            await simulation.resume_all(jobs)

        return simulation.run(director)


async def die_after_fire(simulation: ClusterSimulation) -> None:
    """The owners die between the commit of a fire and its publication."""
    for _ in range(3):
        caught = simulation.at("fire", "scheduler", lambda process: process.kill(), done=True)
        while not caught:
            await asyncio.sleep(0.1)


async def lose_messages(simulation: ClusterSimulation) -> None:
    """The broker acknowledges some messages and loses them."""
    simulation.broker.loses = 4


async def cut_workers_off(simulation: ClusterSimulation) -> None:
    """Each worker in turn cannot reach the broker until it is judged, and then reports."""
    await simulation._cut_for("worker-0", "kafka", 45)
    await simulation._cut_for("worker-1", "kafka", 45)


async def die_before_report(simulation: ClusterSimulation) -> None:
    """Workers die in the moment in which they would report."""
    for _ in range(3):
        caught = simulation.at("report", "worker", lambda process: process.kill())
        while not caught:
            await asyncio.sleep(0.1)


async def no_fault(simulation: ClusterSimulation) -> None:
    """The broker delivers some messages twice, as ever."""


FOCUS = {
    "die after fire": die_after_fire,
    "die before report": die_before_report,
    "lose messages": lose_messages,
    "cut workers off": cut_workers_off,
    "no fault": no_fault,
}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken_in_any_run_of_a_cluster(first: int) -> None:
    broken = {seed: problems for seed in range(first, min(first + CHUNK, SEEDS)) if (problems := simulate(seed))}
    assert not broken, f"to see one again: simulate({next(iter(broken))}) in {__name__}\n{broken}"
