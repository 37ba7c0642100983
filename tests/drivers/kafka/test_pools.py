import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.codec import COUNT, LARGEST_PACK, SIGNATURE, TRACE
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch
from tests.drivers.kafka.broker_side import committed, ends, messages
from tests.drivers.kafka.conftest import NewBus
from tests.support.eventually import eventually
from tests.support.factories import POOL, dispatch

ANN, BOB = WorkerId("w-ann"), WorkerId("w-bob")
WITHIN_SEC = 60.0


def some(count: int, **fields: object) -> list[Dispatch]:
    return [dispatch(**fields) for _ in range(count)]


def ids(dispatches: Sequence[Dispatch]) -> set[str]:
    return {each.execution_id for each in dispatches}


async def take(bus: KafkaBus, worker: WorkerId, count: int, room: int = 1_000) -> list[Dispatch]:
    taken: list[Dispatch] = []
    async with asyncio.timeout(WITHIN_SEC):
        while len(taken) < count:
            taken += await bus.take(worker, {POOL: room}, 0.5)
    return taken


def normal(options: KafkaOptions) -> str:
    return Names(options.prefix).topics_of(POOL)[1]


# Messages


async def test_many_go_in_packs_and_few_are_spread_over_the_partitions(bus: KafkaBus, options: KafkaOptions) -> None:
    await bus.publish(some(1_000))
    sizes = [dict(each.headers() or [])[COUNT] for each in messages(options, normal(options))]
    assert sum(int(size) for size in sizes) == 1_000
    assert max(int(size) for size in sizes) == LARGEST_PACK
    await bus.publish(some(8, pool="few"))
    few = messages(options, Names(options.prefix).topics_of("few")[1])
    assert [each.partition() for each in few] == [0, 0, 1, 1]


async def test_message_with_one_dispatch_has_its_trace_header(bus: KafkaBus, options: KafkaOptions) -> None:
    alone = dispatch(trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await bus.publish([alone])
    (message,) = messages(options, normal(options))
    headers = dict(message.headers() or [])
    assert message.key() == alone.execution_id.encode()
    assert set(headers) == {COUNT, SIGNATURE, TRACE}
    assert (headers[COUNT], headers[TRACE]) == (b"1", str(alone.trace).encode())


async def test_payloads_that_are_too_large_for_one_message_go_in_several(bus: KafkaBus) -> None:
    await bus.join(ANN, {POOL: 10})
    sent = some(20, payload=bytes(range(256)) * 1_024)
    await bus.publish(sent)
    assert sorted(await take(bus, ANN, 20), key=sent.index) == sent


async def test_a_pool_may_have_any_name_that_a_pool_can_have(bus: KafkaBus) -> None:
    pools = ["a.b", "a_b", "a:b-c"]
    await bus.join(ANN, dict.fromkeys(pools, 1))
    for pool in pools:
        sent = dispatch(pool=pool)
        await bus.publish([sent])
        async with asyncio.timeout(WITHIN_SEC):
            assert await bus.take(ANN, {pool: 1}, WITHIN_SEC) == [sent]


# Offsets


async def test_no_offset_is_committed_past_an_unprocessed_message(bus: KafkaBus, options: KafkaOptions) -> None:
    await bus.join(ANN, {POOL: 10})
    await bus.publish(some(100))
    taken = await take(bus, ANN, 100)
    where = {
        d.execution_id: (each.partition(), each.offset())
        for each in messages(options, normal(options))
        for d in bus._codec.unpack_dispatches(each)
    }
    partition, offset = where[taken[40].execution_id]
    kept = taken[40]
    await bus.mark_processed(ANN, [each for each in taken if each is not kept])
    end = ends(options, normal(options))

    def others_are_committed() -> bool:
        now = committed(options, POOL)
        return now.get((normal(options), 1 - (partition or 0))) == end[normal(options), 1 - (partition or 0)]

    await eventually(others_are_committed, WITHIN_SEC)
    assert committed(options, POOL)[normal(options), partition] == offset
    await bus.leave(ANN)
    assert committed(options, POOL)[normal(options), partition] == offset
    await bus.join(BOB, {POOL: 10})
    again = await take(bus, BOB, 1)
    assert kept in again
    assert {where[each.execution_id] for each in again} == {
        place for place in where.values() if place[0] == partition and (place[1] or 0) >= (offset or 0)
    }


async def test_processed_messages_are_committed_when_a_worker_leaves(bus: KafkaBus, options: KafkaOptions) -> None:
    await bus.join(ANN, {POOL: 10})
    await bus.publish(some(50))
    await bus.mark_processed(ANN, await take(bus, ANN, 50))
    await bus.leave(ANN)
    now = committed(options, POOL)
    assert {place: now[place] for place in ends(options, normal(options))} == ends(options, normal(options))


async def test_nothing_is_lost_while_workers_come_and_go(new_bus: NewBus, options: KafkaOptions) -> None:
    scheduler, ann, bob = new_bus(), new_bus(), new_bus()
    await ann.join(ANN, {POOL: 10})
    sent: list[Dispatch] = []
    done: Counter[str] = Counter()
    got: dict[WorkerId, int] = {ANN: 0, BOB: 0}

    async def work(bus: KafkaBus, worker: WorkerId) -> None:
        while True:
            taken = await bus.take(worker, {POOL: 40}, 0.05)
            await asyncio.sleep(0.002)
            done.update(ids(taken))
            got[worker] += len(taken)
            await bus.mark_processed(worker, taken)

    async def publish_some(count: int) -> None:
        for _ in range(count):
            batch = some(50)
            await scheduler.publish(batch)
            sent.extend(batch)

    working = [asyncio.create_task(work(ann, ANN))]
    await publish_some(10)
    await bob.join(BOB, {POOL: 10})
    working.append(asyncio.create_task(work(bob, BOB)))
    async with asyncio.timeout(WITHIN_SEC):
        while not got[BOB]:
            await publish_some(1)
    await publish_some(10)
    working[0].cancel()
    await ann.leave(ANN)
    await publish_some(10)
    await eventually(lambda: set(done) == ids(sent), WITHIN_SEC)
    working[1].cancel()
    repeated = sum(count - 1 for count in done.values())
    assert repeated <= len(sent) / 4
    assert all(got.values())


async def test_worker_keeps_the_dispatches_of_the_partitions_it_keeps(new_bus: NewBus) -> None:
    ann, bob = new_bus(), new_bus()
    await ann.join(ANN, {POOL: 10})
    await ann.publish(some(40))
    held = await take(ann, ANN, 40)
    await bob.join(BOB, {POOL: 10})
    moved = await take(bob, BOB, 1)
    assert ids(moved) < ids(held)
    fresh = some(40)
    await ann.publish(fresh)
    mine, others = await take(ann, ANN, 1), await take(bob, BOB, 1)
    async with asyncio.timeout(WITHIN_SEC):
        while not ids(fresh) <= ids([*mine, *others]):
            mine += await ann.take(ANN, {POOL: 100}, 0.05)
            others += await bob.take(BOB, {POOL: 100}, 0.05)
    assert not ids(mine) & ids(held)
    # Moved dispatches belong to another worker: marking them as processed changes nothing there.
    await ann.mark_processed(ANN, held)
    assert ids(mine) <= ids(fresh)


async def test_workers_share_every_lane(new_bus: NewBus) -> None:
    ann, bob = new_bus(), new_bus()
    await ann.join(ANN, {POOL: 10})
    await bob.join(BOB, {POOL: 10})
    seen: set[tuple[WorkerId, int]] = set()

    async def each_has_had_each_lane() -> bool:
        await ann.publish([dispatch(lane=number % 3) for number in range(12)])
        for bus, worker in ((ann, ANN), (bob, BOB)):
            taken = await bus.take(worker, {POOL: 100}, 0.05)
            seen.update((worker, each.lane) for each in taken)
            await bus.mark_processed(worker, taken)
        return len(seen) == 6

    await eventually(each_has_had_each_lane, WITHIN_SEC)


# Workers without room


async def test_a_worker_that_stays_full_gives_its_partitions_to_others(new_bus: NewBus, options: KafkaOptions) -> None:
    hasty = replace(options, full_after_sec=0.5)
    ann, bob = new_bus(hasty), new_bus(hasty)
    await ann.join(ANN, {POOL: 1})
    await ann.publish(some(1))
    held = await take(ann, ANN, 1, room=1)
    await bob.join(BOB, {POOL: 10})
    sent = some(40)
    await bob.publish(sent)
    got = await take(bob, BOB, 1)
    async with asyncio.timeout(WITHIN_SEC):
        while not ids(sent) <= ids(got):
            got += await bob.take(BOB, {POOL: 100}, 0.05)
    # The worker may finish its dispatches; marking them as processed does no harm.
    await ann.mark_processed(ANN, held)


async def test_a_worker_that_has_room_again_gets_its_share_again(new_bus: NewBus, options: KafkaOptions) -> None:
    ann = new_bus(replace(options, full_after_sec=1.5))
    await ann.join(ANN, {POOL: 1})
    await ann.start()

    async def is_known() -> bool:
        return POOL in await ann.credit()

    async def is_gone() -> bool:
        return POOL not in await ann.credit()

    await eventually(is_known, WITHIN_SEC)
    await eventually(is_gone, WITHIN_SEC)
    sent = some(3)
    await ann.publish(sent)
    assert ids(await take(ann, ANN, 3)) == ids(sent)


async def test_a_shelf_that_is_full_takes_no_more_until_there_is_room(bus: KafkaBus) -> None:
    await bus.join(ANN, {POOL: 1})
    sent = some(4_000)
    await bus.publish(sent)
    (member,) = bus._workers[ANN].members
    await eventually(lambda: member._paused, WITHIN_SEC)
    assert member._buffer.waiting < 1_500
    taken = await take(bus, ANN, 4_000, room=100)
    assert len(taken) == 4_000
    assert ids(taken) == ids(sent)


# Closing


async def test_no_thread_outlives_the_bus(new_bus: NewBus) -> None:
    before = set(threading.enumerate())
    bus = new_bus()
    await bus.start()
    partition = await bus.join(ANN, {POOL: 1, "another": 2})
    await bus.read(partition, 0, 1, 0)
    assert len(set(threading.enumerate()) - before) == 5
    await bus.close()
    assert set(threading.enumerate()) == before
