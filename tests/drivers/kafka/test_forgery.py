import asyncio

import msgspec

from noonday.crypto.keyring import Keyring
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch
from tests.drivers.kafka.broker_side import committed, ends, messages, write
from tests.drivers.kafka.conftest import NewBus
from tests.support.eventually import eventually
from tests.support.factories import POOL, dispatch, report

ANN = WorkerId("w-ann")
WITHIN_SEC = 60.0


def forged() -> bytes:
    return msgspec.msgpack.encode([dispatch(handler="steal")])


async def take(bus: KafkaBus, count: int) -> list[Dispatch]:
    taken: list[Dispatch] = []
    async with asyncio.timeout(WITHIN_SEC):
        while len(taken) < count:
            taken += await bus.take(ANN, {POOL: 100}, 0.5)
    return taken


async def test_worker_never_sees_dispatches_without_a_valid_signature(new_bus: NewBus, options: KafkaOptions) -> None:
    heard: list[str] = []
    bus = new_bus(on_refused=heard.append)
    await bus.join(ANN, {POOL: 10})
    topic = Names(options.prefix).topics_of(POOL)[1]
    write(options, topic, forged())
    write(options, topic, forged(), headers=[("signature", b"k1:" + bytes(32))])
    write(options, topic, b"\xc1 not even readable", partition=1)
    await new_bus(keyring=Keyring.generate()).publish([dispatch(handler="steal")])
    honest = [dispatch() for _ in range(4)]
    await bus.publish(honest)
    taken = await take(bus, 4)
    assert {each.execution_id for each in taken} == {each.execution_id for each in honest}
    await eventually(lambda: bus.refused == 4, WITHIN_SEC)
    assert heard == [topic] * 4
    await bus.mark_processed(ANN, taken)
    await eventually(lambda: ends(options, topic).items() <= committed(options, POOL).items(), WITHIN_SEC)


async def test_a_message_that_is_copied_elsewhere_is_not_believed_there(bus: KafkaBus, options: KafkaOptions) -> None:
    await bus.join(ANN, {POOL: 10})
    await bus.publish([dispatch(pool="another")])
    topics = Names(options.prefix)
    (original,) = messages(options, topics.topics_of("another")[1])
    value = original.value()
    assert value is not None
    write(options, topics.topics_of(POOL)[1], value, headers=original.headers())
    write(options, topics.topics_of("another")[0], value, headers=original.headers())
    await eventually(lambda: bus.refused == 1, WITHIN_SEC)
    assert await bus.take(ANN, {POOL: 10}, 0) == []


async def test_dispatch_signed_before_a_rotation_is_accepted(new_bus: NewBus) -> None:
    keys = {"old": bytes(32), "new": bytes(range(32))}
    before, after = new_bus(keyring=Keyring("old", keys)), new_bus(keyring=Keyring("new", keys))
    sent = dispatch()
    await before.publish([sent])
    await after.join(ANN, {POOL: 1})
    assert await take(after, 1) == [sent]


async def test_recorder_never_reads_entries_without_a_valid_signature(bus: KafkaBus, options: KafkaOptions) -> None:
    partition = await bus.join(ANN, {POOL: 1})
    log = Names(options.prefix).log
    first, last = report(dispatch()), report(dispatch())
    await bus.report(partition, [first])
    write(options, log, msgspec.msgpack.encode([report(dispatch())]), partition=partition)
    await bus.report(partition, [last])
    # A valid message of one partition, repeated in another one.
    (original, *_) = messages(options, log)
    write(options, log, original.value() or b"", partition=1 - partition, headers=original.headers())
    found = []
    offset = 0
    async with asyncio.timeout(WITHIN_SEC):
        while len(found) < 2:
            batch = await bus.read(partition, offset, 10, 1)
            found += batch.entries
            offset = batch.next_offset
    assert found == [first, last]
    assert (await bus.read(1 - partition, 0, 10, 1)).entries == ()
    await eventually(lambda: bus.refused == 2, WITHIN_SEC)
