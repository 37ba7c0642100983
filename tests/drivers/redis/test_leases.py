import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from noonday.drivers.redis.leases import RedisLeases
from noonday.model.errors import AlreadyRunning, LeasesUnavailable
from noonday.model.ids import InstanceId
from servers import Redis as RedisServer
from servers import free_port
from tests.support.tcp_cutter import HOST, Cutter

ME, YOU = InstanceId("i-1"), InstanceId("i-2")
LONG_SEC = 30.0
SHORT_SEC = 0.5

NewLeases = Callable[..., RedisLeases]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A separate server: it is flushed and restarted."""
    with RedisServer(tmp_path_factory.mktemp("redis"), free_port()) as server:
        yield server


@pytest.fixture
async def cutter(server: RedisServer) -> AsyncIterator[Cutter]:
    async with Cutter(HOST, server.port) as cutter:
        yield cutter


@pytest.fixture
async def new_leases(server: RedisServer) -> AsyncIterator[NewLeases]:
    prefix = f"test-{uuid4().hex}"
    async with AsyncExitStack() as opened:

        def one_more(
            group: str = "scheduler", port: int = server.port, text: bool = False, **options: Any
        ) -> RedisLeases:
            client = Redis(host=HOST, port=port, decode_responses=text, retry=Retry(NoBackoff(), 0))
            leases = RedisLeases(client, group, prefix, **{"ttl_sec": LONG_SEC, **options})
            opened.push_async_callback(client.aclose)
            opened.push_async_callback(leases.close)
            return leases

        yield one_more


@pytest.fixture
def behind_cutter(cutter: Cutter, new_leases: NewLeases) -> RedisLeases:
    return new_leases(port=cutter.port)


async def test_groups_are_apart(new_leases: NewLeases) -> None:
    schedulers, recorders = new_leases(), new_leases("recorder")
    await schedulers.join(ME, 1.0)
    await recorders.join(ME, 2.0)
    assert await schedulers.members() == {ME: 1.0}
    assert await recorders.members() == {ME: 2.0}


async def test_lease_without_renewal_lapses_and_wakes_the_others(new_leases: NewLeases) -> None:
    mine, onlookers = new_leases(ttl_sec=SHORT_SEC), new_leases()
    await mine.join(ME, 1.0)
    assert await onlookers.members() == {ME: 1.0}
    began = time.perf_counter()
    assert await onlookers.changed(LONG_SEC)
    assert time.perf_counter() - began >= SHORT_SEC - 0.05
    assert await onlookers.members() == {}
    assert not await mine.renew()
    await mine.join(ME, 1.5)
    assert await onlookers.members() == {ME: 1.5}


async def test_a_lease_that_is_renewed_outlives_its_time(new_leases: NewLeases) -> None:
    mine, onlookers = new_leases(ttl_sec=1.0), new_leases()
    await mine.join(ME, 1.0)
    await onlookers.members()
    for _ in range(5):
        assert not await onlookers.changed(0.25)
        assert await mine.renew()
    assert await onlookers.members() == {ME: 1.0}


async def test_lapsed_lease_leaves_no_key_behind(new_leases: NewLeases, server: RedisServer) -> None:
    mine, onlookers = new_leases("gone", ttl_sec=SHORT_SEC), new_leases("gone")
    await mine.join(ME, 1.0)
    await onlookers.members()
    assert await onlookers.changed(LONG_SEC)
    async with Redis(host=HOST, port=server.port) as client:
        assert [key async for key in client.scan_iter("*{leases:gone}*")] == []


async def test_a_leave_wakes_others_at_once(new_leases: NewLeases) -> None:
    mine, yours = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    await yours.join(YOU, 1.0)
    await mine.members()
    waiting = asyncio.create_task(mine.changed(LONG_SEC))
    assert await yours.renew()
    assert await yours.renew()  # by now the subscription has begun, most likely
    began = time.perf_counter()
    await yours.leave()
    assert await waiting
    print(f"redis: a leave was seen after {(time.perf_counter() - began) * 1000:.1f} ms")


async def test_a_name_whose_holder_lapsed_is_free(new_leases: NewLeases) -> None:
    mine, yours, onlookers = new_leases(ttl_sec=SHORT_SEC), new_leases(), new_leases()
    await mine.join(ME, 1.0)
    with pytest.raises(AlreadyRunning, match="i-1 is already a member of scheduler"):
        await yours.join(ME, 2.0)
    await onlookers.members()
    assert await onlookers.changed(LONG_SEC)
    await yours.join(ME, 2.0)
    assert not await mine.renew(5.0)
    await mine.leave()
    assert await onlookers.members() == {ME: 2.0}


async def test_a_flushed_redis_knows_no_lease_and_takes_new_ones(new_leases: NewLeases, server: RedisServer) -> None:
    mine, onlookers = new_leases(), new_leases()
    await mine.join(ME, 1.0)
    await onlookers.members()
    async with Redis(host=HOST, port=server.port) as client:
        await client.flushall()
        await client.script_flush()
    assert await onlookers.changed(LONG_SEC)
    assert not await mine.renew()
    await mine.join(ME, 1.5)
    assert await onlookers.members() == {ME: 1.5}


async def test_a_client_that_reads_text_will_do(new_leases: NewLeases) -> None:
    leases = new_leases(text=True)
    await leases.join(InstanceId('ümläut "quoted"'), 0.1 + 0.2)
    assert await leases.renew()
    assert await leases.members() == {InstanceId('ümläut "quoted"'): 0.1 + 0.2}
    assert not await leases.changed(0.05)


async def test_cut_connection_is_noticed_in_time_and_the_lease_goes_on(
    cutter: Cutter, behind_cutter: RedisLeases
) -> None:
    await behind_cutter.join(ME, 1.0)
    await cutter.cut()
    async with asyncio.timeout(60):
        with pytest.raises(LeasesUnavailable, match="no answer within 1 s"):
            await behind_cutter.renew()
    await cutter.heal()
    assert await behind_cutter.renew()
    assert await behind_cutter.members() == {ME: 1.0}


async def test_refused_connection_raises_in_time(cutter: Cutter, behind_cutter: RedisLeases) -> None:
    await behind_cutter.join(ME, 1.0)
    await cutter.refuse()
    for call in (behind_cutter.renew, behind_cutter.members, behind_cutter.leave):
        async with asyncio.timeout(60):
            with pytest.raises(LeasesUnavailable):
                await call()
    assert not await behind_cutter.renew()
    await cutter.heal()
    await behind_cutter.join(ME, 1.0)
    assert await behind_cutter.renew()


@pytest.mark.parametrize("fault", [Cutter.cut, Cutter.refuse])
async def test_a_wait_for_news_ends_in_time_and_misses_nothing(
    cutter: Cutter, behind_cutter: RedisLeases, new_leases: NewLeases, fault: Callable[[Cutter], Any]
) -> None:
    mine = new_leases()
    await mine.join(ME, 1.0)
    await behind_cutter.members()
    assert not await behind_cutter.changed(0.05)
    await fault(cutter)
    async with asyncio.timeout(60):
        assert not await behind_cutter.changed(0.3)
    waiting = asyncio.create_task(behind_cutter.changed(LONG_SEC))
    await mine.leave()
    await cutter.heal()
    assert await waiting


async def test_a_wait_ends_in_time_whatever_it_is_doing_then(new_leases: NewLeases) -> None:
    leases = new_leases()
    await leases.join(ME, 1.0)
    await leases.members()
    async with asyncio.timeout(60):
        for tenths_of_ms in range(1, 120):
            await leases.close()
            assert not await leases.changed(tenths_of_ms / 10_000)


async def test_a_join_whose_answer_was_lost_can_be_repeated(
    cutter: Cutter, behind_cutter: RedisLeases, new_leases: NewLeases
) -> None:
    onlookers = new_leases()
    await behind_cutter.members()
    await cutter.cut(towards="client")
    with pytest.raises(LeasesUnavailable):
        await behind_cutter.join(ME, 1.0)
    assert await onlookers.members() == {ME: 1.0}
    assert not await behind_cutter.renew()
    await cutter.heal()
    await behind_cutter.join(ME, 2.0)
    assert await behind_cutter.renew()
    assert await onlookers.members() == {ME: 2.0}


@pytest.mark.slow
async def test_frozen_redis_is_noticed_in_time(server: RedisServer, new_leases: NewLeases) -> None:
    leases = new_leases(ttl_sec=10.0)
    await leases.join(ME, 1.0)
    server.pause()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(LeasesUnavailable):
                await leases.renew()
    finally:
        server.resume()
    assert await leases.renew()
