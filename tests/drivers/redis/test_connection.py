import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from noonday.drivers.redis.connection import Connection, connect
from noonday.drivers.redis.signals import RedisSignals
from noonday.model.errors import BadSettings, LeasesUnavailable, Unavailable
from servers import Authority, free_port
from servers import Redis as RedisServer
from tests.drivers.redis.conftest import SOON_SEC
from tests.support.factories import NOW_MS, POOL, WORKER, dispatch
from tests.support.tcp_cutter import HOST, Cutter

PATIENT_SEC = 60.0
WITHIN_SEC = 60.0
"""The time limit of a test, in seconds: without a timeout, a call would wait for ever."""
"""The timeout of calls that are answered, in seconds: a busy machine takes long for a handshake."""


@asynccontextmanager
async def connected(url: str, timeout_sec: float = SOON_SEC, **options: str | Path) -> AsyncIterator[Connection]:
    connection = connect(url, timeout_sec=timeout_sec, **options)  # type: ignore[arg-type]
    try:
        yield connection
    finally:
        await connection.close()


async def echo(connection: Connection, text: str) -> str:
    answer: bytes = await connection.ask("ECHO", text, failing=Unavailable)
    return answer.decode()


async def fails_soon(connection: Connection, match: str) -> None:
    async with asyncio.timeout(WITHIN_SEC):
        await fails(connection, match)


async def fails(connection: Connection, match: str) -> None:
    with pytest.raises(Unavailable, match=match):
        await echo(connection, "hello")


# Batches


async def test_a_batch_is_answered_in_order(connection: Connection) -> None:
    commands = [("ECHO", f"{n}") for n in range(3_000)]
    assert await connection.run(commands, Unavailable) == [b"%d" % n for n in range(3_000)]
    assert await connection.run([], Unavailable) == []


async def test_many_batches_at_once_each_get_their_own_answers(connection: Connection) -> None:
    answers = await asyncio.gather(*[echo(connection, f"{n}") for n in range(100)])
    assert answers == [f"{n}" for n in range(100)]


async def test_an_error_in_a_batch_is_raised_and_the_next_batch_is_answered(connection: Connection) -> None:
    with pytest.raises(LeasesUnavailable, match="unknown command"):
        await connection.run([("ECHO", "a"), ("NONSENSE",), ("ECHO", "b")], LeasesUnavailable)
    assert await echo(connection, "c") == "c"


async def test_cancelled_batch_leaves_no_answer_behind(connection: Connection) -> None:
    await echo(connection, "warm")
    gone = asyncio.create_task(connection.run([("ECHO", "of the other")] * 1_000, Unavailable))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert [await echo(connection, f"{n}") for n in range(20)] == [f"{n}" for n in range(20)]


async def test_scripts_that_the_server_forgot_are_loaded_again(connection: Connection, prefix: str) -> None:
    signals = RedisSignals(connection, prefix)
    assert await signals.pre_start_check(POOL, []) is None
    await connection.ask("SCRIPT", "FLUSH", failing=Unavailable)
    batch = [dispatch() for _ in range(100)]
    assert len(set(await signals.claim(WORKER, batch, NOW_MS))) == 1
    await signals.begin_generation(POOL)
    assert await signals.pre_start_check(POOL, []) == {}


async def test_the_clock_of_the_server_can_be_asked(connection: Connection) -> None:
    before_ms = time.time_ns() // 1_000_000
    server_ms = await connection.time_ms()
    assert before_ms <= server_ms <= time.time_ns() // 1_000_000


# Unavailable servers


async def test_a_server_that_is_not_there_is_named(prefix: str) -> None:
    port = free_port()
    async with connected(f"redis://:secret@{HOST}:{port}") as connection:
        await fails_soon(connection, f"Redis at {HOST}:{port}: ")
        with pytest.raises(Unavailable) as caught:
            await connection.time_ms()
        assert "secret" not in caught.value.detail


async def test_silent_server_is_given_up_at_the_timeout(behind_cutter: Connection, cutter: Cutter) -> None:
    assert await echo(behind_cutter, "a") == "a"
    await cutter.cut()
    await fails_soon(behind_cutter, "no answer within")
    await fails_soon(behind_cutter, "no answer within")
    await cutter.heal()
    assert await echo(behind_cutter, "b") == "b"


async def test_queued_batches_wait_no_longer_than_the_timeout(behind_cutter: Connection, cutter: Cutter) -> None:
    await cutter.cut()
    async with asyncio.timeout(WITHIN_SEC):
        answers = await asyncio.gather(*[echo(behind_cutter, "a") for _ in range(50)], return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in answers)


async def test_a_connection_that_was_reset_is_made_again(behind_cutter: Connection, cutter: Cutter) -> None:
    assert await echo(behind_cutter, "a") == "a"
    await cutter.refuse()
    await fails_soon(behind_cutter, "Redis at")
    await cutter.heal()
    assert await echo(behind_cutter, "b") == "b"


async def test_dropped_connection_sends_nothing_more() -> None:
    received = asyncio.get_running_loop().create_future()
    given_up = asyncio.Event()

    async def answer_the_greeting_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in ("LIB-NAME", "LIB-VER"):
            await reader.readuntil(b"SETINFO")
            writer.write(b"+OK\r\n")
        await reader.readuntil(b"ECHO")
        await given_up.wait()
        received.set_result(len(await reader.read()))
        writer.close()

    text = "x" * 30_000_000
    async with await asyncio.start_server(answer_the_greeting_only, HOST, 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with connected(f"redis://{HOST}:{port}") as connection:
            with pytest.raises(Unavailable, match="no answer within"):
                await echo(connection, text)
            given_up.set()
            async with asyncio.timeout(WITHIN_SEC):
                assert await received < len(text)


async def test_late_answer_of_a_frozen_server_is_discarded(server: RedisServer) -> None:
    async with connected(server.url) as connection:
        assert await echo(connection, "a") == "a"
        server.pause()
        try:
            await fails_soon(connection, "no answer within")
        finally:
            server.resume()
        server.wait_ready()
        assert [await echo(connection, f"{n}") for n in range(20)] == [f"{n}" for n in range(20)]


async def test_connection_given_up_while_it_was_greeting_is_not_used(server: RedisServer) -> None:
    async with connected(server.url) as connection:
        server.pause()
        try:
            await fails_soon(connection, "no answer within")
            connection.timeout_sec = WITHIN_SEC
            answer = asyncio.create_task(echo(connection, "hello"))
            await asyncio.sleep(0.1)
        finally:
            server.resume()
        assert await answer == "hello"


# Servers with access control

PASSWORD = "correct horse:@/"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RedisServer]:
    certificate = authority.issue("redis")
    folder = tmp_path_factory.mktemp("strict-redis")
    with RedisServer(folder, free_port(), password=PASSWORD, certificate=certificate) as server:
        yield server


async def test_a_server_with_tls_and_a_password_lets_us_in(strict_server: RedisServer, authority: Authority) -> None:
    async with connected(strict_server.url, PATIENT_SEC, ca_file=authority.certificate) as connection:
        assert await echo(connection, "hello") == "hello"
    bare = f"rediss://{HOST}:{strict_server.port}"
    async with connected(bare, PATIENT_SEC, ca_file=authority.certificate, password=PASSWORD) as connection:
        assert await echo(connection, "hello") == "hello"


async def test_wrong_password_is_reported(strict_server: RedisServer, authority: Authority) -> None:
    url = f"rediss://{HOST}:{strict_server.port}"
    async with connected(url, PATIENT_SEC, ca_file=authority.certificate, password="wrong") as connection:
        await fails(connection, "username-password pair|[Pp]assword")
    async with connected(url, PATIENT_SEC, ca_file=authority.certificate) as connection:
        await fails(connection, "Authentication required")


async def test_server_with_an_untrusted_certificate_is_refused(strict_server: RedisServer, tmp_path: Path) -> None:
    async with connected(strict_server.url, PATIENT_SEC) as connection:
        await fails(connection, "certificate verify failed")
    stranger = Authority(tmp_path)
    async with connected(strict_server.url, PATIENT_SEC, ca_file=stranger.certificate) as connection:
        await fails(connection, "certificate verify failed")


@pytest.mark.parametrize(
    ("url", "files", "message"),
    [
        ("http://h:1", {}, "schemes"),
        ("redis://h:not-a-port", {}, "Port could not be cast"),
        ("rediss://h", {"ca_file": "/no/such/file"}, "no such file for the certificates of Redis, /no/such/file"),
        ("redis://h", {"ca_file": "/etc/hostname"}, "rediss://"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(url: str, files: dict[str, str], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        connect(url, **files)  # type: ignore[arg-type]


# Servers that evict keys


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "noeviction"])
async def test_server_that_evicts_is_refused_with_the_remedy(tmp_path: Path, policy: str) -> None:
    settings = {"maxmemory": "100mb", "maxmemory-policy": policy}
    with RedisServer(tmp_path / "redis", free_port(), settings=settings) as server:
        async with connected(server.url, PATIENT_SEC) as connection:
            if policy == "noeviction":
                await connection.refuse_eviction()
                return
            with pytest.raises(BadSettings, match="CONFIG SET maxmemory-policy noeviction"):
                await connection.refuse_eviction()


async def test_server_that_does_not_answer_is_not_refused_for_its_memory() -> None:
    async with connected(f"redis://{HOST}:{free_port()}/0") as connection:
        await connection.refuse_eviction()
