import asyncio

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewPartitions

from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.reader import SCALE
from noonday.model.errors import BusUnavailable, StaleEpoch
from noonday.model.ids import WorkerId
from noonday.model.message import LogBatch, LogEntry
from tests.drivers.kafka.broker_side import admin, ask, messages
from tests.drivers.kafka.conftest import NewBus
from tests.support.eventually import eventually
from tests.support.factories import POOL, dispatch, report

ANN = WorkerId("w-ann")
WITHIN_SEC = 60.0


def entries(count: int) -> list[LogEntry]:
    return [report(dispatch()) for _ in range(count)]


async def read(bus: KafkaBus, offset: int, limit: int = 100, partition: int = 0) -> LogBatch:
    """Read the next batch."""
    async with asyncio.timeout(WITHIN_SEC):
        while not (batch := await bus.read(partition, offset, limit, 0.5)).entries:
            pass
    return batch


async def test_another_process_goes_on_in_the_middle_of_a_message(new_bus: NewBus) -> None:
    reported = entries(10)
    await new_bus().report(0, reported[:7])
    await new_bus().report(0, reported[7:])
    first = await read(new_bus(), 0, limit=4)
    assert (first.entries, first.next_offset) == (tuple(reported[:4]), 4)
    other = new_bus()
    second = await read(other, first.next_offset, limit=100)
    assert (second.offset, second.entries[:3]) == (4, tuple(reported[4:7]))
    assert (await read(other, SCALE)).entries == tuple(reported[7:])


async def test_a_report_that_is_too_large_for_one_message_goes_in_several(bus: KafkaBus, options: KafkaOptions) -> None:
    reported: list[LogEntry] = [report(dispatch(), result=bytes(range(256)) * 256) for _ in range(40)]
    await bus.report(0, reported)
    assert len(messages(options, Names(options.prefix).log)) > 2
    found: list[LogEntry] = []
    offset = 0
    while len(found) < len(reported):
        batch = await read(bus, offset)
        found += batch.entries
        offset = batch.next_offset
    assert found == reported


async def test_a_long_backlog_is_read_in_order_and_not_all_at_once(bus: KafkaBus) -> None:
    reported = entries(50_000)
    for at in range(0, len(reported), 5_000):
        await bus.report(0, reported[at : at + 5_000])
    await read(bus, 0, limit=1)
    await eventually(lambda: bus._log.readers[0]._read_ahead.count >= 20_000, WITHIN_SEC)
    found: list[LogEntry] = []
    offset = 0
    while len(found) < len(reported):
        assert bus._log.readers[0]._read_ahead.count < 35_000
        batch = await read(bus, offset, limit=3_000)
        found += batch.entries
        offset = batch.next_offset
    assert found == reported


async def test_deleted_entries_are_skipped(bus: KafkaBus, options: KafkaOptions) -> None:
    reported = entries(3)
    for each in reported:
        await bus.report(0, [each])
    ask(admin(options).delete_records([TopicPartition(Names(options.prefix).log, 0, 2)]))
    batch = await read(bus, 1)
    assert (batch.offset, batch.entries) == (2 * SCALE, tuple(reported[2:]))
    again = entries(1)
    await bus.report(0, again)
    assert (await read(bus, batch.next_offset)).entries == tuple(again)


async def test_an_offset_that_the_log_never_had_leads_to_its_beginning(bus: KafkaBus) -> None:
    reported = entries(3)
    await bus.report(0, reported)
    batch = await read(bus, 700 * SCALE + 5)
    assert (batch.offset, batch.entries) == (0, tuple(reported))
    assert (await bus.read(0, batch.next_offset, 10, 0)).entries == ()


async def test_recreated_log_has_another_generation(bus: KafkaBus, options: KafkaOptions) -> None:
    before = await bus.generation(0)
    await bus.report(0, entries(5))
    end = (await read(bus, 0)).next_offset
    ask(admin(options).delete_topics([Names(options.prefix).log]))

    async def another() -> bool:
        bus._topics.forget([Names(options.prefix).log])
        try:
            return await bus.generation(1) != before
        except BusUnavailable:
            return False  # the topic is being deleted or created

    await eventually(another, WITHIN_SEC)
    # A reader of the former generation must not read on as if nothing had happened.
    with pytest.raises(StaleEpoch, match="was recreated"):
        await read(bus, end)
    assert await bus.generation(0) != before
    reported = entries(2)
    async with asyncio.timeout(WITHIN_SEC):
        while True:
            try:
                await bus.report(0, reported)
                break
            except BusUnavailable:
                continue
    assert (await read(bus, 0)).entries[:2] == tuple(reported)


async def test_the_log_may_get_more_partitions(bus: KafkaBus, options: KafkaOptions) -> None:
    generation = await bus.generation(0)
    assert await bus.partitions() == 2
    ask(admin(options).create_partitions([NewPartitions(Names(options.prefix).log, 3)]))

    async def three() -> bool:
        return await bus.partitions() == 3

    await eventually(three, WITHIN_SEC)
    assert await bus.generation(2) == generation
    reported = entries(1)

    async def is_reported() -> bool:
        try:
            await bus.report(2, reported)
        except BusUnavailable:
            return False
        return True

    await eventually(is_reported, WITHIN_SEC)
    assert (await read(bus, 0, partition=2)).entries == tuple(reported)


async def test_workers_report_where_least_is_going_on(bus: KafkaBus) -> None:
    await bus.report(1, entries(1))
    assert {await bus.join(WorkerId(f"w-{number}"), {POOL: 1}) for number in range(3)} == {0}


async def test_dead_letter_entry_can_be_read(bus: KafkaBus, options: KafkaOptions) -> None:
    await bus.keep_dead_letter(report(dispatch()), "no such column")
    (message,) = messages(options, Names(options.prefix).dead_letters)
    assert b'"why":"no such column"' in (message.value() or b"")
