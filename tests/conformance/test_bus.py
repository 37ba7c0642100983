import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from noonday.model.execution import Outcome
from noonday.model.ids import InstanceId, WorkerId
from noonday.model.message import Beat, Bye, LogEntry, Tick
from noonday.ports.bus import Bus
from tests.support.clock import ManualClock
from tests.support.drivers import Capability
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS, POOL, WORKER, dispatch, failure, hello, report

T = TypeVar("T")
OTHER = WorkerId("w-2")


async def joined(bus: Bus, worker: WorkerId = WORKER, concurrency: int = 10) -> int:
    return await bus.join(worker, {POOL: concurrency})


# Dispatches


async def test_what_is_published_is_taken_in_order(bus: Bus) -> None:
    await joined(bus)
    sent = [dispatch() for _ in range(5)]
    await bus.publish(sent[:3])
    await bus.publish(sent[3:])
    assert await bus.take(WORKER, {POOL: 10}, 0) == sent


async def test_a_dispatch_arrives_as_it_was_sent(bus: Bus) -> None:
    await joined(bus)
    sent = dispatch(payload=bytes(range(256)), progress=b"", name="näme", timeout_sec=1.5, trace="00-1-2-01")
    await bus.publish([sent])
    assert await bus.take(WORKER, {POOL: 1}, 0) == [sent]


async def test_no_more_is_taken_than_there_is_room(bus: Bus) -> None:
    await joined(bus)
    sent = [dispatch() for _ in range(5)]
    await bus.publish(sent)
    assert [await bus.take(WORKER, {POOL: 2}, 0) for _ in range(4)] == [sent[:2], sent[2:4], sent[4:], []]
    assert await bus.take(WORKER, {POOL: 0}, 0) == []


async def test_a_worker_gets_only_what_is_for_pools_it_has_room_in(bus: Bus) -> None:
    await bus.join(WORKER, {"a": 1, "b": 1})
    a, b, c = [dispatch(pool=pool) for pool in "abc"]
    await bus.publish([a, b, c])
    assert await bus.take(WORKER, {"b": 5}, 0) == [b]
    assert await bus.take(WORKER, {"a": 5, "b": 5}, 0) == [a]


async def test_no_two_workers_get_the_same_dispatch(bus: Bus) -> None:
    await joined(bus)
    await joined(bus, OTHER)
    sent = [dispatch() for _ in range(10)]
    await bus.publish(sent)
    taken = [*await bus.take(WORKER, {POOL: 5}, 0), *await bus.take(OTHER, {POOL: 5}, 0)]
    assert {d.execution_id for d in taken} == {d.execution_id for d in sent}


async def test_taking_waits_for_the_first(bus: Bus, clock: ManualClock) -> None:
    await joined(bus)
    taking = asyncio.create_task(bus.take(WORKER, {POOL: 5}, 60))
    await eventually(lambda: clock.sleepers)
    sent = dispatch()
    await bus.publish([sent])
    assert await taking == [sent]


async def test_taking_waits_no_longer_than_it_is_told(bus: Bus, clock: ManualClock) -> None:
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
    assert await bus.take(WORKER, {POOL: 5}, 0) == [sent]


async def test_what_is_done_with_is_not_delivered_again(bus: Bus) -> None:
    await joined(bus)
    await bus.publish([dispatch(), dispatch()])
    taken = await bus.take(WORKER, {POOL: 5}, 0)
    await bus.done_with(WORKER, taken)
    assert await bus.take(WORKER, {POOL: 5}, 0) == []


async def test_what_is_published_before_anybody_is_there_waits(bus: Bus) -> None:
    sent = dispatch()
    await bus.publish([sent])
    await joined(bus)
    assert await bus.take(WORKER, {POOL: 5}, 0) == [sent]


# Credit


async def test_only_pools_with_workers_have_credit(bus: Bus) -> None:
    assert await bus.credit() == {}
    await joined(bus)
    assert set(await bus.credit()) == {POOL}
    await bus.leave(WORKER)
    assert await bus.credit() == {}


async def test_credit_falls_with_what_is_published_and_rises_with_what_is_taken(bus: Bus) -> None:
    await joined(bus, concurrency=10)
    full = (await bus.credit())[POOL]
    assert full >= 10
    await bus.publish([dispatch() for _ in range(10)])
    assert (await bus.credit())[POOL] == full - 10
    await bus.take(WORKER, {POOL: 10}, 0)
    assert (await bus.credit())[POOL] >= full


async def test_credit_is_never_below_nothing(bus: Bus) -> None:
    await joined(bus, concurrency=1)
    await bus.publish([dispatch() for _ in range(1000)])
    assert (await bus.credit())[POOL] == 0


async def test_workers_add_to_the_credit_of_their_pools(bus: Bus) -> None:
    await joined(bus, WORKER, 10)
    alone = (await bus.credit())[POOL]
    await joined(bus, OTHER, 10)
    assert (await bus.credit())[POOL] > alone
    await bus.leave(OTHER)
    assert (await bus.credit())[POOL] == alone


async def test_a_pool_that_is_quick_has_credit_for_about_a_second(bus: Bus, clock: ManualClock) -> None:
    await joined(bus, concurrency=1)
    for _ in range(20):
        await bus.publish([dispatch() for _ in range(50)])
        await bus.take(WORKER, {POOL: 50}, 0)
        clock.advance(0.05)
    assert 500 <= (await bus.credit())[POOL] <= 1500
    clock.advance(60)
    assert (await bus.credit())[POOL] < 100


# The log


ENTRIES: list[LogEntry] = [
    hello(),
    report(dispatch(), Outcome.FAILED, failure=failure("é \x00"), progress=b"\x00\xff"),
    Beat(WORKER, NOW_MS, ((dispatch().execution_id, 1, b"half"),)),
    Tick(InstanceId("i-1"), 7, NOW_MS),
    Bye(WORKER, NOW_MS),
]


async def test_what_is_reported_is_read_in_order_and_as_it_was_said(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES[:2])
    await bus.report(partition, ENTRIES[2:])
    batch = await bus.read(partition, 0, 100, 0)
    assert batch.entries == tuple(ENTRIES)
    assert (batch.offset, batch.next_offset) == (0, len(ENTRIES))


async def test_the_log_is_read_in_pages_by_offset(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    offset = 0
    read: list[LogEntry] = []
    while (batch := await bus.read(partition, offset, 2, 0)).entries:
        assert batch.offset == offset
        assert batch.next_offset == offset + len(batch.entries)
        assert len(batch.entries) <= 2
        read += batch.entries
        offset = batch.next_offset
    assert read == ENTRIES
    assert (batch.offset, batch.next_offset) == (offset, offset)


async def test_a_page_that_was_not_applied_can_be_read_again(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    first = await bus.read(partition, 2, 2, 0)
    assert await bus.read(partition, 2, 2, 0) == first
    await bus.report(partition, ENTRIES)
    assert await bus.read(partition, 2, 2, 0) == first


@pytest.mark.needs(Capability.KEEPS_ITS_LOG)
async def test_what_was_applied_can_be_read_again(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    whole = await bus.read(partition, 0, 100, 0)
    await bus.read(partition, whole.next_offset, 100, 0)
    assert await bus.read(partition, 0, 100, 0) == whole


async def test_what_is_read_is_what_its_offsets_say(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES)
    for offset in (3, 0, 4, 1):
        batch = await bus.read(partition, offset, 100, 0)
        assert batch.entries == tuple(ENTRIES[batch.offset : batch.next_offset])


async def test_offsets_go_on_where_they_were(bus: Bus) -> None:
    partition = await joined(bus)
    await bus.report(partition, ENTRIES[:3])
    await bus.read(partition, 3, 100, 0)
    await bus.report(partition, ENTRIES[3:])
    batch = await bus.read(partition, 3, 100, 0)
    assert (batch.offset, batch.entries, batch.next_offset) == (3, tuple(ENTRIES[3:]), 5)


async def test_reading_waits_for_the_first(bus: Bus, clock: ManualClock) -> None:
    partition = await joined(bus)
    reading = asyncio.create_task(bus.read(partition, 0, 10, 60))
    await eventually(lambda: clock.sleepers)
    await bus.report(partition, ENTRIES[:1])
    assert (await reading).entries == tuple(ENTRIES[:1])


async def test_reading_waits_no_longer_than_it_is_told(bus: Bus, clock: ManualClock) -> None:
    partition = await joined(bus)
    reading = asyncio.create_task(bus.read(partition, 0, 10, 60))
    await eventually(lambda: clock.sleepers)
    clock.advance(60)
    batch = await reading
    assert (batch.entries, batch.next_offset) == ((), 0)


async def test_a_log_keeps_its_era_while_it_keeps_its_memory(bus: Bus) -> None:
    partition = await joined(bus)
    era = await bus.era(partition)
    assert era
    await bus.report(partition, ENTRIES)
    await bus.read(partition, 5, 10, 0)
    assert await bus.era(partition) == era


# From several threads


def in_another_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run on a loop of its own in a thread of its own."""
    return asyncio.to_thread(lambda: asyncio.run(work()))


async def test_a_worker_in_another_thread_is_woken(bus: Bus, clock: ManualClock) -> None:
    await joined(bus)
    taking = asyncio.ensure_future(in_another_thread(lambda: bus.take(WORKER, {POOL: 5}, 60)))
    await eventually(lambda: clock.sleepers)
    sent = dispatch()
    await bus.publish([sent])
    assert await taking == [sent]


async def test_two_loops_in_two_threads_lose_and_repeat_nothing(bus: Bus) -> None:
    partition = await joined(bus)
    sent = [dispatch() for _ in range(2_000)]
    stop = threading.Event()

    async def work() -> int:
        """Takes, and reports each dispatch it took."""
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


async def test_a_loop_that_ended_while_it_waited_harms_nobody(bus: Bus, clock: ManualClock) -> None:
    partition = await joined(bus)

    async def end_while_taking() -> None:
        asyncio.ensure_future(bus.take(WORKER, {POOL: 5}, 60))  # noqa: RUF006 - the loop ends before it does
        await eventually(lambda: clock.sleepers)

    await in_another_thread(end_while_taking)
    sent = dispatch()
    await bus.publish([sent])
    await bus.report(partition, [report(sent)])
    assert await bus.take(WORKER, {POOL: 5}, 0) == [sent]
