import asyncio
import signal
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

import msgspec
import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.errors import BusUnavailable
from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch
from servers import Kafka, free_port
from tests.drivers.kafka.conftest import NewBus
from tests.support.eventually import eventually
from tests.support.factories import POOL, dispatch, report

ANN = WorkerId("w-ann")
WITHIN_SEC = 20.0
KEY = bytes(range(32))


def some(count: int) -> list[Dispatch]:
    return [dispatch() for _ in range(count)]


def ids(dispatches: Sequence[Dispatch]) -> set[str]:
    return {each.execution_id for each in dispatches}


async def publish_until_it_works(bus: KafkaBus, dispatches: Sequence[Dispatch]) -> None:
    async with asyncio.timeout(WITHIN_SEC):
        while True:
            try:
                return await bus.publish(dispatches)
            except BusUnavailable:
                continue


async def take_all(bus: KafkaBus, wanted: Sequence[Dispatch]) -> list[Dispatch]:
    taken: list[Dispatch] = []
    async with asyncio.timeout(WITHIN_SEC):
        while not ids(wanted) <= ids(taken):
            taken += await bus.take(ANN, {POOL: 1_000}, 0.2)
    return taken


@asynccontextmanager
async def at_work(new_bus: NewBus, options: KafkaOptions) -> AsyncIterator[tuple[KafkaBus, int]]:
    """A bus on which every operation has been done once, and the partition of the log."""
    bus = new_bus(options)
    await bus.start()
    partition = await bus.join(ANN, {POOL: 10})
    first = some(4)
    await bus.publish(first)
    await bus.mark_processed(ANN, await take_all(bus, first))
    await bus.report(partition, [report(each) for each in first])
    assert await has_credit(bus)
    await read_all(bus, partition, 4)
    yield bus, partition


async def has_credit(bus: KafkaBus) -> bool:
    async def known() -> bool:
        return POOL in await bus.credit()

    return await eventually(known, WITHIN_SEC)


async def read_all(bus: KafkaBus, partition: int, count: int) -> None:
    async def are_there() -> bool:
        return len((await bus.read(partition, 0, 100, 0.1)).entries) >= count

    assert await eventually(are_there, WITHIN_SEC)


async def test_a_frozen_broker_is_noticed_by_all_and_found_again_by_all(
    broker: Kafka, new_bus: NewBus, hasty_options: KafkaOptions
) -> None:
    async with at_work(new_bus, hasty_options) as (bus, partition):
        broker.pause()
        try:
            async with asyncio.timeout(WITHIN_SEC):
                failures = await asyncio.gather(
                    bus.publish(some(4)),
                    bus.publish([dispatch(pool="new")]),
                    bus.report(partition, [report(dispatch())]),
                    bus.partitions(),
                    bus.generation(partition),
                    bus.join(WorkerId("w-new"), {"new": 1}),
                    return_exceptions=True,
                )
            assert [type(each) for each in failures] == [BusUnavailable] * 6
            assert await bus.take(ANN, {POOL: 5}, 0.1) == []
            assert (await bus.read(partition, 4, 100, 0.1)).entries == ()

            async def knows_nothing() -> bool:
                return await bus.credit() == {}

            await eventually(knows_nothing, WITHIN_SEC)
        finally:
            broker.resume()
        later = some(4)
        await publish_until_it_works(bus, later)
        await take_all(bus, later)
        await bus.report(partition, [report(each) for each in later])
        await read_all(bus, partition, 8)
        assert await has_credit(bus)


async def test_acknowledged_messages_survive_the_death_of_the_broker(
    broker: Kafka, new_bus: NewBus, hasty_options: KafkaOptions
) -> None:
    async with at_work(new_bus, hasty_options) as (bus, partition):
        generation = await bus.generation(partition)
        before = some(50)
        await bus.publish(before)
        broker.kill()
        with pytest.raises(BusUnavailable):
            await bus.publish(some(1))
        await asyncio.to_thread(broker.start)
        after = some(50)
        await publish_until_it_works(bus, after)
        await take_all(bus, [*before, *after])
        await bus.report(partition, [report(dispatch())])
        await read_all(bus, partition, 5)
        assert await bus.generation(partition) == generation


async def test_a_bus_whose_broker_is_frozen_can_be_closed(
    broker: Kafka, new_bus: NewBus, hasty_options: KafkaOptions
) -> None:
    """A client with a commit in flight stays behind until the broker wakes; no caller waits for it."""
    before = set(threading.enumerate())
    async with at_work(new_bus, hasty_options) as (bus, _):
        broker.pause()
        try:
            async with asyncio.timeout(WITHIN_SEC):
                await bus.close()
            left = set(threading.enumerate()) - before
            assert {thread.name for thread in left} <= {f"noonday-kafka-pool-{POOL}"}
            assert all(thread.daemon for thread in left)
        finally:
            broker.resume()
        await eventually(lambda: set(threading.enumerate()) <= before, WITHIN_SEC)


async def test_every_call_without_a_broker_raises_in_time(keyring: Keyring, new_bus: NewBus) -> None:
    nowhere = KafkaOptions(f"127.0.0.1:{free_port()}", answer_within_sec=0.5, send_within_sec=1.0)
    bus = new_bus(nowhere)
    async with asyncio.timeout(WITHIN_SEC):
        for call in (
            bus.join(ANN, {POOL: 1}),
            bus.publish(some(1)),
            bus.report(0, [report(dispatch())]),
            bus.generation(0),
        ):
            with pytest.raises(BusUnavailable):
                await call
        assert await bus.credit() == {}
        assert await bus.take(ANN, {POOL: 1}, 0) == []


# Workers that die


@asynccontextmanager
async def victim(options: KafkaOptions) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = msgspec.json.encode({"options": asdict(options), "keys": f"k1:{b64encode(KEY).decode()}"}).decode()
    words = ["-m", "tests.drivers.kafka.victim", arguments]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(WITHIN_SEC):
            assert await line(process) == "here"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def works(process: asyncio.subprocess.Process, bus: KafkaBus) -> None:
    """Check that a worker gets its share of the published dispatches."""
    hearing = asyncio.create_task(line(process))
    async with asyncio.timeout(WITHIN_SEC):
        while not hearing.done():
            await bus.publish(some(4))
            await bus.mark_processed(ANN, await bus.take(ANN, {POOL: 100}, 0.05))


async def test_the_work_of_a_killed_worker_goes_to_others(new_bus: NewBus, hasty_options: KafkaOptions) -> None:
    bus = new_bus(hasty_options, Keyring("k1", {"k1": KEY}))
    await bus.join(ANN, {POOL: 10})
    async with victim(hasty_options) as process:
        await works(process, bus)
        process.kill()
        await process.wait()
        sent = some(20)
        await bus.publish(sent)
        await take_all(bus, sent)


async def test_a_frozen_worker_loses_its_partitions_and_comes_back_when_it_wakes(
    new_bus: NewBus, hasty_options: KafkaOptions
) -> None:
    bus = new_bus(hasty_options, Keyring("k1", {"k1": KEY}))
    await bus.join(ANN, {POOL: 10})
    async with victim(hasty_options) as process:
        await works(process, bus)
        process.send_signal(signal.SIGSTOP)
        sent = some(20)
        await bus.publish(sent)
        await bus.mark_processed(ANN, await take_all(bus, sent))
        process.send_signal(signal.SIGCONT)
        await works(process, bus)
