"""Three nodes, of which one dies or freezes."""

import asyncio
import json
import time
from collections.abc import Iterator

import pytest
from servers.answers import fetch

from noonday.drivers.etcd.gateway import EtcdOptions
from noonday.drivers.etcd.leases import EtcdLeases
from noonday.model.errors import LeasesUnavailable
from noonday.model.ids import InstanceId
from servers import Etcd, free_ports
from tests.drivers.etcd.conftest import NewLeases
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

ME, YOU = InstanceId("i-1"), InstanceId("i-2")
LONG_SEC = 30.0
IMPATIENT = EtcdOptions(timeout_sec=1.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd-cluster"), free_ports(6), nodes=3) as etcd:
        yield etcd


async def test_a_lease_survives_the_death_of_the_leader(cluster: Etcd, new_leases: NewLeases) -> None:
    leader = await leader_of(cluster)
    mine, yours = (new_leases(from_node(cluster, leader), options=IMPATIENT, ttl_sec=3) for _ in range(2))
    await mine.join(ME, 1.0)
    await yours.join(YOU, 1.0)
    await mine.members()
    waiting = asyncio.create_task(mine.changed(LONG_SEC))
    began = time.perf_counter()
    await asyncio.to_thread(cluster.kill, leader)
    for leases in (mine, yours):
        assert await eventually(lambda leases=leases: renewed(leases), within_sec=60)
    print(f"etcd: renewed again {time.perf_counter() - began:.2f} s after the leader was killed")
    assert not waiting.done()
    await yours.leave()
    assert await waiting
    assert await mine.members() == {ME: 1.0}
    await mine.leave()
    await asyncio.to_thread(cluster.start, leader)


async def test_frozen_node_delays_no_member(cluster: Etcd, new_leases: NewLeases) -> None:
    follower = (await leader_of(cluster) + 1) % 3
    leases = new_leases(from_node(cluster, follower))
    await leases.join(ME, 1.0)
    cluster.pause(follower)
    try:
        assert await leases.renew()
        assert await leases.members() == {ME: 1.0}
    finally:
        cluster.resume(follower)
    await leases.leave()


async def test_without_a_majority_the_call_ends_in_time(cluster: Etcd, new_leases: NewLeases) -> None:
    leader = await leader_of(cluster)
    leases = new_leases(from_node(cluster, leader)[:1], options=IMPATIENT)
    await leases.join(ME, 1.0)
    others = [node for node in range(3) if node != leader]
    for node in others:
        cluster.pause(node)
    try:
        async with asyncio.timeout(60):
            with pytest.raises(LeasesUnavailable):
                await leases.members()
    finally:
        for node in others:
            cluster.resume(node)
    assert await eventually(lambda: renewed(leases), within_sec=60)
    await leases.leave()


async def renewed(leases: EtcdLeases) -> bool:
    """Renew a lease. A lapsed lease would fail the test for good."""
    try:
        kept = await leases.renew()
    except LeasesUnavailable:
        return False
    assert kept
    return True


def from_node(cluster: Etcd, node: int) -> list[str]:
    """The endpoints of all nodes, beginning with this one."""
    urls = cluster.url.split(",")
    return urls[node:] + urls[:node]


async def leader_of(cluster: Etcd) -> int:
    def leaders() -> list[int]:
        statuses = [json.loads(fetch(f"{url}/v3/maintenance/status", {})) for url in cluster.url.split(",")]
        return [node for node, status in enumerate(statuses) if status["header"]["member_id"] == status.get("leader")]

    (leader,) = await eventually(leaders, within_sec=60)
    return leader
