"""The recorder on a PostgreSQL that refuses for a while: a trigger raises the errors of a server that shuts down."""

from collections.abc import AsyncIterator

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.postgres.store import PostgresStore
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Outcome, State
from noonday.model.ids import InstanceId
from noonday.model.liveness import TICKS_TO_JUDGE
from noonday.recorder.recorder import Recorder
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import hello, job, report
from tests.support.postgres import postgres_store

REFUSE = """CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '{}'; END $$"""


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    async with postgres_store(lead_ms=0) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("state", ["57P01", "53300", "XX000", "42883"])
async def test_retried_batch_judges_no_worker_and_moves_nothing_to_the_dead_letters(
    store: PostgresStore, state: str
) -> None:
    crank, clock, metrics = Crank(store), ManualClock(), Metrics()
    bus = MemoryBus(clock)
    recorder = Recorder(
        instance=InstanceId("i-1"),
        partition=0,
        executions=store.executions,
        endpoints=store.endpoints,
        bus=bus,
        index=MemoryHotIndex(0),
        signals=MemorySignals(),
        clock=clock,
        metrics=metrics,
        tracing=Tracing(None),
        hint_ahead_ms=0,
    )
    await crank.own()
    await crank.add(job(), job())
    running, ended = (await crank.fire()).dispatches
    await recorder.open()
    await bus.report(0, [hello(), report(running, Outcome.STARTED), report(ended, Outcome.STARTED)])
    await recorder.drain()
    ticking = recorder.tick_forever()
    ticking.send(None)
    ticking.close()
    await bus.report(0, [report(ended)])
    await store.database.value(REFUSE.format(state))
    await store.database.value(
        "CREATE TRIGGER refuse BEFORE UPDATE ON checkpoints FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    try:
        for _ in range(TICKS_TO_JUDGE):
            with pytest.raises(StoreUnavailable):
                await recorder.drain()
    finally:
        await store.database.value("DROP TRIGGER refuse ON checkpoints")
    await recorder.drain()
    await recorder._judge()
    assert (await crank.look(running)).state is State.RUNNING
    assert (await crank.look(ended)).state is State.SUCCEEDED
    assert metrics.workers_lost._value.get() == 0
    assert len(bus.dead_letters) == 0
