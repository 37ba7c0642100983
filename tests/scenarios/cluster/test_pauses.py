"""A pause is in effect when it is acknowledged, whichever scheduler owns the partition."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.process import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
SETTINGS_MS = 1_500
"""Schedulers read settings every second."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared()) as cluster:
        await cluster.have(api=1, scheduler=2, recorder=1, worker=1)
        yield cluster


@pytest.mark.parametrize("where", ["/pools/p", "/tenants/default", ""])
async def test_nothing_created_after_a_pause_starts_before_the_resume(cluster: Cluster, where: str) -> None:
    await cluster.done(await cluster.create_many(10))
    status, answer, _ = await cluster.ask("POST", f"/v1{where}/pause", {})
    assert status == 200, answer
    paused_ms = await store_ms(cluster)
    jobs = await cluster.create_many(60)

    async def settings_were_read() -> bool:
        return await store_ms(cluster) > paused_ms + SETTINGS_MS

    await until(settings_were_read)
    resumed_ms = await store_ms(cluster)
    status, answer, _ = await cluster.ask("POST", f"/v1{where}/resume", {})
    assert status == 200, answer
    await cluster.done(jobs)
    fired = "SELECT count(*) FROM executions WHERE created_ms > $1 AND created_ms < $2"
    assert [tuple(row) for row in await cluster.store.query(fired, paused_ms, resumed_ms)] == [(0,)]


async def store_ms(cluster: Cluster) -> int:
    ((now_ms,),) = await cluster.store.query("SELECT clock_ms()")
    return int(now_ms)
