"""Three nodes, of which one dies or freezes."""

import asyncio
import json
import time
from collections.abc import Iterator

import pytest
from servers.answers import fetch

from noonday.drivers.etcd.leases import EtcdLeases
from noonday.model.errors import LeasesUnavailable
from noonday.model.ids import InstanceId
from servers import Etcd, free_ports
from tests.drivers.etcd.conftest import NewLeases
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

ME, YOU = InstanceId("i-1"), InstanceId("i-2")
LONG_SEC = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd-cluster"), free_ports(6), nodes=3) as etcd:
        yield etcd


async def test_a_lease_survives_the_death_of_the_leader(cluster: Etcd, new_leases: NewLeases) -> None:
    leader = leader_of(cluster)
    mine, yours = new_leases(leader_first(cluster)), new_leases(leader_first(cluster))
    await mine.join(ME, 1.0)
    await yours.join(YOU, 1.0)
    await mine.members()
    waiting = asyncio.create_task(mine.changed(LONG_SEC))
    began = time.perf_counter()
    await asyncio.to_thread(cluster.kill, leader)
    for leases in (mine, yours):
        assert await eventually(lambda leases=leases: renewed(leases), within_sec=10)
    print(f"etcd: renewed again {time.perf_counter() - began:.2f} s after the leader was killed")
    assert not waiting.done()
    await yours.leave()
    assert await waiting
    assert await mine.members() == {ME: 1.0}
    await mine.leave()
    await asyncio.to_thread(cluster.start, leader)


async def test_a_frozen_node_holds_nobody_up(cluster: Etcd, new_leases: NewLeases) -> None:
    follower = (leader_of(cluster) + 1) % 3
    leases = new_leases([urls(cluster)[follower], *urls(cluster)])
    await leases.join(ME, 1.0)
    cluster.pause(follower)
    try:
        assert await leases.renew()
        assert await leases.members() == {ME: 1.0}
    finally:
        cluster.resume(follower)
    await leases.leave()


async def test_without_a_majority_the_call_ends_in_time(cluster: Etcd, new_leases: NewLeases) -> None:
    leader = leader_of(cluster)
    leases = new_leases([urls(cluster)[leader]])
    await leases.join(ME, 1.0)
    others = [node for node in range(3) if node != leader]
    for node in others:
        cluster.pause(node)
    try:
        async with asyncio.timeout(2):
            with pytest.raises(LeasesUnavailable):
                await leases.members()
    finally:
        for node in others:
            cluster.resume(node)
    assert await eventually(lambda: renewed(leases), within_sec=10)
    await leases.leave()


async def renewed(leases: EtcdLeases) -> bool:
    """A lease that has lapsed would fail the test for good."""
    try:
        kept = await leases.renew()
    except LeasesUnavailable:
        return False
    assert kept
    return True


def urls(cluster: Etcd) -> list[str]:
    return cluster.url.split(",")


def leader_first(cluster: Etcd) -> list[str]:
    leader = leader_of(cluster)
    return urls(cluster)[leader:] + urls(cluster)[:leader]


def leader_of(cluster: Etcd) -> int:
    statuses = [json.loads(fetch(f"{url}/v3/maintenance/status", {})) for url in urls(cluster)]
    return next(node for node, status in enumerate(statuses) if status["header"]["member_id"] == status["leader"])
