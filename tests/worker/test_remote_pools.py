import asyncio

import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.model.errors import InvalidInput
from noonday.model.execution import Outcome
from noonday.model.message import Bye, Hello, Report
from noonday.runtime.clock import SystemClock
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.worker.options import WorkerOptions
from noonday.worker.remote import Lease, RemoteRuns, RemoteWorker
from noonday.worker.remote_handlers import RemoteHandlers
from noonday.worker.remote_pools import IDLE_SEC, RemotePools
from noonday.worker.worker import Worker
from tests.support.eventually import eventually
from tests.support.factories import dispatch

WORKER = RemoteWorker("default", "w1")


class SkippingClock(SystemClock):
    """The clock of this machine, which a test may put forward."""

    skipped_sec = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_sec


class Rig:
    def __init__(self, allowed: tuple[str, ...] = ("*",)) -> None:
        self.clock = SkippingClock()
        self.bus, self.signals = MemoryBus(self.clock), MemorySignals()
        self.pools = RemotePools(RemoteRuns(self.clock, "i", 30), self.clock, allowed, self._new_worker)
        self.keyring = Keyring.generate()

    def _new_worker(self, handlers: RemoteHandlers) -> Worker:
        return Worker(
            handlers={},
            bus=self.bus,
            signals=self.signals,
            breakers=MemoryBreakers(),
            throttles=MemoryThrottles(),
            clock=self.clock,
            keyring=self.keyring,
            metrics=Metrics(),
            tracing=Tracing(None),
            options=WorkerOptions(concurrency={handlers.pool: 10}, cancel_grace_sec=0),
            handlers_loop=asyncio.get_running_loop(),
            remote=handlers,
        )

    async def take(self, pool: str = "go", *names: str, wait_sec: float = 0) -> list[Lease]:
        handlers = frozenset(names or ("hello",))
        return await self.pools.take(WORKER, pool, handlers, 1, wait_sec, asyncio.Event())

    async def publish(self, execution: str, handler: str = "hello", tenant: str = "default") -> None:
        now_ms = self.clock.now_ms()
        made = dispatch(
            execution, pool="go", handler=handler, tenant=tenant, payload=None, due_ms=now_ms, fired_ms=now_ms
        )
        await self.bus.publish([made])

    async def entries(self) -> list[object]:
        return list((await self.bus.read(0, 0, 1_000, 0)).entries)

    async def outcomes(self) -> dict[str, str]:
        reports = [entry for entry in await self.entries() if isinstance(entry, Report)]
        return {report.execution_id: Outcome(report.outcome).name for report in reports}


async def test_the_first_take_opens_a_pool_and_registers_its_handlers():
    rig = Rig()
    await rig.take("go", "a", "b")
    await rig.take("go", "b", "c")
    hellos = [entry for entry in await rig.entries() if isinstance(entry, Hello)]
    assert {handler.name for handler in hellos[-1].handlers} == {"a", "b", "c"}
    assert rig.pools.names == ["go"]
    await rig.pools.close(0)


async def test_a_dispatch_goes_to_a_take_and_one_of_another_tenant_is_handed_back():
    rig = Rig()
    await rig.signals.begin_generation("go")
    await rig.take()
    await rig.publish("theirs", tenant="other")
    await rig.publish("ours")
    (lease,) = await rig.take(wait_sec=60)
    assert lease.dispatch.execution_id == "ours"
    rig.pools.runs.start("default", lease.id)
    rig.pools.runs.complete("default", lease.id, b"1")

    async def both() -> bool:
        return await rig.outcomes() == {"theirs": "HANDED_BACK", "ours": "SUCCEEDED"}

    await eventually(both)
    await rig.pools.close(0)


async def test_nothing_is_taken_from_the_bus_while_nobody_waits():
    rig = Rig()
    await rig.signals.begin_generation("go")
    await rig.take()
    await rig.publish("e1")
    assert rig.bus.depth() == {"go": 1}
    (lease,) = await rig.take(wait_sec=60)
    assert lease.dispatch.execution_id == "e1"
    await rig.pools.close(0)
    assert await rig.outcomes() == {"e1": "INTERRUPTED"}


async def test_a_pool_that_is_not_used_is_left():
    rig = Rig()
    await rig.take()
    await rig.pools.run_once(0)
    assert rig.pools.names == ["go"]
    rig.clock.skipped_sec = IDLE_SEC + 1
    assert await rig.pools.run_once(0) == 1
    assert rig.pools.names == []
    assert any(isinstance(entry, Bye) for entry in await rig.entries())


async def test_built_in_and_foreign_pools_are_refused():
    rig = Rig(("go-*",))
    for pool in ("webhooks", "notices", "python"):
        with pytest.raises(InvalidInput):
            await rig.take(pool)
    await rig.take("go-1")
    assert not rig.pools.has_failed
    await rig.pools.close(0)
    assert await rig.take("go-1") == []  # it drains
