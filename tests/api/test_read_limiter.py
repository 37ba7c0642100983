import asyncio

import pytest

from noonday.api.read_limiter import ReadLimiter
from noonday.model.errors import Busy
from tests.api.asgi import Client
from tests.support.eventually import eventually


async def test_tenant_at_its_read_limit_does_not_delay_others() -> None:
    limiter, go_on, reading = ReadLimiter(at_once=2), asyncio.Event(), list[str]()

    async def read(tenant: str) -> None:
        async with limiter.admit(tenant):
            reading.append(tenant)
            await go_on.wait()

    tasks = [asyncio.create_task(read(tenant)) for tenant in ("acme", "acme", "acme", "acme", "globex")]
    await eventually(lambda: len(reading) == 3)
    assert sorted(reading) == ["acme", "acme", "globex"]
    go_on.set()
    await asyncio.gather(*tasks)
    assert len(reading) == 5


async def test_too_many_waiting_reads_raise_busy() -> None:
    limiter, go_on = ReadLimiter(at_once=1, most_waiting=1), asyncio.Event()

    async def read() -> None:
        async with limiter.admit("acme"):
            await go_on.wait()

    tasks = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await read()
    go_on.set()
    await asyncio.gather(*tasks)


async def test_failed_or_cancelled_read_is_released() -> None:
    limiter = ReadLimiter(at_once=1)
    with pytest.raises(ZeroDivisionError):
        async with limiter.admit("acme"):
            raise ZeroDivisionError
    async with limiter.admit("acme"):
        waiting = asyncio.create_task(_take(limiter))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    await _take(limiter)
    assert limiter._by_tenant == {}


async def _take(limiter: ReadLimiter) -> None:
    async with limiter.admit("acme"):
        pass


async def test_many_concurrent_reads_of_one_tenant_succeed(client: Client) -> None:
    answers = await asyncio.gather(*(client.get("/v1/jobs") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
