import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from servers.answers import fetch

from noonday.drivers.etcd.gateway import EtcdOptions
from noonday.drivers.etcd.leases import EtcdLeases
from noonday.model.errors import LeasesUnavailable
from noonday.model.ids import InstanceId
from servers import Etcd
from tests.drivers.etcd.conftest import NewLeases
from tests.support.drivers import ETCD_URLS
from tests.support.tcp_cutter import HOST, Cutter

ME, YOU = InstanceId("i-1"), InstanceId("i-2")
LONG_SEC = 30.0


@pytest.fixture
async def cutter() -> AsyncIterator[Cutter]:
    """A cutter in front of the etcd that all tests share."""
    upstream = urlsplit(ETCD_URLS[0])
    async with Cutter(str(upstream.hostname), int(upstream.port or 0)) as cutter:
        yield cutter


@pytest.fixture
def behind_cutter(cutter: Cutter, new_leases: NewLeases) -> EtcdLeases:
    return new_leases([f"http://{HOST}:{cutter.port}"], options=EtcdOptions(timeout_sec=1.0))


async def test_groups_are_apart(new_leases: NewLeases) -> None:
    schedulers, recorders, others = (new_leases(group=group) for group in ("scheduler", "recorder", "scheduler2"))
    for leases, weight in ((schedulers, 1.0), (recorders, 2.0), (others, 3.0)):
        await leases.join(ME, weight)
    assert await schedulers.members() == {ME: 1.0}
    assert await recorders.members() == {ME: 2.0}
    for leases in (schedulers, recorders, others):
        await leases.leave()


@pytest.mark.slow
async def test_lease_without_renewal_lapses_and_can_be_joined_again(new_leases: NewLeases) -> None:
    mine, onlookers = new_leases(ttl_sec=1), new_leases()
    await mine.join(ME, 1.0)
    assert await onlookers.members() == {ME: 1.0}
    assert await onlookers.changed(LONG_SEC)
    assert await onlookers.members() == {}
    assert not await mine.renew()
    await mine.join(ME, 1.5)
    assert await mine.renew()
    assert await onlookers.members() == {ME: 1.5}
    await mine.leave()


async def test_a_leave_wakes_others_at_once(new_leases: NewLeases) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    await yours.join(YOU, 1.0)
    await mine.members()
    waiting = asyncio.create_task(mine.changed(LONG_SEC))
    assert await yours.renew()  # by now the watch has begun, most likely
    began = time.perf_counter()
    await yours.leave()
    assert await waiting
    print(f"etcd: a leave was seen after {(time.perf_counter() - began) * 1000:.1f} ms")
    await mine.leave()


async def test_cut_connection_is_noticed_in_time_and_the_lease_goes_on(
    cutter: Cutter, behind_cutter: EtcdLeases, new_leases: NewLeases
) -> None:
    await behind_cutter.join(ME, 1.0)
    await cutter.cut()
    async with asyncio.timeout(60):
        with pytest.raises(LeasesUnavailable, match="no answer within 1 s"):
            await behind_cutter.renew()
    await cutter.heal()
    assert await behind_cutter.renew()
    assert await new_leases().members() == {ME: 1.0}
    await behind_cutter.leave()


async def test_refused_connection_raises_at_once(cutter: Cutter, behind_cutter: EtcdLeases) -> None:
    await behind_cutter.join(ME, 1.0)
    await cutter.refuse()
    for call in (behind_cutter.renew, behind_cutter.members, behind_cutter.leave):
        with pytest.raises(LeasesUnavailable, match=str(cutter.port)):
            await call()
    assert not await behind_cutter.renew()
    await cutter.heal()
    await behind_cutter.join(ME, 1.0)
    assert await behind_cutter.renew()
    await behind_cutter.leave()


async def test_a_wait_for_news_outlives_a_cut_and_misses_nothing(
    cutter: Cutter, behind_cutter: EtcdLeases, new_leases: NewLeases
) -> None:
    mine = new_leases()
    await mine.join(ME, 1.0)
    await behind_cutter.members()
    await cutter.refuse()
    assert not await behind_cutter.changed(0.3)
    waiting = asyncio.create_task(behind_cutter.changed(LONG_SEC))
    await mine.leave()
    await cutter.heal()
    assert await waiting


@pytest.mark.slow
async def test_watch_that_receives_nothing_any_more_is_replaced(cutter: Cutter, new_leases: NewLeases) -> None:
    mine, onlookers = new_leases(), new_leases([f"http://{HOST}:{cutter.port}", *ETCD_URLS])
    await mine.join(ME, 1.0)
    await onlookers.members()
    waiting = asyncio.create_task(onlookers.changed(LONG_SEC))
    assert await mine.renew()  # by now the watch has begun, most likely
    await cutter.cut()
    await mine.leave()
    assert await waiting


async def test_one_endpoint_that_is_silent_or_gone_is_not_waited_for(cutter: Cutter, new_leases: NewLeases) -> None:
    leases = new_leases([f"http://{HOST}:{cutter.port}", *ETCD_URLS])
    await leases.join(ME, 1.0)
    await cutter.cut()
    assert await leases.renew()
    await cutter.refuse()
    assert await leases.renew()
    await leases.leave()


async def test_a_wait_ends_in_time_whatever_it_is_doing_then(new_leases: NewLeases) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.members()
    async with asyncio.timeout(60):
        for tenths_of_ms in range(1, 120):
            assert not await leases.changed(tenths_of_ms / 10_000)
    await leases.leave()


async def test_a_join_whose_answer_was_lost_can_be_repeated(cutter: Cutter, behind_cutter: EtcdLeases) -> None:
    await behind_cutter.members()
    await cutter.cut(towards="client")
    with pytest.raises(LeasesUnavailable):
        await behind_cutter.join(ME, 1.0)
    assert not await behind_cutter.renew()
    await cutter.heal()
    await behind_cutter.join(ME, 1.0)
    assert await behind_cutter.members() == {ME: 1.0}
    await behind_cutter.leave()


async def test_a_key_that_was_deleted_is_a_lapse(new_leases: NewLeases) -> None:
    prefix = f"test-{uuid4().hex}"
    leases = new_leases(prefix=prefix)
    await leases.join(ME, 1.0)
    post("kv/deleterange", key=f"{prefix}/scheduler/members/i-1")
    assert await leases.renew()
    assert await leases.members() == {}
    assert not await leases.renew()
    await leases.join(ME, 1.0)
    assert await leases.members() == {ME: 1.0}
    await leases.leave()


async def test_a_new_weight_under_a_deleted_key_is_refused(new_leases: NewLeases) -> None:
    prefix = f"test-{uuid4().hex}"
    leases = new_leases(prefix=prefix)
    await leases.join(ME, 1.0)
    post("kv/deleterange", key=f"{prefix}/scheduler/members/i-1")
    assert not await leases.renew(1.5)
    assert await leases.members() == {}
    await leases.leave()


async def test_foreign_key_is_no_member(new_leases: NewLeases) -> None:
    prefix = f"test-{uuid4().hex}"
    leases = new_leases(prefix=prefix)
    await leases.join(ME, 1.0)
    post("kv/put", key=f"{prefix}/scheduler/members/x", value="?")
    assert await leases.members() == {ME: 1.0}
    post("kv/deleterange", key=f"{prefix}/scheduler/members/x")
    await leases.leave()


@pytest.mark.slow
async def test_an_etcd_that_was_wiped_knows_no_lease_and_takes_new_ones(own_etcd: Etcd, new_leases: NewLeases) -> None:
    mine, onlookers = new_leases([own_etcd.url]), new_leases([own_etcd.url])
    await mine.join(ME, 1.0)
    await onlookers.members()
    waiting = asyncio.create_task(onlookers.changed(LONG_SEC))
    await asyncio.to_thread(own_etcd.wipe)
    with pytest.raises(LeasesUnavailable):
        await mine.renew()
    await asyncio.to_thread(own_etcd.start)
    assert not await mine.renew()
    assert await waiting
    await mine.join(ME, 1.5)
    assert await onlookers.members() == {ME: 1.5}
    await mine.leave()


@pytest.mark.slow
async def test_an_etcd_that_was_restarted_still_knows_the_lease(own_etcd: Etcd, new_leases: NewLeases) -> None:
    mine = new_leases([own_etcd.url])
    await mine.join(ME, 1.0)
    await asyncio.to_thread(own_etcd.kill)
    await asyncio.to_thread(own_etcd.start)
    assert await mine.renew()
    assert await mine.members() == {ME: 1.0}
    await mine.leave()


def post(path: str, **texts: str) -> None:
    """Send a request to the etcd that all tests share."""
    fetch(f"{ETCD_URLS[0]}/v3/{path}", {name: b64encode(text.encode()).decode() for name, text in texts.items()})
