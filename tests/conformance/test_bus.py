import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from noonday.model.execution import Outcome
from noonday.model.ids import ExecutionId, InstanceId, WorkerId
from noonday.model.message import Beat, Bye, Dispatch, LogEntry, RunProgress, Tick
from noonday.ports.bus import Bus
from tests.support.clock import ManualClock
from tests.support.drivers import Capability
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS, POOL, WORKER, dispatch, failure, hello, report

T = TypeVar("T")
OTHER = WorkerId("w-2")
PATIENCE_SEC = 60.0
"""A real broker may need some seconds to give the partitions of a pool to its workers."""


async def joined(bus: Bus, worker: WorkerId = WORKER, concurrency: int = 10) -> int:
    return await bus.join(worker, {POOL: concurrency})


async def take(bus: Bus, count: int, worker: WorkerId = WORKER, room: int = 100) -> list[Dispatch]:
    """Take until there are `count` dispatches."""
    taken: list[Dispatch] = []
    async with asyncio.timeout(PATIENCE_SEC):
        while len(taken) < count:
            taken += await bus.take(worker, {POOL: min(room, count - len(taken))}, 3600)
    return taken


async def both_at_work(bus: Bus) -> None:
    """Let two workers join, and wait until each gets its share. No dispatch of this check is left on the bus."""
    await joined(bus)
    await joined(bus, OTHER)
    left: set[ExecutionId] = set()

    async def take_some(worker: WorkerId, room: int) -> bool:
        taken = await bus.take(worker, {POOL: room}, 0)
        await bus.mark_processed(worker, taken)
        left.difference_update(each.execution_id for each in taken)
        return bool(taken)

    async def try_both() -> bool:
        sent = [dispatch() for _ in range(8)]
        left.update(each.execution_id for each in sent)
        await bus.publish(sent)
        return all([await take_some(WORKER, 4), await take_some(OTHER, 4)])

    async def drain() -> bool:
        await take_some(WORKER, 100)
        await take_some(OTHER, 100)
        return not left

    await eventually(try_both, PATIENCE_SEC)
    await eventually(drain, PATIENCE_SEC)


async def credit_of(bus: Bus) -> int:
    """The credit of the pool, as soon as it is known."""
    return (await eventually(lambda: known(bus), PATIENCE_SEC))[0]


async def known(bus: Bus) -> tuple[int, ...]:
    credit = await bus.credit()
    return (credit[POOL],) if POOL in credit else ()


async def read(bus: Bus, partition: int, offset: int, count: int) -> list[LogEntry]:
    """Read from an offset until there are `count` entries."""
    entries: list[LogEntry] = []
    async with asyncio.timeout(PATIENCE_SEC):
        while len(entries) < count:
            batch = await bus.read(partition, offset, count - len(entries), 3600)
            entries += batch.entries
            offset = batch.next_offset
    return entries


# Dispatches


async def test_published_dispatches_are_taken(bus: Bus) -> None:
    await joined(bus)
    sent = [dispatch() for _ in range(5)]
    await bus.publish(sent[:3])
    await bus.publish(sent[3:])
    assert sorted(await take(bus, 5), key=sent.index) == sent


@pytest.mark.needs(Capability.IN_ORDER)
async def test_published_dispatches_are_taken_in_order(bus: Bus) -> None:
    await joined(bus)
    sent = [dispatch() for _ in range(5)]
    await bus.publish(sent[:3])
    await bus.publish(sent[3:])
    assert await take(bus, 5) == sent


async def test_a_thousand_at_once_are_taken(bus: Bus) -> None:
    await joined(bus)
    sent = [dispatch(lane=number % 3) for number in range(1_000)]
    await bus.publish(sent)
    taken = await take(bus, 1_000)
    assert {d.execution_id for d in taken} == {d.execution_id for d in sent}


async def test_publishing_nothing_is_nothing(bus: Bus) -> None:
    await joined(bus)
    await bus.publish([])
    assert await bus.take(WORKER, {POOL: 5}, 0) == []


async def test_a_dispatch_arrives_as_it_was_sent(bus: Bus) -> None:
    await joined(bus)
    sent = dispatch(payload=bytes(range(256)), progress=b"", name="näme", timeout_sec=1.5, trace="00-1-2-01", lane=2)
    await bus.publish([sent])
    assert await take(bus, 1) == [sent]


async def test_take_returns_no_more_than_the_room(bus: Bus) -> None:
    await joined(bus)
    sent = [dispatch() for _ in range(5)]
    await bus.publish(sent)
    taken = await take(bus, 3, room=2)
    assert len(taken) == 3
    assert await bus.take(WORKER, {POOL: 0}, 0) == []
    taken += await take(bus, 2, room=2)
    assert sorted(taken, key=sent.index) == sent
    assert await bus.take(WORKER, {POOL: 2}, 0) == []


async def test_worker_gets_only_dispatches_of_pools_it_has_room_in(bus: Bus) -> None:
    await bus.join(WORKER, {"a": 1, "b": 1})
    a, b, c = [dispatch(pool=pool) for pool in "abc"]
    await bus.publish([a, b, c])
    async with asyncio.timeout(PATIENCE_SEC):
        assert await bus.take(WORKER, {"b": 5}, 3600) == [b]
        assert await bus.take(WORKER, {"a": 5, "b": 5}, 3600) == [a]


async def test_no_two_workers_get_the_same_dispatch(bus: Bus) -> None:
    await both_at_work(bus)
    sent = [dispatch() for _ in range(10)]
    await bus.publish(sent)
    taken: list[Dispatch] = []

    async def all_taken() -> bool:
        taken.extend([*await bus.take(WORKER, {POOL: 1}, 0), *await bus.take(OTHER, {POOL: 1}, 0)])
        return len(taken) >= len(sent)

    await eventually(all_taken, PATIENCE_SEC)
    assert sorted(taken, key=sent.index) == sent


async def test_taking_waits_for_the_first(bus: Bus, clock: ManualClock) -> None:
    await joined(bus)
    taking = asyncio.create_task(bus.take(WORKER, {POOL: 5}, 60))
    await eventually(lambda: clock.sleepers)
    sent = dispatch()
    await bus.publish([sent])
    assert await asyncio.wait_for(taking, PATIENCE_SEC) == [sent]


async def test_take_waits_no_longer_than_its_argument(bus: Bus, clock: ManualClock) -> None:
    await joined(bus)
    taking = asyncio.create_task(bus.take(WORKER, {POOL: 5}, 60))
    await eventually(lambda: clock.sleepers)
    clock.advance(59)
    await asyncio.sleep(0)
    assert not taking.done()
    clock.advance(1)
    assert await taking == []


async def test_a_taker_that_gave_up_takes_nothing_with_it(bus: Bus, clock: ManualClock) -> None:
    await joined(bus)
    taking = asyncio.create_task(bus.take(WORKER, {POOL: 5}, 60))
    await eventually(lambda: clock.sleepers)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    sent = dispatch()
    await bus.publish([sent])
    assert await take(bus, 1) == [sent]


async def test_processed_dispatch_is_not_delivered_again(bus: Bus) -> None:
    await joined(bus)
    await bus.publish([dispatch(), dispatch()])
    await bus.mark_processed(WORKER, await take(bus, 2))
    assert await bus.take(WORKER, {POOL: 5}, 0) == []
    await bus.leave(WORKER)
    await joined(bus, OTHER)
    sent = dispatch()
    await bus.publish([sent])
    assert await take(bus, 1, OTHER) == [sent]
    assert await bus.take(OTHER, {POOL: 5}, 0) == []


async def test_marking_a_dispatch_processed_twice_is_marking_it_once(bus: Bus) -> None:
    await joined(bus)
    sent = dispatch()
    await bus.publish([sent])
    await take(bus, 1)
    await bus.mark_processed(WORKER, [sent, sent])
    await bus.mark_processed(WORKER, [sent, dispatch()])
    await bus.mark_processed(OTHER, [sent])
    await bus.publish([sent])
    assert await take(bus, 1) == [sent]


async def test_dispatch_published_before_any_worker_joined_waits(bus: Bus) -> None:
    sent = dispatch()
    await bus.publish([sent])
    await joined(bus)
    assert await take(bus, 1) == [sent]


async def test_a_worker_that_is_not_here_gets_nothing(bus: Bus) -> None:
    await joined(bus)
    await bus.leave(WORKER)
    await bus.leave(WORKER)
    await bus.publish([dispatch(pool="another")])
    assert await bus.take(WORKER, {POOL: 5}, 0) == []
    await bus.mark_processed(WORKER, [dispatch()])


# Credit


async def test_only_pools_with_workers_have_credit(bus: Bus) -> None:
    assert await bus.credit() == {}
    await joined(bus)
    await credit_of(bus)
    await bus.leave(WORKER)

    async def nobody_is_there() -> bool:
        return await bus.credit() == {}

    await eventually(nobody_is_there, PATIENCE_SEC)


async def test_credit_falls_with_published_and_rises_with_taken_dispatches(bus: Bus) -> None:
    await joined(bus, concurrency=10)
    full = await credit_of(bus)
    assert full >= 10
    await bus.publish([dispatch() for _ in range(10)])
    assert await credit_of(bus) <= full - 10
    await eventually(lambda: is_credit(bus, full - 10, full - 10), PATIENCE_SEC)
    await take(bus, 10)
    await eventually(lambda: is_credit(bus, full), PATIENCE_SEC)


async def is_credit(bus: Bus, least: int, most: int = 1_000_000) -> bool:
    return least <= await credit_of(bus) <= most


async def test_credit_is_never_below_nothing(bus: Bus) -> None:
    await joined(bus, concurrency=1)
    await credit_of(bus)
    await bus.publish([dispatch() for _ in range(1000)])
    assert await credit_of(bus) == 0


async def test_workers_add_to_the_credit_of_their_pools(bus: Bus) -> None:
    await joined(bus, WORKER, 10)
    alone = await credit_of(bus)
    await joined(bus, OTHER, 10)
    await eventually(lambda: is_credit(bus, alone + 1), PATIENCE_SEC)
    await bus.leave(OTHER)
    await eventually(lambda: is_credit(bus, alone, alone), PATIENCE_SEC)


async def test_a_pool_that_is_quick_has_credit_for_about_a_second(bus: Bus, clock: ManualClock) -> None:
    await joined(bus, concurrency=1)
    await credit_of(bus)
    for _ in range(20):
        await bus.publish([dispatch() for _ in range(50)])
        await bus.mark_processed(WORKER, await take(bus, 50))
        clock.advance(0.05)
    await eventually(lambda: is_credit(bus, 500, 1500), PATIENCE_SEC)
    clock.advance(60)
    await eventually(lambda: is_credit(bus, 0, 99), PATIENCE_SEC)


# The log


ENTRIES: list[LogEntry] = [
    hello(),
    report(dispatch(), Outcome.FAILED, failure=failure("é \x00"), progress=b"\x00\xff"),
    Beat(WORKER, NOW_MS, (RunProgress(dispatch().execution_id, 1, b"half"),)),
    Tick(InstanceId("i-1"), 7, NOW_MS),
    Bye(WORKER, NOW_MS),
]


async def test_reports_are_read_unchanged_and_in_order(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES[:2])
    await bus.report(partition, ENTRIES[2:])
    assert await read(bus, partition, 0, 5) == ENTRIES


async def test_a_durable_report_returns_when_the_entries_outlive_the_process(bus: Bus) -> None:
    """A server keeps the entries at once; other drivers return when a recorder has applied them and reads on."""
    partition = await joined(bus)
    reporting = asyncio.create_task(bus.report_durably(partition, ENTRIES))
    offset = 0

    async def returned() -> bool:
        nonlocal offset
        offset = (await bus.read(partition, offset, 10, wait_sec=0)).next_offset
        await asyncio.sleep(0)
        return reporting.done()

    await eventually(returned, PATIENCE_SEC)
    assert list(await reporting) == []


async def test_reports_since_an_instant_can_be_read_again_if_the_bus_keeps_them(bus: Bus) -> None:
    """A bus that does not keep them finds nothing. A broker uses the real clock."""
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    assert await read(bus, partition, 0, 5) == ENTRIES
    real_ms = round(time.time() * 1000)
    offset = await bus.offset_since(partition, real_ms - 3_600_000)
    assert offset is None or await read(bus, partition, offset, 5) == ENTRIES
    assert await bus.offset_since(partition, real_ms + 3_600_000) is None


async def test_a_worker_reports_to_a_partition_that_there_is(bus: Bus) -> None:
    assert 0 <= await joined(bus) < await bus.partitions()


async def test_the_log_is_read_in_pages_by_offset(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    await bus.report(partition, ENTRIES[:2])
    offset = 0
    found: list[LogEntry] = []
    while len(found) < 7:
        async with asyncio.timeout(PATIENCE_SEC):
            batch = await bus.read(partition, offset, 2, 3600)
        assert batch.offset >= offset
        assert batch.next_offset >= batch.offset + len(batch.entries)
        assert 0 < len(batch.entries) <= 2
        found += batch.entries
        offset = batch.next_offset
    assert found == [*ENTRIES, *ENTRIES[:2]]
    batch = await bus.read(partition, offset, 2, 0)
    assert (batch.offset, batch.next_offset, batch.entries) == (offset, offset, ())


async def test_a_page_that_was_not_applied_can_be_read_again(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    async with asyncio.timeout(PATIENCE_SEC):
        first = await bus.read(partition, 2, 2, 3600)
    assert first.entries == tuple(ENTRIES[2:4])
    assert await bus.read(partition, 2, 2, 0) == first
    await bus.report(partition, ENTRIES)
    assert await bus.read(partition, 2, 2, 0) == first


async def test_later_entries_are_read_with_the_unapplied_ones(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES[:2])
    async with asyncio.timeout(PATIENCE_SEC):
        assert (await bus.read(partition, 0, 10, 3600)).entries == tuple(ENTRIES[:2])
    await bus.report(partition, ENTRIES[2:])

    async def all_are_there() -> bool:
        return (await bus.read(partition, 0, 10, 0)).entries == tuple(ENTRIES)

    await eventually(all_are_there)


@pytest.mark.needs(Capability.KEEPS_ITS_LOG)
async def test_applied_entries_can_be_read_again(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    async with asyncio.timeout(PATIENCE_SEC):
        whole = await bus.read(partition, 0, 100, 3600)
    await bus.read(partition, whole.next_offset, 100, 0)
    assert await read(bus, partition, 0, 5) == ENTRIES


async def test_entries_of_a_batch_are_those_of_its_offsets(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    for offset in (3, 0, 4, 1):
        async with asyncio.timeout(PATIENCE_SEC):
            batch = await bus.read(partition, offset, 100, 3600)
        assert batch.entries == tuple(ENTRIES[batch.offset : batch.next_offset])


async def test_offset_plus_a_count_of_entries_skips_no_entry(bus: Bus) -> None:
    """A recorder that halves a batch computes the offset of the second half from the offset and the length of the first."""
    partition = await joined(bus)
    for begin, end in ((0, 2), (2, 3), (3, 5)):
        await bus.report(partition, ENTRIES[begin:end])
    await read(bus, partition, 0, 5)
    for count in range(5):
        left = await read(bus, partition, count, 5 - count)
        while left[-1] != ENTRIES[-1]:
            left = await read(bus, partition, count, len(left) + 1)
        assert left[count - 5 :] == ENTRIES[count:]


async def test_offsets_go_on_where_they_were(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES[:3])
    async with asyncio.timeout(PATIENCE_SEC):
        first = await bus.read(partition, 0, 100, 3600)
        await bus.report(partition, ENTRIES[3:])
        batch = await bus.read(partition, first.next_offset, 100, 3600)
    assert (batch.offset, batch.entries) == (first.next_offset, tuple(ENTRIES[3:]))
    assert batch.next_offset >= first.next_offset + 2


async def test_reading_waits_for_the_first(bus: Bus, clock: ManualClock) -> None:
    partition = await joined(bus)
    reading = asyncio.create_task(bus.read(partition, 0, 10, 60))
    await eventually(lambda: clock.sleepers)
    await bus.report(partition, ENTRIES[:1])
    assert (await asyncio.wait_for(reading, PATIENCE_SEC)).entries == tuple(ENTRIES[:1])


async def test_read_waits_no_longer_than_its_argument(bus: Bus, clock: ManualClock) -> None:
    partition = await joined(bus)
    reading = asyncio.create_task(bus.read(partition, 0, 10, 60))
    await eventually(lambda: clock.sleepers)
    clock.advance(60)
    batch = await reading
    assert (batch.entries, batch.next_offset) == ((), 0)


async def test_log_keeps_its_generation_while_it_keeps_its_entries(bus: Bus) -> None:
    partition = await joined(bus)
    generation = await bus.generation(partition)
    assert generation
    await bus.report(partition, ENTRIES)
    await read(bus, partition, 0, 5)
    assert await bus.generation(partition) == generation


async def test_dead_letter_entries_do_not_stop_the_log(bus: Bus) -> None:
    partition = await joined(bus)
    for entry in ENTRIES:
        await bus.keep_dead_letter(entry, "no such column \x00")
    await bus.report(partition, ENTRIES)
    assert await read(bus, partition, 0, 5) == ENTRIES


# From several threads


def in_another_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run on a separate loop in a separate thread."""
    return asyncio.to_thread(lambda: asyncio.run(work()))


@pytest.mark.needs(Capability.SEVERAL_LOOPS)
async def test_a_worker_in_another_thread_is_woken(bus: Bus, clock: ManualClock) -> None:
    await joined(bus)
    taking = asyncio.ensure_future(in_another_thread(lambda: bus.take(WORKER, {POOL: 5}, 60)))
    await eventually(lambda: clock.sleepers)
    sent = dispatch()
    await bus.publish([sent])
    assert await taking == [sent]


@pytest.mark.needs(Capability.SEVERAL_LOOPS)
async def test_two_loops_in_two_threads_lose_and_repeat_nothing(bus: Bus) -> None:
    partition = await joined(bus)
    sent = [dispatch() for _ in range(2_000)]
    stop = threading.Event()

    async def work() -> int:
        """Take dispatches, and report each."""
        count = 0
        while not (stop.is_set() and count == len(sent)):
            taken = await bus.take(WORKER, {POOL: 64}, 0)
            await bus.report(partition, [report(d) for d in taken])
            count += len(taken)
            await asyncio.sleep(0)
        return count

    working = asyncio.ensure_future(in_another_thread(work))
    heard: list[LogEntry] = []
    for at in range(0, len(sent), 50):
        await bus.publish(sent[at : at + 50])
        heard += (await bus.read(partition, len(heard), 100, 0)).entries
        await asyncio.sleep(0)
    stop.set()
    assert await working == len(sent)
    heard += (await bus.read(partition, len(heard), 10_000, 0)).entries
    assert heard == [report(d) for d in sent]


@pytest.mark.needs(Capability.SEVERAL_LOOPS)
async def test_loop_that_ended_while_it_waited_does_not_harm_the_bus(bus: Bus, clock: ManualClock) -> None:
    partition = await joined(bus)

    async def end_while_taking() -> None:
        asyncio.ensure_future(bus.take(WORKER, {POOL: 5}, 60))  # noqa: RUF006 - the loop ends before it does
        await eventually(lambda: clock.sleepers)

    await in_another_thread(end_while_taking)
    sent = dispatch()
    await bus.publish([sent])
    await bus.report(partition, [report(sent)])
    assert await bus.take(WORKER, {POOL: 5}, 0) == [sent]
