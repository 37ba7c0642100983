"""Redis Cluster refuses a script that uses keys of two slots, and so does a single node with a `#!lua` script."""

from collections.abc import AsyncIterator, Iterator

import pytest

from noonday.drivers.redis.connection import Connection, connect
from noonday.drivers.redis.hinted_index import HintedHotIndex
from noonday.drivers.redis.hot_index import RedisHotIndex
from noonday.drivers.redis.signals import RedisSignals
from noonday.model.claim import ClaimRefused
from noonday.model.errors import IndexUnavailable, Unavailable
from noonday.model.ids import PARTITIONS, ExecutionId
from noonday.model.message import Token
from servers import Redis as RedisServer
from servers import free_port
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.factories import HOUR, NOW_MS, POOL, WORKER, dispatch, entry

ALL = range(PARTITIONS)


@pytest.fixture(scope="module")
def cluster_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    with RedisServer(tmp_path_factory.mktemp("cluster"), free_port(), settings=settings) as server:
        yield server


@pytest.fixture
async def node(cluster_node: RedisServer) -> AsyncIterator[Connection]:
    connection = connect(cluster_node.url)
    if not await connection.ask("CLUSTER", "SLOTS", failing=Unavailable):
        await connection.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383, failing=Unavailable)

    async def ready() -> bool:
        return b"cluster_state:ok" in await connection.ask("CLUSTER", "INFO", failing=Unavailable)

    await eventually(ready)
    yield connection
    await connection.close()


async def test_a_script_across_slots_is_refused_here(node: Connection) -> None:
    script = "#!lua\nredis.call('SET', KEYS[1], 1) redis.call('SET', 'elsewhere', 1)"
    with pytest.raises(Unavailable, match="slot"):
        await node.ask("EVAL", script, 1, "here", failing=Unavailable)


async def test_the_index_stays_within_slots(node: Connection, clock: ManualClock, prefix: str) -> None:
    index = RedisHotIndex(node, clock, 300, prefix)
    entries = [
        entry(pool=pool, tenant=f"t-{n % 7}", lane=n % 3, due_ms=NOW_MS + HOUR * (n % 2), early=n % 2)
        for pool in (POOL, "mail")
        for n in range(500)
    ]
    await index.generations(ALL)
    await index.add(entries)
    assert await index.missing(entries) == []
    claimed = await index.claim(NOW_MS, ALL, {POOL: 10_000, "mail": 10_000}, 100)
    await index.forget(ALL)
    claimed += await index.claim(NOW_MS + HOUR, ALL, {POOL: 10_000, "mail": 10_000}, 10_000)
    assert set(claimed) == set(entries)
    await index.close()


async def test_hints_can_be_published(node: Connection, clock: ManualClock, prefix: str) -> None:
    index = HintedHotIndex(node, clock, 300, prefix)
    try:
        await index.add([entry()])
    except IndexUnavailable as error:
        pytest.fail(error.detail)


async def test_claims_and_revocations_stay_within_hash_slots(node: Connection, prefix: str) -> None:
    signals = RedisSignals(node, prefix)
    batch = [dispatch(number=n) for n in range(1, 1_001)]
    assert await signals.claim(WORKER, batch, NOW_MS) == [Token(each.number, NOW_MS) for each in batch]
    await signals.ack([(each.execution_id, each.number) for each in batch])
    assert set(await signals.claim(WORKER, batch, NOW_MS)) == {ClaimRefused.ACKED}
    one = ExecutionId("a")
    assert await signals.pre_start_check(POOL, [dispatch(one)]) is None
    await signals.begin_generation(POOL)
    for count in (1, 500):
        await signals.revoke(POOL, [(ExecutionId(f"x-{n}"), 1, "EDITED") for n in range(count)])
        assert await signals.pre_start_check(POOL, [dispatch(one), dispatch("x-0")]) == {"x-0": "EDITED"}
    assert await signals.has_generation(POOL)
