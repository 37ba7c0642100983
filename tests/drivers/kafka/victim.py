"""A worker in a separate process that a test kills or freezes.

It prints each dispatch that it took on one line, and marks it as processed.
"""

import asyncio
import sys

import msgspec

from noonday.crypto.keyring import Keyring
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.ids import WorkerId
from noonday.runtime.clock import SystemClock
from tests.support.factories import POOL


async def work(options: KafkaOptions, keyring: Keyring, worker: WorkerId) -> None:
    bus = KafkaBus(options, keyring, SystemClock())
    await bus.join(worker, {POOL: 10})
    print("here", flush=True)
    while True:
        taken = await bus.take(worker, {POOL: 100}, 0.5)
        for each in taken:
            print(each.execution_id, flush=True)
        await bus.mark_processed(worker, taken)


if __name__ == "__main__":
    arguments = msgspec.json.decode(sys.argv[1])
    asyncio.run(
        work(KafkaOptions(**arguments["options"]), Keyring.from_env_value(arguments["keys"]), WorkerId("w-victim"))
    )
