import time

from noonday.crypto.keyring import Keyring
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.replay import count, read_back
from noonday.model.message import Dispatch
from tests.drivers.kafka.broker_side import write
from tests.support.factories import POOL, dispatch


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def back(options: KafkaOptions, keyring: Keyring, from_ms: int, to_ms: int) -> list[Dispatch]:
    return [each async for found in read_back(options, keyring, POOL, from_ms, to_ms) for each in found]


async def test_dispatches_published_between_two_instants_are_read_back(
    bus: KafkaBus, options: KafkaOptions, keyring: Keyring
) -> None:
    before, wanted, after = [[dispatch(lane=number % 3) for number in range(50)] for _ in range(3)]
    await bus.publish(before)
    from_ms = now_ms() + 1
    while now_ms() <= from_ms:
        pass
    await bus.publish(wanted)
    to_ms = now_ms() + 1
    while now_ms() <= to_ms:
        pass
    await bus.publish(after)
    await bus.publish([dispatch(pool="another")])
    assert sorted(await back(options, keyring, from_ms, to_ms), key=wanted.index) == wanted
    assert await count(options, keyring, POOL, from_ms, to_ms) == 50
    assert await count(options, keyring, POOL, 0, now_ms() + 60_000) == 150
    assert await count(options, keyring, POOL, now_ms() + 60_000, now_ms() + 70_000) == 0
    assert await count(options, keyring, "nobody", 0, now_ms()) == 0


async def test_only_dispatches_with_a_valid_signature_are_read_back(
    bus: KafkaBus, options: KafkaOptions, keyring: Keyring
) -> None:
    sent = dispatch()
    await bus.publish([sent])
    write(options, Names(options.prefix).topics_of(POOL)[1], b"forged")
    assert await back(options, keyring, 0, now_ms() + 60_000) == [sent]
    assert await back(options, Keyring.generate(), 0, now_ms() + 60_000) == []
