"""Lives of a cluster: processes killed and frozen, servers away and cut off, Redis forgetting, and a meddling user."""

import asyncio
import os

import pytest

from tests.simulation.cluster import ClusterSimulation
from tests.simulation.kernel import FaultPlan

SEEDS = int(os.environ.get("NOONDAY_CLUSTER_SEEDS", "60"))
CHUNK = 4


def live(seed: int) -> list[str]:
    """One life: half a minute of requests under faults, then quiet."""
    kill = (0.0, 0.000065, 0.00026)[seed % 3]
    freeze = 0.000065 if seed % 4 == 0 else 0.0
    faults = FaultPlan(kill=kill, freeze=freeze, freeze_ms=(10, 30_000), limit=6)
    with ClusterSimulation(seed, faults=faults, concurrency=(8, 2)[seed % 2]) as simulation:
        random = simulation.random

        async def director() -> None:
            jobs, faults = [], []
            if seed % 5 == 3:
                await simulation.cap(3)
            for _ in range(12):
                job = await simulation.create(simulation.any_spec())
                if job is not None:
                    jobs.append(job)
                await asyncio.sleep(random.random() * 2)
                if jobs and random.random() < 0.6:
                    await simulation.meddle(jobs)
                if random.random() < 0.2:
                    faults.append(asyncio.create_task(simulation.fault()))
            await asyncio.gather(*faults)
            if seed % 10 == 3:
                await simulation.cap(6)
            await simulation.resume_all(jobs)

        return simulation.run(director)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken_in_any_life_of_a_cluster(first: int) -> None:
    broken = {seed: problems for seed in range(first, min(first + CHUNK, SEEDS)) if (problems := live(seed))}
    assert not broken, f"to see one again: live({next(iter(broken))}) in {__name__}\n{broken}"
