"""Redis is never in the path of correctness: its loss costs time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis as Client

from servers import Redis, free_port
from tests.scenarios.cluster.cluster import Cluster, Job, Servers, cluster_on
from tests.scenarios.cluster.cuts import Cut, every_cut, only_in_chaos
from tests.scenarios.process import job_body, until
from tests.support.tcp_cutter import HOST, Cutter

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
SLOTS = 50


@pytest.fixture(scope="module")
def redis(folder: Path) -> Iterator[Redis]:
    with Redis(folder / "redis", free_port(), throwaway=True) as redis:
        yield redis


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["memory", pytest.param("redis", marks=only_in_chaos)]
)
async def cluster(folder: Path, redis: Redis, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A cluster with its hot index in the owner's process, and one with its hot index in Redis."""
    async with cluster_on(
        folder / request.param, Servers.shared(redis=redis.url), cluster_hot_index=request.param
    ) as cluster:
        yield cluster


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_promise_is_broken(cluster: Cluster, redis: Redis) -> AsyncIterator[None]:
    await cluster.have(api=1, scheduler=1, recorder=1, worker=1)
    yield
    redis.start()
    cluster.release_all()
    await cluster.quiet()
    assert not await cluster.problems()


async def test_a_flush_in_a_burst_costs_no_more_than_time(cluster: Cluster) -> None:
    release = cluster.new_hold()
    long = await cluster.create("stay", {"until": str(release)})
    await cluster.execution(long, "RUNNING")
    await cluster.create_rhythm(20, for_sec=4)
    jobs = await cluster.create_many(600, within_sec=3)

    for place in (100, 300, 500):
        await cluster.started(jobs[place])
        await flush(cluster)
    await cluster.done(jobs)
    release.touch()
    await cluster.done([long])

    assert len(cluster.lines("start", long)) == 1
    print(f"\nRedis flushed three times: late at most {await cluster.lateness(jobs):.2f} s")


async def test_execution_cancelled_before_a_flush_does_not_start(cluster: Cluster) -> None:
    release = cluster.new_hold()
    busy = await cluster.create_all([job_body("stay", {"until": str(release)})] * SLOTS)
    await until(lambda: all_are(cluster, busy, "RUNNING"))
    waiting = await cluster.create_many(5)
    await until(lambda: all_are(cluster, waiting, "PENDING"))

    for job in waiting:
        execution = await cluster.execution(job, "PENDING")
        assert (await cluster.ask("POST", f"/v1/executions/{execution['id']}/cancel"))[0] == 202
    await flush(cluster)
    release.touch()
    await cluster.done(busy)

    await until(lambda: all_are(cluster, waiting, "CANCELLED"))
    assert not [line for job in waiting for line in cluster.lines("start", job)]


async def test_while_redis_is_away_nothing_starts_and_nothing_is_lost(cluster: Cluster, redis: Redis) -> None:
    release, never = cluster.new_hold(), cluster.new_hold()
    running = await cluster.create("stay", {"until": str(release)})
    unwanted = await cluster.create("stay", {"until": str(never)})
    await cluster.execution(running, "RUNNING")
    cancel = f"/v1/executions/{(await cluster.execution(unwanted, 'RUNNING'))['id']}/cancel"

    in_trouble = [process.will_say("round failed") for process in cluster.alive("scheduler", "recorder", "worker")]
    redis.stop()
    jobs = await cluster.create_many(100)
    await asyncio.gather(*in_trouble)
    release.touch()
    await cluster.execution(running, "SUCCEEDED")
    status, problem, headers = await cluster.ask("POST", cancel)
    assert not [line for job in jobs for line in cluster.lines("start", job)]
    redis.start()

    assert status == 503, problem
    assert int(headers["Retry-After"]) > 0
    await until(lambda: is_accepted(cluster, cancel))
    await cluster.execution(unwanted, "CANCELLED")
    await cluster.done(jobs)
    assert len(cluster.lines("start", running)) == 1


@every_cut
async def test_process_cut_off_from_redis_delays_no_other(cluster: Cluster, redis: Redis, cut: Cut) -> None:
    """A scheduler goes on, late at most; a worker leaves its share of the pool to others."""
    async with Cutter(HOST, redis.port) as cutter:
        servers = cluster.servers.seen(redis=f"redis://{HOST}:{cutter.port}/0")
        scheduler, worker = cluster.serve("scheduler", servers=servers), cluster.work(servers=servers)
        with cluster.guest(scheduler), cluster.guest(worker):
            await cluster.ready(scheduler, worker)
            await cluster.owned_by(2)
            await cluster.until_it_works(worker)

            jobs = await cut.happen(cluster, cutter, worker)
            await cluster.done(jobs)

    print(f"\ncut off from Redis: late at most {await cluster.lateness(jobs):.2f} s")


async def all_are(cluster: Cluster, jobs: list[Job], state: str) -> bool:
    return await cluster.states(jobs) == {state: len(jobs)}


async def is_accepted(cluster: Cluster, path: str) -> bool:
    return (await cluster.ask("POST", path))[0] == 202


async def flush(cluster: Cluster) -> None:
    async with Client.from_url(cluster.servers.redis) as client:
        await client.flushall()
    cluster.note_fault("flushed")
