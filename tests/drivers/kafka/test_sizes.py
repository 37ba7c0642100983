"""Entries that are larger than a message fail alone."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.errors import BadSettings
from noonday.model.ids import WorkerId
from noonday.model.limits import FRAMING_BYTES, MESSAGE_BYTES
from noonday.model.message import Beat, Dispatch, LogEntry
from tests.drivers.kafka.conftest import NewBus
from tests.support.factories import NOW_MS, POOL, dispatch, report
from tests.support.kafka import options_for_a_test

ANN = WorkerId("w-ann")
WITHIN_SEC = 60.0
SMALL = 65_536


async def joined(bus: KafkaBus) -> int:
    return await bus.join(ANN, {POOL: 200})


async def taken(bus: KafkaBus, count: int) -> list[Dispatch]:
    """Distinct dispatches: those that are sent again entry by entry may be delivered twice."""
    found: dict[str, Dispatch] = {}
    async with asyncio.timeout(WITHIN_SEC):
        while len(found) < count:
            found |= {each.execution_id: each for each in await bus.take(ANN, {POOL: 200}, 0.5)}
    return list(found.values())


async def read(bus: KafkaBus, partition: int, count: int) -> list[LogEntry]:
    entries: list[LogEntry] = []
    offset = 0
    async with asyncio.timeout(WITHIN_SEC):
        while len(entries) < count:
            batch = await bus.read(partition, offset, 1_000, 0.5)
            entries += batch.entries
            offset = batch.next_offset
    return entries


def ids(dispatches: Sequence[Dispatch]) -> set[str]:
    return {each.execution_id for each in dispatches}


def noise(size: int) -> bytes:
    """Bytes that no compression reduces."""
    return os.urandom(size)


async def test_a_dispatch_larger_than_a_message_stays_behind_alone(bus: KafkaBus) -> None:
    await joined(bus)
    small = [dispatch() for _ in range(100)]
    large = dispatch(payload=noise(MESSAGE_BYTES))
    (oversized,) = await bus.publish([*small[:50], large, *small[50:]])
    assert oversized.entry == large
    assert oversized.size_bytes > oversized.limit_bytes == MESSAGE_BYTES - FRAMING_BYTES
    assert ids(await taken(bus, 100)) == ids(small)


async def test_the_largest_dispatch_that_fits_is_published(bus: KafkaBus, options: KafkaOptions) -> None:
    await joined(bus)
    largest = dispatch(payload=noise(options.pack_bytes - 1_000))
    assert not await bus.publish([largest])
    assert await taken(bus, 1) == [largest]


async def test_a_report_larger_than_a_message_stays_behind_alone(bus: KafkaBus) -> None:
    partition = await joined(bus)
    first, last = report(dispatch()), Beat(ANN, NOW_MS)
    large = report(dispatch(), result=noise(MESSAGE_BYTES))
    (oversized,) = await bus.report(partition, [first, large, last])
    assert oversized.entry == large
    assert await read(bus, partition, 2) == [first, last]


async def test_broker_with_a_smaller_limit_refuses_only_oversized_messages(new_bus: NewBus) -> None:
    async with options_for_a_test(message_bytes=SMALL) as strict:
        await joined(new_bus(strict))  # creates topics with a small message size
        bus = new_bus(replace(strict, message_bytes=MESSAGE_BYTES))
        partition = await joined(bus)
        large, small = dispatch(payload=noise(2 * SMALL)), [dispatch(payload=noise(2_000)) for _ in range(100)]
        assert [each.entry for each in await bus.publish([*small, large])] == [large]
        entries = [report(dispatch(), result=noise(size)) for size in (10, 2 * SMALL, 20)]
        assert [each.entry for each in await bus.report(partition, entries)] == [entries[1]]
        written = [entry for entry in await read(bus, partition, 2) if entry in entries]
        assert [entries.index(entry) for entry in written][-2:] == [0, 2]


async def test_a_topic_that_accepts_less_than_a_message_is_refused_at_start(new_bus: NewBus) -> None:
    async with options_for_a_test(message_bytes=SMALL) as strict:
        await new_bus(strict).partitions()
        with pytest.raises(BadSettings, match=r"accepts at most 65536 bytes a message: raise max\.message\.bytes"):
            await new_bus(replace(strict, message_bytes=MESSAGE_BYTES)).start()
