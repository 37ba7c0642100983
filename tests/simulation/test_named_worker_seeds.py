"""Ways in which workers lost, repeated or starved work, each played again. The names are those of docs/invariants.md."""

import asyncio

from tests.simulation.cluster import ClusterSimulation
from tests.simulation.servers import SESSION_SEC
from tests.simulation.test_named_cluster_seeds import assert_ran_once, create_some, play
from tests.simulation.test_named_seeds import until


def test_oldest_starves() -> None:
    """Runs are longer than claims are relied upon, and the backlog is longer than the worker."""

    async def story(simulation: ClusterSimulation) -> None:
        simulation.kill("worker-1")
        await asyncio.sleep(SESSION_SEC + 2)
        for second in range(16):
            await create_some(simulation, 1, delay=second, do="sleep", sec=25)
        await until(lambda: len(simulation.history.effects) == 16, 300)

    simulation = play(story, concurrency=2)
    assert_ran_once(simulation, 16)
    dues = [effect.due_ms for effect in simulation.history.effects]
    assert dues == sorted(dues)
