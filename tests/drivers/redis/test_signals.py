from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from noonday.drivers.redis.connection import Connection
from noonday.drivers.redis.signals import RedisSignals
from noonday.model.errors import SignalsUnavailable, Unavailable
from noonday.model.fence import ACKED_FOR_MS, CLAIMS_KEPT_MS
from noonday.model.ids import ExecutionId, JobId
from noonday.model.message import Token
from tests.support.factories import NOW_MS, POOL, WORKER, dispatch
from tests.support.tcp_cutter import Cutter

A = ExecutionId("a")
DAY_SEC = 86_400


@pytest.fixture
def signals(connection: Connection, prefix: str) -> RedisSignals:
    return RedisSignals(connection, prefix)


async def keys(connection: Connection, pattern: str) -> list[bytes]:
    found: list[bytes] = await connection.ask("KEYS", pattern, failing=Unavailable)
    return found


async def ask(connection: Connection, *command: str | bytes | int) -> Any:
    return await connection.ask(*command, failing=Unavailable)


async def test_claims_and_acks_are_kept_for_five_minutes(
    signals: RedisSignals, connection: Connection, prefix: str
) -> None:
    claimed, acked = dispatch(), dispatch()
    await signals.claim(WORKER, [claimed], NOW_MS)
    await signals.ack([(acked.execution_id, acked.number)])
    names = await keys(connection, f"{prefix}:{{c:*")
    assert names
    for name in names:
        assert ACKED_FOR_MS < await ask(connection, "PTTL", name) <= CLAIMS_KEPT_MS


async def test_revocations_are_kept_for_one_to_two_days(
    signals: RedisSignals, connection: Connection, prefix: str
) -> None:
    await signals.revoke(POOL, [(A, 1, "EDITED")])
    (name,) = await keys(connection, f"{prefix}:{{f:*")
    assert DAY_SEC <= await ask(connection, "TTL", name) <= 2 * DAY_SEC


async def test_revocations_of_yesterday_are_seen_and_older_ones_are_not(
    signals: RedisSignals, connection: Connection, prefix: str
) -> None:
    await signals.begin_generation(POOL)
    await signals.revoke(POOL, [(A, 1, "old reason")])
    (today,) = await keys(connection, f"{prefix}:{{f:*[0-9]")
    base, day = today.rsplit(b":", 1)
    yesterday = b"%s:%d" % (base, int(day) - 1)
    await ask(connection, "RENAME", today, yesterday)
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {A: "old reason"}
    await signals.revoke(POOL, [(A, 1, "new reason")])
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {A: "new reason"}
    many = [(ExecutionId(f"x-{n}"), 1, "EDITED") for n in range(100)]
    await signals.revoke(POOL, many)
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {A: "new reason"}
    await ask(connection, "DEL", today)
    await ask(connection, "RENAME", yesterday, b"%s:%d" % (base, int(day) - 2))
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {}


async def test_flush_stops_all_starts_until_the_revocations_are_restored(
    signals: RedisSignals, connection: Connection
) -> None:
    await signals.begin_generation(POOL)
    await signals.revoke(POOL, [(A, 1, "cancelled by ann")])
    await ask(connection, "FLUSHALL")
    assert not await signals.has_generation(POOL)
    assert await signals.pre_start_check(POOL, [dispatch(A)]) is None
    assert await signals.revoked(POOL, [(A, 1)]) == {}


async def test_older_copy_of_redis_is_recognised_by_its_heartbeat_and_starts_nothing(
    signals: RedisSignals, connection: Connection, prefix: str
) -> None:
    await signals.begin_generation(POOL)
    seen_ms = await signals.beat(POOL, NOW_MS, 0)
    assert seen_ms == NOW_MS
    copies = {name: await ask(connection, "DUMP", name) for name in await keys(connection, f"{prefix}:{{f:*")}
    await signals.revoke(POOL, [(A, 1, "cancelled by ann")])
    seen_ms = await signals.beat(POOL, NOW_MS + 500, seen_ms)
    assert seen_ms == NOW_MS + 500
    for name in await keys(connection, f"{prefix}:{{f:*"):
        await ask(connection, "DEL", name)
    for name, copy in copies.items():
        await ask(connection, "RESTORE", name, 0, copy)
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {}
    assert await signals.beat(POOL, NOW_MS + 1_000, seen_ms) is None
    assert await signals.pre_start_check(POOL, [dispatch(A)]) is None


async def test_beats_of_several_keepers_never_go_back(signals: RedisSignals) -> None:
    await signals.begin_generation(POOL)
    assert await signals.beat(POOL, NOW_MS + 200, 0) == NOW_MS + 200
    assert await signals.beat(POOL, NOW_MS, 0) == NOW_MS + 200
    assert await signals.beat(POOL, NOW_MS + 300, NOW_MS + 200) == NOW_MS + 300


async def test_a_claim_that_redis_forgot_can_be_taken_again(signals: RedisSignals, connection: Connection) -> None:
    one = dispatch()
    await signals.claim(WORKER, [one], NOW_MS)
    await ask(connection, "FLUSHALL")
    assert await signals.claim(WORKER, [one], NOW_MS + 1) == [Token(1, NOW_MS + 1)]


async def test_pre_start_check_in_a_pool_without_revocations_names_no_execution(
    signals: RedisSignals, connection: Connection
) -> None:
    await signals.begin_generation(POOL)

    async def received() -> int:
        info = await connection.client.info("stats")
        return int(info["total_net_input_bytes"])

    async def cost(count: int) -> int:
        before = await received()
        assert await signals.pre_start_check(POOL, [dispatch() for _ in range(count)]) == {}
        return await received() - before

    await cost(1)
    assert await cost(10_000) < 2 * await cost(1)


Call = Callable[[RedisSignals], Awaitable[object]]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda signals: signals.claim(WORKER, [dispatch()], NOW_MS), id="claim"),
        pytest.param(lambda signals: signals.ack([(dispatch().execution_id, 1)]), id="ack"),
        pytest.param(lambda signals: signals.pre_start_check(POOL, [dispatch(A)]), id="pre_start_check"),
        pytest.param(lambda signals: signals.revoked(POOL, [(A, 1)]), id="revoked"),
        pytest.param(lambda signals: signals.revoke(POOL, [(A, 1, "EDITED")]), id="revoke"),
        pytest.param(lambda signals: signals.fence(POOL, JobId("j"), NOW_MS), id="fence"),
        pytest.param(lambda signals: signals.has_generation(POOL), id="has_generation"),
        pytest.param(lambda signals: signals.begin_generation(POOL), id="begin_generation"),
        pytest.param(lambda signals: signals.beat(POOL, NOW_MS, 0), id="beat"),
    ],
)
async def test_unreachable_server_raises_unavailable(
    behind_cutter: Connection, cutter: Cutter, prefix: str, call: Call
) -> None:
    signals = RedisSignals(behind_cutter, prefix)
    await call(signals)
    await cutter.cut()
    with pytest.raises(SignalsUnavailable, match="no answer within"):
        await call(signals)
