"""The cap of a tenant is enforced through the death of processes and the loss of Redis's memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.cluster.store import StoreView
from tests.scenarios.process import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
CAP = 8
_COUNTED = """
    SELECT (SELECT count(*) FROM executions WHERE state < 2 AND fired_ms IS NOT NULL), s.used, s.cap
    FROM slots s WHERE s.tenant = 'default' AND s.key = 'tenant'
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared(), scheduler_batch=50) as cluster:
        await cluster.have(api=1, scheduler=2, recorder=2, worker=2)
        yield cluster


async def test_cap_is_enforced_through_the_death_of_every_role_and_a_flush(cluster: Cluster) -> None:
    status, answer, _ = await cluster.ask("PUT", "/v1/tenants/default", {"maxRunning": CAP})
    assert status == 200, answer
    jobs = await cluster.create_many(400)

    async with counted(cluster) as seen:
        await cluster.started(jobs[40])
        cluster.kill(cluster.one("scheduler"))
        await until(lambda: len(cluster.lines("end")) > 100)
        cluster.kill(cluster.one("worker"))
        await forget_everything(cluster)
        cluster.kill(cluster.one("recorder"))
        await cluster.have(scheduler=2, recorder=2, worker=2)
        await cluster.done(jobs)

    assert max(seen) == CAP
    await cluster.quiet()
    assert [tuple(row) for row in await cluster.store.query(_COUNTED)] == [(0, 0, CAP)]
    assert not await cluster.problems()


@asynccontextmanager
async def counted(cluster: Cluster) -> AsyncIterator[list[int]]:
    """Check again and again that the counter equals the number of dispatched executions, and stays within the cap."""
    seen: list[int] = []
    store = StoreView(cluster.servers.postgres, cluster.store.schema)

    async def look() -> None:
        while True:
            dispatched, used, cap = (await store.query(_COUNTED))[0]
            assert dispatched == used <= cap
            seen.append(used)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look())
        yield seen
        looking.cancel()
    await store.close()


async def forget_everything(cluster: Cluster) -> None:
    """Delete everything that Redis knows of this cluster."""
    async with Redis.from_url(cluster.servers.redis) as redis:
        if keys := [key async for key in redis.scan_iter(f"{cluster.name}:*", count=1000)]:
            await redis.delete(*keys)
    cluster.note_fault("redis: flush")
