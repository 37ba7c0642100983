"""etcd decides which instance tries, the store decides which may: whatever happens to etcd, epochs never fall and nothing
is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from noonday.model.ids import PARTITIONS
from servers import Etcd, free_ports
from tests.scenarios.cluster.cluster import Cluster, Servers, cluster_on
from tests.scenarios.cluster.cuts import Cut, every_cut
from tests.scenarios.process import until
from tests.support.tcp_cutter import HOST, Cutter

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def etcd(folder: Path) -> Iterator[Etcd]:
    with Etcd(folder / "etcd", free_ports(6), nodes=3, throwaway=True) as etcd:
        yield etcd


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path, etcd: Etcd) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared(etcd=etcd.url)) as cluster:
        yield cluster


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_promise_is_broken(cluster: Cluster, etcd: Etcd) -> AsyncIterator[None]:
    etcd.start()
    await cluster.have(api=1, scheduler=2, recorder=2, worker=1)
    epochs = await cluster.epochs()
    yield
    assert not [p for p, epoch in (await cluster.epochs()).items() if epoch < epochs[p]]
    await cluster.quiet()
    assert not await cluster.problems()


async def test_the_leader_of_etcd_is_killed(cluster: Cluster, etcd: Etcd) -> None:
    jobs = await cluster.create_many(300, within_sec=5)
    await cluster.started(jobs[50])

    etcd.kill(await leader_of(etcd))
    await cluster.done(jobs)
    await cluster.owned_by(2)

    print(f"\netcd's leader killed: late at most {await cluster.lateness(jobs):.2f} s")


@every_cut
async def test_process_cut_off_from_etcd_is_replaced(cluster: Cluster, etcd: Etcd, cut: Cut) -> None:
    async with Cutter(HOST, etcd.ports[0][0]) as cutter:
        servers = cluster.servers.seen(etcd=f"http://{HOST}:{cutter.port}")
        scheduler, recorder = cluster.serve("scheduler", servers=servers), cluster.serve("recorder", servers=servers)
        with cluster.guest(scheduler), cluster.guest(recorder):
            await cluster.ready(scheduler, recorder)
            instance = await cluster.instance_of(scheduler)
            await cluster.owned_by(3)
            await cluster.all_recorded()

            jobs = await cut.happen(cluster, cutter)
            took = await cluster.owned_by(2, without=instance)
            await cluster.done(jobs)
            await cluster.all_recorded()
            await cutter.heal()
            await cluster.owned_by(3)
            assert recorder.is_alive, recorder.output

    print(f"\nscheduler without etcd: others own all after {took:.2f} s")


async def test_all_of_etcd_goes_away_and_comes_back_empty(cluster: Cluster, etcd: Etcd) -> None:
    jobs = await cluster.create_many(300, within_sec=4)
    await cluster.started(jobs[50])

    doubts = [scheduler.will_say("lease in doubt") for scheduler in cluster.alive("scheduler")]
    await asyncio.to_thread(etcd.wipe)
    await asyncio.gather(*doubts)
    jobs += await cluster.create_many(50)
    await asyncio.to_thread(etcd.start)
    await cluster.done(jobs)
    await cluster.owned_by(2)

    print(f"\netcd wiped: late at most {await cluster.lateness(jobs):.2f} s")


async def test_leases_move_from_etcd_to_redis_between_restarts(cluster: Cluster) -> None:
    former = [await cluster.instance_of(scheduler) for scheduler in cluster.alive("scheduler")]
    jobs = await cluster.create_many(300, within_sec=5)
    await cluster.started(jobs[50])

    for process in cluster.alive("scheduler", "recorder"):
        process.stop()
        assert await process.exit_code() == 0, process.output
    cluster.settings["cluster_leases"] = "redis"
    await cluster.have(scheduler=2, recorder=2)

    async def others_own_everything() -> bool:
        owners = await cluster.owners()
        return owners.total() == PARTITIONS and not owners & Counter(former)

    await until(others_own_everything)
    await cluster.done(jobs)


async def leader_of(etcd: Etcd) -> int:
    """Return the index of the leading node."""
    async with aiohttp.ClientSession() as session:
        for node, (client, _) in enumerate(etcd.ports):
            async with session.post(f"http://{HOST}:{client}/v3/maintenance/status", json={}) as answer:
                status = await answer.json()
                if status["leader"] == status["header"]["member_id"]:
                    return node
    raise AssertionError("nobody leads")
