"""Roles that share a process notify each other of their work."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.redis.reference import RedisReference
from noonday.intake.edits import first_fire
from noonday.model.change import NewJob
from noonday.model.recording import SettleResult
from noonday.runtime.clock import ReferenceClock
from noonday.wiring.cluster.node import Node, Role
from noonday.wiring.cluster.servers import Servers
from noonday.wiring.settings import Settings
from noonday.wiring.settings.cluster import ClusterSettings
from tests.support.drivers import redis_connection
from tests.support.factories import NOW_MS, job
from tests.support.kafka import options_for_a_test
from tests.support.postgres import postgres_store


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """A process with all roles, which is not started."""
    async with AsyncExitStack() as opened:
        redis, prefix = await opened.enter_async_context(redis_connection())
        store = await opened.enter_async_context(postgres_store(0))
        options = await opened.enter_async_context(options_for_a_test())
        clock, keyring = ReferenceClock(), Keyring.generate()
        servers = Servers(clock, keyring, redis, KafkaBus(options, keyring, clock), RedisReference(redis, prefix))
        cluster = ClusterSettings(name=prefix, leases="redis")
        yield Node(msgspec.structs.replace(Settings(), cluster=cluster), list(Role), servers, store, AsyncExitStack())


@pytest.mark.slow
async def test_stored_job_wakes_the_dispatcher_of_its_process(node: Node) -> None:
    assert node.scheduler is not None
    wake = node.scheduler.loops["dispatcher"].wake
    assert not wake.is_set()
    new = job(now_ms=NOW_MS)
    await node.intake.services.sender.send_new([NewJob(new, first_fire(new, NOW_MS))], NOW_MS)
    assert wake.is_set()


async def test_settlement_wakes_the_dispatcher_of_its_process(node: Node) -> None:
    assert node.scheduler is not None
    assert node.recorder is not None
    wake = node.scheduler.loops["dispatcher"].wake
    recorder = node.recorder.group._recorder_of(0)
    recorder._on_settled(SettleResult((), (), {}, freed=("tenant",)))
    assert wake.is_set()
