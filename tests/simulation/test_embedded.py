"""A thousand lives of an embedded Noonday: killed, frozen, with a full disk and a meddling user."""

import asyncio
import os

import pytest

from tests.simulation.embedded import Simulation
from tests.simulation.kernel import FaultPlan

SEEDS = int(os.environ.get("NOONDAY_SIMULATION_SEEDS", "1000"))
CHUNK = 25


def live(seed: int) -> list[str]:
    """One life: half a minute of requests under faults, then quiet."""
    kill = (0.0, 0.0002, 0.001)[seed % 3]
    faults = FaultPlan(kill=kill, freeze=0.0002 if seed % 4 == 0 else 0.0, freeze_ms=(10, 8_000), limit=6)
    with Simulation(seed, faults=faults, concurrency=(8, 2)[seed % 2]) as simulation:
        random = simulation.random

        async def director() -> None:
            jobs = []
            for _ in range(12):
                job = await simulation.create(simulation.any_spec())
                if job is not None:
                    jobs.append(job)
                await asyncio.sleep(random.random() * 2)
                if jobs and random.random() < 0.6:
                    await simulation.meddle(jobs)
                if random.random() < 0.05:
                    simulation.disk.full = True
                    await asyncio.sleep(random.random() * 3)
                    simulation.disk.full = False
            await simulation.resume_all(jobs)

        return simulation.run(director)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken_in_any_life(first: int) -> None:
    broken = {seed: problems for seed in range(first, min(first + CHUNK, SEEDS)) if (problems := live(seed))}
    assert not broken, f"to see one again: live({next(iter(broken))}) in {__name__}\n{broken}"
